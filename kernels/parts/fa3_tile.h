// Tiles of work: which rows of which head, and which blocks of keys they see.
#ifndef GLINT_PARTS_FA3_TILE_H
#define GLINT_PARTS_FA3_TILE_H

typedef struct fa3_tile {
  i32 m, head, batch;         // row block, query head (GROUPED: key/value head), sequence
  i32 split;                  // which part of the keys
  i32 block_begin, block_end; // blocks of TILE_K keys that some row of the tile sees; end < 0: no more tiles
  i32 seqlen_q, seqlen_k;     // rows and keys of the sequence that are used
  i32 rows;                   // rows that exist: those from seqlen_q on become empty
  i32 row_q, row_k;           // where it starts in the tensors' row axis (0 when not packed)
  u32 q_parity;               // phase of q_full in which its Q lands
} fa3_tile;

FN i32 min_i32(i32 a, i32 b) { return a < b ? a : b; }
FN i32 max_i32(i32 a, i32 b) { return a > b ? a : b; }

// Key blocks of rows first_row .. last_row of a sequence
FN void tile_blocks(const glint_forward_params *p, fa3_tile *t, i32 first_row, i32 last_row) {
  i32 begin = 0, end = t->seqlen_k;
  if (MASKED) {
    i32 offset = t->seqlen_k - t->seqlen_q;
    begin = max_i32(0, first_row + offset - p->window_left);
    end = min_i32(end, min_i32(last_row, t->seqlen_q - 1) + offset + p->window_right + 1);
  }
  t->block_begin = begin / TILE_K;
  t->block_end = end > begin ? (end + TILE_K - 1) / TILE_K : t->block_begin;
}

// Lengths and place of sequence t->batch
FN void tile_lengths(const glint_forward_params *p, fa3_tile *t) {
  i32 keys = p->seqlen_k;
  t->rows = p->seqlen_q;
  t->row_q = t->row_k = 0;
  if (PACKED && p->cu_seqlens_q) {
    t->row_q = (i32)gmem_load_4_nc(p->cu_seqlens_q + t->batch);
    t->rows = (i32)gmem_load_4_nc(p->cu_seqlens_q + t->batch + 1) - t->row_q;
  }
  if (PACKED && p->cu_seqlens_k) {
    t->row_k = (i32)gmem_load_4_nc(p->cu_seqlens_k + t->batch);
    keys = (i32)gmem_load_4_nc(p->cu_seqlens_k + t->batch + 1) - t->row_k;
  }
  t->seqlen_q = t->rows;
  t->seqlen_k = keys;
  if (PACKED && p->seqused_q) t->seqlen_q = min_i32(t->rows, (i32)gmem_load_4_nc(p->seqused_q + t->batch));
  if (PACKED && p->seqused_k) t->seqlen_k = min_i32(keys, (i32)gmem_load_4_nc(p->seqused_k + t->batch));
}

// Tile number i of equally many for each sequence. Heads go together in groups, as many as give every block work, so that the blocks of one
// head read its keys from L2 and device memory is read evenly; within a group the row blocks with most keys come first. The tail_tiles
// lightest row blocks of every head come last, heaviest first: however unevenly the groups have ended, they fill the gaps.
FN fa3_tile tile_at(const glint_forward_params *p, i32 i) {
  fa3_tile t = {0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0};
  if (i >= p->num_tiles) return t;
  i32 tall = p->q_tiles - p->tail_tiles, first = 0, size = p->heads_q * p->batch, rest = i - size * tall, above = tall;
  if (rest < 0) {
    i32 per_group = p->heads_together * tall, group = i / per_group;
    first = group * p->heads_together;
    size = min_i32(p->heads_together, size - first);
    rest = i - group * per_group;
    above = 0;
  }
  i32 down = rest / size, head = first + rest - down * size;
  t.m = p->q_tiles - 1 - above - down;
  t.batch = head / p->heads_q;
  t.head = head - t.batch * p->heads_q;
  tile_lengths(p, &t);
  tile_blocks(p, &t, t.m * TILE_Q, t.m * TILE_Q + TILE_Q - 1);
  return t;
}

// GROUPED: row r of a tile is head r % group of its group, at position r / group from the tile's first. Rows left over stand nowhere.
FN i32 tile_positions(const glint_forward_params *p) { return GROUPED ? TILE_Q / p->group : TILE_Q; }
FN i32 key_value_head(const glint_forward_params *p, const fa3_tile *t) { return GROUPED ? t->head : t->head / p->group; }

// Tile number i of a grouped variant: the parts of the keys of one tile lie next to each other.
FN fa3_tile grouped_tile_at(const glint_forward_params *p, i32 i) {
  fa3_tile t = {0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0};
  if (i >= p->num_tiles) return t;
  i32 rows = i / p->num_splits, pair = rows / p->q_tiles, first = rows - pair * p->q_tiles;
  t.split = i - rows * p->num_splits;
  t.m = p->q_tiles - 1 - first;
  t.batch = pair / p->heads_kv;
  t.head = pair - t.batch * p->heads_kv;
  tile_lengths(p, &t);
  first = t.m * tile_positions(p);
  tile_blocks(p, &t, first, first + tile_positions(p) - 1);
  i32 begin = t.block_begin, blocks = t.block_end - begin;
  t.block_begin = begin + (i32)((i64)blocks * t.split / p->num_splits);
  t.block_end = begin + (i32)((i64)blocks * (t.split + 1) / p->num_splits);
  return t;
}

// Where a block stands in a batch of packed sequences: it asks for tiles in rising order.
typedef struct fa3_scan {
  i32 batch, tiles; // the first sequence of 32, and the tiles of all sequences before it
} fa3_scan;

// Tile number i of packed sequences, found by the 32 lanes of a warp: 32 sequences at a time. No tile left: scan->tiles is their number.
FN fa3_tile packed_tile_at(const glint_forward_params *p, fa3_scan *scan, i32 i) {
  fa3_tile t = {0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0};
  NO_UNROLL
  for (; scan->batch < p->batch; scan->batch += 32) {
    u32 lane = tid() % 32;
    i32 b = scan->batch + (i32)lane, rows = 0;
    if (b < p->batch) rows = (i32)gmem_load_4_nc(p->cu_seqlens_q + b + 1) - (i32)gmem_load_4_nc(p->cu_seqlens_q + b);
    i32 tiles = (rows + TILE_Q - 1) / TILE_Q * p->heads_q, until = tiles;
    UNROLL
    for (u32 d = 1; d < 32; d *= 2) {
      i32 left = (i32)shfl_up_u32((u32)until, d);
      if (lane >= d) until += left;
    }
    u32 later = ballot_lanes(scan->tiles + until > i);
    if (later) {
      u32 which = count_ones((later & (0u - later)) - 1); // the lowest lane
      i32 first = scan->tiles + (i32)shfl_idx_u32((u32)(until - tiles), which), of_sequence = (i32)shfl_idx_u32((u32)tiles, which);
      i32 down = (i - first) / p->heads_q;
      t.batch = scan->batch + (i32)which;
      t.head = i - first - down * p->heads_q;
      t.m = of_sequence / p->heads_q - 1 - down;
      tile_lengths(p, &t);
      tile_blocks(p, &t, t.m * TILE_Q, t.m * TILE_Q + TILE_Q - 1);
      return t;
    }
    scan->tiles += (i32)shfl_idx_u32((u32)until, 31);
  }
  return t;
}

// The producer announces tiles to the consumers and its other threads through two slots in shared memory.
FN void tile_announce(u32 smem, u32 n, const fa3_tile *t) {
  u32 slot = ring_index(n, 2), a = tile_slot(smem, slot);
  mbarrier_wait(tile_empty(smem, slot), ring_parity(n, 2) ^ 1);
  smem_store_4(a, (u32)t->m);
  smem_store_4(a + 4, (u32)t->head);
  smem_store_4(a + 8, (u32)t->batch);
  smem_store_4(a + 12, (u32)t->block_begin);
  smem_store_4(a + 16, (u32)t->block_end);
  smem_store_4(a + 20, t->q_parity);
  if (PACKED) {
    smem_store_4(a + 24, (u32)t->seqlen_q);
    smem_store_4(a + 28, (u32)t->seqlen_k);
    smem_store_4(a + 32, (u32)t->rows);
    smem_store_4(a + 36, (u32)t->row_q);
    smem_store_4(a + 40, (u32)t->row_k);
  }
  if (SPLIT) smem_store_4(a + 44, (u32)t->split);
  mbarrier_arrive(tile_full(smem, slot));
}

// Tile n. Its slot stays until each thread or warp that reads tiles has given it back for itself: nothing keeps a warpgroup's four together
// here.
FN fa3_tile tile_read(const glint_forward_params *p, u32 smem, u32 n) {
  u32 slot = ring_index(n, 2), a = tile_slot(smem, slot);
  fa3_tile t;
  mbarrier_wait(tile_full(smem, slot), ring_parity(n, 2));
  t.m = (i32)smem_load_4(a);
  t.head = (i32)smem_load_4(a + 4);
  t.batch = (i32)smem_load_4(a + 8);
  t.block_begin = (i32)smem_load_4(a + 12);
  t.block_end = (i32)smem_load_4(a + 16);
  t.q_parity = smem_load_4(a + 20);
  t.seqlen_q = t.rows = p->seqlen_q;
  t.seqlen_k = p->seqlen_k;
  t.row_q = t.row_k = 0;
  t.split = SPLIT ? (i32)smem_load_4(a + 44) : 0;
  if (PACKED && t.block_end >= 0) {
    t.seqlen_q = (i32)smem_load_4(a + 24);
    t.seqlen_k = (i32)smem_load_4(a + 28);
    t.rows = (i32)smem_load_4(a + 32);
    t.row_q = (i32)smem_load_4(a + 36);
    t.row_k = (i32)smem_load_4(a + 40);
  }
  return t;
}
FN void tile_release(u32 smem, u32 n, int whole_warp) {
  if (whole_warp) warp_sync();
  if (!whole_warp || tid() % 32 == 0) mbarrier_arrive(tile_empty(smem, ring_index(n, 2)));
}

// Both at once, for one thread (whole_warp 0) or a warp
FN fa3_tile tile_await(const glint_forward_params *p, u32 smem, u32 n, int whole_warp) {
  fa3_tile t = tile_read(p, smem, n);
  tile_release(smem, n, whole_warp);
  return t;
}

// The tensors' batch axis has length 1 when sequences are packed along the rows.
FN i32 batch_q(const glint_forward_params *p, const fa3_tile *t) { return PACKED && p->cu_seqlens_q ? 0 : t->batch; }
FN i32 batch_k(const glint_forward_params *p, const fa3_tile *t) { return PACKED && p->cu_seqlens_k ? 0 : t->batch; }

#endif
