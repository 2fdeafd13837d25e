// Planted faults, Ampere's instructions: each kernel has one fault when p.fault is set and none otherwise.
#include "sim_params.h"
#include "sm80.h"

KERNEL(fault_race, 64, test_params) {
  u32 s = smem_base();
  smem_store_4(s + 4 * tid(), tid());
  if (!p.fault) cta_sync();
  gmem_store_4(p.out + tid(), smem_load_4(s + 4 * (tid() ^ 32)));
}

// The next round's store may overtake the last round's load.
KERNEL(fault_race_reuse, 64, test_params) {
  u32 s = smem_base(), sum = 0;
  for (u32 i = 0; i < 3; i++) {
    smem_store_4(s + 4 * tid(), tid() + i);
    cta_sync();
    sum += smem_load_4(s + 4 * (tid() ^ 32));
    if (!p.fault) cta_sync();
  }
  gmem_store_4(p.out + tid(), sum);
}

// Lanes of one warp are not ordered without warp_sync.
KERNEL(fault_race_in_warp, 32, test_params) {
  u32 s = smem_base();
  smem_store_4(s + 4 * tid(), tid());
  if (!p.fault) warp_sync();
  gmem_store_4(p.out + tid(), smem_load_4(s + 4 * (tid() ^ 1)));
}

KERNEL(fault_smem_bounds, 32, test_params) {
  u32 s = smem_base();
  smem_store_4(s + 4 * tid() + (p.fault ? 900 : 0), tid()); // of 1024 bytes
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_gmem_bounds, 32, test_params) { gmem_store_4(p.out + tid(), gmem_load_4(p.in + tid() + (p.fault ? p.n - 16 : 0))); }

KERNEL(fault_gmem_store_bounds, 32, test_params) { gmem_store_4(p.out + tid() + (p.fault ? p.n : 0), 1); }

KERNEL(fault_smem_misaligned, 32, test_params) {
  u32 r[4] = {1, 2, 3, 4};
  smem_store_16(smem_base() + 16 * tid() + (p.fault ? 4 : 0), r);
}

KERNEL(fault_gmem_misaligned, 32, test_params) {
  u32 r[4];
  gmem_load_16(r, p.in + (p.fault ? 1 : 0));
  gmem_store_4(p.out + tid(), r[0]);
}

KERNEL(fault_uninitialised, 32, test_params) {
  u32 s = smem_base();
  if (!p.fault || tid() < 31) smem_store_4(s + 4 * tid(), tid());
  cta_sync();
  gmem_store_4(p.out + tid(), smem_load_4(s + 4 * tid()));
}

KERNEL(fault_uninitialised_ldmatrix, 32, test_params) {
  u32 s = smem_base(), r[4], zero[4] = {0, 0, 0, 0};
  if (!p.fault || tid() != 7) smem_store_16(s + 16 * tid(), zero);
  cta_sync();
  ldmatrix_x4(r, s + 16 * tid());
  gmem_store_4(p.out + tid(), r[0]);
}

KERNEL(fault_cp_async_wait, 32, test_params) {
  u32 s = smem_base(), r[4];
  cp_async_16(s + 16 * tid(), p.in + 4 * tid());
  cp_async_commit();
  if (!p.fault) cp_async_wait(0);
  smem_load_16(r, s + 16 * tid());
  cp_async_wait(0);
  gmem_store_4(p.out + tid(), r[0]);
}

// Two groups in flight, one waited for, the younger one read.
KERNEL(fault_cp_async_group, 32, test_params) {
  u32 s = smem_base(), r[4];
  cp_async_16(s + 16 * tid(), p.in + 4 * tid());
  cp_async_commit();
  cp_async_16(s + 512 + 16 * tid(), p.in + 4 * tid());
  cp_async_commit();
  cp_async_wait(1);
  smem_load_16(r, s + (p.fault ? 512 : 0) + 16 * tid());
  cp_async_wait(0);
  gmem_store_4(p.out + tid(), r[0]);
}

// Each thread waits for its own copies, and none waits for the others.
KERNEL(fault_cp_async_barrier, 64, test_params) {
  u32 s = smem_base(), r[4];
  cp_async_16(s + 16 * tid(), p.in + 4 * tid());
  cp_async_commit();
  cp_async_wait(0);
  if (!p.fault) cta_sync();
  smem_load_16(r, s + 16 * (tid() ^ 32));
  gmem_store_4(p.out + tid(), r[0]);
}

// The buffer is filled again while ldmatrix of the other warp may still read it.
KERNEL(fault_cp_async_reuse, 64, test_params) {
  u32 s = smem_base(), r[4], sum = 0;
  for (u32 i = 0; i < 2; i++) {
    cp_async_16(s + 16 * tid(), p.in + 4 * tid());
    cp_async_commit();
    cp_async_wait(0);
    cta_sync();
    ldmatrix_x4(r, s + 16 * (tid() ^ 32));
    sum += r[0];
    if (!p.fault) cta_sync();
  }
  gmem_store_4(p.out + tid(), sum);
}

KERNEL(fault_divergent_shuffle, 32, test_params) {
  u32 v = tid();
  if (p.fault && tid() == 5)
    v = shfl_xor_u32(v, 2);
  else
    v = shfl_xor_u32(v, 1);
  gmem_store_4(p.out + tid(), v);
}

KERNEL(fault_missing_lane, 32, test_params) {
  if (p.fault && tid() == 31) return;
  gmem_store_4(p.out + tid(), shfl_xor_u32(tid(), 1));
}

KERNEL(fault_divergent_barrier, 64, test_params) {
  if (p.fault && tid() % 32 < 16)
    cta_sync();
  else
    cta_sync();
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_barrier_lanes, 64, test_params) {
  if (!p.fault || tid() != 40) cta_sync();
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_barrier_counts, 64, test_params) {
  if (tid() < 32)
    bar_sync(1, 64);
  else
    bar_sync(1, p.fault ? 32 : 64);
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_deadlock, 64, test_params) {
  if (tid() < 32)
    bar_sync(1, 64);
  else
    bar_sync(p.fault ? 2 : 1, 64);
  gmem_store_4(p.out + tid(), 0);
}

KERNEL(fault_spin, 32, test_params) {
  if (!p.fault && tid() == 0) gmem_store_release_u32(p.out, 1);
  while (gmem_load_acquire_u32(p.out) == 0) continue;
}

KERNEL(fault_not_on_arch, 32, test_params) {
  u32 r[2] = {0, 0};
  if (p.fault) sim_stmatrix(SIM_HERE("stmatrix.x2"), smem_base() + 16 * (tid() % 16), r, 2, 0);
  gmem_store_4(p.out + tid(), r[0]);
}
