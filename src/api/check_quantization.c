/* glint_check_quantization: glint_quantization field by field. Lengths go through the checks of glint_problem. */
#include "check.h"
#include "engine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct quantize_checker {
  glint_checker c; /* w: lengths of the work; p: a problem with the lengths' fields only */
  const glint_quantization *q;
  glint_quantize_work *w;
} quantize_checker;

static const char *const in_names[] = {"q", "k", "v"}, *const out_names[] = {"q_fp8", "k_fp8", "v_fp8"},
                         *const scale_names[] = {"descale_q", "descale_k", "descale_v"};

static const glint_tensor *pick(const glint_quantization *q, int n, int what) {
  const glint_tensor *const tensors[3][3] = {
      {&q->q, &q->k, &q->v}, {&q->q_fp8, &q->k_fp8, &q->v_fp8}, {&q->descale_q, &q->descale_k, &q->descale_v}};
  return tensors[what][n];
}

static int is_present(const glint_tensor *t) { return t->data || t->rank; }

/* An absent tensor takes nothing that belongs to it. */
static glint_status refuse_orphan(glint_checker *c, const char *name, const glint_tensor *t, const char *owner) {
  return t->data ? glint_refuse(c, "%s is given: expected none, since %s absent", name, owner) : GLINT_OK;
}

static glint_status check_orphans(quantize_checker *s) {
  const glint_quantization *q = s->q;
  glint_checker *c = &s->c;
  for (int n = 0; n < 3; n++) {
    if (is_present(pick(q, n, 0))) continue;
    const char *owner[] = {"q is", "k is", "v is"};
    GLINT_TRY(refuse_orphan(c, out_names[n], pick(q, n, 1), owner[n]));
    GLINT_TRY(refuse_orphan(c, scale_names[n], pick(q, n, 2), owner[n]));
  }
  if (!is_present(&q->q)) {
    GLINT_TRY(refuse_orphan(c, "cu_seqlens_q", &q->cu_seqlens_q, "q is"));
    GLINT_TRY(refuse_orphan(c, "seqused_q", &q->seqused_q, "q is"));
    GLINT_TRY(refuse_orphan(c, "lse_shift", &q->lse_shift, "q is"));
  }
  if (!is_present(&q->k) && !is_present(&q->v)) {
    GLINT_TRY(refuse_orphan(c, "cu_seqlens_k", &q->cu_seqlens_k, "k and v are"));
    GLINT_TRY(refuse_orphan(c, "seqused_k", &q->seqused_k, "k and v are"));
  }
  if (!is_present(&q->q) && !is_present(&q->k) && !is_present(&q->v))
    return glint_refuse(c, "q, k and v are absent: expected at least one of them");
  return GLINT_OK;
}

static glint_status check_in(quantize_checker *s, int n, glint_dtype *dtype) {
  const glint_tensor *t = pick(s->q, n, 0);
  glint_quantize_tensor *to = &s->w->tensor[n];
  unsigned dtypes = *dtype ? GLINT_BIT(*dtype) : GLINT_BIT(GLINT_FLOAT32) | GLINT_HALF_DTYPES;
  if (!is_present(t)) return GLINT_OK;
  GLINT_TRY(glint_check_tensor(&s->c, in_names[n], t, dtypes, 4, 4, GLINT_REQUIRED, &to->in));
  *dtype = to->in.dtype;
  if (to->in.shape[2] < 1) return glint_refuse(&s->c, "%s.shape[2] (heads) is 0: expected 1 or more", in_names[n]);
  if (to->in.shape[3] < 1 || to->in.shape[3] > 512)
    return glint_refuse(&s->c, "%s.shape[3] (head_dim) is %" PRId64 ": expected 1 to 512", in_names[n], to->in.shape[3]);
  return GLINT_OK;
}

static glint_status check_inputs(quantize_checker *s) {
  glint_dtype dtype = GLINT_DTYPE_NONE;
  glint_checker *c = &s->c;
  glint_quantize_tensor *q = &s->w->tensor[0], *k = &s->w->tensor[1], *v = &s->w->tensor[2];
  for (int n = 0; n < 3; n++) GLINT_TRY(check_in(s, n, &dtype));
  int has_q = q->in.rank, has_k = k->in.rank, has_v = v->in.rank;
  if (has_q && has_k) GLINT_TRY(glint_check_axis(c, "k", &k->in, 3, q->in.shape[3], "q.shape[3] (head_dim)"));
  if (has_k && has_v)
    for (int a = 0; a < 3; a++) GLINT_TRY(glint_check_axis(c, "v", &v->in, a, k->in.shape[a], "k's"));
  glint_work *w = &s->w->lengths;
  const glint_view *keys = has_k ? &k->in : &v->in;
  w->heads_q = has_q ? q->in.shape[2] : keys->shape[2];
  w->heads_kv = has_k || has_v ? keys->shape[2] : w->heads_q;
  w->head_dim = has_q ? q->in.shape[3] : keys->shape[3];
  w->head_dim_v = has_v ? v->in.shape[3] : w->head_dim;
  w->q = q->in, w->k = *keys;
  if (w->heads_q % w->heads_kv)
    return glint_refuse(c, "%s.shape[2] (heads_kv) is %" PRId64 ": expected a divisor of q.shape[2] (heads_q) = %" PRId64,
                        has_k ? "k" : "v", w->heads_kv, w->heads_q);
  return GLINT_OK;
}

static glint_status check_batches(quantize_checker *s) {
  glint_checker *c = &s->c;
  glint_work *w = &s->w->lengths;
  const glint_problem *p = c->p;
  int has_q = w->q.rank, has_k = w->k.rank;
  if (p->max_seqlen_q < 0) return glint_refuse(c, "max_seqlen_q is %" PRId64 ": expected 0 or more", p->max_seqlen_q);
  if (p->max_seqlen_k < 0) return glint_refuse(c, "max_seqlen_k is %" PRId64 ": expected 0 or more", p->max_seqlen_k);
  GLINT_TRY(glint_check_cu(c, "cu_seqlens_q", &p->cu_seqlens_q, "q", &w->q, &w->cu_seqlens_q));
  GLINT_TRY(glint_check_cu(c, "cu_seqlens_k", &p->cu_seqlens_k, s->q->k.rank ? "k" : "v", &w->k, &w->cu_seqlens_k));
  int64_t batch_q = w->cu_seqlens_q.data ? w->cu_seqlens_q.shape[0] - 1 : w->q.shape[0];
  int64_t batch_k = w->cu_seqlens_k.data ? w->cu_seqlens_k.shape[0] - 1 : w->k.shape[0];
  if (has_q && has_k && batch_q != batch_k)
    return glint_refuse(c, "batch of k and v is %" PRId64 ": expected that of q = %" PRId64, batch_k, batch_q);
  w->batch = has_q ? batch_q : batch_k;
  w->total_q = w->q.shape[0] * w->q.shape[1], w->total_k = w->k.shape[0] * w->k.shape[1];
  w->seqlen_q = w->cu_seqlens_q.data ? glint_packed_length(p->max_seqlen_q, w->total_q) : w->q.shape[1];
  w->seqlen_k = w->cu_seqlens_k.data ? glint_packed_length(p->max_seqlen_k, w->total_k) : w->k.shape[1];
  int64_t heads, product, longest = w->seqlen_q > w->seqlen_k ? w->seqlen_q : w->seqlen_k;
  if (!glint_multiply(w->batch, w->heads_q, &heads) || !glint_multiply(heads, longest + 16, &product) ||
      !glint_multiply(product, 512, &product))
    return glint_refuse(c, "batch %" PRId64 " * heads %" PRId64 " * seqlen %" PRId64 " * head_dim must fit 63 bits", w->batch, w->heads_q,
                        longest);
  return GLINT_OK;
}

static glint_status check_out(quantize_checker *s, int n, glint_dtype *dtype) {
  glint_quantize_tensor *t = &s->w->tensor[n];
  unsigned dtypes = *dtype ? GLINT_BIT(*dtype) : GLINT_FP8_DTYPES;
  if (!t->in.rank) return GLINT_OK;
  GLINT_TRY(glint_check_tensor(&s->c, out_names[n], pick(s->q, n, 1), dtypes, 4, 4, GLINT_REQUIRED | GLINT_OUTPUT, &t->out));
  *dtype = t->out.dtype;
  const char *const axes[3][4] = {{"q.shape[0]", "q.shape[1]", "q.shape[2]", "q.shape[3]"},
                                  {"k.shape[0]", "k.shape[1]", "k.shape[2]", "k.shape[3]"},
                                  {"v.shape[0]", "v.shape[1]", "v.shape[2]", "v.shape[3]"}};
  for (int a = 0; a < 4; a++) GLINT_TRY(glint_check_axis(&s->c, out_names[n], &t->out, a, t->in.shape[a], axes[n][a]));
  return GLINT_OK;
}

static glint_status check_scale(quantize_checker *s, int n) {
  const glint_work *lengths = &s->w->lengths;
  glint_quantize_tensor *t = &s->w->tensor[n];
  glint_view *view = &t->descale;
  glint_checker *c = &s->c;
  const char *name = scale_names[n];
  unsigned role = GLINT_REQUIRED | (s->w->descale_given ? 0u : (unsigned)GLINT_OUTPUT);
  if (!t->in.rank) return GLINT_OK;
  t->of_keys = n != GLINT_QUANTIZE_Q;
  t->rotate = s->q->rotate && n != GLINT_QUANTIZE_V;
  t->seqlen = t->of_keys ? lengths->seqlen_k : lengths->seqlen_q;
  t->heads_a_scale = 1;
  GLINT_TRY(glint_check_tensor(c, name, pick(s->q, n, 2), GLINT_BIT(GLINT_FLOAT32), 1, 3, role, view));
  int64_t heads = t->in.shape[2], groups = view->shape[1];
  if (view->rank == 1) {
    GLINT_TRY(glint_check_axis(c, name, view, 0, 1, "one value"));
    *view = (glint_view){view->data, {lengths->batch, heads, 1, 0}, {0, 0, 0, 0}, view->dtype, 3};
    t->shared = 1;
    return s->c.host && s->w->descale_given ? glint_check_factors(c, name, view) : GLINT_OK;
  }
  GLINT_TRY(glint_check_axis(c, name, view, 0, lengths->batch, "batch"));
  if (view->rank == 2) {
    if (s->q->k.rank || s->q->v.rank) GLINT_TRY(glint_check_axis(c, name, view, 1, lengths->heads_kv, "heads_kv"));
    if (groups < 1 || heads % groups)
      return glint_refuse(c, "%s.shape[1] (heads_kv) is %" PRId64 ": expected a divisor of q.shape[2] (heads_q) = %" PRId64, name, groups,
                          heads);
    t->heads_a_scale = heads / groups;
    *view = (glint_view){view->data, {lengths->batch, groups, 1, 0}, {view->stride[0], view->stride[1], 0, 0}, view->dtype, 3};
  } else {
    GLINT_TRY(glint_check_axis(c, name, view, 1, heads, n == GLINT_QUANTIZE_Q ? "q.shape[2] (heads_q)" : "heads_kv"));
    if (view->shape[2] < 1) return glint_refuse(c, "%s.shape[2] (blocks) is 0: expected 1 or more", name);
    t->block_rows = view->shape[2] > 1 ? glint_rows_per_block(t->seqlen, view->shape[2]) : 0;
  }
  return s->c.host && s->w->descale_given && lengths->batch ? glint_check_factors(c, name, view) : GLINT_OK;
}

static glint_status check_smoothing(quantize_checker *s) {
  const glint_quantization *q = s->q;
  glint_quantize_work *w = s->w;
  const glint_work *lengths = &w->lengths;
  glint_checker *c = &s->c;
  if (q->smooth < 0 || q->smooth > 2) return glint_refuse(c, "smooth is %" PRId32 ": expected 0, 1 or 2", q->smooth);
  if (!q->smooth) {
    GLINT_TRY(refuse_orphan(c, "k_mean", &q->k_mean, "smooth is 0, smoothing"));
    return refuse_orphan(c, "lse_shift", &q->lse_shift, "smooth is 0, smoothing");
  }
  if (q->smooth == 1 && !q->k.rank) return glint_refuse(c, "smooth is 1: expected 0 or 2, since k is absent");
  w->smooth = q->smooth;
  unsigned role = q->smooth == 1 ? GLINT_OUTPUT : GLINT_REQUIRED;
  GLINT_TRY(glint_check_tensor(c, "k_mean", &q->k_mean, GLINT_BIT(GLINT_FLOAT32), 3, 3, role, &w->k_mean));
  if (w->k_mean.rank) {
    GLINT_TRY(glint_check_axis(c, "k_mean", &w->k_mean, 0, lengths->batch, "batch"));
    GLINT_TRY(glint_check_axis(c, "k_mean", &w->k_mean, 2, lengths->head_dim, "head_dim"));
    if (q->k.rank) GLINT_TRY(glint_check_axis(c, "k_mean", &w->k_mean, 1, lengths->heads_kv, "heads_kv"));
    if (w->k_mean.shape[1] < 1 || lengths->heads_q % w->k_mean.shape[1])
      return glint_refuse(c, "k_mean.shape[1] (heads_kv) is %" PRId64 ": expected a divisor of q.shape[2] (heads_q) = %" PRId64,
                          w->k_mean.shape[1], lengths->heads_q);
  }
  GLINT_TRY(glint_check_tensor(c, "lse_shift", &q->lse_shift, GLINT_BIT(GLINT_FLOAT32), 3, 3, GLINT_OUTPUT, &w->lse_shift));
  if (!w->lse_shift.rank) return GLINT_OK;
  GLINT_TRY(glint_check_axis(c, "lse_shift", &w->lse_shift, 0, lengths->q.shape[0], "q.shape[0]"));
  GLINT_TRY(glint_check_axis(c, "lse_shift", &w->lse_shift, 1, lengths->heads_q, "q.shape[2] (heads_q)"));
  return glint_check_axis(c, "lse_shift", &w->lse_shift, 2, lengths->q.shape[1], "q.shape[1]");
}

static glint_status check_switches(quantize_checker *s) {
  const glint_quantization *q = s->q;
  if (q->rotate < 0 || q->rotate > 1) return glint_refuse(&s->c, "rotate is %" PRId32 ": expected 0 or 1", q->rotate);
  if (q->descale_given < 0 || q->descale_given > 1)
    return glint_refuse(&s->c, "descale_given is %" PRId32 ": expected 0 or 1", q->descale_given);
  if (!(q->scale == 0 || (isfinite(q->scale) && q->scale > 0)))
    return glint_refuse(&s->c, "scale is %g: expected 0 (default), or finite and positive", (double)q->scale);
  s->w->descale_given = q->descale_given;
  s->w->rotation_seed = q->rotation_seed;
  return GLINT_OK;
}

static glint_status check_fields(quantize_checker *s) {
  glint_quantize_work *w = s->w;
  GLINT_TRY(check_orphans(s));
  GLINT_TRY(check_switches(s));
  GLINT_TRY(check_inputs(s));
  GLINT_TRY(check_batches(s));
  GLINT_TRY(glint_check_lengths(&s->c));
  for (int n = 0; n < 3; n++) GLINT_TRY(check_out(s, n, &w->dtype));
  for (int n = 0; n < 3; n++) GLINT_TRY(check_scale(s, n));
  GLINT_TRY(check_smoothing(s));
  w->scale = s->q->scale > 0 ? s->q->scale : (float)(1 / sqrt((double)w->lengths.head_dim));
  w->stream = s->q->stream, w->workspace = s->q->workspace, w->workspace_bytes = s->q->workspace_bytes;
  return GLINT_OK;
}

glint_status glint_check_quantization(const glint_quantization *given, int host, glint_quantize_work *work, char *error, size_t size) {
  glint_quantization q;
  glint_problem p = {.struct_size = sizeof p};
  quantize_checker s = {{&p, NULL, &work->lengths, host, error, size}, &q, work};
  if (!given) return glint_refuse(&s.c, "quantization is NULL: expected a pointer");
  GLINT_TRY(glint_check_struct(&s.c, "quantization", given, given->struct_size, sizeof q));
  memcpy(&q, given, sizeof q);
  memset(work, 0, sizeof *work);
  p.cu_seqlens_q = q.cu_seqlens_q, p.cu_seqlens_k = q.cu_seqlens_k, p.seqused_q = q.seqused_q, p.seqused_k = q.seqused_k;
  p.max_seqlen_q = q.max_seqlen_q, p.max_seqlen_k = q.max_seqlen_k;
  return check_fields(&s);
}

glint_status glint_check_quantize_aliasing(const glint_quantize_work *w, glint_error *error) {
  glint_named_view tensors[12] = {{"k_mean", &w->k_mean, w->smooth == 1}, {"lse_shift", &w->lse_shift, 1}};
  int count = 2;
  for (int n = 0; n < 3; n++) tensors[count++] = (glint_named_view){out_names[n], &w->tensor[n].out, 1};
  for (int n = 0; n < 3; n++) tensors[count++] = (glint_named_view){scale_names[n], &w->tensor[n].descale, !w->descale_given};
  for (int n = 0; n < 3; n++) tensors[count++] = (glint_named_view){in_names[n], &w->tensor[n].in, 0};
  return glint_check_overlap(tensors, (size_t)count, error);
}
