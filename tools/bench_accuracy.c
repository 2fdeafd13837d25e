/* The study behind docs/fp8-accuracy.md: attention on e4m3 inputs against float64, for each way of quantizing them, on three kinds of data, and
 * along the length of the sequence. */
#include "bench_accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "memory.h"
#include "options.h"
#include "problem.h"
#include "progress.h"
#include "testkit.h"

enum { BLOCK_ROWS = 128, LENGTH_ROWS = 32, MOST_ROWS = 512, TILE = 128 };
#define SEED_OF_ROTATION 7

const report_column bench_accuracy_columns[] = {
    {"data", "data", -9, NULL},          {"head_dim", "d", 3, "%.0f"},        {"seqlen_q", "seqlen_q", 8, "%.0f"},
    {"seqlen_k", "seqlen_k", 8, "%.0f"}, {"way", "way", -22, NULL},           {"arithmetic", "arithmetic", -20, NULL},
    {"rmse", "RMSE", 8, "%.2e"},         {"relative", "relative", 8, "%.4f"}, {"gain", "gain", 5, "%.2f"},
    {"max_error", "max", 8, "%.1e"},     {"top1", "top-1", 6, "%.4f"},        {"seed", NULL, 0, "%.0f"}};
const int bench_accuracy_column_count = sizeof bench_accuracy_columns / sizeof *bench_accuracy_columns;

/* ---- ways of quantizing ---- */

typedef struct way {
  const char *name;
  int blocks, rotate, smooth;
} way;

static const way ways[] = {
    {"plain", 0, 0, 0}, {"blocks", 1, 0, 0}, {"hadamard", 0, 1, 0}, {"smoothing", 0, 0, 1}, {"blocks + hadamard", 1, 1, 0},
    {"all", 1, 1, 1}};
enum { WAYS = sizeof ways / sizeof *ways, PLAIN = 0, ALL = WAYS - 1 };

/* As the kernel computes; the same without dividing by the rounded sum, as FlashAttention-3 does it, its largest P always 2^8; and with the tensor
 * core's sums: see the header. */
static const struct {
  const char *name;
  accuracy_model model;
} arithmetics[] = {{"as the kernel", {TILE, 4, 8, 1, 0, 0}},
                   {"as FA3", {TILE, 8, 8, 0, 0, 0}},
                   {"13 bits", {TILE, 4, 8, 1, 1, 0}},
                   {"13 bits, fp32 sum", {TILE, 4, 8, 1, 1, 1}}};
enum { KERNEL, FA3, NARROW, SECOND };

/* ---- state ---- */

typedef struct study {
  const bench_accuracy_arguments *a;
  report *r;
  glint_context *cpu, *engine; /* engine NULL: only the model */
  memory m;
  uint64_t random;
  accuracy_plot plot;
  glint_error *error;
} study;

/* Sums over what one row of the table reports. */
typedef struct errors {
  double squares, of_reference, largest;
  int64_t values, rows, kept;
} errors;

typedef struct tensors {
  accuracy_problem p;
  accuracy_answer exact, got;
  uint8_t *fp8[3];
  float *factors[3], *o;
} tensors;

static void free_tensors(tensors *t) {
  void *const all[] = {t->p.q,    t->p.k,    t->p.v,    t->exact.o,    t->exact.top,  t->got.o,      t->got.top,
                       t->fp8[0], t->fp8[1], t->fp8[2], t->factors[0], t->factors[1], t->factors[2], t->o};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static glint_status make_tensors(tensors *t, int64_t rows, int64_t keys, int64_t heads, int64_t d, glint_error *error) {
  size_t q = (size_t)(rows * heads * d), k = (size_t)(keys * heads * d), tops = (size_t)(rows * heads);
  size_t blocks = (size_t)(heads * ((rows > keys ? rows : keys) / 16 + 1));
  *t = (tensors){.p = {rows, keys, heads, d, malloc(q * 4), malloc(k * 4), malloc(k * 4)}};
  t->exact = (accuracy_answer){malloc(q * 8), malloc(tops * 8)}, t->got = (accuracy_answer){malloc(q * 8), malloc(tops * 8)};
  for (int n = 0; n < 3; n++) t->fp8[n] = malloc(n ? k : q), t->factors[n] = malloc(blocks * 4);
  t->o = malloc(q * 4);
  int good = t->p.q && t->p.k && t->p.v && t->exact.o && t->exact.top && t->got.o && t->got.top && t->o;
  for (int n = 0; n < 3; n++) good = good && t->fp8[n] && t->factors[n];
  if (good) return GLINT_OK;
  free_tensors(t);
  return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for %lld x %lld scores", (long long)rows, (long long)keys);
}

/* N(0, 1), with outliers N(0, 1) + N(0, 100) Bernoulli(0.001) (FlashAttention-3, section 4.3). */
static void fill(study *s, float *x, int64_t n, int outliers) {
  for (int64_t i = 0; i < n; i++) {
    double value = testkit_random_normal(&s->random);
    if (outliers && testkit_random_below(&s->random, 1000) == 0) value += 10 * testkit_random_normal(&s->random);
    x[i] = (float)value;
  }
}

/* ---- one way on one problem ---- */

static glint_tensor tensor(void *data, glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (glint_tensor){data, {a, b, c, d}, {0}, dtype, rank};
}

static glint_problem quantized_problem(tensors *t, const way *how, glint_quantization *q) {
  const accuracy_problem *p = &t->p;
  glint_tensor *const in[] = {&q->q, &q->k, &q->v}, *const out[] = {&q->q_fp8, &q->k_fp8, &q->v_fp8},
                      *const factors[] = {&q->descale_q, &q->descale_k, &q->descale_v};
  float *const data[] = {p->q, p->k, p->v};
  *q = (glint_quantization){.struct_size = sizeof *q, .rotate = how->rotate, .rotation_seed = SEED_OF_ROTATION, .smooth = how->smooth};
  for (int n = 0; n < 3; n++) {
    int64_t rows = n ? p->keys : p->rows;
    *in[n] = tensor(data[n], GLINT_FLOAT32, 4, 1, rows, p->heads, p->d);
    *out[n] = tensor(t->fp8[n], GLINT_FLOAT8_E4M3, 4, 1, rows, p->heads, p->d);
    *factors[n] = how->blocks ? tensor(t->factors[n], GLINT_FLOAT32, 3, 1, p->heads, (rows + BLOCK_ROWS - 1) / BLOCK_ROWS, 0)
                              : tensor(t->factors[n], GLINT_FLOAT32, 1, 1, 0, 0, 0);
  }
  return (glint_problem){.struct_size = sizeof(glint_problem),
                         .q = q->q_fp8,
                         .k = q->k_fp8,
                         .v = q->v_fp8,
                         .o = tensor(t->o, GLINT_FLOAT32, 4, 1, p->rows, p->heads, p->d),
                         .descale_q = q->descale_q,
                         .descale_k = q->descale_k,
                         .descale_v = q->descale_v};
}

/* top: the answer has the keys with the largest scores, too. */
static void add_errors(errors *e, const tensors *t, int top) {
  int64_t rows = t->p.rows * t->p.heads;
  for (int64_t i = 0; i < rows * t->p.d; i++) {
    double gap = fabs(t->got.o[i] - t->exact.o[i]);
    e->squares += gap * gap, e->of_reference += t->exact.o[i] * t->exact.o[i];
    if (!(gap <= e->largest)) e->largest = gap;
  }
  e->values += rows * t->p.d;
  for (int64_t i = 0; top && i < rows; i++) e->rows++, e->kept += t->got.top[i] == t->exact.top[i];
}

static glint_status run_on_engine(study *s, tensors *t, const glint_problem *p) {
  placed_problem placed;
  glint_status status = memory_place(&s->m, p, &placed, s->error);
  if (status != GLINT_OK) return status;
  status = glint_forward(s->engine, &placed.api);
  if (status != GLINT_OK) glint_fail(s->error, status, "%s", glint_last_error(s->engine));
  if (status == GLINT_OK) status = memory_fetch(&placed, p, s->error);
  memory_release(&placed);
  for (int64_t i = 0; status == GLINT_OK && i < t->p.rows * t->p.heads * t->p.d; i++) t->got.o[i] = (double)t->o[i];
  return status;
}

/* model NULL: the engine. */
static glint_status try_way(study *s, tensors *t, const way *how, const accuracy_model *model, errors *e) {
  glint_quantization q;
  const glint_problem p = quantized_problem(t, how, &q);
  glint_status status = glint_quantize(s->cpu, &q);
  if (status != GLINT_OK) return glint_fail(s->error, status, "%s", glint_last_error(s->cpu));
  if (!model)
    status = run_on_engine(s, t, &p);
  else if (!accuracy_run_model(model, &p, &t->got))
    status = glint_fail(s->error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for the model");
  if (status == GLINT_OK) add_errors(e, t, model != NULL);
  return status;
}

/* For orientation: the same in bfloat16, on the CPU engine. */
static glint_status try_bf16(study *s, tensors *t, errors *e) {
  const accuracy_problem *p = &t->p;
  float *const data[] = {p->q, p->k, p->v};
  glint_problem problem = {.struct_size = sizeof problem, .o = tensor(t->o, GLINT_FLOAT32, 4, 1, p->rows, p->heads, p->d)};
  glint_tensor *const in[] = {&problem.q, &problem.k, &problem.v};
  uint16_t *half[3] = {NULL};
  glint_status status = GLINT_OK;
  for (int n = 0; n < 3; n++) {
    int64_t count = (n ? p->keys : p->rows) * p->heads * p->d;
    half[n] = malloc((size_t)count * 2);
    if (!half[n]) status = glint_fail(s->error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for bfloat16 inputs");
    for (int64_t i = 0; half[n] && i < count; i++) half[n][i] = glint_bf16_from_float(data[n][i]);
    *in[n] = tensor(half[n], GLINT_BFLOAT16, 4, 1, n ? p->keys : p->rows, p->heads, p->d);
  }
  if (status == GLINT_OK) status = glint_forward(s->cpu, &problem);
  if (status != GLINT_OK && !*s->error->text) glint_fail(s->error, status, "%s", glint_last_error(s->cpu));
  for (int64_t i = 0; status == GLINT_OK && i < p->rows * p->heads * p->d; i++) t->got.o[i] = (double)t->o[i];
  if (status == GLINT_OK) add_errors(e, t, 0);
  for (int n = 0; n < 3; n++) free(half[n]);
  return status;
}

/* ---- rows of the table ---- */

typedef struct label {
  const char *data;
  int64_t d, rows, keys;
} label;

static double rmse_of(const errors *e) { return sqrt(e->squares / (double)e->values); }

static void write_row(study *s, const label *l, const char *how, const char *arithmetic, const errors *e, double plain) {
  report *r = s->r;
  double rmse = rmse_of(e);
  report_text(r, "data", l->data), report_text(r, "way", how), report_text(r, "arithmetic", arithmetic);
  report_number(r, "head_dim", (double)l->d);
  if (l->rows) report_number(r, "seqlen_q", (double)l->rows), report_number(r, "seqlen_k", (double)l->keys);
  report_number(r, "rmse", rmse), report_number(r, "relative", sqrt(e->squares / e->of_reference));
  report_number(r, "max_error", e->largest);
  if (plain > 0) report_number(r, "gain", plain / rmse);
  if (e->rows) report_number(r, "top1", (double)e->kept / (double)e->rows);
  report_number(r, "seed", (double)s->a->seed);
  report_row(r);
}

static void keep_bar(study *s, const label *l, const char *how, double rmse) {
  if (s->plot.bar_count == sizeof s->plot.bars / sizeof *s->plot.bars) return;
  accuracy_bar *bar = &s->plot.bars[s->plot.bar_count++];
  if (l->keys)
    snprintf(bar->group, sizeof bar->group, "%.20s %d x %d", l->data, (int)l->d, (int)l->keys);
  else
    snprintf(bar->group, sizeof bar->group, "%.20s %d", l->data, (int)l->d);
  snprintf(bar->way, sizeof bar->way, "%s", how);
  bar->rmse = rmse;
}

static void keep_point(study *s, const char *line, double length, double error) {
  if (s->plot.point_count == sizeof s->plot.points / sizeof *s->plot.points) return;
  accuracy_point *point = &s->plot.points[s->plot.point_count++];
  snprintf(point->line, sizeof point->line, "%s", line);
  point->length = length, point->error = error;
}

typedef struct ways_errors {
  errors of[WAYS], fa3, engine[WAYS], bf16;
} ways_errors;

static glint_status try_all(study *s, tensors *t, ways_errors *e) {
  accuracy_reference(&t->p, &t->exact);
  glint_status status = try_bf16(s, t, &e->bf16);
  for (int n = 0; n < WAYS && status == GLINT_OK; n++) {
    status = try_way(s, t, &ways[n], &arithmetics[KERNEL].model, &e->of[n]);
    if (s->engine && status == GLINT_OK) status = try_way(s, t, &ways[n], NULL, &e->engine[n]);
  }
  return status == GLINT_OK ? try_way(s, t, &ways[ALL], &arithmetics[FA3].model, &e->fa3) : status;
}

static void write_ways(study *s, const label *l, const ways_errors *e) {
  double plain = rmse_of(&e->of[PLAIN]);
  for (int n = 0; n < WAYS; n++) {
    write_row(s, l, ways[n].name, arithmetics[KERNEL].name, &e->of[n], plain);
    keep_bar(s, l, ways[n].name, rmse_of(&e->of[n]));
    if (s->engine) write_row(s, l, ways[n].name, option_engine_name(glint_context_engine(s->engine)), &e->engine[n], plain);
  }
  write_row(s, l, ways[ALL].name, arithmetics[FA3].name, &e->fa3, plain);
  write_row(s, l, "bfloat16", "cpu", &e->bf16, plain);
  keep_bar(s, l, "bfloat16", rmse_of(&e->bf16));
}

static glint_status study_numbers(study *s, int outliers, int64_t d, int64_t seqlen) {
  tensors t;
  static ways_errors e;
  const int64_t rows = seqlen < MOST_ROWS ? seqlen : MOST_ROWS; /* all rows are alike */
  const label l = {outliers ? "outliers" : "normal", d, rows, seqlen};
  progress_say(l.data, 0, 0);
  memset(&e, 0, sizeof e);
  glint_status status = make_tensors(&t, rows, seqlen, s->a->heads, d, s->error);
  if (status != GLINT_OK) return status;
  fill(s, t.p.q, rows * t.p.heads * d, outliers), fill(s, t.p.k, seqlen * t.p.heads * d, outliers);
  fill(s, t.p.v, seqlen * t.p.heads * d, outliers);
  status = try_all(s, &t, &e);
  if (status == GLINT_OK) write_ways(s, &l, &e);
  free_tensors(&t);
  return status;
}

/* ---- real data: all problems of a file together ---- */

static glint_status add_file_problem(study *s, const loaded_problem *p, ways_errors *e, int64_t *d) {
  const io_array *q = &p->inputs[0], *k = &p->inputs[1], *v = &p->inputs[2];
  tensors t;
  if (q->shape[0] != 1 || k->shape[2] != q->shape[2] || v->shape[3] != q->shape[3])
    return glint_fail(s->error, GLINT_ERROR_UNSUPPORTED, "%s: expected batch 1, as many key/value heads as query heads, one head_dim",
                      p->name);
  *d = q->shape[3];
  glint_status status = make_tensors(&t, q->shape[1], k->shape[1], q->shape[2], *d, s->error);
  if (status != GLINT_OK) return status;
  memcpy(t.p.q, q->data, (size_t)q->count * 4), memcpy(t.p.k, k->data, (size_t)k->count * 4), memcpy(t.p.v, v->data, (size_t)v->count * 4);
  status = try_all(s, &t, e);
  free_tensors(&t);
  return status;
}

static glint_status study_file(study *s) {
  problem_source source;
  static ways_errors e;
  const glint_problem defaults = {.struct_size = sizeof defaults};
  label l = {"file", 0, 0, 0};
  const char *slash = strrchr(s->a->file, '/');
  char name[48];
  snprintf(name, sizeof name, "%.40s", slash ? slash + 1 : s->a->file);
  *strchrnul(name, '.') = '\0';
  l.data = name;
  memset(&e, 0, sizeof e);
  glint_status status = problem_source_open(s->a->file, &source, s->error);
  if (status != GLINT_OK) return status;
  for (int i = 0; i < source.count && status == GLINT_OK; i++) {
    loaded_problem p;
    status = problem_load(&source, i, &defaults, GLINT_FLOAT32, &p, s->error);
    if (status != GLINT_OK) break;
    progress_say(name, i + 1, source.count);
    status = add_file_problem(s, &p, &e, &l.d);
    problem_free(&p);
  }
  problem_source_close(&source);
  if (status == GLINT_OK) write_ways(s, &l, &e);
  return status;
}

/* ---- along the length ---- */

/* offset: added to v. Sums of values of one sign grow with the length; what the tensor core's 13 bits lose then shows. */
static glint_status study_length(study *s, int64_t d, int64_t keys, float offset) {
  static const struct { int way, arithmetic; } lines[] = {{PLAIN, KERNEL}, {ALL, KERNEL}, {ALL, NARROW}, {ALL, SECOND}};
  tensors t;
  const label l = {offset != 0 ? "v + 1" : "normal", d, LENGTH_ROWS, keys};
  glint_status status = make_tensors(&t, LENGTH_ROWS, keys, 1, d, s->error);
  if (status != GLINT_OK) return status;
  progress_say("length", 0, 0);
  fill(s, t.p.q, LENGTH_ROWS * d, 0), fill(s, t.p.k, keys * d, 0), fill(s, t.p.v, keys * d, 0);
  for (int64_t i = 0; i < keys * d; i++) t.p.v[i] += offset;
  accuracy_reference(&t.p, &t.exact);
  for (size_t n = offset != 0 ? 1 : 0; n < (offset != 0 ? 4 : 2) && status == GLINT_OK; n++) {
    const way *how = &ways[lines[n].way];
    const char *arithmetic = arithmetics[lines[n].arithmetic].name;
    errors e = {0};
    char line[48];
    status = try_way(s, &t, how, &arithmetics[lines[n].arithmetic].model, &e);
    if (status != GLINT_OK) break;
    write_row(s, &l, how->name, arithmetic, &e, 0);
    snprintf(line, sizeof line, "%s: %s, %s", l.data, how->name, arithmetic);
    keep_point(s, line, (double)keys, sqrt(e.squares / e.of_reference));
  }
  if (status == GLINT_OK && s->engine) {
    errors e = {0};
    status = try_way(s, &t, &ways[ALL], NULL, &e);
    if (status == GLINT_OK) write_row(s, &l, ways[ALL].name, option_engine_name(glint_context_engine(s->engine)), &e, 0);
  }
  free_tensors(&t);
  return status;
}

/* ---- all of it ---- */

static glint_status run_tables(study *s) {
  const bench_accuracy_arguments *a = s->a;
  glint_status status = GLINT_OK;
  for (int outliers = 1; outliers >= 0; outliers--)
    for (int d = 0; d < a->head_dims->count; d++)
      for (int n = 0; n < a->seqlens->count && status == GLINT_OK; n++)
        status = study_numbers(s, outliers, a->head_dims->values[d], a->seqlens->values[n]);
  if (status == GLINT_OK && a->file) status = study_file(s);
  for (int n = 0; n < 2 * a->lengths->count && status == GLINT_OK; n++)
    status = study_length(s, a->head_dims->values[a->head_dims->count - 1], a->lengths->values[n / 2], n % 2 ? 1.0f : 0.0f);
  return status == GLINT_OK && a->plot ? accuracy_draw(&s->plot, a->plot, s->error) : status;
}

glint_status bench_accuracy_run(const bench_accuracy_arguments *a, report *r, glint_error *error) {
  static study s;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  s = (study){.a = a, .r = r, .random = a->seed, .error = error};
  glint_status status = glint_open(&options, &s.cpu);
  options.engine = a->engine;
  if (status == GLINT_OK && a->engine != GLINT_ENGINE_AUTO) status = glint_open(&options, &s.engine);
  if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(NULL));
  if (status == GLINT_OK && s.engine) status = memory_open(a->engine, &options, &s.m, error);
  if (status == GLINT_OK) {
    status = run_tables(&s);
    if (s.engine) memory_close(&s.m);
  }
  glint_close(s.engine);
  glint_close(s.cpu);
  return status;
}
