/* FlashAttention-2's forward pass (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023) with the
 * instructions of Ampere: cp.async, ldmatrix, mma.sync. docs/kernels/ampere.md goes through it line by line.
 *
 * One block computes TILE_Q query rows of one head. Q stays in shared memory for the block's whole life; K and V come through it TILE_K
 * keys at a time, copied while the tensor cores work on the blocks before; scores, probabilities and o never leave registers. A warp owns
 * TILE_Q / warps rows and all keys. Key blocks go from the last to the first: those that need a mask come first.
 *
 * K and V have STAGES buffers each. LOOSE says how the block's warps hand them on:
 *   0  one barrier of the whole block for each block of keys.
 *   1  each buffer has an mbarrier that says "full" (every thread's copies have landed) and one that says "empty" (every warp has read). So
 *      a warp in its softmax is not waited for by one in its products: warps drift apart by up to half a block of keys, and of the two
 *      warps of a scheduler one multiplies while the other takes exponentials. Pays where a block of keys is much work (head_dim 128 on).
 * PARK 1: what only masks, copies and the epilogue need waits in shared memory, because o and the scores take the registers.
 * Q_KEPT: steps of 16 columns of Q held in registers instead of being read again for each block of keys. */
#include "params.h"

#define WARPS          (THREADS / 32)
#define M_TILES        (TILE_Q / 16 / WARPS)
#define N_TILES        (TILE_K / 8)
#define V_TILES        (HEAD_DIM_V / 8)
#define SCORE_FEATURES (FEATURES & (FEATURE_SOFTCAP | FEATURE_BIAS | FEATURE_ALIBI)) /* scores are more than scaled products */

#include "parts/dropout.h"
#include "parts/epilogue.h"
#include "parts/mask.h"
#include "parts/score.h"
#include "parts/sequence.h"
#include "parts/softmax.h"
#include "parts/tile_copy.h"
#include "parts/warp_mma.h"

#define K_BYTES        TILE_BYTES(TILE_K, HEAD_DIM)
#define V_BYTES        TILE_BYTES(TILE_K, HEAD_DIM_V)
/* Q's place, which o uses in the end; K and V of each stage; barriers; parked values */
#define SMEM_K         (HEAD_DIM > HEAD_DIM_V ? TILE_BYTES(TILE_Q, HEAD_DIM) : TILE_BYTES(TILE_Q, HEAD_DIM_V))
#define SMEM_V         (SMEM_K + STAGES * K_BYTES)
#define SMEM_BARRIERS  (SMEM_V + STAGES * V_BYTES)
#define SMEM_PARKED    (SMEM_BARRIERS + 128)
#define SMEM_BYTES     (SMEM_PARKED + WARPS * PARKED_BYTES)
/* What a warp parks: its tile_place, its warp_range, and the sources of Q, K and V */
#define PARKED_RANGE   48
#define PARKED_SOURCES 80
#define PARKED_BYTES   (PARK ? 128 : 0)
#if SMEM_BYTES > SHARED
#error "SHARED: needs 2 * (TILE_Q * max(HEAD_DIM, HEAD_DIM_V) + STAGES * TILE_K * (HEAD_DIM + HEAD_DIM_V)) + 128 + 4 * THREADS"
#endif
#define LEAD (STAGES - 1) /* blocks of keys that are under way beyond the one in work */

FN u32 q_full(u32 smem) { return smem + SMEM_BARRIERS; }
FN u32 k_full(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 8 + 32 * slot; }
FN u32 k_empty(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 16 + 32 * slot; }
FN u32 v_full(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 24 + 32 * slot; }
FN u32 v_empty(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 32 + 32 * slot; }

/* The n-th block of keys: its buffer, and the parity of the barriers' phase that belongs to it. */
FN u32 ring_slot(i32 n) { return (u32)n % STAGES; }
FN u32 ring_parity(i32 n) { return (u32)n / STAGES & 1; }

FN void init_barriers(u32 smem) {
  if (!LOOSE) return;
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

FN tile_place recall(const tile_place *t, u32 parked) { return PARK ? unpark(parked) : *t; }

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
}
FN warp_range unpark_range(u32 at) {
  u32 a[2], b[4];
  smem_load_8(a, at + 16);
  smem_load_16(b, at);
  warp_range w = {0, (i32)a[0], (i32)a[1], (i32)b[0], (i32)b[1], (i32)b[2], (i32)b[3]};
  return w;
}

/* From products to masked scores. */
FN void mask_block(const glint_forward_params *p, const tile_place *place, u32 parked, const warp_range *w, float s[M_TILES][N_TILES][4],
                   i32 key) {
  int right = key + TILE_K - 1 > w->all_to, left = (FEATURES & FEATURE_MASK) && key < w->all_from;
  if (!SCORE_FEATURES && !right && !left) return;
  const tile_place t = recall(place, parked);
  i32 row = lane_row(&t), lane_key = key + (i32)(tid() % 4) * 2;
  if (SCORE_FEATURES) transform_scores(p, &t, s, row, lane_key);
  if (right) {
    i32 end = t.len_k - 1 - lane_key;
    mask_right(s, FEATURES & FEATURE_MASK ? row + t.shift + p->window_right - lane_key : end, end);
  }
  if (left) mask_left(s, row + t.shift - p->window_left - lane_key);
}

/* o += P V, 16 keys at a time: the exponentials of the next 16 run beside the product of these. */
FN void softmax_values(const glint_forward_params *p, const tile_place *place, u32 parked, float s[M_TILES][N_TILES][4], row_stats *r,
                       float o[M_TILES][V_TILES][4], u32 v, lane_offsets v_lane, i32 key) {
  const float scale = p->scale_log2;
  const int dropout = (FEATURES & FEATURE_DROPOUT) && p->drop_threshold;
  if (dropout) {
    UNROLL for (i32 c = 0; c < TILE_K / 16; c++) exponentials(r, s, c, scale);
    const tile_place t = recall(place, parked);
    drop(p, s, (u32)(t.batch * p->heads_q + t.head), lane_row(&t), key);
  }
  UNROLL for (i32 c = 0; c < TILE_K / 16; c++) {
    u32 a[M_TILES][4];
    if (!dropout) exponentials(r, s, c, scale);
    pack_probabilities(a, (const float(*)[N_TILES][4])s, c);
    add_values(o, (const u32(*)[4])a, v, v_lane, c);
  }
}

FN int sees_block(const warp_range *w, i32 n) {
  const i32 key = (w->last - n) * TILE_K;
  return key <= w->last_seen && key + TILE_K > w->first_seen;
}

/* K or V of the n-th block of keys into its buffer. */
FN void copy_k(const glint_forward_params *p, u32 smem, const copy_source *k_from, i32 n, i32 valid_rows, copy_mode mode) {
  copy_tile(smem + SMEM_K + ring_slot(n) * K_BYTES, k_from, -n * TILE_K, TILE_K, HEAD_DIM, valid_rows, p->head_dim, mode);
}
FN void copy_v(const glint_forward_params *p, u32 smem, const copy_source *v_from, i32 n, i32 valid_rows, copy_mode mode) {
  copy_tile(smem + SMEM_V + ring_slot(n) * V_BYTES, v_from, -n * TILE_K, TILE_K, HEAD_DIM_V, valid_rows, p->head_dim_v, mode);
}

/* Under a common barrier the copies are counted in groups: all but the `younger` last ones of all threads have landed. */
#define await_copies(younger)                                                                                                              \
  do {                                                                                                                                     \
    cp_async_wait(younger);                                                                                                                \
    cta_sync();                                                                                                                            \
  } while (0)

FN void forward(const glint_forward_params *p) {
  tile_place t = find_tile(p, (i32)block_id_x(), TILE_Q);
  if (t.row >= t.len_q) return;
  u32 smem = smem_base(), parked = smem + SMEM_PARKED + tid() / 32 * PARKED_BYTES;
  init_barriers(smem);

  row_stats r;
  float o[M_TILES][V_TILES][4], s[M_TILES][N_TILES][4];
  clear_stats(&r);
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 4; i++) o[m][n][i] = 0.f;

  const warp_range range = find_range(p, &t);
  if (range.blocks > 0) {
    const copy_mode mode = find_copy_mode(p);
    const lane_offsets lane_a = lane_offsets_a(tid() % 32), lane_b = lane_offsets_b(tid() % 32);
    const lane_offsets lane_q = lane_offsets_a_from(tid() % 32, (u32)warp_row());
    const i64 key_row = t.first_k + (i64)range.last * TILE_K;
    const i32 head_kv = t.head / p->group;
    const copy_source q_from = copy_from(parked + PARKED_SOURCES, p->q, &p->q_stride, t.batch, t.head, t.first_q + t.row);
    const copy_source k_from = copy_from(parked + PARKED_SOURCES + 16, p->k, &p->k_stride, t.batch, head_kv, key_row);
    const copy_source v_from = copy_from(parked + PARKED_SOURCES + 32, p->v, &p->v_stride, t.batch, head_kv, key_row);
    if (PARK) {
      park(parked, &t);
      park_range(parked + PARKED_RANGE, &range);
      warp_sync();
    }
    copy_tile(smem, &q_from, 0, TILE_Q, HEAD_DIM, t.used_q - t.row, p->head_dim, mode);
    if (LOOSE) signal_copied(q_full(smem), mode);
    UNROLL for (i32 n = 0; n < LEAD; n++) {
      const i32 valid = n ? TILE_K : range.keys_end - range.last * TILE_K;
      if (n < range.blocks) copy_k(p, smem, &k_from, n, valid, mode);
      if (LOOSE) signal_copied(k_full(smem, (u32)n), mode);
      if (n < range.blocks) copy_v(p, smem, &v_from, n, valid, mode);
      if (LOOSE)
        signal_copied(v_full(smem, (u32)n), mode);
      else
        cp_async_commit();
    }

    u32 q_kept[Q_KEPT > 0 ? Q_KEPT : 1][M_TILES][4];
    if (LOOSE)
      mbarrier_wait(q_full(smem), 0);
    else if (Q_KEPT > 0)
      await_copies(LEAD - 1);
    if (Q_KEPT > 0) UNROLL for (i32 step = 0; step < Q_KEPT; step++) load_q(q_kept[step], smem, lane_q, step);

    NO_UNROLL for (i32 n = 0; n < range.blocks; n++) {
      const warp_range w = PARK ? unpark_range(parked + PARKED_RANGE) : range;
      const int seen = sees_block(&w, n), more = n + LEAD < w.blocks;
      const u32 slot = ring_slot(n), next = ring_slot(n + LEAD), refill = ring_parity(n + LEAD) ^ 1;
      if (!LOOSE) {
        await_copies(LEAD - 1); /* and all warps are through with the block before, whose buffers are filled next */
        if (more) {
          copy_k(p, smem, &k_from, n + LEAD, TILE_K, mode);
          copy_v(p, smem, &v_from, n + LEAD, TILE_K, mode);
        }
        cp_async_commit();
      } else if (more) {
        mbarrier_wait(k_empty(smem, next), refill);
        copy_k(p, smem, &k_from, n + LEAD, TILE_K, mode);
        signal_copied(k_full(smem, next), mode);
      }
      if (seen) {
        if (LOOSE) mbarrier_wait(k_full(smem, slot), ring_parity(n));
        scores(s, (const u32(*)[M_TILES][4])q_kept, smem, smem + SMEM_K + slot * K_BYTES, lane_q, lane_b);
      }
      if (LOOSE) release(k_empty(smem, slot));
      if (LOOSE && more) {
        mbarrier_wait(v_empty(smem, next), refill);
        copy_v(p, smem, &v_from, n + LEAD, TILE_K, mode);
        signal_copied(v_full(smem, next), mode);
      }
      if (seen) {
        mask_block(p, &t, parked, &w, s, (w.last - n) * TILE_K);
        raise_references(&r, (const float(*)[N_TILES][4])s, o, p->scale_log2);
        if (LOOSE) mbarrier_wait(v_full(smem, slot), ring_parity(n));
        softmax_values(p, &t, parked, s, &r, o, smem + SMEM_V + slot * V_BYTES, lane_a, (w.last - n) * TILE_K);
      }
      if (LOOSE) release(v_empty(smem, slot));
    }
    if (LOOSE) { /* a warp that saw none of the last blocks does not leave before its copies have landed */
      cp_async_commit();
      cp_async_wait(0);
    }
    t = recall(&t, parked);
  }

  const i32 row = lane_row(&t);
  float lse[M_TILES][2];
  finish_rows(p, &t, row, &r, o, lse);
  store_lse(p, &t, row, (const float(*)[2])lse);
  if (FEATURES & (FEATURE_O_FLOAT | FEATURE_UNALIGNED))
    store_o_elements(p, &t, row, (const float(*)[V_TILES][4])o);
  else
    store_o_16(p, &t, smem, warp_row(), (const float(*)[V_TILES][4])o);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) { forward(&p); }
