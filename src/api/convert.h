/* Scalar conversions of the small float types; exact, ties to even, NaN kept. FP8 conversions saturate. */
#ifndef GLINT_CONVERT_H
#define GLINT_CONVERT_H
#include "glint.h"

float glint_float_from_bf16(uint16_t bits);
float glint_float_from_f16(uint16_t bits);
float glint_float_from_e4m3(uint8_t bits);
float glint_float_from_e5m2(uint8_t bits);
uint16_t glint_bf16_from_float(float value);
uint16_t glint_f16_from_float(float value);
uint8_t glint_e4m3_from_float(float value);
uint8_t glint_e5m2_from_float(float value);
/* Rounds once, straight from double (no double rounding through float). */
uint16_t glint_bf16_from_double(double value);
uint16_t glint_f16_from_double(double value);

/* Element index of an array of any float dtype. */
double glint_load(const void *data, glint_dtype dtype, int64_t index);
void glint_store(void *data, glint_dtype dtype, int64_t index, double value);
#endif
