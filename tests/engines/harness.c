/* Engines, and what cases do with them. */
#include "harness.h"

#include "convert.h"
#include "device_memory.h"
#include "engines.h"
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENGINES = 16 };

static engine engines[MAX_ENGINES];
static int engine_count;

/* ---- engines ---- */

static void add_engine(const glint_options *options, const char *name, const char *isa, int64_t max_work) {
  engine *e = &engines[engine_count];
  const char *only = getenv("GLINT_TEST_ENGINE");
  if (only && strncmp(name, only, strlen(only)) != 0) return;
  if (engine_count == MAX_ENGINES || glint_open(options, &e->context)) return;
  if (options->engine == GLINT_ENGINE_CUDA) e->memory = device_memory();
  snprintf(e->name, sizeof e->name, "%s%s%s", name, isa ? "/" : "", isa ? isa : "");
  e->kind = options->engine, e->max_work = max_work, e->best = 1;
  if (engine_count && e[-1].kind == e->kind) e[-1].best = 0; /* opened in ascending order */
  engine_count++;
}

/* The oracle works on the host for all of them: a GPU's own time does not count. */
static int64_t most_work(glint_engine kind) { return (int64_t)1 << (kind == GLINT_ENGINE_SIM ? 19 : kind == GLINT_ENGINE_CUDA ? 30 : 25); }

static void open_engines(void) {
  static const char *const isas[] = {"auto", "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16", "neon"};
  for (int n = 0; glint_engine_at(n); n++) {
    const glint_engine_vtable *table = glint_engine_at(n);
    glint_options options = {.struct_size = sizeof options, .engine = table->engine};
    if (table->engine != GLINT_ENGINE_CPU) {
      add_engine(&options, table->name, NULL, most_work(table->engine));
      continue;
    }
    for (int isa = GLINT_ISA_PORTABLE; isa <= GLINT_ISA_NEON; isa++) {
      options.isa = (glint_isa)isa;
      add_engine(&options, table->name, isas[isa], (int64_t)1 << 27);
    }
  }
}

typedef struct running {
  engine *e;
  const engine_case *run;
} running;

static void run_one(void **state) {
  running *r = *state;
  r->run->run(r->e);
}

static int clean_up(void **state) {
  running *r = *state;
  testkit_free_case(&r->e->made);
  return 0;
}

int run_cases(const engine_case *cases, int count) {
  uint64_t seed = testkit_fresh_seed();
  printf("seed: GLINT_SEED=%llu\n", (unsigned long long)seed);
  open_engines();
  size_t total = (size_t)(count * engine_count);
  struct CMUnitTest *tests = calloc(total + 1, sizeof *tests);
  running *states = calloc(total + 1, sizeof *states);
  char(*names)[80] = calloc(total + 1, sizeof *names);
  int failed = !tests || !states || !names || !engine_count;
  for (size_t n = 0; n < total && !failed; n++) {
    engine *e = &engines[n / (size_t)count];
    e->random = seed;
    states[n] = (running){e, &cases[n % (size_t)count]};
    snprintf(names[n], sizeof names[n], "%s on %s", states[n].run->name, e->name);
    tests[n] = (struct CMUnitTest){names[n], run_one, NULL, clean_up, &states[n]};
  }
  if (!failed) failed = _cmocka_run_group_tests("cases", tests, total, NULL, NULL);
  for (int n = 0; n < engine_count; n++) glint_close(engines[n].context);
  device_memory_close();
  free(tests);
  free(states);
  free(names);
  return failed;
}

glint_tensor make_tensor(engine *e, glint_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d, double magnitude) {
  const int64_t shape[4] = {a, b, c, d};
  glint_tensor t = testkit_tensor(&e->made, dtype, d ? 4 : c ? 3 : b ? 2 : 1, shape, magnitude, &e->random);
  assert_non_null(t.data);
  return t;
}

glint_tensor make_int32(engine *e, const int32_t *values, int64_t count) {
  glint_tensor t = testkit_int32(&e->made, values, count);
  assert_non_null(t.data);
  return t;
}

/* Axes may be 0 here, so that the rank cannot be seen from them. */
static glint_tensor ranked(engine *e, glint_dtype dtype, int32_t rank, const int64_t *shape, double magnitude) {
  glint_tensor t = testkit_tensor(&e->made, dtype, rank, shape, magnitude, &e->random);
  assert_non_null(t.data);
  return t;
}

glint_problem make_problem(engine *e, glint_dtype dtype, sizes n, double magnitude) {
  glint_problem p = {.struct_size = sizeof p};
  const int64_t q[] = {n.batch, n.sq, n.heads_q, n.d}, k[] = {n.batch, n.sk, n.heads_kv, n.d}, v[] = {n.batch, n.sk, n.heads_kv, n.dv};
  const int64_t o[] = {n.batch, n.sq, n.heads_q, n.dv}, lse[] = {n.batch, n.heads_q, n.sq};
  p.q = ranked(e, dtype, 4, q, magnitude), p.k = ranked(e, dtype, 4, k, magnitude), p.v = ranked(e, dtype, 4, v, 1);
  p.o = ranked(e, dtype, 4, o, 0), p.lse = ranked(e, GLINT_FLOAT32, 3, lse, 0);
  return p;
}

glint_gradients make_gradients(engine *e, const glint_problem *p) {
  glint_gradients g = {.struct_size = sizeof g};
  g.d_o = ranked(e, p->o.dtype, 4, p->o.shape, 1);
  g.dq = ranked(e, p->q.dtype, 4, p->q.shape, 0), g.dk = ranked(e, p->q.dtype, 4, p->k.shape, 0),
  g.dv = ranked(e, p->q.dtype, 4, p->v.shape, 0);
  return g;
}

int affordable(const engine *e, const glint_problem *p) {
  double keys = (double)(p->page_table.data ? p->page_table.shape[1] * p->k.shape[1] : p->k.shape[1]);
  double work = (double)(p->q.shape[0] * p->q.shape[1] * p->q.shape[2] * (p->q.shape[3] + p->v.shape[3])) * keys;
  return work <= (double)e->max_work;
}

static int outcome(engine *e, glint_status status) {
  if (status == GLINT_OK) return 1;
  if (status != GLINT_ERROR_UNSUPPORTED) fail_msg("%s: %s", glint_status_text(status), glint_last_error(e->context));
  assert_true(*glint_last_error(e->context));
  return 0;
}

static glint_status call(engine *e, const glint_problem *p, const glint_gradients *g) {
  return g ? glint_backward(e->context, p, g) : glint_forward(e->context, p);
}

static void copy_elements(const glint_tensor *to, const unsigned char *from) {
  const size_t size = glint_dtype_size(to->dtype);
  for (int64_t n = 0, count = testkit_count(to); n < count; n++) {
    const size_t at = (size_t)testkit_offset(to, n) * size;
    memcpy((unsigned char *)to->data + at, from + at, size);
  }
}

/* The same through a copy in the engine's memory, whose results go into p's and g's tensors. */
static glint_status call_copied(engine *e, const glint_problem *p, const glint_gradients *g) {
  testkit_copy copy;
  glint_problem own = *p;
  glint_gradients own_gradients = {0};
  if (g) own_gradients = *g;
  assert_true(testkit_copy_make(&copy, e->memory, p, g, 0));
  if (p->workspace) assert_true(testkit_copy_workspace(&copy, p->workspace_bytes));
  glint_status status = call(e, &copy.problem, g ? &copy.gradients : NULL);
  assert_true(testkit_copy_fetch(&copy));
  for (int n = 0; n < testkit_slot_count && status == GLINT_OK; n++) {
    const testkit_bound *bound = &copy.bound[n];
    if (bound->written) copy_elements(testkit_slot_of(&testkit_slots[n], &own, g ? &own_gradients : NULL), bound->after + bound->start);
  }
  testkit_copy_free(&copy);
  return status;
}

int run_forward(engine *e, const glint_problem *p) {
  return affordable(e, p) && outcome(e, e->memory ? call_copied(e, p, NULL) : call(e, p, NULL));
}

int run_backward(engine *e, const glint_problem *p, const glint_gradients *g) {
  return affordable(e, p) && outcome(e, e->memory ? call_copied(e, p, g) : call(e, p, g));
}

void judge(engine *e, const glint_problem *p, const glint_gradients *g) {
  testkit_report report;
  if (!affordable(e, p)) return;
  const testkit_options options = {.memory = e->memory};
  if (testkit_judge(e->context, &options, p, g, &report) == TESTKIT_FAILED)
    fail_msg("%s\n  kernel %s\n  %s", report.problem, report.kernel, report.message);
}

static int64_t index_of(const glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t at[4] = {a, b, c, d};
  int64_t contiguous = 0, strided = 0, given = 0;
  for (int n = 0; n < t->rank; n++) {
    contiguous = contiguous * t->shape[n] + at[n];
    strided += at[n] * t->stride[n], given |= t->stride[n];
  }
  return given ? strided : contiguous;
}

double value_at(const glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return glint_load(t->data, t->dtype, index_of(t, a, b, c, d));
}

void set_value(const glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double value) {
  glint_store(t->data, t->dtype, index_of(t, a, b, c, d), value);
}

size_t bytes_of(const glint_tensor *t) {
  size_t bytes = glint_dtype_size(t->dtype);
  for (int n = 0; n < t->rank; n++) bytes *= (size_t)t->shape[n];
  return bytes;
}

void fill_value(const glint_tensor *t, double value) {
  for (size_t n = 0; n < bytes_of(t) / glint_dtype_size(t->dtype); n++) glint_store(t->data, t->dtype, (int64_t)n, value);
}

void assert_same(const glint_tensor *a, const glint_tensor *b) {
  assert_int_equal(bytes_of(a), bytes_of(b));
  assert_memory_equal(a->data, b->data, bytes_of(a));
}
