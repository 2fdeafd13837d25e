/* Vectors of 16 floats for AVX-512 F, BW, DQ, VL. The list of operations and their meaning is in vec_portable.h. */
#ifndef GLINT_CPU_VEC_AVX512_H
#define GLINT_CPU_VEC_AVX512_H
#include <immintrin.h>
#include <stdint.h>

/* gcc would rather use 256-bit vectors for loops of its own; clang has no such attribute and keeps intrinsics as they are */
#if defined(__clang__)
#define GLINT_CPU_WIDE
#else
#define GLINT_CPU_WIDE ",prefer-vector-width=512"
#endif

#define VL_avx512        16
#define TARGET_avx512    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c" GLINT_CPU_WIDE)))
#define GLINT_VEC_AVX512 static inline __attribute__((always_inline)) TARGET_avx512

typedef __m512 vec_avx512;

GLINT_VEC_AVX512 __m512 load_avx512(const float *p) { return _mm512_loadu_ps(p); }
GLINT_VEC_AVX512 void store_avx512(float *p, __m512 a) { _mm512_storeu_ps(p, a); }
GLINT_VEC_AVX512 __m512 set1_avx512(float a) { return _mm512_set1_ps(a); }
GLINT_VEC_AVX512 __m512 broadcast_avx512(const float *p) { return _mm512_set1_ps(*p); }
GLINT_VEC_AVX512 __m512 add_avx512(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
GLINT_VEC_AVX512 __m512 sub_avx512(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
GLINT_VEC_AVX512 __m512 mul_avx512(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
GLINT_VEC_AVX512 __m512 div_avx512(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
GLINT_VEC_AVX512 __m512 fma_avx512(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
GLINT_VEC_AVX512 __m512 fms_avx512(__m512 a, __m512 b, __m512 c) { return _mm512_fmsub_ps(a, b, c); }
GLINT_VEC_AVX512 float fma_one_avx512(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GLINT_VEC_AVX512 __m512 max_avx512(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
GLINT_VEC_AVX512 __m512 abs_avx512(__m512 a) { return _mm512_abs_ps(a); }
GLINT_VEC_AVX512 __m512 copysign_avx512(__m512 a, __m512 sign) {
  return _mm512_or_ps(_mm512_abs_ps(a), _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

GLINT_VEC_AVX512 __m512 select_greater_avx512(__m512 a, __m512 b, __m512 x, __m512 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}
GLINT_VEC_AVX512 __m512 select_equal_avx512(__m512 a, __m512 b, __m512 x, __m512 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), y, x);
}
GLINT_VEC_AVX512 __m512 keep_between_avx512(__m512 s, __m512 j, __m512 low, __m512 high) {
  __mmask16 keep = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(low, j, _CMP_LE_OQ), j, high, _CMP_LT_OQ);
  return _mm512_mask_blend_ps(keep, _mm512_set1_ps(-__builtin_inff()), s);
}
GLINT_VEC_AVX512 int all_equal_avx512(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) == 0xFFFF; }

/* a, b, c, d in turn, each summed over its lanes within every 128-bit part. */
GLINT_VEC_AVX512 __m512 sum_four_avx512(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
}
GLINT_VEC_AVX512 __m512 sum_each_avx512(const __m512 r[16]) {
  __m512 a = sum_four_avx512(r[0], r[1], r[2], r[3]), b = sum_four_avx512(r[4], r[5], r[6], r[7]);
  __m512 c = sum_four_avx512(r[8], r[9], r[10], r[11]), d = sum_four_avx512(r[12], r[13], r[14], r[15]);
  __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xDD));
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
}

/* VREDUCEPS gives 0 for infinities. VSCALEFPS would do underflow by itself, but takes a microcode assist of some 200 cycles for it, and P so
 * small would be one more in every product: such lanes are 0. NaN is not below anything. */
GLINT_VEC_AVX512 __m512 fraction_avx512(__m512 x) { return _mm512_reduce_ps(x, 0x01); }
GLINT_VEC_AVX512 __m512 scale_pow2_avx512(__m512 p, __m512 x) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), p, x);
}

GLINT_VEC_AVX512 __m512 load_bf16_avx512(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
GLINT_VEC_AVX512 __m512 load_f16_avx512(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
GLINT_VEC_AVX512 void store_bf16_avx512(uint16_t *p, __m512 a) {
  __m512i bits = _mm512_castps_si512(a);
  __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), even), 16);
  __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), rounded, quiet);
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(rounded));
}
GLINT_VEC_AVX512 void store_f16_avx512(uint16_t *p, __m512 a) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

GLINT_VEC_AVX512 void transpose_avx512(__m512 r[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]);
    __m512d c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
    r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xDD);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xDD);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xDD);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xDD);
  }
}

#define VEC avx512
#include "exp2_template.h"
#undef VEC
#endif
