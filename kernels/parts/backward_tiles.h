// The geometry of the backward pass: which tile comes next, where it lies, which row blocks it meets and what of them it sees.
#ifndef GLINT_BACKWARD_TILES_H
#define GLINT_BACKWARD_TILES_H

// pair: batch * heads_kv + key/value head, -1 at the end
typedef struct tile_id {
  i32 pair, key_block;
} tile_id;

typedef struct tile {
  i32 batch, head_kv;
  i32 batch_q, batch_k;       // indices on the batch axis; 0 where packed
  i32 row_q, row_k;           // first row of the sequence in its tensor
  i32 len_q, len_k;           // rows that exist: gradients are written for all of them
  i32 used_q, used_k;         // rows that take part
  i32 key0;                   // first key of the tile, in the sequence
  i32 shift;                  // used_k - used_q: row i stands at key i + shift
  i32 block_first, block_end; // row blocks that see any of the keys
  i32 clear_tails;            // rows beyond `used` lie in memory and may hold anything
  i32 store_by_tma;           // dK and dV of the whole tile can leave by TMA
} tile;

FN i32 smaller(i32 a, i32 b) { return a < b ? a : b; }
FN i32 larger(i32 a, i32 b) { return a > b ? a : b; }

// Order of key blocks. With a causal mask the first are the heaviest and go first. Where parts must be added in the order of tickets
// (deterministic), the last go first: then each block starts on rows that none before it adds to, and no one has to wait for long.
FN int last_keys_first(const glint_backward_params *p) { return p->deterministic && p->window_right != GLINT_UNBOUNDED; }

// Tiles come in groups of heads whose q, dO and accumulators stay in L2.
FN tile_id tile_of_ticket(const glint_backward_params *p, i32 ticket) {
  i32 pairs = p->batch * p->heads_kv, first = ticket / (p->heads_together * p->k_blocks) * p->heads_together;
  tile_id id = {-1, 0};
  if (first >= pairs) return id;
  i32 size = smaller(pairs - first, p->heads_together), i = ticket - first * p->k_blocks;
  if (i >= size * p->k_blocks) return id;
  id.pair = first + i % size;
  id.key_block = last_keys_first(p) ? p->k_blocks - 1 - i / size : i / size;
  return id;
}

FN tile locate_tile(const glint_backward_params *p, tile_id id) {
  tile t;
  i32 batch = id.pair / p->heads_kv;
  t.head_kv = id.pair % p->heads_kv;
  t.batch = t.batch_q = t.batch_k = batch;
  t.row_q = t.row_k = 0;
  t.len_q = p->seqlen_q;
  t.len_k = p->seqlen_k;
  if (p->cu_seqlens_q) {
    t.row_q = (i32)gmem_load_4_nc(p->cu_seqlens_q + batch);
    t.len_q = (i32)gmem_load_4_nc(p->cu_seqlens_q + batch + 1) - t.row_q;
    t.batch_q = 0;
  }
  if (p->cu_seqlens_k) {
    t.row_k = (i32)gmem_load_4_nc(p->cu_seqlens_k + batch);
    t.len_k = (i32)gmem_load_4_nc(p->cu_seqlens_k + batch + 1) - t.row_k;
    t.batch_k = 0;
  }
  t.used_q = p->seqused_q ? smaller((i32)gmem_load_4_nc(p->seqused_q + batch), t.len_q) : t.len_q;
  t.used_k = p->seqused_k ? smaller((i32)gmem_load_4_nc(p->seqused_k + batch), t.len_k) : t.len_k;
  t.shift = t.used_k - t.used_q;
  t.key0 = id.key_block * TILE_K;
  t.clear_tails = p->cu_seqlens_q || p->cu_seqlens_k || p->seqused_q || p->seqused_k;
  t.store_by_tma = !p->gradient_float && !p->accumulate && !(p->cu_seqlens_k && t.key0 + TILE_K > t.len_k);
  i32 key_last = smaller(t.key0 + TILE_K, t.used_k) - 1;
  i32 row_first = larger(0, t.key0 - t.shift - p->window_right), row_last = smaller(t.used_q - 1, key_last - t.shift + p->window_left);
  t.block_first = t.block_end = 0;
  if (key_last >= t.key0 && row_first <= row_last) {
    t.block_first = row_first / TILE_Q;
    t.block_end = row_last / TILE_Q + 1;
  }
  return t;
}

// How many key blocks add to dq of the row blocks from m to m_end - 1.
FN i32 key_blocks_of(const glint_backward_params *p, const tile *t, i32 m, i32 m_end) {
  i32 row_first = m * TILE_Q, row_last = smaller(m_end * TILE_Q, t->used_q) - 1;
  i32 key_first = larger(0, row_first + t->shift - p->window_left),
      key_last = smaller(t->used_k - 1, row_last + t->shift + p->window_right);
  if (row_last < row_first || key_last < key_first) return 0;
  return key_last / TILE_K - key_first / TILE_K + 1;
}

// What the main loop asks of a tile at every row block: few enough numbers to stay in registers.
typedef struct tile_blocks {
  i32 first, end;                 // row blocks that see any key
  i32 visible_first, visible_end; // those whose rows all see all keys: no mask
  i32 tail_first;                 // from here on a block holds rows that must be cleared
} tile_blocks;

FN i32 floor_div(i32 a, i32 b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

FN tile_blocks blocks_of(const glint_backward_params *p, const tile *t) {
  tile_blocks b = {t->block_first, t->block_end, t->block_end, t->block_end, t->clear_tails ? t->used_q / TILE_Q : t->block_end};
  if (t->key0 + TILE_K > t->used_k) return b;
  i32 place = t->key0 - t->shift; // the row that stands at the tile's first key
  b.visible_first = -floor_div(p->window_right - place - (TILE_K - 1), TILE_Q);
  b.visible_end = floor_div(place + p->window_left - (TILE_Q - 1), TILE_Q) + 1;
  return b;
}

// The rows that see `key`, counted from row0: first to last.
FN void visible_rows(const glint_backward_params *p, const tile *t, i32 key, i32 row0, i32 *first, i32 *last) {
  *first = key < t->used_k ? key - t->shift - p->window_right - row0 : TILE_Q;
  *last = key - t->shift + p->window_left - row0;
}

// Deterministic order: how many key blocks with earlier tickets add to row block m. Chunks are single row blocks then.
FN u32 parts_before(const glint_backward_params *p, const tile *t, i32 m) {
  i32 row_last = smaller((m + 1) * TILE_Q, t->used_q) - 1, own = t->key0 / TILE_K;
  i32 key_first = larger(0, m * TILE_Q + t->shift - p->window_left),
      key_last = smaller(t->used_k - 1, row_last + t->shift + p->window_right);
  return (u32)(last_keys_first(p) ? key_last / TILE_K - own : own - key_first / TILE_K);
}

FN void wait_for_turn(const glint_backward_params *p, const tile *t, const u32 *parts, i32 m) {
  u32 before = parts_before(p, t, m);
  while (gmem_load_acquire_u32(parts) != before) nanosleep(32);
}

// The rows of one head of one sequence in dq, dk or dv.
typedef struct gradient_rows {
  unsigned char *base;
  i64 stride; // bytes
} gradient_rows;

FN gradient_rows rows_of(const glint_backward_params *p, void *out, const glint_stride *stride, i32 batch, i32 row0, i32 head) {
  i64 bytes = p->gradient_float ? 4 : 2;
  gradient_rows r = {(unsigned char *)out + (batch * stride->batch + row0 * stride->row + head * stride->head) * bytes,
                     stride->row * bytes};
  return r;
}

// Two neighbouring columns of a row.
FN void store_pair(const glint_backward_params *p, const gradient_rows *r, i32 row, i32 column, float x0, float x1) {
  unsigned char *d = r->base + row * r->stride + column * (p->gradient_float ? 4 : 2);
  if (p->gradient_float) {
    u32 bits[2] = {0, 0};
    if (p->accumulate) gmem_load_8(bits, d);
    bits[0] = bits_from_f32(x0 + f32_from_bits(bits[0]));
    bits[1] = bits_from_f32(x1 + f32_from_bits(bits[1]));
    gmem_store_8(d, bits);
  } else {
    if (p->accumulate) {
      u32 old = gmem_load_4(d);
      x0 += UNPACK_LO(old);
      x1 += UNPACK_HI(old);
    }
    gmem_store_4(d, PACK(x0, x1));
  }
}

// Where fragment i of a row block's accumulators belongs: its four numbers are two columns of this row and of the row 8 below.
FN u32 dq_fragment_row(u32 fragment, u32 thread) {
  return (TILE_Q == 64 ? 0 : fragment / (HEAD_DIM / 8) * 64) + thread / 32 * 16 + thread % 32 / 4;
}
FN u32 dq_fragment_column(u32 fragment, u32 thread) { return fragment % (HEAD_DIM / 8) * 8 + thread % 4 * 2; }

#endif
