/* Random problems over all features against the oracle, new ones in every run. Repeat a run with GLINT_SEED. */
#include "harness.h"

#include <stdio.h>

static void run(engine *e, unsigned features, int64_t max_work, int cases) {
  int host = e->kind == GLINT_ENGINE_CPU || e->kind == GLINT_ENGINE_ORACLE;
  testkit_options options = {.features = features | (host ? TESTKIT_KEY_NAN | TESTKIT_COARSE_LSE : 0),
                             .dtypes = 1u << GLINT_FLOAT32 | 1u << GLINT_BFLOAT16 | 1u << GLINT_FLOAT16,
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

static void forward(engine *e) { run(e, TESTKIT_FORWARD_ALL, slow(e) ? 1 << 16 : 1 << 19, slow(e) ? 10 : 120); }
static void backward(engine *e) { run(e, TESTKIT_ALL, slow(e) ? 1 << 16 : 1 << 18, slow(e) ? 6 : 80); }

/* Few features at a time: what an engine takes whole without refusing. */
static void plain(engine *e) { run(e, TESTKIT_CAUSAL | TESTKIT_GQA | TESTKIT_BACKWARD, slow(e) ? 1 << 17 : 1 << 20, slow(e) ? 8 : 40); }

int main(void) {
  static const engine_case cases[] = {{"forward", forward}, {"backward", backward}, {"plain", plain}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
