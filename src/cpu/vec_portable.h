/* Vectors of 4 floats in C with the compiler's vector type: any machine that gcc or clang compile for.
 *
 * Every vec_ISA.h has the same operations, named OPERATION_ISA, on a type vec_ISA of VL_ISA floats, for functions marked TARGET_ISA:
 *   load store set1 broadcast add sub mul div fma(a,b,c)=a*b+c (fma_one: of one lane) max(a,b)=a>b?a:b (b when either is NaN) abs copysign
 *   select_greater(a,b,x,y)=a>b?x:y  select_equal(a,b,x,y)=a==b?x:y  keep_between(s,j,low,high)=low<=j<high?s:-inf
 *   all_equal  sum_each(r): lane i is the sum of the lanes of r[i], for r[0..VL-1]
 *   fraction(x)=x-floor(x) and scale_pow2(p,x)=p*2^floor(x) for p in [1,2]: together 2^x (exp2.h). They take -inf and x < 128; NaN stays
 *   NaN. Results below 2^-126 may become 0.
 *   load_bf16 load_f16 (VL elements to float) store_bf16 store_f16 (ties to even)
 *   transpose(r): the VL x VL matrix of r[0..VL-1], in place */
#ifndef GLINT_CPU_VEC_PORTABLE_H
#define GLINT_CPU_VEC_PORTABLE_H
#include "../api/convert.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define VL_portable 4
#define TARGET_portable
#define GLINT_VEC_PORTABLE static inline __attribute__((always_inline))

typedef float vec_portable __attribute__((vector_size(16)));
typedef int32_t vec_int_portable __attribute__((vector_size(16)));
typedef uint32_t vec_word_portable __attribute__((vector_size(16)));

GLINT_VEC_PORTABLE vec_portable load_portable(const float *p) {
  vec_portable a;
  memcpy(&a, p, sizeof a);
  return a;
}
GLINT_VEC_PORTABLE void store_portable(float *p, vec_portable a) { memcpy(p, &a, sizeof a); }
GLINT_VEC_PORTABLE vec_portable set1_portable(float a) { return (vec_portable){a, a, a, a}; }
GLINT_VEC_PORTABLE vec_portable broadcast_portable(const float *p) { return set1_portable(*p); }
GLINT_VEC_PORTABLE vec_portable add_portable(vec_portable a, vec_portable b) { return a + b; }
GLINT_VEC_PORTABLE vec_portable sub_portable(vec_portable a, vec_portable b) { return a - b; }
GLINT_VEC_PORTABLE vec_portable mul_portable(vec_portable a, vec_portable b) { return a * b; }
GLINT_VEC_PORTABLE vec_portable div_portable(vec_portable a, vec_portable b) { return a / b; }
GLINT_VEC_PORTABLE vec_portable fma_portable(vec_portable a, vec_portable b, vec_portable c) { return a * b + c; }
/* mask has all bits of a lane set or none. */
GLINT_VEC_PORTABLE vec_portable blend_portable(vec_int_portable mask, vec_portable x, vec_portable y) {
  return (vec_portable)((mask & (vec_int_portable)x) | (~mask & (vec_int_portable)y));
}
GLINT_VEC_PORTABLE vec_portable select_greater_portable(vec_portable a, vec_portable b, vec_portable x, vec_portable y) {
  return blend_portable((vec_int_portable)(a > b), x, y);
}
GLINT_VEC_PORTABLE vec_portable select_equal_portable(vec_portable a, vec_portable b, vec_portable x, vec_portable y) {
  return blend_portable((vec_int_portable)(a == b), x, y);
}
GLINT_VEC_PORTABLE float fma_one_portable(float a, float b, float c) { return a * b + c; }
GLINT_VEC_PORTABLE vec_portable max_portable(vec_portable a, vec_portable b) { return select_greater_portable(a, b, a, b); }
GLINT_VEC_PORTABLE vec_portable abs_portable(vec_portable a) { return (vec_portable)((vec_int_portable)a & 0x7FFFFFFF); }
GLINT_VEC_PORTABLE vec_portable copysign_portable(vec_portable a, vec_portable sign) {
  vec_int_portable bit = (vec_int_portable)set1_portable(-0.0f);
  return (vec_portable)(((vec_int_portable)a & ~bit) | ((vec_int_portable)sign & bit));
}
GLINT_VEC_PORTABLE vec_portable keep_between_portable(vec_portable s, vec_portable j, vec_portable low, vec_portable high) {
  return blend_portable((vec_int_portable)(low <= j) & (vec_int_portable)(j < high), s, set1_portable(-INFINITY));
}
GLINT_VEC_PORTABLE int all_equal_portable(vec_portable a, vec_portable b) {
  vec_int_portable same = (vec_int_portable)(a == b);
  return (same[0] & same[1] & same[2] & same[3]) != 0;
}
GLINT_VEC_PORTABLE vec_portable sum_each_portable(const vec_portable r[4]) {
  vec_portable sum = {0, 0, 0, 0};
  for (int i = 0; i < 4; i++) sum[i] = (r[i][0] + r[i][2]) + (r[i][1] + r[i][3]);
  return sum;
}

/* floor for -127 <= result < 128; NaN becomes -127, since only defined conversions to int may be used. */
GLINT_VEC_PORTABLE vec_int_portable floor_portable(vec_portable x) {
  vec_portable limited = select_greater_portable(x, set1_portable(-127.0f), x, set1_portable(-127.0f));
  vec_int_portable n = __builtin_convertvector(limited, vec_int_portable);
  return n + (vec_int_portable)(__builtin_convertvector(n, vec_portable) > limited);
}
GLINT_VEC_PORTABLE vec_portable fraction_portable(vec_portable x) { return x - __builtin_convertvector(floor_portable(x), vec_portable); }
GLINT_VEC_PORTABLE vec_portable scale_pow2_portable(vec_portable p, vec_portable x) {
  /* unsigned: where x is below the range, p is anything and the sum, which is not used, may wrap */
  vec_word_portable bits = (vec_word_portable)p + (vec_word_portable)floor_portable(x) * (1u << 23);
  vec_portable scaled = blend_portable((vec_int_portable)(x == x), (vec_portable)bits, x);
  return blend_portable((vec_int_portable)(x < set1_portable(-126.0f)), set1_portable(0.0f), scaled);
}

GLINT_VEC_PORTABLE vec_portable load_bf16_portable(const uint16_t *p) {
  vec_word_portable bits = {p[0], p[1], p[2], p[3]};
  return (vec_portable)(bits << 16);
}
GLINT_VEC_PORTABLE vec_portable load_f16_portable(const uint16_t *p) {
  return (vec_portable){glint_float_from_f16(p[0]), glint_float_from_f16(p[1]), glint_float_from_f16(p[2]), glint_float_from_f16(p[3])};
}
GLINT_VEC_PORTABLE void store_bf16_portable(uint16_t *p, vec_portable a) {
  for (int i = 0; i < 4; i++) p[i] = glint_bf16_from_float(a[i]);
}
GLINT_VEC_PORTABLE void store_f16_portable(uint16_t *p, vec_portable a) {
  for (int i = 0; i < 4; i++) p[i] = glint_f16_from_float(a[i]);
}

GLINT_VEC_PORTABLE void transpose_portable(vec_portable r[4]) {
  vec_portable t[4];
  for (int i = 0; i < 4; i++) t[i] = (vec_portable){r[0][i], r[1][i], r[2][i], r[3][i]};
  memcpy(r, t, sizeof t);
}

#define VEC portable
#include "exp2_template.h"
#undef VEC
#endif
