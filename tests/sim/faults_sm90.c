// Planted faults, Hopper's instructions: each kernel has one fault when p.fault is set and none otherwise. p.map and p.map_out describe
// 64 x 64 bf16 tensors (p.in, p.out), boxes of 64 x 64 with the 128-byte swizzle: 8192 bytes.
#include "sim_params.h"
#include "sm90.h"

enum { BOX = 8192, TILE_A = 0, TILE_B = BOX, BARS = 4 * BOX };

FN u32 bar(u32 i) { return smem_base() + BARS + 8 * i; }
FN u32 tile(u32 i) { return smem_base() + i * BOX; }

FN void bars_init(u32 count, u32 arrivals) {
  if (tid() == 0) {
    for (u32 i = 0; i < count; i++) mbarrier_init(bar(i), arrivals);
    fence_mbarrier_init();
  }
  cta_sync();
}
FN void load_tile(const test_params *p, u32 i, u32 b) {
  mbarrier_arrive_expect_tx(bar(b), BOX);
  tma_load_2d(tile(i), &p->map, bar(b), 0, 0);
}
FN u64 descriptor(u32 i, u32 k) { return wgmma_descriptor(tile(i) + 32 * k, 16, 1024, 1); }

// d = tile 0 times tile 1, transposed, all of k
FN void product(float *d) {
  for (u32 k = 0; k < 4; k++) wgmma_m64nNk16_bf16_ss(64, d, descriptor(0, k), descriptor(1, k), k != 0);
}
FN void store_sum(const test_params *p, const float *d) {
  float sum = 0;
  for (u32 i = 0; i < 32; i++) sum += d[i];
  gmem_store_f32(p->out + tid(), sum);
}

// ---- TMA and mbarriers --------------------------------------------------------------------------------------------------------
KERNEL(fault_tma_wait, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) load_tile(&p, 0, 0);
  if (!p.fault) mbarrier_wait(bar(0), 0);
  gmem_store_4(p.out + tid(), smem_load_4(tile(0) + 4 * tid()));
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_parity, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) load_tile(&p, 0, 0);
  mbarrier_wait(bar(0), p.fault ? 1 : 0); // the parity of a phase long over
  gmem_store_4(p.out + tid(), smem_load_4(tile(0) + 4 * tid()));
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_too_few_expected, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    mbarrier_arrive_expect_tx(bar(0), p.fault ? BOX - 16 : BOX);
    tma_load_2d(tile(0), &p.map, bar(0), 0, 0);
  }
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_too_many_expected, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    mbarrier_arrive_expect_tx(bar(0), p.fault ? BOX + 16 : BOX);
    tma_load_2d(tile(0), &p.map, bar(0), 0, 0);
  }
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_reuse, 128, test_params) {
  bars_init(2, 1);
  if (tid() == 0) load_tile(&p, 0, 0);
  mbarrier_wait(bar(0), 0);
  u32 v = smem_load_4(tile(0) + 4 * tid());
  if (!p.fault) cta_sync(); // all have read before the buffer is filled again
  if (tid() == 0) load_tile(&p, 0, 1);
  mbarrier_wait(bar(1), 0);
  gmem_store_4(p.out + tid(), v + smem_load_4(tile(0) + 4 * tid()));
}

KERNEL(fault_tma_left_behind, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) load_tile(&p, 0, 0);
  if (!p.fault) mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_misaligned, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    if (!p.fault)
      load_tile(&p, 0, 0);
    else
      tma_load_2d(tile(0) + 128, &p.map, bar(0), 0, 0); // the swizzle's pattern wants 1024
  }
  if (!p.fault) mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_rank, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    if (!p.fault)
      load_tile(&p, 0, 0);
    else
      tma_load_3d(tile(0), &p.map, bar(0), 0, 0, 0);
  }
  if (!p.fault) mbarrier_wait(bar(0), 0);
}

// 4 elements of 2 bytes: no multiple of 16 bytes
KERNEL(fault_tma_coordinate, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    if (!p.fault)
      load_tile(&p, 0, 0);
    else
      tma_load_2d(tile(0), &p.map, bar(0), 4, 0);
  }
  if (!p.fault) mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_smem_bounds, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    if (!p.fault)
      load_tile(&p, 0, 0);
    else
      tma_load_2d(tile(4), &p.map, bar(0), 0, 0);
  }
  if (!p.fault) mbarrier_wait(bar(0), 0);
}

KERNEL(fault_tma_over_mbarrier, 128, test_params) {
  bars_init(1, 1);
  if (tid() == 0) {
    mbarrier_arrive_expect_tx(bar(0), 16);
    tma_load_1d(p.fault ? bar(0) : tile(0), p.in, 16, bar(0));
  }
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_mbarrier_not_initialised, 128, test_params) {
  if (!p.fault) bars_init(1, 128);
  mbarrier_arrive(bar(0));
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_mbarrier_init_order, 128, test_params) {
  if (tid() == 0) mbarrier_init(bar(0), 128);
  if (p.fault) {
    if (tid() >= 32) bar_sync(1, 96);
    if (tid() == 0) mbarrier_inval(bar(0)); // so that no thread comes too early in this run
    if (tid() == 0) mbarrier_init(bar(0), 1);
    if (tid() == 0) mbarrier_arrive(bar(0));
    bar_arrive(2, 128);
    if (tid() >= 96) mbarrier_wait(bar(0), 0);
  } else {
    cta_sync();
    mbarrier_arrive(bar(0));
    mbarrier_wait(bar(0), 0);
  }
}

KERNEL(fault_mbarrier_init_fence, 128, test_params) {
  if (tid() == 0) {
    mbarrier_init(bar(0), 1);
    if (!p.fault) fence_mbarrier_init();
  }
  cta_sync();
  if (tid() == 0) load_tile(&p, 0, 0);
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_mbarrier_arrivals, 128, test_params) {
  bars_init(1, 2);
  if (tid() == 0) mbarrier_expect_tx(bar(0), BOX);
  if (tid() < (p.fault ? 3 : 2)) mbarrier_arrive(bar(0));
  if (tid() == 0) tma_load_2d(tile(0), &p.map, bar(0), 0, 0);
  mbarrier_wait(bar(0), 0);
}

KERNEL(fault_mbarrier_deadlock, 128, test_params) {
  bars_init(1, 128);
  if (!p.fault || tid() != 77) mbarrier_arrive(bar(0));
  mbarrier_wait(bar(0), 0);
}

// ---- TMA stores ----------------------------------------------------------------------------------------------------------------
FN void fill_tile(u32 i, u32 v) {
  u32 r[4] = {v, v, v, v};
  for (u32 j = tid(); j < BOX / 16; j += 128) smem_store_16(tile(i) + 16 * j, r);
}

KERNEL(fault_store_fence, 128, test_params) {
  fill_tile(0, tid());
  if (!p.fault) fence_proxy_async();
  cta_sync();
  if (tid() == 0) {
    tma_store_2d(&p.map_out, tile(0), 0, 0);
    tma_store_commit();
    tma_store_wait(0);
  }
}

KERNEL(fault_store_before_tensor, 128, test_params) {
  fill_tile(0, tid());
  fence_proxy_async();
  cta_sync();
  if (tid() == 0) {
    tma_store_2d(&p.map_out, tile(0), 0, p.fault ? -1 : 1);
    tma_store_commit();
    tma_store_wait(0);
  }
}

KERNEL(fault_store_order, 128, test_params) {
  fill_tile(0, tid());
  fence_proxy_async();
  if (!p.fault) cta_sync();
  if (tid() == 0) {
    tma_store_2d(&p.map_out, tile(0), 0, 0);
    tma_store_commit();
    tma_store_wait(0);
  }
  cta_sync();
}

KERNEL(fault_store_overwritten, 128, test_params) {
  fill_tile(0, 1);
  fence_proxy_async();
  cta_sync();
  if (tid() == 0) {
    tma_store_2d(&p.map_out, tile(0), 0, 0);
    tma_store_commit();
    if (!p.fault) tma_store_wait_read(0);
  }
  cta_sync();
  fill_tile(0, 2);
  cta_sync();
  if (tid() == 0) tma_store_wait(0);
}

KERNEL(fault_store_exit, 128, test_params) {
  fill_tile(0, 1);
  fence_proxy_async();
  cta_sync();
  if (tid() == 0) {
    tma_store_2d(&p.map_out, tile(0), 0, 0);
    tma_store_commit();
    if (!p.fault) tma_store_wait(0);
  }
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------------------
FN void load_operands(const test_params *p) {
  bars_init(4, 1);
  if (tid() == 0) {
    load_tile(p, 0, 0);
    load_tile(p, 1, 1);
  }
  mbarrier_wait(bar(0), 0);
  mbarrier_wait(bar(1), 0);
}

KERNEL(fault_wgmma_wait, 128, test_params) {
  float d[32], sum = 0;
  load_operands(&p);
  wgmma_fence();
  product(d);
  wgmma_commit();
  if (!p.fault) wgmma_wait(0);
  for (u32 i = 0; i < 32; i++) sum += d[i];
  wgmma_wait(0);
  gmem_store_f32(p.out + tid(), sum);
}

KERNEL(fault_wgmma_written, 128, test_params) {
  float d[32];
  load_operands(&p);
  for (u32 i = 0; i < 32; i++) d[i] = 1;
  wgmma_fence();
  for (u32 k = 0; k < 4; k++) wgmma_m64nNk16_bf16_ss(64, d, descriptor(0, k), descriptor(1, k), 1);
  wgmma_commit();
  if (!p.fault) wgmma_wait(0);
  d[tid() % 32] = 2;
  wgmma_wait(0);
  store_sum(&p, d);
}

KERNEL(fault_wgmma_fence, 128, test_params) {
  float d[32];
  load_operands(&p);
  if (!p.fault) wgmma_fence();
  product(d);
  wgmma_commit();
  wgmma_wait(0);
  store_sum(&p, d);
}

// The operand's buffer is filled by the next TMA load before the wait.
KERNEL(fault_wgmma_operand_reuse, 128, test_params) {
  float d[32];
  load_operands(&p);
  wgmma_fence();
  product(d);
  wgmma_commit();
  if (!p.fault) {
    wgmma_wait(0);
    cta_sync();
  }
  if (tid() == 0) load_tile(&p, 1, 2);
  wgmma_wait(0);
  mbarrier_wait(bar(2), 0);
  store_sum(&p, d);
}

// One warp waits, the others' products may still read.
KERNEL(fault_wgmma_operand_written, 128, test_params) {
  float d[32];
  load_operands(&p);
  wgmma_fence();
  product(d);
  wgmma_commit();
  if (p.fault) fill_tile(0, 0);
  wgmma_wait(0);
  if (!p.fault) {
    cta_sync();
    fill_tile(0, 0);
  }
  store_sum(&p, d);
}

KERNEL(fault_wgmma_proxy_fence, 128, test_params) {
  float d[32];
  fill_tile(0, 0), fill_tile(1, 0);
  if (!p.fault) fence_proxy_async();
  cta_sync();
  wgmma_fence();
  product(d);
  wgmma_commit();
  wgmma_wait(0);
  store_sum(&p, d);
}

// Only warp 0 has waited for the operand.
KERNEL(fault_wgmma_one_warp_waits, 128, test_params) {
  float d[32];
  bars_init(2, 1);
  if (tid() == 0) {
    load_tile(&p, 0, 0);
    load_tile(&p, 1, 1);
  }
  if (!p.fault || tid() < 32) mbarrier_wait(bar(0), 0);
  mbarrier_wait(bar(1), 0);
  wgmma_fence();
  product(d);
  wgmma_commit();
  wgmma_wait(0);
  store_sum(&p, d);
}

KERNEL(fault_wgmma_descriptor_bounds, 128, test_params) {
  float d[32];
  load_operands(&p);
  wgmma_fence();
  wgmma_m64nNk16_bf16_ss(64, d, descriptor(0, 0), p.fault ? descriptor(8, 0) : descriptor(1, 0), 0);
  wgmma_commit();
  wgmma_wait(0);
  store_sum(&p, d);
}

KERNEL(fault_wgmma_divergent, 128, test_params) {
  float d[32];
  load_operands(&p);
  wgmma_fence();
  wgmma_m64nNk16_bf16_ss(64, d, descriptor(0, p.fault && tid() >= 96), descriptor(1, 0), 0);
  wgmma_commit();
  wgmma_wait(0);
  store_sum(&p, d);
}

KERNEL(fault_wgmma_left_behind, 128, test_params) {
  float d[32];
  load_operands(&p);
  wgmma_fence();
  product(d);
  wgmma_commit();
  if (!p.fault) {
    wgmma_wait(0);
    store_sum(&p, d);
  }
}

KERNEL(fault_stmatrix_race, 64, test_params) {
  u32 r[4] = {1, 2, 3, 4};
  if (tid() < 32) stmatrix_x4(tile(0) + 16 * tid(), r);
  if (!p.fault) cta_sync();
  if (tid() >= 32) ldmatrix_x4(r, tile(0) + 16 * (tid() - 32));
  if (p.fault) cta_sync();
  gmem_store_4(p.out + tid(), r[0]);
}

// ---- registers --------------------------------------------------------------------------------------------------------------------
KERNEL(fault_registers_deadlock, 384, test_params) {
  if (tid() < 128)
    setmaxnreg_dec(40);
  else
    setmaxnreg_inc(p.fault ? 240 : 232);
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_registers_operand, 384, test_params) {
  if (tid() < 128) setmaxnreg_dec(p.fault ? 41 : 40);
  gmem_store_4(p.out + tid(), 0);
}
