/* From a block's number to its tile: which rows of which head of which sequence, and how long that sequence is. */
#ifndef GLINT_PARTS_SEQUENCE_H
#define GLINT_PARTS_SEQUENCE_H
#include "isa/common.h"
#include "params.h"

typedef struct tile_place {
  i32 batch, head; /* query head */
  i32 row;         /* first query row of the tile, inside its sequence */
  i32 len_q;       /* rows that exist */
  i32 used_q;      /* rows to compute; the others get o = 0, lse = -inf */
  i32 len_k;       /* visible keys */
  i32 shift;       /* len_k - used_q: row i stands at key position i + shift (bottom-right alignment) */
  i64 first_q;     /* row of the packed tensor where the sequence starts; 0 when dense */
  i64 first_k;
} tile_place;

FN i32 load_index(const i32 *array, i32 i) { return (i32)gmem_load_4_nc(array + i); }

/* The order in which tiles are handed out. Without a mask all tiles cost the same, so the tiles of one key/value head follow each other and
 * find its keys and values in L2. Under a mask the later rows see more keys: the last rows of all heads go first, so that what runs at the
 * end is short (on an H200 this is worth more than the locality: 387 against 333 TFLOP/s at seqlen 8192, head_dim 128). */
FN tile_place find_tile(const glint_forward_params *p, i32 block, i32 tile_rows) {
  tile_place t;
  i32 lanes = p->heads_q * p->batch;
  i32 in_group = (FEATURES & FEATURE_MASK) && p->window_right < GLINT_UNBOUNDED ? lanes : p->group;
  i32 first = block / (in_group * p->q_tiles) * in_group;
  i32 size = lanes - first < in_group ? lanes - first : in_group;
  i32 inside = block - first * p->q_tiles;
  i32 lane = first + inside % size;
  t.batch = lane / p->heads_q;
  t.head = lane % p->heads_q;
  t.row = (p->q_tiles - 1 - inside / size) * tile_rows;
  t.first_q = 0;
  t.first_k = 0;
  t.len_q = p->seqlen_q;
  t.len_k = p->seqlen_k;
  if (FEATURES & FEATURE_VARLEN) {
    if (p->cu_seqlens_q) {
      t.first_q = load_index(p->cu_seqlens_q, t.batch);
      t.len_q = load_index(p->cu_seqlens_q, t.batch + 1) - (i32)t.first_q;
    }
    if (p->cu_seqlens_k) {
      t.first_k = load_index(p->cu_seqlens_k, t.batch);
      t.len_k = load_index(p->cu_seqlens_k, t.batch + 1) - (i32)t.first_k;
    }
  }
  t.used_q = t.len_q;
  if (FEATURES & FEATURE_VARLEN) {
    if (p->seqused_q) t.used_q = load_index(p->seqused_q, t.batch);
    if (p->seqused_k) t.len_k = load_index(p->seqused_k, t.batch);
  }
  t.shift = t.len_k - t.used_q;
  return t;
}

/* A place set down in shared memory and taken up again. The main loop has no registers to spare for what only masks and the epilogue need;
 * the compiler would spill it to local memory. One copy a warp, 48 bytes, so
 * that no barrier of the block is needed, only a warp_sync when all is parked. */
FN void park(u32 at, const tile_place *t) {
  u32 a[4] = {(u32)t->batch, (u32)t->head, (u32)t->row, (u32)t->len_q}, b[4] = {(u32)t->used_q, (u32)t->len_k, (u32)t->shift, 0};
  u32 c[4] = {(u32)t->first_q, (u32)(t->first_q >> 32), (u32)t->first_k, (u32)(t->first_k >> 32)};
  if (tid() % 32 == 0) {
    smem_store_16(at, a);
    smem_store_16(at + 16, b);
    smem_store_16(at + 32, c);
  }
}
FN tile_place unpark(u32 at) {
  u32 a[4], b[4], c[4];
  smem_load_16(a, at);
  smem_load_16(b, at + 16);
  smem_load_16(c, at + 32);
  tile_place t = {(i32)a[0], (i32)a[1], (i32)a[2], (i32)a[3], (i32)b[0], (i32)b[1], (i32)b[2], 0, 0};
  t.first_q = (i64)((u64)c[1] << 32 | c[0]);
  t.first_k = (i64)((u64)c[3] << 32 | c[2]);
  return t;
}

/* Byte address of row `row` of the tile's sequence. size: bytes of an element. */
FN const char *row_address(const void *base, const glint_stride *stride, i32 batch, i32 head, i64 row, i32 size) {
  return (const char *)base + (batch * stride->batch + head * stride->head + row * stride->row) * size;
}

/* First and last key that row `row` sees (last < first: none). Rows see no fewer keys on the right the later they are, no more on the left. */
FN i32 first_key(const glint_forward_params *p, const tile_place *t, i32 row) {
  i32 first = FEATURES & FEATURE_MASK ? row + t->shift - p->window_left : 0;
  return first > 0 ? first : 0;
}
FN i32 last_key(const glint_forward_params *p, const tile_place *t, i32 row) {
  i32 last = FEATURES & FEATURE_MASK ? row + t->shift + p->window_right : t->len_k - 1;
  return last < t->len_k - 1 ? last : t->len_k - 1;
}
#endif
