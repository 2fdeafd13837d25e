// Four float32 additions in L2 by one instruction, from Hopper (sm_90) on: for kernels that are compiled for older machines too and therefore
// do not include sm90.h, which has the same function. PTX manual, section red.
#ifndef GLINT_ISA_VECTOR_RED_H
#define GLINT_ISA_VECTOR_RED_H

#include "common.h"

#ifdef __CUDACC__
FN void red_add_v4_f32(float *d, float v0, float v1, float v2, float v3) { // d 16-byte aligned
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(d), "f"(v0), "f"(v1), "f"(v2), "f"(v3) : "memory");
}
#else
#define red_add_v4_f32(d, v0, v1, v2, v3) sim_red_add_f32(SIM_HERE("red.global.add.v4.f32"), d, ((const float[4]){v0, v1, v2, v3}), 4)
#endif

#endif
