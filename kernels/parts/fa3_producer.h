// The producer: threads of four warps. The first fetches tiles, announces them, and loads K; the others load V and Q and store O by TMA. Each
// waits only for the buffers that it fills or empties itself.
#ifndef GLINT_PARTS_FA3_PRODUCER_H
#define GLINT_PARTS_FA3_PRODUCER_H

FN void load_rows(u32 dst, const tensor_map *map, u32 barrier, u32 boxes, u32 rows, i32 head, i32 row, i32 batch) {
  NO_UNROLL
  for (u32 c = 0; c < boxes; c++) tma_load_4d(dst + c * rows * ROW_BYTES, map, barrier, (i32)(c * 64), head, row, batch);
}

// What the thread that fetches tiles counts
typedef struct fa3_fetcher {
  u32 tiles, blocks, q_parity;
  fa3_trace trace;
} fa3_fetcher;

// A block of K or V
FN void load_block(const glint_forward_params *p, u32 dst, const tensor_map *map, u32 barrier, u32 boxes, const fa3_tile *t, i32 block) {
  i32 head = key_value_head(p, t), first = block * TILE_K;
  if (!PAGED || !p->page_table) {
    load_rows(dst, map, barrier, boxes, TILE_K, head, t->row_k + first, batch_k(p, t));
    return;
  }
  // pages hold a divisor or a multiple of TILE_K keys; pieces behind the last key come from page -1, which TMA fills with 0
  i32 piece = min_i32(p->page_size, TILE_K);
  NO_UNROLL
  for (i32 row = 0; row < TILE_K; row += piece) {
    i32 page = -1, in_page = (first + row) / p->page_size;
    if (first + row < t->seqlen_k) page = (i32)gmem_load_4_nc(p->page_table + t->batch * p->page_table_stride + in_page);
    load_rows(dst + (u32)row * ROW_BYTES, map, barrier, boxes, TILE_K, head, first + row - in_page * p->page_size, page);
  }
}

// n counts blocks of keys over all tiles
FN void load_k(const glint_forward_params *p, u32 smem, u32 n, const fa3_tile *t, i32 block) {
  u32 s = ring_index(n, STAGES);
  mbarrier_wait(k_empty(smem, s), ring_parity(n, STAGES) ^ 1);
  mbarrier_arrive_expect_tx(k_full(smem, s), K_BYTES);
  load_block(p, k_tile(smem, s), &p->map_k, k_full(smem, s), BOXES_QK, t, block);
}

// Announces a tile, loads its K, and asks the counter for the next. The answer takes a microsecond: the question comes before the last K, early
// enough, and late enough that no block takes a tile which another could begin sooner.
FN i32 present_tile(const glint_forward_params *p, u32 smem, fa3_fetcher *f, fa3_tile *t) {
  i32 b = t->block_end - 1;
  t->q_parity = f->q_parity;
  if (b >= t->block_begin) f->q_parity ^= 1;
  stamp(&f->trace, TRACE_TILE);
  tile_announce(smem, f->tiles++, t);
  NO_UNROLL
  for (; b > t->block_begin; b--) load_k(p, smem, f->blocks++, t, b);
  i32 ticket = STATIC_TILES ? -1 : atomic_add_i32(p->tile_counter, 1);
  if (b == t->block_begin) load_k(p, smem, f->blocks++, t, b);
  stamp(&f->trace, TRACE_LOAD_K);
  return ticket;
}

// The block's first tile is its index, later ones come from a counter: ticket + blocks. Every block ends with one ticket too many, so that there
// are as many tickets as tiles; whoever has the last one sets the counter back. Packed lengths: by a whole warp.
FN void produce_tiles(const glint_forward_params *p, u32 smem) {
  fa3_fetcher f = {0, 0, 0, trace_open(p, CONSUMERS)};
  fa3_scan scan = {0, 0};
  i32 ticket = -1, i = (i32)block_id_x(), packed = PACKED && !GROUPED && p->cu_seqlens_q;
  NO_UNROLL
  for (;;) {
    fa3_tile t = GROUPED ? grouped_tile_at(p, i) : packed ? packed_tile_at(p, &scan, i) : tile_at(p, i);
    if (t.block_end < 0) {
      if (tid() % 32 == 0) {
        if (ticket >= 0 && ticket == (packed ? scan.tiles : p->num_tiles) - 1) atomic_exch_u32((u32 *)p->tile_counter, 0);
        tile_announce(smem, f.tiles, &t);
      }
      return;
    }
    if (tid() % 32 == 0) ticket = present_tile(p, smem, &f, &t);
    if (PACKED) ticket = (i32)shfl_idx_u32((u32)ticket, 0);
    i = (STATIC_TILES ? i : ticket) + (i32)grid_size_x();
  }
}

FN void load_v(const glint_forward_params *p, u32 smem, u32 n, const fa3_tile *t, i32 block, u32 full) {
  u32 s = ring_index(n, STAGES);
  mbarrier_wait(v_empty(smem, s), ring_parity(n, STAGES) ^ 1);
  mbarrier_arrive_expect_tx(full, V_BYTES);
  load_block(p, v_tile(smem, s), &p->map_v, full, BOXES_V, t, block);
}

// Rows of V beyond the sequence belong to others and may hold anything: their probability 0 does not silence a NaN. By a whole warp.
FN void clear_tail(u32 smem, u32 n, const fa3_tile *t, i32 block) {
  const u32 zero[4] = {0, 0, 0, 0};
  u32 first = (u32)(t->seqlen_k - block * TILE_K), chunks = ROW_BYTES / 16;
  NO_UNROLL
  for (u32 box = 0; box < BOXES_V; box++) {
    NO_UNROLL
    for (u32 i = first * chunks + tid() % 32; i < TILE_K * chunks; i += 32)
      smem_store_16(v_tile(smem, ring_index(n, STAGES)) + box * TILE_K * ROW_BYTES + i * 16, zero);
  }
  fence_proxy_async();
  warp_sync();
  if (tid() % 32 == 0) mbarrier_arrive(v_full(smem, ring_index(n, STAGES)));
}

// One thread; a whole warp where lengths are packed.
FN void produce_v(const glint_forward_params *p, u32 smem) {
  u32 n = 0, tails = 0;
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, PACKED);
    if (t.block_end < 0) return;
    NO_UNROLL
    for (i32 b = t.block_end - 1; b >= t.block_begin; b--, n++) {
      int tail = PACKED && (b + 1) * TILE_K > t.seqlen_k;
      if (tid() % 32 == 0) load_v(p, smem, n, &t, b, tail ? v_landed(smem) : v_full(smem, ring_index(n, STAGES)));
      if (!tail) continue;
      mbarrier_wait(v_landed(smem), tails++ & 1);
      clear_tail(smem, n, &t, b);
    }
  }
}

FN void produce_q(const glint_forward_params *p, u32 smem) {
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 0);
    if (t.block_end < 0) return;
    if (t.block_end == t.block_begin) continue;
    NO_UNROLL
    for (u32 c = 0; c < CONSUMERS; c++) {
      mbarrier_wait(q_empty(smem, c), t.q_parity ^ 1);
      i32 positions = tile_positions(p), head = GROUPED ? t.head * p->group : t.head;
      mbarrier_arrive_expect_tx(q_full(smem, c), GROUPED ? (u32)(positions * p->group) * ROW_BYTES * BOXES_QK : WARPGROUP_Q_BYTES);
      load_rows(q_tile(smem, c), &p->map_q, q_full(smem, c), BOXES_QK, 64, head, t.row_q + t.m * positions + (i32)c * 64, batch_q(p, &t));
    }
  }
}

// Each consumer fills its stage for every tile.
FN void store_stages(const glint_forward_params *p, u32 smem) {
  NO_UNROLL
  for (u32 tiles = 0;; tiles++) {
    fa3_tile t = tile_await(p, smem, tiles, 0);
    if (t.block_end < 0) break;
    if (SPLIT && p->num_splits > 1) continue; // consumers write partial results themselves
    NO_UNROLL
    for (u32 c = 0; c < CONSUMERS; c++) {
      mbarrier_wait(o_full(smem, c), tiles & 1);
      NO_UNROLL
      for (u32 i = 0; i < BOXES_V; i++)
        tma_store_4d(&p->map_o, o_stage(smem, c) + i * 64 * ROW_BYTES, (i32)(i * 64), GROUPED ? t.head * p->group : t.head,
                     t.m * tile_positions(p) + (i32)c * 64, t.batch);
      tma_store_commit();
      tma_store_wait_read(0);
      mbarrier_arrive(o_empty(smem, o_next(c)));
    }
  }
  tma_store_wait(0);
}

// Called by all 32 lanes of each producer warp.
FN void produce(const glint_forward_params *p, u32 smem, u32 role) {
  int one = tid() % 32 == 0;
  if (role == ROLE_K && (one || PACKED)) produce_tiles(p, smem);
  if (role == ROLE_V && (one || PACKED)) produce_v(p, smem);
  if (role == ROLE_Q && one) produce_q(p, smem);
  if (role == ROLE_O && one && !COPY_O) store_stages(p, smem);
}

#endif
