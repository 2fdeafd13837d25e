// Before the backward pass: delta = rowsum(o * d_o) - d_lse (FlashAttention-2, algorithm 2; d_lse because lse's own gradient enters dS the
// same way), lse in base 2, and the main kernel's accumulators set to zero. Bound by memory: each row of o and d_o is read once, in order.
//
// HEAD_DIM / 8 lanes share a row, 16 bytes each; in the kernel for tensors without alignment at most 32, eight columns at a time. Rows are numbered (batch, row, head), the head fastest, as they usually lie in memory.
#include "backward_params.h"
#include "isa/common.h"

#if DTYPE != DTYPE_FP16
#define UNPACK_LO unpack_bf16_lo
#define UNPACK_HI unpack_bf16_hi
#else
#define UNPACK_LO unpack_f16_lo
#define UNPACK_HI unpack_f16_hi
#endif

#define LANES       (HEAD_DIM < 256 ? HEAD_DIM / 8 : 32) // of a row
#define ROWS_A_STEP (THREADS / LANES)
#define STEPS       4 // rows in flight a thread: their loads are issued before the first is used
#define LOG2E       1.44269504f

typedef struct row_place {
  i32 batch, head, row; // row of the sequence
  i32 exists;
  i64 at_o, at_do; // element offsets of the row in o and d_o
} row_place;

// Where the block's first row is, so that its threads count on from there with short divisions: those of 64 bits would take longer than the
// memory accesses.
FN row_place first_place(const glint_backward_params *p, i64 index) {
  row_place r = {p->batch, 0, 0, 0, 0, 0};
  if (p->rows_padded == 0) return r; // no rows: only accumulators to clear
  i64 rows;
  if (index >> 31 == 0) {
    rows = (u32)index / (u32)p->heads_q;
    r.head = (i32)((u32)index % (u32)p->heads_q);
  } else {
    rows = index / p->heads_q;
    r.head = (i32)(index % p->heads_q);
  }
  if (rows >> 31 == 0) {
    r.batch = (i32)((u32)rows / (u32)p->rows_padded);
    r.row = (i32)((u32)rows % (u32)p->rows_padded);
  } else {
    r.batch = (i32)(rows / p->rows_padded);
    r.row = (i32)(rows % p->rows_padded);
  }
  return r;
}

// The row that comes `ahead` rows after `block`.
FN row_place place_of(const glint_backward_params *p, const row_place *block, u32 ahead) {
  row_place r = *block;
  if (p->rows_padded == 0) return r;
  u32 head = (u32)r.head + ahead, row = (u32)r.row + head / (u32)p->heads_q;
  r.head = (i32)(head % (u32)p->heads_q);
  r.batch += (i32)(row / (u32)p->rows_padded);
  r.row = (i32)(row % (u32)p->rows_padded);
  i32 first = 0, len = p->seqlen_q, batch = r.batch;
  if (r.batch < p->batch) {
    if (p->cu_seqlens_q) {
      first = (i32)gmem_load_4_nc(p->cu_seqlens_q + r.batch);
      len = (i32)gmem_load_4_nc(p->cu_seqlens_q + r.batch + 1) - first;
      batch = 0;
    }
    if (p->seqused_q) {
      i32 used = (i32)gmem_load_4_nc(p->seqused_q + r.batch);
      len = used < len ? used : len;
    }
  }
  r.exists = r.batch < p->batch && r.row < len;
  r.at_o = batch * p->o_stride.batch + (i64)(first + r.row) * p->o_stride.row + r.head * p->o_stride.head;
  r.at_do = batch * p->do_stride.batch + (i64)(first + r.row) * p->do_stride.row + r.head * p->do_stride.head;
  return r;
}

FN float dot_of_pairs(const u32 *a, const u32 *b) {
  float sum = 0.f;
  UNROLL
  for (u32 i = 0; i < 4; i++) sum = fma_f32(UNPACK_LO(a[i]), UNPACK_LO(b[i]), fma_f32(UNPACK_HI(a[i]), UNPACK_HI(b[i]), sum));
  return sum;
}

FN void store_row(const glint_backward_params *p, const row_place *r, float sum) {
  float lse2 = INFINITY, delta = 0.f;
  if (r->exists) {
    i32 first = p->cu_seqlens_q ? (i32)gmem_load_4_nc(p->cu_seqlens_q + r->batch) : 0;
    i64 batch = p->cu_seqlens_q ? 0 : r->batch;
    float lse = gmem_load_f32(p->lse + batch * p->lse_batch_stride + r->head * p->lse_head_stride + first + r->row);
    if (lse != -INFINITY) {                               // a row that sees nothing has no probabilities; NaN stays NaN
      lse2 = FEATURES & FEATURE_BIAS ? lse : lse * LOG2E; // SCORE_FEATURES of backward_fa2.c
      delta = sum;
      if (p->d_lse) delta -= gmem_load_f32(p->d_lse + batch * p->d_lse_batch_stride + r->head * p->d_lse_head_stride + first + r->row);
    }
  }
  i64 at = ((i64)r->batch * p->heads_q + r->head) * p->rows_padded + r->row;
  gmem_store_f32(p->lse2 + at, lse2);
  gmem_store_f32(p->delta + at, delta);
}

// Eight columns of o or d_o from anywhere, as floats.
FN void load_columns(float x[8], const void *base, i64 at, int is_float, i32 count) {
  UNROLL
  for (i32 e = 0; e < 8; e++) {
    x[e] = 0.f;
    if (e < count) x[e] = is_float ? gmem_load_f32((const float *)base + at + e) : UNPACK_LO(gmem_load_2((const u16 *)base + at + e));
  }
}

// For tensors in float32 or without alignment.
FN float dot_of_columns(const glint_backward_params *p, const row_place *r, i32 column) {
  float o[8], d_o[8], sum = 0.f;
  load_columns(o, p->o, r->at_o + column, p->o_float, p->head_dim_v - column);
  load_columns(d_o, p->d_o, r->at_do + column, p->do_float, p->head_dim_v - column);
  UNROLL
  for (u32 e = 0; e < 8; e++) sum = fma_f32(o[e], d_o[e], sum);
  return sum;
}

FN void clear_dbias(const glint_backward_params *p) {
  const int64_t *shape = p->dbias_shape, *stride = p->dbias_stride;
  const i64 count = shape[0] * shape[1] * shape[2] * shape[3];
  for (i64 n = (i64)block_id_x() * THREADS + tid(); n < count; n += (i64)grid_size_x() * THREADS) {
    i64 key = n % shape[3], row = n / shape[3] % shape[2], head = n / shape[3] / shape[2] % shape[1],
        batch = n / shape[3] / shape[2] / shape[1];
    gmem_store_f32(p->dbias + batch * stride[0] + head * stride[1] + row * stride[2] + key * stride[3], 0.f);
  }
}

FN void clear_accumulators(const glint_backward_params *p) {
  const u32 zero[4] = {0, 0, 0, 0};
  unsigned char *base = (unsigned char *)p->dq_accum;
  i64 step = (i64)grid_size_x() * THREADS * 16;
  for (i64 at = ((i64)block_id_x() * THREADS + tid()) * 16; at < p->clear_bytes; at += step) gmem_store_16(base + at, zero);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) {
  u32 o[STEPS][4], d_o[STEPS][4], lane = tid() % LANES;
  row_place r[STEPS];
  const row_place block = first_place(&p, (i64)block_id_x() * (ROWS_A_STEP * STEPS));
  UNROLL
  for (u32 i = 0; i < STEPS; i++) {
    r[i] = place_of(&p, &block, i * ROWS_A_STEP + tid() / LANES);
    UNROLL
    for (u32 j = 0; j < 4; j++) o[i][j] = d_o[i][j] = 0;
    if (!(FEATURES & FEATURE_UNALIGNED) && r[i].exists && (i32)lane * 8 < p.head_dim_v) {
      gmem_load_16_stream(o[i], (const u16 *)p.o + r[i].at_o + lane * 8);
      gmem_load_16_stream(d_o[i], (const u16 *)p.d_o + r[i].at_do + lane * 8);
    }
  }
  clear_accumulators(&p);
  if ((FEATURES & FEATURE_BIAS) && p.dbias && !p.accumulate) clear_dbias(&p);
  UNROLL
  for (u32 i = 0; i < STEPS; i++) {
    float sum = dot_of_pairs(o[i], d_o[i]);
    if ((FEATURES & FEATURE_UNALIGNED) && r[i].exists) {
      UNROLL
      for (i32 c = 0; c < HEAD_DIM; c += LANES * 8) sum += dot_of_columns(&p, &r[i], c + (i32)lane * 8);
    }
    UNROLL
    for (u32 k = 1; k < LANES; k *= 2) sum += shfl_xor_f32(sum, k);
    if (lane == 0 && r[i].batch < p.batch) store_row(&p, &r[i], sum);
  }
}
