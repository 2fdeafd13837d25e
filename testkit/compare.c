/* The error rule. */
#include "internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int all_ones(const void *bytes, size_t size) {
  const unsigned char *byte = bytes;
  for (size_t n = 0; n < size; n++)
    if (byte[n] != 0xFF) return 0;
  return 1;
}

static void place(const glint_tensor *t, int64_t n, char *text, size_t size) {
  int64_t index[4] = {0};
  for (int a = t->rank - 1; a >= 0; a--) index[a] = n % t->shape[a], n /= t->shape[a];
  size_t used = 0;
  for (int a = 0; a < t->rank && used < size; a++)
    used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, a ? ", " : "", index[a]);
}

static int fail(testkit_report *report, const char *name, const glint_tensor *t, int64_t n, double got, double expected, const char *why) {
  char where[96];
  place(t, n, where, sizeof where);
  snprintf(report->message, sizeof report->message, "%s[%s] is %.9g: expected %.9g, %s", name, where, got, expected, why);
  return 0;
}

/* Largest error of the plain implementation and largest reference value. */
static void measure(const double *reference, const double *plain, int64_t count, double *plain_error, double *largest) {
  *plain_error = *largest = 0;
  for (int64_t n = 0; n < count; n++) {
    if (!isfinite(reference[n])) continue;
    *largest = fmax(*largest, fabs(reference[n]));
    if (isfinite(plain[n])) *plain_error = fmax(*plain_error, fabs(plain[n] - reference[n]));
  }
}

int testkit_compare(const char *name, const glint_tensor *got, const double *reference, const double *plain, const testkit_rule *rule,
                    testkit_report *report) {
  int64_t count = testkit_count(got), worst_at = -1;
  size_t element = glint_dtype_size(got->dtype);
  double plain_error, largest, worst = 0;
  measure(reference, plain, count, &plain_error, &largest);
  double allowed = 2 * plain_error + rule->relative * largest + rule->absolute;
  for (int64_t n = 0; n < count; n++) {
    int64_t at = testkit_offset(got, n);
    double value = glint_load(got->data, got->dtype, at), expected = reference[n];
    int poison = all_ones((const char *)got->data + (size_t)at * element, element), untouched = all_ones(&reference[n], sizeof *reference);
    if (untouched && !poison) return fail(report, name, got, n, value, expected, "the element must not be written");
    if (untouched) continue;
    if (poison) return fail(report, name, got, n, value, expected, "the element was not written");
    if (isnan(value) != isnan(expected)) return fail(report, name, got, n, value, expected, "NaN on one side only");
    if (isnan(value) || value == expected) continue;
    if (isinf(value) || isinf(expected)) return fail(report, name, got, n, value, expected, "infinite on one side only");
    double error = fabs(value - expected);
    if (error > worst) worst = error, worst_at = n;
  }
  double ratio = worst == 0 ? 0 : worst / allowed;
  if (plain_error > rule->relative * largest + rule->absolute) report->of_plain = fmax(report->of_plain, worst / plain_error);
  report->error = fmax(report->error, worst);
  if (ratio > report->worst || !report->worst_of[0]) {
    report->worst = ratio;
    snprintf(report->worst_of, sizeof report->worst_of, "%s", name);
  }
  if (worst <= allowed) return 1;
  char why[160];
  snprintf(why, sizeof why, "error %.3g is over the %.3g allowed (plain implementation: %.3g)", worst, allowed, plain_error);
  return fail(report, name, got, worst_at, glint_load(got->data, got->dtype, testkit_offset(got, worst_at)), reference[worst_at], why);
}
