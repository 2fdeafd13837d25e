/* glint bench --accuracy: the error of FP8 attention against float64, way by way of quantizing. */
#ifndef GLINT_TOOLS_BENCH_ACCURACY_H
#define GLINT_TOOLS_BENCH_ACCURACY_H

#include "bench.h"

extern const report_column bench_accuracy_columns[];
extern const int bench_accuracy_column_count;

typedef struct bench_accuracy_arguments {
  const bench_list *head_dims;
  const bench_list *seqlens; /* of the first table */
  const bench_list *lengths; /* of the second: error along the length */
  int64_t heads;
  const char *file;    /* a safetensors file of real q, k, v; NULL: none */
  const char *plot;    /* an SVG is drawn here; NULL: none */
  glint_engine engine; /* AUTO: the model of the GPU kernel's arithmetic; else also this engine's own FP8 attention */
  uint64_t seed;
} bench_accuracy_arguments;

glint_status bench_accuracy_run(const bench_accuracy_arguments *arguments, report *r, glint_error *error);

/* ---- bench_accuracy_model.c ---- */

/* q [rows, heads, d], k and v [keys, heads, d]: float32, contiguous, one sequence. */
typedef struct accuracy_problem {
  int64_t rows, keys, heads, d;
  float *q, *k, *v;
} accuracy_problem;

/* o [rows, heads, d] and of each row [rows, heads] the key with the largest score. */
typedef struct accuracy_answer {
  double *o;
  int64_t *top;
} accuracy_answer;

/* Attention in float64 by the formula. */
void accuracy_reference(const accuracy_problem *p, accuracy_answer *answer);

/* How the model computes: as kernels/forward_fp8.c does, in its order of keys. */
typedef struct accuracy_model {
  int64_t tile;    /* keys of a tile; tiles go from the last to the first */
  float top, move; /* P of a row's largest score is 2^top when its shift is chosen anew, which happens where a P reaches 2^move */
  int level;       /* 1: o is divided by the sum of P as it was rounded (times what V's factors did to it) */
  int narrow;      /* 1: products add up as FP8 tensor cores of Hopper do, with 13 bits behind the largest exponent; 0: in float32 */
  int second;      /* 1: each tile's P V is added to a float32 sum (GLINT_FP32_ACCUMULATE); matters only where narrow */
} accuracy_model;

/* fp8: a problem of one sequence in host memory with e4m3 q, k, v, their factors, and o. 0: out of memory. */
int accuracy_run_model(const accuracy_model *model, const glint_problem *fp8, accuracy_answer *answer);

/* ---- bench_accuracy_plot.c ---- */

typedef struct accuracy_bar {
  char group[48], way[48];
  double rmse;
} accuracy_bar;
typedef struct accuracy_point {
  char line[48];
  double length, error;
} accuracy_point;
typedef struct accuracy_plot {
  accuracy_bar bars[128];
  accuracy_point points[128];
  int bar_count, point_count;
} accuracy_plot;

glint_status accuracy_draw(const accuracy_plot *plot, const char *path, glint_error *error);

#endif
