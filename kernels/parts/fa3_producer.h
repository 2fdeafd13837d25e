// The producer: threads of four warps. The first fetches tiles, announces them, and loads K; the others load V and Q and store O by TMA. Each
// waits only for the buffers that it fills or empties itself.
#ifndef GLINT_PARTS_FA3_PRODUCER_H
#define GLINT_PARTS_FA3_PRODUCER_H

FN void load_rows(u32 dst, const tensor_map *map, u32 barrier, u32 boxes, u32 rows, i32 head, i32 row, i32 batch) {
  NO_UNROLL
  for (u32 c = 0; c < boxes; c++) tma_load_4d(dst + c * rows * ROW_BYTES, map, barrier, (i32)(c * 64), head, row, batch);
}

// n counts blocks of keys over all tiles
FN void load_k(const glint_forward_params *p, u32 smem, u32 n, i32 head, i32 row, i32 batch) {
  u32 s = ring_index(n, STAGES);
  mbarrier_wait(k_empty(smem, s), ring_parity(n, STAGES) ^ 1);
  mbarrier_arrive_expect_tx(k_full(smem, s), K_BYTES);
  load_rows(k_tile(smem, s), &p->map_k, k_full(smem, s), BOXES_QK, TILE_K, head, row, batch);
}

// The block's first tile is its index, later ones come from a counter, whose answer takes a microsecond: it is asked for before the tile's
// last K, early enough, and late enough that no block takes a tile which another could begin sooner. The last of num_tiles additions
// sets the counter back.
FN void produce_tiles(const glint_forward_params *p, u32 smem) {
  i32 i = (i32)block_id_x();
  u32 tiles = 0, n = 0, q_parity = 0;
  fa3_trace trace = trace_open(p, CONSUMERS);
  NO_UNROLL
  while (i < p->num_tiles) {
    fa3_tile t = tile_at(p, i);
    t.q_parity = q_parity;
    if (t.block_end > t.block_begin) q_parity ^= 1;
    stamp(&trace, TRACE_TILE);
    tile_announce(smem, tiles++, &t);
    i32 b = t.block_end - 1, head = t.head / p->group;
    NO_UNROLL
    for (; b > t.block_begin; b--) load_k(p, smem, n++, head, b * TILE_K, t.batch);
    i32 ticket = atomic_add_i32(p->tile_counter, 1);
    if (b == t.block_begin) load_k(p, smem, n++, head, b * TILE_K, t.batch);
    stamp(&trace, TRACE_LOAD_K);
    if (ticket == p->num_tiles - 1) atomic_exch_u32((u32 *)p->tile_counter, 0);
    i = ticket + (i32)grid_size_x();
  }
  fa3_tile end = {0, 0, 0, 0, -1, 0, 0, 0, 0, 0};
  tile_announce(smem, tiles, &end);
}

FN void produce_v(const glint_forward_params *p, u32 smem) {
  u32 n = 0;
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 0);
    if (t.block_end < 0) return;
    i32 head = t.head / p->group;
    NO_UNROLL
    for (i32 b = t.block_end - 1; b >= t.block_begin; b--, n++) {
      u32 s = ring_index(n, STAGES);
      mbarrier_wait(v_empty(smem, s), ring_parity(n, STAGES) ^ 1);
      mbarrier_arrive_expect_tx(v_full(smem, s), V_BYTES);
      load_rows(v_tile(smem, s), &p->map_v, v_full(smem, s), BOXES_V, TILE_K, head, b * TILE_K, t.batch);
    }
  }
}

FN void produce_q(const glint_forward_params *p, u32 smem) {
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 0);
    if (t.block_end < 0) return;
    if (t.block_end == t.block_begin) continue;
    mbarrier_wait(q_empty(smem), t.q_parity ^ 1);
    mbarrier_arrive_expect_tx(q_full(smem), Q_BYTES);
    NO_UNROLL
    for (u32 c = 0; c < CONSUMERS; c++)
      load_rows(q_tile(smem, c), &p->map_q, q_full(smem), BOXES_QK, 64, t.head, t.m * TILE_Q + (i32)c * 64, t.batch);
  }
}

// A consumer fills its stage only where it has results: it says so by arriving at o_full, for every tile.
FN void store_o(const glint_forward_params *p, u32 smem) {
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 0);
    if (t.block_end < 0) break;
    NO_UNROLL
    for (u32 c = 0; c < CONSUMERS; c++) {
      mbarrier_wait(o_full(smem, c), tiles & 1);
      NO_UNROLL
      for (u32 i = 0; i < BOXES_V; i++)
        tma_store_4d(&p->map_o, o_tile(smem, c) + i * 64 * ROW_BYTES, (i32)(i * 64), t.head, t.m * TILE_Q + (i32)c * 64, t.batch);
      tma_store_commit();
    }
    tma_store_wait_read(0);
    NO_UNROLL
    for (u32 c = 0; c < CONSUMERS; c++) mbarrier_arrive(o_empty(smem, c));
  }
  tma_store_wait(0);
}

FN void produce(const glint_forward_params *p, u32 smem, u32 role) {
  if (role == ROLE_K) produce_tiles(p, smem);
  if (role == ROLE_V) produce_v(p, smem);
  if (role == ROLE_Q) produce_q(p, smem);
  if (role == ROLE_O && O_STAGED) store_o(p, smem);
}

#endif
