/* Attention in float64, and a model of what the FP8 kernel's arithmetic does to it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_accuracy.h"
#include "convert.h"
#include "work.h"

/* ---- float64 ---- */

static void reference_row(const accuracy_problem *p, int64_t i, int64_t h, double *s, accuracy_answer *answer) {
  const float *q = p->q + (i * p->heads + h) * p->d;
  double most = -INFINITY, sum = 0, *o = answer->o + (i * p->heads + h) * p->d;
  int64_t top = 0;
  for (int64_t j = 0; j < p->keys; j++) {
    const float *k = p->k + (j * p->heads + h) * p->d;
    double dot = 0;
    for (int64_t c = 0; c < p->d; c++) dot += (double)q[c] * (double)k[c];
    s[j] = dot / sqrt((double)p->d);
    if (s[j] > most) most = s[j], top = j;
  }
  for (int64_t c = 0; c < p->d; c++) o[c] = 0;
  for (int64_t j = 0; j < p->keys; j++) {
    const float *v = p->v + (j * p->heads + h) * p->d;
    double e = exp(s[j] - most);
    sum += e;
    for (int64_t c = 0; c < p->d; c++) o[c] += e * (double)v[c];
  }
  for (int64_t c = 0; c < p->d; c++) o[c] /= sum;
  answer->top[i * p->heads + h] = top;
}

void accuracy_reference(const accuracy_problem *p, accuracy_answer *answer) {
#pragma omp parallel
  {
    double *s = malloc((size_t)(p->keys + 1) * sizeof *s);
#pragma omp for schedule(dynamic, 8)
    for (int64_t n = 0; n < p->rows * p->heads; n++)
      if (s) reference_row(p, n / p->heads, n % p->heads, s, answer);
    free(s);
  }
}

/* ---- the kernel's arithmetic ---- */

enum { STEP = 32, D_MAX = 512, TILE_MAX = 256 }; /* STEP: depth of an 8-bit product */
#define LOG2E 1.4426950408889634

/* What one head's rows carry along. */
typedef struct model_row {
  float shift, sum, most;
  float p_sum, rounded; /* of P before and after its rounding */
  int64_t top;
  float o[D_MAX], part[D_MAX];
} model_row;

typedef struct model_head {
  const accuracy_model *m;
  const glint_work *w;
  int64_t h;
  model_row *rows;
  float k[D_MAX * TILE_MAX]; /* a tile of keys, transposed */
  float v[TILE_MAX * D_MAX];
} model_head;

static float factor_of(const glint_view *d, int64_t rows_per_block, int64_t head, int64_t heads, int64_t row) {
  int64_t group = d->shape[1] == heads || !d->stride[1] ? head : head / (heads / d->shape[1]),
          block = rows_per_block ? row / rows_per_block : 0;
  return ((const float *)d->data)[group * d->stride[1] + block * d->stride[2]];
}

static const uint8_t *row_at(const glint_view *view, int64_t row, int64_t head) {
  return (const uint8_t *)view->data + row * view->stride[1] + head * view->stride[2];
}

/* Adds up STEP products for each of n sums as the tensor core does: all addends lose what lies 13 bits below the largest one's exponent. The
 * width is what users of these instructions found (DeepSeek-V3, section 3.3.2; SageAttention2, section 3.4). */
static void add_narrow(float *sum, int64_t n, const float *a, const float *b, int64_t ld_b, int64_t depth) {
  for (int64_t c = 0; c < n; c++) {
    float largest = fabsf(sum[c]);
    for (int64_t k = 0; k < depth; k++) largest = fmaxf(largest, fabsf(a[k] * b[k * ld_b + c]));
    if (largest == 0) continue;
    int exponent;
    frexpf(largest, &exponent);
    float unit = ldexpf(1, exponent - 1 - 13), inverse = 1 / unit, total = truncf(sum[c] * inverse);
    for (int64_t k = 0; k < depth; k++) total += truncf(a[k] * b[k * ld_b + c] * inverse);
    sum[c] = total * unit;
  }
}

static void add_wide(float *sum, int64_t n, const float *a, const float *b, int64_t ld_b, int64_t depth) {
  for (int64_t k = 0; k < depth; k++)
    for (int64_t c = 0; c < n; c++) sum[c] += a[k] * b[k * ld_b + c];
}

/* sum[c] += sum over k < depth of a[k] b[k][c]. */
static void multiply(const accuracy_model *m, float *sum, int64_t n, const float *a, const float *b, int64_t ld_b, int64_t depth) {
  for (int64_t k = 0; k < depth; k += STEP) {
    int64_t some = depth - k < STEP ? depth - k : STEP;
    (m->narrow ? add_narrow : add_wide)(sum, n, a + k, b + k * ld_b, ld_b, some);
  }
}

/* One tile for one row. The factor of V's block is part of P (its logarithm is added to the exponent), and comes off the row's sum again. */
static void model_tile(model_head *t, model_row *r, const float *q, float q_factor, int64_t first, int64_t count) {
  const glint_work *w = t->w;
  float s[TILE_MAX] = {0}, p[TILE_MAX], log2_v[TILE_MAX], most = -INFINITY;
  int blocks_v = w->descale_rows_v != 0;
  multiply(t->m, s, count, q, t->k, TILE_MAX, w->head_dim);
  for (int64_t j = 0; j < count; j++) {
    s[j] *= q_factor * factor_of(&w->descale_k, w->descale_rows_k, t->h, w->heads_kv, first + j);
    if (s[j] > r->most || (s[j] == r->most && first + j < r->top)) r->most = s[j], r->top = first + j;
    log2_v[j] = blocks_v ? log2f(factor_of(&w->descale_v, w->descale_rows_v, t->h, w->heads_kv, first + j)) : 0;
    most = fmaxf(most, s[j] + log2_v[j]);
  }
  if (most - r->shift >= t->m->move) {
    float rescale = exp2f(r->shift - (most - t->m->top));
    r->shift = most - t->m->top;
    r->sum *= rescale, r->p_sum *= rescale, r->rounded *= rescale;
    for (int64_t c = 0; c < w->head_dim_v; c++) r->o[c] *= rescale, r->part[c] *= rescale;
  }
  for (int64_t j = 0; j < count; j++) {
    p[j] = exp2f(s[j] + log2_v[j] - r->shift);
    r->sum += blocks_v ? p[j] * exp2f(-log2_v[j]) : p[j];
    r->p_sum += p[j];
    p[j] = glint_float_from_e4m3(glint_e4m3_from_float(p[j]));
    r->rounded += p[j];
  }
  multiply(t->m, r->part, w->head_dim_v, p, t->v, D_MAX, count);
  if (!t->m->second) return;
  for (int64_t c = 0; c < w->head_dim_v; c++) r->o[c] += r->part[c], r->part[c] = 0;
}

static void load_tile(model_head *t, int64_t first, int64_t count) {
  for (int64_t j = 0; j < count; j++) {
    const uint8_t *k = row_at(&t->w->k, first + j, t->h), *v = row_at(&t->w->v, first + j, t->h);
    for (int64_t c = 0; c < t->w->head_dim; c++) t->k[c * TILE_MAX + j] = glint_float_from_e4m3(k[c]);
    for (int64_t c = 0; c < t->w->head_dim_v; c++) t->v[j * D_MAX + c] = glint_float_from_e4m3(v[c]);
  }
}

static void finish_rows(const model_head *t, accuracy_answer *answer) {
  const glint_work *w = t->w;
  float v_factor = w->descale_rows_v ? 1 : factor_of(&w->descale_v, 0, t->h, w->heads_kv, 0);
  for (int64_t i = 0; i < w->seqlen_q; i++) {
    const model_row *r = &t->rows[i];
    double *o = answer->o + (i * w->heads_q + t->h) * w->head_dim_v;
    float factor = v_factor / r->sum;
    if (t->m->level && r->rounded > 0) factor *= r->p_sum / r->rounded;
    for (int64_t c = 0; c < w->head_dim_v; c++) o[c] = (double)((r->o[c] + r->part[c]) * factor);
    answer->top[i * w->heads_q + t->h] = r->top;
  }
}

static void model_one_head(model_head *t, accuracy_answer *answer) {
  const glint_work *w = t->w;
  int64_t tiles = (w->seqlen_k + t->m->tile - 1) / t->m->tile;
  memset(t->rows, 0, (size_t)w->seqlen_q * sizeof *t->rows);
  for (int64_t i = 0; i < w->seqlen_q; i++) t->rows[i].shift = t->rows[i].most = -FLT_MAX;
  for (int64_t n = tiles - 1; n >= 0; n--) {
    int64_t first = n * t->m->tile, count = w->seqlen_k - first < t->m->tile ? w->seqlen_k - first : t->m->tile;
    load_tile(t, first, count);
    for (int64_t i = 0; i < w->seqlen_q; i++) {
      float q[D_MAX], factor = factor_of(&w->descale_q, w->descale_rows_q, t->h, w->heads_q, i) * (float)((double)w->scale * LOG2E);
      const uint8_t *stored = row_at(&w->q, i, t->h);
      for (int64_t c = 0; c < w->head_dim; c++) q[c] = glint_float_from_e4m3(stored[c]);
      model_tile(t, &t->rows[i], q, factor, first, count);
    }
  }
  finish_rows(t, answer);
}

int accuracy_run_model(const accuracy_model *model, const glint_problem *fp8, accuracy_answer *answer) {
  glint_work w;
  char text[512];
  int failed = glint_check(fp8, NULL, GLINT_PASS_FORWARD, 1, &w, text, sizeof text) != GLINT_OK;
#pragma omp parallel if (!failed) reduction(| : failed)
  {
    model_head *t = malloc(sizeof *t);
    model_row *rows = malloc((size_t)(w.seqlen_q + 1) * sizeof *rows);
    failed |= !t || !rows;
#pragma omp for schedule(dynamic, 1)
    for (int64_t h = 0; h < w.heads_q; h++)
      if (!failed) {
        t->m = model, t->w = &w, t->h = h, t->rows = rows;
        model_one_head(t, answer);
      }
    free(rows);
    free(t);
  }
  return !failed;
}
