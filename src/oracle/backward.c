/* Backward pass of the oracle. With P the probabilities (sink included in their sum), D the dropout factors, and dS the gradient of the
 * score behind softcap:
 *   dV_j = sum_i P_ij D_ij dO_i;   dP_ij = D_ij dO_i . V_j;   dS_ij = P_ij (dP_ij - sum_j P_ij dP_ij + dLse_i)
 *   dbias = dS;   dsink = sum_i Psink_i (-sum_j P_ij dP_ij + dLse_i);   dQ_i = scale sum_j dS_ij softcap'_ij K_j;   dK_j likewise with Q_i
 * P is made from q and k again, o and lse are not needed. */
#include "../api/convert.h"
#include "oracle.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Sums of one run that gather over several groups. */
typedef struct sums {
  double *sinks; /* [batch, heads_q] */
  double *bias;  /* shape of dbias */
} sums;

static void add_or_set(const glint_work *w, const glint_view *view, int64_t at, double value) {
  glint_store(view->data, view->dtype, at, w->accumulate ? glint_load(view->data, view->dtype, at) + value : value);
}

static int64_t row_offset(const glint_view *view, const glint_sequence *s, int64_t head, int64_t i) {
  return s->batch_q * view->stride[0] + (s->row_q + i) * view->stride[1] + head * view->stride[2];
}

/* r->extra[j] = dS_ij; adds to the row's share of dV, dbias, dsinks. */
static void score_gradients(oracle_row *r, const oracle_group *g, int64_t head, int64_t i, double *dv, const sums *total) {
  const glint_work *w = g->w;
  int64_t at = row_offset(&w->d_o, &g->s, head, i), columns = w->head_dim_v;
  double delta = 0, d_lse = 0;
  if (w->d_lse.data)
    d_lse = glint_load(w->d_lse.data, w->d_lse.dtype,
                       g->s.batch_q * w->d_lse.stride[0] + head * w->d_lse.stride[1] + (g->s.row_q + i) * w->d_lse.stride[2]);
  for (int64_t c = 0; c < columns; c++) r->out[c] = glint_load(w->d_o.data, w->d_o.dtype, at + c);
  for (int64_t j = r->first; j < r->end; j++) {
    double dp = 0, p = r->p[j] * r->keep[j];
    for (int64_t c = 0; c < columns; c++) {
      dp += r->out[c] * g->v[j * columns + c];
      dv[j * columns + c] += p * r->out[c];
    }
    r->extra[j] = r->keep[j] * dp;
    delta += r->p[j] * r->extra[j];
  }
  for (int64_t j = r->first; j < r->end; j++) r->extra[j] = r->p[j] * (r->extra[j] - delta + d_lse);
  if (w->dsinks.data) total->sinks[g->b * w->heads_q + head] += r->sink_p * (d_lse - delta);
  if (!w->dbias.data) return;
  const int64_t *shape = w->dbias.shape;
  int64_t b0 = shape[0] == 1 ? 0 : g->b, h0 = shape[1] == 1 ? 0 : head, i0 = shape[2] == 1 ? 0 : i;
  double *row = total->bias + ((b0 * shape[1] + h0) * shape[2] + i0) * shape[3];
  for (int64_t j = r->first; j < r->end; j++) row[j] += r->extra[j];
}

static void backward_row(oracle_row *r, const oracle_group *g, int64_t head, int64_t i, double *dk, double *dv, const sums *total) {
  const glint_work *w = g->w;
  int64_t columns = w->head_dim;
  oracle_row_compute(r, g, head, i);
  score_gradients(r, g, head, i, dv, total);
  memset(r->out, 0, (size_t)columns * sizeof *r->out);
  for (int64_t j = r->first; j < r->end; j++) {
    double ds = r->extra[j] * r->softcap_d[j] * (double)w->scale;
    for (int64_t c = 0; c < columns; c++) {
      r->out[c] += ds * g->k[j * columns + c];
      dk[j * columns + c] += ds * r->q[c];
    }
  }
  if (!w->dq.data) return;
  int64_t at = row_offset(&w->dq, &g->s, head, i);
  for (int64_t c = 0; c < columns; c++) add_or_set(w, &w->dq, at + c, r->out[c]);
}

/* Keys of the sequence behind the used ones get 0. */
static void write_keys(const oracle_group *g, const glint_view *view, const double *sum, int64_t columns) {
  const glint_work *w = g->w;
  const int32_t *cu = w->cu_seqlens_k.data;
  int64_t capacity = cu ? (int64_t)cu[g->b + 1] - cu[g->b] : w->seqlen_k;
  if (!view->data) return;
  for (int64_t j = 0; j < capacity; j++) {
    int64_t at = glint_key_offset(w, view, g->b, &g->s, j, g->head_kv);
    for (int64_t c = 0; c < columns; c++) add_or_set(w, view, at + c, j < g->s.len_k ? sum[j * columns + c] : 0);
  }
}

static void clear_unused_rows(const oracle_group *g, int64_t head) {
  const glint_work *w = g->w;
  for (int64_t i = g->s.used_q; w->dq.data && i < g->s.len_q; i++)
    for (int64_t c = 0; c < w->head_dim; c++) add_or_set(w, &w->dq, row_offset(&w->dq, &g->s, head, i) + c, 0);
}

static int backward_group(const glint_work *w, int64_t b, int64_t head_kv, const sums *total) {
  oracle_group g = {0};
  oracle_row r = {0};
  int64_t heads = w->heads_q / w->heads_kv;
  if (!oracle_group_load(&g, w, b, head_kv)) return 0;
  double *dk = calloc((size_t)(g.s.len_k * w->head_dim + 1), sizeof *dk), *dv = calloc((size_t)(g.s.len_k * w->head_dim_v + 1), sizeof *dv);
  int ok = oracle_row_alloc(&r, &g) && dk && dv;
  for (int64_t head = head_kv * heads; ok && head < (head_kv + 1) * heads; head++) {
    for (int64_t i = 0; i < g.s.used_q; i++) backward_row(&r, &g, head, i, dk, dv, total);
    clear_unused_rows(&g, head);
  }
  if (ok) write_keys(&g, &w->dk, dk, w->head_dim), write_keys(&g, &w->dv, dv, w->head_dim_v);
  free(dk);
  free(dv);
  oracle_row_free(&r);
  oracle_group_free(&g);
  return ok;
}

static void write_sums(const glint_work *w, const sums *total) {
  for (int64_t head = 0; w->dsinks.data && head < w->heads_q; head++) {
    double sum = 0;
    for (int64_t b = 0; b < w->batch; b++) sum += total->sinks[b * w->heads_q + head];
    add_or_set(w, &w->dsinks, head, sum);
  }
  if (!w->dbias.data) return;
  const int64_t *shape = w->dbias.shape, *stride = w->dbias.stride;
  int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  for (int64_t n = 0; n < count; n++) {
    int64_t j = n % shape[3], i = n / shape[3] % shape[2], h = n / shape[3] / shape[2] % shape[1], b = n / shape[3] / shape[2] / shape[1];
    add_or_set(w, &w->dbias, b * stride[0] + h * stride[1] + i * stride[2] + j, total->bias[n]);
  }
}

int oracle_backward(const glint_work *w, int threads) {
  const int64_t *shape = w->dbias.shape;
  int64_t groups = w->batch * w->heads_kv, bias_count = w->dbias.data ? shape[0] * shape[1] * shape[2] * shape[3] : 0;
  sums total = {calloc((size_t)(w->batch * w->heads_q + 1), sizeof(double)), calloc((size_t)(bias_count + 1), sizeof(double))};
  int failed = !total.sinks || !total.bias;
  if (w->dbias.data) threads = 1; /* groups share elements of dbias */
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(| : failed) if (threads > 1)
  for (int64_t n = 0; n < groups; n++)
    if (!failed) failed |= !backward_group(w, n / w->heads_kv, n % w->heads_kv, &total);
  if (!failed) write_sums(w, &total);
  free(total.sinks);
  free(total.bias);
  return !failed;
}
