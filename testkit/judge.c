/* Runs an engine, the oracle and the plain implementation on one problem and compares. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_ELEMENTS = 64 };

typedef struct trial {
  glint_context *context;
  const testkit_options *options;
  testkit_report *report;
  glint_problem problem; /* the caller's; in backward with o and lse made by the oracle */
  const glint_gradients *gradients;
  testkit_copy engine, oracle;
  glint_context *oracle_context;
  glint_work work;      /* the oracle's */
  glint_plan_info plan; /* the engine's */
  double *plain[32];
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
  return testkit_plain(w, &rounds) || (failed(t, "testkit", "out of memory"), 0);
}

/* Plans twice and runs. */
static testkit_outcome run_engine(trial *t) {
  glint_context *context = t->context;
  const testkit_memory *memory = t->options->memory ? t->options->memory : &testkit_host_memory;
  glint_pass pass = t->gradients ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD;
  glint_plan_info again;
  memset(&t->plan, 0, sizeof t->plan), memset(&again, 0, sizeof again);
  t->plan.struct_size = again.struct_size = sizeof again;
  if (!testkit_copy_make(&t->engine, memory, &t->problem, t->gradients, 0)) return failed(t, "testkit", "out of memory");
  glint_problem *p = &t->engine.problem;
  glint_gradients *g = t->gradients ? &t->engine.gradients : NULL;
  glint_status status = glint_plan(context, pass, p, g, &t->plan);
  if (!status) {
    snprintf(t->report->kernel, sizeof t->report->kernel, "%s", t->plan.kernel);
    if (glint_plan(context, pass, p, g, &again)) return failed(t, "second plan", glint_last_error(context));
    if (memcmp(&t->plan, &again, sizeof again)) return failed(t, "plan", "two plans of one problem differ");
    if (p->workspace_bytes && !testkit_copy_workspace(&t->engine, t->plan.workspace_bytes)) return failed(t, "testkit", "out of memory");
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

/* The longest row (last axis) in the Euclidean norm. */
static double longest(const glint_tensor *t) {
  double most = 0;
  int64_t columns = t->data ? t->shape[t->rank - 1] : 0;
  for (int64_t n = 0, count = t->data ? testkit_count(t) : 0; n < count; n += columns) {
    double sum = 0;
    for (int64_t c = 0; c < columns; c++) {
      double value = glint_load(t->data, t->dtype, testkit_offset(t, n + c));
      if (isfinite(value)) sum += value * value;
    }
    most = fmax(most, sum);
  }
  return sqrt(most);
}

static double factor_of(const glint_tensor *descale) { return descale->data ? largest(descale) : 1; }

/* Half a unit in the last place, relative to the value. */
static double half_unit(glint_dtype type) {
  switch (type) {
  case GLINT_BFLOAT16: return 0x1p-9;
  case GLINT_FLOAT16: return 0x1p-12;
  case GLINT_FLOAT8_E4M3: return 0x1p-4;
  case GLINT_FLOAT8_E5M2: return 0x1p-3;
  default: return 0x1p-24;
  }
}

/* Sizes that the floors of the error rule are made of. By Cauchy-Schwarz `score` bounds every scale * q.k and every partial sum of one, and
 * `product` every dO.v. */
typedef struct sizes {
  double score, product, v, d_o, d_lse, keep, rows;
} sizes;

static sizes sizes_of(const trial *t) {
  const glint_problem *p = &t->problem;
  const glint_work *w = &t->work;
  double q = longest(&p->q) * factor_of(&p->descale_q), k = fmax(longest(&p->k) * factor_of(&p->descale_k), longest(&p->k_new));
  double v = fmax(longest(&p->v) * factor_of(&p->descale_v), longest(&p->v_new));
  sizes z = {.score = fabs((double)w->scale) * q * k, .keep = (double)w->keep_scale};
  z.v = fmax(largest(&p->v) * factor_of(&p->descale_v), largest(&p->v_new));
  z.rows = (double)w->seqlen_q * (double)w->heads_q / (double)w->heads_kv;
  if (t->gradients) z.d_lse = largest(&t->gradients->d_lse), z.d_o = largest(&t->gradients->d_o) + z.d_lse;
  if (t->gradients) z.product = z.keep * longest(&t->gradients->d_o) * v + z.d_lse;
  return z;
}

static int is(const char *name, const char *other) { return strcmp(name, other) == 0; }

/* What Hopper's 8-bit tensor cores lose of a score, and so of lse: they add products cut to 13 bits below the largest of a group, on an H200
 * up to 2^-12 of the operands' norms. The simulator adds exactly. o needs no such room: rounding P to e4m3 costs it more. */
static double lost_by_tensor_cores(const trial *t, const sizes *z) {
  int eight_bits = t->problem.q.dtype == GLINT_FLOAT8_E4M3 || t->problem.q.dtype == GLINT_FLOAT8_E5M2;
  return t->plan.engine == GLINT_ENGINE_CUDA && eight_bits ? 0x1p-11 * z->score : 0;
}

/* Floors of the error rule, for problems in which the plain implementation happens to round well.
 *
 * A float32 sum of n products in sequence carries an error of about eps T / 2.5, eps = 2^-24 and T the product of the operands' norms: the
 * partial sums walk at random up to T / sqrt(n), and each is rounded once. Five standard deviations are 2 eps T; so a score is known to
 * unit = 2 eps (1 + score), where the 1 stands for the exponential (2 to 4 eps) and the softmax's own sum. */
static testkit_rule rule_of(const trial *t, const char *name, glint_dtype type) {
  const glint_problem *p = &t->problem;
  const glint_work *w = &t->work;
  const sizes z = sizes_of(t);
  glint_dtype input = p->q.dtype;
  double eps = half_unit(GLINT_FLOAT32), unit = 2 * eps * (1 + z.score);
  /* rounding to the result's type, and a division */
  testkit_rule rule = {half_unit(type) + 2 * eps, 0};
  if (is(name, "o")) {
    /* o moves by the scores' error times how far v is from o */
    rule.absolute = unit * z.v * z.keep;
    /* a rotated query is rounded to its type, here and in the plain implementation, not always to the same side: 3 standard deviations of
     * a score of rounded terms */
    if (w->rotary_dim && input != GLINT_FLOAT32)
      rule.absolute += sqrt(3) * half_unit(input) * z.score / sqrt((double)w->head_dim) * z.v * z.keep;
    /* P is rounded to e4m3. The plain implementation puts a row's maximum at a power of 2, where it is exact; a kernel that moves its maximum
     * lazily rounds it too, and where few keys have all the weight o moves with it */
    if (input == GLINT_FLOAT8_E4M3) rule.relative += half_unit(input);
    /* the plain implementation's largest error says little where o has few elements: 3 standard deviations of the rounding of 16 equal
     * probabilities */
    if (testkit_count(&p->o) < FEW_ELEMENTS && input != GLINT_FLOAT32) rule.absolute += sqrt(3.0 / 16) * half_unit(input) * z.v * z.keep;
  }
  if (is(name, "lse")) {
    /* the largest score, its way to base 2 and back, the sum's logarithm */
    rule.absolute = unit + 2 * eps * z.score + 8 * eps + lost_by_tensor_cores(t, &z);
    /* the GPU's tanh is good to 2^-11 */
    if (t->plan.engine != GLINT_ENGINE_CPU && input != GLINT_FLOAT32) rule.absolute += (double)w->softcap * 0x1p-11;
  }
  if (!t->gradients) return rule;
  /* P = exp(s - lse) with an lse rounded to float32, which the score's rounding is not part of; errors of rows add up at random */
  double scale = fabs((double)w->scale), p_error = unit, columns = sqrt((double)w->head_dim_v);
  /* tanh of the GPU's backward pass, out of ex2 and rcp: 1e-7 */
  if (t->plan.engine != GLINT_ENGINE_CPU) p_error += (double)w->softcap * 0x1p-23;
  if (is(name, "dv")) rule.absolute = p_error * z.d_o * z.keep * sqrt(z.rows);
  /* dS = P (dP - delta). Both are products with dO, typically 1 / sqrt(head_dim_v) of their bound; their difference may be 0 where they are
   * not, and delta comes from an o of the input's type: 5 standard deviations of its rounding. What comes through lse is no such product */
  double ds = z.product * (2 * eps + p_error / columns + (input == GLINT_FLOAT32 ? 0 : 3 * half_unit(input) / columns)) + z.d_lse * p_error;
  if (is(name, "dq")) rule.absolute = ds * scale * fmax(largest(&p->k) * factor_of(&p->descale_k), largest(&p->k_new));
  if (is(name, "dk")) rule.absolute = ds * scale * largest(&p->q) * factor_of(&p->descale_q) * sqrt(z.rows);
  double pairs = (double)w->batch * (double)w->heads_q * (double)w->seqlen_q * (double)w->seqlen_k;
  if (is(name, "dbias")) rule.absolute = ds * sqrt(fmax(1, pairs / fmax(1, (double)testkit_count(&t->gradients->dbias))));
  if (is(name, "dsinks")) rule.absolute = ds * sqrt((double)w->batch * (double)w->seqlen_q);
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
