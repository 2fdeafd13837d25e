/* What bfloat16 words need beyond vec_avx512.h. */
#ifndef GLINT_CPU_VEC_AVX512_BF16_H
#define GLINT_CPU_VEC_AVX512_BF16_H
#include "vec_avx512.h"

#define TARGET_avx512_bf16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c" GLINT_CPU_WIDE)))
#define GLINT_VEC_BF16     static inline __attribute__((always_inline)) TARGET_avx512_bf16

/* c + the two products of each pair. */
GLINT_VEC_BF16 __m512 dot_avx512_bf16(__m512 a, __m512 b, __m512 c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }

/* Pairs of bfloat16: a in the low halves, b in the high ones, both rounded to nearest with ties away from zero. Meant for probabilities: in
 * integers this is cheaper than VCVTNE2PS2BF16 and a shuffle. */
GLINT_VEC_BF16 __m512 pair_avx512_bf16(__m512 a, __m512 b) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(a), half), 16);
  return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xAAAAAAAA, low, _mm512_add_epi32(_mm512_castps_si512(b), half)));
}

/* 16 bfloat16, ties to even; denormals become 0. */
GLINT_VEC_BF16 void store_weights_avx512(uint16_t *p, __m512 a) {
  _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(a));
}

/* The low halves as floats. */
GLINT_VEC_BF16 __m512 low_half_avx512(__m512 words) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16)); }

/* 16 words (low[i], high[i]); high may be NULL: zeros. */
GLINT_VEC_BF16 __m512 interleave_avx512(const uint16_t *low, const uint16_t *high) {
  __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)low));
  if (high) words = _mm512_or_si512(words, _mm512_castps_si512(load_bf16_avx512(high)));
  return _mm512_castsi512_ps(words);
}
#endif
