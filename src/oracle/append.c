/* The KV cache's new keys and values. */
#include "../api/convert.h"
#include "oracle.h"

#include <string.h>

void oracle_rotate(const glint_work *w, double *x, int64_t position) {
  int64_t half = w->rotary_dim / 2;
  for (int64_t n = 0; n < half; n++) {
    int64_t first = w->rotary_interleaved ? 2 * n : n, second = w->rotary_interleaved ? 2 * n + 1 : n + half;
    double cosine = glint_load(w->rotary_cos.data, w->rotary_cos.dtype, position * w->rotary_cos.stride[0] + n);
    double sine = glint_load(w->rotary_sin.data, w->rotary_sin.dtype, position * w->rotary_sin.stride[0] + n);
    double a = x[first], b = x[second];
    x[first] = a * cosine - b * sine;
    x[second] = a * sine + b * cosine;
  }
}

static void append_row(const glint_work *w, int64_t b, int64_t head, int64_t n) {
  glint_sequence s = glint_sequence_of(w, b);
  int64_t position = s.len_k - w->seqlen_new + n;
  int64_t from_k = b * w->k_new.stride[0] + n * w->k_new.stride[1] + head * w->k_new.stride[2];
  int64_t from_v = b * w->v_new.stride[0] + n * w->v_new.stride[1] + head * w->v_new.stride[2];
  int64_t to_k = glint_key_offset(w, &w->k, b, &s, position, head), to_v = glint_key_offset(w, &w->v, b, &s, position, head);
  size_t element = glint_dtype_size(w->k.dtype);
  memcpy((char *)w->k.data + (size_t)to_k * element, (const char *)w->k_new.data + (size_t)from_k * element, (size_t)w->head_dim * element);
  memcpy((char *)w->v.data + (size_t)to_v * element, (const char *)w->v_new.data + (size_t)from_v * element,
         (size_t)w->head_dim_v * element);
  if (!w->rotary_dim) return;
  double x[512]; /* the largest head_dim */
  for (int64_t c = 0; c < w->rotary_dim; c++) x[c] = glint_load(w->k_new.data, w->k_new.dtype, from_k + c);
  oracle_rotate(w, x, position);
  for (int64_t c = 0; c < w->rotary_dim; c++) glint_store(w->k.data, w->k.dtype, to_k + c, x[c]);
}

void oracle_append(const glint_work *w) {
  for (int64_t b = 0; b < w->batch; b++)
    for (int64_t head = 0; head < w->heads_kv; head++)
      for (int64_t n = 0; n < w->seqlen_new; n++) append_row(w, b, head, n);
}
