/* Quantize, then attend: the two halves of the API agree on what a factor belongs to. For every shape of factors, with GQA, packed and unused
 * rows, rotation and smoothing, o of the FP8 problem is near o of the original one, and lse plus lse_shift near its lse; and the engines agree
 * on the FP8 problem itself as closely as on any other. */
#include "random_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 30 };
static uint64_t seed;
static glint_context *cpu, *oracle;

typedef struct setup {
  testkit_case made;
  int64_t batch, sq, sk, heads_q, heads_kv, d, dv;
  int packed, used, rotate, smooth, kind[3];
  glint_dtype fp8;
  glint_problem original, small; /* small: the FP8 one */
  glint_quantization q;
} setup;

static glint_tensor make(setup *s, glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d, double magnitude) {
  const int64_t shape[4] = {a, b, c, d};
  return testkit_tensor(&s->made, dtype, rank, shape, magnitude, &seed);
}

static glint_tensor make_factors(setup *s, int kind, int64_t heads, int64_t seqlen) {
  if (kind == 0) return make(s, GLINT_FLOAT32, 1, 1, 0, 0, 0, 0);
  if (kind == 1) return make(s, GLINT_FLOAT32, 2, s->batch, s->heads_kv, 0, 0, 0);
  return make(s, GLINT_FLOAT32, 3, s->batch, heads, 1 + testkit_random_below(&seed, seqlen / 16 + 1), 0, 0);
}

static void make_lengths(setup *s) {
  int32_t cu_q[4] = {0}, cu_k[4] = {0}, used[3];
  for (int64_t b = 0; b < s->batch; b++) {
    cu_q[b + 1] = cu_q[b] + (int32_t)(b ? testkit_random_below(&seed, s->sq + 1) : s->sq);
    cu_k[b + 1] = cu_k[b] + (int32_t)(b ? testkit_random_below(&seed, s->sk + 1) : s->sk);
    used[b] = (int32_t)testkit_random_below(&seed, (s->packed ? cu_k[b + 1] - cu_k[b] : s->sk) + 1);
  }
  if (s->packed) {
    s->original.cu_seqlens_q = s->q.cu_seqlens_q = testkit_int32(&s->made, cu_q, s->batch + 1);
    s->original.cu_seqlens_k = s->q.cu_seqlens_k = testkit_int32(&s->made, cu_k, s->batch + 1);
    s->original.max_seqlen_q = s->q.max_seqlen_q = s->sq, s->original.max_seqlen_k = s->q.max_seqlen_k = s->sk;
  }
  if (s->used) s->original.seqused_k = s->q.seqused_k = testkit_int32(&s->made, used, s->batch);
}

static void make_setup(setup *s, int n) {
  static const int64_t dims[] = {64, 128, 96, 32, 192};
  memset(s, 0, sizeof *s);
  s->batch = 1 + n % 3, s->heads_kv = 1 + n % 2, s->heads_q = s->heads_kv * (1 + n / 2 % 3), s->d = dims[n % 5], s->dv = dims[n / 5 % 5];
  s->sq = 1 + testkit_random_below(&seed, 90), s->sk = 1 + testkit_random_below(&seed, 150);
  s->packed = n / 3 % 2, s->used = n / 6 % 2, s->rotate = n / 2 % 2, s->smooth = n / 4 % 2;
  for (int i = 0; i < 3; i++) s->kind[i] = (int)testkit_random_below(&seed, 3);
  s->fp8 = n % 7 == 3 ? GLINT_FLOAT8_E5M2 : GLINT_FLOAT8_E4M3;
  s->q.struct_size = sizeof s->q, s->original.struct_size = sizeof s->original;
  make_lengths(s);
  int64_t rows_q = s->packed ? s->batch * s->sq : s->sq, rows_k = s->packed ? s->batch * s->sk : s->sk, batch = s->packed ? 1 : s->batch;
  glint_problem *p = &s->original;
  p->causal = n / 8 % 2;
  p->q = make(s, GLINT_FLOAT32, 4, batch, rows_q, s->heads_q, s->d, 1),
  p->k = make(s, GLINT_FLOAT32, 4, batch, rows_k, s->heads_kv, s->d, 1);
  p->v = make(s, GLINT_FLOAT32, 4, batch, rows_k, s->heads_kv, s->dv, 1);
  float *k = p->k.data;
  for (int64_t i = 0; i < batch * rows_k * s->heads_kv * s->d; i++) k[i] += i % s->d % 5 == 2 ? 3 : 0; /* a bias that smoothing removes */
  p->o = make(s, GLINT_FLOAT32, 4, batch, rows_q, s->heads_q, s->dv, 0),
  p->lse = make(s, GLINT_FLOAT32, 3, batch, s->heads_q, rows_q, 0, 0);
  glint_quantization *q = &s->q;
  q->q = p->q, q->k = p->k, q->v = p->v, q->rotate = s->rotate, q->rotation_seed = testkit_random(&seed), q->smooth = s->smooth;
  s->small = s->original;
  s->small.q = q->q_fp8 = make(s, s->fp8, 4, batch, rows_q, s->heads_q, s->d, 0);
  s->small.k = q->k_fp8 = make(s, s->fp8, 4, batch, rows_k, s->heads_kv, s->d, 0);
  s->small.v = q->v_fp8 = make(s, s->fp8, 4, batch, rows_k, s->heads_kv, s->dv, 0);
  s->small.descale_q = q->descale_q = make_factors(s, s->kind[0], s->heads_q, s->sq);
  s->small.descale_k = q->descale_k = make_factors(s, s->kind[1], s->heads_kv, s->sk);
  s->small.descale_v = q->descale_v = make_factors(s, s->kind[2], s->heads_kv, s->sk);
  s->small.o = make(s, GLINT_FLOAT32, 4, batch, rows_q, s->heads_q, s->dv, 0);
  s->small.lse = make(s, GLINT_FLOAT32, 3, batch, s->heads_q, rows_q, 0, 0);
  if (s->smooth) q->lse_shift = make(s, GLINT_FLOAT32, 3, batch, s->heads_q, rows_q, 0, 0);
}

static void must(glint_context *context, glint_status status) {
  if (status != GLINT_OK) fail_msg("%s", glint_last_error(context));
}

/* Root of the mean square of the difference, over rows that exist. */
static double distance(const glint_tensor *a, const glint_tensor *b, int64_t *finite) {
  const float *x = a->data, *y = b->data;
  double sum = 0;
  int64_t count = a->shape[0] * a->shape[1] * a->shape[2] * (a->rank == 4 ? a->shape[3] : 1);
  *finite = 0;
  for (int64_t i = 0; i < count; i++) {
    if (isinf(x[i]) && x[i] == y[i]) continue;
    if (isnan(x[i]) && isnan(y[i])) continue; /* rows of no sequence */
    sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]), ++*finite;
  }
  return sqrt(sum / (double)(*finite ? *finite : 1));
}

static void is_near_the_original(void **state) {
  (void)state;
  for (int n = 0; n < CASES; n++) {
    setup s;
    int64_t finite;
    make_setup(&s, n);
    must(cpu, glint_quantize(cpu, &s.q));
    must(oracle, glint_forward(oracle, &s.original));
    must(cpu, glint_forward(cpu, &s.small));
    double coarse = s.fp8 == GLINT_FLOAT8_E5M2 ? 2 : 1;
    double error = distance(&s.small.o, &s.original.o, &finite);
    if (!(error < 0.06 * coarse))
      fail_msg("case %d of GLINT_SEED=%llu: o is off by %g", n, (unsigned long long)testkit_fresh_seed(), error);
    if (s.smooth) {
      float *lse = s.small.lse.data;
      const float *shift = s.q.lse_shift.data;
      for (int64_t i = 0; i < s.small.lse.shape[0] * s.heads_q * s.small.lse.shape[2]; i++) lse[i] += shift[i];
    }
    error = distance(&s.small.lse, &s.original.lse, &finite);
    if (!(error < 0.12 * coarse))
      fail_msg("case %d of GLINT_SEED=%llu: lse is off by %g", n, (unsigned long long)testkit_fresh_seed(), error);
    testkit_free_case(&s.made);
  }
}

static void engines_agree(void **state) {
  (void)state;
  for (int n = 0; n < CASES; n++) {
    setup s;
    testkit_report report;
    make_setup(&s, n);
    must(cpu, glint_quantize(cpu, &s.q));
    testkit_judge(cpu, NULL, &s.small, NULL, &report);
    if (report.outcome != TESTKIT_PASSED) fail_msg("case %d: %s\n%s", n, report.message, report.problem);
    testkit_free_case(&s.made);
  }
}

/* Shrinking the factors' blocks never makes the rounding coarser: with outliers in one block, finer factors have the smaller error. */
static void finer_factors_help(void **state) {
  (void)state;
  enum { ROWS = 256, D = 64 };
  static float x[ROWS * D], back;
  static uint8_t y[ROWS * D];
  double error[2];
  for (int i = 0; i < ROWS * D; i++) x[i] = (float)(testkit_random_normal(&seed) * (i < 16 * D ? 1e6 : 1));
  for (int fine = 0; fine < 2; fine++) {
    float factors[16];
    glint_quantization q = {.struct_size = sizeof q};
    q.v = (glint_tensor){x, {1, ROWS, 1, D}, {0}, GLINT_FLOAT32, 4},
    q.v_fp8 = (glint_tensor){y, {1, ROWS, 1, D}, {0}, GLINT_FLOAT8_E4M3, 4};
    q.descale_v = fine ? (glint_tensor){factors, {1, 1, 16}, {0}, GLINT_FLOAT32, 3} : (glint_tensor){factors, {1}, {0}, GLINT_FLOAT32, 1};
    must(cpu, glint_quantize(cpu, &q));
    error[fine] = 0;
    for (int i = 16 * D; i < ROWS * D; i++) {
      int magnitude = y[i] & 0x7F;
      back = ldexpf((float)(magnitude < 8 ? magnitude : (magnitude & 7) + 8), (magnitude < 8 ? 1 : magnitude >> 3) - 10);
      back *= (y[i] & 0x80 ? -1.0f : 1.0f) * factors[fine ? i / D / 16 : 0];
      error[fine] += ((double)back - (double)x[i]) * ((double)back - (double)x[i]);
    }
    error[fine] = sqrt(error[fine] / (ROWS * D - 16 * D));
  }
  assert_true(error[1] < 0.04); /* e4m3: relative 2^-4 / sqrt(3) at most on average */
  assert_true(error[0] > 0.5);  /* all underflow */
}

static int open_engines(void **state) {
  (void)state;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  if (glint_open(&options, &cpu) != GLINT_OK) return 1;
  options.engine = GLINT_ENGINE_ORACLE;
  return glint_open(&options, &oracle) != GLINT_OK;
}

static int close_engines(void **state) {
  (void)state;
  glint_close(cpu), glint_close(oracle);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(is_near_the_original), cmocka_unit_test(engines_agree),
                                     cmocka_unit_test(finer_factors_help)};
  seed = testkit_fresh_seed();
  printf("GLINT_SEED=%llu\n", (unsigned long long)seed);
  return cmocka_run_group_tests(tests, open_engines, close_engines);
}
