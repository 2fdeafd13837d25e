/* The laws of the layout algebra on random layouts. GLINT_TEST_SEED repeats a run, GLINT_TEST_CASES sets its length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "property.h"

static int at_fails(char why[256], const char *what, int64_t i, int64_t got, int64_t expected) {
  snprintf(why, 256, "%s at %lld: %lld, expected %lld", what, (long long)i, (long long)got, (long long)expected);
  return FAILS;
}

/* How often each offset occurs; offsets beyond the array go to the last entry. */
enum { HISTOGRAM = 1 << 16 };
static void count_offsets(const glint_layout *l, int64_t base, int *histogram) {
  for (int64_t i = 0, n = glint_layout_size(l); i < n; i++) {
    int64_t at = base + glint_layout_at(l, i);
    histogram[at >= 0 && at < HISTOGRAM - 1 ? at : HISTOGRAM - 1]++;
  }
}

static verdict same_offsets(const glint_layout *a, const glint_layout *b, char why[256]) {
  static int x[HISTOGRAM], y[HISTOGRAM];
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);
  count_offsets(a, 0, x);
  count_offsets(b, 0, y);
  for (int64_t i = 0; i < HISTOGRAM; i++)
    if (x[i] != y[i]) return (verdict)at_fails(why, "number of coordinates with offset", i, y[i], x[i]);
  return HOLDS;
}

static verdict text_round_trip(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout swizzled, back;
  char text[2048];
  glint_swizzle s = {(int32_t)(b->count % 4), (int32_t)(b->count % 3), 4};
  if (glint_layout_swizzled(s, b->count % 2 ? b->count : 0, a, &swizzled, NULL)) return FAILS;
  const glint_layout *both[2] = {a, &swizzled};
  for (int i = 0; i < 2; i++) {
    size_t n = glint_layout_format(both[i], text, sizeof text);
    if (n != strlen(text) || glint_layout_parse(text, &back, NULL) || !glint_layout_equal(both[i], &back)) {
      snprintf(why, 256, "%.200s", text);
      return FAILS;
    }
  }
  return HOLDS;
}

static verdict coalesce_keeps_function(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  glint_layout c, again;
  if (glint_layout_coalesce(a, NULL, &c, NULL)) return FAILS;
  if (glint_layout_size(&c) != glint_layout_size(a)) return (verdict)at_fails(why, "size", 0, glint_layout_size(&c), glint_layout_size(a));
  for (int64_t i = 0; i < glint_layout_size(a); i++)
    if (glint_layout_at(a, i) != glint_layout_at(&c, i))
      return (verdict)at_fails(why, "offset", i, glint_layout_at(&c, i), glint_layout_at(a, i));
  if (glint_layout_depth(&c) > 1 || glint_layout_coalesce(&c, NULL, &again, NULL) || !glint_layout_equal(&c, &again)) {
    snprintf(why, 256, "not as short as possible");
    return FAILS;
  }
  return HOLDS;
}

static verdict sort_keeps_offsets(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  glint_layout s;
  return glint_layout_sort(a, &s, NULL) ? FAILS : same_offsets(a, &s, why);
}

static verdict filter_keeps_image(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  static int x[HISTOGRAM], y[HISTOGRAM];
  glint_layout f;
  if (glint_layout_filter(a, NULL, &f, NULL)) return FAILS;
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);
  count_offsets(a, 0, x);
  count_offsets(&f, 0, y);
  for (int64_t i = 0; i < HISTOGRAM; i++)
    if (!x[i] != !y[i]) return (verdict)at_fails(why, "offset reached", i, y[i], x[i]);
  return HOLDS;
}

static verdict composition_composes(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout r;
  if (glint_layout_compose(a, b, &r, NULL)) return UNDEFINED;
  if (glint_layout_size(&r) != glint_layout_size(b) || glint_layout_rank(&r) < glint_layout_rank(b))
    return (verdict)at_fails(why, "size", 0, glint_layout_size(&r), glint_layout_size(b));
  for (int64_t i = 0; i < glint_layout_size(b); i++) {
    int64_t expected = glint_layout_at(a, glint_layout_at(b, i));
    if (glint_layout_at(&r, i) != expected) return (verdict)at_fails(why, "offset", i, glint_layout_at(&r, i), expected);
  }
  return HOLDS;
}

/* Sw o offset o a composes through. */
static verdict swizzle_passes_through(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout s, r;
  glint_swizzle w = {(int32_t)(a->count % 4), (int32_t)(b->count % 4), (int32_t)(3 + b->count % 2)};
  if (glint_layout_swizzled(w, 0, a, &s, NULL)) return FAILS;
  if (glint_layout_compose(&s, b, &r, NULL)) return UNDEFINED;
  for (int64_t i = 0; i < glint_layout_size(b); i++) {
    int64_t x = glint_layout_at(a, glint_layout_at(b, i)), expected = glint_swizzle_apply(w, x);
    if (glint_layout_at(&r, i) != expected) return (verdict)at_fails(why, "offset", i, glint_layout_at(&r, i), expected);
    if (glint_swizzle_apply(w, expected) != x) return (verdict)at_fails(why, "swizzle twice", i, glint_swizzle_apply(w, expected), x);
  }
  return HOLDS;
}

/* How many offsets a layout reaches, if its strides in ascending order divide: each a multiple of what the modes before it span. Only then do
 * layout and complement fill the target; otherwise CuTe's complement rounds its gaps down, and this returns 0. */
static int64_t filled_by(const glint_layout *a) {
  glint_layout s, mode;
  int64_t span = 1, reached = 1;
  if (glint_layout_filter(a, NULL, &s, NULL) || glint_layout_flatten(&s, &s, NULL) || glint_layout_sort(&s, &s, NULL)) return 0;
  for (int32_t i = 0; i < glint_layout_rank(&s); i++) {
    if (glint_layout_mode(&s, i, &mode, NULL)) return 0;
    const int64_t size = glint_layout_size(&mode);
    if (size < 2) continue;
    const int64_t stride = (glint_layout_cosize(&mode) - 1) / (size - 1);
    if (stride % span != 0) return 0;
    span = stride * size;
    reached *= size;
  }
  return reached;
}

static verdict complement_is_disjoint_and_ordered(const glint_layout *a, const glint_layout *b, char why[256]) {
  static int x[HISTOGRAM];
  glint_layout c;
  int64_t target = glint_layout_cosize(b) * 4;
  if (glint_layout_complement(a, target, &c, NULL)) return UNDEFINED;
  memset(x, 0, sizeof x);
  count_offsets(a, 0, x);
  for (int64_t i = 1; i < glint_layout_size(&c); i++) {
    int64_t at = glint_layout_at(&c, i), before = glint_layout_at(&c, i - 1);
    if (at <= before) return (verdict)at_fails(why, "not ascending", i, at, before + 1);
    if (at < HISTOGRAM - 1 && x[at]) return (verdict)at_fails(why, "in the layout's image", i, at, -1);
  }
  const int64_t filled = filled_by(a) * glint_layout_size(&c);
  if (filled > 0 && filled < target) return (verdict)at_fails(why, "offsets filled", 0, filled, target);
  return HOLDS;
}

static verdict right_inverse_inverts(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  static int x[HISTOGRAM];
  glint_layout r;
  if (glint_layout_right_inverse(a, &r, NULL)) return FAILS;
  int64_t n = glint_layout_size(&r);
  for (int64_t i = 0; i < n; i++) {
    int64_t back = glint_layout_at(a, glint_layout_at(&r, i));
    if (back != i) return (verdict)at_fails(why, "a(r(i))", i, back, i);
  }
  /* of a permutation of [0, size) it is the whole inverse */
  memset(x, 0, sizeof x);
  count_offsets(a, 0, x);
  int64_t covered = 0;
  while (covered < HISTOGRAM - 1 && x[covered] == 1) covered++;
  if (covered == glint_layout_size(a) && n != covered) return (verdict)at_fails(why, "size", 0, n, covered);
  return HOLDS;
}

static verdict left_inverse_inverts(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  static uint64_t bitmap[HISTOGRAM / 64];
  glint_layout l;
  if (glint_layout_left_inverse(a, &l, NULL)) return UNDEFINED;
  int injective = glint_layout_injective(a, bitmap, sizeof bitmap / sizeof *bitmap);
  for (int64_t i = 0; i < glint_layout_size(a); i++) {
    int64_t at = glint_layout_at(a, i), back = glint_layout_at(&l, at);
    if (injective == 1 && back != i) return (verdict)at_fails(why, "l(a(i))", i, back, i);
    if (glint_layout_at(a, back) != at) return (verdict)at_fails(why, "a(l(a(i)))", i, glint_layout_at(a, back), at);
  }
  return HOLDS;
}

static verdict divide_is_composition_with_complement(const glint_layout *a, const glint_layout *b, char why[256]) {
  static const glint_layout_form forms[] = {GLINT_LAYOUT_ZIPPED, GLINT_LAYOUT_TILED, GLINT_LAYOUT_FLAT};
  glint_layout r, rest, pair, other;
  if (glint_layout_divide(a, b, GLINT_LAYOUT_LOGICAL, &r, NULL)) return UNDEFINED;
  if (glint_layout_complement(b, glint_layout_size(a), &rest, NULL)) return FAILS;
  const glint_layout *modes[2] = {b, &rest};
  if (glint_layout_concat(modes, 2, &pair, NULL)) return FAILS;
  for (int64_t i = 0; i < glint_layout_size(&pair); i++) {
    int64_t expected = glint_layout_at(a, glint_layout_at(&pair, i));
    if (glint_layout_at(&r, i) != expected) return (verdict)at_fails(why, "offset", i, glint_layout_at(&r, i), expected);
  }
  for (int f = 0; f < 3; f++) {
    if (glint_layout_divide(a, b, forms[f], &other, NULL)) return FAILS;
    for (int64_t i = 0; i < glint_layout_size(&r); i++)
      if (glint_layout_at(&other, i) != glint_layout_at(&r, i))
        return (verdict)at_fails(why, "another form's offset", i, glint_layout_at(&other, i), glint_layout_at(&r, i));
  }
  return HOLDS;
}

static verdict product_repeats_the_block(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout r, rest, blocked, raked;
  if (glint_layout_product(a, b, GLINT_LAYOUT_LOGICAL, &r, NULL)) return UNDEFINED;
  if (glint_layout_complement(a, glint_layout_size(a) * glint_layout_cosize(b), &rest, NULL)) return FAILS;
  int64_t n = glint_layout_size(a);
  for (int64_t i = 0; i < glint_layout_size(&r); i++) {
    int64_t expected = glint_layout_at(a, i % n) + glint_layout_at(&rest, glint_layout_at(b, i / n));
    if (glint_layout_at(&r, i) != expected) return (verdict)at_fails(why, "offset", i, glint_layout_at(&r, i), expected);
  }
  if (glint_layout_product(a, b, GLINT_LAYOUT_BLOCKED, &blocked, NULL) || glint_layout_product(a, b, GLINT_LAYOUT_RAKED, &raked, NULL)) {
    snprintf(why, 256, "the blocked or raked product is refused");
    return FAILS;
  }
  verdict v = same_offsets(&r, &blocked, why);
  return v == HOLDS ? same_offsets(&r, &raked, why) : v;
}

/* Narrower elements: new offsets n * old + 0 .. n - 1; and back. */
static verdict recast_keeps_memory(const glint_layout *a, const glint_layout *b, char why[256]) {
  static int x[HISTOGRAM], y[HISTOGRAM];
  glint_layout narrow, wide;
  int32_t n = 1 << (1 + b->count % 3);
  if (glint_layout_recast(a, 8 * n, 8, &narrow, NULL)) return UNDEFINED;
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);
  for (int64_t i = 0; i < glint_layout_size(a); i++)
    for (int64_t k = 0; k < n; k++) {
      int64_t at = glint_layout_at(a, i) * n + k;
      x[at < HISTOGRAM - 1 ? at : HISTOGRAM - 1]++;
    }
  count_offsets(&narrow, 0, y);
  for (int64_t i = 0; i < HISTOGRAM; i++)
    if (x[i] != y[i]) return (verdict)at_fails(why, "times a byte occurs", i, y[i], x[i]);
  if (glint_layout_recast(&narrow, 8, 8 * n, &wide, NULL)) {
    snprintf(why, 256, "wider again is refused");
    return FAILS;
  }
  return same_offsets(a, &wide, why);
}

static verdict common_vector_is_common(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout r;
  int64_t n;
  if (glint_layout_max_common_vector(a, b, &n, NULL)) return UNDEFINED;
  if (glint_layout_right_inverse(b, &r, NULL)) return FAILS;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = glint_layout_at(&r, i);
    if (glint_layout_at(a, at) != i || glint_layout_at(b, at) != i) return (verdict)at_fails(why, "offset", i, glint_layout_at(a, at), i);
  }
  return HOLDS;
}

/* Every element falls to exactly one thread. */
static verdict partition_covers(const glint_layout *a, const glint_layout *b, char why[256]) {
  static int x[HISTOGRAM], y[HISTOGRAM];
  glint_layout threads, part;
  int64_t offset;
  if (glint_layout_rank(a) != 2) return UNDEFINED;
  if (glint_layout_parse(b->count % 2 ? "(2,2):(2,1)" : "(2,4):(1,2)", &threads, NULL)) return FAILS;
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);
  count_offsets(a, 0, x);
  for (int64_t t = 0; t < glint_layout_size(&threads); t++) {
    if (glint_layout_local_partition(a, &threads, t, &part, &offset, NULL)) return UNDEFINED;
    if (glint_layout_size(&part) * glint_layout_size(&threads) != glint_layout_size(a)) return UNDEFINED; /* does not divide */
    count_offsets(&part, offset, y);
  }
  for (int64_t i = 0; i < HISTOGRAM; i++)
    if (x[i] != y[i]) return (verdict)at_fails(why, "times an offset occurs", i, y[i], x[i]);
  return HOLDS;
}

/* An output may be an input. */
static verdict outputs_may_alias(const glint_layout *a, const glint_layout *b, char why[256]) {
  glint_layout r, x = *a, y = *b, z = *a;
  snprintf(why, 256, "the result differs when the output is an input");
  if (glint_layout_coalesce(a, NULL, &r, NULL) || glint_layout_coalesce(&z, NULL, &z, NULL) || !glint_layout_equal(&r, &z)) return FAILS;
  if (glint_layout_compose(a, b, &r, NULL)) return UNDEFINED;
  if (glint_layout_compose(&x, b, &x, NULL) || glint_layout_compose(a, &y, &y, NULL)) return FAILS;
  if (!glint_layout_equal(&r, &x) || !glint_layout_equal(&r, &y)) return FAILS;
  x = *a, y = *b;
  if (glint_layout_divide(a, b, GLINT_LAYOUT_ZIPPED, &r, NULL)) return HOLDS;
  if (glint_layout_divide(&x, b, GLINT_LAYOUT_ZIPPED, &x, NULL) || glint_layout_divide(a, &y, GLINT_LAYOUT_ZIPPED, &y, NULL)) return FAILS;
  return glint_layout_equal(&r, &x) && glint_layout_equal(&r, &y) ? HOLDS : FAILS;
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

static int cases = 600;

static void run_law(law test) {
  glint_layout a, b;
  char why[256] = "", a_text[1024], b_text[1024];
  if (property_check(test, cases, &a, &b, why)) return;
  glint_layout_format(&a, a_text, sizeof a_text);
  glint_layout_format(&b, b_text, sizeof b_text);
  fail_msg("a = %s  b = %s  %s", a_text, b_text, why);
}

#define LAW(name)                                                                                                                          \
  static void test_##name(void **unused) {                                                                                                 \
    (void)unused;                                                                                                                          \
    run_law(name);                                                                                                                         \
  }
LAW(text_round_trip)
LAW(coalesce_keeps_function)
LAW(sort_keeps_offsets)
LAW(filter_keeps_image)
LAW(composition_composes)
LAW(swizzle_passes_through)
LAW(complement_is_disjoint_and_ordered)
LAW(right_inverse_inverts)
LAW(left_inverse_inverts)
LAW(divide_is_composition_with_complement)
LAW(product_repeats_the_block)
LAW(recast_keeps_memory)
LAW(common_vector_is_common)
LAW(partition_covers)
LAW(outputs_may_alias)

/* The shrinker itself: a law that is false from size 6 on must come down to 6 and nothing else. */
static verdict smaller_than_six(const glint_layout *a, const glint_layout *b, char why[256]) {
  (void)b;
  snprintf(why, 256, "size %lld", (long long)glint_layout_size(a));
  return glint_layout_size(a) < 6 ? HOLDS : FAILS;
}

static void test_shrinking(void **unused) {
  (void)unused;
  glint_layout a, b;
  char why[256], text[256];
  assert_int_equal(property_check(smaller_than_six, 1000, &a, &b, why), 0);
  assert_in_range(glint_layout_size(&a), 6, 8); /* 6, or a shape whose halves and neighbours hold */
  glint_layout_format(&b, text, sizeof text);
  assert_string_equal(text, "1:0");
  assert_int_equal(glint_layout_cosize(&a), 1); /* all strides 0 */
}

int main(void) {
  const char *seed_text = getenv("GLINT_TEST_SEED"), *cases_text = getenv("GLINT_TEST_CASES");
  uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL);
  if (cases_text) cases = atoi(cases_text);
  printf("GLINT_TEST_SEED=%llu\n", (unsigned long long)seed);
  property_seed(seed);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text_round_trip),
      cmocka_unit_test(test_coalesce_keeps_function),
      cmocka_unit_test(test_sort_keeps_offsets),
      cmocka_unit_test(test_filter_keeps_image),
      cmocka_unit_test(test_composition_composes),
      cmocka_unit_test(test_swizzle_passes_through),
      cmocka_unit_test(test_complement_is_disjoint_and_ordered),
      cmocka_unit_test(test_right_inverse_inverts),
      cmocka_unit_test(test_left_inverse_inverts),
      cmocka_unit_test(test_divide_is_composition_with_complement),
      cmocka_unit_test(test_product_repeats_the_block),
      cmocka_unit_test(test_recast_keeps_memory),
      cmocka_unit_test(test_common_vector_is_common),
      cmocka_unit_test(test_partition_covers),
      cmocka_unit_test(test_outputs_may_alias),
      cmocka_unit_test(test_shrinking),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
