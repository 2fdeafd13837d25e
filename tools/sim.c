/* glint sim: one problem on the GPU simulator, with everything that its model counts and finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "report.h"
#include "simulator.h"
#include "testkit.h"
#include "verb.h"

enum { MODES = SIM_ALL_MODES, EVERY_MODE = -1 };

typedef struct arguments {
  glint_options options;
  glint_problem problem; /* scores */
  glint_dtype dtype;
  int64_t batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v;
  uint64_t seed;
  int modes, backward, json;
} arguments;

enum {
  KEY_BATCH = OPTION_VERB_KEYS,
  KEY_SEQLEN,
  KEY_SEQLEN_Q,
  KEY_SEQLEN_K,
  KEY_HEADS,
  KEY_HEAD_DIM,
  KEY_HEAD_DIM_V,
  KEY_DTYPE,
  KEY_MODES,
  KEY_SEED,
  KEY_BACKWARD,
  KEY_JSON
};

static const struct argp_option option_list[] = {
    {"batch", KEY_BATCH, "N", 0, "sequences (default 1)", 0},
    {"seqlen", KEY_SEQLEN, "N", 0, "rows of q and of k (default 256)", 0},
    {"seqlen-q", KEY_SEQLEN_Q, "N", 0, "rows of q", 0},
    {"seqlen-k", KEY_SEQLEN_K, "N", 0, "rows of k and v", 0},
    {"heads", KEY_HEADS, "H[/K]", 0, "query heads, and key/value heads where they differ (default 2)", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "columns of q and k (default 128)", 0},
    {"head-dim-v", KEY_HEAD_DIM_V, "N", 0, "columns of v (default: head_dim)", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "bf16 or f16 (default bf16)", 0},
    {"modes", KEY_MODES, "N", 0,
     "when asynchronous work completes: the sum of 1 (cp.async), 2 (wgmma), 4 (TMA) for what completes late; or all, one after another "
     "(default 7)",
     0},
    {"seed", KEY_SEED, "S", 0, "inputs and order of warps (default: a fresh one)", 0},
    {"backward", KEY_BACKWARD, NULL, 0, "the backward pass after the forward pass", 0},
    {"json", KEY_JSON, NULL, 0, "as JSON", 0},
    {0},
};

static int64_t extent(struct argp_state *state, const char *name, const char *text) {
  return option_integer(state, name, text, 1, 1 << 20);
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options, state->child_inputs[1] = &a->problem; return 0;
  case KEY_BATCH: a->batch = extent(state, "batch", text); return 0;
  case KEY_SEQLEN: a->seqlen_q = a->seqlen_k = extent(state, "seqlen", text); return 0;
  case KEY_SEQLEN_Q: a->seqlen_q = extent(state, "seqlen-q", text); return 0;
  case KEY_SEQLEN_K: a->seqlen_k = extent(state, "seqlen-k", text); return 0;
  case KEY_HEADS: option_heads(state, text, &a->heads_q, &a->heads_kv); return 0;
  case KEY_HEAD_DIM: a->head_dim = extent(state, "head-dim", text); return 0;
  case KEY_HEAD_DIM_V: a->head_dim_v = extent(state, "head-dim-v", text); return 0;
  case KEY_DTYPE: a->dtype = option_dtype(state, text); return 0;
  case KEY_MODES: a->modes = strcmp(text, "all") ? (int)option_integer(state, "modes", text, 0, MODES - 1) : EVERY_MODE; return 0;
  case KEY_SEED: a->seed = strtoull(text, NULL, 0); return 0;
  case KEY_BACKWARD: a->backward = 1; return 0;
  case KEY_JSON: a->json = 1; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no arguments are expected"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {option_list,
                                   parse,
                                   NULL,
                                   "Runs a GPU kernel on the simulator, on a random problem. Prints the error against the oracle, every "
                                   "hazard that the model found, and its "
                                   "counts by source line: bank conflicts, bytes, transactions, matrix instructions.\v"
                                   "--arch 80, 86, 89 or 90 chooses the machine, --kernel the kernel instead of the plan. Exits with 1 "
                                   "when the result is wrong or a hazard "
                                   "was found.",
                                   options_engine_and_scores,
                                   NULL,
                                   NULL};

/* ---- the problem ---- */

static glint_tensor tensor(testkit_case *c, const arguments *a, int64_t rows, int64_t heads, int64_t columns, double magnitude) {
  const int64_t shape[4] = {a->batch, rows, heads, columns};
  uint64_t random = a->seed + (uint64_t)(rows * heads + columns);
  return testkit_tensor(c, a->dtype, 4, shape, magnitude, &random);
}

static void make_problem(const arguments *a, testkit_case *c) {
  const int64_t lse[3] = {a->batch, a->heads_q, a->seqlen_q};
  uint64_t random = a->seed;
  memset(c, 0, sizeof *c);
  c->problem = a->problem;
  c->problem.struct_size = sizeof c->problem;
  c->problem.q = tensor(c, a, a->seqlen_q, a->heads_q, a->head_dim, 1);
  c->problem.k = tensor(c, a, a->seqlen_k, a->heads_kv, a->head_dim, 1);
  c->problem.v = tensor(c, a, a->seqlen_k, a->heads_kv, a->head_dim_v, 1);
  c->problem.o = tensor(c, a, a->seqlen_q, a->heads_q, a->head_dim_v, 0);
  c->problem.lse = testkit_tensor(c, GLINT_FLOAT32, 3, lse, 0, &random);
  if (!a->backward) return;
  c->pass = GLINT_PASS_BACKWARD;
  c->gradients.struct_size = sizeof c->gradients;
  c->gradients.d_o = tensor(c, a, a->seqlen_q, a->heads_q, a->head_dim_v, 1);
  c->gradients.dq = tensor(c, a, a->seqlen_q, a->heads_q, a->head_dim, 0);
  c->gradients.dk = tensor(c, a, a->seqlen_k, a->heads_kv, a->head_dim, 0);
  c->gradients.dv = tensor(c, a, a->seqlen_k, a->heads_kv, a->head_dim_v, 0);
}

/* ---- telling ---- */

static void print_text(const arguments *a, int modes, const testkit_report *judged, const sim_report *r) {
  printf("%s: %s\n", judged->kernel[0] ? judged->kernel : "no kernel", judged->problem);
  printf("seed %llu, late: %s%s%s%s\n", (unsigned long long)a->seed, modes & SIM_CP_ASYNC_LATE ? "cp.async " : "",
         modes & SIM_WGMMA_LATE ? "wgmma " : "", modes & SIM_TMA_LATE ? "TMA " : "", modes ? "" : "nothing");
  if (judged->outcome == TESTKIT_PASSED)
    printf("right: error %.2e, %.2f of the allowed (%s)\n", judged->error, judged->worst, judged->worst_of);
  else
    printf("%s: %s\n", judged->outcome == TESTKIT_UNSUPPORTED ? "refused" : "WRONG", judged->message);
  if (r) sim_report_print(r, stdout);
}

static cJSON *parsed_report(const sim_report *r) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return cJSON_CreateNull();
  sim_report_print_json(r, stream);
  fclose(stream);
  cJSON *parsed = cJSON_Parse(text);
  free(text);
  return parsed ? parsed : cJSON_CreateNull();
}

static void add_json(cJSON *list, const arguments *a, int modes, const testkit_report *judged, const sim_report *r) {
  static const char *const outcomes[] = {"right", "refused", "wrong"};
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "kernel", judged->kernel);
  cJSON_AddStringToObject(item, "problem", judged->problem);
  cJSON_AddNumberToObject(item, "seed", (double)a->seed);
  cJSON_AddNumberToObject(item, "modes", modes);
  cJSON_AddStringToObject(item, "outcome", outcomes[judged->outcome]);
  cJSON_AddStringToObject(item, "message", judged->message);
  cJSON_AddNumberToObject(item, "error", judged->error);
  cJSON_AddNumberToObject(item, "of_allowed", judged->worst);
  cJSON_AddItemToObject(item, "report", r ? parsed_report(r) : cJSON_CreateNull());
  cJSON_AddItemToArray(list, item);
}

/* ---- */

static int run_once(const arguments *a, glint_context *context, const glint_sim_interface *simulator, int modes, cJSON *list) {
  testkit_case c;
  testkit_report judged;
  simulator_reset(simulator);
  simulator->set_modes((uint32_t)modes, a->seed);
  make_problem(a, &c);
  testkit_judge(context, NULL, &c.problem, a->backward ? &c.gradients : NULL, &judged);
  const sim_report *r = simulator_report(simulator);
  if (list)
    add_json(list, a, modes, &judged, r);
  else
    print_text(a, modes, &judged, r);
  testkit_free_case(&c);
  return judged.outcome != TESTKIT_PASSED || (r && r->hazard_count);
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options},
                 .problem = {.struct_size = sizeof a.problem},
                 .dtype = GLINT_BFLOAT16,
                 .batch = 1,
                 .seqlen_q = 256,
                 .seqlen_k = 256,
                 .heads_q = 2,
                 .heads_kv = 2,
                 .head_dim = 128,
                 .seed = testkit_fresh_seed(),
                 .modes = MODES - 1};
  glint_context *context = NULL;
  glint_error error = {""};
  int failed = 0;
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  if (!a.head_dim_v) a.head_dim_v = a.head_dim;
  a.options.engine = GLINT_ENGINE_SIM;
  const glint_sim_interface *simulator = simulator_find(&error);
  if (!simulator) return verb_fail(&error);
  if (glint_open(&a.options, &context) != GLINT_OK) return verb_fail_library(NULL, "open the simulator");
  cJSON *list = a.json ? cJSON_CreateArray() : NULL;
  for (int modes = 0; modes < MODES; modes++)
    if (a.modes == EVERY_MODE || a.modes == modes) failed |= run_once(&a, context, simulator, modes, list);
  if (list) {
    char *text = cJSON_Print(list);
    if (text) puts(text);
    free(text);
    cJSON_Delete(list);
  }
  glint_close(context);
  return failed;
}

const glint_verb glint_verb_sim = {"one problem on the GPU simulator, with hazards and counts", run};
