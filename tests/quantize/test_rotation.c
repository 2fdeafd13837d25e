/* The rotation by itself: it is the matrix of glint.h, orthogonal, its own inverse up to signs, and made of the documented random bits. And
 * the factors of a block at the ends of the range. */
#include "quantization.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t dims[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 96, 192, 80, 112, 40, 63, 100, 160, 320, 384};
enum { DIMS = sizeof dims / sizeof *dims };
static uint64_t seed;

static void rotate(float *x, int64_t d, const uint32_t signs[16]) {
  glint_rotation_flip(x, d, signs);
  glint_rotation_mix(x, d);
}

static void fill(float *x, int64_t n) {
  for (int64_t c = 0; c < n; c++) x[c] = (float)testkit_random_normal(&seed);
}

static void is_hadamard_times_signs(void **state) {
  (void)state;
  for (int n = 0; n < DIMS; n++) {
    int64_t d = dims[n], block = 1;
    uint32_t signs[16];
    glint_rotation_signs(testkit_random(&seed), signs);
    while (d % (2 * block) == 0) block *= 2;
    assert_int_equal(glint_rotation_block(d), block);
    for (int64_t j = 0; j < d; j += 1 + d / 16) { /* column j of the matrix: the image of a unit vector */
      float x[512] = {0};
      x[j] = 1;
      rotate(x, d, signs);
      float sign = signs[j / 32] >> (j % 32) & 1 ? -1.0f : 1.0f;
      for (int64_t i = 0; i < d; i++) {
        int ones = __builtin_popcountll((unsigned long long)((i % block) & (j % block)));
        assert_true(x[i] == (i / block == j / block ? (ones & 1 ? -sign : sign) : 0.0f));
      }
    }
  }
}

/* R^T R = 1: applying H S, then H and S again, gives block * x. */
static void is_undone(void **state) {
  (void)state;
  for (int n = 0; n < DIMS; n++) {
    int64_t d = dims[n], block = glint_rotation_block(d);
    uint32_t signs[16];
    float x[512] = {0}, y[512];
    glint_rotation_signs(testkit_random(&seed), signs);
    fill(x, d);
    memcpy(y, x, sizeof y);
    rotate(y, d, signs);
    glint_rotation_mix(y, d);
    for (int64_t c = 0; c < d; c++) {
      double back = (double)y[c] / (double)block * (signs[c / 32] >> (c % 32) & 1 ? -1 : 1);
      assert_true(fabs(back - (double)x[c]) < 2e-6 * 4);
    }
  }
}

static void keeps_scores(void **state) {
  (void)state;
  for (int n = 0; n < DIMS; n++) {
    int64_t d = dims[n];
    uint32_t signs[16];
    float q[512], k[512];
    double before = 0, after = 0, size = 0, factor = (double)glint_rotation_factor(d);
    glint_rotation_signs(testkit_random(&seed), signs);
    fill(q, d), fill(k, d);
    q[testkit_random_below(&seed, d)] *= 100;
    for (int64_t c = 0; c < d; c++) before += (double)q[c] * (double)k[c], size += fabs((double)q[c] * (double)k[c]);
    rotate(q, d, signs), rotate(k, d, signs);
    for (int64_t c = 0; c < d; c++) after += factor * (double)q[c] * factor * (double)k[c];
    assert_true(fabs(before - after) <= 2e-6 * size + 1e-12);
  }
}

static void spreads_outliers(void **state) {
  (void)state;
  for (int64_t d = 16; d <= 512; d *= 2) {
    uint32_t signs[16];
    float x[512] = {0}, largest = 0;
    glint_rotation_signs(testkit_random(&seed), signs);
    x[d / 3] = 1000;
    rotate(x, d, signs);
    for (int64_t c = 0; c < d; c++) largest = fmaxf(largest, fabsf(x[c]) * glint_rotation_factor(d));
    assert_true(fabs((double)largest * sqrt((double)d) - 1000) < 1e-3);
  }
}

/* Philox's published vector (counter 0, key 0) is what seed 0 gives for the first 128 columns. */
static void signs_are_philox(void **state) {
  (void)state;
  uint32_t signs[16];
  glint_rotation_signs(0, signs);
  assert_int_equal(signs[0], 0x6627e8d5u);
  assert_int_equal(signs[1], 0xe169c58du);
  assert_int_equal(signs[2], 0xbc57ac4cu);
  assert_int_equal(signs[3], 0x9b00dbd8u);
  int ones = 0;
  for (int n = 0; n < 64; n++) {
    glint_rotation_signs((uint64_t)n << 32 | 77, signs);
    for (int i = 0; i < 16; i++) ones += __builtin_popcount(signs[i]);
  }
  assert_true(abs(ones - 64 * 256) < 600); /* 6 deviations */
}

static void factors_stay_finite(void **state) {
  (void)state;
  static const float maxima[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-101f, 0x1p-100f, 1e-20f, 1, 448, 57344, 3e38f};
  for (size_t n = 0; n < sizeof maxima / sizeof *maxima; n++)
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
      float largest = glint_fp8_largest(e5m2 ? GLINT_FLOAT8_E5M2 : GLINT_FLOAT8_E4M3);
      glint_quantize_factors f = glint_quantize_factors_of(maxima[n], largest, 0.0625f);
      assert_true(isfinite(f.descale) && f.descale > 0 && isfinite(f.multiplier) && f.multiplier > 0);
      if (maxima[n] >= 0x1p-100f) assert_true(fabs((double)maxima[n] * (double)f.multiplier / (double)largest - 1) < 1e-6);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_hadamard_times_signs), cmocka_unit_test(is_undone),        cmocka_unit_test(keeps_scores),
      cmocka_unit_test(spreads_outliers),        cmocka_unit_test(signs_are_philox), cmocka_unit_test(factors_stay_finite)};
  seed = testkit_fresh_seed();
  printf("GLINT_SEED=%llu\n", (unsigned long long)seed);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
