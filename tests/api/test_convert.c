/* Conversions of the small float types: every value, every boundary between neighbours. */
#include "convert.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

typedef struct format {
  int bits, mantissa, bias;
  uint32_t largest; /* bits of the largest finite value */
  int infinity;     /* has one, and overflows to it */
  double (*decode)(uint32_t bits);
  uint32_t (*from_double)(double value);
  uint32_t (*from_float)(float value);
} format;

static double decode_bf16(uint32_t bits) { return (double)glint_float_from_bf16((uint16_t)bits); }
static double decode_f16(uint32_t bits) { return (double)glint_float_from_f16((uint16_t)bits); }
static double decode_e4m3(uint32_t bits) { return (double)glint_float_from_e4m3((uint8_t)bits); }
static double decode_e5m2(uint32_t bits) { return (double)glint_float_from_e5m2((uint8_t)bits); }
static uint32_t bf16_double(double value) { return glint_bf16_from_double(value); }
static uint32_t f16_double(double value) { return glint_f16_from_double(value); }
static uint32_t bf16_float(float value) { return glint_bf16_from_float(value); }
static uint32_t f16_float(float value) { return glint_f16_from_float(value); }
static uint32_t e4m3_float(float value) { return glint_e4m3_from_float(value); }
static uint32_t e5m2_float(float value) { return glint_e5m2_from_float(value); }
static uint32_t store8(glint_dtype dtype, double value) {
  uint8_t bits[3] = {0x55, 0x55, 0x55};
  glint_store(bits, dtype, 1, value);
  assert_int_equal(bits[0], 0x55);
  assert_int_equal(bits[2], 0x55);
  return bits[1];
}
static uint32_t e4m3_double(double value) { return store8(GLINT_FLOAT8_E4M3, value); }
static uint32_t e5m2_double(double value) { return store8(GLINT_FLOAT8_E5M2, value); }

static const format formats[] = {
    {16, 7, 127, 0x7F7F, 1, decode_bf16, bf16_double, bf16_float},
    {16, 10, 15, 0x7BFF, 1, decode_f16, f16_double, f16_float},
    {8, 3, 7, 0x7E, 0, decode_e4m3, e4m3_double, e4m3_float},
    {8, 2, 15, 0x7B, 0, decode_e5m2, e5m2_double, e5m2_float},
};

/* The definition of the format, in arithmetic instead of bit operations. */
static double by_definition(const format *f, uint32_t bits) {
  uint32_t magnitude = bits & ((1u << (f->bits - 1)) - 1), fraction = magnitude % (1u << f->mantissa), exponent = magnitude >> f->mantissa;
  double value = exponent ? (1 + fraction / pow(2, f->mantissa)) * pow(2, (int)exponent - f->bias)
                          : fraction / pow(2, f->mantissa) * pow(2, 1 - f->bias);
  return bits >> (f->bits - 1) ? -value : value;
}

static void test_decode_every_value(void **state) {
  (void)state;
  for (size_t n = 0; n < 4; n++)
    for (uint32_t bits = 0; bits < 1u << formats[n].bits; bits++) {
      const format *f = &formats[n];
      uint32_t magnitude = bits & ((1u << (f->bits - 1)) - 1);
      double value = f->decode(bits);
      if (magnitude <= f->largest) {
        assert_true(value == by_definition(f, bits));
        assert_int_equal(signbit(value) != 0, bits >> (f->bits - 1));
      } else if (magnitude == f->largest + 1 && n != 2) {
        assert_true(isinf(value) && (value < 0) == (bits >> (f->bits - 1) != 0)); /* e5m2 has the pattern, though nothing rounds to it */
      } else {
        assert_true(isnan(value));
      }
    }
}

static void both(const format *f, double value, uint32_t expected) {
  assert_int_equal(f->from_double(value), expected);
  if ((double)(float)value == value) assert_int_equal(f->from_float((float)value), expected);
}

/* Each value is itself; halfway to its neighbour goes to the even one; a hair to either side goes there. */
static void test_encode_every_boundary(void **state) {
  (void)state;
  for (size_t n = 0; n < 4; n++)
    for (uint32_t bits = 0; bits < formats[n].largest; bits++)
      for (uint32_t sign = 0; sign < 2; sign++) {
        const format *f = &formats[n];
        uint32_t top = sign << (f->bits - 1);
        double low = f->decode(bits | top), high = f->decode((bits + 1) | top), middle = (low + high) / 2;
        both(f, low, bits | top);
        both(f, high, (bits + 1) | top);
        both(f, middle, (bits + (bits & 1)) | top);
        both(f, nextafter(middle, low), bits | top);
        both(f, nextafter(middle, high), (bits + 1) | top);
        if (low != 0)
          both(f, (double)nextafterf((float)middle, (float)low),
               (float)middle == middle ? bits | top : f->from_double((double)nextafterf((float)middle, (float)low)));
      }
}

static void test_overflow(void **state) {
  (void)state;
  for (size_t n = 0; n < 4; n++) {
    const format *f = &formats[n];
    double largest = f->decode(f->largest), unit = largest - f->decode(f->largest - 1);
    uint32_t over = f->infinity ? f->largest + 1 : f->largest, sign = 1u << (f->bits - 1);
    both(f, nextafter(largest + unit / 2, 0), f->largest);
    both(f, largest + unit / 2, over); /* the tie's even neighbour is the one that does not exist */
    both(f, largest * 2, over);
    both(f, -largest * 3, over | sign);
    both(f, 1e300, over);
    both(f, (double)INFINITY, over);
    both(f, -(double)INFINITY, over | sign);
  }
}

static void test_nan_and_zero(void **state) {
  (void)state;
  for (size_t n = 0; n < 4; n++) {
    const format *f = &formats[n];
    assert_true(isnan(f->decode(f->from_double((double)NAN))));
    assert_true(isnan(f->decode(f->from_float(NAN))));
    both(f, 0.0, 0);
    both(f, -0.0, 1u << (f->bits - 1));
    both(f, 5e-324, 0);
    both(f, -1e-300, 1u << (f->bits - 1));
  }
  for (uint32_t bits = 0; bits < 1u << 16; bits++) { /* every NaN stays one, also those whose payload sits in the low bits */
    uint32_t pattern = 0x7F800000u | bits;
    float value;
    memcpy(&value, &pattern, sizeof value);
    if (bits)
      assert_true(isnan(glint_float_from_bf16(glint_bf16_from_float(value))) && isnan(glint_float_from_f16(glint_f16_from_float(value))));
  }
}

/* 1 + 2^-11 + 2^-40: through float it would become a tie of float16 and fall to the even side. */
static void test_rounds_once(void **state) {
  (void)state;
  assert_int_equal(glint_f16_from_double(1 + 0x1p-11 + 0x1p-40), 0x3C01);
  assert_int_equal(glint_bf16_from_double(1 + 0x1p-8 + 0x1p-40), 0x3F81);
  uint16_t half = 0;
  glint_store(&half, GLINT_FLOAT16, 0, 1 + 0x1p-11 + 0x1p-40);
  assert_int_equal(half, 0x3C01);
}

static void test_load_store(void **state) {
  (void)state;
  static const glint_dtype dtypes[] = {GLINT_FLOAT32, GLINT_BFLOAT16, GLINT_FLOAT16, GLINT_FLOAT8_E4M3, GLINT_FLOAT8_E5M2, GLINT_FLOAT64};
  for (size_t n = 0; n < sizeof dtypes / sizeof *dtypes; n++) {
    double array[4];
    for (int i = 0; i < 4; i++) glint_store(array, dtypes[n], i, i * -0.5);
    for (int i = 0; i < 4; i++) assert_true(glint_load(array, dtypes[n], i) == i * -0.5);
  }
  int32_t whole = 7;
  assert_true(isnan(glint_load(&whole, GLINT_INT32, 0)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_every_value), cmocka_unit_test(test_encode_every_boundary), cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_nan_and_zero),       cmocka_unit_test(test_rounds_once),           cmocka_unit_test(test_load_store),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
