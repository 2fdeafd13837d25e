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

/* Tiles are handed out in groups of heads whose keys and values stay in L2 together; inside a group the last rows of all heads come first,
 * because under a causal mask they see most keys: long work first leaves a short tail. */
FN tile_place find_tile(const glint_forward_params *p, i32 block, i32 tile_rows) {
  tile_place t;
  i32 lanes = p->heads_q * p->batch, in_group = p->heads_in_l2 * p->group;
  if (in_group > lanes || in_group <= 0) in_group = lanes;
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
