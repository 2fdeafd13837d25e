/* Quantization in double precision: whole tensors as rows of float64, the rotation as a product with its matrix. */
#include "../api/convert.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

/* One tensor: y = R (x - mean), [batch][head][row][column], rows beyond those in use left at 0. */
typedef struct oracle_tensor {
  const glint_quantize_work *w;
  const glint_quantize_tensor *t;
  double *y;
} oracle_tensor;

static double *y_row(const oracle_tensor *o, int64_t b, int64_t head, int64_t i) {
  return o->y + ((b * o->t->in.shape[2] + head) * o->t->seqlen + i) * o->t->in.shape[3];
}

static int64_t element_of(const glint_view *view, const glint_quantize_rows *s, int64_t head, int64_t i) {
  return s->batch * view->stride[0] + (s->first + i) * view->stride[1] + head * view->stride[2];
}

static void find_mean(const glint_quantize_work *w, int64_t b, int64_t head, double *mean) {
  const glint_view *in = &w->tensor[GLINT_QUANTIZE_K].in;
  glint_quantize_rows s = {0, 0, 0, 0};
  if (w->smooth == 1) s = glint_quantize_rows_of(w, &w->tensor[GLINT_QUANTIZE_K], b);
  for (int64_t c = 0; c < w->lengths.head_dim; c++) {
    mean[c] = 0;
    for (int64_t i = 0; i < s.used; i++) mean[c] += glint_load(in->data, in->dtype, element_of(in, &s, head, i) + c) / (double)s.used;
    if (w->smooth == 2)
      mean[c] = (double)((const float *)w->k_mean.data)[b * w->k_mean.stride[0] + head * w->k_mean.stride[1] + c];
    else if (w->k_mean.data)
      ((float *)w->k_mean.data)[b * w->k_mean.stride[0] + head * w->k_mean.stride[1] + c] = (float)mean[c];
  }
}

/* R x, element by element: (H S)_ij = (-1)^(ones in i & j) times the sign of j, inside blocks of the matrix's size. */
static void rotate_row(const double *x, double *y, int64_t columns, const uint32_t signs[16]) {
  int64_t block = glint_rotation_block(columns);
  for (int64_t i = 0; i < columns; i++) {
    y[i] = 0;
    for (int64_t j = i / block * block; j < (i / block + 1) * block; j++) {
      int minus =
          (__builtin_popcountll((unsigned long long)((i & (block - 1)) & (j & (block - 1)))) + (int)(signs[j / 32] >> (j % 32))) & 1;
      y[i] += (minus ? -x[j] : x[j]) / sqrt((double)block);
    }
  }
}

static void load_tensor(oracle_tensor *o, int keys) {
  const glint_quantize_work *w = o->w;
  const glint_view *in = &o->t->in;
  uint32_t signs[16];
  glint_rotation_signs(w->rotation_seed, signs);
  for (int64_t b = 0; b < w->lengths.batch; b++)
    for (int64_t head = 0; head < in->shape[2]; head++) {
      glint_quantize_rows s = glint_quantize_rows_of(w, o->t, b);
      double mean[512] = {0}, x[512];
      if (keys && w->smooth) find_mean(w, b, head, mean);
      for (int64_t i = 0; i < s.used; i++) {
        double *y = y_row(o, b, head, i);
        for (int64_t c = 0; c < in->shape[3]; c++) x[c] = glint_load(in->data, in->dtype, element_of(in, &s, head, i) + c) - mean[c];
        for (int64_t c = 0; c < in->shape[3]; c++) y[c] = x[c];
        if (o->t->rotate) rotate_row(x, y, in->shape[3], signs);
      }
    }
}

/* Heads [first_head, end_head) of a range of sequences, rows [first, end): one factor. */
typedef struct oracle_block {
  int64_t first_b, end_b, first_head, end_head, first, end;
} oracle_block;

static void quantize_block(const oracle_tensor *o, const oracle_block *k, float *descale) {
  const glint_view *out = &o->t->out;
  double largest = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t b = k->first_b; b < k->end_b; b++)
      for (int64_t head = k->first_head; head < k->end_head; head++) {
        glint_quantize_rows s = glint_quantize_rows_of(o->w, o->t, b);
        for (int64_t i = k->first; i < k->end && i < s.used; i++)
          for (int64_t c = 0; c < out->shape[3]; c++) {
            double y = y_row(o, b, head, i)[c];
            if (pass == 0 && isfinite(y) && fabs(y) > largest) largest = fabs(y);
            if (pass == 1) glint_store(out->data, out->dtype, element_of(out, &s, head, i) + c, y / (double)*descale);
          }
      }
    if (pass == 0 && !o->w->descale_given) *descale = largest < 0x1p-100 ? 1 : (float)(largest / (double)glint_fp8_largest(o->w->dtype));
  }
}

static void quantize_tensor_blocks(const oracle_tensor *o) {
  const glint_quantize_tensor *t = o->t;
  const glint_view *d = &t->descale;
  int64_t batch = o->w->lengths.batch, groups = d->shape[1], each = t->heads_a_scale;
  float *factor = d->data;
  if (t->shared) {
    oracle_block all = {0, batch, 0, t->in.shape[2], 0, t->seqlen};
    quantize_block(o, &all, factor);
    return;
  }
  for (int64_t b = 0; b < batch; b++)
    for (int64_t g = 0; g < groups; g++)
      for (int64_t n = 0; n < d->shape[2]; n++) {
        int64_t rows = t->block_rows ? t->block_rows : t->seqlen;
        oracle_block block = {b, b + 1, g * each, (g + 1) * each, n * rows, (n + 1) * rows};
        quantize_block(o, &block, factor + b * d->stride[0] + g * d->stride[1] + n * d->stride[2]);
      }
}

static void write_lse_shifts(const glint_quantize_work *w) {
  const glint_quantize_tensor *q = &w->tensor[GLINT_QUANTIZE_Q];
  const glint_view *shift = &w->lse_shift;
  int64_t heads_kv = w->smooth == 2 ? w->k_mean.shape[1] : w->lengths.heads_kv, group = w->lengths.heads_q / heads_kv;
  for (int64_t b = 0; b < w->lengths.batch; b++)
    for (int64_t head = 0; head < w->lengths.heads_q; head++) {
      glint_quantize_rows s = glint_quantize_rows_of(w, q, b);
      double mean[512];
      find_mean(w, b, head / group, mean);
      for (int64_t i = 0; i < s.len; i++) {
        double sum = 0;
        for (int64_t c = 0; i < s.used && c < w->lengths.head_dim; c++)
          sum += glint_load(q->in.data, q->in.dtype, element_of(&q->in, &s, head, i) + c) * mean[c];
        ((float *)shift->data)[s.batch * shift->stride[0] + head * shift->stride[1] + (s.first + i) * shift->stride[2]] =
            (float)(sum * (double)w->scale);
      }
    }
}

int oracle_quantize(const glint_quantize_work *w) {
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++) {
    oracle_tensor o = {w, &w->tensor[n], NULL};
    if (!o.t->in.rank) continue;
    o.y = calloc((size_t)(w->lengths.batch * o.t->in.shape[2] * o.t->seqlen * o.t->in.shape[3] + 1), sizeof *o.y);
    if (!o.y) return 0;
    load_tensor(&o, n == GLINT_QUANTIZE_K);
    quantize_tensor_blocks(&o);
    free(o.y);
  }
  if (w->lse_shift.data) write_lse_shifts(w);
  return 1;
}
