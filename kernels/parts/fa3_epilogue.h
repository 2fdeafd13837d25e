// The end of a tile: o / sum goes to the tensor, and lse = ln(sum of exp(s)) to its place.
#ifndef GLINT_PARTS_FA3_EPILOGUE_H
#define GLINT_PARTS_FA3_EPILOGUE_H

// Takes the sink, a logit without a value, into a row's sum; returns the factor for o, and the row's lse in log2 units.
FN float finish_row(const glint_forward_params *p, float shift, float sum, int empty, i32 head, float *lse) {
  if (SINKS && p->sinks && !(SPLIT && p->num_splits > 1)) {
    float sink = gmem_load_f32_nc(p->sinks + head) * LOG2E, top = empty ? sink : max_f32(shift, sink);
    float kept = empty ? 0.f : exp2_approx(shift - top), total = sum * kept + (sink == top ? 1.f : exp2_approx(sink - top));
    *lse = top + log2_approx(total);
    return empty ? 0.f : kept * rcp_approx(total);
  }
  *lse = empty ? -INFINITY : shift + log2_approx(sum);
  return empty ? 0.f : rcp_approx(sum);
}

// Index of a row in partial results [split][batch][heads_q][row]
FN i64 partial_row(const glint_forward_params *p, const fa3_tile *t, const fa3_limits *l, int i) {
  return (((i64)t->split * p->batch + t->batch) * p->heads_q + l->head[i]) * p->seqlen_q + l->row[i];
}

FN void store_lse(const glint_forward_params *p, const fa3_tile *t, const fa3_limits *l, int i, float lse) {
  if (tid() % 4 || l->row[i] >= t->rows) return;
  if (SPLIT && p->num_splits > 1)
    gmem_store_f32(p->lse_partial + partial_row(p, t, l, i), lse);
  else if (p->lse)
    gmem_store_f32(p->lse + t->batch * p->lse_batch_stride + l->head[i] * p->lse_head_stride + t->row_q + l->row[i], lse * LN2);
}

// Sums of whole rows; on return sum[] holds the factor for o.
FN void finish_rows(const glint_forward_params *p, fa3_rows *r, const fa3_tile *t, const fa3_limits *l) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float sum = r->sum[i], lse;
    sum += shfl_xor_f32(sum, 1);
    sum += shfl_xor_f32(sum, 2);
    int empty = r->room[i] < 0.f && sum == 0.f; // a NaN sum is not empty
    r->sum[i] = finish_row(p, r->shift[i], sum, empty, l->head[i], &lse);
    if (PACKED && l->row[i] >= t->seqlen_q) lse = -INFINITY;
    store_lse(p, t, l, i, lse);
  }
}

FN u16 *o_row(const glint_forward_params *p, const fa3_tile *t, i32 row) {
  return (u16 *)p->o + t->batch * p->o_stride.batch + (t->row_q + row) * p->o_stride.row + t->head * p->o_stride.head;
}

// o into the warpgroup's stage, 64 rows x BOXES_V boxes. Conflict-free: 8 rows take 8 different chunks. Chunk 2j + m of row r lies at
// (2j + m) ^ (r % 8), which is (m ^ r % 8) ^ 2j.
FN void stage_o(u32 stage, const float *o) {
  u32 thread = tid_in_register(); // read here, so that no register holds these addresses throughout the tile
  u32 lane = thread % 32, matrix = lane / 8, row = thread % 128 / 32 * 16 + (matrix & 1) * 8 + lane % 8;
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

// The stage to the tensor, by the warp that filled these 16 rows: a row's 128 bytes by eight lanes. For packed lengths, where a box of TMA
// would reach into the next sequence.
FN void copy_stage(const glint_forward_params *p, u32 stage, const fa3_tile *t, i32 row0) {
  u32 lane = tid() % 32, warp_row = tid() % 128 / 32 * 16, chunk = lane % 8;
  NO_UNROLL
  for (u32 box = 0; box < BOXES_V; box++) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
      u32 row = warp_row + 4 * i + lane / 8, w[4];
      smem_load_16(w, stage + box * 64 * ROW_BYTES + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
      i32 column = (i32)(box * 64 + chunk * 8), to = row0 + (i32)row;
      if (to < t->rows && column < p->head_dim_v) gmem_store_16(o_row(p, t, to) + column, w);
    }
  }
}

// One part's share of o, by each thread: 8 bytes at a time, 32 by four neighbours.
FN void store_partial(const glint_forward_params *p, const fa3_tile *t, const fa3_limits *l, const float *o) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    if (l->row[i] >= t->rows) continue;
    float *to = p->o_partial + partial_row(p, t, l, i) * p->head_dim_v;
    UNROLL
    for (int j = 0; j < HEAD_DIM_V / 8; j++) {
      i32 column = 8 * j + (i32)(tid() % 4 * 2);
      u32 pair[2] = {bits_from_f32(o[4 * j + 2 * i]), bits_from_f32(o[4 * j + 2 * i + 1])};
      if (column < p->head_dim_v) gmem_store_8(to + column, pair);
    }
  }
}

// n counts tiles. Warps need not wait for each other: each hands on its own rows.
FN void store_o(const glint_forward_params *p, u32 smem, u32 consumer, u32 n, const float *o, const fa3_tile *t, const fa3_limits *l) {
  if (SPLIT && p->num_splits > 1) {
    store_partial(p, t, l, o);
    return;
  }
  u32 stage = o_stage(smem, consumer);
  // the second of two that share fills it after the first in the same tile, everyone else after the tile before
  if (!COPY_O || O_SHARED) mbarrier_wait(o_empty(smem, consumer), O_SHARED && consumer == 1 ? n & 1 : (n & 1) ^ 1);
  stage_o(stage, o);
  if (COPY_O) {
    warp_sync();
    copy_stage(p, stage, t, t->m * TILE_Q + (i32)consumer * 64);
    warp_sync();
    if (O_SHARED && tid() % 32 == 0) mbarrier_arrive(o_empty(smem, o_next(consumer)));
  } else {
    fence_proxy_async();
    warp_sync();
    if (tid() % 32 == 0) mbarrier_arrive(o_full(smem, consumer));
  }
}

#endif
