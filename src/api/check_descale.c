/* Checks of the FP8 scales, all brought to three axes: batch, head, block of rows. */
#include "check.h"

#include <inttypes.h>
#include <math.h>

int64_t glint_rows_per_block(int64_t seqlen, int64_t blocks) {
  int64_t share = seqlen / blocks + (seqlen % blocks != 0);
  return share > INT64_MAX - 15 ? share : (share + 15) / 16 * 16;
}

glint_status glint_check_factors(glint_checker *c, const char *name, const glint_view *v) {
  for (int64_t b = 0; b < (v->stride[0] ? v->shape[0] : 1); b++)
    for (int64_t h = 0; h < (v->stride[1] ? v->shape[1] : 1); h++)
      for (int64_t n = 0; n < (v->stride[2] ? v->shape[2] : 1); n++) {
        float value = ((const float *)v->data)[b * v->stride[0] + h * v->stride[1] + n * v->stride[2]];
        if (!(isfinite(value) && value > 0))
          return glint_refuse(c, "%s[%" PRId64 "][%" PRId64 "][%" PRId64 "] is %g: expected a finite positive number", name, b, h, n,
                              (double)value);
      }
  return GLINT_OK;
}

static glint_status check_one(glint_checker *c, const char *name, const glint_tensor *t, int64_t heads, int64_t seqlen, glint_view *view,
                              int64_t *rows) {
  glint_work *w = c->w;
  if (!(GLINT_BIT(w->q.dtype) & GLINT_FP8_DTYPES))
    return t->data ? glint_refuse(c, "%s is given: expected none, since q.dtype is %s", name, glint_dtype_name(w->q.dtype)) : GLINT_OK;
  GLINT_TRY(glint_check_tensor(c, name, t, GLINT_BIT(GLINT_FLOAT32), 1, 3, GLINT_REQUIRED, view));
  *rows = 0;
  if (view->rank == 1) {
    GLINT_TRY(glint_check_axis(c, name, view, 0, 1, "one value"));
    *view = (glint_view){view->data, {w->batch, heads, 1, 0}, {0, 0, 0, 0}, view->dtype, 3};
  } else if (view->rank == 2) {
    GLINT_TRY(glint_check_axis(c, name, view, 0, w->batch, "batch"));
    GLINT_TRY(glint_check_axis(c, name, view, 1, w->heads_kv, "k.shape[2] (heads_kv)"));
    *view = (glint_view){view->data, {w->batch, w->heads_kv, 1, 0}, {view->stride[0], view->stride[1], 0, 0}, view->dtype, 3};
  } else {
    GLINT_TRY(glint_check_axis(c, name, view, 0, w->batch, "batch"));
    GLINT_TRY(glint_check_axis(c, name, view, 1, heads, heads == w->heads_kv ? "k.shape[2] (heads_kv)" : "q.shape[2] (heads_q)"));
    if (view->shape[2] < 1) return glint_refuse(c, "%s.shape[2] (blocks) is 0: expected 1 or more", name);
    if (view->shape[2] > 1) *rows = glint_rows_per_block(seqlen, view->shape[2]);
    if (view->shape[2] == 1) view->stride[2] = 0;
  }
  return c->host && w->batch ? glint_check_factors(c, name, view) : GLINT_OK;
}

glint_status glint_check_descale(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  GLINT_TRY(check_one(c, "descale_q", &p->descale_q, w->heads_q, w->seqlen_q, &w->descale_q, &w->descale_rows_q));
  GLINT_TRY(check_one(c, "descale_k", &p->descale_k, w->heads_kv, w->seqlen_k, &w->descale_k, &w->descale_rows_k));
  GLINT_TRY(check_one(c, "descale_v", &p->descale_v, w->heads_kv, w->seqlen_k, &w->descale_v, &w->descale_rows_v));
  if ((w->flags & GLINT_FP32_ACCUMULATE) && !w->descale_q.data)
    return glint_refuse(c, "flags is 0x%" PRIx32 ": expected no GLINT_FP32_ACCUMULATE, since q.dtype is %s", w->flags,
                        glint_dtype_name(w->q.dtype));
  return GLINT_OK;
}
