/* Global to shared memory, a tile at a time, by cp.async: each thread moves 16-byte chunks, eight neighbouring threads one row of a 64-column
 * box (128 bytes: whole cache lines), and nothing passes through registers. Rows and columns beyond the tensor become zero: a masked
 * probability is 0, and 0 * NaN would be NaN. */
#ifndef GLINT_PARTS_TILE_COPY_H
#define GLINT_PARTS_TILE_COPY_H
#include "isa/sm80.h"
#include "parts/swizzle.h"

#define COPY_ROWS (THREADS / 8) /* rows of a box that all threads copy at once */

/* A thread's place in the tensor: row tid / 8 of the tile, column 8 * (tid % 8). The distances to its next rows and to the tile before lie in
 * shared memory, 16 bytes at `steps`: the main loop has no registers for them. */
typedef struct copy_source {
  const char *at;
  u32 steps;
} copy_source;

FN copy_source copy_from(u32 steps, const char *tile, i64 row_bytes, i32 tile_rows) {
  const i64 pass = COPY_ROWS * row_bytes, back = -tile_rows * row_bytes;
  u32 words[4] = {(u32)pass, (u32)(pass >> 32), (u32)back, (u32)(back >> 32)};
  if (tid() % 32 == 0) smem_store_16(steps, words);
  warp_sync();
  copy_source c = {tile + (i64)(tid() / 8) * row_bytes + tid() % 8 * 16, steps};
  return c;
}
FN i64 load_step(u32 at) {
  u32 words[2];
  smem_load_8(words, at);
  return (i64)((u64)words[1] << 32 | words[0]);
}
FN void to_tile_before(copy_source *c) { c->at += load_step(c->steps + 8); }

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

/* Issues the copy of rows x columns (constants). valid_rows may be anything (all rows are valid where it is the constant `rows` itself),
 * valid_columns <= columns. */
FN void copy_tile(u32 dst, copy_source c, i32 rows, i32 columns, i32 valid_rows, i32 valid_columns, copy_mode mode) {
  const i32 row = (i32)tid() / 8, chunk = (i32)tid() % 8;
  const i32 lane_64 = BOX_LANE(128, row, chunk), lane_32 = BOX_LANE(64, row, chunk);
  const char *src = c.at;
  const i64 pass_bytes = load_step(c.steps);
  const int whole = valid_rows == rows; /* known to the compiler where the caller says so */
  UNROLL for (i32 pass = 0; pass < (rows + COPY_ROWS - 1) / COPY_ROWS; pass++) {
    i32 r = row + pass * COPY_ROWS;
    if (rows % COPY_ROWS == 0 || r < rows) {
      UNROLL for (i32 box = 0; box < BOXES(columns); box++) {
        i32 column = box * BOX_COLUMNS + chunk * 8;
        u32 at = dst + (u32)((BOX_PITCH(columns, box) == 128 ? lane_64 : lane_32) + BOX_STEP(rows, columns, box, pass * COPY_ROWS));
        if ((box + 1) * BOX_COLUMNS > columns && column >= columns) continue;
        if (mode) cp_async_16_zfill(at, src + box * 128, (whole || r < valid_rows) && ((FEATURES & FEATURE_UNPADDED) || column < valid_columns) ? 16 : 0);
        else copy_elements(at, src + box * 128, whole || r < valid_rows ? valid_columns - column : 0);
      }
    }
    src += pass_bytes;
  }
}

/* This thread's copies so far arrive at the barrier: when they have landed, or now, when they were ordinary stores. */
FN void signal_copied(u32 barrier, copy_mode mode) {
  if (mode) cp_async_mbarrier_arrive(barrier);
  else mbarrier_arrive(barrier);
}
#endif
