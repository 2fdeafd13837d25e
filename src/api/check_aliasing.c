/* Refuses outputs that certainly share memory with another tensor. Interleaved layouts (q, k and v in one array) have ranges that cross
 * without a shared element, so that only two things are certain: the same first element, and crossing ranges of two gapless tensors. */
#include "check.h"
#include "engine.h"

/* Elements from first to last, and whether all of them belong to the tensor. 0 elements: nothing can overlap. */
static int64_t span_of(const glint_view *v, int *gapless) {
  int64_t span = 1, count = 1;
  for (int a = 0; a < v->rank; a++) {
    if (!v->shape[a]) return 0;
    span += (v->shape[a] - 1) * v->stride[a];
    if (v->stride[a]) count *= v->shape[a];
  }
  *gapless = span == count;
  return span;
}

static int overlap(const glint_view *a, const glint_view *b) {
  int gapless_a = 0, gapless_b = 0;
  if (!a->data || !b->data) return 0;
  int64_t span_a = span_of(a, &gapless_a), span_b = span_of(b, &gapless_b);
  if (!span_a || !span_b) return 0;
  if (a->data == b->data) return 1;
  if (!gapless_a || !gapless_b) return 0;
  uintptr_t first_a = (uintptr_t)a->data, first_b = (uintptr_t)b->data;
  uintptr_t end_a = first_a + (uintptr_t)span_a * glint_dtype_size(a->dtype),
            end_b = first_b + (uintptr_t)span_b * glint_dtype_size(b->dtype);
  return first_a < end_b && first_b < end_a;
}

glint_status glint_check_overlap(const glint_named_view *tensors, size_t count, glint_error *error) {
  for (size_t a = 0; a < count; a++)
    for (size_t b = a + 1; b < count; b++)
      if ((tensors[a].written || tensors[b].written) && overlap(tensors[a].view, tensors[b].view))
        return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s.data is %p: expected memory that does not overlap %s (%p)",
                          tensors[a].name, tensors[a].view->data, tensors[b].name, tensors[b].view->data);
  return GLINT_OK;
}

glint_status glint_check_aliasing(const glint_work *w, glint_error *error) {
  int forward = w->pass == GLINT_PASS_FORWARD, append = w->seqlen_new > 0;
  const glint_named_view tensors[] = {
      {"o", &w->o, forward},
      {"lse", &w->lse, forward},
      {"gradients.dq", &w->dq, 1},
      {"gradients.dk", &w->dk, 1},
      {"gradients.dv", &w->dv, 1},
      {"gradients.dsinks", &w->dsinks, 1},
      {"gradients.dbias", &w->dbias, 1},
      {"k", &w->k, append},
      {"v", &w->v, append},
      {"q", &w->q, 0},
      {"gradients.d_o", &w->d_o, 0},
      {"gradients.d_lse", &w->d_lse, 0},
      {"bias", &w->bias, 0},
      {"sinks", &w->sinks, 0},
      {"alibi_slopes", &w->alibi_slopes, 0},
      {"k_new", &w->k_new, 0},
      {"v_new", &w->v_new, 0},
  };
  return glint_check_overlap(tensors, sizeof tensors / sizeof *tensors, error);
}
