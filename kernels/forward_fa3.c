// FlashAttention-3's forward pass for Hopper (Shah et al. 2024): TMA, asynchronous products, warp specialization.
//
// A thread block works on tiles of TILE_Q query rows of one head. A producer issues TMA loads of Q, K and V into shared memory. The consumer
// warpgroups own 64 rows each, run both products with wgmma, and keep S, P and O in registers. The next Q K^T is in flight while this
// tile's softmax runs; consumers take turns, so that one multiplies while another exponentiates. Blocks are persistent and fetch
// tiles, those with most keys first, in groups of heads whose keys and values fit in L2.
#include "params.h"

#include "isa/sm90.h"

#include "parts/fa3_variant.h"

#include "parts/fa3_tile.h"
#include "parts/fa3_trace.h"

#include "parts/fa3_producer.h"
#include "parts/fa3_product.h"
#include "parts/fa3_softmax.h"

#include "parts/fa3_limits.h"

#include "parts/fa3_epilogue.h"

#include "parts/fa3_consumer.h"

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) {
  u32 smem = smem_base(), warpgroup = shfl_idx_u32(tid() / 128, 0); // the shuffle tells the compiler that a warp agrees on it
  if (tid() == 0) barriers_init(smem);
  cta_sync();
  if (warpgroup == CONSUMERS) {
#if PRODUCER_REGISTERS
    setmaxnreg_dec(PRODUCER_REGISTERS);
#endif
    produce(&p, smem, tid() % 128 / 32);
  } else {
#if CONSUMER_REGISTERS
    setmaxnreg_inc(CONSUMER_REGISTERS);
#endif
    consume(&p, smem, warpgroup);
  }
}
