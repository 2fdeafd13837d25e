/* The oracle as an engine. */
#include "oracle.h"

#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The state is the number of threads, kept in the pointer itself. */
static int threads_of(const void *state) { return (int)(intptr_t)state; }

static glint_status open_oracle(const glint_options *options, void **state, glint_error *error) {
  (void)error;
  *state = (void *)(intptr_t)(options->threads > 0 ? options->threads : omp_get_max_threads());
  return GLINT_OK;
}

static void close_oracle(void *state) { (void)state; }

static glint_status plan_oracle(void *state, const glint_work *w, glint_plan_info *plan, glint_error *error) {
  (void)error;
  snprintf(plan->kernel, sizeof plan->kernel, "%s", w->pass == GLINT_PASS_FORWARD ? "oracle_forward_f64" : "oracle_backward_f64");
  snprintf(plan->reason, sizeof plan->reason, "the oracle engine has one way: double precision, one row at a time");
  plan->tile_q = 1, plan->num_splits = 1, plan->threads = threads_of(state);
  plan->grid = w->batch * w->heads_kv;
  plan->waves_x100 = plan->grid * 100 / plan->threads;
  glint_work_cost(w, 1, &plan->flops, &plan->bytes);
  return GLINT_OK;
}

/* Small problems run in one thread: starting others takes longer. */
static int oracle_threads(const void *state, const glint_plan_info *plan) { return plan->flops < 1e6 ? 1 : threads_of(state); }

static glint_status run_oracle(void *state, const glint_work *w, const glint_plan_info *plan, void *workspace, glint_error *error) {
  (void)workspace;
  int threads = oracle_threads(state, plan), ok = w->pass == GLINT_PASS_FORWARD ? oracle_forward(w, threads) : oracle_backward(w, threads);
  return ok ? GLINT_OK : glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "out of memory: keys and values as float64 did not fit");
}

/* Never asked for any: plans of the oracle have no workspace. */
static glint_status reserve_oracle(void *state, size_t bytes, void *stream, void **workspace, glint_error *error) {
  (void)state, (void)stream;
  *workspace = NULL;
  return glint_fail(error, GLINT_ERROR_INTERNAL, "the oracle engine was asked for a workspace of %zu bytes", bytes);
}

static size_t describe_oracle(void *state, char *text, size_t size) {
  int threads = state ? threads_of(state) : omp_get_max_threads();
  return (size_t)snprintf(text, size, "oracle: float64 from the formula, %d threads\n", threads);
}

static glint_status size_quantize_oracle(void *state, const glint_quantize_work *w, size_t *bytes, glint_error *error) {
  (void)state, (void)w, (void)error;
  *bytes = 0;
  return GLINT_OK;
}

static glint_status quantize_oracle(void *state, const glint_quantize_work *w, void *workspace, glint_error *error) {
  (void)state, (void)workspace;
  return oracle_quantize(w) ? GLINT_OK : glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "out of memory: tensors as float64 did not fit");
}

const glint_engine_vtable glint_engine_oracle = {
    GLINT_ENGINE_ORACLE,  "oracle",       1, open_oracle, close_oracle, plan_oracle, run_oracle, reserve_oracle, describe_oracle,
    size_quantize_oracle, quantize_oracle};
