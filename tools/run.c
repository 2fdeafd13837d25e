/* glint run: attention on tensors in files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ceilings.h"
#include "convert.h"
#include "memory.h"
#include "options.h"
#include "problem.h"
#include "progress.h"
#include "report.h"
#include "run_quantize.h"
#include "timing.h"
#include "verb.h"

typedef struct arguments {
  glint_options options;
  glint_problem scores;
  const char *file, *npy[3], *output, *lse, *only;
  glint_dtype dtype;
  run_quantization quantization;
  int check, quantization_given;
  double seconds;
  report_format format;
} arguments;

enum {
  KEY_Q = OPTION_VERB_KEYS,
  KEY_K,
  KEY_V,
  KEY_LSE,
  KEY_DTYPE,
  KEY_ROTATE,
  KEY_SMOOTH,
  KEY_SCALES,
  KEY_CHECK,
  KEY_SECONDS,
  KEY_JSON,
  KEY_CSV
};

static const struct argp_option option_list[] = {
    {"q", KEY_Q, "Q.npy", 0, "queries [batch, seqlen_q, heads, head_dim], instead of FILE", 0},
    {"k", KEY_K, "K.npy", 0, "keys [batch, seqlen_k, heads_kv, head_dim]", 0},
    {"v", KEY_V, "V.npy", 0, "values [batch, seqlen_k, heads_kv, head_dim_v]", 0},
    {"output", 'o', "OUT", 0, "write o (and lse) here: .safetensors, or .npy for one problem", 0},
    {"lse", KEY_LSE, "L.npy", 0, "write lse here, float32 [batch, heads, seqlen_q]", 0},
    {"name", 'n', "NAME", 0, "only the problem NAME of the file", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "convert q, k, v to f32, bf16, f16, e4m3 or e5m2 (default: as stored); f64 with the oracle: o in float64", 0},
    {"rotate", KEY_ROTATE, NULL, 0, "FP8: q and k times a Hadamard matrix with random signs before the rounding", 0},
    {"smooth", KEY_SMOOTH, NULL, 0, "FP8: k without its mean over the sequence", 0},
    {"scales", KEY_SCALES, "S", 0, "FP8: one factor a tensor, a head, or blockN: N rows (default tensor)", 0},
    {"check", KEY_CHECK, NULL, 0,
     "compare with the oracle, and with the file's NAME.o unless options change the problem; exit with 1 when an error is too large", 0},
    {"seconds", KEY_SECONDS, "X", 0, "repeat each problem for so long and take the median time; 0: one call (default 0.1)", 0},
    {"json", KEY_JSON, NULL, 0, "results as JSON", 0},
    {"csv", KEY_CSV, NULL, 0, "results as CSV", 0},
    {0},
};

static void parse_scales(struct argp_state *state, const char *text, run_quantization *q) {
  if (strcmp(text, "tensor") == 0) {
    q->scales = RUN_SCALES_TENSOR;
  } else if (strcmp(text, "head") == 0) {
    q->scales = RUN_SCALES_HEAD;
  } else if (strncmp(text, "block", 5) == 0) {
    q->scales = RUN_SCALES_BLOCK;
    q->block_rows = option_integer(state, "scales", text[5] ? text + 5 : "128", 16, 1 << 20);
    if (q->block_rows % 16) argp_error(state, "--scales: '%s': blocks have a multiple of 16 rows", text);
  } else {
    argp_error(state, "--scales: '%s' is none of tensor, head, blockN", text);
  }
}

static void check_usage(struct argp_state *state, const arguments *a) {
  int npy = !!a->npy[0] + !!a->npy[1] + !!a->npy[2];
  if (a->file ? npy != 0 : npy != 3) argp_error(state, "give FILE.safetensors, or all of --q, --k and --v");
  if (a->quantization_given && !run_is_fp8(a->dtype)) argp_error(state, "--rotate, --smooth and --scales need --dtype e4m3 or e5m2");
  if (a->dtype == GLINT_FLOAT64 && a->options.engine != GLINT_ENGINE_ORACLE) argp_error(state, "--dtype f64 needs --engine oracle");
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options, state->child_inputs[1] = &a->scores; return 0;
  case KEY_Q:
  case KEY_K:
  case KEY_V: a->npy[key - KEY_Q] = text; return 0;
  case 'o': a->output = text; return 0;
  case KEY_LSE: a->lse = text; return 0;
  case 'n': a->only = text; return 0;
  case KEY_DTYPE: a->dtype = option_dtype(state, text); return 0;
  case KEY_ROTATE: a->quantization.rotate = a->quantization_given = 1; return 0;
  case KEY_SMOOTH: a->quantization.smooth = a->quantization_given = 1; return 0;
  case KEY_SCALES: parse_scales(state, text, &a->quantization), a->quantization_given = 1; return 0;
  case KEY_CHECK: a->check = 1; return 0;
  case KEY_SECONDS: a->seconds = option_number(state, "seconds", text); return 0;
  case KEY_JSON: a->format = REPORT_JSON; return 0;
  case KEY_CSV: a->format = REPORT_CSV; return 0;
  case ARGP_KEY_ARG:
    if (a->file) argp_error(state, "one FILE at a time");
    a->file = text;
    return 0;
  case ARGP_KEY_END: check_usage(state, a); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list,
    parse,
    "[FILE.safetensors]",
    "Computes attention on tensors in files and prints one row a problem.\v"
    "A file holds tensors named q, k and v, or NAME.q, NAME.k and NAME.v for many problems; any other input of the API is used where it is "
    "present under its own name (alibi_slopes, sinks, bias, cu_seqlens_q, cu_seqlens_k, seqused_k, page_table, ...).",
    options_engine_and_scores,
    NULL,
    NULL};

/* ---- comparing ---- */

typedef struct difference {
  double largest, scale; /* largest |a - b|, infinite where only one is finite or NaN; largest finite |b| */
} difference;

static difference compare(const io_array *a, const io_array *b) {
  difference d = {0, 0};
  for (int64_t i = 0; i < b->count; i++) {
    double x = glint_load(a->data, a->dtype, i), y = glint_load(b->data, b->dtype, i), gap = fabs(x - y);
    if (isfinite(y)) d.scale = fmax(d.scale, fabs(y));
    if (x == y || (isnan(x) && isnan(y))) continue;
    d.largest = isnan(gap) ? INFINITY : fmax(d.largest, gap);
  }
  return d;
}

/* Half a unit in the last place, relative to the value. */
static double half_unit(glint_dtype dtype) {
  switch (dtype) {
  case GLINT_BFLOAT16: return 0x1p-9;
  case GLINT_FLOAT16: return 0x1p-12;
  case GLINT_FLOAT8_E4M3: return 0x1p-4;
  case GLINT_FLOAT8_E5M2: return 0x1p-3;
  default: return 0x1p-24;
  }
}

/* Largest element and longest row of an input, times its FP8 scale. */
static void size_of(const io_array *x, const glint_tensor *descale, double *largest, double *norm) {
  double factor = descale->data ? fabs((double)*(const float *)descale->data) : 1;
  int64_t columns = x->shape[x->rank - 1];
  *largest = *norm = 0;
  for (int64_t i = 0; i < x->count; i += columns) {
    double sum = 0;
    for (int64_t c = 0; c < columns; c++) {
      double value = glint_load(x->data, x->dtype, i + c);
      if (isfinite(value)) sum += value * value, *largest = fmax(*largest, factor * fabs(value));
    }
    *norm = fmax(*norm, factor * sqrt(sum));
  }
}

/* What a right answer may differ by: o's own rounding; the rounding of P to a short input type, twice; and scores in float32, known to
 * 2 eps (1 + S) with S the product of the longest rows (the reasoning is that of testkit/judge.c). largest_o: of the reference. */
static double tolerance(const loaded_problem *p, double largest_o) {
  const glint_problem *api = &p->api;
  glint_dtype input = p->inputs[0].dtype;
  double q, k, v, ignored, eps = half_unit(GLINT_FLOAT32);
  size_of(&p->inputs[0], &api->descale_q, &ignored, &q);
  size_of(&p->inputs[1], &api->descale_k, &ignored, &k);
  size_of(&p->inputs[2], &api->descale_v, &v, &ignored);
  double scale = api->scale != 0 ? fabs((double)api->scale) : 1 / sqrt((double)p->inputs[0].shape[3]);
  double p_error = input == GLINT_FLOAT32 || input == GLINT_FLOAT64 ? 0 : 2 * half_unit(input);
  return half_unit(p->o.dtype) * largest_o + (p_error + 2 * eps * (1 + scale * q * k)) * v;
}

/* ---- one problem ---- */

typedef struct session {
  const arguments *a;
  glint_context *context, *oracle;
  memory m;
  report r;
  int failures;
  double worst;
  io_named_array *outputs; /* o and lse of every problem, for -o; the names are owned */
  int output_count;
} session;

typedef struct forward_call {
  session *s;
  const glint_problem *problem;
  glint_error *error;
} forward_call;

static glint_status forward(void *argument) {
  forward_call *c = argument;
  glint_status status = glint_forward(c->s->context, c->problem);
  if (status != GLINT_OK) return glint_fail(c->error, status, "%s", glint_last_error(c->s->context));
  return memory_wait(&c->s->m, c->error);
}

static void report_shape(report *r, const loaded_problem *p) {
  const int64_t *q = p->inputs[0].shape, *k = p->inputs[1].shape, *v = p->inputs[2].shape;
  char text[REPORT_CELL];
  int at = snprintf(text, sizeof text, "%lld x %lld", (long long)q[0], (long long)q[1]);
  if (k[1] != q[1]) at += snprintf(text + at, sizeof text - (size_t)at, ":%lld", (long long)k[1]);
  at += snprintf(text + at, sizeof text - (size_t)at, " x %lld", (long long)q[2]);
  if (k[2] != q[2]) at += snprintf(text + at, sizeof text - (size_t)at, "/%lld", (long long)k[2]);
  at += snprintf(text + at, sizeof text - (size_t)at, " x %lld", (long long)q[3]);
  if (v[3] != q[3]) snprintf(text + at, sizeof text - (size_t)at, "/%lld", (long long)v[3]);
  report_text(r, "problem", *p->name ? p->name : "-");
  report_text(r, "shape", text);
  report_text(r, "dtype", io_dtype_name(p->inputs[0].dtype));
  report_number(r, "batch", (double)q[0]), report_number(r, "seqlen_q", (double)q[1]), report_number(r, "heads_q", (double)q[2]);
  report_number(r, "head_dim", (double)q[3]), report_number(r, "seqlen_k", (double)k[1]), report_number(r, "heads_kv", (double)k[2]);
  report_number(r, "head_dim_v", (double)v[3]);
}

static void report_speed(report *r, const glint_plan_info *plan, double seconds) {
  report_text(r, "engine", option_engine_name(plan->engine));
  report_text(r, "kernel", plan->kernel);
  report_number(r, "ms", seconds * 1e3);
  report_number(r, "gflops", plan->flops / seconds * 1e-9);
  double limit = ceilings_roofline(plan);
  if (limit > 0) report_number(r, "roofline", 100 * limit / seconds);
}

static void judge(session *s, const loaded_problem *p, const char *key, const io_array *expected) {
  difference d = compare(&p->o, expected);
  report_number(&s->r, key, d.largest);
  s->worst = fmax(s->worst, d.largest);
  if (d.largest <= tolerance(p, d.scale)) return;
  s->failures++;
  report_text(&s->r, "verdict", "WRONG");
}

/* The file's outputs are those of its problem as it stands there: only a wider type may be asked for. */
static int is_as_stored(const arguments *a) {
  const glint_problem *scores = &a->scores;
  int same_values = a->dtype == GLINT_DTYPE_NONE || a->dtype == GLINT_FLOAT32 || a->dtype == GLINT_FLOAT64;
  return same_values && !scores->causal && !scores->windowed && scores->scale == 0 && scores->softcap == 0;
}

static glint_status check(session *s, loaded_problem *p, glint_error *error) {
  io_array o;
  glint_status status = io_array_allocate(&o, GLINT_FLOAT64, 4, p->o.shape, error);
  if (status != GLINT_OK) return status;
  memset(o.data, 0, (size_t)o.count * sizeof(double));
  glint_problem reference = p->api;
  reference.o = problem_tensor_of(&o);
  reference.lse = (glint_tensor){0};
  report_text(&s->r, "verdict", "ok");
  if (glint_forward(s->oracle, &reference) == GLINT_OK)
    judge(s, p, "max_error", &o);
  else
    status = glint_fail(error, GLINT_ERROR_INTERNAL, "oracle: %s", glint_last_error(s->oracle));
  io_array_free(&o);
  if (status == GLINT_OK && p->stored_o.data && is_as_stored(s->a)) {
    if (memcmp(p->stored_o.shape, p->o.shape, sizeof p->o.shape) != 0)
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the file's o has another shape than the result");
    judge(s, p, "stored_error", &p->stored_o);
  }
  return status;
}

/* Hands o and lse over to the session, which writes them in the end. */
static glint_status keep_outputs(session *s, loaded_problem *p, glint_error *error) {
  io_array *arrays[2] = {&p->o, &p->lse};
  for (int i = 0; i < 2; i++) {
    char name[512];
    snprintf(name, sizeof name, "%s%s%s", p->name, *p->name ? "." : "", i ? "lse" : "o");
    io_named_array *larger = realloc(s->outputs, ((size_t)s->output_count + 1) * sizeof *larger);
    char *copy = strdup(name);
    if (larger) s->outputs = larger;
    if (!larger || !copy) return free(copy), glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for the outputs");
    s->outputs[s->output_count++] = (io_named_array){copy, *arrays[i]};
    *arrays[i] = (io_array){0};
  }
  return GLINT_OK;
}

static glint_status compute(session *s, loaded_problem *p, glint_error *error) {
  placed_problem placed;
  glint_plan_info plan = {.struct_size = sizeof plan};
  double seconds = 0;
  glint_status status = memory_place(&s->m, &p->api, &placed, error);
  if (status != GLINT_OK) return status;
  status = glint_plan(s->context, GLINT_PASS_FORWARD, &placed.api, NULL, &plan);
  if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(s->context));
  forward_call call = {s, &placed.api, error};
  if (status == GLINT_OK) status = timing_measure(forward, &call, s->a->seconds, &seconds);
  if (status == GLINT_OK) status = memory_fetch(&placed, &p->api, error);
  memory_release(&placed);
  if (status == GLINT_OK) report_speed(&s->r, &plan, seconds);
  return status;
}

/* The same in bfloat16 on the same engine: what FP8 costs. */
static glint_status compare_with_bf16(session *s, const loaded_problem *p, run_bf16 *b, glint_error *error) {
  placed_problem placed;
  double rmse, largest;
  glint_status status = memory_place(&s->m, &b->api, &placed, error);
  if (status != GLINT_OK) return status;
  forward_call call = {s, &placed.api, error};
  status = forward(&call);
  if (status == GLINT_OK) status = memory_fetch(&placed, &b->api, error);
  memory_release(&placed);
  if (status != GLINT_OK) return status;
  run_differences(&p->o, &b->o, &rmse, &largest);
  report_number(&s->r, "bf16_rmse", rmse), report_number(&s->r, "bf16_max", largest);
  return GLINT_OK;
}

/* FP8: quantizes, computes, and compares. */
static glint_status compute_fp8(session *s, loaded_problem *p, glint_error *error) {
  run_bf16 wide;
  io_array shift = {0};
  glint_status status = run_bf16_make(p, &wide, error);
  if (status != GLINT_OK) return status;
  status = run_quantize(&s->a->quantization, s->a->dtype, p, &shift, error);
  if (status == GLINT_OK) {
    report_text(&s->r, "dtype", io_dtype_name(p->inputs[0].dtype));
    status = compute(s, p, error);
  }
  if (status == GLINT_OK) status = compare_with_bf16(s, p, &wide, error);
  if (status == GLINT_OK && s->a->check) status = check(s, p, error);
  for (int64_t i = 0; status == GLINT_OK && i < shift.count; i++) ((float *)p->lse.data)[i] += ((const float *)shift.data)[i];
  io_array_free(&shift);
  run_bf16_free(&wide);
  return status;
}

static glint_status run_problem(session *s, const problem_source *source, int index, glint_error *error) {
  loaded_problem p;
  glint_error detail = {{0}};
  int fp8 = run_is_fp8(s->a->dtype);
  glint_status status = problem_load(source, index, &s->a->scores, fp8 ? GLINT_DTYPE_NONE : s->a->dtype, &p, error);
  if (status != GLINT_OK) return status;
  fp8 = fp8 && (p.inputs[0].dtype != s->a->dtype || s->a->quantization_given); /* stored so already: nothing to do */
  report_shape(&s->r, &p);
  if (fp8) {
    status = compute_fp8(s, &p, &detail);
  } else {
    status = compute(s, &p, &detail);
    if (status == GLINT_OK && s->a->check) status = check(s, &p, &detail);
  }
  if (status == GLINT_OK)
    report_row(&s->r);
  else
    glint_fail(error, status, "%s%s%s", p.name, *p.name ? ": " : "", detail.text);
  if (status == GLINT_OK && (s->a->output || s->a->lse)) status = keep_outputs(s, &p, error);
  problem_free(&p);
  return status;
}

/* ---- the whole run ---- */

static int ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static glint_status write_outputs(const session *s, glint_error *error) {
  const arguments *a = s->a;
  int npy = a->output && ends_with(a->output, ".npy");
  if ((npy || a->lse) && s->output_count != 2)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                      "%s: a .npy file holds one array and there are %d problems; use .safetensors, or --name", npy ? a->output : a->lse,
                      s->output_count / 2);
  glint_status status = GLINT_OK;
  if (npy)
    status = io_npy_write(a->output, &s->outputs[0].array, error);
  else if (a->output)
    status = io_safetensors_write(a->output, s->outputs, s->output_count, NULL, error);
  if (status == GLINT_OK && a->lse) status = io_npy_write(a->lse, &s->outputs[1].array, error);
  return status;
}

static glint_status run_all(session *s, const problem_source *source, glint_error *error) {
  glint_status status = GLINT_OK;
  int done = 0;
  for (int i = 0; i < source->count && status == GLINT_OK; i++) {
    if (s->a->only && strcmp(s->a->only, source->names[i]) != 0) continue;
    progress_say(*source->names[i] ? source->names[i] : "attention", i + 1, source->count);
    status = run_problem(s, source, i, error);
    done++;
  }
  if (status == GLINT_OK && done == 0) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "no problem is named '%s'", s->a->only);
  return status == GLINT_OK ? write_outputs(s, error) : status;
}

static const report_column columns[] = {
    {"problem", "problem", -14, NULL},
    {"shape", "b x seqlen x heads x d", -22, NULL},
    {"dtype", "dtype", -5, NULL},
    {"engine", "engine", -6, NULL},
    {"kernel", "kernel", -24, NULL},
    {"ms", "ms", 9, "%.4g"},
    {"gflops", "GFLOP/s", 8, "%.4g"},
    {"roofline", "roofline %", 10, "%.1f"},
    {"max_error", "vs oracle", 9, "%.1e"},
    {"stored_error", "vs file", 9, "%.1e"},
    {"bf16_rmse", "rms off bf16", 12, "%.2e"},
    {"bf16_max", "max off bf16", 12, "%.1e"},
    {"verdict", "verdict", -7, NULL},
    {"batch", NULL, 0, "%.0f"},
    {"seqlen_q", NULL, 0, "%.0f"},
    {"seqlen_k", NULL, 0, "%.0f"},
    {"heads_q", NULL, 0, "%.0f"},
    {"heads_kv", NULL, 0, "%.0f"},
    {"head_dim", NULL, 0, "%.0f"},
    {"head_dim_v", NULL, 0, "%.0f"},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static glint_status open_session(session *s, glint_error *error) {
  glint_options oracle = {.struct_size = sizeof oracle, .engine = GLINT_ENGINE_ORACLE};
  glint_status status = glint_open(&s->a->options, &s->context);
  if (status == GLINT_OK) status = glint_open(&oracle, &s->oracle);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(NULL));
  return memory_open(glint_context_engine(s->context), &s->a->options, &s->m, error);
}

static void close_session(session *s) {
  for (int i = 0; i < s->output_count; i++) {
    free((char *)s->outputs[i].name);
    io_array_free(&s->outputs[i].array);
  }
  free(s->outputs);
  memory_close(&s->m);
  glint_close(s->context);
  glint_close(s->oracle);
}

static int finish(session *s) {
  if (s->a->format == REPORT_JSON && s->a->check) {
    cJSON_AddNumberToObject(s->r.extra, "failures", s->failures);
    cJSON_AddNumberToObject(s->r.extra, "worst_error", s->worst);
  }
  report_close(&s->r);
  if (s->a->check && s->a->format == REPORT_TABLE)
    printf("%d problem%s, largest error %.1e: %s\n", s->r.rows, s->r.rows == 1 ? "" : "s", s->worst,
           s->failures ? "WRONG" : "all within tolerance");
  return s->failures > 0;
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options}, .seconds = 0.1};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  session s = {.a = &a};
  problem_source source = {0};
  glint_error error = {{0}};
  report_open(&s.r, a.format, columns, COLUMNS, stdout);
  for (int i = 0; i < 3 && !a.check; i++) report_hide(&s.r, (const char *const[]){"max_error", "stored_error", "verdict"}[i]);
  for (int i = 0; i < 2 && !run_is_fp8(a.dtype); i++) report_hide(&s.r, (const char *const[]){"bf16_rmse", "bf16_max"}[i]);
  progress_start();
  glint_status status = a.file ? problem_source_open(a.file, &source, &error) : problem_source_open_npy(a.npy, &source, &error);
  if (status == GLINT_OK) status = open_session(&s, &error);
  if (status == GLINT_OK) status = run_all(&s, &source, &error);
  progress_stop();
  int result = status == GLINT_OK ? finish(&s) : verb_fail(&error);
  close_session(&s);
  problem_source_close(&source);
  return result;
}

const glint_verb glint_verb_run = {"attention on tensors in files", run};
