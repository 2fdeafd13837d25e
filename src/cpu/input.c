/* Reading Q, K and V: strides, pages, rotary embedding, FP8 scales; and the append to a KV cache. */
#include "../api/convert.h"
#include "forward.h"

#include <string.h>

enum { HEAD_DIM_MAX = 512 };

glint_cpu_units glint_cpu_units_of(const glint_work *w, int bf16) {
  int changed = w->softcap > 0 || w->bias.data || w->alibi_slopes.data;
  double product = w->softcap > 0 ? (double)w->scale / (double)w->softcap : (double)w->scale;
  glint_cpu_units units = {.changed = changed, .q_factor = (float)product, .s_factor = 1, .log2_unit = (float)GLINT_LOG2E};
  if (!changed) units.q_factor = (float)(product * GLINT_LOG2E), units.log2_unit = 1;
  if (!bf16) return units;
  /* a factor would not survive the rounding to bfloat16 */
  units.q_factor = 1, units.s_factor = (float)product;
  if (!changed) units.log2_unit = (float)(product * GLINT_LOG2E);
  return units;
}

/* Few-rows kernels work in floats, but for the tiles of some. */
glint_cpu_units glint_cpu_share_units(const glint_work *w, const glint_cpu_plan *plan, const glint_cpu_share *share) {
  return glint_cpu_units_of(w, plan->kernels->bf16 && (!share->few || glint_cpu_few_tiles(w, plan)));
}

static float fp8_scale(const glint_view *view, int64_t rows_per_block, int64_t b, int64_t head, int64_t row) {
  if (!view->data) return 1;
  int64_t block = rows_per_block ? row / rows_per_block : 0;
  return ((const float *)view->data)[b * view->stride[0] + head * view->stride[1] + block * view->stride[2]];
}

/* x (head_dim values) rotated for a position. */
static void rotate(const glint_work *w, double *x, int64_t position) {
  int64_t half = w->rotary_dim / 2, row_cos = position * w->rotary_cos.stride[0], row_sin = position * w->rotary_sin.stride[0];
  for (int64_t n = 0; n < half; n++) {
    int64_t first = w->rotary_interleaved ? 2 * n : n, second = w->rotary_interleaved ? 2 * n + 1 : n + half;
    double cosine = glint_load(w->rotary_cos.data, w->rotary_cos.dtype, row_cos + n);
    double sine = glint_load(w->rotary_sin.data, w->rotary_sin.dtype, row_sin + n);
    double a = x[first], b = x[second];
    x[first] = a * cosine - b * sine;
    x[second] = a * sine + b * cosine;
  }
}

static const char *query_at(const glint_cpu_run *run, int64_t r) {
  const glint_work *w = run->w;
  const glint_sequence *s = &run->share->s;
  int64_t i = glint_cpu_position(run, r), element = (int64_t)glint_dtype_size(w->q.dtype);
  int64_t at = s->batch_q * w->q.stride[0] + (s->row_q + i) * w->q.stride[1] + glint_cpu_head(run, r) * w->q.stride[2];
  const char *src = (const char *)w->q.data + at * element;
  glint_cpu_ask_ahead(src, w->q.stride[1] * element, w->head_dim * element, i, s->used_q);
  return src;
}

void glint_cpu_query_row(const glint_cpu_run *run, int64_t r, float factor, float *dst) {
  const glint_work *w = run->w;
  const glint_sequence *s = &run->share->s;
  int64_t i = glint_cpu_position(run, r), head = glint_cpu_head(run, r);
  if (w->descale_q.data) {
    int64_t scale_head = w->descale_q.shape[1] == w->heads_q ? head : run->item.head;
    factor *= fp8_scale(&w->descale_q, w->descale_rows_q, run->item.b, scale_head, i);
  }
  run->plan->kernels->to_float(dst, query_at(run, r), w->q.dtype, w->head_dim, factor);
  if (!w->rotary_dim) return;
  /* rows stand at positions of their own only where a mask tells them apart (as flash_attn_with_kvcache defines it) */
  int64_t cached = s->len_k - w->seqlen_new, each_row = w->window_left >= 0 || w->window_right >= 0;
  double x[HEAD_DIM_MAX];
  for (int64_t c = 0; c < w->rotary_dim; c++) x[c] = (double)dst[c];
  rotate(w, x, each_row ? cached + i : cached);
  for (int64_t c = 0; c < w->rotary_dim; c++) dst[c] = (float)x[c];
}

void glint_cpu_query_words(const glint_cpu_run *run, int64_t r, float factor, float *dst) {
  const glint_work *w = run->w;
  const glint_cpu_kernels *kernels = run->plan->kernels;
  float x[HEAD_DIM_MAX];
  if (!kernels->bf16)
    glint_cpu_query_row(run, r, factor, dst);
  else if (!w->rotary_dim)
    memcpy(dst, query_at(run, r), (size_t)w->head_dim * 2); /* bfloat16 already, and bf16 kernels fold nothing in */
  else {
    glint_cpu_query_row(run, r, factor, x);
    kernels->from_float(dst, GLINT_BFLOAT16, x, w->head_dim, 1.0f);
  }
}

int glint_cpu_key_rows(const glint_cpu_run *run, int64_t first, int64_t end, const void **keys, const void **values, float *key_scales,
                       float *value_scales) {
  const glint_work *w = run->w;
  const glint_sequence *s = &run->share->s;
  size_t element = glint_dtype_size(w->k.dtype);
  int64_t b = run->item.b, head = run->item.head;
  for (int64_t j = first; j < end; j++) {
    keys[j - first] = (const char *)w->k.data + (size_t)glint_key_offset(w, &w->k, b, s, j, head) * element;
    values[j - first] = (const char *)w->v.data + (size_t)glint_key_offset(w, &w->v, b, s, j, head) * element;
  }
  if (!w->descale_k.data && !w->descale_v.data) return 0;
  for (int64_t j = first; j < end; j++) {
    key_scales[j - first] = fp8_scale(&w->descale_k, w->descale_rows_k, b, head, j);
    value_scales[j - first] = fp8_scale(&w->descale_v, w->descale_rows_v, b, head, j);
  }
  return 1;
}

static void append_key(const glint_work *w, const glint_sequence *s, int64_t b, int64_t head, int64_t n) {
  int64_t position = s->len_k - w->seqlen_new + n;
  size_t element = glint_dtype_size(w->k.dtype);
  int64_t from_k = b * w->k_new.stride[0] + n * w->k_new.stride[1] + head * w->k_new.stride[2];
  int64_t from_v = b * w->v_new.stride[0] + n * w->v_new.stride[1] + head * w->v_new.stride[2];
  char *to_k = (char *)w->k.data + (size_t)glint_key_offset(w, &w->k, b, s, position, head) * element;
  char *to_v = (char *)w->v.data + (size_t)glint_key_offset(w, &w->v, b, s, position, head) * element;
  memcpy(to_k, (const char *)w->k_new.data + (size_t)from_k * element, (size_t)w->head_dim * element);
  memcpy(to_v, (const char *)w->v_new.data + (size_t)from_v * element, (size_t)w->head_dim_v * element);
  if (!w->rotary_dim) return;
  /* in double, rounded once: the cache's bits are the same on every engine */
  double x[HEAD_DIM_MAX];
  for (int64_t c = 0; c < w->rotary_dim; c++) x[c] = glint_load(w->k_new.data, w->k_new.dtype, from_k + c);
  rotate(w, x, position);
  for (int64_t c = 0; c < w->rotary_dim; c++) glint_store(to_k, w->k.dtype, c, x[c]);
}

void glint_cpu_append(const glint_work *w, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t b = 0; b < w->batch; b++) {
    glint_sequence s = glint_sequence_of(w, b);
    for (int64_t n = 0; n < w->seqlen_new; n++)
      for (int64_t head = 0; head < w->heads_kv; head++) append_key(w, &s, b, head, n);
  }
}
