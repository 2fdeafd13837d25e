// The plain backward pass: what the fast kernels refuse, slowly and in ordinary arithmetic. Any dtype, head_dim up to 512 at any alignment, every
// feature of the scores. No atomic but for the bias's gradient: two kernels, one for each side of the scores, that differ in ROLE alone.
//
//   ROLE_QUERIES  a warp owns ROWS query rows and walks the keys:      dq_i = scale * sum_j dS_ij k_j, and dbias
//   ROLE_KEYS     a warp owns ROWS keys and walks the query rows of    dk_j = scale * sum_i dS_ij q_i, dv_j = sum_i P_ij dO_i
//                 all query heads of the group:
//
// Its own rows (q and dO; k and v) lie in shared memory as floats. It walks the other side 32 rows at a time, one a lane: the lane computes
// the two dot products of its row with all own rows, from them P and dS; then the lanes share out the columns of what is added up.
#ifndef GLINT_BACKWARD_SIMPLE_H
#define GLINT_BACKWARD_SIMPLE_H

#include "../backward_params.h"

#define ROLE_QUERIES  1
#define ROLE_KEYS     2
#define WARPS         (THREADS / 32)
#define ROWS          (TILE_Q / WARPS)
#define COLUMNS       ((HEAD_DIM + 31) / 32) // of a result, for each lane
#define ELEMENT       (DTYPE == DTYPE_FLOAT32 ? 4 : 2)
#define M_TILES       1 // parts/backward_score.h
#define N_TILES       4
#define WITHOUT_DBIAS (ROLE == ROLE_KEYS)

#if DTYPE == DTYPE_FP16
#define PACK      pack_f16
#define UNPACK_LO unpack_f16_lo
#define UNPACK_HI unpack_f16_hi
#else
#define PACK      pack_bf16
#define UNPACK_LO unpack_bf16_lo
#define UNPACK_HI unpack_bf16_hi
#endif
#include "../isa/common.h"

#include "backward_output.h"
#include "backward_score.h"
#include "backward_tiles.h"

#if TILE_Q != TILE_K || TILE_Q % WARPS != 0 || HEAD_DIM != HEAD_DIM_V || SHARED < 8 * TILE_Q * HEAD_DIM
#error "a tile is as many rows as keys, and SHARED holds two floats for each of their columns"
#endif

// Rows of one tensor, for one head of one sequence.
typedef struct side {
  const char *row0;
  i64 row_bytes;
  i32 columns, is_float;
} side;

FN side side_of(const void *base, const glint_stride *stride, i32 batch, i32 head, i64 row, i32 columns, int is_float) {
  const i32 size = is_float ? 4 : 2;
  side s = {(const char *)base + (batch * stride->batch + head * stride->head + row * stride->row) * size, stride->row * size, columns,
            is_float};
  return s;
}

FN float load_at(const side *s, i32 row, i32 column) {
  const char *at = s->row0 + row * s->row_bytes;
  return s->is_float ? gmem_load_f32_nc((const float *)at + column) : UNPACK_LO(gmem_load_2_nc((const u16 *)at + column));
}

// The warp's rows as floats; zeros where there is no row, and behind the columns up to a multiple of 4.
FN void load_own(u32 smem, const side *s, i32 first, i32 end) {
  NO_UNROLL
  for (i32 r = 0; r < ROWS; r++)
    for (i32 c = (i32)(tid() % 32); c < (s->columns + 3) / 4 * 4; c += 32)
      smem_store_f32(smem + 4 * (u32)(r * HEAD_DIM + c), first + r < end && c < s->columns ? load_at(s, first + r, c) : 0.f);
}

// Products of the lane's row of the other side with all own rows.
FN void multiply(float product[ROWS], u32 smem, const side *other, i32 row) {
  UNROLL
  for (i32 r = 0; r < ROWS; r++) product[r] = 0.f;
  NO_UNROLL
  for (i32 c = 0; c < other->columns; c += 4) {
    float x[4];
    UNROLL
    for (i32 i = 0; i < 4; i++) x[i] = c + i < other->columns ? load_at(other, row, c + i) : 0.f;
    UNROLL
    for (i32 r = 0; r < ROWS; r++) {
      u32 own[4];
      smem_load_16(own, smem + 4 * (u32)(r * HEAD_DIM + c));
      UNROLL
      for (i32 i = 0; i < 4; i++) product[r] = fma_f32(f32_from_bits(own[i]), x[i], product[r]);
    }
  }
}

// sum += coefficient * row, for 32 rows from first_row on; coefficient: the lane's row's with all own ones. What an own row does not see adds
// nothing, not even 0 times what may be NaN.
FN void add_rows(float sum[ROWS][COLUMNS], const float coefficient[ROWS], const u32 seen[ROWS], const side *other, i32 first_row) {
  u32 any = 0;
  UNROLL
  for (i32 r = 0; r < ROWS; r++) any |= seen[r];
  NO_UNROLL
  for (i32 j = 0; j < 32; j++) {
    float factor[ROWS];
    UNROLL
    for (i32 r = 0; r < ROWS; r++) factor[r] = shfl_idx_f32(coefficient[r], (u32)j);
    if (!(any >> j & 1)) continue;
    UNROLL
    for (i32 i = 0; i < COLUMNS; i++) {
      const i32 c = 32 * i + (i32)(tid() % 32);
      const float x = c < other->columns ? load_at(other, first_row + j, c) : 0.f;
      UNROLL
      for (i32 r = 0; r < ROWS; r++)
        if (seen[r] >> j & 1) sum[r][i] = fma_f32(factor[r], x, sum[r][i]);
    }
  }
}

FN int is_kept(const glint_backward_params *p, const score_place *at, i32 row, i32 key) {
  u32 x[4] = {(u32)key / 8, (u32)row, (u32)(at->batch * p->heads_q + at->head), (u32)p->dropout_offset};
  if (!p->drop_threshold) return 1;
  philox(x, (u32)p->dropout_seed, (u32)(p->dropout_seed >> 32) ^ (u32)(p->dropout_offset >> 32));
  const u32 word = key % 8 < 2 ? x[0] : key % 8 < 4 ? x[1] : key % 8 < 6 ? x[2] : x[3];
  return (key % 2 ? word >> 16 : word & 0xffffu) >= p->drop_threshold;
}

// One query head: what 32 rows of the other side at a time give to the own ones, which begin at `own`. first, end: of the other side, that any
// own row may see.
FN void walk_head(const glint_backward_params *p, const tile *t, i32 head, u32 smem, i32 own, i32 first, i32 end,
                  float sum_ds[ROWS][COLUMNS], float sum_p[ROWS][COLUMNS]) {
  const score_place at = {t->batch, head, 0, 0, t->used_q, t->used_k, t->shift};
  const side q = side_of(p->q, &p->q_stride, t->batch_q, head, t->row_q, p->head_dim, DTYPE == DTYPE_FLOAT32),
             d_o = side_of(p->d_o, &p->do_stride, t->batch_q, head, t->row_q, p->head_dim_v, p->do_float),
             k = side_of(p->k, &p->k_stride, t->batch_k, t->head_kv, t->row_k, p->head_dim, DTYPE == DTYPE_FLOAT32),
             v = side_of(p->v, &p->v_stride, t->batch_k, t->head_kv, t->row_k, p->head_dim_v, DTYPE == DTYPE_FLOAT32);
  const float slope = p->alibi_slopes ? gmem_load_f32_nc(p->alibi_slopes + t->batch * p->alibi_batch_stride + head) : 0.f;
  const i64 stats = ((i64)t->batch * p->heads_q + head) * p->rows_padded;
  if (ROLE == ROLE_QUERIES) {
    load_own(smem, &q, own, t->used_q);
    load_own(smem + ROWS * HEAD_DIM * 4, &d_o, own, t->used_q);
    warp_sync();
  }
  NO_UNROLL
  for (i32 other = first; other < end; other += 32) {
    float product[ROWS], dp[ROWS], probability[ROWS];
    u32 seen[ROWS];
    const i32 mine = smaller(other + (i32)(tid() % 32), end - 1);
    multiply(product, smem, ROLE == ROLE_QUERIES ? &k : &q, mine);
    multiply(dp, smem + ROWS * HEAD_DIM * 4, ROLE == ROLE_QUERIES ? &v : &d_o, mine);
    UNROLL
    for (i32 r = 0; r < ROWS; r++) {
      const i32 row = ROLE == ROLE_QUERIES ? own + r : mine, key = ROLE == ROLE_QUERIES ? mine : own + r, distance = row + t->shift - key;
      const int sees = other + (i32)(tid() % 32) < end && row < t->used_q && key < t->used_k && distance <= p->window_left &&
                       -distance <= p->window_right;
      seen[r] = ballot_lanes(sees);
      probability[r] = 0.f;
      if (sees)
        dp[r] = full_element(p, &at, row, key, product[r], dp[r], gmem_load_f32(p->lse2 + stats + row),
                             gmem_load_f32(p->delta + stats + row), slope, is_kept(p, &at, row, key), &probability[r]);
    }
    add_rows(sum_ds, dp, seen, ROLE == ROLE_QUERIES ? &k : &q, other);
    if (ROLE == ROLE_KEYS) add_rows(sum_p, probability, seen, &d_o, other);
  }
}

FN void store_rows(const output_rows *o, const float sum[ROWS][COLUMNS], i32 first, float factor) {
  UNROLL
  for (i32 r = 0; r < ROWS; r++) UNROLL
  for (i32 i = 0; i < COLUMNS; i++) {
    const i32 c = 32 * i + (i32)(tid() % 32);
    if (first + r < o->rows && c < o->columns)
      store_element(o->row0 + (first + r) * o->row_bytes + c * (o->is_float ? 4 : 2), o->is_float, o->accumulate, sum[r][i] * factor);
  }
}

FN void backward(const glint_backward_params *p) {
  const i32 blocks = ROLE == ROLE_QUERIES ? p->q_blocks : p->k_blocks, block = (i32)block_id_x() % blocks,
            unit = (i32)block_id_x() / blocks;
  const i32 own = block * TILE_Q + (i32)(tid() / 32) * ROWS; // unit: batch and query head, or batch and key/value head
  const u32 smem = smem_base() + tid() / 32 * (2 * ROWS * HEAD_DIM * 4);
  const tile_id id = {ROLE == ROLE_QUERIES ? unit / p->heads_q * p->heads_kv + unit % p->heads_q / p->group : unit, 0};
  const tile t = locate_tile(p, id);
  float sum_ds[ROWS][COLUMNS], sum_p[ROWS][COLUMNS];
  UNROLL
  for (i32 r = 0; r < ROWS; r++) UNROLL
  for (i32 i = 0; i < COLUMNS; i++) sum_ds[r][i] = sum_p[r][i] = 0.f;
  if (ROLE == ROLE_QUERIES) {
    const i32 head = unit % p->heads_q, last = smaller(own + ROWS, t.used_q) - 1;
    const i32 first_key = larger(0, own + t.shift - p->window_left), end_key = smaller(t.used_k, last + t.shift + p->window_right + 1);
    if (last >= own) walk_head(p, &t, head, smem, own, first_key, end_key, sum_ds, sum_p);
    const output_rows to = output_of(p->dq, &p->dq_stride, t.batch_q, head, t.row_q, t.len_q, p->head_dim, p->dq_float, p->accumulate);
    if (p->dq) store_rows(&to, (const float(*)[COLUMNS])sum_ds, own, p->scale);
  } else {
    const side k = side_of(p->k, &p->k_stride, t.batch_k, t.head_kv, t.row_k, p->head_dim, DTYPE == DTYPE_FLOAT32),
               v = side_of(p->v, &p->v_stride, t.batch_k, t.head_kv, t.row_k, p->head_dim_v, DTYPE == DTYPE_FLOAT32);
    const i32 last = smaller(own + ROWS, t.used_k) - 1;
    const i32 first_row = larger(0, own - t.shift - p->window_right), end_row = smaller(t.used_q, last - t.shift + p->window_left + 1);
    load_own(smem, &k, own, t.used_k);
    load_own(smem + ROWS * HEAD_DIM * 4, &v, own, t.used_k);
    warp_sync();
    NO_UNROLL
    for (i32 g = 0; g < p->group && last >= own; g++)
      walk_head(p, &t, t.head_kv * p->group + g, smem, own, first_row, end_row, sum_ds, sum_p);
    const output_rows to_k =
                          output_of(p->dk, &p->dk_stride, t.batch_k, t.head_kv, t.row_k, t.len_k, p->head_dim, p->dk_float, p->accumulate),
                      to_v = output_of(p->dv, &p->dv_stride, t.batch_k, t.head_kv, t.row_k, t.len_k, p->head_dim_v, p->dv_float,
                                       p->accumulate);
    if (p->dk) store_rows(&to_k, (const float(*)[COLUMNS])sum_ds, own, p->scale);
    if (p->dv) store_rows(&to_v, (const float(*)[COLUMNS])sum_p, own, 1.f);
  }
}

#endif
