/* testkit: random attention problems, and a judge that runs an engine on a problem and compares every output with the oracle.
 * Used by the tests and by `glint check`.
 *
 *   testkit_options options = {.features = TESTKIT_FORWARD_ALL};
 *   for (uint64_t n = 0; n < 100; n++) {
 *     testkit_report report;
 *     testkit_run_case(context, &options, seed, n, &report);
 *     if (report.outcome == TESTKIT_FAILED) printf("%s\n  %s\n", report.problem, report.message);
 *   }
 *
 * How a result is judged: outputs are filled with NaN first; every tensor lies in a block of its own between guard bytes; inputs, guards,
 * gaps between strides and rows outside every sequence must be unchanged afterwards; a result is NaN exactly where the oracle's is; and
 * the largest error against the oracle is at most twice that of a plain low-precision implementation plus a small floor. What no
 * result may read (unused pages, keys beyond a length, gaps) holds NaN. */
#ifndef TESTKIT_H
#define TESTKIT_H

#include "glint.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a random problem may use. */
enum {
  TESTKIT_CAUSAL = 1u << 0,
  TESTKIT_WINDOW = 1u << 1,
  TESTKIT_SOFTCAP = 1u << 2,
  TESTKIT_ALIBI = 1u << 3,
  TESTKIT_BIAS = 1u << 4,
  TESTKIT_SINKS = 1u << 5,
  TESTKIT_GQA = 1u << 6,        /* heads_q != heads_kv */
  TESTKIT_HEAD_DIM_V = 1u << 7, /* head_dim_v != head_dim */
  TESTKIT_ODD_DIM = 1u << 8,    /* head dims that are not multiples of 8 */
  TESTKIT_PACKED = 1u << 9,     /* cu_seqlens_q and / or cu_seqlens_k */
  TESTKIT_SEQUSED = 1u << 10,
  TESTKIT_PAGED = 1u << 11,
  TESTKIT_APPEND = 1u << 12, /* k_new, v_new; with TESTKIT_ROTARY also the rotary embedding */
  TESTKIT_ROTARY = 1u << 13,
  TESTKIT_DROPOUT = 1u << 14,
  TESTKIT_STRIDES = 1u << 15,  /* permuted axes, gaps, broadcast batch */
  TESTKIT_MISALIGN = 1u << 16, /* base pointers off by some elements, odd gaps */
  TESTKIT_SPLITS = 1u << 17,   /* num_splits */
  TESTKIT_EMPTY = 1u << 18,    /* lengths of 0 */
  TESTKIT_LARGE = 1u << 19,    /* scores near +-100 */
  TESTKIT_BACKWARD = 1u << 20, /* half of the problems that can have a backward pass, or all: options.only_backward */
  TESTKIT_NO_KEYS = 1u << 21,  /* seqlen_q > seqlen_k with a mask: rows that see no key */
  TESTKIT_FLOAT32_OUT = 1u << 22,
  TESTKIT_WORKSPACE = 1u << 23, /* the caller's workspace, poisoned */
  TESTKIT_ALL = (1u << 24) - 1,
  TESTKIT_FORWARD_ALL = TESTKIT_ALL & ~TESTKIT_BACKWARD,
  TESTKIT_COARSE_LSE =
      1u << 25, /* backward: biases of the most negative number, beside which a float lse loses the sum; not in ALL: GPU kernels mind */
  TESTKIT_KEY_NAN =
      1u << 24 /* forward: NaN in keys or values, which rows that do not see them must not feel; not in ALL: host engines only */
};

/* Memory of the engine's kind. download must return only after everything launched before is done. 1: success. */
typedef struct testkit_memory {
  void *user;
  void *(*alloc)(void *user, size_t bytes); /* 256-byte aligned */
  void (*free)(void *user, void *memory);
  int (*upload)(void *user, void *to, const void *from, size_t bytes);
  int (*download)(void *user, void *to, const void *from, size_t bytes);
} testkit_memory;

/* Zero means default. */
typedef struct testkit_options {
  unsigned features;        /* TESTKIT_... that may be used; default 0: none, plain dense problems */
  unsigned dtypes;          /* bits 1u << glint_dtype; default: float32, bfloat16, float16 */
  const int32_t *head_dims; /* choices for head_dim; default: a list from 1 to 512 */
  int32_t head_dims_count;
  int64_t max_work;             /* limit of batch * heads_q * seqlen_q * seqlen_k * (head_dim + head_dim_v); default 2^22 */
  uint32_t flags;               /* set in every problem */
  int only_backward;            /* with TESTKIT_BACKWARD: no forward problems (FP8 has only those) */
  const testkit_memory *memory; /* default: malloc */
} testkit_options;

typedef enum testkit_outcome {
  TESTKIT_PASSED = 0,
  TESTKIT_UNSUPPORTED = 1, /* refused with GLINT_ERROR_UNSUPPORTED, nothing written */
  TESTKIT_FAILED = 2
} testkit_outcome;

typedef struct testkit_report {
  testkit_outcome outcome;
  char problem[1024]; /* the problem in one line */
  char message[640];  /* the failure or the refusal */
  char kernel[96];    /* of the plan */
  double worst;       /* largest error over what is allowed, of all outputs; at most 1 where nothing failed */
  char worst_of[24];  /* the output that it belongs to */
  double error;       /* absolute, largest, of o or of the worst gradient */
  double of_plain;    /* largest error over the plain implementation's largest, of the outputs where that is above the floor; 0: of none */
} testkit_report;

/* A problem in host memory with everything that it points to. */
typedef struct testkit_case {
  glint_problem problem;
  glint_gradients gradients; /* used when pass is GLINT_PASS_BACKWARD */
  glint_pass pass;
  unsigned features; /* those in use */
  void *blocks;      /* memory of the tensors */
} testkit_case;

/* Makes case number index of a seed: the same options, seed and index give the same case. 0: out of memory. */
int testkit_make_case(testkit_case *made, const testkit_options *options, uint64_t seed, uint64_t index);
void testkit_free_case(testkit_case *made);

/* Runs the engine of context on a problem in host memory and judges the result. The problem's own outputs are not written: only their
 * dtype, shape and strides count (and with gradients->accumulate what they hold). gradients NULL: forward pass. o and lse of a
 * backward problem are made by the oracle. */
testkit_outcome testkit_judge(glint_context *context, const testkit_options *options, const glint_problem *problem,
                              const glint_gradients *gradients, testkit_report *report);

/* testkit_make_case and testkit_judge. */
testkit_outcome testkit_run_case(glint_context *context, const testkit_options *options, uint64_t seed, uint64_t index,
                                 testkit_report *report);

/* A problem in one line of text. */
void testkit_describe(const glint_problem *problem, const glint_gradients *gradients, char *text, size_t size);

/* For writing problems by hand: a contiguous tensor in a block owned by made, filled with normal numbers times magnitude (0: with NaN). */
glint_tensor testkit_tensor(testkit_case *made, glint_dtype dtype, int32_t rank, const int64_t *shape, double magnitude, uint64_t *random);
glint_tensor testkit_int32(testkit_case *made, const int32_t *values, int64_t count);

/* Numbers: splitmix64. */
uint64_t testkit_random(uint64_t *state);
int64_t testkit_random_below(uint64_t *state, int64_t limit); /* 0 to limit - 1 */
double testkit_random_normal(uint64_t *state);
uint64_t testkit_fresh_seed(void); /* from the environment variable GLINT_SEED, else from the clock */

#ifdef __cplusplus
}
#endif

#endif
