/* The matrix products of one warp on tiles in shared memory (Ampere's way: ldmatrix and mma.sync). The warp owns 16 * M_TILES rows of the
 * query tile and all of the block's keys, so a row's maximum and sum never leave it. */
#ifndef GLINT_PARTS_WARP_MMA_H
#define GLINT_PARTS_WARP_MMA_H
#include "isa/sm80.h"
#include "parts/swizzle.h"

FN void mma_16(float d[4], const u32 a[4], const u32 b[2]) {
#if DTYPE == DTYPE_BF16
  mma_m16n8k16_bf16(d, a, b);
#else
  mma_m16n8k16_f16(d, a, b);
#endif
}
FN u32 pack_16(float lo, float hi) {
#if DTYPE == DTYPE_BF16
  return pack_bf16(lo, hi);
#else
  return pack_f16(lo, hi);
#endif
}

/* What a lane adds to a tile's address: [0] in boxes of 64 columns, [1] in a last box of 32. */
typedef struct lane_offsets {
  u32 box64, box32;
} lane_offsets;
FN lane_offsets lane_offsets_a(u32 lane) {
  lane_offsets l = {FRAGMENT_LANE(128, LANE_ROW_A(lane), LANE_CHUNK_A(lane)), FRAGMENT_LANE(64, LANE_ROW_A(lane), LANE_CHUNK_A(lane))};
  return l;
}
FN lane_offsets lane_offsets_a_from(u32 lane, u32 row) {
  lane_offsets l = lane_offsets_a(lane);
  l.box64 += row * 128;
  l.box32 += row * 64;
  return l;
}
FN lane_offsets lane_offsets_b(u32 lane) {
  lane_offsets l = {FRAGMENT_LANE(128, LANE_ROW_B(lane), LANE_CHUNK_B(lane)), FRAGMENT_LANE(64, LANE_ROW_B(lane), LANE_CHUNK_B(lane))};
  return l;
}

/* tile: 1024-byte aligned. rows, columns: of the tile; row: multiple of 16; step: column / 16; all constants but tile. */
FN u32 fragment_address(u32 tile, lane_offsets l, i32 rows, i32 columns, i32 row, i32 step) {
  u32 lane = BOX_PITCH(columns, step / 4) == 128 ? l.box64 : l.box32;
  return ((tile + lane) ^ (u32)FRAGMENT_TURN(step)) + (u32)FRAGMENT_STEP(rows, columns, row, step);
}

/* The warp's rows of Q for one step of 16 columns; l includes the warp's first row. */
FN void load_q(u32 a[M_TILES][4], u32 q, lane_offsets l, i32 step) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) ldmatrix_x4(a[m], fragment_address(q, l, TILE_Q, HEAD_DIM, 16 * m, step));
}

/* s = Q K^T. kept: the first Q_KEPT steps of Q, which stay in registers for the whole tile. */
FN void scores(float s[M_TILES][N_TILES][4], const u32 kept[][M_TILES][4], u32 q, u32 k, lane_offsets q_lane, lane_offsets k_lane) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 j = 0; j < N_TILES; j++) UNROLL for (i32 i = 0; i < 4; i++) s[m][j][i] = 0.f;
  UNROLL for (i32 step = 0; step < HEAD_DIM / 16; step++) {
    u32 loaded[M_TILES][4];
    if (step >= Q_KEPT) load_q(loaded, q, q_lane, step);
    UNROLL for (i32 j = 0; j < N_TILES; j += 2) {
      u32 b[4];
      ldmatrix_x4(b, fragment_address(k, k_lane, TILE_K, HEAD_DIM, 8 * j, step));
      UNROLL for (i32 m = 0; m < M_TILES; m++) {
        const u32 *a = step < Q_KEPT ? kept[step < Q_KEPT ? step : 0][m] : loaded[m];
        mma_16(s[m][j], a, b);
        mma_16(s[m][j + 1], a, b + 2);
      }
    }
  }
}

/* Exponentials of keys 16c to 16c + 15 as the A operand of the product with V: the accumulators' layout, packed in order, is that of A. */
FN void pack_probabilities(u32 a[M_TILES][4], const float s[M_TILES][N_TILES][4], i32 c) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 i = 0; i < 4; i++) a[m][i] =
      pack_16(s[m][2 * c + i / 2][i % 2 * 2], s[m][2 * c + i / 2][i % 2 * 2 + 1]);
}

/* o += P V for keys 16c to 16c + 15 of the block. */
FN void add_values(float o[M_TILES][V_TILES][4], const u32 p[M_TILES][4], u32 v, lane_offsets v_lane, i32 c) {
  UNROLL for (i32 n = 0; n < V_TILES; n += 2) {
    u32 b[4];
    ldmatrix_x4_trans(b, fragment_address(v, v_lane, TILE_K, HEAD_DIM_V, 16 * c, n / 2));
    UNROLL for (i32 m = 0; m < M_TILES; m++) {
      mma_16(o[m][n], p[m], b);
      mma_16(o[m][n + 1], p[m], b + 2);
    }
  }
}
#endif
