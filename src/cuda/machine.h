/* What the plan needs to know of a GPU. */
#ifndef GLINT_CUDA_MACHINE_H
#define GLINT_CUDA_MACHINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct glint_machine {
  char name[128];
  int32_t compute;         /* compute capability: 80, 86, 89, 90, 100, ... */
  int32_t multiprocessors; /* SMs */
  int32_t threads_per_sm, registers_per_sm;
  int64_t shared_per_sm, shared_per_block; /* bytes; per block: with the opt-in attribute */
  int64_t l2_bytes;
  size_t memory_bytes;
  double flops_16bit;      /* dense matrix FLOP/s for 16-bit inputs with float32 accumulation; 0: unknown. FP8: twice that */
  double bytes_per_second; /* of device memory; 0: unknown */
} glint_machine;

/* Dense 16-bit matrix FLOPs that one SM of this compute capability does in a clock (NVIDIA's architecture white papers); 0: unknown. */
double glint_machine_flops_per_clock(int32_t compute);

#endif
