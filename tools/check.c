/* glint check: random problems over all features, judged against the oracle. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "testkit.h"
#include "verb.h"

typedef struct arguments {
  glint_options options;
  testkit_options kit;
  int64_t cases, only; /* only: -1, or the one case to run */
  uint64_t seed;
  int32_t head_dim;
  int verbose, json;
} arguments;

enum { KEY_CASES = OPTION_VERB_KEYS, KEY_SEED, KEY_CASE, KEY_DTYPE, KEY_HEAD_DIM, KEY_FORWARD, KEY_BACKWARD, KEY_MAX_WORK, KEY_JSON };

static const struct argp_option option_list[] = {
    {"cases", KEY_CASES, "N", 0, "how many random problems (default 500)", 0},
    {"seed", KEY_SEED, "S", 0, "which ones (default: fresh ones, or the environment variable GLINT_SEED)", 0},
    {"case", KEY_CASE, "N", 0, "only case N of the seed, with --verbose", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "only this type (default: f32, bf16 and f16)", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "only this head_dim", 0},
    {"forward", KEY_FORWARD, NULL, 0, "no backward passes", 0},
    {"backward", KEY_BACKWARD, NULL, 0, "only backward passes", 0},
    {"max-work", KEY_MAX_WORK, "N", 0, "limit of a problem's multiply-adds (default 2^22)", 0},
    {"verbose", 'v', NULL, 0, "one line a problem", 0},
    {"json", KEY_JSON, NULL, 0, "as JSON", 0},
    {0},
};

static void check_usage(struct argp_state *state, const arguments *a) {
  int only_fp8 = a->kit.dtypes && !(a->kit.dtypes & ~(1u << GLINT_FLOAT8_E4M3 | 1u << GLINT_FLOAT8_E5M2));
  if (a->kit.only_backward && !(a->kit.features & TESTKIT_BACKWARD)) argp_error(state, "--forward and --backward exclude each other");
  if (a->kit.only_backward && only_fp8) argp_error(state, "there are no random backward problems in FP8");
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options; return 0;
  case KEY_CASES: a->cases = option_integer(state, "cases", text, 1, INT64_MAX); return 0;
  case KEY_SEED: a->seed = strtoull(text, NULL, 0); return 0;
  case KEY_CASE: a->only = option_integer(state, "case", text, 0, INT64_MAX), a->verbose = 1; return 0;
  case KEY_DTYPE: a->kit.dtypes = 1u << option_dtype(state, text); return 0;
  case KEY_HEAD_DIM: a->head_dim = (int32_t)option_integer(state, "head-dim", text, 1, 512); return 0;
  case KEY_FORWARD: a->kit.features = TESTKIT_FORWARD_ALL; return 0;
  case KEY_BACKWARD: a->kit.only_backward = 1; return 0;
  case KEY_MAX_WORK: a->kit.max_work = option_integer(state, "max-work", text, 1, INT64_MAX); return 0;
  case 'v': a->verbose = 1; return 0;
  case KEY_JSON: a->json = 1; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no arguments are expected"); return 0;
  case ARGP_KEY_END: check_usage(state, a); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list,
    parse,
    NULL,
    "Runs random problems over all features and compares every output with the oracle. Exits with 1 when one is wrong.",
    options_engine_only,
    NULL,
    NULL};

/* ---- the engine's memory, as the testkit wants it ---- */

static void *kit_alloc(void *user, size_t bytes) {
  const memory *m = user;
  glint_error error;
  void *data = NULL;
  return m->allocate(m->state, bytes, &data, &error) == GLINT_OK ? data : NULL;
}

static void kit_free(void *user, void *data) {
  const memory *m = user;
  m->release(m->state, data);
}

static int kit_upload(void *user, void *to, const void *from, size_t bytes) {
  const memory *m = user;
  glint_error error;
  return m->upload(m->state, to, from, bytes, &error) == GLINT_OK;
}

static int kit_download(void *user, void *to, const void *from, size_t bytes) {
  const memory *m = user;
  glint_error error;
  return m->synchronize(m->state, &error) == GLINT_OK && m->download(m->state, to, from, bytes, &error) == GLINT_OK;
}

/* ---- cases ---- */

typedef struct tally {
  long passed, unsupported, failed;
  testkit_report worst; /* of the passed and failed cases */
  int64_t worst_case;
  double *of_plain; /* of each case that has one; ascending after run_cases */
  int64_t of_plain_count;
  cJSON *failures; /* with --json */
} tally;

/* The command line that runs one case again. */
static void print_repeat(const arguments *a, const char *engine, int64_t number, char *text, size_t size) {
  int at = snprintf(text, size, "glint check --engine %s --seed %" PRIu64 " --case %" PRId64, engine, a->seed, number);
  const struct {
    int given;
    const char *name;
    int64_t value;
  } numbers[] = {{a->head_dim > 0, "head-dim", a->head_dim},
                 {a->kit.max_work > 0, "max-work", a->kit.max_work},
                 {a->options.arch > 0, "arch", a->options.arch}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].given) at += snprintf(text + at, size - (size_t)at, " --%s %" PRId64, numbers[i].name, numbers[i].value);
  for (int d = GLINT_FLOAT32; d <= GLINT_FLOAT8_E5M2; d++)
    if (a->kit.dtypes == 1u << d) at += snprintf(text + at, size - (size_t)at, " --dtype %s", io_dtype_name((glint_dtype)d));
  if (a->options.kernel) at += snprintf(text + at, size - (size_t)at, " --kernel %.100s", a->options.kernel);
  if (a->options.isa) at += snprintf(text + at, size - (size_t)at, " --isa %s", option_isa_name(a->options.isa));
  if (!(a->kit.features & TESTKIT_BACKWARD)) at += snprintf(text + at, size - (size_t)at, " --forward");
  if (a->kit.only_backward) snprintf(text + at, size - (size_t)at, " --backward");
}

static void tell_failure(const arguments *a, tally *t, const char *engine, int64_t number, const testkit_report *r) {
  char repeat[256];
  print_repeat(a, engine, number, repeat, sizeof repeat);
  if (t->failures) {
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "case", (double)number);
    cJSON_AddStringToObject(item, "problem", r->problem);
    cJSON_AddStringToObject(item, "message", r->message);
    cJSON_AddStringToObject(item, "kernel", r->kernel);
    cJSON_AddStringToObject(item, "repeat", repeat);
    cJSON_AddItemToArray(t->failures, item);
    return;
  }
  progress_erase();
  printf("case %" PRId64 " FAILED (%s)\n  %s\n  %s\n  repeat with: %s\n", number, r->kernel, r->problem, r->message, repeat);
  fflush(stdout);
}

static void tell_verbose(int64_t number, const testkit_report *r) {
  progress_erase();
  if (r->outcome == TESTKIT_PASSED)
    printf("case %" PRId64 " ok, error %.1e, %.2f of the allowed (%s): %s: %s\n", number, r->error, r->worst, r->worst_of, r->kernel,
           r->problem);
  if (r->outcome == TESTKIT_UNSUPPORTED) printf("case %" PRId64 " refused: %s: %s\n", number, r->message, r->problem);
}

static void run_case(const arguments *a, glint_context *context, const char *engine, int64_t number, tally *t) {
  testkit_report r;
  switch (testkit_run_case(context, &a->kit, a->seed, (uint64_t)number, &r)) {
  case TESTKIT_PASSED: t->passed++; break;
  case TESTKIT_UNSUPPORTED: t->unsupported++; break;
  default: t->failed++; tell_failure(a, t, engine, number, &r);
  }
  if (r.outcome != TESTKIT_UNSUPPORTED && !(r.worst <= t->worst.worst)) t->worst = r, t->worst_case = number;
  if (r.of_plain > 0) t->of_plain[t->of_plain_count++] = r.of_plain;
  if (a->verbose && !a->json) tell_verbose(number, &r);
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A share of the cases has errors of at most so many times the plain implementation's. */
static double of_plain_at(const tally *t, double share) {
  return t->of_plain_count ? t->of_plain[(int64_t)((double)(t->of_plain_count - 1) * share)] : 0;
}

static void tell_json(const arguments *a, const char *engine, tally *t) {
  char seed[32];
  snprintf(seed, sizeof seed, "%" PRIu64, a->seed);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "engine", engine);
  cJSON_AddStringToObject(object, "seed", seed); /* a text: JSON numbers hold 53 bits */
  cJSON_AddNumberToObject(object, "passed", (double)t->passed);
  cJSON_AddNumberToObject(object, "unsupported", (double)t->unsupported);
  cJSON_AddNumberToObject(object, "failed", (double)t->failed);
  cJSON_AddNumberToObject(object, "worst_share_of_allowed", t->worst.worst);
  cJSON_AddNumberToObject(object, "worst_case", (double)t->worst_case);
  cJSON_AddStringToObject(object, "worst_problem", t->worst.problem);
  cJSON_AddNumberToObject(object, "of_plain_cases", (double)t->of_plain_count);
  cJSON_AddNumberToObject(object, "of_plain_median", of_plain_at(t, 0.5));
  cJSON_AddNumberToObject(object, "of_plain_largest", of_plain_at(t, 1));
  cJSON_AddItemToObject(object, "failures", t->failures);
  char *text = cJSON_Print(object);
  puts(text ? text : "{}");
  cJSON_free(text);
  cJSON_Delete(object);
}

static void tell_summary(const arguments *a, const char *engine, const tally *t) {
  printf("%s: %ld passed, %ld refused as unsupported, %ld failed; seed %" PRIu64 "\n", engine, t->passed, t->unsupported, t->failed,
         a->seed);
  if (t->passed + t->failed == 0) return;
  char repeat[256];
  print_repeat(a, engine, t->worst_case, repeat, sizeof repeat);
  printf("worst: %s at %.2f of the allowed error: %s\n  %s\n", t->worst.worst_of, t->worst.worst, t->worst.problem, repeat);
  if (t->of_plain_count)
    printf("error over that of a plain implementation (%" PRId64
           " problems where that is above the floor): median %.2f, 99 in 100 at most %.2f, "
           "largest %.2f; 2 and the floor are allowed\n",
           t->of_plain_count, of_plain_at(t, 0.5), of_plain_at(t, 0.99), of_plain_at(t, 1));
}

static void run_cases(const arguments *a, glint_context *context, const char *engine, tally *t) {
  int64_t first = a->only >= 0 ? a->only : 0, end = a->only >= 0 ? a->only + 1 : a->cases;
  progress_start();
  for (int64_t n = first; n < end; n++) {
    progress_say("checking against the oracle", (long)n + 1, (long)end);
    run_case(a, context, engine, n, t);
  }
  progress_stop();
  qsort(t->of_plain, (size_t)t->of_plain_count, sizeof *t->of_plain, compare_doubles);
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options},
                 .kit = {.features = TESTKIT_ALL},
                 .cases = 500,
                 .only = -1,
                 .seed = testkit_fresh_seed()};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  glint_context *context;
  memory m;
  glint_error error = {{0}};
  if (glint_open(&a.options, &context) != GLINT_OK) return verb_fail_library(NULL, "check");
  if (memory_open(glint_context_engine(context), &a.options, &m, &error) != GLINT_OK) {
    glint_close(context);
    return verb_fail(&error);
  }
  testkit_memory device = {&m, kit_alloc, kit_free, kit_upload, kit_download};
  if (!m.host) a.kit.memory = &device;
  glint_engine kind = glint_context_engine(context);
  if (kind == GLINT_ENGINE_CPU || kind == GLINT_ENGINE_ORACLE) a.kit.features |= TESTKIT_KEY_NAN | TESTKIT_COARSE_LSE;
  if (a.head_dim) a.kit.head_dims = &a.head_dim, a.kit.head_dims_count = 1;
  const char *engine = option_engine_name(glint_context_engine(context));
  tally t = {.worst = {.worst = -1}, .failures = a.json ? cJSON_CreateArray() : NULL};
  t.of_plain = malloc((size_t)(a.only >= 0 ? 1 : a.cases) * sizeof *t.of_plain);
  if (!t.of_plain) {
    memory_close(&m);
    glint_close(context);
    cJSON_Delete(t.failures);
    return snprintf(error.text, sizeof error.text, "check: out of memory for %" PRId64 " cases", a.cases), verb_fail(&error);
  }
  if (!a.json) printf("engine %s, seed %" PRIu64 "\n", engine, a.seed);
  run_cases(&a, context, engine, &t);
  if (a.json)
    tell_json(&a, engine, &t);
  else
    tell_summary(&a, engine, &t);
  free(t.of_plain);
  memory_close(&m);
  glint_close(context);
  if (t.failed == 0 && t.passed == 0 && a.only < 0)
    return snprintf(error.text, sizeof error.text, "check: the engine refused every case"), verb_fail(&error);
  return t.failed > 0;
}

const glint_verb glint_verb_check = {"random problems over all features, judged against the oracle", run};
