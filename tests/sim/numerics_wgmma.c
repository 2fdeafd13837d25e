// wgmma in all its forms into p.out: the simulator's is compared with plain loops (test_numerics.c), and with the GPU's
// (tests/gpu/isa_compare.c). The GPU wants N at compile time (-DN=64 makes the kernel num_wgmma_64); the simulator takes it from p.n.
#include "sim_params.h"
#include "sm90.h"

#ifdef N
#define NAME_(n)     num_wgmma_##n
#define NAME(n)      NAME_(n)
#define WGMMA_KERNEL NAME(N)
#define ACCUMULATORS (N / 2)
#else
#define N            f.n
#define WGMMA_KERNEL num_wgmma
#define ACCUMULATORS 128
#endif

// d (64 x N) = or += a b over 64 k (128 for e4m3). Bits of p.fault: swizzle 0..3 (as in the descriptor), type, trans_a,
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

KERNEL(WGMMA_KERNEL, 128, test_params) {
  form f = {p.n,
            p.fault & 3,
            p.fault & 3 ? 256u >> (p.fault & 3) : 16u,
            p.fault >> 2 & 3,
            p.fault >> 4 & 1,
            p.fault >> 5 & 1,
            p.fault >> 6 & 1,
            p.fault >> 7 & 1};
  u32 s = smem_base(), element = f.type == 2 ? 1 : 2, a_rows = 64, a_width = 128, a[4];
  u32 b_rows = f.trans_b ? 64 : f.n, b_width = f.trans_b ? 2 * f.n : 128;
  float d[ACCUMULATORS];
  const u32 *b_from = p.in + 64 * 32; // after A, 64 rows of 128 bytes
  const u32 *c_from = b_from + 64 * 128;
  UNROLL
  for (u32 i = 0; i < N / 2; i++) d[i] = gmem_load_f32(c_from + 128 * tid() + i);
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
    case 0: wgmma_m64nNk16_bf16_ss(N, d, da, db, acc); break;
    case 1: wgmma_m64nNk16_bf16_ss_tb(N, d, da, db, acc); break;
    case 2: wgmma_m64nNk16_bf16_ss_ta(N, d, da, db, acc); break;
    case 3: wgmma_m64nNk16_bf16_ss_tatb(N, d, da, db, acc); break;
    case 4: wgmma_m64nNk16_bf16_rs(N, d, a, db, acc); break;
    case 5: wgmma_m64nNk16_bf16_rs_tb(N, d, a, db, acc); break;
    case 8: wgmma_m64nNk16_f16_ss(N, d, da, db, acc); break;
    case 9: wgmma_m64nNk16_f16_ss_tb(N, d, da, db, acc); break;
    case 10: wgmma_m64nNk16_f16_ss_ta(N, d, da, db, acc); break;
    case 11: wgmma_m64nNk16_f16_ss_tatb(N, d, da, db, acc); break;
    case 12: wgmma_m64nNk16_f16_rs(N, d, a, db, acc); break;
    case 13: wgmma_m64nNk16_f16_rs_tb(N, d, a, db, acc); break;
    case 16: wgmma_m64nNk32_e4m3_ss(N, d, da, db, acc); break;
    default: wgmma_m64nNk32_e4m3_rs(N, d, a, db, acc); break;
    }
  }
  wgmma_commit();
  wgmma_wait(0);
  UNROLL
  for (u32 i = 0; i < N / 2; i++) gmem_store_f32(p.out + 128 * tid() + i, d[i]);
}
