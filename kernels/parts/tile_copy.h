/* Global to shared memory, a tile at a time, by cp.async: each thread moves 16-byte chunks, eight neighbouring threads one row of a 64-column
 * box (128 bytes: whole cache lines), and nothing passes through registers. Rows and columns beyond the tensor become zero: a masked
 * probability is 0, and 0 * NaN would be NaN. */
#ifndef GLINT_PARTS_TILE_COPY_H
#define GLINT_PARTS_TILE_COPY_H
#include "isa/sm80.h"
#include "parts/swizzle.h"

#define COPY_ROWS (THREADS / 8) /* rows of a box that all threads copy at once */

/* A thread's place in the tensor: row tid / 8 of the tile, column 8 * (tid % 8). */
typedef struct copy_source {
  const char *at;
  i64 row_bytes;
} copy_source;

FN copy_source copy_from(const char *tile, i64 row_bytes) {
  copy_source c;
  c.at = tile + (i64)(tid() / 8) * row_bytes + tid() % 8 * 16;
  c.row_bytes = row_bytes;
  return c;
}
FN void advance(copy_source *c, i32 rows) { c->at += rows * c->row_bytes; }

/* Sixteen bytes element by element, for tensors whose rows are not 16-byte aligned or whose head_dim is no multiple of 8. */
FN void copy_elements(u32 dst, const char *src, i32 count) {
  u32 words[4] = {0, 0, 0, 0};
  UNROLL for (i32 e = 0; e < 8; e++) {
    if (e < count) words[e / 2] |= (u32)gmem_load_2_nc((const u16 *)src + e) << (e % 2 * 16);
  }
  smem_store_16(dst, words);
}

/* Issues the copy of rows x columns (constants); the caller commits. valid_rows may be anything, valid_columns <= columns. */
FN void copy_tile(u32 dst, copy_source c, i32 rows, i32 columns, i32 valid_rows, i32 valid_columns) {
  i32 row = (i32)tid() / 8, chunk = (i32)tid() % 8;
  const char *src = c.at;
  UNROLL for (i32 pass = 0; pass < (rows + COPY_ROWS - 1) / COPY_ROWS; pass++) {
    i32 r = row + pass * COPY_ROWS;
    if (rows % COPY_ROWS == 0 || r < rows) {
      UNROLL for (i32 box = 0; box < BOXES(columns); box++) {
        i32 column = box * BOX_COLUMNS + chunk * 8;
        u32 at = dst + (u32)TILE_OFFSET(rows, columns, r, box * 8 + chunk);
        if ((box + 1) * BOX_COLUMNS > columns && column >= columns) continue;
        if (FEATURES & FEATURE_UNALIGNED) {
          copy_elements(at, src + box * 128, r < valid_rows ? valid_columns - column : 0);
        } else {
          cp_async_16_zfill(at, src + box * 128, r < valid_rows && column < valid_columns ? 16 : 0);
        }
      }
    }
    src += COPY_ROWS * c.row_bytes;
  }
}
#endif
