// dQ's float32 accumulators of the Ampere backward kernels: in the order in which mma.sync leaves its results, so that a warp adds 512
// neighbouring bytes at a time. backward_fa2.c adds, backward_finish.c reads.
//
// A row block holds [TILE_Q / 16][columns / 64] pieces of 16 rows x 64 columns; a piece is eight fragments of 16 x 8, 128 numbers each. Number
// i of lane l in a fragment: row l / 4 + i / 2 * 8, column l % 4 * 2 + i % 2. Hopper adds four numbers of a lane by one instruction, so they
// are neighbours there; before it, an instruction adds one number of each lane, so those are.
#ifndef GLINT_BACKWARD_ACCUMULATORS_H
#define GLINT_BACKWARD_ACCUMULATORS_H

#include "../isa/vector_red.h"

#define PIECE_FLOATS (16 * 64)

// adds_four follows the machine that the adding kernel is code for: code for compute_80 adds one at a time on Hopper too.
FN void add_fragment(const glint_backward_params *p, float *fragment, u32 lane, const float x[4]) {
  (void)p;
#ifdef __CUDACC__
  const int four = __CUDA_ARCH__ >= 900;
#else
  const int four = p->adds_four;
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (four) {
    red_add_v4_f32(fragment + lane * 4, x[0], x[1], x[2], x[3]);
    return;
  }
#endif
  (void)four;
  UNROLL
  for (u32 i = 0; i < 4; i++) red_add_f32(fragment + i * 32 + lane, x[i]);
}

FN void load_fragment(const glint_backward_params *p, float x[4], const float *fragment, u32 lane) {
  u32 bits[4];
  if (p->adds_four) {
    gmem_load_16_stream(bits, fragment + lane * 4);
    UNROLL
    for (u32 i = 0; i < 4; i++) x[i] = f32_from_bits(bits[i]);
  } else {
    UNROLL
    for (u32 i = 0; i < 4; i++) x[i] = gmem_load_f32(fragment + i * 32 + lane);
  }
}

#endif
