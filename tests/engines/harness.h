/* Runs every case on every engine. A case that an engine refuses with GLINT_ERROR_UNSUPPORTED passes; any other refusal fails.
 * The cases are problems that users of other attention libraries reported, named as in docs: E empty rows, B backward, V packed lengths,
 * W windows, S sizes, G groups, P pages, D determinism, R dropout, C softcap. */
#ifndef GLINT_TEST_HARNESS_H
#define GLINT_TEST_HARNESS_H

#include "testkit.h"

#include "cmocka_all.h"

typedef struct engine {
  char name[40]; /* "cpu/avx2" */
  glint_engine kind;
  glint_context *context;
  int best;                     /* not a lesser instruction set of an engine that is here with a better one */
  const testkit_memory *memory; /* NULL: the engine takes the host pointers of a case; otherwise run_ and judge copy there and back */
  int64_t max_work;             /* batch * heads_q * seqlen_q * seqlen_k * (head_dim + head_dim_v) that is worth waiting for */
  testkit_case made;            /* owns the tensors of the running case */
  uint64_t random;
} engine;

typedef struct engine_case {
  const char *name;
  void (*run)(engine *e);
} engine_case;

/* For main: all cases on all engines; with the environment variable GLINT_TEST_ENGINE on those whose name starts so. Returns the exit
 * status. */
int run_cases(const engine_case *cases, int count);

/* Shapes of a problem: dense unless the case changes that. */
typedef struct sizes {
  int64_t batch, sq, sk, heads_q, heads_kv, d, dv;
} sizes;

/* Tensors of normal numbers times magnitude; o of q's dtype, lse float32, both NaN. */
glint_problem make_problem(engine *e, glint_dtype dtype, sizes n, double magnitude);
glint_gradients make_gradients(engine *e, const glint_problem *p);
glint_tensor make_tensor(engine *e, glint_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d, double magnitude);
glint_tensor make_int32(engine *e, const int32_t *values, int64_t count);

/* 0: the problem is too large for this engine. */
int affordable(const engine *e, const glint_problem *p);

/* Run on the engine: 1 done, 0 refused as unsupported. Anything else fails the test. */
int run_forward(engine *e, const glint_problem *p);
int run_backward(engine *e, const glint_problem *p, const glint_gradients *g);

/* Against the oracle, with poison and guards; gradients may be NULL. A problem that is too large for the engine is passed over. */
void judge(engine *e, const glint_problem *p, const glint_gradients *g);

double value_at(const glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d);
void set_value(const glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double value);
void fill_value(const glint_tensor *t, double value);
size_t bytes_of(const glint_tensor *t);
/* Bits of two contiguous tensors of one shape. */
void assert_same(const glint_tensor *a, const glint_tensor *b);

static const glint_dtype float_dtypes[] = {GLINT_FLOAT32, GLINT_BFLOAT16, GLINT_FLOAT16};
enum { FLOAT_DTYPES = 3 };

#endif
