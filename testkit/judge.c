/* Runs an engine, the oracle and the plain implementation on one problem and compares. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trial {
  glint_context *context;
  const testkit_options *options;
  testkit_report *report;
  glint_problem problem; /* the caller's; in backward with o and lse made by the oracle */
  const glint_gradients *gradients;
  testkit_copy engine, oracle;
  glint_context *oracle_context;
  glint_work work; /* the oracle's */
  double *plain[32];
  double largest_score;
  unsigned char *made[2]; /* o and lse of a backward problem */
} trial;

static testkit_outcome failed(trial *t, const char *what, const char *text) {
  snprintf(t->report->message, sizeof t->report->message, "%s: %.500s", what, text);
  return t->report->outcome = TESTKIT_FAILED;
}

static int run_oracle(trial *t, const glint_gradients *gradients) {
  glint_context *context = t->oracle_context;
  if (!testkit_copy_make(&t->oracle, &testkit_host_memory, &t->problem, gradients, 1)) return !failed(t, "testkit", "out of memory");
  const glint_problem *p = &t->oracle.problem;
  glint_status status = gradients ? glint_backward(context, p, &t->oracle.gradients) : glint_forward(context, p);
  if (status) return failed(t, "oracle", glint_last_error(context)), 0;
  return testkit_copy_fetch(&t->oracle) || (failed(t, "testkit", "the oracle's results could not be read"), 0);
}

/* Gives the backward problem o and lse of its own dtype and strides, from the oracle's forward pass. */
static int make_forward_results(trial *t) {
  glint_tensor *results[2] = {&t->problem.o, &t->problem.lse};
  const glint_tensor *from[2] = {&t->oracle.problem.o, &t->oracle.problem.lse};
  if (!run_oracle(t, NULL)) return 0;
  for (int r = 0; r < 2; r++) {
    size_t element = glint_dtype_size(results[r]->dtype), bytes = (size_t)testkit_span(results[r]) * element + 512;
    uintptr_t misaligned = (uintptr_t)results[r]->data % 256;
    void *block = NULL;
    if (!results[r]->data) continue;
    if (posix_memalign(&block, 256, bytes)) return failed(t, "testkit", "out of memory"), 0;
    memset(block, 0xFF, bytes);
    t->made[r] = block;
    results[r]->data = t->made[r] + misaligned;
    for (int64_t n = 0, count = testkit_count(results[r]); n < count; n++) {
      double value = ((const double *)from[r]->data)[n];
      glint_store(results[r]->data, results[r]->dtype, testkit_offset(results[r], n), value);
    }
  }
  testkit_copy_free(&t->oracle);
  return 1;
}

/* The plain implementation's results beside the oracle's. */
static int run_plain(trial *t) {
  char text[256];
  glint_pass pass = t->gradients ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD;
  const glint_gradients *g = t->gradients ? &t->oracle.gradients : NULL;
  if (glint_check(&t->oracle.problem, g, pass, 1, &t->work, text, sizeof text)) return failed(t, "testkit", text), 0;
  glint_work *w = &t->work;
  for (int n = 0; n < testkit_slot_count; n++) {
    const testkit_bound *bound = &t->oracle.bound[n];
    if (testkit_slots[n].role == TESTKIT_CACHE || !bound->block || !bound->written) continue;
    size_t bytes = bound->bytes - bound->start;
    t->plain[n] = malloc(bytes);
    if (!t->plain[n]) return failed(t, "testkit", "out of memory"), 0;
    memcpy(t->plain[n], bound->before + bound->start, bytes);
    ((glint_view *)(void *)((char *)w + testkit_slots[n].view))->data = t->plain[n];
  }
  testkit_rounds rounds = {t->problem.o.dtype, GLINT_FLOAT32, GLINT_FLOAT32, GLINT_FLOAT32};
  if (t->gradients) rounds.dq = t->gradients->dq.dtype, rounds.dk = t->gradients->dk.dtype, rounds.dv = t->gradients->dv.dtype;
  return testkit_plain(w, &rounds, &t->largest_score) || (failed(t, "testkit", "out of memory"), 0);
}

/* Plans twice and runs. */
static testkit_outcome run_engine(trial *t) {
  glint_context *context = t->context;
  const testkit_memory *memory = t->options->memory ? t->options->memory : &testkit_host_memory;
  glint_pass pass = t->gradients ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD;
  glint_plan_info plan, again;
  memset(&plan, 0, sizeof plan), memset(&again, 0, sizeof again);
  plan.struct_size = again.struct_size = sizeof plan;
  if (!testkit_copy_make(&t->engine, memory, &t->problem, t->gradients, 0)) return failed(t, "testkit", "out of memory");
  glint_problem *p = &t->engine.problem;
  glint_gradients *g = t->gradients ? &t->engine.gradients : NULL;
  glint_status status = glint_plan(context, pass, p, g, &plan);
  if (!status) {
    snprintf(t->report->kernel, sizeof t->report->kernel, "%s", plan.kernel);
    if (glint_plan(context, pass, p, g, &again)) return failed(t, "second plan", glint_last_error(context));
    if (memcmp(&plan, &again, sizeof plan)) return failed(t, "plan", "two plans of one problem differ");
    if (p->workspace_bytes && !testkit_copy_workspace(&t->engine, plan.workspace_bytes)) return failed(t, "testkit", "out of memory");
  }
  glint_status ran = pass == GLINT_PASS_BACKWARD ? glint_backward(context, p, g) : glint_forward(context, p);
  if (ran) snprintf(t->report->message, sizeof t->report->message, "%s", glint_last_error(context));
  if (!testkit_copy_fetch(&t->engine)) return failed(t, "testkit", "the engine's results could not be read");
  char changed[256];
  if (!testkit_copy_check(&t->engine, ran != GLINT_OK, changed, sizeof changed)) return failed(t, "memory", changed);
  if (status != ran) return failed(t, "the plan and the run disagree on the status", glint_last_error(context));
  if (!ran) return TESTKIT_PASSED;
  if (ran != GLINT_ERROR_UNSUPPORTED) return failed(t, glint_status_text(ran), glint_last_error(context));
  return t->report->outcome = TESTKIT_UNSUPPORTED;
}

static double largest(const glint_tensor *t) {
  double most = 0;
  for (int64_t n = 0, count = t->data ? testkit_count(t) : 0; n < count; n++) {
    double value = fabs(glint_load(t->data, t->dtype, testkit_offset(t, n)));
    if (isfinite(value)) most = fmax(most, value);
  }
  return most;
}

static double descaled(const glint_tensor *t, const glint_tensor *descale) { return largest(t) * (descale->data ? largest(descale) : 1); }

/* Half a unit in the last place, relative to the value. */
static double half_unit(glint_dtype type) {
  switch (type) {
  case GLINT_BFLOAT16: return 0x1p-9;
  case GLINT_FLOAT16: return 0x1p-12;
  default: return 0x1p-24;
  }
}

/* Rows of scores whose gradients are summed in one element of dbias or dsinks: each brings the rounding of its own o. */
static double summed_rows(const glint_work *w, const char *name) {
  const int64_t *shape = w->dbias.shape;
  if (!strcmp(name, "dsinks")) return (double)w->batch * (double)w->seqlen_q;
  return (shape[0] == 1 ? (double)w->batch : 1) * (shape[1] == 1 ? (double)w->heads_q : 1) * (shape[2] == 1 ? (double)w->seqlen_q : 1);
}

/* Floors of the error rule: rounding of the result, and float32 arithmetic on numbers as large as scores, values and gradients are here.
 * Gradients of scores are differences of products with dO, so that rounding a probability moves them by a share of such a product even
 * where the difference is 0. */
static testkit_rule rule_of(const trial *t, const char *name, glint_dtype type) {
  const glint_problem *p = &t->problem;
  const glint_work *w = &t->work;
  double q = descaled(&p->q, &p->descale_q), k = fmax(descaled(&p->k, &p->descale_k), largest(&p->k_new)),
         v = fmax(descaled(&p->v, &p->descale_v), largest(&p->v_new));
  /* terms of a score may be larger than their sum */
  double terms = (double)w->scale * sqrt((double)w->head_dim) * q * k, unit = 0x1p-23 * (1 + fmax(t->largest_score, terms));
  double dropped = (double)w->keep_scale, d_o = t->gradients ? largest(&t->gradients->d_o) + largest(&t->gradients->d_lse) : 0;
  /* of many roundings a third of their bound remains beside the others' root; of one or two all of it */
  double columns = sqrt((double)w->head_dim_v), rounding = half_unit(p->q.dtype) * fmax(1.0 / 3, 1 / columns);
  double ds = d_o * fmax(v, 1) * columns * dropped * fmax(unit / 2, rounding);
  testkit_rule rule = {half_unit(type) + 0x1p-23, 0};
  if (!strcmp(name, "o")) rule.absolute = unit * v * dropped;
  /* rotated queries are rounded to their type, and a rounding may fall the other way than in the plain implementation */
  if (!strcmp(name, "o") && w->rotary_dim && p->q.dtype != GLINT_FLOAT32) rule.absolute += 4 * half_unit(p->q.dtype) * v * dropped;
  /* scores in base 2: a rounding for the scale, the sum, the maximum and the way back */
  if (!strcmp(name, "lse")) rule.relative = 0x1p-21;
  if (!strcmp(name, "lse")) rule.absolute = 4 * unit + (p->q.dtype == GLINT_FLOAT32 ? 0 : (double)w->softcap * 0x1p-11);
  /* P = exp(s - lse) with an lse that does not share the score's rounding; that grows with the root of the terms of the dot product, and
   * the sum of such errors with the root of the rows */
  double rows = (double)w->seqlen_q * (double)w->heads_q / (double)w->heads_kv;
  if (!strcmp(name, "dv")) rule.absolute = unit * d_o * dropped * (1 + sqrt((double)w->head_dim) / 4) * (1 + sqrt(rows) / 8);
  if (!strcmp(name, "dq")) rule.absolute = ds * (double)w->scale * k;
  /* delta comes from an o that was rounded row by row */
  if (!strcmp(name, "dk")) rule.absolute = ds * (double)w->scale * q * (1 + sqrt(rows) / 8);
  if (!strcmp(name, "dbias") || !strcmp(name, "dsinks")) rule.absolute = ds * (1 + sqrt(summed_rows(w, name)) / 3);
  return rule;
}

/* Appended keys: rotated in another precision, so that a rounding may fall the other way; everything else to the bit. */
static int compare_cache(trial *t, const char *name, const testkit_bound *engine, const testkit_bound *oracle) {
  glint_tensor got = *engine->tensor, expected = *oracle->tensor;
  got.data = engine->after + engine->start, expected.data = oracle->after + oracle->start;
  size_t element = glint_dtype_size(got.dtype);
  int exact = strcmp(name, "k") != 0 || !t->problem.rotary_cos.data;
  double slack = 0x1p-21 * largest(&t->problem.k_new), unit = 2 * half_unit(got.dtype);
  if (got.dtype == GLINT_FLOAT8_E4M3) unit = 0x1p-3;
  if (got.dtype == GLINT_FLOAT8_E5M2) unit = 0x1p-2;
  for (int64_t n = 0, count = testkit_count(&got); n < count; n++) {
    size_t at = (size_t)testkit_offset(&got, n) * element;
    if (!memcmp((char *)got.data + at, (char *)expected.data + at, element)) continue;
    double a = glint_load(got.data, got.dtype, testkit_offset(&got, n)), b = glint_load(expected.data, got.dtype, testkit_offset(&got, n));
    if (!exact && fabs(a - b) <= unit * fabs(b) + slack) continue;
    snprintf(t->report->message, sizeof t->report->message, "%s: element %lld of the cache is %.9g: expected %.9g", name, (long long)n, a,
             b);
    return 0;
  }
  return 1;
}

static testkit_outcome compare_all(trial *t) {
  for (int n = 0; n < testkit_slot_count; n++) {
    const char *name = testkit_slots[n].name;
    const testkit_bound *engine = &t->engine.bound[n], *oracle = &t->oracle.bound[n];
    if (!engine->block || !engine->written) continue;
    int same;
    if (testkit_slots[n].role == TESTKIT_CACHE) {
      same = compare_cache(t, name, engine, oracle);
    } else {
      glint_tensor got = *engine->tensor;
      got.data = engine->after + engine->start;
      testkit_rule rule = rule_of(t, name, got.dtype);
      same = testkit_compare(name, &got, (const double *)(void *)(oracle->block + oracle->start), t->plain[n], &rule, t->report);
    }
    if (!same) return t->report->outcome = TESTKIT_FAILED;
  }
  return t->report->outcome = TESTKIT_PASSED;
}

static testkit_outcome judge(trial *t) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE};
  if (glint_open(&options, &t->oracle_context)) return failed(t, "oracle", glint_last_error(NULL));
  if (t->gradients && !make_forward_results(t)) return TESTKIT_FAILED;
  testkit_outcome outcome = run_engine(t);
  if (outcome) return outcome;
  if (!run_oracle(t, t->gradients) || !run_plain(t)) return TESTKIT_FAILED;
  return compare_all(t);
}

testkit_outcome testkit_judge(glint_context *context, const testkit_options *options, const glint_problem *problem,
                              const glint_gradients *gradients, testkit_report *report) {
  static const testkit_options defaults;
  trial *t = calloc(1, sizeof *t);
  memset(report, 0, sizeof *report);
  testkit_describe(problem, gradients, report->problem, sizeof report->problem);
  if (!t) {
    snprintf(report->message, sizeof report->message, "testkit: out of memory");
    return report->outcome = TESTKIT_FAILED;
  }
  t->context = context, t->options = options ? options : &defaults, t->report = report, t->problem = *problem, t->gradients = gradients;
  testkit_outcome outcome = judge(t);
  glint_close(t->oracle_context);
  testkit_copy_free(&t->engine);
  testkit_copy_free(&t->oracle);
  for (int n = 0; n < 32; n++) free(t->plain[n]);
  free(t->made[0]);
  free(t->made[1]);
  free(t);
  return outcome;
}
