/* Global to shared memory, a tile at a time, by cp.async: each thread moves 16-byte chunks, eight neighbouring threads one row of a 64-column
 * box (128 bytes: whole cache lines), and nothing passes through registers. Rows and columns beyond the tensor become zero: a masked
 * probability is 0, and 0 * NaN would be NaN. */
#ifndef GLINT_PARTS_TILE_COPY_H
#define GLINT_PARTS_TILE_COPY_H
#include "isa/sm80.h"
#include "parts/sequence.h"
#include "parts/swizzle.h"

/* Where rows come from: the address of a row called 0 and the distance from row to row. With PARK they lie in shared memory (16 bytes, one
 * copy a warp): three such pairs would be twelve registers. */
typedef struct copy_source {
  const char *row0;
  i64 row_bytes;
  u32 parked;
} copy_source;

FN copy_source copy_from(u32 parked, const void *base, const glint_stride *stride, i32 batch, i32 head, i64 row) {
  copy_source c = {row_address(base, stride, batch, head, row, 2), stride->row * 2, parked};
  if (PARK) {
    const u64 at = (u64)(size_t)c.row0;
    u32 words[4] = {(u32)at, (u32)(at >> 32), (u32)c.row_bytes, (u32)((u64)c.row_bytes >> 32)};
    if (tid() % 32 == 0) smem_store_16(parked, words);
  }
  return c;
}
FN copy_source recall_source(const copy_source *c) {
  copy_source r = *c;
  if (PARK) {
    u32 words[4];
    smem_load_16(words, c->parked);
    r.row0 = (const char *)(size_t)((u64)words[1] << 32 | words[0]);
    r.row_bytes = (i64)((u64)words[3] << 32 | words[2]);
  }
  return r;
}

/* Sixteen bytes element by element, for tensors whose rows are not 16-byte aligned or whose head_dim is no multiple of 8. */
FN void copy_elements(u32 dst, const char *src, i32 count) {
  u32 words[4] = {0, 0, 0, 0};
  UNROLL for (i32 e = 0; e < 8; e++) {
    if (e < count) words[e / 2] |= (u32)gmem_load_2_nc((const u16 *)src + e) << (e % 2 * 16);
  }
  smem_store_16(dst, words);
}

/* 1: 16 bytes at a time, asynchronously; 0: by elements. Decided once for the block; variants that are never given unaligned tensors have
 * no choice. */
typedef int copy_mode;
FN copy_mode find_copy_mode(const glint_forward_params *p) {
  if (!(FEATURES & FEATURE_UNALIGNED)) return 1;
  i64 any = (i64)p->q | (i64)p->k | (i64)p->v | p->head_dim * 2 | p->head_dim_v * 2;
  any |= (p->q_stride.batch | p->q_stride.row | p->q_stride.head | p->k_stride.batch | p->k_stride.row | p->k_stride.head) * 2;
  any |= (p->v_stride.batch | p->v_stride.row | p->v_stride.head) * 2;
  return any % 16 == 0;
}

/* Boxes first to last - 1 of a tile, all of one width: `lanes` threads a row, each 16 bytes. All but dst, c and the valid_ are constants. */
FN void copy_boxes(u32 dst, const copy_source *c, i32 first_row, i32 rows, i32 columns, i32 lanes, i32 first, i32 last, i32 valid_rows,
                   i32 valid_columns, copy_mode mode) {
  const i32 row = (i32)tid() / lanes, chunk = (i32)tid() % lanes, at_once = THREADS / lanes;
  const u32 lane = (u32)BOX_LANE(16 * lanes, row, chunk);
  const char *src = c->row0 + (first_row + row) * c->row_bytes + tid() % (u32)lanes * 16;
  const int whole = valid_rows == rows; /* known to the compiler where the caller says so */
  UNROLL for (i32 pass = 0; pass < (rows + at_once - 1) / at_once; pass++) {
    const i32 r = row + pass * at_once;
    if (rows % at_once == 0 || r < rows) {
      UNROLL for (i32 box = first; box < last; box++) {
        const i32 column = box * BOX_COLUMNS + chunk * 8;
        const u32 at = dst + lane + (u32)BOX_STEP(rows, columns, box, pass * at_once);
        if (mode)
          cp_async_16_zfill(at, src + box * 128,
                            (whole || r < valid_rows) && ((FEATURES & FEATURE_UNPADDED) || column < valid_columns) ? 16 : 0);
        else
          copy_elements(at, src + box * 128, whole || r < valid_rows ? valid_columns - column : 0);
      }
    }
    src += at_once * c->row_bytes;
  }
}

/* Issues the copy of rows x columns (constants) from row first_row of the source on. valid_rows may be anything (all rows are valid where it
 * is the constant `rows` itself), valid_columns <= columns. */
FN void copy_tile(u32 dst, const copy_source *source, i32 first_row, i32 rows, i32 columns, i32 valid_rows, i32 valid_columns,
                  copy_mode mode) {
  const copy_source c = recall_source(source);
  const i32 whole_boxes = columns / BOX_COLUMNS;
  copy_boxes(dst, &c, first_row, rows, columns, 8, 0, whole_boxes, valid_rows, valid_columns, mode);
  if (columns % BOX_COLUMNS)
    copy_boxes(dst, &c, first_row, rows, columns, 4, whole_boxes, whole_boxes + 1, valid_rows, valid_columns, mode);
}

/* This thread's copies so far arrive at the barrier: when they have landed or, when they were ordinary stores, now. */
FN void signal_copied(u32 barrier, copy_mode mode) {
  if (mode)
    cp_async_mbarrier_arrive(barrier);
  else
    mbarrier_arrive(barrier);
}
#endif
