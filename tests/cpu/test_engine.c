/* The CPU engine as a whole: against the oracle on every instruction set that the machine has, and what must not change any bit. */
#include "isa.h"
#include "testkit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

static glint_context *open_cpu(glint_isa isa, int threads) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU, .isa = isa, .threads = threads};
  glint_context *context;
  if (glint_open(&options, &context) != GLINT_OK) fail_msg("%s", glint_last_error(NULL));
  return context;
}

static void run_cases(glint_isa isa, const testkit_options *options, uint64_t first, uint64_t count) {
  if (!glint_cpu_machine_get()->has[isa]) skip();
  glint_context *context = open_cpu(isa, 2);
  for (uint64_t n = first; n < first + count; n++) {
    testkit_report report;
    testkit_run_case(context, options, seed, n, &report);
    if (report.outcome != TESTKIT_PASSED)
      fail_msg("seed %llu case %llu, %s: %s\n  %s", (unsigned long long)seed, (unsigned long long)n, report.kernel, report.problem,
               report.message);
  }
  glint_close(context);
}

static void test_against_oracle(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  testkit_options every = {.features = TESTKIT_ALL | TESTKIT_COARSE_LSE}, fp8 = every, plain = {.max_work = 1 << 24};
  fp8.dtypes = 1u << GLINT_FLOAT8_E4M3 | 1u << GLINT_FLOAT8_E5M2;
  run_cases(isa, &every, 0, 60);
  run_cases(isa, &fp8, 1000, 15);
  run_cases(isa, &plain, 2000, 2);
}

static void test_forced(void **state) {
  const glint_cpu_machine *machine = glint_cpu_machine_get();
  glint_context *context;
  (void)state;
  for (int isa = GLINT_ISA_PORTABLE; isa <= GLINT_ISA_NEON; isa++) {
    glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU, .isa = (glint_isa)isa};
    glint_status status = glint_open(&options, &context);
    assert_int_equal(status, machine->has[isa] ? GLINT_OK : GLINT_ERROR_NOT_FOUND);
    if (status) assert_non_null(strstr(glint_last_error(NULL), glint_cpu_isa_name((glint_isa)isa)));
    glint_close(status ? NULL : context);
  }
}

static void test_environment(void **state) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  glint_context *context;
  char text[2048];
  (void)state;
  setenv("GLINT_ISA", "sse9", 1);
  assert_int_equal(glint_open(&options, &context), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(glint_last_error(NULL), "sse9"));
  setenv("GLINT_ISA", "neon", 1);
  assert_int_equal(glint_open(&options, &context), glint_cpu_machine_get()->has[GLINT_ISA_NEON] ? GLINT_OK : GLINT_ERROR_NOT_FOUND);
  setenv("GLINT_ISA", "portable", 1);
  assert_int_equal(glint_open(&options, &context), GLINT_OK);
  glint_describe(context, text, sizeof text);
  assert_non_null(strstr(text, "uses portable"));
  glint_close(context);
  unsetenv("GLINT_ISA");
}

/* A dense problem in contiguous memory. */
typedef struct dense {
  testkit_case owner;
  glint_problem p;
  size_t o_bytes, lse_bytes;
} dense;

static void make_dense(dense *d, glint_dtype dtype, int64_t batch, int64_t seqlen_q, int64_t seqlen_k, int64_t heads_q, int64_t heads_kv,
                       int64_t head_dim, uint64_t *random) {
  const int64_t q[] = {batch, seqlen_q, heads_q, head_dim}, k[] = {batch, seqlen_k, heads_kv, head_dim}, l[] = {batch, heads_q, seqlen_q};
  memset(d, 0, sizeof *d);
  d->p.struct_size = sizeof d->p;
  d->p.q = testkit_tensor(&d->owner, dtype, 4, q, 1, random);
  d->p.k = testkit_tensor(&d->owner, dtype, 4, k, 1, random);
  d->p.v = testkit_tensor(&d->owner, dtype, 4, k, 1, random);
  d->p.o = testkit_tensor(&d->owner, dtype, 4, q, 0, random);
  d->p.lse = testkit_tensor(&d->owner, GLINT_FLOAT32, 3, l, 0, random);
  d->o_bytes = (size_t)(batch * seqlen_q * heads_q * head_dim) * glint_dtype_size(dtype);
  d->lse_bytes = (size_t)(batch * heads_q * seqlen_q) * sizeof(float);
}

/* Runs and returns o and lse, one behind the other. */
static char *result(const dense *d, glint_context *context, const glint_problem *p) {
  char *bytes = malloc(d->o_bytes + d->lse_bytes);
  assert_non_null(bytes);
  memset(d->p.o.data, 0xFF, d->o_bytes);
  if (glint_forward(context, p) != GLINT_OK) fail_msg("%s", glint_last_error(context));
  memcpy(bytes, d->p.o.data, d->o_bytes);
  memcpy(bytes + d->o_bytes, d->p.lse.data, d->lse_bytes);
  return bytes;
}

/* 1, 2, 3, 7 and 16 threads give the same bits: prefill, causal, decode split over keys. */
static void test_threads(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  const int threads[] = {2, 3, 7, 16};
  uint64_t random = seed;
  if (!glint_cpu_machine_get()->has[isa]) skip();
  for (int round = 0; round < 6; round++) {
    dense d;
    int decode = round >= 4;
    make_dense(&d, round % 2 ? GLINT_BFLOAT16 : GLINT_FLOAT32, 2, decode ? 1 : 203, decode ? 3001 : 333, 4, 2, 64, &random);
    d.p.causal = round / 2 == 1;
    glint_context *one = open_cpu(isa, 1);
    char *expected = result(&d, one, &d.p);
    for (int n = 0; n < 4; n++) {
      glint_context *many = open_cpu(isa, threads[n]);
      char *got = result(&d, many, &d.p);
      assert_memory_equal(got, expected, d.o_bytes + d.lse_bytes);
      free(got);
      glint_close(many);
    }
    free(expected);
    glint_close(one);
    testkit_free_case(&d.owner);
  }
}

/* The same for gradients: dQ, dK, dV, split over rows and not, causal and not. */
static void test_backward_threads(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  const int threads[] = {1, 2, 3, 7};
  uint64_t random = seed + 5;
  if (!glint_cpu_machine_get()->has[isa]) skip();
  for (int round = 0; round < 4; round++) {
    dense d;
    enum { BATCH = 2, ROWS = 150, KEYS = 170, HEADS = 4, KV = 2, DIM = 32 };
    const int64_t q[] = {BATCH, ROWS, HEADS, DIM}, k[] = {BATCH, KEYS, KV, DIM};
    make_dense(&d, round % 2 ? GLINT_BFLOAT16 : GLINT_FLOAT32, BATCH, ROWS, KEYS, HEADS, KV, DIM, &random);
    d.p.causal = round / 2;
    glint_gradients g = {.struct_size = sizeof g, .d_o = testkit_tensor(&d.owner, d.p.o.dtype, 4, q, 1, &random)};
    g.dq = testkit_tensor(&d.owner, GLINT_FLOAT32, 4, q, 0, &random);
    g.dk = testkit_tensor(&d.owner, GLINT_FLOAT32, 4, k, 0, &random), g.dv = testkit_tensor(&d.owner, GLINT_FLOAT32, 4, k, 0, &random);
    static float first[3][BATCH * KEYS * HEADS * DIM];
    const glint_tensor *outputs[] = {&g.dq, &g.dk, &g.dv};
    const size_t bytes[] = {sizeof(float) * BATCH * ROWS * HEADS * DIM, sizeof(float) * BATCH * KEYS * KV * DIM,
                            sizeof(float) * BATCH * KEYS * KV * DIM};
    for (int n = 0; n < 4; n++) {
      glint_context *context = open_cpu(isa, threads[n]);
      if (n == 0) free(result(&d, context, &d.p));
      if (glint_backward(context, &d.p, &g) != GLINT_OK) fail_msg("%s", glint_last_error(context));
      for (int t = 0; t < 3; t++) {
        if (n == 0) memcpy(first[t], outputs[t]->data, bytes[t]);
        assert_memory_equal(outputs[t]->data, first[t], bytes[t]);
      }
      glint_close(context);
    }
    testkit_free_case(&d.owner);
  }
}

/* With the flag, each sequence of a batch comes out as it does alone. */
static void test_batch_invariant(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  uint64_t random = seed + 1;
  if (!glint_cpu_machine_get()->has[isa]) skip();
  glint_context *context = open_cpu(isa, 2);
  for (int round = 0; round < 4; round++) {
    dense d;
    enum { BATCH = 5 };
    make_dense(&d, round % 2 ? GLINT_BFLOAT16 : GLINT_FLOAT32, BATCH, round < 2 ? 1 : 70, 2111, 4, 1, 64, &random);
    d.p.flags = GLINT_BATCH_INVARIANT;
    d.p.causal = 1;
    char *expected = result(&d, context, &d.p);
    for (int b = 0; b < BATCH; b++) {
      glint_problem one = d.p;
      glint_tensor *tensors[] = {&one.q, &one.k, &one.v, &one.o, &one.lse};
      for (int n = 0; n < 5; n++) {
        int64_t elements = 1;
        for (int a = 1; a < tensors[n]->rank; a++) elements *= tensors[n]->shape[a];
        tensors[n]->data = (char *)tensors[n]->data + (size_t)(b * elements) * glint_dtype_size(tensors[n]->dtype);
        tensors[n]->shape[0] = 1;
      }
      free(result(&d, context, &one));
      assert_memory_equal(one.o.data, expected + d.o_bytes / BATCH * (size_t)b, d.o_bytes / BATCH);
      assert_memory_equal(one.lse.data, expected + d.o_bytes + d.lse_bytes / BATCH * (size_t)b, d.lse_bytes / BATCH);
    }
    free(expected);
    testkit_free_case(&d.owner);
  }
  glint_close(context);
}

/* Any number of splits is the same result up to rounding. */
static void test_splits(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  const int splits[] = {2, 3, 5, 17, 32, 55, 97, 133, 4000};
  uint64_t random = seed + 2;
  if (!glint_cpu_machine_get()->has[isa]) skip();
  glint_context *context = open_cpu(isa, 2);
  for (int round = 0; round < 2; round++) {
    dense d;
    make_dense(&d, GLINT_FLOAT32, 1, round ? 40 : 2, 2500, 4, 2, 64, &random);
    d.p.num_splits = 1;
    char *expected = result(&d, context, &d.p);
    for (int n = 0; n < 9; n++) {
      d.p.num_splits = splits[n];
      char *got = result(&d, context, &d.p);
      for (size_t i = 0; i < (d.o_bytes + d.lse_bytes) / sizeof(float); i++) {
        float a, b;
        memcpy(&a, expected + 4 * i, 4), memcpy(&b, got + 4 * i, 4);
        if (!(fabs((double)a - (double)b) < 1e-5))
          fail_msg("%d splits: element %zu is %g, expected %g", splits[n], i, (double)b, (double)a);
      }
      free(got);
    }
    free(expected);
    testkit_free_case(&d.owner);
  }
  glint_close(context);
}

/* NaN and infinity in keys and values that only some rows see reach those rows and no other. */
static void test_masked_nan(void **state) {
  glint_isa isa = *(const glint_isa *)*state;
  uint64_t random = seed + 3;
  if (!glint_cpu_machine_get()->has[isa]) skip();
  glint_context *context = open_cpu(isa, 2);
  for (int round = 0; round < 8; round++) {
    dense d;
    enum { LENGTH = 150, BAD = 97, D = 32 };
    int64_t rows = round & 4 ? 3 : LENGTH, first_row = LENGTH - rows;
    int64_t bad = round & 4 ? LENGTH - 2 : BAD;
    make_dense(&d, round & 1 ? GLINT_BFLOAT16 : GLINT_FLOAT32, 1, rows, LENGTH, 2, 1, D, &random);
    d.p.causal = 1;
    char *clean = result(&d, context, &d.p);
    glint_tensor *spoiled = round & 2 ? &d.p.k : &d.p.v;
    char *at = (char *)spoiled->data + (size_t)(bad * D) * glint_dtype_size(spoiled->dtype);
    memset(at, 0xFF, D * glint_dtype_size(spoiled->dtype));
    char *got = result(&d, context, &d.p);
    size_t row_bytes = d.o_bytes / (size_t)rows;
    for (int64_t i = 0; i < rows; i++) {
      if (first_row + i < bad) {
        assert_memory_equal(got + (size_t)i * row_bytes, clean + (size_t)i * row_bytes, row_bytes);
        continue;
      }
      for (size_t c = 0; c < row_bytes; c += glint_dtype_size(d.p.o.dtype)) {
        uint32_t word = 0;
        if (d.p.o.dtype == GLINT_FLOAT32)
          memcpy(&word, got + (size_t)i * row_bytes + c, 4);
        else
          memcpy((char *)&word + 2, got + (size_t)i * row_bytes + c, 2);
        assert_true((word & 0x7FFFFFFF) > 0x7F800000);
      }
    }
    free(clean), free(got);
    testkit_free_case(&d.owner);
  }
  glint_close(context);
}

/* The plan's workspace does not grow with the lengths' product, and the caller's is used. */
static void test_workspace(void **state) {
  const int64_t lengths[] = {4096, 65536};
  size_t bytes[2];
  (void)state;
  glint_context *context = open_cpu(GLINT_ISA_AUTO, 2);
  for (int n = 0; n < 2; n++) {
    float dummy[4];
    glint_problem p = {.struct_size = sizeof p};
    glint_tensor t = {.data = dummy, .dtype = GLINT_FLOAT32, .rank = 4, .shape = {1, lengths[n], 1, 128}};
    glint_plan_info plan = {.struct_size = sizeof plan};
    p.q = p.k = p.v = p.o = t;
    assert_int_equal(glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, &plan), GLINT_OK);
    assert_true(plan.flops == 4.0 * (double)lengths[n] * (double)lengths[n] * 128);
    bytes[n] = plan.workspace_bytes;
  }
  assert_true(bytes[1] <= 2 * bytes[0] && bytes[1] < (size_t)16 << 20);
  glint_close(context);
}

int main(void) {
  static const glint_isa isas[] = {GLINT_ISA_PORTABLE, GLINT_ISA_AVX2, GLINT_ISA_AVX512, GLINT_ISA_AVX512_BF16, GLINT_ISA_AMX_BF16};
  static const struct {
    const char *name;
    CMUnitTestFunction run;
  } each[] = {{"oracle", test_against_oracle},           {"threads", test_threads}, {"backward_threads", test_backward_threads},
              {"batch_invariant", test_batch_invariant}, {"splits", test_splits},   {"masked_nan", test_masked_nan}};
  enum { ISAS = sizeof isas / sizeof *isas, EACH = sizeof each / sizeof *each };
  static char names[ISAS * EACH][64];
  static struct CMUnitTest tests[ISAS * EACH + 3] = {cmocka_unit_test(test_forced), cmocka_unit_test(test_environment),
                                                     cmocka_unit_test(test_workspace)};
  int count = 3;
  seed = testkit_fresh_seed();
  printf("seed %llu\n", (unsigned long long)seed);
  for (int n = 0; n < EACH; n++)
    for (int i = 0; i < ISAS; i++) {
      char *name = names[count - 3];
      snprintf(name, sizeof names[0], "%s_%s", each[n].name, glint_cpu_isa_name(isas[i]));
      tests[count++] = (struct CMUnitTest){name, each[n].run, NULL, NULL, (void *)(uintptr_t)&isas[i]};
    }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
