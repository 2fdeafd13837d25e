// Parameters of the tests' small kernels.
#ifndef GLINT_TEST_SIM_PARAMS_H
#define GLINT_TEST_SIM_PARAMS_H

#include "types.h"

typedef struct test_params {
  tensor_map map, map_out; // where a kernel uses TMA
  u32 fault;               // 1: with the planted fault, 0: its correct twin
  u32 n;                   // a size, or a choice
  const u32 *in;
  u32 *out;
} test_params;

#endif
