/* glint run --dtype e4m3: files on the way in, to FP8. */
#ifndef GLINT_TOOLS_RUN_QUANTIZE_H
#define GLINT_TOOLS_RUN_QUANTIZE_H

#include "problem.h"

typedef enum run_scales { RUN_SCALES_TENSOR, RUN_SCALES_HEAD, RUN_SCALES_BLOCK } run_scales;

typedef struct run_quantization {
  int rotate, smooth;
  run_scales scales;
  int64_t block_rows; /* RUN_SCALES_BLOCK */
} run_quantization;

int run_is_fp8(glint_dtype dtype);

/* Turns q, k and v into dtype (FP8) with factors, on the CPU engine; o becomes bfloat16. shift: what --smooth takes from lse, to be added to it;
 * its data are NULL otherwise. Inputs that have that dtype already stay as they are. */
glint_status run_quantize(const run_quantization *how, glint_dtype dtype, loaded_problem *p, io_array *shift, glint_error *error);

/* The same problem with q, k and v rounded to bfloat16 and o in float32, without lse. */
typedef struct run_bf16 {
  glint_problem api;
  io_array inputs[3], o;
} run_bf16;
glint_status run_bf16_make(const loaded_problem *p, run_bf16 *b, glint_error *error);
void run_bf16_free(run_bf16 *b);

/* Root of the mean square, and largest absolute value, of a - b. */
void run_differences(const io_array *a, const io_array *b, double *rmse, double *largest);

#endif
