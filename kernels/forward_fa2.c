/* FlashAttention-2's forward pass (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023) with the
 * instructions of Ampere: cp.async, ldmatrix, mma.sync. docs/kernels/ampere.md goes through it line by line.
 *
 * One block computes TILE_Q query rows of one head. Q stays in shared memory for the block's whole life; K and V come through it TILE_K
 * keys at a time, copied while the tensor cores work on the block before; scores, probabilities and o never leave registers. A warp owns
 * TILE_Q / warps rows and all keys. Key blocks go from the last to the first: those that need a mask come first.
 *
 * STAGES 2: two buffers each for K and V; a whole block is under way while another is computed, one barrier a block.
 * STAGES 1: one buffer each; K of the next block is copied during softmax and P V, V during Q K^T; half the shared memory, two barriers.
 * Q_KEPT: steps of 16 columns of Q held in registers instead of being read again for each block. */
#include "params.h"

#define WARPS   (THREADS / 32)
#define M_TILES (TILE_Q / 16 / WARPS)
#define N_TILES (TILE_K / 8)
#define V_TILES (HEAD_DIM_V / 8)

#include "parts/softmax.h"
#include "parts/mask.h"
#include "parts/tile_copy.h"
#include "parts/warp_mma.h"
#include "parts/sequence.h"
#include "parts/epilogue.h"
#include "parts/score.h"
#include "parts/dropout.h"

#define K_BYTES TILE_BYTES(TILE_K, HEAD_DIM)
#define V_BYTES TILE_BYTES(TILE_K, HEAD_DIM_V)
/* Q's place, which o uses in the end, then K and V of each stage */
#define SMEM_KV    (HEAD_DIM > HEAD_DIM_V ? TILE_BYTES(TILE_Q, HEAD_DIM) : TILE_BYTES(TILE_Q, HEAD_DIM_V))
#define SMEM_PARKED (SMEM_KV + STAGES * (K_BYTES + V_BYTES))
#if SMEM_PARKED + WARPS * PARKED_BYTES > SHARED
#error "SHARED is too small: (max(HEAD_DIM, HEAD_DIM_V) * TILE_Q + STAGES * TILE_K * (HEAD_DIM + HEAD_DIM_V)) * 2 + THREADS / 32 * 48"
#endif

/* What a warp knows of its rows, to skip what they do not see and to mask no more than needed. */
typedef struct warp_rows {
  i32 first_seen, last_seen; /* keys that any row of the warp sees */
  i32 all_from, all_to;      /* keys that all rows see */
} warp_rows;

/* The lane's first row; its others are 8, 16, ... further on. */
FN i32 lane_row(const tile_place *t) { return t->row + (i32)(tid() / 32) * 16 * M_TILES + (i32)(tid() % 32) / 4; }

FN warp_rows find_warp_rows(const glint_forward_params *p, const tile_place *t) {
  warp_rows w;
  i32 first = t->row + (i32)(tid() / 32) * 16 * M_TILES, last = first + 16 * M_TILES - 1;
  w.first_seen = first_key(p, t, first);
  w.last_seen = first < t->used_q ? last_key(p, t, last) : -1;
  w.all_from = first_key(p, t, last);
  w.all_to = last_key(p, t, first);
  return w;
}

/* Scores of one block of keys, from products to masked scores. */
FN void mask_block(const glint_forward_params *p, u32 parked, const warp_rows *w, float s[M_TILES][N_TILES][4], i32 key) {
  int right = key + TILE_K - 1 > w->all_to, left = (FEATURES & FEATURE_MASK) && key < w->all_from;
  if (!SCORE_FEATURES && !right && !left) return;
  tile_place t = unpark(parked);
  i32 row = lane_row(&t), lane_key = key + (i32)(tid() % 4) * 2;
  if (SCORE_FEATURES) transform_scores(p, &t, s, row, lane_key);
  if (right) {
    i32 end = t.len_k - 1 - lane_key;
    mask_right(s, FEATURES & FEATURE_MASK ? row + t.shift + p->window_right - lane_key : end, end);
  }
  if (left) mask_left(s, row + t.shift - p->window_left - lane_key);
}

/* Softmax of the block and o += P V, 16 keys at a time: the exponentials of the next 16 run beside the product of these. */
FN void softmax_values(const glint_forward_params *p, u32 parked, float s[M_TILES][N_TILES][4], row_stats *r, float o[M_TILES][V_TILES][4],
                       u32 v, lane_offsets v_lane, i32 key) {
  float scale = SCORE_FEATURES ? 1.f : p->scale_log2;
  raise_references(r, s, o, scale);
  if ((FEATURES & FEATURE_DROPOUT) && p->drop_threshold) {
    UNROLL for (i32 c = 0; c < TILE_K / 16; c++) exponentials(r, s, c, scale);
    tile_place t = unpark(parked);
    drop(p, s, (u32)(t.batch * p->heads_q + t.head), lane_row(&t), key);
    scale = 0.f;
  }
  UNROLL for (i32 c = 0; c < TILE_K / 16; c++) {
    u32 a[M_TILES][4];
    if (!(FEATURES & FEATURE_DROPOUT) || scale != 0.f) exponentials(r, s, c, scale);
    UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 i = 0; i < 4; i++)
      a[m][i] = pack_16(s[m][2 * c + i / 2][i % 2 * 2], s[m][2 * c + i / 2][i % 2 * 2 + 1]);
    add_values(o, (const u32(*)[4])a, v, v_lane, c);
  }
}

FN void forward(const glint_forward_params *p) {
  tile_place t = find_tile(p, (i32)block_id_x(), TILE_Q);
  if (t.row >= t.len_q) return;
  u32 smem = smem_base(), smem_k = smem + SMEM_KV, smem_v = smem_k + STAGES * K_BYTES, stage = 0;
  u32 parked = smem + SMEM_PARKED + tid() / 32 * PARKED_BYTES;
  u32 lane = tid() % 32, warp_row = tid() / 32 * 16 * M_TILES;
  warp_rows w = find_warp_rows(p, &t);
  lane_offsets lane_a = lane_offsets_a(lane), lane_b = lane_offsets_b(lane);

  park(parked, &t);

  row_stats r;
  float o[M_TILES][V_TILES][4], s[M_TILES][N_TILES][4];
  clear_stats(&r);
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 4; i++) o[m][n][i] = 0.f;

  /* blocks of keys that any row of the tile sees: first_block to block */
  i32 tile_end = t.row + TILE_Q < t.used_q ? t.row + TILE_Q : t.used_q;
  i32 keys_end = t.row < t.used_q ? last_key(p, &t, tile_end - 1) + 1 : 0;
  i32 first_block = first_key(p, &t, t.row) / TILE_K, block = keys_end > 0 ? (keys_end - 1) / TILE_K : -1;
  if (block >= first_block) {
    i32 head_kv = t.head / p->group;
    i64 k_pitch = p->k_stride.row * 2, v_pitch = p->v_stride.row * 2, last_row = t.first_k + (i64)block * TILE_K;
    copy_source q_from = copy_from(row_address(p->q, &p->q_stride, t.batch, t.head, t.first_q + t.row, 2), p->q_stride.row * 2);
    copy_source k_from = copy_from(row_address(p->k, &p->k_stride, t.batch, head_kv, last_row, 2), k_pitch);
    copy_source v_from = copy_from(row_address(p->v, &p->v_stride, t.batch, head_kv, last_row, 2), v_pitch);
    copy_tile(smem, q_from, TILE_Q, HEAD_DIM, t.used_q - t.row, p->head_dim);
    copy_tile(smem_k, k_from, TILE_K, HEAD_DIM, keys_end - block * TILE_K, p->head_dim);
    if (STAGES == 2) copy_tile(smem_v, v_from, TILE_K, HEAD_DIM_V, keys_end - block * TILE_K, p->head_dim_v);
    cp_async_commit();

    lane_offsets lane_q = lane_offsets_a_from(lane, warp_row);
    u32 q_kept[Q_KEPT > 0 ? Q_KEPT : 1][M_TILES][4];
    if (Q_KEPT > 0) {
      cp_async_wait(0);
      cta_sync();
      UNROLL for (i32 step = 0; step < Q_KEPT; step++) load_q(q_kept[step], smem, lane_q, step);
    }
    NO_UNROLL for (; block >= first_block; block--) {
      i32 key = block * TILE_K;
      int active = key <= w.last_seen && key + TILE_K > w.first_seen;
      u32 k_now = smem_k + stage * K_BYTES, v_now = smem_v + stage * V_BYTES;
      cp_async_wait(0);
      cta_sync();
      if (STAGES == 2) {
        if (block > first_block) {
          stage ^= 1;
          advance(&k_from, -TILE_K);
          advance(&v_from, -TILE_K);
          copy_tile(smem_k + stage * K_BYTES, k_from, TILE_K, HEAD_DIM, TILE_K, p->head_dim);
          copy_tile(smem_v + stage * V_BYTES, v_from, TILE_K, HEAD_DIM_V, TILE_K, p->head_dim_v);
          cp_async_commit();
        }
        if (active) {
          scores(s, (const u32(*)[M_TILES][4])q_kept, smem, k_now, lane_q, lane_b);
          mask_block(p, parked, &w, s, key);
          softmax_values(p, parked, s, &r, o, v_now, lane_a, key);
        }
      } else {
        copy_tile(v_now, v_from, TILE_K, HEAD_DIM_V, keys_end - key, p->head_dim_v);
        cp_async_commit();
        advance(&v_from, -TILE_K);
        if (active) {
          scores(s, (const u32(*)[M_TILES][4])q_kept, smem, k_now, lane_q, lane_b);
          mask_block(p, parked, &w, s, key);
        }
        cp_async_wait(0);
        cta_sync();
        if (block > first_block) {
          advance(&k_from, -TILE_K);
          copy_tile(k_now, k_from, TILE_K, HEAD_DIM, TILE_K, p->head_dim);
          cp_async_commit();
        }
        if (active) softmax_values(p, parked, s, &r, o, v_now, lane_a, key);
      }
    }
  }

  float lse[M_TILES][2];
  t = unpark(parked);
  i32 row = lane_row(&t);
  finish_rows(p, &t, row, &r, o, lse);
  store_lse(p, &t, row, (const float(*)[2])lse);
  if ((FEATURES & (FEATURE_O_FLOAT | FEATURE_UNALIGNED))) store_o_elements(p, &t, row, (const float(*)[V_TILES][4])o);
  else store_o_16(p, &t, smem, (i32)warp_row, (const float(*)[V_TILES][4])o);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) { forward(&p); }
