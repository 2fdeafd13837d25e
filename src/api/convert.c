/* Scalar conversions of the small float types. Everything goes through one encoder and one decoder that know a format by four numbers,
 * so that a format cannot have a rounding of its own by accident. */
#include "convert.h"

#include <math.h>
#include <string.h>

typedef struct format {
  int mantissa;     /* stored bits of the significand */
  int bias;         /* of the exponent */
  uint32_t largest; /* bits of the largest finite value */
  uint32_t over;    /* bits of what lies above it: infinity, or the largest value where the format saturates */
  uint32_t nan;     /* quiet NaN; the payload is or-ed in where payload is set */
  int payload;
  int sign; /* position of the sign bit */
} format;

static const format BF16 = {7, 127, 0x7F7F, 0x7F80, 0x7FC0, 1, 15};
static const format F16 = {10, 15, 0x7BFF, 0x7C00, 0x7E00, 1, 15};
static const format E4M3 = {3, 7, 0x7E, 0x7E, 0x7F, 0, 7};
static const format E5M2 = {2, 15, 0x7B, 0x7B, 0x7F, 0, 7};

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* value >> shift of a 53-bit significand, ties to even. */
static uint64_t shift_round(uint64_t significand, int shift) {
  if (shift > 54) return 0;
  uint64_t kept = significand >> shift, rest = significand & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint32_t encode(const format *f, double value) {
  uint64_t bits = bits_of(value);
  uint32_t sign = (uint32_t)(bits >> 63) << f->sign;
  uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
  int exponent = (int)(bits >> 52 & 0x7FF);
  if (exponent == 0x7FF && fraction) return f->payload ? sign | f->nan | (uint32_t)(fraction >> (52 - f->mantissa)) : f->nan;
  if (exponent == 0x7FF) return sign | f->over;
  if (exponent == 0) return sign; /* far below half of the smallest value of every format */
  int power = exponent - 1023, smallest = 1 - f->bias;
  if (power > f->bias + 1) return sign | f->over;
  /* below the normal range the quantum stays that of the smallest exponent */
  int quantum = (power < smallest ? smallest : power) - f->mantissa;
  uint64_t units = shift_round(fraction | (uint64_t)1 << 52, quantum - (power - 52));
  /* a carry out of the significand runs into the exponent field, which is what rounding up to the next power of two means */
  uint64_t field = power < smallest ? 0 : (uint64_t)(power - smallest) << f->mantissa;
  uint64_t magnitude = field + units;
  return sign | (magnitude > f->largest ? f->over : (uint32_t)magnitude);
}

static float decode(const format *f, uint32_t bits) {
  uint32_t mask = ((uint32_t)1 << f->mantissa) - 1, fraction = bits & mask;
  int exponent = (int)((bits & (((uint32_t)1 << f->sign) - 1)) >> f->mantissa);
  float units = (float)(exponent ? fraction | (mask + 1) : fraction);
  float magnitude = ldexpf(units, (exponent ? exponent : 1) - f->bias - f->mantissa);
  return bits >> f->sign & 1 ? -magnitude : magnitude;
}

static float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float glint_float_from_bf16(uint16_t bits) { return float_from_bits((uint32_t)bits << 16); }

float glint_float_from_f16(uint16_t bits) {
  if ((bits & 0x7C00) == 0x7C00) return float_from_bits((uint32_t)(bits & 0x8000) << 16 | 0x7F800000u | (uint32_t)(bits & 0x3FF) << 13);
  return decode(&F16, bits);
}

float glint_float_from_e4m3(uint8_t bits) {
  if ((bits & 0x7F) == 0x7F) return float_from_bits((uint32_t)(bits & 0x80) << 24 | 0x7FC00000u);
  return decode(&E4M3, bits);
}

float glint_float_from_e5m2(uint8_t bits) {
  if ((bits & 0x7C) == 0x7C) return float_from_bits((uint32_t)(bits & 0x80) << 24 | 0x7F800000u | (uint32_t)(bits & 3) << 21);
  return decode(&E5M2, bits);
}

uint16_t glint_bf16_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

uint16_t glint_f16_from_float(float value) { return (uint16_t)encode(&F16, (double)value); }
uint8_t glint_e4m3_from_float(float value) { return (uint8_t)encode(&E4M3, (double)value); }
uint8_t glint_e5m2_from_float(float value) { return (uint8_t)encode(&E5M2, (double)value); }
uint16_t glint_bf16_from_double(double value) { return (uint16_t)encode(&BF16, value); }
uint16_t glint_f16_from_double(double value) { return (uint16_t)encode(&F16, value); }

double glint_load(const void *data, glint_dtype dtype, int64_t index) {
  switch (dtype) {
  case GLINT_FLOAT32: return (double)((const float *)data)[index];
  case GLINT_FLOAT64: return ((const double *)data)[index];
  case GLINT_BFLOAT16: return (double)glint_float_from_bf16(((const uint16_t *)data)[index]);
  case GLINT_FLOAT16: return (double)glint_float_from_f16(((const uint16_t *)data)[index]);
  case GLINT_FLOAT8_E4M3: return (double)glint_float_from_e4m3(((const uint8_t *)data)[index]);
  case GLINT_FLOAT8_E5M2: return (double)glint_float_from_e5m2(((const uint8_t *)data)[index]);
  case GLINT_INT32:
  case GLINT_DTYPE_NONE: break;
  }
  return (double)NAN;
}

void glint_store(void *data, glint_dtype dtype, int64_t index, double value) {
  switch (dtype) {
  case GLINT_FLOAT32: ((float *)data)[index] = (float)value; break;
  case GLINT_FLOAT64: ((double *)data)[index] = value; break;
  case GLINT_BFLOAT16: ((uint16_t *)data)[index] = glint_bf16_from_double(value); break;
  case GLINT_FLOAT16: ((uint16_t *)data)[index] = glint_f16_from_double(value); break;
  case GLINT_FLOAT8_E4M3: ((uint8_t *)data)[index] = (uint8_t)encode(&E4M3, value); break;
  case GLINT_FLOAT8_E5M2: ((uint8_t *)data)[index] = (uint8_t)encode(&E5M2, value); break;
  case GLINT_INT32:
  case GLINT_DTYPE_NONE: break;
  }
}
