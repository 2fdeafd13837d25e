// The end of a tile: o / sum goes to the tensor, and lse = ln(sum of exp(s)) to its place.
#ifndef GLINT_PARTS_FA3_EPILOGUE_H
#define GLINT_PARTS_FA3_EPILOGUE_H

// Sums of whole rows; on return sum[] holds the factor for o.
FN void finish_rows(const glint_forward_params *p, fa3_rows *r, const fa3_tile *t, i32 row) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float sum = r->sum[i];
    sum += shfl_xor_f32(sum, 1);
    sum += shfl_xor_f32(sum, 2);
    int empty = r->limit[i] == -INFINITY && sum == 0.f; // a NaN sum is not empty
    r->sum[i] = empty ? 0.f : rcp_approx(sum);
    i32 this_row = row + 8 * i;
    if (p->lse && tid() % 4 == 0 && this_row < t->seqlen_q)
      gmem_store_f32(p->lse + t->batch * p->lse_batch_stride + t->head * p->lse_head_stride + t->row_q + this_row,
                     empty ? -INFINITY : (r->shift[i] + log2_approx(sum)) * LN2);
  }
}

FN u16 *o_row(const glint_forward_params *p, const fa3_tile *t, i32 row) {
  return (u16 *)p->o + t->batch * p->o_stride.batch + (t->row_q + row) * p->o_stride.row + t->head * p->o_stride.head;
}

// Rows that see no key: lse = -inf
FN void store_empty_lse(const glint_forward_params *p, u32 consumer, const fa3_tile *t) {
  i32 row = t->m * TILE_Q + (i32)consumer * 64 + (i32)(tid() % 128);
  if (p->lse && tid() % 128 < 64 && row < t->seqlen_q)
    gmem_store_f32(p->lse + t->batch * p->lse_batch_stride + t->head * p->lse_head_stride + t->row_q + row, -INFINITY);
}

// o into the warpgroup's stage, 64 rows x BOXES_V boxes. Conflict-free: 8 rows take 8 different chunks. Chunk 2j + m of row r lies at
// (2j + m) ^ (r % 8), which is (m ^ r % 8) ^ 2j.
FN void stage_o(u32 stage, const float *o) {
  u32 lane = tid() % 32, matrix = lane / 8, row = tid() % 128 / 32 * 16 + (matrix & 1) * 8 + lane % 8;
  u32 first = stage + row * ROW_BYTES + ((matrix >> 1 ^ (row & 7)) << 4);
  UNROLL
  for (u32 j = 0; j < BOXES_V * 4; j++) {
    u32 packed[4] = {0, 0, 0, 0}; // 0: columns beyond HEAD_DIM_V, which TMA reads but does not write
    UNROLL
    for (u32 i = 0; i < 4; i++)
      if (j * 16 < HEAD_DIM_V) packed[i] = pack_16(o[8 * j + 2 * i], o[8 * j + 2 * i + 1]);
    stmatrix_x4((first ^ j % 4 << 5) + j / 4 * 64 * ROW_BYTES, packed);
  }
}

// n counts tiles: the producer's storing thread empties the stage after each. Warps need not wait for each other.
FN void store_staged(u32 smem, u32 consumer, u32 n, const float *o) {
  mbarrier_wait(o_empty(smem, consumer), (n & 1) ^ 1);
  stage_o(o_tile(smem, consumer), o);
  fence_proxy_async();
  warp_sync();
  if (tid() % 32 == 0) mbarrier_arrive(o_full(smem, consumer));
}

// The thread with bit set keeps its second word and gives the first, the other the reverse: a 2 x 2 transposition between two threads
FN void exchange(u32 *a, u32 *b, u32 mask) {
  int upper = (tid() & mask) != 0;
  u32 got = shfl_xor_u32(upper ? *a : *b, mask);
  if (upper)
    *a = got;
  else
    *b = got;
}

// Straight from registers: a quad holds 4 bytes of each 16 of a row; it transposes four chunks, so that each thread has one whole.
FN void store_direct(const glint_forward_params *p, const float *o, const fa3_tile *t, i32 row) {
  i32 column = (i32)(tid() % 4) * 8;
  UNROLL
  for (int i = 0; i < 2; i++) {
    u16 *to = o_row(p, t, row + 8 * i) + column;
    UNROLL
    for (int j = 0; j < HEAD_DIM_V / 32; j++) {
      u32 w[4];
      UNROLL
      for (int k = 0; k < 4; k++) w[k] = pack_16(o[16 * j + 4 * k + 2 * i], o[16 * j + 4 * k + 2 * i + 1]);
      exchange(&w[0], &w[1], 1);
      exchange(&w[2], &w[3], 1);
      exchange(&w[0], &w[2], 2);
      exchange(&w[1], &w[3], 2);
      if (row + 8 * i < t->seqlen_q && 32 * j + column < p->head_dim_v) gmem_store_16(to + 32 * j, w);
    }
  }
}

#endif
