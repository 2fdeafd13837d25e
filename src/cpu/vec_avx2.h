/* Vectors of 8 floats for AVX2, FMA and F16C. The list of operations and their meaning is in vec_portable.h. */
#ifndef GLINT_CPU_VEC_AVX2_H
#define GLINT_CPU_VEC_AVX2_H
#include <immintrin.h>
#include <stdint.h>

#define VL_avx2        8
#define TARGET_avx2    __attribute__((target("avx2,fma,f16c")))
#define GLINT_VEC_AVX2 static inline __attribute__((always_inline)) TARGET_avx2

typedef __m256 vec_avx2;

GLINT_VEC_AVX2 __m256 load_avx2(const float *p) { return _mm256_loadu_ps(p); }
GLINT_VEC_AVX2 void store_avx2(float *p, __m256 a) { _mm256_storeu_ps(p, a); }
GLINT_VEC_AVX2 __m256 set1_avx2(float a) { return _mm256_set1_ps(a); }
GLINT_VEC_AVX2 __m256 broadcast_avx2(const float *p) { return _mm256_broadcast_ss(p); }
GLINT_VEC_AVX2 __m256 add_avx2(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
GLINT_VEC_AVX2 __m256 sub_avx2(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
GLINT_VEC_AVX2 __m256 mul_avx2(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
GLINT_VEC_AVX2 __m256 div_avx2(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
GLINT_VEC_AVX2 __m256 fma_avx2(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
GLINT_VEC_AVX2 float fma_one_avx2(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GLINT_VEC_AVX2 __m256 max_avx2(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
GLINT_VEC_AVX2 __m256 abs_avx2(__m256 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
GLINT_VEC_AVX2 __m256 copysign_avx2(__m256 a, __m256 sign) { return _mm256_or_ps(abs_avx2(a), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f))); }

GLINT_VEC_AVX2 __m256 select_greater_avx2(__m256 a, __m256 b, __m256 x, __m256 y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
GLINT_VEC_AVX2 __m256 select_equal_avx2(__m256 a, __m256 b, __m256 x, __m256 y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
GLINT_VEC_AVX2 __m256 keep_between_avx2(__m256 s, __m256 j, __m256 low, __m256 high) {
  __m256 keep = _mm256_and_ps(_mm256_cmp_ps(low, j, _CMP_LE_OQ), _mm256_cmp_ps(j, high, _CMP_LT_OQ));
  return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), s, keep);
}
GLINT_VEC_AVX2 int all_equal_avx2(__m256 a, __m256 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) == 0xFF; }
GLINT_VEC_AVX2 __m256 sum_each_avx2(const __m256 r[8]) {
  __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
  __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(r[4], r[5]), _mm256_hadd_ps(r[6], r[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

GLINT_VEC_AVX2 __m256 fraction_avx2(__m256 x) { return _mm256_sub_ps(x, _mm256_floor_ps(x)); }
GLINT_VEC_AVX2 __m256 scale_pow2_avx2(__m256 p, __m256 x) {
  __m256i n = _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_floor_ps(x)), 23);
  __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_LT_OQ), scaled);
}

GLINT_VEC_AVX2 __m256 load_bf16_avx2(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
GLINT_VEC_AVX2 __m256 load_f16_avx2(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
GLINT_VEC_AVX2 void store_bf16_avx2(uint16_t *p, __m256 a) {
  __m256i bits = _mm256_castps_si256(a);
  __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), even), 16);
  __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  _mm_storeu_si128((__m128i *)(void *)p, packed);
}
GLINT_VEC_AVX2 void store_f16_avx2(uint16_t *p, __m256 a) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

GLINT_VEC_AVX2 void transpose_avx2(__m256 r[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m256 low = r[i], high = r[4 + i];
    r[i] = _mm256_permute2f128_ps(low, high, 0x20);
    r[4 + i] = _mm256_permute2f128_ps(low, high, 0x31);
  }
}

#define VEC avx2
#include "exp2_template.h"
#undef VEC
#endif
