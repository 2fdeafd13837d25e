/* Inside of the testkit. */
#ifndef TESTKIT_INTERNAL_H
#define TESTKIT_INTERNAL_H

#include "convert.h"
#include "testkit.h"
#include "work.h"

/* Memory owned by a case, filled with NaN (all bits set), 256-byte aligned, with 256 spare bytes. NULL: out of memory. */
void *testkit_block(testkit_case *made, size_t bytes);

/* Elements; offset of element n in row-major order; elements from the first to the last in memory. */
int64_t testkit_count(const glint_tensor *t);
int64_t testkit_offset(const glint_tensor *t, int64_t n);
int64_t testkit_span(const glint_tensor *t);
void testkit_fill(const glint_tensor *t, double magnitude, uint64_t *random);

/* Every tensor of a problem and its gradients, for loops over them. */
typedef enum testkit_role {
  TESTKIT_IN,
  TESTKIT_RESULT,  /* o and lse: written by the forward pass, read by the backward pass */
  TESTKIT_CACHE,   /* k and v: written when new keys are appended */
  TESTKIT_GRADIENT /* written by the backward pass */
} testkit_role;
typedef struct testkit_slot {
  const char *name;
  size_t offset; /* in glint_problem or glint_gradients */
  size_t view;   /* in glint_work */
  int in_gradients;
  testkit_role role;
} testkit_slot;
extern const testkit_slot testkit_slots[];
extern const int testkit_slot_count;
glint_tensor *testkit_slot_of(const testkit_slot *slot, glint_problem *problem, glint_gradients *gradients);

/* A copy of a problem with every tensor in guarded memory of the engine's kind. */
typedef struct testkit_bound {
  glint_tensor *tensor; /* in the copy */
  unsigned char *block; /* engine memory */
  unsigned char *before, *after;
  size_t bytes, start; /* of the block; first element in it */
  int written;
} testkit_bound;
typedef struct testkit_copy {
  glint_problem problem;
  glint_gradients gradients;
  testkit_bound bound[32];
  const testkit_memory *memory;
  unsigned char *workspace_block;
  size_t workspace_bytes;
} testkit_copy;

extern const testkit_memory testkit_host_memory;

/* float64: outputs become contiguous float64 tensors (for the oracle). 0: out of memory. */
int testkit_copy_make(testkit_copy *copy, const testkit_memory *memory, const glint_problem *problem, const glint_gradients *gradients,
                      int float64);
int testkit_copy_workspace(testkit_copy *copy, size_t bytes);
/* Downloads every block. Then after holds it, also where the engine's memory is the host's. */
int testkit_copy_fetch(testkit_copy *copy);
void testkit_copy_free(testkit_copy *copy);
/* Writes a message and returns 0 when a byte changed that must not. all: no byte at all may have changed. */
int testkit_copy_check(const testkit_copy *copy, int all, char *message, size_t size);

/* What a plain implementation of attention in the problem's own precision makes of it: the yardstick for errors. w is the oracle's work
 * after the oracle ran (new keys are in the cache already) with its outputs replaced by float64 views for the results. rounds: the dtype
 * that each result is rounded to. 0: out of memory. */
typedef struct testkit_rounds {
  glint_dtype o, dq, dk, dv;
} testkit_rounds;
int testkit_plain(const glint_work *w, const testkit_rounds *rounds);

/* The error rule. reference and plain are contiguous float64; got is the engine's tensor with data in its fetched block. */
typedef struct testkit_rule {
  double relative; /* floor, times the largest reference value */
  double absolute; /* floor */
} testkit_rule;
int testkit_compare(const char *name, const glint_tensor *got, const double *reference, const double *plain, const testkit_rule *rule,
                    testkit_report *report);

#endif
