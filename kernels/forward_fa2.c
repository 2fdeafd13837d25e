/* FlashAttention-2's forward pass (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023) with the
 * instructions of Ampere: cp.async, ldmatrix, mma.sync. docs/kernels/ampere.md goes through it line by line.
 *
 * One block computes TILE_Q query rows of one head. Q stays in shared memory for the block's whole life; K and V come through it TILE_K
 * keys at a time, copied while the tensor cores work on the blocks before; scores, probabilities and o never leave registers. A warp owns
 * TILE_Q / warps rows and all keys. Key blocks go from the last to the first: those that need a mask come first.
 *
 * All threads copy and all threads compute, but there is no barrier of the whole block in the loop: K and V have STAGES buffers each, with
 * an mbarrier that says "full" (every thread's copies have landed) and one that says "empty" (every warp has read). So a warp in its softmax
 * is not waited for by one in its products, and the tensor cores of each scheduler find work in one of its two warps.
 *
 * Q_KEPT: steps of 16 columns of Q held in registers instead of being read again for each block of keys. */
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
/* Q's place, which o uses in the end; K and V of each stage; barriers; parked values */
#define SMEM_K        (HEAD_DIM > HEAD_DIM_V ? TILE_BYTES(TILE_Q, HEAD_DIM) : TILE_BYTES(TILE_Q, HEAD_DIM_V))
#define SMEM_V        (SMEM_K + STAGES * K_BYTES)
#define SMEM_BARRIERS (SMEM_V + STAGES * V_BYTES)
#define SMEM_PARKED   (SMEM_BARRIERS + 128)
#define SMEM_BYTES    (SMEM_PARKED + WARPS * PARKED_BYTES)
/* What a warp parks: its tile_place, its warp_range, and the steps of three copy_sources */
#define PARKED_RANGE  48
#define PARKED_STEPS  80
#define PARKED_BYTES  128
#if SMEM_BYTES > SHARED
#error "SHARED: needs 2 * (TILE_Q * max(HEAD_DIM, HEAD_DIM_V) + STAGES * TILE_K * (HEAD_DIM + HEAD_DIM_V)) + 128 + 4 * THREADS"
#endif
#ifndef LEAD
#define LEAD (STAGES - 1) /* blocks of keys that are under way beyond the one in work */
#endif

FN u32 q_full(u32 smem) { return smem + SMEM_BARRIERS; }
FN u32 k_full(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 8 + 32 * slot; }
FN u32 k_empty(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 16 + 32 * slot; }
FN u32 v_full(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 24 + 32 * slot; }
FN u32 v_empty(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 32 + 32 * slot; }

/* The n-th block of keys: its buffer, and the parity of the barriers' phase that belongs to it. */
FN u32 ring_slot(u32 n) { return n % STAGES; }
FN u32 ring_parity(u32 n) { return n / STAGES & 1; }

FN void init_barriers(u32 smem) {
  if (tid() == 0) {
    mbarrier_init(q_full(smem), THREADS);
    for (u32 slot = 0; slot < STAGES; slot++) {
      mbarrier_init(k_full(smem, slot), THREADS);
      mbarrier_init(v_full(smem, slot), THREADS);
      mbarrier_init(k_empty(smem, slot), WARPS);
      mbarrier_init(v_empty(smem, slot), WARPS);
    }
  }
  cta_sync();
}

/* A warp has read its last of a buffer. */
FN void release(u32 barrier) {
  warp_sync();
  if (tid() % 32 == 0) mbarrier_arrive(barrier);
}

/* What a warp walks over, and what it knows of its rows, to skip what they do not see and to mask no more than needed. Parked as well. */
typedef struct warp_range {
  i32 keys_end;              /* keys that any row of the tile sees end here; not parked */
  i32 last, blocks;          /* blocks of keys: last, last - 1, ...: those that any row of the tile sees */
  i32 first_seen, last_seen; /* keys that any row of the warp sees */
  i32 all_from, all_to;      /* keys that all rows see */
} warp_range;

/* The warp's first row in the tile. Warps w and w + 4 share a scheduler and its tensor core: under a causal mask the later rows have more to
 * do, so the second four take their rows in reverse and every pair has the same. */
FN i32 warp_row(void) {
  i32 warp = (i32)tid() / 32;
  return 16 * M_TILES * (WARPS == 8 && warp >= 4 ? 11 - warp : warp);
}
/* The lane's first row in the sequence; its others are 8, 16, ... further on. */
FN i32 lane_row(const tile_place *t) { return t->row + warp_row() + (i32)(tid() % 32) / 4; }

FN warp_range find_range(const glint_forward_params *p, const tile_place *t) {
  i32 tile_end = t->row + TILE_Q < t->used_q ? t->row + TILE_Q : t->used_q;
  i32 first = t->row + warp_row(), end = first + 16 * M_TILES - 1;
  warp_range w;
  w.keys_end = t->row < t->used_q ? last_key(p, t, tile_end - 1) + 1 : 0;
  w.last = w.keys_end > 0 ? (w.keys_end - 1) / TILE_K : -1;
  w.blocks = w.last + 1 - first_key(p, t, t->row) / TILE_K;
  w.first_seen = first_key(p, t, first);
  w.last_seen = first < t->used_q ? last_key(p, t, end) : -1;
  w.all_from = first_key(p, t, end);
  w.all_to = last_key(p, t, first);
  return w;
}
FN void park_range(u32 at, const warp_range *w) {
  u32 a[2] = {(u32)w->last, (u32)w->blocks}, b[4] = {(u32)w->first_seen, (u32)w->last_seen, (u32)w->all_from, (u32)w->all_to};
  if (tid() % 32 == 0) {
    smem_store_8(at + 16, a);
    smem_store_16(at, b);
  }
  warp_sync();
}
FN warp_range unpark_range(u32 at) {
  u32 a[2], b[4];
  smem_load_8(a, at + 16);
  smem_load_16(b, at);
  warp_range w = {0, (i32)a[0], (i32)a[1], (i32)b[0], (i32)b[1], (i32)b[2], (i32)b[3]};
  return w;
}

/* From products to masked scores. */
FN void mask_block(const glint_forward_params *p, u32 parked, const warp_range *w, float s[M_TILES][N_TILES][4], i32 key) {
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

/* o += P V, 16 keys at a time: the exponentials of the next 16 run beside the product of these. */
FN void softmax_values(const glint_forward_params *p, u32 parked, float s[M_TILES][N_TILES][4], row_stats *r, float o[M_TILES][V_TILES][4],
                       u32 v, lane_offsets v_lane, i32 key) {
  const float scale = SCORE_FEATURES ? 1.f : p->scale_log2;
  const int dropout = (FEATURES & FEATURE_DROPOUT) && p->drop_threshold;
  if (dropout) {
    UNROLL for (i32 c = 0; c < TILE_K / 16; c++) exponentials(r, s, c, scale);
    tile_place t = unpark(parked);
    drop(p, s, (u32)(t.batch * p->heads_q + t.head), lane_row(&t), key);
  }
  UNROLL for (i32 c = 0; c < TILE_K / 16; c++) {
    u32 a[M_TILES][4];
    if (!dropout) exponentials(r, s, c, scale);
    pack_probabilities(a, (const float(*)[N_TILES][4])s, c);
    add_values(o, (const u32(*)[4])a, v, v_lane, c);
  }
}

FN void forward(const glint_forward_params *p) {
  tile_place t = find_tile(p, (i32)block_id_x(), TILE_Q);
  if (t.row >= t.len_q) return;
  u32 smem = smem_base(), parked = smem + SMEM_PARKED + tid() / 32 * PARKED_BYTES;
  init_barriers(smem);
  park(parked, &t);

  row_stats r;
  float o[M_TILES][V_TILES][4], s[M_TILES][N_TILES][4];
  clear_stats(&r);
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 4; i++) o[m][n][i] = 0.f;

  warp_range w = find_range(p, &t);
  if (w.blocks > 0) {
    park_range(parked + PARKED_RANGE, &w);
    const copy_mode mode = find_copy_mode(p);
    const lane_offsets lane_a = lane_offsets_a(tid() % 32), lane_b = lane_offsets_b(tid() % 32);
    const lane_offsets lane_q = lane_offsets_a_from(tid() % 32, (u32)warp_row());
    const i64 key_row = t.first_k + (i64)w.last * TILE_K;
    const i32 head_kv = t.head / p->group;
    const u32 steps = parked + PARKED_STEPS;
    copy_source q_from = copy_from(steps, row_address(p->q, &p->q_stride, t.batch, t.head, t.first_q + t.row, 2), p->q_stride.row * 2, TILE_Q);
    copy_source k_from = copy_from(steps + 16, row_address(p->k, &p->k_stride, t.batch, head_kv, key_row, 2), p->k_stride.row * 2, TILE_K);
    copy_source v_from = copy_from(steps + 32, row_address(p->v, &p->v_stride, t.batch, head_kv, key_row, 2), p->v_stride.row * 2, TILE_K);
    copy_tile(smem, q_from, TILE_Q, HEAD_DIM, t.used_q - t.row, p->head_dim, mode);
    signal_copied(q_full(smem), mode);
    i32 keys_left = w.keys_end - w.last * TILE_K; /* in the block that is copied next; less than TILE_K in the first only */
    UNROLL for (i32 n = 0; n < LEAD; n++) {
      if (n < w.blocks) {
        copy_tile(smem + SMEM_K + (u32)n * K_BYTES, k_from, TILE_K, HEAD_DIM, keys_left, p->head_dim, mode);
        signal_copied(k_full(smem, (u32)n), mode);
        copy_tile(smem + SMEM_V + (u32)n * V_BYTES, v_from, TILE_K, HEAD_DIM_V, keys_left, p->head_dim_v, mode);
        signal_copied(v_full(smem, (u32)n), mode);
      }
      to_tile_before(&k_from);
      to_tile_before(&v_from);
      keys_left = TILE_K;
    }

    mbarrier_wait(q_full(smem), 0);
    u32 q_kept[Q_KEPT > 0 ? Q_KEPT : 1][M_TILES][4];
    if (Q_KEPT > 0) UNROLL for (i32 step = 0; step < Q_KEPT; step++) load_q(q_kept[step], smem, lane_q, step);

    NO_UNROLL for (i32 n = 0;; n++) {
      w = unpark_range(parked + PARKED_RANGE);
      if (n >= w.blocks) break;
      const i32 key = (w.last - n) * TILE_K;
      const int seen = key <= w.last_seen && key + TILE_K > w.first_seen;
      const u32 slot = ring_slot((u32)n), next = ring_slot((u32)n + LEAD);
      if (n + LEAD < w.blocks) {
        mbarrier_wait(k_empty(smem, next), ring_parity((u32)n + LEAD) ^ 1);
        copy_tile(smem + SMEM_K + next * K_BYTES, k_from, TILE_K, HEAD_DIM, TILE_K, p->head_dim, mode);
        signal_copied(k_full(smem, next), mode);
        to_tile_before(&k_from);
      }
      if (seen) {
        mbarrier_wait(k_full(smem, slot), ring_parity((u32)n));
        scores(s, (const u32(*)[M_TILES][4])q_kept, smem, smem + SMEM_K + slot * K_BYTES, lane_q, lane_b);
      }
      release(k_empty(smem, slot));
      if (n + LEAD < w.blocks) {
        mbarrier_wait(v_empty(smem, next), ring_parity((u32)n + LEAD) ^ 1);
        copy_tile(smem + SMEM_V + next * V_BYTES, v_from, TILE_K, HEAD_DIM_V, TILE_K, p->head_dim_v, mode);
        signal_copied(v_full(smem, next), mode);
        to_tile_before(&v_from);
      }
      if (seen) {
        mask_block(p, parked, &w, s, key);
        raise_references(&r, (const float(*)[N_TILES][4])s, o, SCORE_FEATURES ? 1.f : p->scale_log2);
        mbarrier_wait(v_full(smem, slot), ring_parity((u32)n));
        softmax_values(p, parked, s, &r, o, smem + SMEM_V + slot * V_BYTES, lane_a, key);
      }
      release(v_empty(smem, slot));
    }
    cp_async_commit();
    cp_async_wait(0);
  }

  t = unpark(parked);
  const i32 row = lane_row(&t);
  float lse[M_TILES][2];
  finish_rows(p, &t, row, &r, o, lse);
  store_lse(p, &t, row, (const float(*)[2])lse);
  if (FEATURES & (FEATURE_O_FLOAT | FEATURE_UNALIGNED)) store_o_elements(p, &t, row, (const float(*)[V_TILES][4])o);
  else store_o_16(p, &t, smem, warp_row(), (const float(*)[V_TILES][4])o);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) { forward(&p); }
