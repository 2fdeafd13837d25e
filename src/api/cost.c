/* Work and traffic of a problem, for plans and rooflines. */
#include "work.h"

/* Keys that the rows of one sequence see, summed. */
static double visible_pairs(const glint_work *w, const glint_sequence *s) {
  double pairs = 0;
  if (w->window_left < 0 && w->window_right < 0) return (double)s->used_q * (double)s->len_k;
  for (int64_t i = 0; i < s->used_q; i++) {
    int64_t first, end;
    glint_visible_keys(w, s, i, &first, &end);
    if (end > first) pairs += (double)(end - first);
  }
  return pairs;
}

/* Where lengths cannot be read: every sequence as long as it can be, packed rows counted once. */
static glint_sequence longest(const glint_work *w) {
  int64_t rows = w->cu_seqlens_q.data && w->batch ? (w->total_q + w->batch - 1) / w->batch : w->seqlen_q;
  int64_t keys = w->cu_seqlens_k.data && w->batch ? (w->total_k + w->batch - 1) / w->batch : w->seqlen_k;
  return (glint_sequence){0, rows, rows, 0, keys, 0, 0};
}

void glint_work_cost(const glint_work *w, int host, double *flops, double *bytes) {
  double pairs = 0, rows = 0, keys = 0;
  glint_sequence s = longest(w);
  if (!host)
    pairs = (double)w->batch * visible_pairs(w, &s), rows = (double)w->batch * (double)s.len_q, keys = (double)w->batch * (double)s.len_k;
  for (int64_t b = 0; host && b < w->batch; b++) {
    s = glint_sequence_of(w, b);
    pairs += visible_pairs(w, &s), rows += (double)s.used_q, keys += (double)s.len_k;
  }
  double d = (double)w->head_dim, dv = (double)w->head_dim_v, hq = (double)w->heads_q, hk = (double)w->heads_kv;
  double input = (double)glint_dtype_size(w->q.dtype), output = (double)glint_dtype_size(w->o.dtype);
  double read = input * (rows * hq * d + keys * hk * (d + dv)), result = output * rows * hq * dv;
  int backward = w->pass == GLINT_PASS_BACKWARD;
  *flops = 2 * pairs * hq * (backward ? 3 * d + 2 * dv : d + dv);
  *bytes = backward ? 2 * read + 2 * result + 4 * rows * hq : read + result + (w->lse.data ? 4 * rows * hq : 0);
}
