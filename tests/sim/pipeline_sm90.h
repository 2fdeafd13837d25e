// Parameters of the test pipeline: q, o [queries][128], k, v [keys][128], bf16; multiples of 128 of both.
#ifndef GLINT_TEST_PIPELINE_H
#define GLINT_TEST_PIPELINE_H

#include "types.h"

typedef struct pipeline_params {
  tensor_map q, k, v, o; // boxes of 64 columns; 64 rows of q and o, 128 of k and v; 128-byte swizzle
  u32 keys;
  float scale_log2;
} pipeline_params;
enum { PIPELINE_SMEM = 6 * 128 * 128 * 2 + 128 };

#endif
