/* Checks of the backward pass. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static glint_status check_like(glint_checker *c, const char *name, const glint_tensor *t, unsigned dtypes, unsigned role,
                               const glint_view *like, const char *like_name, glint_view *view) {
  GLINT_TRY(glint_check_tensor(c, name, t, dtypes, like->rank, like->rank, role, view));
  if (!view->rank) return GLINT_OK;
  for (int a = 0; a < like->rank; a++) {
    char what[32];
    snprintf(what, sizeof what, "%s.shape[%d]", like_name, a);
    GLINT_TRY(glint_check_axis(c, name, view, a, like->shape[a], what));
  }
  return GLINT_OK;
}

/* Fresh contiguous view for a plan without gradients. Its pointer only says that the tensor is wanted. */
static glint_view assumed(const glint_view *like, glint_dtype dtype) {
  glint_view view = *like;
  int64_t stride = 1;
  view.dtype = dtype;
  for (int a = view.rank - 1; a >= 0; a--) view.stride[a] = stride, stride *= view.shape[a] ? view.shape[a] : 1;
  return view;
}

glint_status glint_check_gradients(glint_checker *c) {
  const glint_gradients *g = c->g;
  glint_work *w = c->w;
  if (w->k_new.rank || w->page_table.data) {
    snprintf(c->text, c->size, "%s is given: the backward pass of a KV cache is not supported", w->k_new.rank ? "k_new" : "page_table");
    return GLINT_ERROR_UNSUPPORTED;
  }
  if (!g) {
    w->d_o = w->o;
    w->dq = assumed(&w->q, w->q.dtype), w->dk = assumed(&w->k, w->q.dtype), w->dv = assumed(&w->v, w->q.dtype);
    return GLINT_OK;
  }
  if (g->accumulate != 0 && g->accumulate != 1)
    return glint_refuse(c, "gradients.accumulate is %" PRId32 ": expected 0 or 1", g->accumulate);
  w->accumulate = g->accumulate;
  unsigned dtypes = GLINT_OUTPUT_DTYPES | GLINT_BIT(w->q.dtype);
  GLINT_TRY(check_like(c, "gradients.d_o", &g->d_o, GLINT_BIT(w->o.dtype), GLINT_REQUIRED, &w->o, "o", &w->d_o));
  GLINT_TRY(check_like(c, "gradients.d_lse", &g->d_lse, GLINT_BIT(w->lse.dtype), 0, &w->lse, "lse", &w->d_lse));
  GLINT_TRY(check_like(c, "gradients.dq", &g->dq, dtypes, GLINT_OUTPUT, &w->q, "q", &w->dq));
  GLINT_TRY(check_like(c, "gradients.dk", &g->dk, dtypes, GLINT_OUTPUT, &w->k, "k", &w->dk));
  GLINT_TRY(check_like(c, "gradients.dv", &g->dv, dtypes, GLINT_OUTPUT, &w->v, "v", &w->dv));
  if (g->dsinks.data && !w->sinks.data) return glint_refuse(c, "gradients.dsinks is given without sinks: expected both");
  if (g->dbias.data && !w->bias.data) return glint_refuse(c, "gradients.dbias is given without bias: expected both");
  if (g->dsinks.data)
    GLINT_TRY(check_like(c, "gradients.dsinks", &g->dsinks, GLINT_OUTPUT_DTYPES, GLINT_OUTPUT, &w->sinks, "sinks", &w->dsinks));
  if (!g->dbias.data) return GLINT_OK;
  GLINT_TRY(check_like(c, "gradients.dbias", &g->dbias, GLINT_OUTPUT_DTYPES, GLINT_OUTPUT, &w->bias, "bias", &w->dbias));
  for (int a = 0; a < 3; a++)
    if (w->dbias.shape[a] == 1) w->dbias.stride[a] = 0;
  return GLINT_OK;
}
