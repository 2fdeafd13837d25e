// The two products of a consumer warpgroup: 64 rows each, by 8-bit wgmma, both operands K-major.
#ifndef GLINT_PARTS_FP8_PRODUCT_H
#define GLINT_PARTS_FP8_PRODUCT_H

// Operands with the 128-byte swizzle: 8 rows are 1024 bytes apart; a k32 step is 32 bytes, four of them a box of rows. Steps are added to the
// low word of the first descriptor, which the address never overflows: that saves registers.
FN u64 k_major(u32 address) { return wgmma_descriptor(address, 16, 1024, 1); }
FN u64 advance(u64 descriptor, u32 bytes) { return descriptor >> 32 << 32 | ((u32)descriptor + bytes / 16); }
FN u32 k_major_step(u32 i, u32 rows) { return i / 4 * rows * ROW_BYTES + i % 4 * 32; }

// s = q k^T, issued and committed, not waited for
FN void issue_qk(float *s, u32 q, u32 k) {
  u64 a = k_major(q), b = k_major(k);
  wgmma_fence();
  UNROLL
  for (u32 i = 0; i < HEAD_DIM / 32; i++)
    wgmma_m64nNk32_e4m3_ss(TILE_K, s, advance(a, k_major_step(i, 64)), advance(b, k_major_step(i, TILE_K)), i ? 1 : 0);
  wgmma_commit();
}

// o (+)= p v, and ones = p times a column of ones, issued and committed
FN void issue_pv(float *o, float *ones, const u32 *p, u32 v, u32 ones_at, int accumulate) {
  u64 b = k_major(v), c = k_major(ones_at);
  wgmma_fence();
  UNROLL
  for (u32 i = 0; i < TILE_K / 32; i++)
    wgmma_m64nNk32_e4m3_rs(HEAD_DIM_V, o, p + 4 * i, advance(b, k_major_step(i, HEAD_DIM_V)), i ? 1 : accumulate);
  UNROLL
  for (u32 i = 0; ONES && i < TILE_K / 32; i++) wgmma_m64nNk32_e4m3_rs(8, ones, p + 4 * i, c, i ? 1 : 0);
  wgmma_commit();
}

#endif
