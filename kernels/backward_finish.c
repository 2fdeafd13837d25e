// After backward_fa2.c: dq = scale * (what its blocks have added up), rounded and put into rows; and the gradient of the sinks,
// dsink_h = sum over rows of P_sink (d_lse - delta), P_sink = exp(sink - lse), from what the preparing kernel has left.
//
// A warp converts pieces of 16 rows x 64 columns (parts/backward_accumulators.h). The last heads_q blocks of the grid are for the sinks, one a
// head, which adds up in a fixed order.
#include "backward_params.h"
#include "isa/common.h"

#if DTYPE != DTYPE_FP16
#define PACK      pack_bf16
#define UNPACK_LO unpack_bf16_lo
#define UNPACK_HI unpack_bf16_hi
#else
#define PACK      pack_f16
#define UNPACK_LO unpack_f16_lo
#define UNPACK_HI unpack_f16_hi
#endif
#define M_TILES 1
#define N_TILES 4
#include "parts/backward_accumulators.h"
#include "parts/backward_output.h"
#include "parts/dropout.h" /* transpose_quad */

#define LOG2E 1.44269504f

FN i32 index_at(const i32 *array, i64 i) { return (i32)gmem_load_4_nc(array + i); }

// Half of a piece: 32 columns, of a row and the row 8 below. Chunks: the quad exchanges words, so that a lane stores 16 bytes.
FN void store_half(const output_rows *o, const float x[4][4], i32 row, i32 column, int chunks) {
  const i32 own = (i32)(tid() % 4);
  UNROLL
  for (i32 h = 0; h < 2; h++) {
    u32 words[4];
    UNROLL
    for (i32 n = 0; n < 4; n++) {
      if (!chunks) store_columns(o, row + 8 * h, column + 8 * n + 2 * own, x[n][2 * h], x[n][2 * h + 1]);
      words[n] = PACK(x[n][2 * h], x[n][2 * h + 1]);
    }
    if (!chunks) continue;
    transpose_quad(words);
    if (row + 8 * h < o->rows && column + 8 * own < o->columns)
      gmem_store_16(o->row0 + (row + 8 * h) * o->row_bytes + (column + 8 * own) * 2, words);
  }
}

FN int rows_start_at_16(const glint_backward_params *p) {
  const i64 any = (i64)p->dq | ((p->dq_stride.batch | p->dq_stride.row | p->dq_stride.head | p->head_dim) * 2);
  return any % 16 == 0 && !p->dq_float && !p->accumulate;
}

FN void convert_piece(const glint_backward_params *p, i64 piece) {
  const i32 boxes = p->padded_dim / 64, tiles = p->rows_padded / 16;
  const i32 box = (i32)(piece % boxes), row = (i32)(piece / boxes % tiles) * 16, lane = (i32)(tid() % 32);
  const i64 head = piece / boxes / tiles;
  const i32 batch = (i32)(head / p->heads_q);
  i32 first = 0, len = p->seqlen_q;
  if (p->cu_seqlens_q) {
    first = index_at(p->cu_seqlens_q, batch);
    len = index_at(p->cu_seqlens_q, batch + 1) - first;
  }
  if (row >= len || box * 64 >= p->head_dim) return;
  const output_rows o = output_of(p->dq, &p->dq_stride, p->cu_seqlens_q ? 0 : batch, (i32)(head % p->heads_q), first, len, p->head_dim,
                                  p->dq_float, p->accumulate);
  const int chunks = rows_start_at_16(p);
  float x[2][4][4];
  UNROLL
  for (u32 n = 0; n < 8; n++) load_fragment(p, x[n / 4][n % 4], p->dq_accum + piece * PIECE_FLOATS + n * 128, (u32)lane);
  UNROLL
  for (i32 half = 0; half < 2; half++) {
    UNROLL
    for (i32 n = 0; n < 4; n++) UNROLL
    for (i32 i = 0; i < 4; i++) x[half][n][i] *= p->scale;
    store_half(&o, (const float(*)[4])x[half], row + lane / 4, box * 64 + half * 32, chunks);
  }
}

// lse_is_natural: as SCORE_FEATURES of backward_fa2.c has it.
FN void sink_gradient(const glint_backward_params *p, i32 head) {
  const float sink = gmem_load_f32_nc(p->sinks + head), unit = p->lse_is_natural ? LOG2E : 1.f;
  float sum = 0.f;
  NO_UNROLL
  for (i32 batch = 0; batch < p->batch; batch++) {
    const i64 at = ((i64)batch * p->heads_q + head) * p->rows_padded;
    NO_UNROLL
    for (i32 row = (i32)tid(); row < p->rows_padded; row += THREADS) { // rows that do not exist have lse +inf
      const float lse = gmem_load_f32(p->lse2 + at + row);
      const float probability = lse == INFINITY ? 0.f : exp2_approx(fma_f32(sink, LOG2E, -lse * unit));
      if (probability != 0.f) sum = fma_f32(-probability, gmem_load_f32(p->delta + at + row), sum);
    }
  }
  const u32 smem = smem_base();
  UNROLL
  for (u32 k = 16; k; k /= 2) sum += shfl_xor_f32(sum, k);
  if (tid() % 32 == 0) smem_store_f32(smem + tid() / 32 * 4, sum);
  cta_sync();
  if (tid() != 0) return;
  sum = p->accumulate ? gmem_load_f32(p->dsinks + head) : 0.f;
  NO_UNROLL
  for (u32 warp = 0; warp < THREADS / 32; warp++) sum += smem_load_f32(smem + warp * 4);
  gmem_store_f32(p->dsinks + head, sum);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) {
  const i64 pieces = p.dq ? (i64)p.batch * p.heads_q * (p.rows_padded / 16) * (p.padded_dim / 64) : 0, a_block = THREADS / 32;
  const i64 blocks = (pieces + a_block - 1) / a_block, block = block_id_x();
  if (block >= blocks) {
    sink_gradient(&p, (i32)(block - blocks));
    return;
  }
  const i64 piece = block * a_block + tid() / 32;
  if (piece < pieces) convert_piece(&p, piece);
}
