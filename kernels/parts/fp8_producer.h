// The producer: one warp fetches tiles and loads Q and K; three load V and transpose it, since 8-bit products take K-major operands only.
#ifndef GLINT_PARTS_FP8_PRODUCER_H
#define GLINT_PARTS_FP8_PRODUCER_H

FN void load_rows(u32 dst, const tensor_map *map, u32 barrier, u32 boxes, u32 rows, i32 head, i32 row, i32 batch) {
  NO_UNROLL
  for (u32 c = 0; c < boxes; c++) tma_load_4d(dst + c * rows * ROW_BYTES, map, barrier, (i32)(c * 128), head, row, batch);
}

// Whether this lane speaks for its warp where the warp goes together, which it does to fill the table of factors.
FN int speaks(void) { return !BLOCK_SCALES || tid() % 32 == 0; }

FN float descale_k(const glint_forward_params *p, const fa3_tile *t, i32 key) {
  return gmem_load_f32_nc(p->descale_k + t->batch * p->descale_k_stride[0] + t->head / p->group * p->descale_k_stride[1] +
                          (p->descale_rows_k ? key / p->descale_rows_k : 0) * p->descale_k_stride[2]);
}
FN float descale_v(const glint_forward_params *p, const fa3_tile *t, i32 key) {
  return gmem_load_f32_nc(p->descale_v + t->batch * p->descale_v_stride[0] + t->head / p->group * p->descale_v_stride[1] +
                          (p->descale_rows_v ? key / p->descale_rows_v : 0) * p->descale_v_stride[2]);
}
FN float descale_q(const glint_forward_params *p, const fa3_tile *t, i32 row) {
  return gmem_load_f32_nc(p->descale_q + t->batch * p->descale_q_stride[0] + t->head / p->descale_q_group * p->descale_q_stride[1] +
                          (p->descale_rows_q ? row / p->descale_rows_q : 0) * p->descale_q_stride[2]);
}

// A group of keys has K's factor, of V's the logarithm and the reciprocal, and whether all groups have the same: what the softmax needs
// (fp8_softmax.h). Groups behind the
// last key get the last one's, since blocks of rows need not reach so far.
FN void fill_factors(const glint_forward_params *p, const fa3_tile *t, u32 table, i32 first_key) {
  u32 lane = tid() % 32;
  if (lane < GROUPS) {
    i32 key = min_i32(first_key + (i32)lane * GROUP_KEYS, t->seqlen_k - 1);
    float v = descale_v(p, t, key);
    i32 last = min_i32(first_key + TILE_K, t->seqlen_k) - 1;
    int uniform = (!p->descale_rows_k || first_key / p->descale_rows_k == last / p->descale_rows_k) &&
                  (!p->descale_rows_v || first_key / p->descale_rows_v == last / p->descale_rows_v);
    u32 entry[4] = {bits_from_f32(descale_k(p, t, key)), bits_from_f32(log2_approx(v)), bits_from_f32(rcp_approx(v)), (u32)uniform};
    smem_store_16(table + lane * 16, entry);
  }
  warp_sync();
}

// n counts blocks of keys over all tiles
FN void load_k(const glint_forward_params *p, u32 smem, u32 n, const fa3_tile *t, i32 block) {
  u32 s = ring_index(n, STAGES);
  mbarrier_wait(k_empty(smem, s), ring_parity(n, STAGES) ^ 1);
  if (BLOCK_SCALES) fill_factors(p, t, k_factors(smem, s), block * TILE_K);
  if (!speaks()) return;
  mbarrier_arrive_expect_tx(k_full(smem, s), K_BYTES);
  load_rows(k_tile(smem, s), &p->map_k, k_full(smem, s), BOXES_QK, TILE_K, t->head / p->group, t->row_k + block * TILE_K, batch_k(p, t));
}

FN void load_q(const glint_forward_params *p, u32 smem, const fa3_tile *t) {
  mbarrier_wait(q_empty(smem), t->q_parity ^ 1);
  if (!speaks()) return;
  mbarrier_arrive_expect_tx(q_full(smem), Q_BYTES);
  NO_UNROLL
  for (u32 c = 0; c < CONSUMERS; c++)
    load_rows(q_tile(smem, c), &p->map_q, q_full(smem), BOXES_QK, 64, t->head, t->row_q + t->m * TILE_Q + (i32)c * 64, batch_q(p, t));
}

// What the thread that fetches tiles counts
typedef struct fp8_fetcher {
  u32 tiles, blocks, q_parity;
} fp8_fetcher;

// Announces a tile, loads its Q and K, and asks the counter for the next, before the last K (see fa3_producer.h).
FN i32 present_tile(const glint_forward_params *p, u32 smem, fp8_fetcher *f, fa3_tile *t) {
  i32 b = t->block_end - 1, ticket = 0;
  t->q_parity = f->q_parity;
  if (b >= t->block_begin) f->q_parity ^= 1;
  if (speaks()) tile_announce(smem, f->tiles, t);
  f->tiles++;
  NO_UNROLL
  for (; b >= t->block_begin; b--) {
    if (b == t->block_begin && speaks()) ticket = atomic_add_i32(p->tile_counter, 1);
    load_k(p, smem, f->blocks++, t, b);
    if (b == t->block_end - 1) load_q(p, smem, t);
  }
  if (t->block_end == t->block_begin && speaks()) ticket = atomic_add_i32(p->tile_counter, 1);
  return ticket;
}

// By one thread; by a whole warp where lengths are packed or keys have factors.
FN void produce_tiles(const glint_forward_params *p, u32 smem) {
  fp8_fetcher f = {0, 0, 0};
  fa3_scan scan = {0, 0};
  i32 ticket = -1, i = (i32)block_id_x(), packed = PACKED && p->cu_seqlens_q;
  NO_UNROLL
  for (;;) {
    fa3_tile t = packed ? packed_tile_at(p, &scan, i) : tile_at(p, i);
    if (t.block_end < 0) {
      if (tid() % 32 == 0) {
        if (ticket >= 0 && ticket == (packed ? scan.tiles : p->num_tiles) - 1) atomic_exch_u32((u32 *)p->tile_counter, 0);
        tile_announce(smem, f.tiles, &t);
      }
      return;
    }
    if (BLOCK_SCALES || tid() % 32 == 0) ticket = present_tile(p, smem, &f, &t);
    if (PACKED || BLOCK_SCALES) ticket = (i32)shfl_idx_u32((u32)ticket, 0);
    i = ticket + (i32)grid_size_x();
  }
}

// ---- V ------------------------------------------------------------------------------------------------------------------------

FN void load_v(const glint_forward_params *p, u32 smem, u32 n, const fa3_tile *t, i32 block) {
  u32 s = ring_index(n, V_STAGES);
  mbarrier_arrive_expect_tx(raw_full(smem, s), V_BYTES);
  load_rows(raw_tile(smem, s), &p->map_v, raw_full(smem, s), BOXES_V, TILE_K, t->head / p->group, t->row_k + block * TILE_K, batch_k(p, t));
}

// Bytes of a lane's four keys 2c, 2c + 1, 8 + 2c, 9 + 2c of 16 that lie before `keys`: 0xff each. Rows of V behind a sequence belong to
// others and may hold anything; their probability 0 does not silence a NaN.
FN u32 used_bytes(i32 keys) {
  i32 key = (i32)(tid() % 4 * 2);
  return (key < keys ? 0xffu : 0) | (key + 1 < keys ? 0xff00u : 0) | (key + 8 < keys ? 0xff0000u : 0) | (key + 9 < keys ? 0xff000000u : 0);
}

// 32 keys x 16 columns: ldmatrix.trans leaves a lane with keys 2c and 2c + 1 of columns 2r and 2r + 1 in each register, byte permutes with
// four keys of one column, in the order in which P packs to the A operand (docs/layouts.md). Lanes 16 to 31 take the odd column first and
// the even one second, so that the eight rows of each matrix that stmatrix stores lie in eight different chunks.
typedef struct fp8_transposer {
  u32 from, to;      // offsets of the lane's row for ldmatrix, and for stmatrix of its chunk in the first 32 keys
  u32 first, second; // byte permutes
} fp8_transposer;

FN fp8_transposer transposer(void) {
  u32 lane = tid() % 32, matrix = lane / 8, pair = lane % 8, column = 2 * pair + ((matrix ^ pair >> 2) & 1), half = matrix >> 1;
  fp8_transposer x = {lane * ROW_BYTES, column * 128 + ((half ^ (column & 7)) << 4), 0x6420, 0x7531};
  if (lane >= 16) x.first = 0x7531, x.second = 0x6420;
  return x;
}

// Keys 32 g .. of 16 columns, for TRANSPOSE_BATCH neighbouring g: loads first, so that their latencies overlap
FN void transpose_batch(const fp8_transposer *x, u32 from, u32 to, u32 g, i32 keys) {
  u32 r[TRANSPOSE_BATCH][4];
  UNROLL
  for (u32 i = 0; i < TRANSPOSE_BATCH; i++) ldmatrix_x4_trans(r[i], from + (g + i) * 32 * ROW_BYTES);
  UNROLL
  for (u32 i = 0; i < TRANSPOSE_BATCH; i++) {
    u32 w[4] = {byte_perm(r[i][0], r[i][1], x->first), byte_perm(r[i][0], r[i][1], x->second), byte_perm(r[i][2], r[i][3], x->first),
                byte_perm(r[i][2], r[i][3], x->second)};
    if (PACKED) {
      u32 low = used_bytes(keys - (i32)(g + i) * 32), high = used_bytes(keys - (i32)(g + i) * 32 - 16);
      w[0] &= low, w[1] &= low, w[2] &= high, w[3] &= high;
    }
    stmatrix_x4(to + (g + i) / 4 * VT_BOX_BYTES + (x->to ^ ((g + i) & 3) << 5), w);
  }
}

// Each warp takes every third strip of 16 columns of a block; keys are those of the block that exist.
FN void transpose_block(const fp8_transposer *x, u32 from, u32 to, u32 warp, i32 keys) {
  NO_UNROLL
  for (u32 c = warp; c < HEAD_DIM_V / 16; c += TRANSPOSERS) {
    u32 column = from + c / 8 * TILE_K * ROW_BYTES + x->from + (((c & 7) ^ (tid() & 7)) << 4);
    UNROLL
    for (u32 g = 0; g < TILE_K / 32; g += TRANSPOSE_BATCH) transpose_batch(x, column, to + c * 16 * 128, g, keys);
  }
}

// The ones that P is multiplied by
FN void fill_ones(u32 smem, u32 warp) {
  const u32 ones[4] = {0x38383838, 0x38383838, 0x38383838, 0x38383838};
  if (!ONES || warp) return;
  for (u32 i = 0; i < 2; i++) smem_store_16(ones_tile(smem) + (tid() % 32 + 32 * i) * 16, ones);
}

FN void produce_v(const glint_forward_params *p, u32 smem, u32 warp) {
  fp8_transposer x = transposer();
  u32 n = 0;
  fill_ones(smem, warp);
  int loads = warp == 0 && tid() % 32 == 0;
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 1);
    if (t.block_end < 0) return;
    NO_UNROLL
    for (i32 i = 0; i < V_STAGES; i++)
      if (loads && t.block_end - 1 - i >= t.block_begin) load_v(p, smem, n + (u32)i, &t, t.block_end - 1 - i);
    NO_UNROLL
    for (i32 b = t.block_end - 1; b >= t.block_begin; b--, n++) {
      u32 s = ring_index(n, STAGES), raw = ring_index(n, V_STAGES);
      mbarrier_wait(v_empty(smem, s), ring_parity(n, STAGES) ^ 1);
      mbarrier_wait(raw_full(smem, raw), ring_parity(n, V_STAGES));
      transpose_block(&x, raw_tile(smem, raw), v_tile(smem, s), warp, t.seqlen_k - b * TILE_K);
      fence_proxy_async();
      bar_sync(BARRIER_TRANSPOSE, TRANSPOSERS * 32); // all have read the raw tile
      if (tid() % 32 == 0) mbarrier_arrive(v_full(smem, s));
      if (loads && b - V_STAGES >= t.block_begin) load_v(p, smem, n + V_STAGES, &t, b - V_STAGES);
    }
  }
}

// Called by all 32 lanes of each producer warp.
FN void produce(const glint_forward_params *p, u32 smem, u32 warp) {
  if (warp == 0 && (tid() % 32 == 0 || PACKED || BLOCK_SCALES)) produce_tiles(p, smem);
  if (warp > 0) produce_v(p, smem, warp - 1);
}

#endif
