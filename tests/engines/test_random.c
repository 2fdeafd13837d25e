/* Random problems over all features against the oracle, new ones in every run. Repeat a run with GLINT_SEED. */
#include "harness.h"

#include <stdio.h>

#define WIDE_DTYPES (1u << GLINT_FLOAT32 | 1u << GLINT_BFLOAT16 | 1u << GLINT_FLOAT16)

static void run(engine *e, unsigned features, unsigned dtypes, int64_t max_work, int cases) {
  int host = e->kind == GLINT_ENGINE_CPU || e->kind == GLINT_ENGINE_ORACLE;
  testkit_options options = {.features = features | (host ? TESTKIT_KEY_NAN | TESTKIT_COARSE_LSE : 0),
                             .dtypes = dtypes,
                             .max_work = max_work,
                             .memory = e->memory};
  uint64_t seed = e->random;
  int passed = 0, unsupported = 0;
  for (uint64_t n = 0; n < (uint64_t)cases; n++) {
    testkit_report report;
    testkit_outcome outcome = testkit_run_case(e->context, &options, seed, n, &report);
    if (outcome == TESTKIT_FAILED)
      fail_msg("GLINT_SEED=%llu, case %llu: %s\n  kernel %s\n  %s", (unsigned long long)seed, (unsigned long long)n, report.problem,
               report.kernel, report.message);
    passed += outcome == TESTKIT_PASSED, unsupported += outcome == TESTKIT_UNSUPPORTED;
  }
  print_message("%s: %d passed, %d refused as unsupported\n", e->name, passed, unsupported);
  if (e->kind == GLINT_ENGINE_ORACLE) assert_int_equal(unsupported, 0);
}

static int slow(const engine *e) { return e->kind == GLINT_ENGINE_SIM; }

static void forward(engine *e) { run(e, TESTKIT_FORWARD_ALL, WIDE_DTYPES, slow(e) ? 1 << 16 : 1 << 19, slow(e) ? 10 : 120); }
static void backward(engine *e) { run(e, TESTKIT_ALL, WIDE_DTYPES, slow(e) ? 1 << 16 : 1 << 18, slow(e) ? 6 : 80); }

/* Few features at a time: what an engine takes whole without refusing. */
static void plain(engine *e) {
  run(e, TESTKIT_CAUSAL | TESTKIT_GQA | TESTKIT_BACKWARD, WIDE_DTYPES, slow(e) ? 1 << 17 : 1 << 20, slow(e) ? 8 : 40);
}

/* e4m3 with factors of every kind. The GPU's kernels want rows of 16 bytes, so most problems here have them. */
static void fp8(engine *e) {
  const unsigned aligned = TESTKIT_FORWARD_ALL & ~(TESTKIT_ODD_DIM | TESTKIT_MISALIGN | TESTKIT_PAGED | TESTKIT_APPEND | TESTKIT_BIAS);
  run(e, aligned, 1u << GLINT_FLOAT8_E4M3, slow(e) ? 1 << 20 : 1 << 19, slow(e) ? 12 : 60);
}

int main(void) {
  static const engine_case cases[] = {{"forward", forward}, {"fp8", fp8}, {"backward", backward}, {"plain", plain}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
