/* Checks of what shapes the scores: scale, softcap, masks, biases, sinks, dropout; and of the scalars around them. */
#include "check.h"

#include <inttypes.h>
#include <math.h>

#define KNOWN_FLAGS (GLINT_DETERMINISTIC | GLINT_BATCH_INVARIANT | GLINT_FP32_ACCUMULATE)

static glint_status check_switch(glint_checker *c, const char *name, int32_t value) {
  return value == 0 || value == 1 ? GLINT_OK : glint_refuse(c, "%s is %" PRId32 ": expected 0 or 1", name, value);
}

static glint_status check_positive(glint_checker *c, const char *name, float value) {
  if (isfinite(value) && value >= 0) return GLINT_OK;
  return glint_refuse(c, "%s is %g: expected a finite positive number, or 0 for the default", name, (double)value);
}

static glint_status check_window(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  GLINT_TRY(check_switch(c, "causal", p->causal));
  GLINT_TRY(check_switch(c, "windowed", p->windowed));
  if (p->window_left < -1) return glint_refuse(c, "window_left is %" PRId64 ": expected -1 (all) or more", p->window_left);
  if (p->window_right < -1) return glint_refuse(c, "window_right is %" PRId64 ": expected -1 (all) or more", p->window_right);
  if (!p->windowed && p->window_left > 0)
    return glint_refuse(c, "window_left is %" PRId64 ": expected 0 or -1, since windowed is 0", p->window_left);
  if (!p->windowed && p->window_right > 0)
    return glint_refuse(c, "window_right is %" PRId64 ": expected 0 or -1, since windowed is 0", p->window_right);
  /* No key is further away than all rows and keys together: clamping there changes nothing and keeps position + window from overflow. */
  int64_t farthest = w->seqlen_q > INT64_MAX - w->seqlen_k ? INT64_MAX / 2 : w->seqlen_q + w->seqlen_k;
  w->window_left = p->windowed ? p->window_left : -1, w->window_right = p->windowed ? p->window_right : -1;
  if (w->window_left > farthest) w->window_left = farthest;
  if (w->window_right > farthest) w->window_right = farthest;
  if (p->causal) w->window_right = 0;
  w->causal = p->causal;
  return GLINT_OK;
}

static glint_status check_alibi(glint_checker *c) {
  glint_work *w = c->w;
  glint_view *view = &w->alibi_slopes;
  GLINT_TRY(glint_check_tensor(c, "alibi_slopes", &c->p->alibi_slopes, GLINT_BIT(GLINT_FLOAT32), 1, 2, 0, view));
  if (!view->data) return GLINT_OK;
  GLINT_TRY(glint_check_axis(c, "alibi_slopes", view, view->rank - 1, w->heads_q, "q.shape[2] (heads_q)"));
  if (view->rank == 2) return glint_check_axis(c, "alibi_slopes", view, 0, w->batch, "batch");
  *view = (glint_view){view->data, {w->batch, w->heads_q, 0, 0}, {0, 1, 0, 0}, view->dtype, 2};
  return GLINT_OK;
}

/* Packed sequences index the bias by positions inside the sequence, up to the bound that the caller stated. */
static glint_status check_bias(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  unsigned dtypes = GLINT_BIT(GLINT_FLOAT32) | GLINT_BIT(w->q.dtype);
  GLINT_TRY(glint_check_tensor(c, "bias", &p->bias, dtypes, 4, 4, 0, &w->bias));
  if (!w->bias.data) return GLINT_OK;
  int64_t rows = w->cu_seqlens_q.data && p->max_seqlen_q ? p->max_seqlen_q : w->seqlen_q;
  int64_t keys = w->cu_seqlens_k.data && p->max_seqlen_k ? p->max_seqlen_k : w->seqlen_k;
  const char *what_rows = w->cu_seqlens_q.data ? "1 or max_seqlen_q" : "1 or seqlen_q";
  if (w->bias.shape[0] != 1) GLINT_TRY(glint_check_axis(c, "bias", &w->bias, 0, w->batch, "1 or batch"));
  if (w->bias.shape[1] != 1) GLINT_TRY(glint_check_axis(c, "bias", &w->bias, 1, w->heads_q, "1 or q.shape[2] (heads_q)"));
  if (w->bias.shape[2] != 1) GLINT_TRY(glint_check_axis(c, "bias", &w->bias, 2, rows, what_rows));
  GLINT_TRY(glint_check_axis(c, "bias", &w->bias, 3, keys, w->cu_seqlens_k.data ? "max_seqlen_k" : "seqlen_k"));
  for (int a = 0; a < 3; a++)
    if (w->bias.shape[a] == 1) w->bias.stride[a] = 0;
  return GLINT_OK;
}

static glint_status check_dropout(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  if (!(p->dropout_p >= 0 && p->dropout_p < 1))
    return glint_refuse(c, "dropout_p is %g: expected at least 0 and less than 1", (double)p->dropout_p);
  double threshold = round(65536.0 * (double)p->dropout_p);
  w->drop_threshold = threshold > 65535 ? 65535u : (uint32_t)threshold;
  w->keep_scale = (float)(1.0 / (1.0 - (double)w->drop_threshold / 65536.0));
  w->dropout_seed = p->dropout_seed, w->dropout_offset = p->dropout_offset;
  if (w->drop_threshold && (w->batch * w->heads_q > UINT32_MAX || w->seqlen_q > UINT32_MAX || w->seqlen_k / 8 > UINT32_MAX))
    return glint_refuse(c, "dropout_p is %g: expected 0, since batch * heads_q, seqlen_q or seqlen_k / 8 exceeds 32 bits",
                        (double)p->dropout_p);
  return GLINT_OK;
}

glint_status glint_check_scores(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  if (p->flags & ~KNOWN_FLAGS) return glint_refuse(c, "flags is 0x%" PRIx32 ": expected only bits of 0x%x", p->flags, KNOWN_FLAGS);
  w->flags = p->flags;
  GLINT_TRY(check_positive(c, "scale", p->scale));
  GLINT_TRY(check_positive(c, "softcap", p->softcap));
  w->scale = p->scale > 0 ? p->scale : (float)(1.0 / sqrt((double)w->head_dim));
  w->softcap = p->softcap;
  GLINT_TRY(check_window(c));
  GLINT_TRY(check_alibi(c));
  GLINT_TRY(glint_check_tensor(c, "sinks", &p->sinks, GLINT_BIT(GLINT_FLOAT32), 1, 1, 0, &w->sinks));
  if (w->sinks.data) GLINT_TRY(glint_check_axis(c, "sinks", &w->sinks, 0, w->heads_q, "q.shape[2] (heads_q)"));
  GLINT_TRY(check_bias(c));
  if (p->num_splits < 0) return glint_refuse(c, "num_splits is %" PRId32 ": expected 0 or more", p->num_splits);
  w->num_splits = p->num_splits;
  return check_dropout(c);
}
