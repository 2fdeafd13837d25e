/* One measurement of `glint bench`: tensors, context, clock. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "ceilings.h"
#include "convert.h"
#include "testkit.h"
#include "timing.h"

double bench_flops(const bench_shape *s) {
  double flops = 4.0 * (double)s->batch * (double)s->heads_q * (double)s->seqlen_q * (double)s->seqlen_k * (double)s->head_dim;
  return s->causal ? flops / 2 : flops;
}

double bench_kv_bytes(const bench_shape *s) {
  return 2.0 * (double)glint_dtype_size(s->dtype) * (double)s->batch * (double)s->seqlen_k * (double)s->heads_kv * (double)s->head_dim;
}

/* ---- tensors ---- */

/* Normal numbers from a pool of them: its length is prime, so that rows differ, and large tensors need no minutes. */
enum { POOL = 1048573 };

static void *make_pool(glint_dtype dtype) {
  uint64_t random = testkit_fresh_seed();
  void *pool = malloc((size_t)POOL * glint_dtype_size(dtype));
  for (int64_t i = 0; pool && i < POOL; i++) glint_store(pool, dtype, i, testkit_random_normal(&random));
  return pool;
}

/* By all threads, so that pages lie where cores read them: the ceiling's buffer is made so too. */
static void fill(char *to, size_t bytes, const char *pool, size_t pool_bytes) {
#pragma omp parallel for schedule(static)
  for (size_t at = 0; at < bytes; at += pool_bytes) memcpy(to + at, pool, bytes - at < pool_bytes ? bytes - at : pool_bytes);
}

static glint_tensor tensor_of(void *data, glint_dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t columns) {
  return (glint_tensor){.data = data, .dtype = dtype, .rank = 4, .shape = {batch, rows, heads, columns}};
}

typedef struct bench_memory {
  char *block;
  size_t q_bytes, kv_bytes;
  int copies;
} bench_memory;

/* q, o, and copies of (k, v), in one block of whole pages each. */
static size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static glint_status allocate(const bench_shape *s, int copies, bench_memory *m, glint_error *error) {
  size_t size = glint_dtype_size(s->dtype);
  m->q_bytes = whole_pages((size_t)(s->batch * s->seqlen_q * s->heads_q * s->head_dim) * size);
  m->kv_bytes = whole_pages((size_t)(s->batch * s->seqlen_k * s->heads_kv * s->head_dim) * size);
  m->copies = copies;
  size_t bytes = 2 * m->q_bytes + (size_t)copies * 2 * m->kv_bytes;
  m->block = aligned_alloc(4096, bytes);
  char *pool = make_pool(s->dtype);
  if (!m->block || !pool) {
    free(m->block);
    free(pool);
    return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for tensors of %zu bytes", bytes);
  }
  fill(m->block, bytes, pool, (size_t)POOL * size);
  free(pool);
  return GLINT_OK;
}

/* ---- the measured call ---- */

typedef struct bench_call {
  glint_context *context;
  glint_problem problem;
  const bench_memory *memory;
  int next; /* copy of k and v */
} bench_call;

static glint_status forward(void *argument) {
  bench_call *c = argument;
  char *first = c->memory->block + 2 * c->memory->q_bytes + (size_t)c->next * 2 * c->memory->kv_bytes;
  c->problem.k.data = first;
  c->problem.v.data = first + c->memory->kv_bytes;
  c->next = (c->next + 1) % c->memory->copies;
  return glint_forward(c->context, &c->problem);
}

enum { TURNS = 5, TURNS_OF_LONG_CALLS = 3 };

static glint_status take_turns(bench_call *call, glint_peak *peak, double work, double budget, bench_result *result) {
  double seconds[TURNS], ceiling[TURNS], share[TURNS], start = timing_now();
  glint_status status = forward(call);
  int turns = timing_now() - start > budget ? TURNS_OF_LONG_CALLS : TURNS;
  double before = peak ? glint_peak_sample(peak) : 0;
  for (int t = 0; t < turns && status == GLINT_OK; t++) {
    status = timing_calls(forward, call, budget / turns, &seconds[t]);
    double after = peak ? glint_peak_sample(peak) : 0;
    ceiling[t] = (before + after) / 2;
    share[t] = ceiling[t] > 0 ? work / seconds[t] / ceiling[t] : 0;
    before = after;
  }
  if (status != GLINT_OK) return status;
  result->seconds = timing_median(seconds, turns);
  result->ceiling = timing_median(ceiling, turns), result->share = timing_median(share, turns);
  return GLINT_OK;
}

static glint_status measure(const bench_shape *s, int decode, glint_context *context, const bench_memory *m, double budget,
                            bench_result *result) {
  bench_call call = {.context = context, .memory = m};
  glint_problem *p = &call.problem;
  p->struct_size = sizeof *p;
  p->causal = s->causal;
  p->q = tensor_of(m->block, s->dtype, s->batch, s->seqlen_q, s->heads_q, s->head_dim);
  p->o = tensor_of(m->block + m->q_bytes, s->dtype, s->batch, s->seqlen_q, s->heads_q, s->head_dim);
  p->k = p->v = tensor_of(m->block, s->dtype, s->batch, s->seqlen_k, s->heads_kv, s->head_dim);
  result->plan.struct_size = sizeof result->plan;
  glint_status status = glint_plan(context, GLINT_PASS_FORWARD, p, NULL, &result->plan);
  if (status != GLINT_OK) return status;
  glint_peak *peak = decode ? ceilings_read(s->threads) : ceilings_compute(result->plan.kernel, s->threads);
  return take_turns(&call, peak, decode ? bench_kv_bytes(s) : bench_flops(s), budget, result);
}

glint_status bench_measure(const bench_shape *shape, int decode, int copies, double budget, bench_result *result, glint_error *error) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU, .isa = shape->isa, .threads = shape->threads};
  glint_context *context;
  bench_memory m;
  *result = (bench_result){0};
  glint_status status = glint_open(&options, &context);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(NULL));
  status = allocate(shape, copies, &m, error);
  if (status == GLINT_OK) {
    status = measure(shape, decode, context, &m, budget, result);
    if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(context));
    free(m.block);
  }
  glint_close(context);
  return status;
}
