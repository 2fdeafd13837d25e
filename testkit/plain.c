/* Plain attention in the problem's own precision: scores, probabilities and gradients are rounded to the input type after every step, as a
 * chain of matrix products and elementwise operations in that type would; sums are float32. Its error against the oracle is the yardstick
 * for engines (the criterion of FlashAttention's own tests, Dao 2023). */
#include "internal.h"
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct plain {
  const glint_work *w;
  const testkit_rounds *rounds;
  oracle_group g;
  glint_dtype type; /* of intermediate results */
  float *q, *k, *v, *s, *p, *dp, *out, *dk, *dv;
  double *query;
  float keep_scale;
  float *keep;
  int64_t first, end;
  float sink_p, lse;
} plain;

static float rounded(glint_dtype type, float x) {
  switch (type) {
  case GLINT_BFLOAT16: return glint_float_from_bf16(glint_bf16_from_float(x));
  case GLINT_FLOAT16: return glint_float_from_f16(glint_f16_from_float(x));
  default: return x;
  }
}

static int is_fp8(glint_dtype type) { return type == GLINT_FLOAT8_E4M3 || type == GLINT_FLOAT8_E5M2; }

/* One score, rounded to type after each step. */
static float score(plain *x, glint_dtype type, int64_t head, int64_t i, int64_t j) {
  const glint_work *w = x->w;
  const float *k = x->k + j * w->head_dim;
  float s = 0;
  for (int64_t c = 0; c < w->head_dim; c++) s += x->q[c] * k[c];
  s = rounded(type, s * w->scale);
  if (w->softcap > 0) s = rounded(type, w->softcap * tanhf(s / w->softcap));
  if (w->bias.data) {
    int64_t at = x->g.b * w->bias.stride[0] + head * w->bias.stride[1] + i * w->bias.stride[2] + j;
    s = rounded(type, s + (float)glint_load(w->bias.data, w->bias.dtype, at));
  }
  if (w->alibi_slopes.data) {
    float slope = ((const float *)w->alibi_slopes.data)[x->g.b * w->alibi_slopes.stride[0] + head];
    s = rounded(type, s - slope * fabsf((float)(i + x->g.s.len_k - x->g.s.used_q - j)));
  }
  return s;
}

/* Probabilities of a row into x->p, unrounded; returns lse. */
static float softmax(plain *x, glint_dtype type, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  float sink = w->sinks.data ? ((const float *)w->sinks.data)[head] : -INFINITY, max = sink;
  for (int64_t j = x->first; j < x->end; j++) {
    x->s[j] = score(x, type, head, i, j);
    if (x->s[j] > max) max = x->s[j];
  }
  float base = max == -INFINITY ? 0 : max, sum = expf(sink - base);
  x->sink_p = sum;
  for (int64_t j = x->first; j < x->end; j++) sum += x->p[j] = expf(x->s[j] - base);
  float inverse = sum == 0 ? 1 : 1 / sum;
  for (int64_t j = x->first; j < x->end; j++) {
    /* FP8 rounds exp(s - max), moved up into the range of e4m3, before the division */
    if (is_fp8(w->q.dtype)) x->p[j] = glint_float_from_e4m3(glint_e4m3_from_float(256 * x->p[j])) / 256;
    x->p[j] *= inverse;
  }
  x->sink_p *= inverse;
  return base + logf(sum);
}

static void dropout(plain *x, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  oracle_row row = {.first = x->first, .end = x->end, .keep = x->query + 512};
  for (int64_t j = x->first; j < x->end; j++) x->keep[j] = 1;
  if (!w->drop_threshold) return;
  oracle_dropout(&row, &x->g, head, i);
  for (int64_t j = x->first; j < x->end; j++) x->keep[j] = (float)row.keep[j];
}

static void begin_row(plain *x, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  glint_visible_keys(w, &x->g.s, i, &x->first, &x->end);
  if (x->first < x->end) oracle_load_query(x->query, &x->g, head, i);
  for (int64_t c = 0; c < w->head_dim && x->first < x->end; c++) x->q[c] = rounded(x->type, (float)x->query[c]);
  x->lse = softmax(x, GLINT_FLOAT32, head, i);
  if (x->type != GLINT_FLOAT32) softmax(x, x->type, head, i);
  dropout(x, head, i);
}

static int64_t row_offset(const glint_view *view, const plain *x, int64_t head, int64_t i) {
  return x->g.s.batch_q * view->stride[0] + (x->g.s.row_q + i) * view->stride[1] + head * view->stride[2];
}

static int64_t lse_offset(const glint_view *view, const plain *x, int64_t head, int64_t i) {
  return x->g.s.batch_q * view->stride[0] + head * view->stride[1] + (x->g.s.row_q + i) * view->stride[2];
}

static void forward_row(plain *x, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  int64_t columns = w->head_dim_v;
  begin_row(x, head, i);
  memset(x->out, 0, (size_t)columns * sizeof *x->out);
  for (int64_t j = x->first; j < x->end; j++) {
    float p = rounded(x->type, rounded(x->type, x->p[j]) * x->keep[j]);
    for (int64_t c = 0; c < columns; c++) x->out[c] += p * x->v[j * columns + c];
  }
  for (int64_t c = 0; c < columns; c++)
    glint_store(w->o.data, GLINT_FLOAT64, row_offset(&w->o, x, head, i) + c, (double)rounded(x->rounds->o, x->out[c]));
  if (w->lse.data) glint_store(w->lse.data, GLINT_FLOAT64, lse_offset(&w->lse, x, head, i), (double)x->lse);
}

static void add(const glint_work *w, const glint_view *view, int64_t at, glint_dtype round_to, double value) {
  double *to = (double *)view->data + at;
  *to = (double)rounded(round_to, (float)(w->accumulate ? *to + value : value));
}

/* x->dp[j] = dS; adds to dV, dbias (at once: the plain reference runs in one thread) and dsinks. */
static void score_gradients(plain *x, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  int64_t columns = w->head_dim_v;
  float delta = 0, d_lse = 0;
  if (w->d_lse.data) d_lse = (float)glint_load(w->d_lse.data, w->d_lse.dtype, lse_offset(&w->d_lse, x, head, i));
  for (int64_t c = 0; c < columns; c++) x->out[c] = (float)glint_load(w->d_o.data, w->d_o.dtype, row_offset(&w->d_o, x, head, i) + c);
  for (int64_t j = x->first; j < x->end; j++) {
    float dp = 0, p = rounded(x->type, x->p[j]), kept = rounded(x->type, p * x->keep[j]);
    for (int64_t c = 0; c < columns; c++) {
      dp += x->out[c] * x->v[j * columns + c];
      x->dv[j * columns + c] += kept * x->out[c];
    }
    x->dp[j] = rounded(x->type, dp * x->keep[j]);
    delta += p * x->dp[j];
  }
  for (int64_t j = x->first; j < x->end; j++) {
    x->dp[j] = rounded(x->type, rounded(x->type, x->p[j]) * (x->dp[j] - delta + d_lse));
    if (!w->dbias.data) continue;
    int64_t at = x->g.b * w->dbias.stride[0] + head * w->dbias.stride[1] + i * w->dbias.stride[2] + j;
    ((double *)w->dbias.data)[at] += (double)x->dp[j];
  }
  if (w->dsinks.data) ((double *)w->dsinks.data)[head] += (double)(x->sink_p * (d_lse - delta));
}

static float softcap_derivative(const plain *x, int64_t j) {
  const glint_work *w = x->w;
  float s = 0;
  if (w->softcap <= 0) return 1;
  for (int64_t c = 0; c < w->head_dim; c++) s += x->q[c] * x->k[j * w->head_dim + c];
  float t = tanhf(rounded(x->type, s * w->scale) / w->softcap);
  return 1 - t * t;
}

static void backward_row(plain *x, int64_t head, int64_t i) {
  const glint_work *w = x->w;
  int64_t columns = w->head_dim;
  begin_row(x, head, i);
  score_gradients(x, head, i);
  memset(x->out, 0, (size_t)columns * sizeof *x->out);
  for (int64_t j = x->first; j < x->end; j++) {
    float ds = rounded(x->type, x->dp[j] * softcap_derivative(x, j));
    for (int64_t c = 0; c < columns; c++) {
      x->out[c] += ds * x->k[j * columns + c];
      x->dk[j * columns + c] += ds * x->q[c];
    }
  }
  for (int64_t c = 0; c < columns && w->dq.data; c++)
    add(w, &w->dq, row_offset(&w->dq, x, head, i) + c, x->rounds->dq, (double)(w->scale * x->out[c]));
}

static void write_keys(const plain *x, const glint_view *view, const float *sum, int64_t columns, float factor, glint_dtype round_to) {
  for (int64_t j = 0; j < x->g.s.len_k && view->data; j++)
    for (int64_t c = 0; c < columns; c++)
      add(x->w, view, glint_key_offset(x->w, view, x->g.b, &x->g.s, j, x->g.head_kv) + c, round_to,
          (double)(factor * sum[j * columns + c]));
}

static int group(plain *x, int64_t b, int64_t head_kv) {
  const glint_work *w = x->w;
  int64_t heads = w->heads_q / w->heads_kv;
  if (!oracle_group_load(&x->g, w, b, head_kv)) return 0;
  size_t keys = (size_t)x->g.s.len_k, d = (size_t)w->head_dim, dv = (size_t)w->head_dim_v;
  float *block = calloc(2 * keys * (d + dv) + 4 * keys + 1024, sizeof *block);
  x->query = malloc((512 + keys) * sizeof *x->query);
  int ok = block && x->query;
  if (ok) {
    x->q = block, x->out = block + 512, x->k = block + 1024, x->v = x->k + keys * d, x->dk = x->v + keys * dv, x->dv = x->dk + keys * d;
    x->s = x->dv + keys * dv, x->p = x->s + keys, x->dp = x->p + keys, x->keep = x->dp + keys;
    for (size_t n = 0; n < keys * d; n++) x->k[n] = (float)x->g.k[n];
    for (size_t n = 0; n < keys * dv; n++) x->v[n] = (float)x->g.v[n];
    for (int64_t head = head_kv * heads; head < (head_kv + 1) * heads; head++)
      for (int64_t i = 0; i < x->g.s.used_q; i++) {
        if (w->pass == GLINT_PASS_FORWARD)
          forward_row(x, head, i);
        else
          backward_row(x, head, i);
      }
    if (w->pass == GLINT_PASS_BACKWARD) {
      write_keys(x, &w->dk, x->dk, w->head_dim, w->scale, x->rounds->dk);
      write_keys(x, &w->dv, x->dv, w->head_dim_v, 1, x->rounds->dv);
    }
  }
  free(block);
  free(x->query);
  oracle_group_free(&x->g);
  return ok;
}

static void clear(const glint_work *w, const glint_view *view) {
  int64_t count = 1;
  for (int a = 0; a < view->rank; a++) count *= view->shape[a];
  if (view->data && !w->accumulate) memset(view->data, 0, (size_t)count * sizeof(double));
}

int testkit_plain(const glint_work *w, const testkit_rounds *rounds) {
  plain x = {.w = w, .rounds = rounds, .type = is_fp8(w->q.dtype) ? GLINT_FLOAT32 : w->q.dtype};
  clear(w, &w->dsinks);
  clear(w, &w->dbias);
  for (int64_t b = 0; b < w->batch; b++)
    for (int64_t head = 0; head < w->heads_kv; head++)
      if (!group(&x, b, head)) return 0;
  return 1;
}
