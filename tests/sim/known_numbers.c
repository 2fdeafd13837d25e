// Kernels whose bank conflicts and transactions are known from the literature.
#include "sim_params.h"
#include "sm80.h"

// Fills `bytes` of shared memory.
FN void fill(u32 s, u32 bytes) {
  for (u32 i = 4 * tid(); i < bytes; i += 4 * block_threads()) smem_store_4(s + i, i);
  cta_sync();
}

// A warp reads columns of a 32 x 32 float tile with rows of p.n floats.
KERNEL(known_column, 32, test_params) {
  u32 s = smem_base();
  fill(s, 4 * 32 * p.n);
  float sum = 0;
  for (u32 column = 0; column < 32; column++) sum += smem_load_f32(s + 4 * (p.n * tid() + column));
  gmem_store_f32(p.out + tid(), sum);
}

// ldmatrix of 8 x 8 matrices with a row stride of 128 bytes. p.n & 1: 16-byte chunks XORed with the row, Swizzle<3,3,3> of 16-bit elements;
// p.n & 2: transposed.
KERNEL(known_ldmatrix, 32, test_params) {
  u32 s = smem_base(), r[4], row = tid() % 8, sum = 0;
  fill(s, 8 * 128);
  for (u32 chunk = 0; chunk < 8; chunk += 4) {
    u32 c = chunk + tid() / 8;
    if (p.n & 1) c ^= row;
    if (p.n & 2)
      ldmatrix_x4_trans(r, s + 128 * row + 16 * c);
    else
      ldmatrix_x4(r, s + 128 * row + 16 * c);
    sum += r[0];
  }
  gmem_store_4(p.out + tid(), sum);
}

// The same 1024 bytes copied to shared memory by 16-bit loads (p.n 0) or 128-bit ones.
KERNEL(known_vector_loads, 32, test_params) {
  u32 s = smem_base();
  if (p.n) {
    for (u32 i = tid(); i < 64; i += 32) {
      u32 r[4];
      gmem_load_16(r, p.in + 4 * i);
      smem_store_16(s + 16 * i, r);
    }
  } else {
    for (u32 i = tid(); i < 512; i += 32) smem_store_2(s + 2 * i, gmem_load_2((const u16 *)p.in + i));
  }
}

// Coalescing: lanes p.n words apart.
KERNEL(known_stride, 32, test_params) { gmem_store_4(p.out + tid(), gmem_load_4(p.in + p.n * tid())); }

// 16-byte copies of which the first p.n lanes read and the others only fill with zeros.
KERNEL(known_zero_fill, 32, test_params) {
  cp_async_16_zfill(smem_base() + 16 * tid(), p.in + 4 * tid(), tid() < p.n ? 16 : 0);
  cp_async_commit();
  cp_async_wait(0);
}
