/* What every host engine asks of a checked problem: where a sequence lies, where a key lies, which keys a row sees. */
#include "work.h"

static int64_t entry(const glint_view *view, int64_t b) { return ((const int32_t *)view->data)[b]; }

glint_sequence glint_sequence_of(const glint_work *w, int64_t b) {
  glint_sequence s = {0, w->seqlen_q, w->seqlen_q, 0, w->seqlen_k, b, b};
  if (w->cu_seqlens_q.data) {
    s.row_q = entry(&w->cu_seqlens_q, b), s.len_q = entry(&w->cu_seqlens_q, b + 1) - s.row_q;
    s.batch_q = 0;
  }
  if (w->cu_seqlens_k.data) {
    s.row_k = entry(&w->cu_seqlens_k, b), s.len_k = entry(&w->cu_seqlens_k, b + 1) - s.row_k;
    s.batch_k = 0;
  }
  s.used_q = w->seqused_q.data ? entry(&w->seqused_q, b) : s.len_q;
  if (w->seqused_k.data) s.len_k = entry(&w->seqused_k, b) + w->seqlen_new;
  return s;
}

int64_t glint_key_offset(const glint_work *w, const glint_view *view, int64_t b, const glint_sequence *s, int64_t j, int64_t head) {
  if (!w->page_size) return s->batch_k * view->stride[0] + (s->row_k + j) * view->stride[1] + head * view->stride[2];
  int64_t page = ((const int32_t *)w->page_table.data)[b * w->page_table.stride[0] + j / w->page_size];
  return page * view->stride[0] + j % w->page_size * view->stride[1] + head * view->stride[2];
}

void glint_visible_keys(const glint_work *w, const glint_sequence *s, int64_t i, int64_t *first, int64_t *end) {
  int64_t position = i + s->len_k - s->used_q;
  *first = 0, *end = s->len_k;
  if (w->window_left >= 0 && position - w->window_left > 0) *first = position - w->window_left;
  if (w->window_right >= 0 && position + w->window_right < s->len_k - 1) *end = position + w->window_right + 1;
}
