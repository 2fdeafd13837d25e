/* glint plan: what a call would do, from shapes alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "ceilings.h"
#include "options.h"
#include "report.h"
#include "verb.h"

typedef struct arguments {
  glint_options options;
  glint_problem problem; /* scores */
  glint_dtype dtype;
  int64_t batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v;
  int backward, json;
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
  KEY_BACKWARD,
  KEY_JSON
};

static const struct argp_option option_list[] = {
    {"batch", KEY_BATCH, "N", 0, "sequences (default 1)", 0},
    {"seqlen", KEY_SEQLEN, "N", 0, "rows of q and of k (default 2048)", 0},
    {"seqlen-q", KEY_SEQLEN_Q, "N", 0, "rows of q", 0},
    {"seqlen-k", KEY_SEQLEN_K, "N", 0, "rows of k and v", 0},
    {"heads", KEY_HEADS, "H[/K]", 0, "query heads, and key/value heads where they differ (default 16)", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "columns of q and k (default 128)", 0},
    {"head-dim-v", KEY_HEAD_DIM_V, "N", 0, "columns of v (default: head_dim)", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "f32, bf16, f16, e4m3 or e5m2 (default bf16)", 0},
    {"backward", KEY_BACKWARD, NULL, 0, "the backward pass", 0},
    {"json", KEY_JSON, NULL, 0, "as JSON", 0},
    {0},
};

static int64_t extent(struct argp_state *state, const char *name, const char *text) {
  return option_integer(state, name, text, 0, INT64_MAX);
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
  case KEY_BACKWARD: a->backward = 1; return 0;
  case KEY_JSON: a->json = 1; return 0;
  case ARGP_KEY_ARG: argp_error(state, "shapes are given by options"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list, parse, NULL, "Prints what a call with these shapes would do here, and why.", options_engine_and_scores, NULL, NULL};

/* A plan looks at shapes only; the address has to be there and aligned, and nothing behind it is touched. */
static glint_tensor imagined(glint_dtype dtype, int32_t rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
  static _Alignas(256) char address[256];
  return (glint_tensor){.data = address, .dtype = dtype, .rank = rank, .shape = {n0, n1, n2, n3}};
}

static glint_status make_plan(arguments *a, glint_context *context, glint_plan_info *plan) {
  glint_problem *p = &a->problem;
  int64_t columns = a->head_dim_v ? a->head_dim_v : a->head_dim;
  int fp8 = a->dtype == GLINT_FLOAT8_E4M3 || a->dtype == GLINT_FLOAT8_E5M2;
  p->struct_size = sizeof *p;
  p->q = imagined(a->dtype, 4, a->batch, a->seqlen_q, a->heads_q, a->head_dim);
  p->k = imagined(a->dtype, 4, a->batch, a->seqlen_k, a->heads_kv, a->head_dim);
  p->v = imagined(a->dtype, 4, a->batch, a->seqlen_k, a->heads_kv, columns);
  p->o = imagined(fp8 ? GLINT_BFLOAT16 : a->dtype, 4, a->batch, a->seqlen_q, a->heads_q, columns);
  p->lse = imagined(GLINT_FLOAT32, 3, a->batch, a->heads_q, a->seqlen_q, 0);
  static float one = 1;
  glint_tensor descale = {.data = &one, .dtype = GLINT_FLOAT32, .rank = 1, .shape = {1}};
  if (fp8) p->descale_q = p->descale_k = p->descale_v = descale;
  return glint_plan(context, a->backward ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD, p, NULL, plan);
}

static void print_table(const glint_plan_info *plan) {
  printf("engine      %s\nkernel      %s\nreason      %s\n", option_engine_name(plan->engine), plan->kernel, plan->reason);
  if (plan->tile_q) printf("tile        %d rows of q x %d of k\n", plan->tile_q, plan->tile_k);
  if (plan->stages) printf("stages      %d\n", plan->stages);
  if (plan->num_splits) printf("splits      %d\n", plan->num_splits);
  if (plan->threads) printf("threads     %d%s\n", plan->threads, plan->registers ? " a block" : "");
  if (plan->registers) printf("registers   %d a thread\n", plan->registers);
  if (plan->shared_bytes)
    printf("%s%lld bytes a %s\n", plan->registers ? "shared      " : "cache       ", (long long)plan->shared_bytes,
           plan->registers ? "block" : "thread");
  if (plan->grid) printf("grid        %lld, %.2f waves\n", (long long)plan->grid, (double)plan->waves_x100 / 100);
  printf("workspace   %zu bytes\nflops       %.4g\nbytes       %.4g\n", plan->workspace_bytes, plan->flops, plan->bytes);
  if (plan->roofline_seconds > 0)
    printf("roofline    %.4g ms\n", plan->roofline_seconds * 1e3);
  else
    puts("roofline    unknown for this machine");
}

static void print_json(const glint_plan_info *plan) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "engine", option_engine_name(plan->engine));
  cJSON_AddStringToObject(object, "kernel", plan->kernel);
  cJSON_AddStringToObject(object, "reason", plan->reason);
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"tile_q", plan->tile_q},
                 {"tile_k", plan->tile_k},
                 {"stages", plan->stages},
                 {"num_splits", plan->num_splits},
                 {"threads", plan->threads},
                 {"registers", plan->registers},
                 {"shared_bytes", (double)plan->shared_bytes},
                 {"grid", (double)plan->grid},
                 {"waves", (double)plan->waves_x100 / 100},
                 {"flops", plan->flops},
                 {"bytes", plan->bytes},
                 {"roofline_seconds", plan->roofline_seconds},
                 {"workspace_bytes", (double)plan->workspace_bytes}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) cJSON_AddNumberToObject(object, numbers[i].key, numbers[i].value);
  char *text = cJSON_Print(object);
  puts(text ? text : "{}");
  cJSON_free(text);
  cJSON_Delete(object);
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options},
                 .dtype = GLINT_BFLOAT16,
                 .batch = 1,
                 .seqlen_q = 2048,
                 .seqlen_k = 2048,
                 .heads_q = 16,
                 .heads_kv = 16,
                 .head_dim = 128};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  glint_context *context;
  glint_plan_info plan = {.struct_size = sizeof plan};
  if (glint_open(&a.options, &context) != GLINT_OK) return verb_fail_library(NULL, "plan");
  int result = 0;
  if (make_plan(&a, context, &plan) != GLINT_OK) {
    result = verb_fail_library(context, "plan");
  } else {
    plan.roofline_seconds = ceilings_roofline(&plan);
    if (a.json)
      print_json(&plan);
    else
      print_table(&plan);
  }
  ceilings_close();
  glint_close(context);
  return result;
}

const glint_verb glint_verb_plan = {"what a call with given shapes would do, and why", run};
