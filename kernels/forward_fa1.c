/* FlashAttention-1's forward pass (Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
 * 2022, Algorithm 1), to be read and to be compared with forward_fa2.c: the same instructions, the loops the other way round.
 *
 * One block computes one head of one sequence. The outer loop walks over blocks of keys, the inner one over blocks of query rows; so K and V
 * are read once, but O_i, the rows' maximum m_i and sum l_i return to global memory after every step and come back for the next block of keys:
 *
 *   m_new = max(m_i, rowmax S)      l_new = exp(m_i - m_new) l_i + rowsum exp(S - m_new)
 *   O_i   = (l_i exp(m_i - m_new) O_i + exp(S - m_new) V_j) / l_new
 *
 * FlashAttention-2 exchanges the loops: O_i, m_i and l_i stay in registers, rows of one head can be spread over many blocks, and the division
 * is done once. `glint sim` shows the difference in bytes, the benchmark in time.
 *
 * Workspace: o_partial [batch, heads_q, seqlen_q, head_dim_v] for O, lse_partial [2, batch, heads_q, seqlen_q] for m (log2 units) and l. */
#include "params.h"

#define LOOSE   0
#define PARK    0
#define Q_KEPT  0
#define WARPS   (THREADS / 32)
#define M_TILES (TILE_Q / 16 / WARPS)
#define N_TILES (TILE_K / 8)
#define V_TILES (HEAD_DIM_V / 8)

#include "parts/epilogue.h"
#include "parts/mask.h"
#include "parts/sequence.h"
#include "parts/softmax.h"
#include "parts/tile_copy.h"
#include "parts/warp_mma.h"

#define SMEM_K (HEAD_DIM > HEAD_DIM_V ? TILE_BYTES(TILE_Q, HEAD_DIM) : TILE_BYTES(TILE_Q, HEAD_DIM_V))
#define SMEM_V (SMEM_K + TILE_BYTES(TILE_K, HEAD_DIM))
#if SMEM_V + TILE_BYTES(TILE_K, HEAD_DIM_V) > SHARED
#error "SHARED: needs 2 * (TILE_Q * max(HEAD_DIM, HEAD_DIM_V) + TILE_K * (HEAD_DIM + HEAD_DIM_V))"
#endif

/* What is known of the rows i between two steps: o normalized, max in log2 units, sum of exp2(score - max). */
typedef struct row_state {
  float max[M_TILES][2], sum[M_TILES][2];
} row_state;

FN i32 warp_row(void) { return 16 * M_TILES * ((i32)tid() / 32); }
FN i32 lane_row(const tile_place *t) { return t->row + warp_row() + (i32)(tid() % 32) / 4; }

/* The block's copies so far have landed, and all warps are here. */
FN void await_copies(void) {
  cp_async_commit();
  cp_async_wait(0);
  cta_sync();
}

/* Element of the workspace's rows: that of (batch, head, row). */
FN i64 state_at(const glint_forward_params *p, const tile_place *t, i32 row) {
  return ((i64)t->batch * p->heads_q + t->head) * p->seqlen_q + row;
}

FN void load_state(const glint_forward_params *p, const tile_place *t, row_state *r, float o[M_TILES][V_TILES][4]) {
  const i64 l_from_m = (i64)p->batch * p->heads_q * p->seqlen_q;
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    const i32 row = lane_row(t) + 16 * m + 8 * h;
    if (row >= t->used_q) continue;
    const i64 at = state_at(p, t, row);
    r->max[m][h] = gmem_load_f32(p->lse_partial + at);
    r->sum[m][h] = gmem_load_f32(p->lse_partial + at + l_from_m);
    UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 2; i++) {
      const i32 column = 8 * n + (i32)(tid() % 4) * 2 + i;
      if (column < p->head_dim_v) o[m][n][2 * h + i] = gmem_load_f32(p->o_partial + at * p->head_dim_v + column);
    }
  }
}

FN void store_state(const glint_forward_params *p, const tile_place *t, const row_state *r, const float o[M_TILES][V_TILES][4]) {
  const i64 l_from_m = (i64)p->batch * p->heads_q * p->seqlen_q;
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    const i32 row = lane_row(t) + 16 * m + 8 * h;
    if (row >= t->used_q) continue;
    const i64 at = state_at(p, t, row);
    if (tid() % 4 == 0) {
      gmem_store_f32(p->lse_partial + at, r->max[m][h]);
      gmem_store_f32(p->lse_partial + at + l_from_m, r->sum[m][h]);
    }
    UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 2; i++) {
      const i32 column = 8 * n + (i32)(tid() % 4) * 2 + i;
      if (column < p->head_dim_v) gmem_store_f32(p->o_partial + at * p->head_dim_v + column, o[m][n][2 * h + i]);
    }
  }
}

FN void mask_scores(const glint_forward_params *p, const tile_place *t, float s[M_TILES][N_TILES][4], i32 key) {
  const i32 row = lane_row(t), lane_key = key + (i32)(tid() % 4) * 2, end = t->len_k - 1 - lane_key;
  mask_right(s, FEATURES & FEATURE_MASK ? row + t->shift + p->window_right - lane_key : end, end);
  if (FEATURES & FEATURE_MASK) mask_left(s, row + t->shift - p->window_left - lane_key);
}

/* One step of Algorithm 1, lines 10 to 12: the rows' state moves on by the keys of this block. v: the block's values. */
FN void step(row_state *r, float s[M_TILES][N_TILES][4], float o[M_TILES][V_TILES][4], float scale, u32 v, lane_offsets v_lane) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    float top = -INFINITY, sum = 0.f;
    UNROLL for (i32 j = 0; j < N_TILES; j++) top = max_f32(top, max_f32(s[m][j][2 * h], s[m][j][2 * h + 1]));
    top = max_f32(row_max(top) * scale, r->max[m][h]);
    const float shift = top == -INFINITY ? 0.f : top; /* no key yet: keeps -inf - shift from being NaN */
    UNROLL for (i32 j = 0; j < N_TILES; j++) UNROLL for (i32 i = 2 * h; i < 2 * h + 2; i++) {
      s[m][j][i] = exp2_approx(fma_f32(s[m][j][i], scale, -shift));
      sum += s[m][j][i];
    }
    const float old = r->sum[m][h] * exp2_approx(r->max[m][h] - shift);
    UNROLL for (i32 n = 0; n < V_TILES; n++) o[m][n][2 * h] *= old, o[m][n][2 * h + 1] *= old;
    r->max[m][h] = top;
    r->sum[m][h] = old + row_sum(sum);
  }
  UNROLL for (i32 c = 0; c < TILE_K / 16; c++) {
    u32 a[M_TILES][4];
    pack_probabilities(a, (const float(*)[N_TILES][4])s, c);
    add_values(o, (const u32(*)[4])a, v, v_lane, c);
  }
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    const float factor = r->sum[m][h] == 0.f ? 0.f : 1.f / r->sum[m][h];
    UNROLL for (i32 n = 0; n < V_TILES; n++) o[m][n][2 * h] *= factor, o[m][n][2 * h + 1] *= factor;
  }
}

/* The rows have seen all their keys. */
FN void finish(const glint_forward_params *p, const tile_place *t, u32 smem, const row_state *r, float o[M_TILES][V_TILES][4]) {
  float lse[M_TILES][2];
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    const int seen = lane_row(t) + 16 * m + 8 * h < t->used_q && r->sum[m][h] != 0.f;
    lse[m][h] = seen ? (r->max[m][h] + log2_approx(r->sum[m][h])) * LN2 : -INFINITY;
    UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 2 * h; i < 2 * h + 2; i++) o[m][n][i] = seen ? o[m][n][i] : 0.f;
  }
  store_lse(p, t, lane_row(t), (const float(*)[2])lse);
  store_o_16(p, t, smem, warp_row(), (const float(*)[V_TILES][4])o);
}

FN void forward(const glint_forward_params *p) {
  tile_place t = find_tile(p, (i32)block_id_x(), TILE_Q); /* q_tiles is 1: a block is a head */
  const u32 smem = smem_base();
  const lane_offsets lane_a = lane_offsets_a(tid() % 32), lane_b = lane_offsets_b(tid() % 32);
  const lane_offsets lane_q = lane_offsets_a_from(tid() % 32, (u32)warp_row());
  const i32 head_kv = t.head / p->group;
  const copy_source q_from = copy_from(0, p->q, &p->q_stride, t.batch, t.head, t.first_q);
  const copy_source k_from = copy_from(0, p->k, &p->k_stride, t.batch, head_kv, t.first_k);
  const copy_source v_from = copy_from(0, p->v, &p->v_stride, t.batch, head_kv, t.first_k);
  const i32 key_blocks = (t.len_k + TILE_K - 1) / TILE_K;

  NO_UNROLL for (i32 j = 0; j < (key_blocks > 1 ? key_blocks : 1); j++) {
    const i32 key = j * TILE_K;
    cta_sync(); /* all warps are through with the K and V before */
    copy_tile(smem + SMEM_K, &k_from, key, TILE_K, HEAD_DIM, t.len_k - key, p->head_dim, 1);
    copy_tile(smem + SMEM_V, &v_from, key, TILE_K, HEAD_DIM_V, t.len_k - key, p->head_dim_v, 1);
    await_copies();
    NO_UNROLL for (t.row = 0; t.row < t.len_q; t.row += TILE_Q) {
      const i32 last_row = t.row + TILE_Q < t.used_q ? t.row + TILE_Q - 1 : t.used_q - 1;
      const i32 from = first_key(p, &t, t.row), to = t.row < t.used_q ? last_key(p, &t, last_row) : -1;
      const i32 first = to < from ? 0 : from / TILE_K,
                last = to < from ? 0 : to / TILE_K; /* a block of rows without keys: one empty step */
      if (j < first || j > last) continue;
      cta_sync(); /* and with the Q before */
      copy_tile(smem, &q_from, t.row, TILE_Q, HEAD_DIM, t.used_q - t.row, p->head_dim, 1);
      await_copies();

      row_state r;
      float o[M_TILES][V_TILES][4], s[M_TILES][N_TILES][4];
      UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 i = 0; i < 4; i++) {
        r.max[m][i / 2] = -INFINITY;
        r.sum[m][i / 2] = 0.f;
        UNROLL for (i32 n = 0; n < V_TILES; n++) o[m][n][i] = 0.f;
      }
      if (j > first) load_state(p, &t, &r, o);
      scores(s, NULL, smem, smem + SMEM_K, lane_q, lane_b);
      mask_scores(p, &t, s, key);
      step(&r, s, o, p->scale_log2, smem + SMEM_V, lane_a);
      if (j < last)
        store_state(p, &t, &r, (const float(*)[V_TILES][4])o);
      else
        finish(p, &t, smem, &r, o);
    }
  }
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) { forward(&p); }
