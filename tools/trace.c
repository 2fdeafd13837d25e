/* glint trace: runs an instrumented kernel, whose warpgroups note the clock at each step, and draws the pipeline of one thread block. */
#include <stdlib.h>
#include <string.h>

#include "../kernels/trace.h"
#include "convert.h"
#include "memory.h"
#include "options.h"
#include "trace_stamps.h"
#include "verb.h"

typedef struct arguments {
  glint_options options;
  glint_problem scores;
  const char *output, *save, *load;
  int64_t batch, heads, seqlen, head_dim, begin, length;
} arguments;

enum { KEY_BATCH = OPTION_VERB_KEYS, KEY_HEADS, KEY_SEQLEN, KEY_HEAD_DIM, KEY_BEGIN, KEY_LENGTH, KEY_SAVE, KEY_LOAD };

static const struct argp_option option_list[] = {
    {"output", 'o', "OUT.svg", 0, "where to draw (default trace.svg)", 0},
    {"batch", KEY_BATCH, "N", 0, "sequences (default 4)", 0},
    {"heads", KEY_HEADS, "N", 0, "heads (default 16)", 0},
    {"seqlen", KEY_SEQLEN, "N", 0, "rows and keys of a sequence (default 2048)", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "columns (default 128)", 0},
    {"begin", KEY_BEGIN, "CYCLES", 0, "where the picture begins (default 20000)", 0},
    {"length", KEY_LENGTH, "CYCLES", 0, "what it shows (default 12000)", 0},
    {"save", KEY_SAVE, "FILE", 0, "also write the stamps as they are", 0},
    {"load", KEY_LOAD, "FILE", 0, "draw stamps that --save wrote; run nothing", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options, state->child_inputs[1] = &a->scores; return 0;
  case 'o': a->output = text; return 0;
  case KEY_BATCH: a->batch = option_integer(state, "batch", text, 1, 65536); return 0;
  case KEY_HEADS: a->heads = option_integer(state, "heads", text, 1, 65536); return 0;
  case KEY_SEQLEN: a->seqlen = option_integer(state, "seqlen", text, 1, 1 << 20); return 0;
  case KEY_HEAD_DIM: a->head_dim = option_integer(state, "head-dim", text, 8, 256); return 0;
  case KEY_BEGIN: a->begin = option_integer(state, "begin", text, 0, INT32_MAX); return 0;
  case KEY_LENGTH: a->length = option_integer(state, "length", text, 1, INT32_MAX); return 0;
  case KEY_SAVE: a->save = text; return 0;
  case KEY_LOAD: a->load = text; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list,
    parse,
    NULL,
    "Draws the pipeline of one thread block of the Hopper forward pass, from clock stamps of its warpgroups.\v"
    "On the sim engine the clock counts the simulator's steps: order is right, time is not.",
    options_engine_and_scores,
    NULL,
    NULL};

static void fill_random(uint16_t *data, int64_t count, uint64_t seed) {
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    data[i] = glint_bf16_from_float((float)(int32_t)(seed >> 32) * 0x1p-30f); /* uniform in [-2, 2) */
  }
}

/* q, k, v and o, bf16 [batch, seqlen, heads, head_dim], in data: four arrays one after the other */
static void describe(const arguments *a, uint16_t *data, glint_problem *p) {
  const int64_t count = a->batch * a->seqlen * a->heads * a->head_dim;
  glint_tensor *const tensors[4] = {&p->q, &p->k, &p->v, &p->o};
  *p = a->scores;
  p->struct_size = sizeof *p;
  for (int i = 0; i < 4; i++)
    *tensors[i] =
        (glint_tensor){.data = data + i * count, .shape = {a->batch, a->seqlen, a->heads, a->head_dim}, .dtype = GLINT_BFLOAT16, .rank = 4};
  fill_random(data, 3 * count, 1);
}

static glint_status run_with(glint_context *context, memory *m, placed_problem *placed, const glint_problem *host, uint32_t *stamps,
                             glint_error *error) {
  glint_plan_info plan = {.struct_size = sizeof plan};
  glint_status status = glint_plan(context, GLINT_PASS_FORWARD, &placed->api, NULL, &plan);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(context));
  if (plan.workspace_bytes != GLINT_TRACE_BYTES) return glint_fail(error, GLINT_ERROR_INTERNAL, "%s makes no stamps", plan.kernel);
  void *workspace = stamps;
  if (!m->host) status = m->allocate(m->state, GLINT_TRACE_BYTES, &workspace, error);
  if (status == GLINT_OK && !m->host) status = m->upload(m->state, workspace, stamps, GLINT_TRACE_BYTES, error);
  if (status != GLINT_OK) return status;
  placed->api.workspace = workspace;
  placed->api.workspace_bytes = GLINT_TRACE_BYTES;
  status = glint_forward(context, &placed->api);
  if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(context));
  if (status == GLINT_OK) status = memory_fetch(placed, host, error);
  if (status == GLINT_OK && !m->host) status = m->download(m->state, stamps, workspace, GLINT_TRACE_BYTES, error);
  if (!m->host) m->release(m->state, workspace);
  if (status == GLINT_OK) printf("%s, grid %lld\n", plan.kernel, (long long)plan.grid);
  return status;
}

static glint_status record(arguments *a, uint32_t *stamps, glint_error *error) {
  const int64_t count = a->batch * a->seqlen * a->heads * a->head_dim;
  uint16_t *data = aligned_alloc(64, (size_t)(count * 8 + 63) / 64 * 64);
  glint_context *context = NULL;
  glint_problem host;
  memory m = {0};
  placed_problem placed = {.m = &m};
  if (!data) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for %lld rows", (long long)(a->batch * a->seqlen));
  describe(a, data, &host);
  if (!a->options.kernel) a->options.kernel = "glint_trace_";
  if (a->options.engine == GLINT_ENGINE_AUTO) a->options.engine = GLINT_ENGINE_CUDA;
  if (a->options.engine == GLINT_ENGINE_SIM && !a->options.arch) a->options.arch = 90;
  glint_status status = glint_open(&a->options, &context);
  if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(NULL));
  if (status == GLINT_OK) status = memory_open(glint_context_engine(context), &a->options, &m, error);
  if (status == GLINT_OK) status = memory_place(&m, &host, &placed, error);
  if (status == GLINT_OK) {
    status = run_with(context, &m, &placed, &host, stamps, error);
    memory_release(&placed);
  }
  memory_close(&m);
  glint_close(context);
  free(data);
  return status;
}

static glint_status load_stamps(const char *path, uint32_t *stamps, glint_error *error) {
  FILE *file = fopen(path, "rb");
  size_t done = file ? fread(stamps, 1, GLINT_TRACE_BYTES, file) : 0;
  if (file) fclose(file);
  if (done == GLINT_TRACE_BYTES) return GLINT_OK;
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: not %d bytes of stamps", path, GLINT_TRACE_BYTES);
}

static glint_status save_stamps(const char *path, const uint32_t *stamps, glint_error *error) {
  FILE *file = fopen(path, "wb");
  size_t done = file ? fwrite(stamps, 1, GLINT_TRACE_BYTES, file) : 0;
  if (file && fclose(file) == 0 && done == GLINT_TRACE_BYTES) return GLINT_OK;
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s cannot be written", path);
}

static glint_status draw(const arguments *a, const uint32_t *stamps, glint_error *error) {
  static trace_spans spans;
  char title[160];
  trace_read(stamps, &spans);
  if (!spans.count) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "no stamps: nothing was traced");
  int64_t begin = a->begin < spans.end ? a->begin : 0;
  snprintf(title, sizeof title, "cycles %lld to %lld of one thread block", (long long)begin, (long long)(begin + a->length));
  FILE *to = fopen(a->output, "w");
  if (!to) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s cannot be written", a->output);
  trace_draw(to, &spans, begin, a->length, title);
  if (fclose(to)) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s cannot be written", a->output);
  trace_summarise(stdout, &spans);
  printf("drawn: %s\n", a->output);
  return GLINT_OK;
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options},
                 .output = "trace.svg",
                 .batch = 4,
                 .heads = 16,
                 .seqlen = 2048,
                 .head_dim = 128,
                 .begin = 20000,
                 .length = 12000};
  glint_error error;
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  uint32_t *stamps = aligned_alloc(256, GLINT_TRACE_BYTES);
  if (!stamps) return 1;
  memset(stamps, 0, GLINT_TRACE_BYTES);
  glint_status status = a.load ? load_stamps(a.load, stamps, &error) : record(&a, stamps, &error);
  if (status == GLINT_OK && a.save) status = save_stamps(a.save, stamps, &error);
  if (status == GLINT_OK) status = draw(&a, stamps, &error);
  free(stamps);
  return status == GLINT_OK ? 0 : verb_fail(&error);
}

const glint_verb glint_verb_trace = {"the pipeline of a Hopper kernel, drawn from clock stamps of its warpgroups", run};
