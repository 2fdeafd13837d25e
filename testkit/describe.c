/* A problem in one line. */
#include "internal.h"

#include "check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct line {
  char *text;
  size_t size, used;
} line;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
say(line *l, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(l->text + l->used, l->size - l->used, format, args);
  va_end(args);
  l->used += length > 0 ? (size_t)length : 0;
  if (l->used >= l->size) l->used = l->size - 1;
}

static void say_tensor(line *l, const char *name, const glint_tensor *t) {
  if (!t->data) return;
  say(l, " %s %s[", name, glint_dtype_name(t->dtype));
  for (int a = 0; a < t->rank; a++) say(l, "%s%" PRId64, a ? "," : "", t->shape[a]);
  say(l, "]");
  int given = 0;
  for (int a = 0; a < t->rank; a++) given |= t->stride[a] != 0;
  for (int a = 0; a < t->rank && given; a++) say(l, "%s%" PRId64, a ? "," : ":(", t->stride[a]);
  if (given) say(l, ")");
  if ((uintptr_t)t->data % 256) say(l, "+%zu", (size_t)((uintptr_t)t->data % 256));
}

static void say_list(line *l, const char *name, const glint_tensor *t) {
  if (!t->data) return;
  say(l, " %s=", name);
  for (int64_t n = 0; n < t->shape[0] && n < 10; n++) say(l, "%s%" PRId32, n ? "," : "", ((const int32_t *)t->data)[n]);
  if (t->shape[0] > 10) say(l, ",... (%" PRId64 ")", t->shape[0]);
}

void testkit_describe(const glint_problem *p, const glint_gradients *g, char *text, size_t size) {
  line l = {text, size, 0};
  say(&l, "%s", g ? "backward" : "forward");
  say_tensor(&l, "q", &p->q), say_tensor(&l, "k", &p->k), say_tensor(&l, "v", &p->v), say_tensor(&l, "o", &p->o);
  if (p->causal) say(&l, " causal");
  if (p->windowed) say(&l, " window %" PRId64 ",%" PRId64, p->window_left, p->window_right);
  if (p->scale > 0) say(&l, " scale %g", (double)p->scale);
  if (p->softcap > 0) say(&l, " softcap %g", (double)p->softcap);
  if (p->dropout_p > 0) say(&l, " dropout %g seed %" PRIu64 " offset %" PRIu64, (double)p->dropout_p, p->dropout_seed, p->dropout_offset);
  if (p->num_splits) say(&l, " splits %" PRId32, p->num_splits);
  if (p->flags) say(&l, " flags 0x%" PRIx32, p->flags);
  if (p->workspace_bytes) say(&l, " caller's workspace");
  say_list(&l, "cu_seqlens_q", &p->cu_seqlens_q), say_list(&l, "cu_seqlens_k", &p->cu_seqlens_k);
  if (p->max_seqlen_q || p->max_seqlen_k) say(&l, " max_seqlen %" PRId64 ",%" PRId64, p->max_seqlen_q, p->max_seqlen_k);
  say_list(&l, "seqused_q", &p->seqused_q), say_list(&l, "seqused_k", &p->seqused_k), say_list(&l, "cache_seqlens", &p->cache_seqlens);
  say_tensor(&l, "page_table", &p->page_table), say_tensor(&l, "k_new", &p->k_new), say_tensor(&l, "rotary", &p->rotary_cos);
  if (p->rotary_interleaved) say(&l, " interleaved");
  say_tensor(&l, "lse", &p->lse), say_tensor(&l, "alibi", &p->alibi_slopes), say_tensor(&l, "sinks", &p->sinks),
      say_tensor(&l, "bias", &p->bias);
  say_tensor(&l, "descale_q", &p->descale_q), say_tensor(&l, "descale_k", &p->descale_k), say_tensor(&l, "descale_v", &p->descale_v);
  if (!g) return;
  say_tensor(&l, "d_o", &g->d_o), say_tensor(&l, "d_lse", &g->d_lse), say_tensor(&l, "dq", &g->dq), say_tensor(&l, "dk", &g->dk);
  say_tensor(&l, "dv", &g->dv), say_tensor(&l, "dsinks", &g->dsinks), say_tensor(&l, "dbias", &g->dbias);
  if (g->accumulate) say(&l, " accumulate");
}
