/* What the tests of the cuda engine share: the driver that the engine uses (a GPU's, or the stand-in of sim/ when GLINT_CUDA_LIBRARY names it),
 * a problem in device memory, and the oracle's answer to it. */
#ifndef GLINT_TESTS_DEVICE_FIXTURE_H
#define GLINT_TESTS_DEVICE_FIXTURE_H

#include "cuda/driver.h"
#include "cuda/memory.h"
#include "testkit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers that it needs */
#include <cmocka.h>

typedef struct fixture {
  glint_driver driver;
#define FIXTURE_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
  GLINT_DRIVER_GRAPH_FUNCTIONS(FIXTURE_MEMBER)
#undef FIXTURE_MEMBER
  glint_device_memory *memory[2]; /* of devices 0 and 1; the second is NULL where there is none */
  glint_context *context;         /* cuda engine */
} fixture;

/* 0: no driver or no GPU here. */
int fixture_open(fixture *f);
void fixture_close(fixture *f);

/* A dense bfloat16 problem in device memory, random normal inputs, o and lse poisoned; and what the oracle says. */
typedef struct device_problem {
  glint_problem api; /* device pointers */
  glint_device_memory *memory;
  int64_t o_elements, lse_elements;
  uint16_t *o, *first_o; /* downloaded */
  float *lse, *expected_o, *expected_lse;
  uint16_t *inputs[3]; /* q, k, v on the host */
} device_problem;

typedef struct device_shape {
  int64_t batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim;
  int causal;
} device_shape;

void device_problem_make(device_problem *d, glint_device_memory *memory, device_shape shape, uint64_t seed);
void device_problem_free(device_problem *d);
void device_problem_poison(device_problem *d);
void device_problem_upload_inputs(device_problem *d);
/* Runs the oracle on the inputs; seqused_k (host values, one a sequence) may be NULL. */
void device_problem_expect(device_problem *d, const int32_t *seqused_k);
/* Downloads o and lse and compares every element with expected. */
void device_problem_check(device_problem *d);
/* o bit for bit as at the call before (first call: remembers). */
void device_problem_check_same(device_problem *d);

void assert_glint_ok(glint_context *context, glint_status status);
void assert_cuda_ok(const fixture *f, CUresult result);

#endif
