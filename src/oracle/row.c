/* Scores and probabilities of one row, used by both passes. */
#include "../api/convert.h"
#include "../api/philox.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

/* FP8: value = stored * descale, the scale chosen by sequence, head and block of rows. */
static double descale(const glint_view *view, int64_t rows_per_block, int64_t b, int64_t head, int64_t row) {
  if (!view->data) return 1;
  int64_t block = rows_per_block ? row / rows_per_block : 0;
  return (double)((const float *)view->data)[b * view->stride[0] + head * view->stride[1] + block * view->stride[2]];
}

int oracle_group_load(oracle_group *g, const glint_work *w, int64_t b, int64_t head_kv) {
  g->w = w, g->b = b, g->head_kv = head_kv, g->s = glint_sequence_of(w, b);
  g->k = malloc((size_t)(g->s.len_k * w->head_dim + 1) * sizeof *g->k);
  g->v = malloc((size_t)(g->s.len_k * w->head_dim_v + 1) * sizeof *g->v);
  if (!g->k || !g->v) {
    oracle_group_free(g);
    return 0;
  }
  for (int64_t j = 0; j < g->s.len_k; j++) {
    int64_t at_k = glint_key_offset(w, &w->k, b, &g->s, j, head_kv), at_v = glint_key_offset(w, &w->v, b, &g->s, j, head_kv);
    double scale_k = descale(&w->descale_k, w->descale_rows_k, b, head_kv, j),
           scale_v = descale(&w->descale_v, w->descale_rows_v, b, head_kv, j);
    for (int64_t c = 0; c < w->head_dim; c++) g->k[j * w->head_dim + c] = scale_k * glint_load(w->k.data, w->k.dtype, at_k + c);
    for (int64_t c = 0; c < w->head_dim_v; c++) g->v[j * w->head_dim_v + c] = scale_v * glint_load(w->v.data, w->v.dtype, at_v + c);
  }
  return 1;
}

void oracle_group_free(oracle_group *g) {
  free(g->k);
  free(g->v);
}

int oracle_row_alloc(oracle_row *r, const oracle_group *g) {
  int64_t d = g->w->head_dim, dv = g->w->head_dim_v, keys = g->s.len_k, widest = d > dv ? d : dv;
  double *block = malloc((size_t)(d + 4 * keys + widest) * sizeof *block);
  r->q = block; /* owns the block */
  if (!block) return 0;
  r->p = r->q + d, r->softcap_d = r->p + keys, r->keep = r->softcap_d + keys, r->extra = r->keep + keys, r->out = r->extra + keys;
  return 1;
}

void oracle_row_free(oracle_row *r) { free(r->q); }

void oracle_load_query(double *q, const oracle_group *g, int64_t head, int64_t i) {
  const glint_work *w = g->w;
  int64_t at = g->s.batch_q * w->q.stride[0] + (g->s.row_q + i) * w->q.stride[1] + head * w->q.stride[2];
  int64_t scale_head = w->descale_q.shape[1] == w->heads_q ? head : g->head_kv;
  double scale = descale(&w->descale_q, w->descale_rows_q, g->b, scale_head, i);
  for (int64_t c = 0; c < w->head_dim; c++) q[c] = scale * glint_load(w->q.data, w->q.dtype, at + c);
  if (!w->rotary_dim) return;
  /* each row stands at its own position only where the mask tells rows apart, as flash_attn_with_kvcache defines it */
  int64_t cached = g->s.len_k - w->seqlen_new, each_row = w->window_left >= 0 || w->window_right >= 0;
  oracle_rotate(w, q, each_row ? cached + i : cached);
}

/* The score of key j, in the order of glint.h. */
static double score(oracle_row *r, const oracle_group *g, int64_t head, int64_t i, int64_t j) {
  const glint_work *w = g->w;
  const double *k = g->k + j * w->head_dim;
  double s = 0;
  for (int64_t c = 0; c < w->head_dim; c++) s += r->q[c] * k[c];
  s *= (double)w->scale;
  r->softcap_d[j] = 1;
  if (w->softcap > 0) {
    double t = tanh(s / (double)w->softcap);
    s = (double)w->softcap * t;
    r->softcap_d[j] = 1 - t * t;
  }
  if (w->bias.data)
    s += glint_load(w->bias.data, w->bias.dtype, g->b * w->bias.stride[0] + head * w->bias.stride[1] + i * w->bias.stride[2] + j);
  if (w->alibi_slopes.data) {
    double slope = (double)((const float *)w->alibi_slopes.data)[g->b * w->alibi_slopes.stride[0] + head];
    s -= slope * fabs((double)(i + g->s.len_k - g->s.used_q - j));
  }
  return s;
}

void oracle_dropout(oracle_row *r, const oracle_group *g, int64_t head, int64_t i) {
  const glint_work *w = g->w;
  uint16_t u[8];
  double kept = 1 / (1 - w->drop_threshold / 65536.0);
  for (int64_t j = r->first; j < r->end; j++) {
    if (j == r->first || j % 8 == 0)
      glint_dropout_block(w->dropout_seed, w->dropout_offset, (uint32_t)(g->b * w->heads_q + head), (uint32_t)i, (uint32_t)(j / 8), u);
    r->keep[j] = u[j % 8] >= w->drop_threshold ? kept : 0;
  }
}

void oracle_row_compute(oracle_row *r, const oracle_group *g, int64_t head, int64_t i) {
  const glint_work *w = g->w;
  double sink = w->sinks.data ? (double)((const float *)w->sinks.data)[head] : -(double)INFINITY, max = sink, sum = 0;
  glint_visible_keys(w, &g->s, i, &r->first, &r->end);
  if (r->first < r->end) oracle_load_query(r->q, g, head, i);
  for (int64_t j = r->first; j < r->end; j++) {
    r->p[j] = score(r, g, head, i, j);
    if (r->p[j] > max) max = r->p[j];
  }
  /* all scores -inf: exp(-inf - 0) = 0 is right where exp(-inf + inf) would be NaN; a NaN score stays NaN either way */
  double base = max == -(double)INFINITY ? 0 : max;
  r->sink_p = exp(sink - base);
  sum = r->sink_p;
  for (int64_t j = r->first; j < r->end; j++) sum += r->p[j] = exp(r->p[j] - base);
  r->lse = base + log(sum);
  if (sum == 0) sum = 1;
  for (int64_t j = r->first; j < r->end; j++) r->p[j] /= sum, r->keep[j] = 1;
  r->sink_p /= sum;
  if (w->drop_threshold) oracle_dropout(r, g, head, i);
}
