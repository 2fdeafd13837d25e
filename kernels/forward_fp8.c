// FlashAttention-3's forward pass on FP8 inputs for Hopper (Shah et al. 2024, section 3.3): e4m3 Q, K and V, O in bf16, fp16 or float32.
//
// As forward_fa3.c: a producer warpgroup feeds consumer warpgroups of 64 query rows each, which run both products with wgmma and keep S, P and
// O in registers; the next Q K^T is in flight during the softmax. Blocks are persistent and fetch tiles. What 8-bit operands change: wgmma
// wants them K-major, so three warps of the producer transpose each block of V in shared memory; P must fit e4m3's range; and values are
// stored with factors. docs/kernels/fp8.md explains all three.
#include "fp8_params.h"
#include "params.h"

#include "isa/sm90.h"

#include "parts/fp8_variant.h"

#include "parts/fa3_tile.h"

#include "parts/fp8_producer.h"
#include "parts/fp8_product.h"
#include "parts/fp8_softmax.h"

#include "parts/fp8_epilogue.h"

#include "parts/fp8_consumer.h"

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) {
  u32 smem = smem_base(), warpgroup = shfl_idx_u32(tid() / 128, 0); // the shuffle tells the compiler that a warp agrees on it
  if (tid() == 0) barriers_init(smem);
  cta_sync();
  if (warpgroup == CONSUMERS) {
    setmaxnreg_dec(PRODUCER_REGISTERS);
    produce(&p, smem, tid() % 128 / 32);
  } else {
    setmaxnreg_inc(CONSUMER_REGISTERS);
    consume(&p, smem, warpgroup);
  }
}
