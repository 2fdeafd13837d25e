/* gpu_bench --quantize: glint_quantize against a copy, and quantization with FP8 attention against bfloat16 attention. */
#ifndef GLINT_BENCH_GPU_QUANTIZE_H
#define GLINT_BENCH_GPU_QUANTIZE_H

#include "engine.h"

#include <stdint.h>

typedef struct gpu_quantize_grid {
  int device, reps, warmup;
  const int64_t *head_dims, *seqlens, *causals;
  int head_dim_count, seqlen_count, causal_count;
  int64_t tokens, width, group; /* batch * seqlen; heads * head_dim; query heads for each key/value head */
} gpu_quantize_grid;

/* Prints CSV, a row for each cell and way. */
glint_status gpu_quantize_run(const gpu_quantize_grid *grid, glint_error *error);

#endif
