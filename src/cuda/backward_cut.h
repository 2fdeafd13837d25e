/* How the work of the backward pass is cut, from shapes and machine alone; shared by its plan and its launches. */
#ifndef GLINT_CUDA_BACKWARD_CUT_H
#define GLINT_CUDA_BACKWARD_CUT_H

#include "cuda/plan.h"

typedef struct backward_cut {
  int32_t q_blocks, k_blocks, rows_padded, heads_together, dq_slots, chunk, chunks;
  int64_t tiles;
  int64_t grid;
  int32_t fixed_tickets;
  size_t lse_bytes;   /* of lse2, and of delta */
  size_t accum_bytes; /* dq_accum */
  size_t queue_words;
  size_t clear_bytes; /* accumulators and the counters behind them */
} backward_cut;

/* v: the main kernel. */
backward_cut glint_backward_cut(const glint_machine *machine, const glint_variant *v, const glint_work *work);

/* What a main kernel is like. */
typedef enum backward_kind {
  BACKWARD_SLOTS,  /* Hopper: accumulators for the heads in flight, dq converted on the way */
  BACKWARD_HEADS,  /* backward_fa2.c: accumulators for all heads, dq converted afterwards */
  BACKWARD_HALVES, /* backward_simple.c: dq without accumulators, dk and dv by another kernel */
} backward_kind;
backward_kind glint_backward_kind(const glint_variant *v);

/* The kernels beside the main one; NULL: there is none for this problem. */
const glint_variant *glint_backward_prepare(const glint_variant *variants, const glint_variant *v, const glint_work *work);
const glint_variant *glint_backward_keys(const glint_variant *variants, const glint_variant *v); /* the other half of BACKWARD_HALVES */
const glint_variant *glint_backward_finish(const glint_variant *variants, const glint_work *work);

#endif
