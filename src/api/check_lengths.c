/* Checks of the index arrays: their shapes always, their values where the host may read them. */
#include "check.h"

#include <inttypes.h>

static glint_status check_cu_values(glint_checker *c, const char *name, const glint_view *cu, int64_t total) {
  const int32_t *value = cu->data;
  if (value[0] < 0) return glint_refuse(c, "%s[0] is %" PRId32 ": expected 0 or more", name, value[0]);
  for (int64_t b = 1; b < cu->shape[0]; b++)
    if (value[b] < value[b - 1])
      return glint_refuse(c, "%s[%" PRId64 "] is %" PRId32 ": expected at least %s[%" PRId64 "] = %" PRId32, name, b, value[b], name, b - 1,
                          value[b - 1]);
  int64_t last = cu->shape[0] - 1;
  if (value[last] > total)
    return glint_refuse(c, "%s[%" PRId64 "] is %" PRId32 ": expected at most %" PRId64 ", the rows that are packed", name, last,
                        value[last], total);
  return GLINT_OK;
}

/* Each value of seqused between 0 and what the sequence can hold, the new keys included. */
static glint_status check_used(glint_checker *c, const char *name, const glint_view *used, const glint_view *cu, int64_t capacity,
                               int64_t added) {
  const int32_t *value = used->data, *row = cu->data;
  for (int64_t b = 0; b < c->w->batch; b++) {
    int64_t room = row ? (int64_t)row[b + 1] - row[b] : capacity;
    if (value[b] < 0) return glint_refuse(c, "%s[%" PRId64 "] is %" PRId32 ": expected 0 or more", name, b, value[b]);
    if (value[b] + added > room)
      return glint_refuse(c, "%s[%" PRId64 "] is %" PRId32 " with %" PRId64 " new keys: expected at most %" PRId64 " together", name, b,
                          value[b], added, room);
  }
  return GLINT_OK;
}

static glint_status check_bounds(glint_checker *c) {
  const glint_problem *p = c->p;
  const glint_work *w = c->w;
  /* without index arrays all sequences are alike, and a batch without rows may be too large to count through */
  int alike = !w->cu_seqlens_q.data && !w->cu_seqlens_k.data && !w->seqused_k.data;
  for (int64_t b = 0; b < w->batch && (b == 0 || !alike); b++) {
    glint_sequence s = glint_sequence_of(w, b);
    if (p->max_seqlen_q && s.len_q > p->max_seqlen_q)
      return glint_refuse(c, "max_seqlen_q is %" PRId64 ": expected at least %" PRId64 ", the length of sequence %" PRId64, p->max_seqlen_q,
                          s.len_q, b);
    if (p->max_seqlen_k && s.len_k > p->max_seqlen_k)
      return glint_refuse(c, "max_seqlen_k is %" PRId64 ": expected at least %" PRId64 ", the keys of sequence %" PRId64, p->max_seqlen_k,
                          s.len_k, b);
  }
  return GLINT_OK;
}

static glint_status check_page_values(glint_checker *c) {
  const glint_work *w = c->w;
  if (w->page_table.shape[1] == 0) return GLINT_OK;
  for (int64_t b = 0; b < w->batch; b++) {
    int64_t pages = (glint_sequence_of(w, b).len_k + w->page_size - 1) / w->page_size;
    const int32_t *entry = (const int32_t *)w->page_table.data + b * w->page_table.stride[0];
    for (int64_t n = 0; n < pages; n++)
      if (entry[n] < 0 || entry[n] >= w->k.shape[0])
        return glint_refuse(c, "page_table[%" PRId64 "][%" PRId64 "] is %" PRId32 ": expected 0 to %" PRId64 " (k.shape[0] - 1)", b, n,
                            entry[n], w->k.shape[0] - 1);
  }
  return GLINT_OK;
}

static glint_status check_length_values(glint_checker *c) {
  const glint_work *w = c->w;
  if (w->cu_seqlens_q.data) GLINT_TRY(check_cu_values(c, "cu_seqlens_q", &w->cu_seqlens_q, w->q.shape[1]));
  if (w->cu_seqlens_k.data) GLINT_TRY(check_cu_values(c, "cu_seqlens_k", &w->cu_seqlens_k, w->k.shape[1]));
  if (w->seqused_q.data) GLINT_TRY(check_used(c, "seqused_q", &w->seqused_q, &w->cu_seqlens_q, w->seqlen_q, 0));
  const char *name = c->p->cache_seqlens.data ? "cache_seqlens" : "seqused_k";
  if (w->seqused_k.data) GLINT_TRY(check_used(c, name, &w->seqused_k, &w->cu_seqlens_k, w->seqlen_k, w->seqlen_new));
  GLINT_TRY(check_bounds(c));
  return w->page_table.data ? check_page_values(c) : GLINT_OK;
}

glint_status glint_check_lengths(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  if (p->seqused_k.data && p->cache_seqlens.data)
    return glint_refuse(c, "seqused_k is given together with cache_seqlens: expected one of them");
  const char *name = p->cache_seqlens.data ? "cache_seqlens" : "seqused_k";
  const glint_tensor *used = p->cache_seqlens.data ? &p->cache_seqlens : &p->seqused_k;
  GLINT_TRY(glint_check_tensor(c, "seqused_q", &p->seqused_q, GLINT_BIT(GLINT_INT32), 1, 1, 0, &w->seqused_q));
  GLINT_TRY(glint_check_tensor(c, name, used, GLINT_BIT(GLINT_INT32), 1, 1, 0, &w->seqused_k));
  if (w->seqused_q.data) GLINT_TRY(glint_check_axis(c, "seqused_q", &w->seqused_q, 0, w->batch, "batch"));
  if (w->seqused_k.data) GLINT_TRY(glint_check_axis(c, name, &w->seqused_k, 0, w->batch, "batch"));
  return c->host ? check_length_values(c) : GLINT_OK;
}
