/* The backward pass of the CPU engine. */
#ifndef GLINT_CPU_BACKWARD_H
#define GLINT_CPU_BACKWARD_H
#include "../api/convert.h"
#include "forward.h"

/* One item: rows [run.item.row, + run.item.rows) of a kv head of a sequence, and where it gathers. */
typedef struct glint_cpu_backward_run {
  glint_cpu_run run; /* run.plan is &plan->shape, run.arena is &arena->base, run.share holds the sequence */
  const glint_cpu_backward_plan *plan;
  glint_cpu_backward_arena *arena;
  float *dk, *dv; /* [rows of keys][columns_d], [rows of keys][columns]: without the factor scale */
  double *sinks;  /* this item's share of dsinks: one every `splits` for the heads of its group; NULL: not wanted */
  float *bias;    /* float dbias, contiguous; NULL: not wanted */
} glint_cpu_backward_run;

/* Computes an item: dQ is written, the rest is gathered. */
void glint_cpu_backward_item(const glint_cpu_backward_run *b);

/* dst[0..n) (+)= scale * src, rounded to dst's type; adds when the problem accumulates. rows_behind: rows that will be written after this
 * one, in order; the cache is asked for one of them. */
void glint_cpu_write_gradient(const glint_work *w, const glint_cpu_kernels *kernels, const glint_view *view, int64_t at, const float *src,
                              int64_t n, float scale, int64_t rows_behind);

void glint_cpu_backward_pass(const glint_work *w, const glint_cpu_backward_plan *plan, void *workspace);
#endif
