/* One kernel of the variants table, judged against the oracle: random problems over everything that its line promises, and lengths around its
 * tile's edges. On the simulator asynchronous work completes late and early, and the model's hazards fail the call, so a pass also says
 * that none was found, nor any bank conflict at the line's own head_dim. With GLINT_TEST_ENGINE=cuda in the environment on the GPU.
 *
 *   test_variants NAME,... [problems]      (a prefix of a NAME runs several) */
#include "backward_params.h"
#include "cuda/path.h"
#include "cuda/simulator.h"
#include "cuda/variant.h"
#include "device_memory.h"
#include "fp8_params.h"
#include "sim.h"
#include "testkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOLD 3
#define MODES     8 /* each of cp.async, wgmma and TMA late or early */

typedef struct run {
  const glint_variant *variant;
  const glint_sim_interface *simulator; /* NULL: on the GPU */
  const testkit_memory *memory;
  glint_context *context;
  uint64_t seed;
  int passed, refused, failed;
} run;

static int is_backward(const glint_variant *v) { return strncmp(v->source, "backward", strlen("backward")) == 0; }

static unsigned testkit_features(const glint_variant *v) {
  static const struct {
    uint32_t feature;
    unsigned kit;
  } table[] = {{FEATURE_MASK, TESTKIT_CAUSAL | TESTKIT_WINDOW | TESTKIT_NO_KEYS},
               {FEATURE_VARLEN, TESTKIT_PACKED | TESTKIT_SEQUSED},
               {FEATURE_SOFTCAP, TESTKIT_SOFTCAP},
               {FEATURE_ALIBI, TESTKIT_ALIBI},
               {FEATURE_SINKS, TESTKIT_SINKS},
               {FEATURE_BIAS, TESTKIT_BIAS},
               {FEATURE_DROPOUT, TESTKIT_DROPOUT},
               {FEATURE_PAGED, TESTKIT_PAGED},
               {FEATURE_SPLIT, TESTKIT_SPLITS},
               {FEATURE_O_FLOAT, TESTKIT_FLOAT32_OUT},
               {FEATURE_UNALIGNED, TESTKIT_ODD_DIM | TESTKIT_MISALIGN}};
  unsigned features = TESTKIT_GQA | TESTKIT_STRIDES | TESTKIT_EMPTY | TESTKIT_LARGE | TESTKIT_WORKSPACE;
  if (is_backward(v)) features |= TESTKIT_BACKWARD | TESTKIT_SINKS;
  if (!(v->features & FEATURE_UNPADDED)) features |= TESTKIT_HEAD_DIM_V;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (v->features & table[i].feature) features |= table[i].kit;
  return features;
}

/* These take few rows of dense q, and pages of some sizes: many problems are not for them. */
static int is_grouped(const glint_variant *v) { return (v->features & FEATURE_GROUPED) != 0; }

static void tell(run *r, const testkit_report *report, const char *what, uint64_t number) {
  if (report->outcome == TESTKIT_PASSED) r->passed++;
  if (report->outcome == TESTKIT_UNSUPPORTED) r->refused++;
  if (report->outcome != TESTKIT_FAILED) return;
  if (++r->failed > MOST_TOLD) return;
  printf("%s: %s %llu of GLINT_SEED=%llu, modes %llu\n  %s\n  %s\n", r->variant->name, what, (unsigned long long)number,
         (unsigned long long)r->seed, (unsigned long long)(number % MODES), report->problem, report->message);
}

static void set_modes(const run *r, uint64_t n) {
  if (r->simulator) r->simulator->set_modes((uint32_t)(n % MODES), r->seed + n);
}

static void random_problems(run *r, int problems) {
  const int32_t d = r->variant->head_dim;
  const int32_t step = r->variant->dtype == DTYPE_E4M3 ? 16 : 8; /* columns: 16 bytes, or enough for it */
  const int32_t dims[] = {d, d, d > 16 ? d - step : d, d > 32 ? (d / 2 + step) / step * step : d};
  testkit_options options = {.features = testkit_features(r->variant),
                             .dtypes = 1u << r->variant->dtype,
                             .head_dims = dims,
                             .head_dims_count = 4,
                             .memory = r->memory,
                             .max_work = r->variant->tile_q < 64 ? 1 << 18 : 3 << 20}; /* small tiles: no matrix unit, slow to model */
  for (uint64_t n = 0; n < (uint64_t)problems; n++) {
    testkit_report report;
    options.flags =
        r->variant->features & FEATURE_STAGED || (r->variant->features & FEATURE_ORDERED && n / MODES % 2) ? GLINT_DETERMINISTIC : 0;
    if (r->variant->features & FEATURE_FP32_ACCUMULATE) options.flags |= GLINT_FP32_ACCUMULATE;
    set_modes(r, n);
    testkit_run_case(r->context, &options, r->seed, n, &report);
    tell(r, &report, "random problem", n);
  }
}

/* Lengths one below, at and one above a tile, and beyond it. */
static int64_t length_near(int32_t tile, uint64_t *random) {
  const int64_t lengths[] = {1, tile - 1, tile, tile + 1, 2 * tile + 3, 5};
  return lengths[testkit_random_below(random, 6)];
}

/* FP8: a factor for each head, or for each block of rows where the kernel takes them. */
static void add_scales(testkit_case *c, const glint_variant *v, uint64_t *random) {
  const int64_t blocks = v->features & FEATURE_BLOCK_SCALES ? 3 : 1, q[3] = {1, 2, blocks}, k[3] = {1, 1, blocks};
  glint_tensor *all[3] = {&c->problem.descale_q, &c->problem.descale_k, &c->problem.descale_v};
  for (int n = 0; n < 3; n++) {
    *all[n] = testkit_tensor(c, GLINT_FLOAT32, 3, n ? k : q, 1, random);
    for (int64_t i = 0; i < (n ? 1 : 2) * blocks; i++) ((float *)all[n]->data)[i] = 0.25f + (float)testkit_random_below(random, 100) / 64;
  }
}

static void edge_problems(run *r, int problems) {
  const glint_variant *v = r->variant;
  const glint_dtype dtype = (glint_dtype)v->dtype;
  const testkit_options options = {.memory = r->memory};
  uint64_t random = r->seed;
  for (uint64_t n = 0; n < (uint64_t)problems; n++) {
    testkit_case c;
    testkit_report report;
    memset(&c, 0, sizeof c);
    const int64_t sq = length_near(is_grouped(v) ? v->tile_q / 4 : v->tile_q, &random), sk = length_near(v->tile_k, &random);
    const int64_t q[4] = {1, sq, 2, v->head_dim}, k[4] = {1, sk, 1, v->head_dim}, vv[4] = {1, sk, 1, v->head_dim_v},
                  o[4] = {1, sq, 2, v->head_dim_v}, lse[3] = {1, 2, sq};
    const glint_dtype o_dtype = dtype == GLINT_FLOAT8_E4M3 ? GLINT_BFLOAT16 : dtype;
    c.problem.struct_size = sizeof c.problem;
    c.problem.causal = v->features & FEATURE_MASK ? (int32_t)testkit_random_below(&random, 2) : 0;
    c.problem.q = testkit_tensor(&c, dtype, 4, q, 1, &random);
    c.problem.k = testkit_tensor(&c, dtype, 4, k, 1, &random);
    c.problem.v = testkit_tensor(&c, dtype, 4, vv, 1, &random);
    c.problem.o = testkit_tensor(&c, o_dtype, 4, o, 0, &random);
    c.problem.lse = testkit_tensor(&c, GLINT_FLOAT32, 3, lse, 0, &random);
    if (dtype == GLINT_FLOAT8_E4M3) add_scales(&c, v, &random);
    set_modes(r, n);
    testkit_judge(r->context, &options, &c.problem, NULL, &report);
    tell(r, &report, "edge problem", n);
    testkit_free_case(&c);
  }
}

/* Bank conflicts since the last reset; prints the lines that have them. */
static long conflicts(const run *r, int ordinal) {
  const sim_report *report = r->simulator->report(ordinal);
  for (unsigned i = 0; i < report->line_count; i++) {
    const sim_line *l = &report->lines[i];
    if (l->smem_wavefronts > l->smem_ideal)
      printf("%s: %s:%d %s: %llu wavefronts where %llu would do, %llu ways\n", r->variant->name, l->place->file, l->place->line,
             l->place->instruction, (unsigned long long)l->smem_wavefronts, (unsigned long long)l->smem_ideal,
             (unsigned long long)l->worst_ways);
  }
  return (long)report->bank_conflicts;
}

static int test_variant(const glint_variant *v, const glint_sim_interface *simulator, uint64_t seed, int problems) {
  run r = {.variant = v, .simulator = simulator, .memory = simulator ? NULL : device_memory(), .seed = seed};
  const int ordinal = v->arch == 90 ? 0 : 1; /* of the stand-in's devices */
  const glint_options options = {
      .struct_size = sizeof options, .engine = simulator ? GLINT_ENGINE_SIM : GLINT_ENGINE_CUDA, .arch = v->arch, .kernel = v->name};
  if (glint_open(&options, &r.context) != GLINT_OK) {
    printf("%s: %s\n", v->name, glint_last_error(NULL));
    return 1;
  }
  /* a third of the problems is for the backward pass: the others a backward kernel refuses, as it should; Hopper's refuse more */
  random_problems(&r, strncmp(v->source, "backward_fa3", strlen("backward_fa3")) == 0 ? 8 * problems
                      : is_backward(v) || is_grouped(v)                               ? 2 * problems
                                                                                      : problems);
  if (simulator) simulator->reset_report(ordinal); /* with head_dim as the line has it, shared memory is accessed without conflicts */
  if (!is_backward(v)) edge_problems(&r, problems / 2);
  const long ways = simulator ? conflicts(&r, ordinal) : 0;
  printf("%s: %d right, %d refused, %d wrong, %ld bank conflicts\n", v->name, r.passed, r.refused, r.failed, ways);
  fflush(stdout);
  if (r.passed < problems / 2) printf("%s: too few of the problems were for this kernel\n", v->name);
  glint_close(r.context);
  return r.failed > 0 || r.passed < problems / 2 || ways > 0;
}

/* What runs before others, or beside them, is tested with them (backward_prepare.c) or by itself (quantize.c). */
static int computes_attention(const glint_variant *v) {
  return (strncmp(v->source, "forward", strlen("forward")) == 0 && strcmp(v->source, "forward_combine.c") != 0) ||
         strncmp(v->source, "backward_fa", strlen("backward_fa")) == 0 || strcmp(v->source, "backward_simple.c") == 0;
}

/* names: prefixes between commas. */
static int is_named(const char *name, const char *names) {
  for (size_t length; *names; names += length + (names[length] == ',')) {
    length = strcspn(names, ",");
    if (length && strncmp(name, names, length) == 0) return 1;
  }
  return 0;
}

/* NULL: not usable. */
static const glint_sim_interface *open_simulator(void) {
  char path[4096];
  glint_sim_path(path, sizeof path);
  void *library = dlopen(path, RTLD_NOW);
  const glint_sim_interface *simulator = library ? dlsym(library, "glint_sim_driver") : NULL;
  if (!simulator) printf("%s\n", dlerror());
  return simulator;
}

int main(int argc, char **argv) {
  const char *engine = getenv("GLINT_TEST_ENGINE");
  const glint_sim_interface *simulator = NULL;
  int found = 0, failed = 0;
  if (argc < 2) return 2;
  const uint64_t seed = testkit_fresh_seed();
  printf("GLINT_SEED=%llu\n", (unsigned long long)seed);
  if ((!engine || strcmp(engine, "cuda") != 0) && !(simulator = open_simulator())) return 1;
  for (const glint_variant *v = glint_variants; v->name; v++)
    if (is_named(v->name, argv[1]) && computes_attention(v)) {
      found++;
      failed += test_variant(v, simulator, seed, argc > 2 ? atoi(argv[2]) : 16);
    }
  device_memory_close();
  if (!found) printf("no kernel is called %s\n", argv[1]);
  return failed > 0 || !found;
}
