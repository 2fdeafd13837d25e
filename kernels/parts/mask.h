/* Which keys a row may see, applied to the scores of one block. */
#ifndef GLINT_PARTS_MASK_H
#define GLINT_PARTS_MASK_H
#include "isa/common.h"

/* first, last: of the lane's row 0 of the warp tile, relative to the lane's first column in the block; row + d has them d further on, but
 * never beyond `end`, the keys' number less one. Scores outside become -inf. */
FN void mask_right(float s[M_TILES][N_TILES][4], i32 last, i32 end) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    i32 limit = last + 16 * m + 8 * h < end ? last + 16 * m + 8 * h : end;
    UNROLL for (i32 j = 0; j < N_TILES; j++) UNROLL for (i32 i = 0; i < 2; i++) {
      if (8 * j + i > limit) s[m][j][2 * h + i] = -INFINITY;
    }
  }
}
FN void mask_left(float s[M_TILES][N_TILES][4], i32 first) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    UNROLL for (i32 j = 0; j < N_TILES; j++) UNROLL for (i32 i = 0; i < 2; i++) {
      if (8 * j + i < first + 16 * m + 8 * h) s[m][j][2 * h + i] = -INFINITY;
    }
  }
}
#endif
