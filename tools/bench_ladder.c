/* glint bench --ladder: the same problem on one algorithm after the other. What each moves is counted by the simulator, on one head of one
 * sequence, and multiplied: heads do not share anything in the model. What each takes is measured where there is a GPU. */
#include "bench_ladder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "gpu_clock.h"
#include "memory.h"
#include "progress.h"
#include "simulator.h"
#include "testkit.h"
#include "timing.h"

enum { SECTOR = 32, LEAST_RUNS = 5, MOST_RUNS = 200 };

static const struct rung {
  const char *name, *kernels; /* kernels: the prefix of their names */
} rungs[] = {{"plain arithmetic", "glint_forward_simple_"},
             {"FlashAttention-1", "glint_forward_fa1_"},
             {"FlashAttention-2", "glint_forward_fa2_"},
             {"FlashAttention-3", "glint_forward_fa3_"}};
enum { RUNGS = sizeof rungs / sizeof *rungs };

const report_column bench_ladder_columns[] = {{"rung", "rung", -16, NULL},
                                              {"kernel", "kernel", -30, NULL},
                                              {"dtype", NULL, 0, NULL},
                                              {"head_dim", "d", 4, "%.0f"},
                                              {"causal", "causal", 6, "%.0f"},
                                              {"batch", NULL, 0, "%.0f"},
                                              {"heads_q", NULL, 0, "%.0f"},
                                              {"heads_kv", NULL, 0, "%.0f"},
                                              {"seqlen", "seqlen", 6, "%.0f"},
                                              {"blocks_a_head", "blocks", 6, "%.0f"},
                                              {"mb_q", "q MB", 9, "%.2f"},
                                              {"mb_kv", "k, v MB", 10, "%.2f"},
                                              {"mb_state", "state MB", 9, "%.2f"},
                                              {"mb_out", "out MB", 8, "%.2f"},
                                              {"mb", "sum MB", 10, "%.2f"},
                                              {"mb_sectors", "sectors MB", 11, "%.2f"},
                                              {"flop_per_byte", "FLOP/B", 7, "%.1f"},
                                              {"of_allowed_error", NULL, 0, "%.2f"},
                                              {"ms", "ms", 9, "%.4g"},
                                              {"tflops", "TFLOP/s", 7, "%.1f"},
                                              {"gain", "gain", 6, "%.2f"},
                                              {"note", "note", -4, NULL}};
const int bench_ladder_column_count = sizeof bench_ladder_columns / sizeof *bench_ladder_columns;

struct bench_ladder {
  const glint_sim_interface *simulator; /* NULL: none here */
  gpu_clock *clock;                     /* NULL: no GPU here */
  memory memory;
  double seconds;
};

glint_status bench_ladder_open(double seconds, bench_ladder **ladder, glint_error *error) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA};
  glint_error no_gpu = {""};
  bench_ladder *l = calloc(1, sizeof *l);
  *ladder = l;
  if (!l) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory");
  l->seconds = seconds;
  l->simulator = simulator_find(error);
  glint_status status = memory_open(GLINT_ENGINE_CUDA, &options, &l->memory, &no_gpu);
  if (status == GLINT_OK && gpu_clock_open(0, &l->clock, &no_gpu) != GLINT_OK) memory_close(&l->memory);
  if (!l->clock) fprintf(stderr, "glint: no times: %s\n", no_gpu.text);
  if (!l->simulator) fprintf(stderr, "glint: no counts: %s\n", error->text);
  if (l->clock || l->simulator) return GLINT_OK;
  bench_ladder_close(l);
  *ladder = NULL;
  return GLINT_ERROR_NOT_FOUND;
}

void bench_ladder_close(bench_ladder *l) {
  if (!l) return;
  if (l->clock) memory_close(&l->memory);
  gpu_clock_close(l->clock);
  free(l);
}

/* ---- what it moves: bytes that the kernel's instructions ask for, and the 32-byte sectors in which they lie ---- */

static glint_tensor tensor(testkit_case *c, glint_dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t columns,
                           double magnitude, uint64_t *random) {
  const int64_t shape[4] = {batch, rows, heads, columns};
  return testkit_tensor(c, dtype, 4, shape, magnitude, random);
}

static void make_problem(testkit_case *c, const bench_shape *s, int64_t batch, int64_t heads_q, int64_t heads_kv) {
  const int64_t lse[3] = {batch, heads_q, s->seqlen_q};
  uint64_t random = testkit_fresh_seed();
  memset(c, 0, sizeof *c);
  c->problem.struct_size = sizeof c->problem;
  c->problem.causal = s->causal;
  c->problem.q = tensor(c, s->dtype, batch, s->seqlen_q, heads_q, s->head_dim, 1, &random);
  c->problem.k = tensor(c, s->dtype, batch, s->seqlen_k, heads_kv, s->head_dim, 1, &random);
  c->problem.v = tensor(c, s->dtype, batch, s->seqlen_k, heads_kv, s->head_dim, 1, &random);
  c->problem.o = tensor(c, s->dtype, batch, s->seqlen_q, heads_q, s->head_dim, 0, &random);
  c->problem.lse = testkit_tensor(c, GLINT_FLOAT32, 3, lse, 0, &random);
}

static void report_counts(report *r, const bench_shape *s, const sim_report *counts) {
  const double copies = (double)(s->batch * s->heads_q), flops = bench_flops(s);
  double q = 0, kv = 0, out = 0, state = 0, sectors = 0;
  for (unsigned i = 0; i < counts->tensor_count; i++) {
    const sim_tensor *t = &counts->tensors[i];
    double *of = strcmp(t->name, "q") == 0                                  ? &q
                 : strcmp(t->name, "k") == 0 || strcmp(t->name, "v") == 0   ? &kv
                 : strcmp(t->name, "o") == 0 || strcmp(t->name, "lse") == 0 ? &out
                                                                            : &state;
    *of += (double)(t->bytes_read + t->bytes_written) * copies;
    sectors += (double)(t->sectors_read + t->sectors_written) * SECTOR * copies;
  }
  report_number(r, "blocks_a_head", (double)counts->blocks);
  report_number(r, "mb_q", q * 1e-6);
  report_number(r, "mb_kv", kv * 1e-6);
  report_number(r, "mb_state", state * 1e-6);
  report_number(r, "mb_out", out * 1e-6);
  report_number(r, "mb", (q + kv + state + out) * 1e-6);
  report_number(r, "mb_sectors", sectors * 1e-6);
  report_number(r, "flop_per_byte", flops / (q + kv + state + out));
}

/* On one head, judged against the oracle. UNSUPPORTED: the kernel refuses. */
static glint_status count(const bench_ladder *l, const bench_shape *s, const char *kernel, report *r, glint_error *error) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_SIM, .kernel = kernel};
  glint_context *context;
  testkit_case c;
  testkit_report judged;
  if (glint_open(&options, &context) != GLINT_OK) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s", glint_last_error(NULL));
  simulator_reset(l->simulator);
  make_problem(&c, s, 1, 1, 1);
  testkit_judge(context, NULL, &c.problem, NULL, &judged);
  testkit_free_case(&c);
  glint_close(context);
  if (judged.outcome == TESTKIT_UNSUPPORTED) return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s", judged.message);
  if (judged.outcome == TESTKIT_FAILED) return glint_fail(error, GLINT_ERROR_DEVICE, "%s: %s", judged.kernel, judged.message);
  report_text(r, "kernel", judged.kernel);
  report_number(r, "of_allowed_error", judged.worst);
  report_counts(r, s, simulator_report(l->simulator));
  return GLINT_OK;
}

/* ---- what it takes ---- */

typedef struct call {
  glint_context *context;
  const glint_problem *problem;
} call;

static glint_status forward(void *user) {
  const call *c = user;
  return glint_forward(c->context, c->problem);
}

static glint_status time_calls(const bench_ladder *l, call *c, double *ms, glint_error *error) {
  double times[MOST_RUNS], first;
  int runs = 0;
  glint_status status = gpu_clock_time(l->clock, forward, c, &first, error); /* loads the kernel */
  const double end = timing_now() + l->seconds;
  while (status == GLINT_OK && runs < MOST_RUNS && (runs < LEAST_RUNS || timing_now() < end))
    status = gpu_clock_time(l->clock, forward, c, &times[runs++], error);
  if (status == GLINT_OK) *ms = timing_median(times, runs);
  return status;
}

static glint_status measure(bench_ladder *l, const bench_shape *s, const char *kernel, report *r, double *ms, glint_error *error) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA, .kernel = kernel};
  glint_plan_info plan = {.struct_size = sizeof plan};
  placed_problem placed;
  testkit_case c;
  call timed;
  if (glint_open(&options, &timed.context) != GLINT_OK) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s", glint_last_error(NULL));
  make_problem(&c, s, s->batch, s->heads_q, s->heads_kv);
  glint_status status = memory_place(&l->memory, &c.problem, &placed, error);
  if (status == GLINT_OK) {
    timed.problem = &placed.api;
    status = glint_plan(timed.context, GLINT_PASS_FORWARD, &placed.api, NULL, &plan);
    if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(timed.context));
    if (status == GLINT_OK) status = time_calls(l, &timed, ms, error);
    memory_release(&placed);
  }
  testkit_free_case(&c);
  glint_close(timed.context);
  if (status != GLINT_OK) return status;
  report_text(r, "kernel", plan.kernel);
  report_number(r, "ms", *ms);
  report_number(r, "tflops", bench_flops(s) / *ms * 1e-9);
  return GLINT_OK;
}

/* ---- rungs ---- */

static void report_shape(report *r, const bench_shape *s, const struct rung *rung) {
  report_text(r, "rung", rung->name);
  report_text(r, "dtype", io_dtype_name(s->dtype));
  report_number(r, "head_dim", (double)s->head_dim);
  report_number(r, "causal", s->causal);
  report_number(r, "batch", (double)s->batch);
  report_number(r, "heads_q", (double)s->heads_q);
  report_number(r, "heads_kv", (double)s->heads_kv);
  report_number(r, "seqlen", (double)s->seqlen_k);
}

glint_status bench_ladder_run(bench_ladder *l, const bench_shape *s, report *r, glint_error *error) {
  double first = 0;
  for (int i = 0; i < RUNGS; i++) {
    double ms = 0;
    glint_status status = GLINT_OK;
    progress_say(rungs[i].name, i + 1, RUNGS);
    report_shape(r, s, &rungs[i]);
    if (l->clock) status = measure(l, s, rungs[i].kernels, r, &ms, error);
    if (status == GLINT_OK && l->simulator) status = count(l, s, rungs[i].kernels, r, error);
    if (status == GLINT_ERROR_UNSUPPORTED)
      report_text(r, "note", error->text);
    else if (status != GLINT_OK)
      return status;
    if (ms > 0 && first > 0) report_number(r, "gain", first / ms);
    if (first == 0) first = ms;
    report_row(r);
  }
  return GLINT_OK;
}
