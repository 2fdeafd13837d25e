/* Checks of what is appended to the KV cache and of the rotary embedding applied on the way. */
#include "check.h"

#include <inttypes.h>

static glint_status check_new_shape(glint_checker *c, const char *name, const glint_view *view, int64_t columns, const char *what) {
  GLINT_TRY(glint_check_axis(c, name, view, 0, c->w->batch, "batch"));
  GLINT_TRY(glint_check_axis(c, name, view, 2, c->w->heads_kv, "k.shape[2] (heads_kv)"));
  return glint_check_axis(c, name, view, 3, columns, what);
}

static glint_status check_new(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  unsigned dtype = GLINT_BIT(w->k.dtype);
  if (w->cu_seqlens_k.data) return glint_refuse(c, "k_new is given together with cu_seqlens_k: expected one of them");
  if (!p->cache_seqlens.data) return glint_refuse(c, "cache_seqlens.data is NULL: expected a pointer, k_new needs it");
  GLINT_TRY(glint_check_tensor(c, "k_new", &p->k_new, dtype, 4, 4, GLINT_REQUIRED, &w->k_new));
  GLINT_TRY(glint_check_tensor(c, "v_new", &p->v_new, dtype, 4, 4, GLINT_REQUIRED, &w->v_new));
  GLINT_TRY(check_new_shape(c, "k_new", &w->k_new, w->head_dim, "q.shape[3] (head_dim)"));
  GLINT_TRY(check_new_shape(c, "v_new", &w->v_new, w->head_dim_v, "v.shape[3] (head_dim_v)"));
  GLINT_TRY(glint_check_axis(c, "v_new", &w->v_new, 1, w->k_new.shape[1], "k_new.shape[1]"));
  w->seqlen_new = w->k_new.shape[1];
  if (w->seqlen_new > w->seqlen_k)
    return glint_refuse(c, "k_new.shape[1] is %" PRId64 ": expected at most %" PRId64 ", the capacity of k", w->seqlen_new, w->seqlen_k);
  return GLINT_OK;
}

/* The table must reach the last position that is rotated. Where lengths cannot be read, that may be any of the cache's. */
glint_status glint_check_positions(glint_checker *c) {
  const glint_work *w = c->w;
  if (!w->rotary_dim) return GLINT_OK;
  int64_t rows = w->rotary_cos.shape[0];
  if (!c->host && rows < w->seqlen_k)
    return glint_refuse(c, "rotary_cos.shape[0] is %" PRId64 ": expected at least %" PRId64 ", the capacity of k", rows, w->seqlen_k);
  if (!c->host) return GLINT_OK;
  const int32_t *cached = c->p->cache_seqlens.data, *cu = w->cu_seqlens_q.data, *used = c->p->seqused_q.data;
  int each_row = c->p->causal || (c->p->windowed && (c->p->window_left >= 0 || c->p->window_right >= 0));
  for (int64_t b = 0; b < w->batch; b++) {
    int64_t queries = used ? used[b] : cu ? (int64_t)cu[b + 1] - cu[b] : w->seqlen_q, needed = w->seqlen_new;
    if (queries > 0) needed = each_row && queries > needed ? queries : needed > 1 ? needed : 1;
    if (cached[b] + needed > rows)
      return glint_refuse(c, "rotary_cos.shape[0] is %" PRId64 ": expected at least %" PRId64 ", the positions of sequence %" PRId64, rows,
                          cached[b] + needed, b);
  }
  return GLINT_OK;
}

static glint_status check_rotary(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  unsigned dtypes = GLINT_BIT(GLINT_FLOAT32) | (GLINT_BIT(w->q.dtype) & ~GLINT_FP8_DTYPES);
  if (!w->k_new.rank) return glint_refuse(c, "rotary_cos is given without k_new: expected both");
  GLINT_TRY(glint_check_tensor(c, "rotary_cos", &p->rotary_cos, dtypes, 2, 2, GLINT_REQUIRED, &w->rotary_cos));
  GLINT_TRY(glint_check_tensor(c, "rotary_sin", &p->rotary_sin, GLINT_BIT(w->rotary_cos.dtype), 2, 2, GLINT_REQUIRED, &w->rotary_sin));
  GLINT_TRY(glint_check_axis(c, "rotary_sin", &w->rotary_sin, 0, w->rotary_cos.shape[0], "rotary_cos.shape[0]"));
  GLINT_TRY(glint_check_axis(c, "rotary_sin", &w->rotary_sin, 1, w->rotary_cos.shape[1], "rotary_cos.shape[1]"));
  if (w->rotary_cos.shape[1] < 1 || w->rotary_cos.shape[1] > w->head_dim / 2)
    return glint_refuse(c, "rotary_cos.shape[1] (rotary_dim / 2) is %" PRId64 ": expected 1 to head_dim / 2 = %" PRId64,
                        w->rotary_cos.shape[1], w->head_dim / 2);
  w->rotary_dim = 2 * w->rotary_cos.shape[1];
  w->rotary_interleaved = p->rotary_interleaved;
  return GLINT_OK;
}

glint_status glint_check_cache(glint_checker *c) {
  const glint_problem *p = c->p;
  if (p->rotary_interleaved != 0 && p->rotary_interleaved != 1)
    return glint_refuse(c, "rotary_interleaved is %" PRId32 ": expected 0 or 1", p->rotary_interleaved);
  if (p->v_new.data && !p->k_new.data) return glint_refuse(c, "k_new.data is NULL: expected a pointer, since v_new is given");
  if (p->k_new.data) GLINT_TRY(check_new(c));
  if (p->rotary_sin.data && !p->rotary_cos.data)
    return glint_refuse(c, "rotary_cos.data is NULL: expected a pointer, since rotary_sin is given");
  return p->rotary_cos.data ? check_rotary(c) : GLINT_OK;
}
