/* glint bench: the CPU engine's speed as shares of what this machine can do, measured in the same run; the ladder of GPU algorithms;
 * and the accuracy of FP8. */
#include "bench.h"
#include "bench_accuracy.h"
#include "bench_ladder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "array.h"
#include "ceilings.h"
#include "cpu/peak.h"
#include "options.h"
#include "progress.h"
#include "verb.h"

typedef struct arguments {
  bench_arguments b;
  int peak, decode, scaling, ladder, accuracy;
  bench_list lengths;
  const char *file, *plot;
  glint_engine engine;
  uint64_t seed;
  report_format format;
} arguments;

enum {
  KEY_PEAK = OPTION_VERB_KEYS,
  KEY_DECODE,
  KEY_SCALING,
  KEY_LADDER,
  KEY_ACCURACY,
  KEY_LENGTHS,
  KEY_FILE,
  KEY_PLOT,
  KEY_ENGINE,
  KEY_SEED,
  KEY_DTYPE,
  KEY_HEAD_DIM,
  KEY_CAUSAL,
  KEY_SEQLEN,
  KEY_BATCH,
  KEY_HEADS,
  KEY_ISA,
  KEY_THREADS,
  KEY_SECONDS,
  KEY_FOOTPRINT,
  KEY_JSON,
  KEY_CSV
};

static const struct argp_option option_list[] = {
    {NULL, 0, NULL, 0, "What is measured (default: prefill over a grid of shapes)", 1},
    {"peak", KEY_PEAK, NULL, 0, "this machine's ceilings: multiply-adds of each instruction set, read bandwidth", 1},
    {"decode", KEY_DECODE, NULL, 0, "one query a sequence over long caches, as a share of the read bandwidth", 1},
    {"scaling", KEY_SCALING, NULL, 0, "1, 2, 4, ... threads, as a share of linear, beside the ceiling's own", 1},
    {"ladder", KEY_LADDER, NULL, 0,
     "plain arithmetic, FlashAttention-1, -2 and -3 on the same problem: bytes moved, by the simulator, and time, where there is a GPU", 1},
    {"accuracy", KEY_ACCURACY, NULL, 0,
     "FP8 attention's error against float64, for each way of quantizing, on data with outliers, normal data, and a file's", 1},
    {NULL, 0, NULL, 0, "Shapes; lists are separated by commas", 2},
    {"dtype", KEY_DTYPE, "LIST", 0, "f32, bf16, f16 (default f32,bf16; decode and ladder: bf16)", 2},
    {"head-dim", KEY_HEAD_DIM, "LIST", 0, "default 64,128; decode, scaling and ladder: 128", 2},
    {"causal", KEY_CAUSAL, "LIST", 0, "0, 1 (default 0,1; decode, scaling and ladder: 0)", 2},
    {"seqlen", KEY_SEQLEN, "LIST", 0, "default 512,2048,8192; decode: 4096,16384,32768,131072; scaling: 4096; ladder: 512", 2},
    {"batch", KEY_BATCH, "LIST", 0, "default 1; decode: 1,8; ladder: 16384 tokens", 2},
    {"heads", KEY_HEADS, "H[/K]", 0, "default 16; decode: 32/8", 2},
    {"isa", KEY_ISA, "LIST", 0, "default auto", 2},
    {"threads", KEY_THREADS, "LIST", 0, "default: OpenMP's", 2},
    {NULL, 0, NULL, 0, "For --accuracy", 3},
    {"lengths", KEY_LENGTHS, "LIST", 0, "lengths for the error along the length (default 1024 to 131072)", 3},
    {"file", KEY_FILE, "FILE.safetensors", 0, "real q, k and v", 3},
    {"plot", KEY_PLOT, "OUT.svg", 0, "draw the results", 3},
    {"engine", KEY_ENGINE, "NAME", 0, "also this engine's own FP8 attention", 3},
    {"seed", KEY_SEED, "N", 0, "of the random numbers (default 1)", 3},
    {NULL, 0, NULL, 0, "How", 4},
    {"seconds", KEY_SECONDS, "X", 0, "time for each measurement (default 0.5)", 4},
    {"footprint", KEY_FOOTPRINT, "GB", 0, "decode: keys and values that calls go through in turn, at least one problem's (default 2)", 4},
    {"json", KEY_JSON, NULL, 0, "as JSON", 4},
    {"csv", KEY_CSV, NULL, 0, "as CSV", 4},
    {0},
};

/* ---- lists ---- */

typedef int64_t (*parse_value)(struct argp_state *state, const char *text);

static void parse_list(struct argp_state *state, const char *text, parse_value value, bench_list *list) {
  char copy[256], *rest = NULL;
  if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy) argp_error(state, "'%.20s...' is too long", text);
  list->count = 0;
  for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
    if (list->count == BENCH_LIST) argp_error(state, "'%s': more than %d values", text, BENCH_LIST);
    list->values[list->count++] = value(state, item);
  }
}

static int64_t list_dtype(struct argp_state *state, const char *text) {
  glint_dtype dtype = option_dtype(state, text);
  if (dtype != GLINT_FLOAT32 && dtype != GLINT_BFLOAT16 && dtype != GLINT_FLOAT16)
    argp_error(state, "--dtype: '%s' is none of f32, bf16, f16", text);
  return dtype;
}
static int64_t list_isa(struct argp_state *state, const char *text) { return option_isa(state, text); }
static int64_t list_size(struct argp_state *state, const char *text) { return option_integer(state, "list", text, 1, INT32_MAX); }
static int64_t list_switch(struct argp_state *state, const char *text) { return option_integer(state, "causal", text, 0, 1); }

static void use_default(bench_list *list, int count, const int64_t *values) {
  if (list->count) return;
  memcpy(list->values, values, (size_t)count * sizeof *values);
  list->count = count;
}
#define DEFAULT(list, ...) use_default(&(list), (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static void set_defaults(arguments *a) {
  bench_arguments *b = &a->b;
  int one_dim = a->decode || a->scaling || a->ladder;
  if (a->decode) {
    DEFAULT(b->dtypes, GLINT_BFLOAT16);
    DEFAULT(b->seqlens, 4096, 16384, 32768, 131072);
    DEFAULT(b->batches, 1, 8);
    if (!b->heads_q) b->heads_q = 32, b->heads_kv = 8;
  }
  if (one_dim) DEFAULT(b->head_dims, 128);
  if (one_dim) DEFAULT(b->causal, 0);
  if (a->scaling) DEFAULT(b->seqlens, 4096);
  if (a->ladder) {
    DEFAULT(b->dtypes, GLINT_BFLOAT16);
    DEFAULT(b->seqlens, 512);
    DEFAULT(b->batches, 0); /* by the length */
  }
  if (a->accuracy) {
    DEFAULT(b->seqlens, 2048);
    DEFAULT(a->lengths, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072);
    if (!b->heads_q) b->heads_q = 4;
  }
  DEFAULT(b->dtypes, GLINT_FLOAT32, GLINT_BFLOAT16);
  DEFAULT(b->head_dims, 64, 128);
  DEFAULT(b->causal, 0, 1);
  DEFAULT(b->seqlens, 512, 2048, 8192);
  DEFAULT(b->batches, 1);
  DEFAULT(b->isas, GLINT_ISA_AUTO);
  if (!b->heads_q) b->heads_q = b->heads_kv = 16;
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  for (int64_t n = 1; a->scaling && n < cores && b->threads.count < BENCH_LIST - 1 && (n == 1 || b->threads.count); n *= 2)
    b->threads.values[b->threads.count++] = n;
  if (a->scaling && (b->threads.count == 0 || b->threads.values[b->threads.count - 1] < cores))
    b->threads.values[b->threads.count++] = cores;
  DEFAULT(b->threads, 0);
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  bench_arguments *b = &a->b;
  switch (key) {
  case KEY_PEAK: a->peak = 1; return 0;
  case KEY_DECODE: a->decode = 1; return 0;
  case KEY_SCALING: a->scaling = 1; return 0;
  case KEY_LADDER: a->ladder = 1; return 0;
  case KEY_ACCURACY: a->accuracy = 1; return 0;
  case KEY_LENGTHS: parse_list(state, text, list_size, &a->lengths); return 0;
  case KEY_FILE: a->file = text; return 0;
  case KEY_PLOT: a->plot = text; return 0;
  case KEY_ENGINE: a->engine = option_engine(state, text); return 0;
  case KEY_SEED: a->seed = (uint64_t)option_integer(state, "seed", text, 0, INT64_MAX); return 0;
  case KEY_DTYPE: parse_list(state, text, list_dtype, &b->dtypes); return 0;
  case KEY_HEAD_DIM: parse_list(state, text, list_size, &b->head_dims); return 0;
  case KEY_CAUSAL: parse_list(state, text, list_switch, &b->causal); return 0;
  case KEY_SEQLEN: parse_list(state, text, list_size, &b->seqlens); return 0;
  case KEY_BATCH: parse_list(state, text, list_size, &b->batches); return 0;
  case KEY_HEADS: option_heads(state, text, &b->heads_q, &b->heads_kv); return 0;
  case KEY_ISA: parse_list(state, text, list_isa, &b->isas); return 0;
  case KEY_THREADS: parse_list(state, text, list_size, &b->threads); return 0;
  case KEY_SECONDS: b->seconds = option_number(state, "seconds", text); return 0;
  case KEY_FOOTPRINT: b->footprint = 1e9 * option_number(state, "footprint", text); return 0;
  case KEY_JSON: a->format = REPORT_JSON; return 0;
  case KEY_CSV: a->format = REPORT_CSV; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no arguments are expected"); return 0;
  case ARGP_KEY_END:
    if (a->peak + a->decode + a->scaling + a->ladder + a->accuracy > 1)
      argp_error(state, "one of --peak, --decode, --scaling, --ladder and --accuracy at a time");
    set_defaults(a);
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list, parse,
    NULL,        "Measures the CPU engine and prints its speed as a share of this machine's own ceilings, measured in the same run.",
    NULL,        NULL,
    NULL};

/* ---- ceilings ---- */

static const report_column peak_columns[] = {{"kind", "ceiling", -16, NULL},
                                             {"isa", "isa", -12, NULL},
                                             {"threads", "threads", 7, "%.0f"},
                                             {"rate", "rate", 10, "%.1f"},
                                             {"unit", "unit", -8, NULL}};

static void run_peak(const arguments *a, report *r) {
  static const struct {
    const char *name, *unit;
    glint_peak_kind kind;
    int first, last;
  } kinds[] = {{"float32 FMA", "GFLOP/s", GLINT_PEAK_FMA_F32, GLINT_ISA_PORTABLE, GLINT_ISA_AVX512},
               {"bfloat16 dot", "GFLOP/s", GLINT_PEAK_DOT_BF16, GLINT_ISA_AVX512_BF16, GLINT_ISA_AMX_BF16},
               {"memory read", "GB/s", GLINT_PEAK_READ, GLINT_ISA_AUTO, GLINT_ISA_AUTO}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int isa = kinds[k].first; isa <= kinds[k].last; isa++)
      for (int t = 0; t < a->b.threads.count; t++) {
        progress_say(kinds[k].name, 0, 0);
        double rate = glint_peak_measure(kinds[k].kind, (glint_isa)isa, (int)a->b.threads.values[t]);
        if (rate <= 0) continue;
        report_text(r, "kind", kinds[k].name);
        report_text(r, "isa", isa == GLINT_ISA_AUTO ? "any" : option_isa_name((glint_isa)isa));
        if (a->b.threads.values[t]) report_number(r, "threads", (double)a->b.threads.values[t]);
        report_number(r, "rate", rate * 1e-9);
        report_text(r, "unit", kinds[k].unit);
        report_row(r);
      }
}

/* ---- attention ---- */

static const report_column columns[] = {
    {"dtype", "dtype", -5, NULL},
    {"head_dim", "d", 4, "%.0f"},
    {"causal", "causal", 6, "%.0f"},
    {"batch", "batch", 5, "%.0f"},
    {"heads_q", "heads", 5, "%.0f"},
    {"heads_kv", "kv", 3, "%.0f"},
    {"seqlen_q", "seqlen_q", 8, "%.0f"},
    {"seqlen_k", "seqlen_k", 8, "%.0f"},
    {"threads", "threads", 7, "%.0f"},
    {"kernel", "kernel", -20, NULL},
    {"ms", "ms", 9, "%.4g"},
    {"gflops", "GFLOP/s", 8, "%.1f"},
    {"gbs", "GB/s", 7, "%.1f"},
    {"ceiling", "ceiling", 8, "%.1f"},
    {"share", "share", 6, "%.3f"},
    {"linear", "linear", 6, "%.3f"},
    {"ceiling_linear", "ceiling's", 9, "%.3f"},
};
enum { LADDER_TOKENS = 16384 }; /* batch * seqlen of the papers' grid */
enum { COLUMNS = sizeof columns / sizeof *columns };

static void report_shape(report *r, const bench_shape *s, const bench_result *result) {
  report_text(r, "dtype", io_dtype_name(s->dtype));
  report_text(r, "kernel", result->plan.kernel);
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"head_dim", (double)s->head_dim},
                 {"causal", s->causal},
                 {"batch", (double)s->batch},
                 {"heads_q", (double)s->heads_q},
                 {"heads_kv", (double)s->heads_kv},
                 {"seqlen_q", (double)s->seqlen_q},
                 {"seqlen_k", (double)s->seqlen_k},
                 {"threads", result->plan.threads},
                 {"ms", result->seconds * 1e3},
                 {"gflops", bench_flops(s) / result->seconds * 1e-9},
                 {"gbs", bench_kv_bytes(s) / result->seconds * 1e-9}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) report_number(r, numbers[i].key, numbers[i].value);
}

/* one_thread: the first row of a scaling series, for "linear" and "ceiling_linear". */
static glint_status run_shape(const arguments *a, const bench_shape *s, report *r, bench_result *one_thread, glint_error *error) {
  char what[96];
  bench_result result;
  snprintf(what, sizeof what, "%s d %lld seqlen %lld%s", io_dtype_name(s->dtype), (long long)s->head_dim, (long long)s->seqlen_k,
           s->causal ? " causal" : "");
  progress_say(what, 0, 0);
  double copies = a->decode ? ceil(a->b.footprint / bench_kv_bytes(s)) : 1;
  glint_status status = bench_measure(s, a->decode, copies > 1000 ? 1000 : copies < 1 ? 1 : (int)copies, a->b.seconds, &result, error);
  if (status != GLINT_OK) return status;
  report_shape(r, s, &result);
  if (result.ceiling > 0) report_number(r, "ceiling", result.ceiling * 1e-9), report_number(r, "share", result.share);
  if (a->scaling && s->threads == 1) *one_thread = result;
  if (a->scaling && one_thread->seconds > 0) report_number(r, "linear", one_thread->seconds / (result.seconds * s->threads));
  if (a->scaling && one_thread->ceiling > 0) report_number(r, "ceiling_linear", result.ceiling / (one_thread->ceiling * s->threads));
  report_row(r);
  return GLINT_OK;
}

/* The innermost loops over instruction sets and threads of one shape. */
static glint_status run_variants(const arguments *a, bench_shape s, report *r, glint_error *error) {
  glint_status status = GLINT_OK;
  for (int i = 0; i < a->b.isas.count; i++) {
    bench_result one_thread = {0};
    for (int t = 0; t < a->b.threads.count && status == GLINT_OK; t++) {
      s.isa = (glint_isa)a->b.isas.values[i], s.threads = (int32_t)a->b.threads.values[t];
      status = run_shape(a, &s, r, &one_thread, error);
    }
  }
  return status;
}

/* ladder: NULL, or what measures instead of the CPU engine. */
static glint_status run_grid(const arguments *a, bench_ladder *ladder, report *r, glint_error *error) {
  const bench_arguments *b = &a->b;
  const bench_list *axes[5] = {&b->dtypes, &b->head_dims, &b->causal, &b->batches, &b->seqlens};
  int total = 1;
  for (int i = 0; i < 5; i++) total *= axes[i]->count;
  for (int n = 0; n < total; n++) {
    int64_t value[5];
    for (int i = 4, rest = n; i >= 0; i--) value[i] = axes[i]->values[rest % axes[i]->count], rest /= axes[i]->count;
    bench_shape s = {.dtype = (glint_dtype)value[0],
                     .head_dim = value[1],
                     .causal = (int)value[2],
                     .batch = value[3],
                     .seqlen_k = value[4],
                     .heads_q = b->heads_q,
                     .heads_kv = b->heads_kv};
    s.seqlen_q = a->decode ? 1 : s.seqlen_k;
    if (s.batch == 0) s.batch = s.seqlen_k < LADDER_TOKENS ? LADDER_TOKENS / s.seqlen_k : 1;
    glint_status status = ladder ? bench_ladder_run(ladder, &s, r, error) : run_variants(a, s, r, error);
    if (status != GLINT_OK) return status;
  }
  return GLINT_OK;
}

static glint_status run_accuracy(const arguments *a, report *r, glint_error *error) {
  const bench_accuracy_arguments accuracy = {&a->b.head_dims, &a->b.seqlens, &a->lengths, a->b.heads_q,
                                             a->file,         a->plot,       a->engine,   a->seed};
  return bench_accuracy_run(&accuracy, r, error);
}

static int run(int argc, char **argv) {
  arguments a = {.b = {.seconds = 0.5, .footprint = 2e9}, .seed = 1};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  report r;
  glint_error error = {{0}};
  glint_status status = GLINT_OK;
  progress_start();
  if (a.peak) {
    report_open(&r, a.format, peak_columns, sizeof peak_columns / sizeof *peak_columns, stdout);
    run_peak(&a, &r);
  } else if (a.accuracy) {
    report_open(&r, a.format, bench_accuracy_columns, bench_accuracy_column_count, stdout);
    status = run_accuracy(&a, &r, &error);
  } else if (a.ladder) {
    bench_ladder *ladder;
    report_open(&r, a.format, bench_ladder_columns, bench_ladder_column_count, stdout);
    status = bench_ladder_open(a.b.seconds, &ladder, &error);
    if (status == GLINT_OK) status = run_grid(&a, ladder, &r, &error);
    bench_ladder_close(ladder);
  } else {
    report_open(&r, a.format, columns, COLUMNS, stdout);
    report_hide(&r, a.decode ? "gflops" : "gbs");
    if (!a.scaling) report_hide(&r, "linear"), report_hide(&r, "ceiling_linear");
    status = run_grid(&a, NULL, &r, &error);
    ceilings_close();
  }
  progress_stop();
  report_close(&r);
  return status == GLINT_OK ? 0 : verb_fail(&error);
}

const glint_verb glint_verb_bench = {"speed of the CPU engine against this machine's ceilings", run};
