/* What the measurements of `glint bench` share. */
#ifndef GLINT_TOOLS_BENCH_H
#define GLINT_TOOLS_BENCH_H

#include "engine.h"
#include "report.h"

enum { BENCH_LIST = 16 };

typedef struct bench_list {
  int64_t values[BENCH_LIST];
  int count;
} bench_list;

typedef struct bench_arguments {
  bench_list dtypes, head_dims, causal, seqlens, batches, isas, threads;
  int64_t heads_q, heads_kv;
  double seconds;   /* per measurement */
  double footprint; /* decode: bytes of K and V that are gone through in turn, so that they come from memory */
} bench_arguments;

/* One problem to measure. */
typedef struct bench_shape {
  glint_dtype dtype;
  int64_t batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim;
  int causal;
  glint_isa isa;
  int32_t threads; /* 0: OpenMP's default */
} bench_shape;

typedef struct bench_result {
  glint_plan_info plan;
  double seconds;
  double ceiling, share; /* of FLOP/s, or bytes/s for decode; 0: unknown */
} bench_result;

/* Opens a context, fills tensors with normal numbers, and lets calls and samples of the ceiling take turns, since a machine's clock moves:
 * medians over the turns. decode: the ceiling is that of reading memory. copies: sets of K and V that the calls go through in turn. */
glint_status bench_measure(const bench_shape *shape, int decode, int copies, double budget, bench_result *result, glint_error *error);

/* 4 * batch * heads_q * seqlen_q * seqlen_k * head_dim, half of it when causal: the field's convention. */
double bench_flops(const bench_shape *shape);
double bench_kv_bytes(const bench_shape *shape);

#endif
