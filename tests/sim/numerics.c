// Kernels that put one instruction's result into p.out, for comparison with plain loops. p.n says which form.
#include "sim_params.h"
#include "sm90.h"

// in: per lane 4 words a, 2 words b, 4 floats c
KERNEL(num_mma, 32, test_params) {
  u32 a[4], b[2];
  float d[4];
  const u32 *in = p.in + 10 * tid();
  for (u32 i = 0; i < 4; i++) a[i] = gmem_load_4(in + i), d[i] = gmem_load_f32(in + 6 + i);
  for (u32 i = 0; i < 2; i++) b[i] = gmem_load_4(in + 4 + i);
  if (p.n) mma_m16n8k16_f16(d, a, b);
  else mma_m16n8k16_bf16(d, a, b);
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

// d (64 x N) = or += a b over 64 k (128 for e4m3). wgmma_test: bits of p.fault: swizzle 0..3 (as in the descriptor), type, trans_a,
// trans_b, A from registers, accumulate. Tiles come by TMA in boxes of the swizzle's width: [boxes][rows][span bytes]; without swizzle by
// ordinary stores into 8 x 16-byte core matrices.
enum { A_TILE = 0, B_TILE = 64 * 256 * 2, BARRIER = B_TILE + 64 * 256 * 2 };
typedef struct form {
  u32 n, swizzle, span, type, trans_a, trans_b, registers, accumulate;
} form;

FN void load_boxes(const tensor_map *map, u32 tile, u32 bar, u32 span, u32 rows, u32 width_bytes, u32 element_bytes) {
  for (u32 i = 0; i < width_bytes / span; i++) tma_load_2d(tile + i * rows * span, map, bar, (i32)(i * span / element_bytes), 0);
}

// rows x width bytes, row-major in `from`, into core matrices: [width / 16][rows / 8][8][16 bytes]
FN void store_core_matrices(u32 tile, const u32 *from, u32 rows, u32 width_bytes) {
  u32 chunks = width_bytes / 16, r[4];
  for (u32 i = tid(); i < rows * chunks; i += 128) {
    gmem_load_16(r, from + 4 * i);
    smem_store_16(tile + i % chunks * rows * 16 + i / chunks * 16, r);
  }
}

FN u64 operand_descriptor(u32 tile, const form *f, u32 k_step, u32 rows, int trans) {
  if (f->swizzle == 0) {
    // K-major: next 16 bytes of k at rows * 16, next 8 rows at 128; MN-major (rows are k): next 8 k at 128, next 8 of MN at rows * 16
    if (trans) return wgmma_descriptor(tile + k_step * 256, 128, rows * 16, 0);
    return wgmma_descriptor(tile + k_step * 2 * rows * 16, rows * 16, 128, 0);
  }
  if (trans) return wgmma_descriptor(tile + k_step * 16 * f->span, rows * f->span, 8 * f->span, f->swizzle);
  return wgmma_descriptor(tile + k_step * 32 / f->span * rows * f->span + k_step * 32 % f->span, 16, 8 * f->span, f->swizzle);
}

KERNEL(num_wgmma, 128, test_params) {
  static const u32 spans[4] = {16, 128, 64, 32};
  form f = {p.n, p.fault & 3, spans[p.fault & 3], p.fault >> 2 & 3, p.fault >> 4 & 1, p.fault >> 5 & 1, p.fault >> 6 & 1, p.fault >> 7 & 1};
  u32 s = smem_base(), element = f.type == 2 ? 1 : 2, a_rows = 64, a_width = 128, a[4];
  u32 b_rows = f.trans_b ? 64 : f.n, b_width = f.trans_b ? 2 * f.n : 128;
  float d[128];
  const u32 *b_from = p.in + 64 * 32; // after A, 64 rows of 128 bytes
  const u32 *c_from = b_from + 64 * 128;
  for (u32 i = 0; i < f.n / 2; i++) d[i] = gmem_load_f32(c_from + 128 * tid() + i);
  if (f.swizzle == 0) {
    store_core_matrices(s + A_TILE, p.in, a_rows, a_width);
    store_core_matrices(s + B_TILE, b_from, b_rows, b_width);
    fence_proxy_async();
  } else if (tid() == 0) {
    mbarrier_init(s + BARRIER, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(s + BARRIER, a_rows * a_width + b_rows * b_width);
    load_boxes(&p.map, s + A_TILE, s + BARRIER, f.span, a_rows, a_width, element);
    load_boxes(&p.map_out, s + B_TILE, s + BARRIER, f.span, b_rows, b_width, element);
  }
  cta_sync();
  if (f.swizzle) mbarrier_wait(s + BARRIER, 0);
  wgmma_fence();
  for (u32 k = 0; k < 4; k++) {
    u64 da = operand_descriptor(s + A_TILE, &f, k, 64, (int)f.trans_a), db = operand_descriptor(s + B_TILE, &f, k, b_rows, (int)f.trans_b);
    int acc = k || f.accumulate;
    if (f.registers) { // fragments from row-major A: rows of 32 words
      const u32 *row = p.in + (16 * (tid() / 32) + tid() % 32 / 4) * 32 + 8 * k + tid() % 4;
      a[0] = gmem_load_4(row), a[1] = gmem_load_4(row + 8 * 32), a[2] = gmem_load_4(row + 4), a[3] = gmem_load_4(row + 8 * 32 + 4);
    }
    switch (f.type << 3 | f.registers << 2 | f.trans_a << 1 | f.trans_b) {
    case 0: wgmma_m64nNk16_bf16_ss(f.n, d, da, db, acc); break;
    case 1: wgmma_m64nNk16_bf16_ss_tb(f.n, d, da, db, acc); break;
    case 2: wgmma_m64nNk16_bf16_ss_ta(f.n, d, da, db, acc); break;
    case 3: wgmma_m64nNk16_bf16_ss_tatb(f.n, d, da, db, acc); break;
    case 4: wgmma_m64nNk16_bf16_rs(f.n, d, a, db, acc); break;
    case 5: wgmma_m64nNk16_bf16_rs_tb(f.n, d, a, db, acc); break;
    case 8: wgmma_m64nNk16_f16_ss(f.n, d, da, db, acc); break;
    case 9: wgmma_m64nNk16_f16_ss_tb(f.n, d, da, db, acc); break;
    case 10: wgmma_m64nNk16_f16_ss_ta(f.n, d, da, db, acc); break;
    case 11: wgmma_m64nNk16_f16_ss_tatb(f.n, d, da, db, acc); break;
    case 12: wgmma_m64nNk16_f16_rs(f.n, d, a, db, acc); break;
    case 13: wgmma_m64nNk16_f16_rs_tb(f.n, d, a, db, acc); break;
    case 16: wgmma_m64nNk32_e4m3_ss(f.n, d, da, db, acc); break;
    default: wgmma_m64nNk32_e4m3_rs(f.n, d, a, db, acc); break;
    }
  }
  wgmma_commit();
  wgmma_wait(0);
  for (u32 i = 0; i < f.n / 2; i++) gmem_store_f32(p.out + 128 * tid() + i, d[i]);
}
