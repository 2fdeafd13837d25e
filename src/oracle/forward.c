/* Forward pass of the oracle: o = dropout(p) v, row by row. */
#include "../api/convert.h"
#include "oracle.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static void write_row(const glint_work *w, const glint_sequence *s, int64_t head, int64_t i, const double *out, double lse) {
  int64_t at = s->batch_q * w->o.stride[0] + (s->row_q + i) * w->o.stride[1] + head * w->o.stride[2];
  for (int64_t c = 0; c < w->head_dim_v; c++) glint_store(w->o.data, w->o.dtype, at + c, out ? out[c] : 0);
  if (!w->lse.data) return;
  at = s->batch_q * w->lse.stride[0] + head * w->lse.stride[1] + (s->row_q + i) * w->lse.stride[2];
  glint_store(w->lse.data, w->lse.dtype, at, lse);
}

static void forward_row(oracle_row *r, const oracle_group *g, int64_t head, int64_t i) {
  const glint_work *w = g->w;
  oracle_row_compute(r, g, head, i);
  memset(r->out, 0, (size_t)w->head_dim_v * sizeof *r->out);
  for (int64_t j = r->first; j < r->end; j++) {
    double p = r->p[j] * r->keep[j];
    for (int64_t c = 0; c < w->head_dim_v; c++) r->out[c] += p * g->v[j * w->head_dim_v + c];
  }
  write_row(w, &g->s, head, i, r->out, r->lse);
}

/* All rows that share one key/value head. Parallel over rows unless the caller already is over groups. */
static int forward_group(const glint_work *w, int64_t b, int64_t head_kv, int threads) {
  oracle_group g;
  int64_t heads = w->heads_q / w->heads_kv;
  int failed = 0;
  if (!oracle_group_load(&g, w, b, head_kv)) return 0;
#pragma omp parallel num_threads(threads) reduction(| : failed) if (threads > 1)
  {
    oracle_row r;
    failed = !oracle_row_alloc(&r, &g);
#pragma omp for schedule(dynamic, 4)
    for (int64_t n = 0; n < heads * g.s.used_q; n++)
      if (!failed) forward_row(&r, &g, head_kv * heads + n / g.s.used_q, n % g.s.used_q);
    oracle_row_free(&r);
  }
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = g.s.used_q; i < g.s.len_q; i++) write_row(w, &g.s, head_kv * heads + h, i, NULL, -(double)INFINITY);
  oracle_group_free(&g);
  return !failed;
}

int oracle_forward(const glint_work *w, int threads) {
  int64_t groups = w->batch * w->heads_kv;
  int outer = groups >= threads ? threads : 1, inner = groups >= threads ? 1 : threads, failed = 0;
  if (w->seqlen_new) oracle_append(w);
#pragma omp parallel for num_threads(outer) schedule(dynamic) reduction(| : failed) if (outer > 1)
  for (int64_t n = 0; n < groups; n++) failed |= !forward_group(w, n / w->heads_kv, n % w->heads_kv, inner);
  return !failed;
}
