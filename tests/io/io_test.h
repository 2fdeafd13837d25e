/* What the tests of both readers share: a fresh seed, damage to bytes, and the values of tests/data/make_fixtures.py. */
#ifndef GLINT_IO_TEST_H
#define GLINT_IO_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "convert.h"

static uint64_t io_test_state;

static inline int io_test_seed(void **state) {
  (void)state;
  const char *given = getenv("GLINT_SEED");
  io_test_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
  printf("seed %llu (repeat with GLINT_SEED)\n", (unsigned long long)io_test_state);
  return 0;
}

/* splitmix64 (Steele et al., OOPSLA 2014) */
static inline uint64_t io_test_random(void) {
  uint64_t z = (io_test_state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* A copy of exactly size bytes, so that a sanitizer sees any step beyond. */
static inline io_bytes io_test_copy(const void *data, size_t size) {
  io_bytes bytes = {malloc(size ? size : 1), size};
  assert_non_null(bytes.data);
  memcpy(bytes.data, data, size);
  return bytes;
}

static inline double io_test_value(const io_array *array, int64_t i) {
  if (array->dtype == GLINT_INT32) return ((const int32_t *)array->data)[i];
  return array->dtype == GLINT_FLOAT64 ? ((const double *)array->data)[i] : glint_load(array->data, array->dtype, i);
}

static inline void io_test_expect_fixture(const io_array *array) {
  assert_int_equal(array->rank, 3);
  assert_int_equal(array->count, 24);
  for (int i = 0; i < 3; i++) assert_int_equal(array->shape[i], i + 2);
  for (int64_t i = 0; i < 24; i++) {
    double expected = array->dtype == GLINT_INT32 ? (double)(i - 3) : (double)i * 0.25 - 3;
    assert_true(io_test_value(array, i) == expected);
  }
}

#endif
