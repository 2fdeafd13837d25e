// Between the products and what goes to shared memory, in the Ampere backward kernels: from S = Q K^T and dP = dO V^T to P and dS.
//
// s[m][j][i] and dp[m][j][i] are laid out as in parts/softmax.h: row 16m + 8(i / 2) of the lane's first, key 8j + i % 2 of the lane's first.
#ifndef GLINT_BACKWARD_SCORE_H
#define GLINT_BACKWARD_SCORE_H

#include "dropout.h"

#define LOG2E 1.44269504f
#ifndef WITHOUT_DBIAS
#define WITHOUT_DBIAS 0 // 1: another kernel writes it
#endif

// What the lane needs to know of the block in work.
typedef struct score_place {
  i32 batch, head;    // query head
  i32 row, key;       // of the lane's first element, in the sequence
  i32 used_q, used_k; // rows and keys that take part
  i32 shift;          // row i stands at key i + shift
} score_place;

FN float float_of_16(u32 bits) { return UNPACK_LO(bits); }

// tanh from ex2 and rcp: absolute error about 1e-7; that of tanh.approx is 5e-4.
FN float tanh_accurate(float x) { return 1.f - 2.f * rcp_approx(1.f + exp2_approx(x * (2.f * LOG2E))); }

// Bit (m * N_TILES + j) * 4 + i: the element stays. The numbers are those of drop() in parts/dropout.h, in any order: four lanes of a row
// draw for four of its groups of eight keys at a time.
FN u32 kept_elements(const glint_backward_params *p, const score_place *at) {
  const u32 key0 = (u32)p->dropout_seed, key1 = (u32)(p->dropout_seed >> 32) ^ (u32)(p->dropout_offset >> 32), lane = tid() % 4;
  u32 kept = 0;
  UNROLL
  for (u32 m = 0; m < M_TILES; m++) UNROLL
  for (u32 c = 0; c < 2 * N_TILES; c += 4) {
    const u32 own = c + lane; // half h, tile j
    u32 x[4] = {(u32)at->key / 8 + own % N_TILES, (u32)at->row + 16 * m + own / N_TILES * 8, (u32)(at->batch * p->heads_q + at->head),
                (u32)p->dropout_offset};
    philox(x, key0, key1);
    transpose_quad(x);
    UNROLL
    for (u32 n = 0; n < 4; n++) {
      const u32 bit = (m * N_TILES + (c + n) % N_TILES) * 4 + (c + n) / N_TILES * 2;
      if ((x[n] & 0xffff) >= p->drop_threshold) kept |= 1u << bit;
      if (x[n] >> 16 >= p->drop_threshold) kept |= 2u << bit;
    }
  }
  return kept;
}

// One element with every feature, in natural units: the gradient of the product of row and key (times scale), and in *probability what
// multiplies dO.
FN float full_element(const glint_backward_params *p, const score_place *at, i32 r, i32 k, float product, float dp, float lse, float delta,
                      float slope, int kept, float *probability) {
  const i32 row = at->row + r, key = at->key + k, distance = row + at->shift - key;
  float x = product * p->scale, turn = 1.f;
  if (p->softcap_in != 0.f) {
    const float t = tanh_accurate(product * p->softcap_in);
    x = t * (p->scale / p->softcap_in);
    turn = 1.f - t * t;
  }
  const int visible = key < at->used_k && row < at->used_q && distance <= p->window_left && -distance <= p->window_right;
  if (p->bias && visible) {
    const i64 bias =
        at->batch * p->bias_batch_stride + at->head * p->bias_head_stride + row * p->bias_row_stride + key * p->bias_key_stride;
    x += p->bias_float ? gmem_load_f32_nc((const float *)p->bias + bias) : float_of_16(gmem_load_2_nc((const u16 *)p->bias + bias));
  }
  x = fma_f32(-slope, (float)(distance < 0 ? -distance : distance), x);
  const float all = visible ? exp2_approx((x - lse) * LOG2E) : 0.f, share = kept ? p->keep_scale : 0.f;
  *probability = all * share;
  const float ds = visible ? all * (dp * share - delta) : 0.f;
  if (!WITHOUT_DBIAS && p->dbias && visible)
    red_add_f32(p->dbias + at->batch * p->dbias_stride[0] + at->head * p->dbias_stride[1] + row * p->dbias_stride[2] +
                    key * p->dbias_stride[3],
                ds);
  return ds * turn;
}

// s becomes P, dp becomes dS (FlashAttention-2, algorithm 2: dS = P (dP - delta)). lse_at, delta_at: of the lane's first row, in shared memory.
FN void full_scores(const glint_backward_params *p, const score_place *at, float s[M_TILES][N_TILES][4], float dp[M_TILES][N_TILES][4],
                    u32 lse_at, u32 delta_at) {
  const float slope = p->alibi_slopes ? gmem_load_f32_nc(p->alibi_slopes + at->batch * p->alibi_batch_stride + at->head) : 0.f;
  const u32 kept = p->drop_threshold ? kept_elements(p, at) : ~0u;
  UNROLL
  for (i32 m = 0; m < M_TILES; m++) UNROLL
  for (i32 i = 0; i < 4; i++) {
    const float lse = smem_load_f32(lse_at + (u32)(16 * m + i / 2 * 8) * 4),
                delta = smem_load_f32(delta_at + (u32)(16 * m + i / 2 * 8) * 4);
    UNROLL
    for (i32 j = 0; j < N_TILES; j++) {
      dp[m][j][i] = full_element(p, at, 16 * m + i / 2 * 8, 8 * j + i % 2, s[m][j][i], dp[m][j][i], lse, delta, slope,
                                 (int)(kept >> ((m * N_TILES + j) * 4 + i) & 1), &s[m][j][i]);
    }
  }
}

// The same where scores are scaled products; what is masked is -inf already.
FN void plain_scores(const glint_backward_params *p, float s[M_TILES][N_TILES][4], float dp[M_TILES][N_TILES][4], u32 lse_at,
                     u32 delta_at) {
  UNROLL
  for (i32 m = 0; m < M_TILES; m++) UNROLL
  for (i32 h = 0; h < 2; h++) {
    const float lse = smem_load_f32(lse_at + (u32)(16 * m + 8 * h) * 4), delta = smem_load_f32(delta_at + (u32)(16 * m + 8 * h) * 4);
    UNROLL
    for (i32 j = 0; j < N_TILES; j++) UNROLL
    for (i32 i = 2 * h; i < 2 * h + 2; i++) {
      s[m][j][i] = exp2_approx(fma_f32(s[m][j][i], p->scale_log2, -lse));
      dp[m][j][i] = s[m][j][i] * (dp[m][j][i] - delta);
    }
  }
}

#endif
