// Kernels that put one instruction's result into p.out: the simulator's are compared with plain loops (test_numerics.c), and with the
// GPU's (tests/gpu/isa_compare.c). p.n says which form.
#include "sim_params.h"
#include "sm90.h"

// in: per lane 4 words a, 2 words b, 4 floats c
KERNEL(num_mma, 32, test_params) {
  u32 a[4], b[2];
  float d[4];
  const u32 *in = p.in + 10 * tid();
  for (u32 i = 0; i < 4; i++) a[i] = gmem_load_4(in + i), d[i] = gmem_load_f32(in + 6 + i);
  for (u32 i = 0; i < 2; i++) b[i] = gmem_load_4(in + 4 + i);
  if (p.n)
    mma_m16n8k16_f16(d, a, b);
  else
    mma_m16n8k16_bf16(d, a, b);
  for (u32 i = 0; i < 4; i++) gmem_store_f32(p.out + 4 * tid() + i, d[i]);
}

// 32 rows of 16 bytes: n = 1, 2, 4 matrices, + 8 transposed
KERNEL(num_ldmatrix, 32, test_params) {
  u32 r[4] = {0, 0, 0, 0}, a = smem_base() + 16 * tid();
  gmem_load_16(r, p.in + 4 * tid());
  smem_store_16(a, r);
  cta_sync();
  r[0] = r[1] = r[2] = r[3] = 0;
  switch (p.n) {
  case 1: ldmatrix_x1(r, a); break;
  case 2: ldmatrix_x2(r, a); break;
  case 4: ldmatrix_x4(r, a); break;
  case 9: ldmatrix_x1_trans(r, a); break;
  case 10: ldmatrix_x2_trans(r, a); break;
  default: ldmatrix_x4_trans(r, a);
  }
  gmem_store_16(p.out + 4 * tid(), r);
}

KERNEL(num_stmatrix, 32, test_params) {
  u32 r[4], zero[4] = {0, 0, 0, 0}, a = smem_base() + 16 * tid();
  gmem_load_16(r, p.in + 4 * tid());
  smem_store_16(a, zero);
  cta_sync();
  switch (p.n) {
  case 2: stmatrix_x2(a, r); break;
  case 4: stmatrix_x4(a, r); break;
  case 10: stmatrix_x2_trans(a, r); break;
  default: stmatrix_x4_trans(a, r);
  }
  cta_sync();
  smem_load_16(r, a);
  gmem_store_16(p.out + 4 * tid(), r);
}

KERNEL(num_movmatrix, 32, test_params) { gmem_store_4(p.out + tid(), movmatrix_trans(gmem_load_4(p.in + tid()))); }

// shuffles and votes: 8 words a lane
KERNEL(num_shuffles, 32, test_params) {
  u32 v = gmem_load_4(p.in + tid()), *o = p.out + 8 * tid();
  gmem_store_4(o, shfl_xor_u32(v, 5));
  gmem_store_4(o + 1, shfl_idx_u32(v, tid() / 3));
  gmem_store_4(o + 2, shfl_up_u32(v, 3));
  gmem_store_4(o + 3, shfl_down_u32(v, 7));
  gmem_store_4(o + 4, ballot_lanes((int)(v & 1)));
  gmem_store_4(o + 5, (u32)all_lanes((int)(v & 1)));
  gmem_store_4(o + 6, (u32)any_lane((int)(v & 1)));
  gmem_store_f32(o + 7, shfl_xor_f32((float)(v & 255), 16));
}

// ---- what only the comparison with the GPU runs: no plain loops could settle what the hardware does --------------------------------
// in: 4 words a lane; out: 16
KERNEL(num_arithmetic, 32, test_params) {
  const u32 *in = p.in + 4 * tid();
  u32 a = gmem_load_4(in), b = gmem_load_4(in + 1), c = gmem_load_4(in + 2), *o = p.out + 16 * tid();
  float x = f32_from_bits(a), y = f32_from_bits(b), z = f32_from_bits(c);
  gmem_store_4(o, pack_bf16(x, y));
  gmem_store_4(o + 1, pack_f16(x, y));
  gmem_store_4(o + 2, pack_e4m3(x, y, z, -x));
  gmem_store_4(o + 3, unpack_e4m3_f16x2((u16)a));
  gmem_store_4(o + 4, byte_perm(a, b, c));
  gmem_store_4(o + 5, fma_f16x2(a, b, c));
  gmem_store_4(o + 6, fma_bf16x2(a, b, c));
  gmem_store_f32(o + 7, fma_f32(x, y, z));
  gmem_store_f32(o + 8, max_f32(x, y));
  gmem_store_f32(o + 9, min_f32(x, y));
  gmem_store_f32(o + 10, unpack_f16_lo(a));
  gmem_store_f32(o + 11, unpack_f16_hi(a));
  gmem_store_f32(o + 12, unpack_bf16_lo(a));
  gmem_store_f32(o + 13, unpack_bf16_hi(a));
  gmem_store_4(o + 14, mul_hi_u32(a, b));
  gmem_store_4(o + 15, count_leading_zeros(a) | count_ones(b) << 8);
}

// Approximations, each with its own bound: out 6 words a lane
KERNEL(num_approximations, 32, test_params) {
  u32 a = gmem_load_4(p.in + 4 * tid()), *o = p.out + 6 * tid();
  float x = f32_from_bits(a);
  gmem_store_f32(o, exp2_approx(x));
  gmem_store_f32(o + 1, log2_approx(x));
  gmem_store_f32(o + 2, tanh_approx(x));
  gmem_store_f32(o + 3, rcp_approx(x));
  gmem_store_4(o + 4, exp2_approx_f16x2(a));
  gmem_store_4(o + 5, exp2_approx_bf16x2(a));
}

// cp.async of all sizes with and without zero fill; out: 32 x 4 words
KERNEL(num_cp_async, 32, test_params) {
  u32 a = smem_base() + 16 * tid(), r[4] = {1, 2, 3, 4};
  const u32 *from = p.in + 4 * tid();
  smem_store_16(a, r);
  switch (tid() % 8) {
  case 0: cp_async_16(a, from); break;
  case 1: cp_async_16_zfill(a, from, 0); break;
  case 2: cp_async_16_zfill(a, from, 8); break;
  case 3: cp_async_16_zfill(a, from, 6); break;
  case 4: cp_async_8(a, from); break;
  case 5: cp_async_4(a + 4, from); break;
  case 6: cp_async_4_zfill(a, from, 2); break;
  default: cp_async_4_zfill(a + 12, from, 0);
  }
  cp_async_commit();
  cp_async_wait(0);
  smem_load_16(r, a);
  gmem_store_16(p.out + 4 * tid(), r);
}

// One box of p.map (rank 2, p.n bytes) at coordinates from p.in[0..1]: out, the bytes as they lie in shared memory; then they go out
// through p.map_out at coordinates p.in[2..3], added when p.fault is set.
KERNEL(num_tma, 128, test_params) {
  u32 s = smem_base(), bar = s + 65536, r[4];
  if (tid() == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(bar, p.n);
    tma_load_2d(s, &p.map, bar, (i32)gmem_load_4(p.in), (i32)gmem_load_4(p.in + 1));
  }
  cta_sync();
  mbarrier_wait(bar, 0);
  for (u32 i = tid(); i < p.n / 16; i += 128) {
    smem_load_16(r, s + 16 * i);
    gmem_store_16(p.out + 4 * i, r);
  }
  if (tid() == 0) {
    if (p.fault)
      tma_reduce_add_4d(&p.map_out, s, (i32)gmem_load_4(p.in + 2), (i32)gmem_load_4(p.in + 3), 0, 0);
    else
      tma_store_4d(&p.map_out, s, (i32)gmem_load_4(p.in + 2), (i32)gmem_load_4(p.in + 3), 0, 0);
    tma_store_commit();
    tma_store_wait(0);
  }
}

// Bulk copies, vector reductions, atomics: out 512 words, all zero before
KERNEL(num_memory, 128, test_params) {
  u32 s = smem_base(), bar = s + 4096;
  float v = (float)(gmem_load_4(p.in + tid()) % 1024);
  if (tid() == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(bar, 512);
    tma_load_1d(s, p.in, 512, bar);
  }
  cta_sync();
  mbarrier_wait(bar, 0);
  if (tid() == 0) {
    tma_store_1d(p.out, s, 256);
    tma_store_commit();
    tma_store_wait(0);
  }
  cta_sync();
  red_add_v4_f32((float *)p.out + 128 + 4 * (tid() % 8), v, v + 1, v + 2, v + 3); // integers: any order gives the same sum
  red_add_f32((float *)p.out + 192 + tid() % 4, v);
  atomic_add_u32(p.out + 200, tid());
  atomic_max_i32((i32 *)p.out + 201, (i32)gmem_load_4(p.in + tid()));
  smem_store_4(s + 4 * tid(), 0);
  cta_sync();
  smem_red_add_f32(s + 4 * (tid() % 4), v);
  smem_atomic_add_u32(s + 64, tid());
  cta_sync();
  gmem_store_4(p.out + 256 + tid(), smem_load_4(s + 4 * tid()));
}
