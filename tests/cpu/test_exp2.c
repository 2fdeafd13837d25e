/* The fast exponentials of every vector type against the C library's double exp2, over the floats of their range. GLINT_SWEEP=1 in the
 * environment visits every one of the two billion floats in [-126, 127); by default every 4099th. */
#include "convert.h"
#include "isa.h"
#include "rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vec_portable.h"
#if defined(__x86_64__)
#include "vec_avx2.h"
#include "vec_avx512.h"
#endif

enum { LANES = 16 };

/* y[0..15] = 2^x[0..15]. */
typedef void many(const float *x, float *y);
#define MANY(vec_name)                                                                                                                     \
  static GLINT_CAT(TARGET, vec_name) void GLINT_CAT(many, vec_name)(const float *x, float *y) {                                            \
    for (int i = 0; i < LANES; i += GLINT_CAT(VL, vec_name))                                                                               \
      GLINT_CAT(store, vec_name)(y + i, GLINT_CAT(exp2, vec_name)(GLINT_CAT(load, vec_name)(x + i)));                                      \
  }
MANY(portable)
#if defined(__x86_64__)
MANY(avx2)
MANY(avx512)
#endif

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static void check_sixteen(many *f, const float *x, double bound) {
  float y[LANES];
  f(x, y);
  for (int i = 0; i < LANES; i++) {
    double expected = exp2((double)x[i]), error = fabs((double)y[i] - expected) / expected;
    if (!(error <= bound)) fail_msg("2^%a is %a, expected %a: relative error %g", (double)x[i], (double)y[i], expected, error);
  }
}

/* All floats whose bits lie in [from, to], every step-th, in vectors of 16. */
static void sweep(many *f, uint32_t from, uint32_t to, uint32_t step, double bound) {
  float x[LANES];
  for (uint64_t at = from; at <= to; at += (uint64_t)step * LANES) {
    for (int i = 0; i < LANES; i++) {
      uint64_t bits = at + (uint64_t)step * (uint64_t)i;
      x[i] = float_of((uint32_t)(bits <= to ? bits : to));
    }
    check_sixteen(f, x, bound);
  }
}

static void check_special(many *f) {
  float x[LANES] = {0.0f, -0.0f, -INFINITY, NAN,     -126.5f, -150.0f, -1e30f, -3.4e38f,
                    1.0f, -1.0f, 2.0f,      -126.0f, 8.0f,    100.0f,  -64.0f, -2.0f};
  float y[LANES];
  f(x, y);
  assert_true(y[0] == 1.0f && y[1] == 1.0f);
  assert_true(y[2] == 0.0f);
  assert_true(isnan(y[3]));
  for (int i = 4; i < 8; i++) assert_true(y[i] >= 0.0f && y[i] <= 0x1p-125f);
  for (int i = 8; i < LANES; i++) assert_true(fabs((double)y[i] / exp2((double)x[i]) - 1) < 1e-5);
}

static void check_one(many *f) {
  const char *full = getenv("GLINT_SWEEP");
  uint32_t step = full && *full == '1' ? 1 : 4099;
  check_special(f);
  sweep(f, 0, bits_of(127.0f) - 1, step, GLINT_EXP2_ERROR);
  sweep(f, bits_of(-0.0f), bits_of(-126.0f), step, GLINT_EXP2_ERROR);
}

static void test_portable(void **state) {
  (void)state;
  check_one(many_portable);
}

static void test_avx2(void **state) {
  (void)state;
#if defined(__x86_64__)
  if (glint_cpu_machine_get()->has[GLINT_ISA_AVX2]) {
    check_one(many_avx2);
    return;
  }
#endif
  skip();
}

static void test_avx512(void **state) {
  (void)state;
#if defined(__x86_64__)
  if (glint_cpu_machine_get()->has[GLINT_ISA_AVX512]) {
    check_one(many_avx512);
    return;
  }
#endif
  skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_portable), cmocka_unit_test(test_avx2), cmocka_unit_test(test_avx512)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
