/* What may happen to a score between Q K^T and the softmax: softcap, bias, ALiBi, in that order (glint.h). */
#ifndef GLINT_PARTS_SCORE_H
#define GLINT_PARTS_SCORE_H
#include "parts/sequence.h"
#include "parts/warp_mma.h"

/* tanh from ex2 and rcp: its absolute error, which softcap multiplies, is about 1e-7; that of tanh.approx is 5e-4. */
FN float tanh_exact(float x) { return 1.f - 2.f * rcp_approx(1.f + exp2_approx(x * (2.f * LOG2E))); }

FN float bias_at(const glint_forward_params *p, i64 offset) {
  if (p->bias_float) return gmem_load_f32_nc((const float *)p->bias + offset);
  u32 bits = gmem_load_2_nc((const u16 *)p->bias + offset);
#if DTYPE == DTYPE_BF16
  return unpack_bf16_lo(bits);
#else
  return unpack_f16_lo(bits);
#endif
}

/* From products to scores in natural units. row, key: of the lane's first element; rows and keys that do not exist are not looked up. */
FN void transform_scores(const glint_forward_params *p, const tile_place *t, float s[M_TILES][N_TILES][4], i32 row, i32 key) {
  float slope = 0.f;
  if ((FEATURES & FEATURE_ALIBI) && p->alibi_slopes) slope = gmem_load_f32_nc(p->alibi_slopes + t->batch * p->alibi_batch_stride + t->head);
  i64 bias = t->batch * p->bias_batch_stride + t->head * p->bias_head_stride;
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 j = 0; j < N_TILES; j++) UNROLL for (i32 i = 0; i < 4; i++) {
    i32 r = row + 16 * m + i / 2 * 8, k = key + 8 * j + i % 2;
    float x = s[m][j][i];
    if ((FEATURES & FEATURE_SOFTCAP) && p->softcap_in != 0.f)
      x = tanh_exact(x * p->softcap_in) * (p->softcap_log2 * LN2);
    else
      x *= p->scale;
    if ((FEATURES & FEATURE_BIAS) && p->bias && r < t->used_q && k < t->len_k)
      x += bias_at(p, bias + r * p->bias_row_stride + k * p->bias_key_stride);
    if (FEATURES & FEATURE_ALIBI) {
      i32 distance = r + t->shift - k;
      x = fma_f32(-slope, (float)(distance < 0 ? -distance : distance), x);
    }
    s[m][j][i] = x;
  }
}
#endif
