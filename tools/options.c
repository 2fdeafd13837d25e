/* Options that several verbs share. */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

static const char *const engine_names[] = {"auto", "cpu", "cuda", "sim", "oracle"};
static const char *const isa_names[] = {"auto", "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16", "neon"};
enum { ENGINES = sizeof engine_names / sizeof *engine_names, ISAS = sizeof isa_names / sizeof *isa_names };

const char *option_engine_name(glint_engine engine) { return (int)engine >= 0 && (int)engine < ENGINES ? engine_names[engine] : "unknown"; }
const char *option_isa_name(glint_isa isa) { return (int)isa >= 0 && (int)isa < ISAS ? isa_names[isa] : "unknown"; }

int64_t option_integer(struct argp_state *state, const char *name, const char *text, int64_t lowest, int64_t highest) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 0);
  if (errno || end == text || *end || value < lowest || value > highest)
    argp_error(state, "--%s: '%s' is not an integer from %lld to %lld", name, text, (long long)lowest, (long long)highest);
  return value;
}

double option_number(struct argp_state *state, const char *name, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end) argp_error(state, "--%s: '%s' is not a number", name, text);
  return value;
}

glint_dtype option_dtype(struct argp_state *state, const char *text) {
  glint_dtype dtype = io_dtype_of(text);
  if (dtype == GLINT_DTYPE_NONE || dtype == GLINT_INT32)
    argp_error(state, "--dtype: '%s' is none of f32, bf16, f16, e4m3, e5m2, f64", text);
  return dtype;
}

glint_engine option_engine(struct argp_state *state, const char *text) {
  for (int i = 0; i < ENGINES; i++)
    if (strcmp(text, engine_names[i]) == 0) return (glint_engine)i;
  argp_error(state, "--engine: '%s' is none of auto, cpu, cuda, sim, oracle", text);
  return GLINT_ENGINE_AUTO;
}

glint_isa option_isa(struct argp_state *state, const char *text) {
  for (int i = 0; i < ISAS; i++)
    if (strcmp(text, isa_names[i]) == 0) return (glint_isa)i;
  argp_error(state, "--isa: '%s' is none of auto, portable, avx2, avx512, avx512_bf16, amx_bf16, neon", text);
  return GLINT_ISA_AUTO;
}

void option_heads(struct argp_state *state, const char *text, int64_t *heads_q, int64_t *heads_kv) {
  char query[32] = {0};
  const char *slash = strchr(text, '/');
  size_t length = slash ? (size_t)(slash - text) : strlen(text);
  if (length >= sizeof query) argp_error(state, "--heads: '%s' is not H or H/K", text);
  memcpy(query, text, length < sizeof query ? length : sizeof query - 1);
  *heads_q = option_integer(state, "heads", query, 1, INT32_MAX);
  *heads_kv = slash ? option_integer(state, "heads", slash + 1, 1, INT32_MAX) : *heads_q;
}

static int32_t arch_of(struct argp_state *state, const char *text) {
  const char *digits = strncmp(text, "sm_", 3) == 0 ? text + 3 : text;
  char *end;
  long value = strtol(digits, &end, 10);
  if (end == digits || (*end && strcmp(end, "a") != 0) || value < 50 || value > 999)
    argp_error(state, "--arch: '%s' is not like sm_80 or 90", text);
  return (int32_t)value;
}

enum { KEY_ENGINE = OPTION_ENGINE_KEYS, KEY_ISA, KEY_THREADS, KEY_ARCH, KEY_KERNEL, KEY_DEVICE };

static error_t parse_engine(int key, char *text, struct argp_state *state) {
  glint_options *options = state->input;
  switch (key) {
  case KEY_ENGINE: options->engine = option_engine(state, text); return 0;
  case KEY_ISA: options->isa = option_isa(state, text); return 0;
  case KEY_THREADS: options->threads = (int32_t)option_integer(state, "threads", text, 1, 65536); return 0;
  case KEY_ARCH: options->arch = arch_of(state, text); return 0;
  case KEY_KERNEL: options->kernel = text; return 0;
  case KEY_DEVICE: options->device = (int32_t)option_integer(state, "device", text, 0, 65536); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

const struct argp options_engine = {
    .options =
        (const struct argp_option[]){
            {"engine", KEY_ENGINE, "NAME", 0, "auto, cpu, cuda, sim or oracle (default auto)", 0},
            {"isa", KEY_ISA, "NAME", 0, "cpu: portable, avx2, avx512, avx512_bf16, amx_bf16 or neon (default: the best of this machine)",
             0},
            {"threads", KEY_THREADS, "N", 0, "cpu: threads (default: OpenMP's)", 0},
            {"arch", KEY_ARCH, "ARCH", 0, "cuda, sim: kernels of this architecture, like sm_80 or sm_90a", 0},
            {"kernel", KEY_KERNEL, "PREFIX", 0, "cuda, sim: only kernels whose name starts so", 0},
            {"device", KEY_DEVICE, "N", 0, "cuda: ordinal of the GPU (default 0)", 0},
            {0},
        },
    .parser = parse_engine,
};

enum { KEY_CAUSAL = OPTION_SCORE_KEYS, KEY_WINDOW, KEY_SCALE, KEY_SOFTCAP, KEY_SPLITS };

static void parse_window(struct argp_state *state, const char *text, glint_problem *problem) {
  char left[32] = {0};
  const char *comma = strchr(text, ',');
  if (!comma || (size_t)(comma - text) >= sizeof left) {
    argp_error(state, "--window: '%s' is not LEFT,RIGHT", text);
    return;
  }
  memcpy(left, text, (size_t)(comma - text));
  problem->windowed = 1;
  problem->window_left = option_integer(state, "window", left, -1, INT64_MAX);
  problem->window_right = option_integer(state, "window", comma + 1, -1, INT64_MAX);
}

static error_t parse_scores(int key, char *text, struct argp_state *state) {
  glint_problem *problem = state->input;
  switch (key) {
  case KEY_CAUSAL: problem->causal = 1; return 0;
  case KEY_WINDOW: parse_window(state, text, problem); return 0;
  case KEY_SCALE: problem->scale = (float)option_number(state, "scale", text); return 0;
  case KEY_SOFTCAP: problem->softcap = (float)option_number(state, "softcap", text); return 0;
  case KEY_SPLITS: problem->num_splits = (int32_t)option_integer(state, "splits", text, 1, INT32_MAX); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

const struct argp options_scores = {
    .options =
        (const struct argp_option[]){
            {"causal", KEY_CAUSAL, NULL, 0, "a row sees keys up to its own position, aligned to the bottom right", 0},
            {"window", KEY_WINDOW, "L,R", 0, "a row sees L keys to its left and R to its right, inclusive; -1: all", 0},
            {"scale", KEY_SCALE, "X", 0, "factor of the scores (default 1 / sqrt(head_dim))", 0},
            {"softcap", KEY_SOFTCAP, "X", 0, "scores become X * tanh(score / X)", 0},
            {"splits", KEY_SPLITS, "N", 0, "split the keys into N parts (default: the plan's choice)", 0},
            {0},
        },
    .parser = parse_scores,
};

const struct argp_child options_engine_and_scores[] = {{&options_engine, 0, "Where it runs", 1}, {&options_scores, 0, "Scores", 2}, {0}};
const struct argp_child options_engine_only[] = {{&options_engine, 0, "Where it runs", 1}, {0}};
