// The two products of a consumer warpgroup: 64 rows each, by wgmma.
#ifndef GLINT_PARTS_FA3_PRODUCT_H
#define GLINT_PARTS_FA3_PRODUCT_H

#if DTYPE == DTYPE_BF16
#define WGMMA_QK(n, d, a, b, accumulate) wgmma_m64nNk16_bf16_ss(n, d, a, b, accumulate)
#define WGMMA_PV(n, d, a, b, accumulate) wgmma_m64nNk16_bf16_rs_tb(n, d, a, b, accumulate)
#else
#define WGMMA_QK(n, d, a, b, accumulate) wgmma_m64nNk16_f16_ss(n, d, a, b, accumulate)
#define WGMMA_PV(n, d, a, b, accumulate) wgmma_m64nNk16_f16_rs_tb(n, d, a, b, accumulate)
#endif

// Operands with the 128-byte swizzle. K-major (Q, K): 8 rows are 1024 bytes apart; a k16 step is 32 bytes, 64 columns a box of rows. MN-major
// (V): 8 keys are 1024 bytes apart, boxes of 64 columns TILE_K rows; a k16 step is 16 rows. Steps are added to the low word of the first
// descriptor, which the address never overflows: that saves registers.
FN u64 k_major(u32 address) { return wgmma_descriptor(address, 16, 1024, 1); }
FN u64 mn_major(u32 address) { return wgmma_descriptor(address, TILE_K * ROW_BYTES, 1024, 1); }
FN u64 advance(u64 descriptor, u32 bytes) { return descriptor >> 32 << 32 | ((u32)descriptor + bytes / 16); }
FN u32 k_major_step(u32 i, u32 rows) { return i / 4 * rows * ROW_BYTES + i % 4 * 32; }

// s = q k^T, issued and committed, not waited for
FN void issue_qk(float *s, u32 q, u32 k) {
  u64 a = k_major(q), b = k_major(k);
  wgmma_fence();
  UNROLL
  for (u32 i = 0; i < HEAD_DIM / 16; i++)
    WGMMA_QK(TILE_K, s, advance(a, k_major_step(i, 64)), advance(b, k_major_step(i, TILE_K)), i ? 1 : 0);
  wgmma_commit();
}

// o += p v, issued and committed
FN void issue_pv(float *o, const u32 *p, u32 v) {
  u64 b = mn_major(v);
  wgmma_fence();
  UNROLL
  for (u32 i = 0; i < TILE_K / 16; i++) WGMMA_PV(HEAD_DIM_V, o, p + 4 * i, advance(b, i * 16 * ROW_BYTES), 1);
  wgmma_commit();
}

#endif
