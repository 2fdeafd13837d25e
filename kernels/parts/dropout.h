/* Dropout of probabilities with Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), the mask of glint.h.
 * One call gives eight 16-bit numbers, for eight neighbouring keys of a row: the row of one 16x8 accumulator tile, two keys a lane. */
#ifndef GLINT_PARTS_DROPOUT_H
#define GLINT_PARTS_DROPOUT_H
#include "isa/common.h"
#include "params.h"

FN void philox(u32 c[4], u32 k0, u32 k1) {
  NO_UNROLL for (int round = 0; round < 10; round++) {
    u64 p0 = (u64)0xD2511F53u * c[0], p1 = (u64)0xCD9E8D57u * c[2];
    u32 c1 = c[1], c3 = c[3];
    c[0] = (u32)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (u32)p1;
    c[2] = (u32)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* x[w] of lane t goes to x[t] of lane w, among four neighbouring lanes. */
FN void transpose_quad(u32 x[4]) {
  u32 lane = tid();
  UNROLL for (u32 bit = 1; bit <= 2; bit *= 2) UNROLL for (u32 a = 0; a < 4; a++) {
    if (a & bit) continue;
    u32 other = shfl_xor_u32(lane & bit ? x[a] : x[a | bit], bit);
    if (lane & bit)
      x[a] = other;
    else
      x[a | bit] = other;
  }
}

/* Zeroes what is dropped of s, after its sum was taken. Four tiles of eight keys at a time: lane t of a row's four draws for the t-th tile. */
FN void drop(const glint_forward_params *p, float s[M_TILES][N_TILES][4], u32 batch_head, i32 row, i32 first_key) {
  u32 key0 = (u32)p->dropout_seed, key1 = (u32)(p->dropout_seed >> 32) ^ (u32)(p->dropout_offset >> 32);
  UNROLL for (u32 m = 0; m < M_TILES; m++) UNROLL for (u32 h = 0; h < 2; h++) UNROLL for (u32 j = 0; j < N_TILES; j += 4) {
    u32 x[4] = {(u32)first_key / 8 + j + tid() % 4, (u32)row + 16 * m + 8 * h, batch_head, (u32)p->dropout_offset};
    philox(x, key0, key1);
    transpose_quad(x);
    UNROLL for (u32 n = 0; n < 4; n++) {
      if ((x[n] & 0xffff) < p->drop_threshold) s[m][j + n][2 * h] = 0.f;
      if (x[n] >> 16 < p->drop_threshold) s[m][j + n][2 * h + 1] = 0.f;
    }
  }
}
#endif
