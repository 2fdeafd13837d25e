// FlashAttention-2's backward pass (Dao, 2023, algorithm 2) with the instructions of Ampere: dQ, dK, dV by cp.async, ldmatrix and mma.sync.
//
// A block owns TILE_K keys of one key/value head. K and V stay in shared memory for its whole life, dK and dV in registers; it walks the
// blocks of TILE_Q query rows that see those keys, for every query head of the group, so dK and dV need no atomic. For each block of rows
//
//   S = Q K^T, dP = dO V^T    each warp 16 * M_TILES rows x 8 * N_TILES keys, PASSES times
//   P, dS                     to shared memory in 16 bits, rows x keys
//   dV += P^T dO, dK += dS^T Q, dQ = dS K
//
// In the last three each warp owns a box of 64 columns and its share of the keys (rows for dQ): an operand that is wanted transposed is read by
// ldmatrix.trans from the tile as it lies. dQ is added in float32 in L2 (parts/backward_accumulators.h), and backward_finish.c converts it.
//
// Keys of the variants table: ROW_WARPS: warps side by side along the rows in S and dP, the others along the keys; PASSES: S and dP are made
// TILE_K / PASSES keys at a time. DQ_PARTS 2: half of dQ is added before dK's product and half after. TOGETHER 1: both in one loop, 0: one after the other. STAGES 2: the next Q and dO arrive while these are worked on; 1: after them.
#include "backward_params.h"

#define BOXES_D        (HEAD_DIM / 64)
#define WARPS          (THREADS / 32)
#define KEY_WARPS      (WARPS / ROW_WARPS)
#define PASS_KEYS      (TILE_K / PASSES)
#define M_TILES        (TILE_Q / 16 / ROW_WARPS)
#define N_TILES        (PASS_KEYS / 8 / KEY_WARPS)
#define SHARES         (WARPS / BOXES_D) // warps that share a box of columns
#define KEY_TILES      (TILE_K / 16 / SHARES)
#define DQ_TILES       (TILE_Q / 16 / SHARES)
#define PARK           0 // parts/tile_copy.h, parts/warp_mma.h
#define Q_KEPT         0
#define V_TILES        8
#define SCORE_FEATURES (FEATURES & (FEATURE_SOFTCAP | FEATURE_BIAS | FEATURE_ALIBI | FEATURE_DROPOUT))

#if HEAD_DIM % 64 != 0 || HEAD_DIM != HEAD_DIM_V || DQ_TILES * SHARES * 16 != TILE_Q || KEY_TILES * SHARES * 16 != TILE_K ||               \
    N_TILES % 2 != 0
#error "warps do not fit the tile"
#endif

#include "parts/mask.h"
#include "parts/tile_copy.h"
#include "parts/warp_mma.h"

#if DTYPE == DTYPE_BF16
#define PACK      pack_bf16
#define UNPACK_LO unpack_bf16_lo
#define UNPACK_HI unpack_bf16_hi
#else
#define PACK      pack_f16
#define UNPACK_LO unpack_f16_lo
#define UNPACK_HI unpack_f16_hi
#endif
#include "parts/backward_accumulators.h"
#include "parts/backward_output.h"
#include "parts/backward_score.h"
#include "parts/backward_tiles.h"

#define KV_BYTES   TILE_BYTES(TILE_K, HEAD_DIM)
#define Q_BYTES    TILE_BYTES(TILE_Q, HEAD_DIM)
#define P_BYTES    TILE_BYTES(TILE_Q, TILE_K)
#define SMEM_K     0
#define SMEM_V     KV_BYTES
#define SMEM_Q     (2 * KV_BYTES)
#define SMEM_DO    (SMEM_Q + STAGES * Q_BYTES)
#define SMEM_P     (SMEM_DO + STAGES * Q_BYTES)
#define SMEM_DS    (SMEM_P + P_BYTES)
#define SMEM_LSE   (SMEM_DS + P_BYTES) // then delta
#define SMEM_TILE  (SMEM_LSE + TILE_Q * 8)
#define SMEM_BYTES (SMEM_TILE + 48)
#if SMEM_BYTES > SHARED
#error "SHARED is smaller than what the kernel lays out"
#endif

// Where the walk over row blocks is, and what of the tile the loop needs. The tile lies in shared memory: its numbers would take the
// registers that the products need.
typedef struct walk {
  i32 head, m; // query head and row block in work
  i32 left;    // steps to come after this one
} walk;

FN void park_tile(u32 at, const tile *t, const tile_blocks *b, int chunks) {
  const i32 words[12] = {t->batch, t->batch_q,       t->row_q,       t->used_q, t->used_k, t->key0,
                         t->shift, b->visible_first, b->visible_end, b->first,  b->end,    chunks};
  if (tid() != 0) return;
  UNROLL
  for (u32 i = 0; i < 3; i++) {
    const u32 four[4] = {(u32)words[4 * i], (u32)words[4 * i + 1], (u32)words[4 * i + 2], (u32)words[4 * i + 3]};
    smem_store_16(at + 16 * i, four);
  }
}

typedef struct parked_tile {
  i32 batch, batch_q, row_q, used_q, used_k, key0, shift, visible_first, visible_end;
} parked_tile;

FN walk next_step(u32 at, const walk *w) {
  walk next = {w->head, w->m + 1, w->left - 1};
  if (next.m < (i32)smem_load_4(at + 40)) return next;
  next.m = (i32)smem_load_4(at + 36);
  next.head++;
  return next;
}

// Whether copies go by 16-byte chunks.
FN int parked_chunks(u32 at) { return !(FEATURES & FEATURE_UNALIGNED) || smem_load_4(at + 44) != 0; }

FN parked_tile unpark_tile(u32 at) {
  u32 a[4], b[4];
  smem_load_16(a, at);
  smem_load_16(b, at + 16);
  parked_tile t = {(i32)a[0], (i32)a[1], (i32)a[2], (i32)a[3], (i32)b[0], (i32)b[1], (i32)b[2], (i32)b[3], (i32)smem_load_4(at + 32)};
  return t;
}

// ---- copies -------------------------------------------------------------------------------------------------------------------------
FN int copies_in_chunks(const glint_backward_params *p) {
  if (!(FEATURES & FEATURE_UNALIGNED)) return 1;
  i64 any = (i64)p->q | (i64)p->k | (i64)p->v | (i64)p->d_o | p->head_dim * 2 | p->head_dim_v * 2;
  any |= (p->q_stride.batch | p->q_stride.row | p->q_stride.head | p->k_stride.batch | p->k_stride.row | p->k_stride.head) * 2;
  any |= (p->v_stride.batch | p->v_stride.row | p->v_stride.head | p->do_stride.batch | p->do_stride.row | p->do_stride.head) * 2;
  return any % 16 == 0;
}

// Q of a step into a stage; then dO. Apart, because the queue of memory instructions is short.
FN void copy_queries(const glint_backward_params *p, u32 smem, const walk *w, u32 stage) {
  const parked_tile t = unpark_tile(smem + SMEM_TILE);
  const copy_source q = copy_from(0, p->q, &p->q_stride, t.batch_q, w->head, t.row_q + w->m * TILE_Q);
  copy_tile(smem + SMEM_Q + stage * Q_BYTES, &q, 0, TILE_Q, HEAD_DIM, t.used_q - w->m * TILE_Q, p->head_dim,
            parked_chunks(smem + SMEM_TILE));
  cp_async_commit();
}
FN void copy_gradients(const glint_backward_params *p, u32 smem, const walk *w, u32 stage) {
  const parked_tile t = unpark_tile(smem + SMEM_TILE);
  const copy_source d_o = copy_from(0, p->d_o, &p->do_stride, t.batch_q, w->head, t.row_q + w->m * TILE_Q);
  copy_tile(smem + SMEM_DO + stage * Q_BYTES, &d_o, 0, TILE_Q, HEAD_DIM, t.used_q - w->m * TILE_Q, p->head_dim_v,
            parked_chunks(smem + SMEM_TILE));
  cp_async_commit();
}

// lse and delta of a step. They have one place for all stages, free once P and dS are made.
FN void copy_stats(const glint_backward_params *p, u32 smem, const walk *w) {
  if (tid() < TILE_Q / 2) { // four rows each: lse, then delta
    const u32 i = tid() % (TILE_Q / 4) * 4, is_delta = tid() >= TILE_Q / 4;
    const i64 head = (i64)(i32)smem_load_4(smem + SMEM_TILE) * p->heads_q + w->head;
    cp_async_16(smem + SMEM_LSE + is_delta * (TILE_Q * 4) + i * 4,
                (is_delta ? p->delta : p->lse2) + head * p->rows_padded + w->m * TILE_Q + i);
  }
  cp_async_commit();
}

FN void copy_keys(const glint_backward_params *p, u32 smem, const tile *t, int chunks) {
  const i32 row = t->row_k + t->key0, valid = t->used_k - t->key0;
  const copy_source k = copy_from(0, p->k, &p->k_stride, t->batch_k, t->head_kv, row),
                    v = copy_from(0, p->v, &p->v_stride, t->batch_k, t->head_kv, row);
  copy_tile(smem + SMEM_K, &k, 0, TILE_K, HEAD_DIM, valid, p->head_dim, chunks);
  copy_tile(smem + SMEM_V, &v, 0, TILE_K, HEAD_DIM, valid, p->head_dim_v, chunks);
}

// ---- products -----------------------------------------------------------------------------------------------------------------------
// s = rows x keys^T: the warp's rows of one tile, its keys of the other. Lane offsets include the warp's place.
FN void rows_by_keys(float s[M_TILES][N_TILES][4], u32 rows, u32 keys, lane_offsets row_lane, lane_offsets key_lane, i32 first_key) {
  UNROLL
  for (i32 m = 0; m < M_TILES; m++) UNROLL
  for (i32 j = 0; j < N_TILES; j++) UNROLL
  for (i32 i = 0; i < 4; i++) s[m][j][i] = 0.f;
  UNROLL
  for (i32 step = 0; step < HEAD_DIM / 16; step++) {
    u32 a[M_TILES][4];
    UNROLL
    for (i32 m = 0; m < M_TILES; m++) ldmatrix_x4(a[m], fragment_address(rows, row_lane, TILE_Q, HEAD_DIM, 16 * m, step));
    UNROLL
    for (i32 j = 0; j < N_TILES; j += 2) {
      u32 b[4];
      ldmatrix_x4(b, fragment_address(keys, key_lane, TILE_K, HEAD_DIM, first_key + 8 * j, step));
      UNROLL
      for (i32 m = 0; m < M_TILES; m++) {
        mma_16(s[m][j], a[m], b);
        mma_16(s[m][j + 1], a[m], b + 2);
      }
    }
  }
}

// Both products of a block at once, where a warp has so few accumulators that one product alone would wait for itself.
FN void both_products(float s[M_TILES][N_TILES][4], float dp[M_TILES][N_TILES][4], u32 q, u32 d_o, u32 k, u32 v, lane_offsets row_lane,
                      lane_offsets key_lane, i32 first_key) {
  UNROLL
  for (i32 m = 0; m < M_TILES; m++) UNROLL
  for (i32 j = 0; j < N_TILES; j++) UNROLL
  for (i32 i = 0; i < 4; i++) s[m][j][i] = dp[m][j][i] = 0.f;
  UNROLL
  for (i32 step = 0; step < HEAD_DIM / 16; step++) {
    u32 a[M_TILES][4], c[M_TILES][4];
    UNROLL
    for (i32 m = 0; m < M_TILES; m++) {
      ldmatrix_x4(a[m], fragment_address(q, row_lane, TILE_Q, HEAD_DIM, 16 * m, step));
      ldmatrix_x4(c[m], fragment_address(d_o, row_lane, TILE_Q, HEAD_DIM, 16 * m, step));
    }
    UNROLL
    for (i32 j = 0; j < N_TILES; j += 2) {
      u32 b[4], d[4];
      ldmatrix_x4(b, fragment_address(k, key_lane, TILE_K, HEAD_DIM, first_key + 8 * j, step));
      ldmatrix_x4(d, fragment_address(v, key_lane, TILE_K, HEAD_DIM, first_key + 8 * j, step));
      UNROLL
      for (i32 m = 0; m < M_TILES; m++) {
        mma_16(s[m][j], a[m], b);
        mma_16(dp[m][j], c[m], d);
        mma_16(s[m][j + 1], a[m], b + 2);
        mma_16(dp[m][j + 1], c[m], d + 2);
      }
    }
  }
}

// One of `steps` equal parts of this warp's dQ to its accumulators: the queue of memory instructions is short.
FN void add_dq(const glint_backward_params *p, float *accum, const float dq[DQ_TILES][8][4], i32 step, i32 steps) {
  UNROLL
  for (i32 n = 0; n < DQ_TILES * 8 / steps; n++) {
    const i32 i = (step * (DQ_TILES * 8 / steps) + n) / 8, j = (step * (DQ_TILES * 8 / steps) + n) % 8;
    add_fragment(p, accum + i * BOXES_D * PIECE_FLOATS + j * 128, tid() % 32, dq[i][j]);
  }
}

// d += x^T rows for the warp's keys and its box of columns; x: P or dS.
FN void add_key_gradient(float d[KEY_TILES][8][4], u32 x, u32 rows_box, lane_offsets x_lane, lane_offsets row_lane) {
  UNROLL
  for (i32 step = 0; step < TILE_Q / 16; step++) {
    u32 a[KEY_TILES][4];
    UNROLL
    for (i32 k = 0; k < KEY_TILES; k++) ldmatrix_x4_trans(a[k], fragment_address(x, x_lane, TILE_Q, TILE_K, 16 * step, k));
    UNROLL
    for (i32 n = 0; n < 8; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, fragment_address(rows_box, row_lane, TILE_Q, 64, 16 * step, n / 2));
      UNROLL
      for (i32 k = 0; k < KEY_TILES; k++) {
        mma_16(d[k][n], a[k], b);
        mma_16(d[k][n + 1], a[k], b + 2);
      }
    }
  }
}

// dq = dS K for the warp's rows and its box of columns.
FN void query_gradient(float dq[DQ_TILES][8][4], u32 ds, u32 keys_box, lane_offsets ds_lane, lane_offsets key_lane) {
  UNROLL
  for (i32 m = 0; m < DQ_TILES; m++) UNROLL
  for (i32 n = 0; n < 8; n++) UNROLL
  for (i32 i = 0; i < 4; i++) dq[m][n][i] = 0.f;
  UNROLL
  for (i32 step = 0; step < TILE_K / 16; step++) {
    u32 a[DQ_TILES][4];
    UNROLL
    for (i32 m = 0; m < DQ_TILES; m++) ldmatrix_x4(a[m], fragment_address(ds, ds_lane, TILE_Q, TILE_K, 16 * m, step));
    UNROLL
    for (i32 n = 0; n < 8; n += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, fragment_address(keys_box, key_lane, TILE_K, 64, 16 * step, n / 2));
      UNROLL
      for (i32 m = 0; m < DQ_TILES; m++) {
        mma_16(dq[m][n], a[m], b);
        mma_16(dq[m][n + 1], a[m], b + 2);
      }
    }
  }
}

// ---- one block of rows --------------------------------------------------------------------------------------------------------------
// A warp's place in S: its first row and key in the tile, and what its lanes add to addresses.
typedef struct warp_place {
  i32 row, key;
  lane_offsets rows, keys;
} warp_place;

FN warp_place place_in_scores(void) {
  const u32 warp = tid() / 32, lane = tid() % 32;
  warp_place w = {(i32)(warp % ROW_WARPS) * 16 * M_TILES, (i32)(warp / ROW_WARPS) * 8 * N_TILES, lane_offsets_a(lane),
                  lane_offsets_b(lane)};
  w.rows.box64 += (u32)w.row * 128;
  w.keys.box64 += (u32)w.key * 128;
  return w;
}

// In 16 bits to x, rows x keys.
FN void store_scores(u32 x, const float s[M_TILES][N_TILES][4], i32 row, i32 key) {
  const u32 lane = tid() % 32;
  UNROLL
  for (i32 m = 0; m < M_TILES; m++) UNROLL
  for (i32 h = 0; h < 2; h++) UNROLL
  for (i32 j = 0; j < N_TILES; j++)
    smem_store_4(x + TILE_OFFSET(TILE_Q, TILE_K, (u32)(row + 16 * m + 8 * h) + lane / 4, (u32)(key / 8 + j)) + lane % 4 * 4,
                 PACK(s[m][j][2 * h], s[m][j][2 * h + 1]));
}

FN void mask_scores(const glint_backward_params *p, const score_place *at, float s[M_TILES][N_TILES][4]) {
  const i32 end = at->used_k - 1 - at->key, diagonal = at->row + at->shift - at->key;
  mask_right(s, FEATURES & FEATURE_MASK ? diagonal + p->window_right : end, end);
  if ((FEATURES & FEATURE_MASK) && p->window_left < GLINT_UNBOUNDED) mask_left(s, diagonal - p->window_left);
}

// P and dS of the tile's keys and the block of rows in work.
FN void scores_of_step(const glint_backward_params *p, u32 smem, const walk *step, u32 stage, const warp_place *w) {
  const u32 q = smem + SMEM_Q + stage * Q_BYTES, d_o = smem + SMEM_DO + stage * Q_BYTES, row = (u32)w->row + tid() % 32 / 4;
  const u32 lse = smem + SMEM_LSE + row * 4, delta = lse + TILE_Q * 4;
  NO_UNROLL
  for (i32 pass = 0; pass < PASSES; pass++) {
    float s[M_TILES][N_TILES][4], dp[M_TILES][N_TILES][4];
    const i32 first = pass * PASS_KEYS;
    if (TOGETHER) {
      both_products(s, dp, q, d_o, smem + SMEM_K, smem + SMEM_V, w->rows, w->keys, first);
    } else {
      rows_by_keys(s, q, smem + SMEM_K, w->rows, w->keys, first);
      rows_by_keys(dp, d_o, smem + SMEM_V, w->rows, w->keys, first);
    }
    const parked_tile t = unpark_tile(smem + SMEM_TILE);
    const score_place at = {t.batch,  step->head, step->m * TILE_Q + (i32)row, t.key0 + first + w->key + (i32)(tid() % 4) * 2, t.used_q,
                            t.used_k, t.shift};
    if (SCORE_FEATURES) {
      full_scores(p, &at, s, dp, lse, delta);
    } else {
      if (step->m < t.visible_first || step->m >= t.visible_end) mask_scores(p, &at, s);
      plain_scores(p, s, dp, lse, delta);
    }
    store_scores(smem + SMEM_P, (const float(*)[N_TILES][4])s, w->row, first + w->key);
    store_scores(smem + SMEM_DS, (const float(*)[N_TILES][4])dp, w->row, first + w->key);
  }
}

// The block of accumulators, counted over all heads, that a step adds to.
FN i64 accumulators_of(const glint_backward_params *p, u32 smem, const walk *w) {
  return ((i64)(i32)smem_load_4(smem + SMEM_TILE) * p->heads_q + w->head) * p->q_blocks + w->m;
}

// Deterministic: before a block adds to dQ and after. Its key block's turn must have come.
FN void begin_turn(const glint_backward_params *p, u32 smem, const walk *w) {
  const parked_tile parked = unpark_tile(smem + SMEM_TILE);
  tile t;
  t.key0 = parked.key0, t.shift = parked.shift, t.used_q = parked.used_q, t.used_k = parked.used_k;
  if (tid() == 0) wait_for_turn(p, &t, p->dq_parts + accumulators_of(p, smem, w), w->m);
  cta_sync();
}
FN void end_turn(const glint_backward_params *p, u32 smem, const walk *w) {
  fence_gpu();
  cta_sync();
  if (tid() == 0) atomic_add_release_u32(p->dq_parts + accumulators_of(p, smem, w), 1);
}

// ---- the end ------------------------------------------------------------------------------------------------------------------------
// One of dK and dV, 32 keys x 64 columns a warp, through the warp's own part of `buffer` (K's or V's tile, which nobody reads any more).
FN void store_keys(const output_rows *o, u32 buffer, float d[KEY_TILES][8][4], float factor, i32 key0, u32 share, u32 box) {
  const u32 lane = tid() % 32, first = share * KEY_TILES * 16;
  if (!o->row0) return;
  if (!leaves_in_chunks(o)) {
    UNROLL
    for (i32 k = 0; k < KEY_TILES; k++) UNROLL
    for (i32 n = 0; n < 8; n++) UNROLL
    for (i32 h = 0; h < 2; h++)
      store_columns(o, key0 + (i32)(first + lane / 4) + 16 * k + 8 * h, (i32)(box * 64 + lane % 4 * 2) + 8 * n, d[k][n][2 * h] * factor,
                    d[k][n][2 * h + 1] * factor);
    return;
  }
  buffer += box * TILE_BYTES(TILE_K, 64);
  UNROLL
  for (u32 k = 0; k < KEY_TILES; k++) UNROLL
  for (u32 n = 0; n < 8; n++) UNROLL
  for (u32 h = 0; h < 2; h++)
    smem_store_4(buffer + TILE_OFFSET(TILE_K, 64, first + 16 * k + 8 * h + lane / 4, n) + lane % 4 * 4,
                 PACK(d[k][n][2 * h] * factor, d[k][n][2 * h + 1] * factor));
  warp_sync();
  NO_UNROLL
  for (u32 i = lane; i < KEY_TILES * 16 * 8; i += 32) {
    const i32 row = (i32)(first + i / 8), column = (i32)(box * 64 + i % 8 * 8);
    u32 words[4];
    smem_load_16(words, buffer + TILE_OFFSET(TILE_K, 64, (u32)row, i % 8));
    if (key0 + row < o->rows && column < o->columns) gmem_store_16(o->row0 + (key0 + row) * o->row_bytes + column * 2, words);
  }
}

// The block's tile: by its index or, where blocks wait for others, by the order in which they start.
FN i32 draw_ticket(const glint_backward_params *p, u32 smem) {
  if (!p->deterministic) return (i32)block_id_x();
  if (tid() == 0) smem_store_4(smem, atomic_add_u32(p->tile_counter, 1));
  cta_sync();
  const u32 ticket = smem_load_4(smem);
  cta_sync();
  return (i32)ticket;
}

FN void backward(const glint_backward_params *p) {
  const u32 smem = smem_base(), lane = tid() % 32, box = tid() / 32 % BOXES_D, share = tid() / 32 / BOXES_D;
  const tile t = locate_tile(p, tile_of_ticket(p, draw_ticket(p, smem)));
  if (t.key0 >= t.len_k) return;
  const tile_blocks blocks = blocks_of(p, &t);
  walk w = {t.head_kv * p->group, blocks.first, (blocks.end - blocks.first) * p->group - 1};
  float dk[KEY_TILES][8][4], dv[KEY_TILES][8][4];
  UNROLL
  for (i32 k = 0; k < KEY_TILES; k++) UNROLL
  for (i32 n = 0; n < 8; n++) UNROLL
  for (i32 i = 0; i < 4; i++) dk[k][n][i] = dv[k][n][i] = 0.f;

  if (w.left >= 0) {
    const warp_place place = place_in_scores();
    const lane_offsets lane_a = lane_offsets_a(lane);
    lane_offsets keys_of_p = lane_offsets_b(lane), rows_of_p = lane_offsets_a(lane);
    keys_of_p.box64 = (keys_of_p.box64 ^ (u32)FRAGMENT_TURN(share * KEY_TILES)) + (u32)FRAGMENT_STEP(TILE_Q, 64, 0, share * KEY_TILES);
    rows_of_p.box64 += share * DQ_TILES * 16 * 128;
    const int chunks = copies_in_chunks(p);
    park_tile(smem + SMEM_TILE, &t, &blocks, chunks);
    cta_sync();
    copy_keys(p, smem, &t, chunks);
    copy_queries(p, smem, &w, 0);
    copy_gradients(p, smem, &w, 0);
    copy_stats(p, smem, &w);
    NO_UNROLL
    for (u32 stage = 0; w.left >= 0; stage = STAGES > 1 ? stage ^ 1 : 0) {
      const u32 q = smem + SMEM_Q + stage * Q_BYTES + box * (TILE_Q * 128), d_o = smem + SMEM_DO + stage * Q_BYTES + box * (TILE_Q * 128);
      const walk next = next_step(smem + SMEM_TILE, &w);
      cp_async_wait(0);
      cta_sync(); // and all warps are through with the step before: its stage, P and dS are free
      if (STAGES > 1 && w.left > 0) copy_queries(p, smem, &next, stage ^ 1);
      scores_of_step(p, smem, &w, stage, &place);
      cta_sync();
      if (STAGES > 1 && w.left > 0) copy_gradients(p, smem, &next, stage ^ 1);
      if (w.left > 0) copy_stats(p, smem, &next);
      float dq[DQ_TILES][8][4], *accum = NULL;
      add_key_gradient(dv, smem + SMEM_P, d_o, keys_of_p, lane_a);
      if (p->dq) {
        query_gradient(dq, smem + SMEM_DS, smem + SMEM_K + box * (TILE_K * 128), rows_of_p, lane_a);
        accum = p->dq_accum + accumulators_of(p, smem, &w) * (TILE_Q * HEAD_DIM) + (share * DQ_TILES * BOXES_D + box) * PIECE_FLOATS;
        if (p->deterministic) begin_turn(p, smem, &w);
        add_dq(p, accum, (const float(*)[8][4])dq, 0, DQ_PARTS);
      }
      add_key_gradient(dk, smem + SMEM_DS, q, keys_of_p, lane_a);
      if (p->dq && DQ_PARTS > 1) add_dq(p, accum, (const float(*)[8][4])dq, 1, DQ_PARTS);
      if (p->dq && p->deterministic) end_turn(p, smem, &w);
      if (STAGES == 1 && w.left > 0) {
        cta_sync();
        copy_queries(p, smem, &next, 0);
        copy_gradients(p, smem, &next, 0);
      }
      w = next;
    }
    cta_sync();
  }
  const output_rows to_k = output_of(p->dk, &p->dk_stride, t.batch_k, t.head_kv, t.row_k, t.len_k, p->head_dim, p->dk_float, p->accumulate),
                    to_v =
                        output_of(p->dv, &p->dv_stride, t.batch_k, t.head_kv, t.row_k, t.len_k, p->head_dim_v, p->dv_float, p->accumulate);
  if (p->dk) store_keys(&to_k, smem + SMEM_K, dk, p->scale, t.key0, share, box);
  if (p->dv) store_keys(&to_v, smem + SMEM_V, dv, 1.f, t.key0, share, box);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) { backward(&p); }
