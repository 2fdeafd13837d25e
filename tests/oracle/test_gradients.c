/* The oracle's gradients against differences of its forward pass, on small random problems over all features. */
#include "convert.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 14 };

static glint_context *context;
static uint64_t seed, running; /* case */

static double o[ROOM], lse[ROOM];

static int64_t count_of(const glint_tensor *t) {
  int64_t count = t->data ? 1 : 0;
  for (int a = 0; a < t->rank; a++) count *= t->shape[a];
  return count;
}

/* sum of dO * o and dLse * lse over what is defined. NaN in dO marks rows outside of every sequence and rows not in use. */
static double loss(const testkit_case *c) {
  glint_problem p = c->problem;
  double sum = 0;
  memset(p.o.stride, 0, sizeof p.o.stride), memset(p.lse.stride, 0, sizeof p.lse.stride);
  p.o.data = o, p.o.dtype = GLINT_FLOAT64, p.lse.data = lse, p.lse.dtype = GLINT_FLOAT64;
  assert_true(count_of(&p.o) <= ROOM && count_of(&p.lse) <= ROOM);
  if (glint_forward(context, &p)) fail_msg("%s", glint_last_error(context));
  const glint_tensor *d_o = &c->gradients.d_o, *d_lse = &c->gradients.d_lse;
  for (int64_t n = 0; n < count_of(d_o); n++) {
    double weight = glint_load(d_o->data, d_o->dtype, n);
    if (!isnan(weight)) sum += weight * o[n];
  }
  for (int64_t n = 0; n < count_of(d_lse); n++) {
    double weight = glint_load(d_lse->data, d_lse->dtype, n);
    if (!isnan(weight) && isfinite(lse[n])) sum += weight * lse[n];
  }
  return sum;
}

static double difference(const testkit_case *c, float *x, float step) {
  float kept = *x, above = kept + step, below = kept - step;
  *x = above;
  double high = loss(c);
  *x = below;
  double low = loss(c);
  *x = kept;
  return (high - low) / ((double)above - (double)below);
}

/* Fourth order: two steps, the error of the second power cancelled. */
static double derivative(const testkit_case *c, float *x) { return (4 * difference(c, x, 0x1p-7f) - difference(c, x, 0x1p-6f)) / 3; }

static void check(const testkit_case *c, const char *name, const glint_tensor *input, const glint_tensor *gradient,
                  const glint_tensor *start) {
  for (int64_t n = 0; n < count_of(gradient); n++) {
    float *x = (float *)input->data + n, got = ((float *)gradient->data)[n];
    double before = start->data ? (double)((float *)start->data)[n] : 0;
    if (!isfinite(*x) || fabs((double)*x) > 1e30) { /* not visible, or hidden by the bias: not touched, or nothing is added */
      if (!isnan(got) && (double)got != before)
        fail_msg("%s[%lld] is %g where the input is %g: expected %g", name, (long long)n, (double)got, (double)*x, before);
      continue;
    }
    double expected = before + derivative(c, x);
    if (!(fabs((double)got - expected) <= 3e-6 * (1 + fabs(expected))))
      fail_msg("case %llu, %s[%lld] is %.9g: expected %.9g", (unsigned long long)running, name, (long long)n, (double)got, expected);
  }
}

/* A copy of what an output holds before the call. */
static glint_tensor snapshot(testkit_case *c, const glint_tensor *t) {
  glint_tensor copy = {0};
  if (!t->data || !c->gradients.accumulate) return copy;
  copy = testkit_tensor(c, t->dtype, t->rank, t->shape, 0, NULL);
  memcpy(copy.data, t->data, (size_t)count_of(t) * glint_dtype_size(t->dtype));
  return copy;
}

/* A row whose biases are all the most negative number swallows its scores, so that differences see no slope where there is one. */
static int swallows(const glint_tensor *bias) {
  for (int64_t n = 0; n < count_of(bias); n++) {
    double value = glint_load(bias->data, bias->dtype, n);
    if (isfinite(value) && fabs(value) > 1e30) return 1;
  }
  return 0;
}

static void test_differences(void **state) {
  (void)state;
  static const int32_t dims[] = {1, 2, 3, 8};
  testkit_options options = {.dtypes = 1u << GLINT_FLOAT32, .head_dims = dims, .head_dims_count = 4, .max_work = 1500};
  options.features = TESTKIT_ALL & ~(unsigned)(TESTKIT_STRIDES | TESTKIT_MISALIGN | TESTKIT_LARGE | TESTKIT_WORKSPACE);
  int backward = 0;
  for (uint64_t n = 0; n < 160; n++) {
    testkit_case c;
    running = n;
    assert_true(testkit_make_case(&c, &options, seed, n));
    glint_problem *p = &c.problem;
    glint_gradients *g = &c.gradients;
    if (c.pass == GLINT_PASS_BACKWARD && count_of(&p->q) + count_of(&p->k) < 600 && count_of(&p->o) < ROOM && count_of(&p->bias) < 600 &&
        !swallows(&p->bias)) {
      glint_tensor dq = snapshot(&c, &g->dq), dk = snapshot(&c, &g->dk), dv = snapshot(&c, &g->dv);
      glint_tensor dsinks = snapshot(&c, &g->dsinks), dbias = snapshot(&c, &g->dbias);
      if (glint_forward(context, p) || glint_backward(context, p, g))
        fail_msg("case %llu: %s", (unsigned long long)n, glint_last_error(context));
      check(&c, "dq", &p->q, &g->dq, &dq), check(&c, "dk", &p->k, &g->dk, &dk), check(&c, "dv", &p->v, &g->dv, &dv);
      check(&c, "dsinks", &p->sinks, &g->dsinks, &dsinks);
      if (p->bias.data) check(&c, "dbias", &p->bias, &g->dbias, &dbias);
      backward++;
    }
    testkit_free_case(&c);
  }
  assert_true(backward > 20);
}

/* Keys that no row sees, rows that see no key, and one key alone: exactly 0. */
static void test_exact_zeros(void **state) {
  (void)state;
  enum { SQ = 5, SK = 3, D = 4 };
  testkit_case c = {0};
  uint64_t random = seed;
  const int64_t q[] = {1, SQ, 1, D}, k[] = {1, SK, 1, D}, rows[] = {1, 1, SQ};
  glint_problem p = {.struct_size = sizeof p, .causal = 1, .windowed = 1, .window_left = 0, .window_right = 0};
  glint_gradients g = {.struct_size = sizeof g};
  p.q = testkit_tensor(&c, GLINT_FLOAT32, 4, q, 3, &random), p.o = testkit_tensor(&c, GLINT_FLOAT32, 4, q, 0, NULL);
  p.k = testkit_tensor(&c, GLINT_FLOAT32, 4, k, 3, &random), p.v = testkit_tensor(&c, GLINT_FLOAT32, 4, k, 3, &random);
  p.lse = testkit_tensor(&c, GLINT_FLOAT32, 3, rows, 0, NULL);
  g.d_o = testkit_tensor(&c, GLINT_FLOAT32, 4, q, 1, &random), g.dq = testkit_tensor(&c, GLINT_FLOAT64, 4, q, 0, NULL);
  g.dk = testkit_tensor(&c, GLINT_FLOAT64, 4, k, 0, NULL), g.dv = testkit_tensor(&c, GLINT_FLOAT64, 4, k, 0, NULL);
  assert_int_equal(glint_forward(context, &p), GLINT_OK);
  assert_int_equal(glint_backward(context, &p, &g), GLINT_OK);
  for (int n = 0; n < SQ * D; n++) assert_true(((double *)g.dq.data)[n] == 0); /* every row sees one key or none */
  for (int n = 0; n < SK * D; n++) assert_true(((double *)g.dk.data)[n] == 0);
  for (int n = 0; n < SK * D; n++) assert_true(((double *)g.dv.data)[n] == (double)((float *)g.d_o.data)[n + (SQ - SK) * D]);
  int32_t none = 0;
  p.seqused_q = testkit_int32(&c, &none, 1);
  assert_int_equal(glint_backward(context, &p, &g), GLINT_OK);
  for (int n = 0; n < SK * D; n++) assert_true(((double *)g.dv.data)[n] == 0);
  testkit_free_case(&c);
}

static int open_context(void **state) {
  (void)state;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE, .threads = 1};
  seed = testkit_fresh_seed();
  print_message("seed: GLINT_SEED=%llu\n", (unsigned long long)seed);
  return glint_open(&options, &context) != GLINT_OK;
}

static int close_context(void **state) {
  (void)state;
  glint_close(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_exact_zeros)};
  return cmocka_run_group_tests(tests, open_context, close_context);
}
