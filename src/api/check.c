/* glint_check: the entry, the sizes of the structs, and the main tensors, from which every size of the problem follows. */
#include "check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* No future struct is this large: a greater struct_size is garbage, and its tail must not be read. */
#define LARGEST_STRUCT 65536

glint_status glint_refuse(glint_checker *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(c->text, c->size, format, args);
  va_end(args);
  return GLINT_ERROR_INVALID_ARGUMENT;
}

glint_status glint_check_struct(glint_checker *c, const char *name, const void *given, size_t size, size_t known) {
  if (size < known || size > LARGEST_STRUCT)
    return glint_refuse(c, "%s.struct_size is %zu: expected sizeof(glint_%s) = %zu", name, size, name, known);
  const unsigned char *bytes = given;
  for (size_t i = known; i < size; i++)
    if (bytes[i])
      return glint_refuse(c, "%s.struct_size is %zu: byte %zu of the part unknown to this version (%zu bytes) is set, expected 0", name,
                          size, i, known);
  return GLINT_OK;
}

static glint_status check_qkv(glint_checker *c) {
  const glint_problem *p = c->p;
  glint_work *w = c->w;
  unsigned any = GLINT_BIT(GLINT_FLOAT32) | GLINT_HALF_DTYPES | GLINT_FP8_DTYPES;
  /* k and v are written too when new keys are appended */
  unsigned cache = GLINT_REQUIRED | (p->k_new.data ? (unsigned)GLINT_OUTPUT : 0u);
  GLINT_TRY(glint_check_tensor(c, "q", &p->q, any, 4, 4, GLINT_REQUIRED, &w->q));
  GLINT_TRY(glint_check_tensor(c, "k", &p->k, GLINT_BIT(w->q.dtype), 4, 4, cache, &w->k));
  GLINT_TRY(glint_check_tensor(c, "v", &p->v, GLINT_BIT(w->q.dtype), 4, 4, cache, &w->v));
  w->heads_q = w->q.shape[2], w->heads_kv = w->k.shape[2], w->head_dim = w->q.shape[3], w->head_dim_v = w->v.shape[3];
  if (w->heads_q < 1) return glint_refuse(c, "q.shape[2] (heads_q) is %" PRId64 ": expected 1 or more", w->heads_q);
  if (w->heads_kv < 1 || w->heads_q % w->heads_kv)
    return glint_refuse(c, "k.shape[2] (heads_kv) is %" PRId64 ": expected a divisor of q.shape[2] (heads_q) = %" PRId64, w->heads_kv,
                        w->heads_q);
  if (w->head_dim < 1 || w->head_dim > 512) return glint_refuse(c, "q.shape[3] (head_dim) is %" PRId64 ": expected 1 to 512", w->head_dim);
  if (w->head_dim_v < 1 || w->head_dim_v > 512)
    return glint_refuse(c, "v.shape[3] (head_dim_v) is %" PRId64 ": expected 1 to 512", w->head_dim_v);
  GLINT_TRY(glint_check_axis(c, "k", &w->k, 3, w->head_dim, "q.shape[3] (head_dim)"));
  GLINT_TRY(glint_check_axis(c, "v", &w->v, 2, w->heads_kv, "k.shape[2] (heads_kv)"));
  GLINT_TRY(glint_check_axis(c, "v", &w->v, 0, w->k.shape[0], "k.shape[0]"));
  return glint_check_axis(c, "v", &w->v, 1, w->k.shape[1], "k.shape[1]");
}

int64_t glint_packed_length(int64_t max_seqlen, int64_t total) { return max_seqlen && max_seqlen < total ? max_seqlen : total; }

glint_status glint_check_cu(glint_checker *c, const char *name, const glint_tensor *t, const char *packed, const glint_view *rows,
                            glint_view *view) {
  GLINT_TRY(glint_check_tensor(c, name, t, GLINT_BIT(GLINT_INT32), 1, 1, 0, view));
  if (!view->data) return GLINT_OK;
  if (view->shape[0] < 1) return glint_refuse(c, "%s.shape[0] is 0: expected batch + 1", name);
  if (rows->shape[0] == 1) return GLINT_OK;
  return glint_refuse(c, "%s.shape[0] is %" PRId64 ": expected 1, since %s packs the sequences", packed, rows->shape[0], name);
}

static glint_status check_q_rows(glint_checker *c) {
  glint_work *w = c->w;
  if (c->p->max_seqlen_q < 0) return glint_refuse(c, "max_seqlen_q is %" PRId64 ": expected 0 or more", c->p->max_seqlen_q);
  if (c->p->max_seqlen_k < 0) return glint_refuse(c, "max_seqlen_k is %" PRId64 ": expected 0 or more", c->p->max_seqlen_k);
  GLINT_TRY(glint_check_cu(c, "cu_seqlens_q", &c->p->cu_seqlens_q, "q", &w->q, &w->cu_seqlens_q));
  w->total_q = w->q.shape[0] * w->q.shape[1];
  w->batch = w->cu_seqlens_q.data ? w->cu_seqlens_q.shape[0] - 1 : w->q.shape[0];
  w->seqlen_q = w->cu_seqlens_q.data ? glint_packed_length(c->p->max_seqlen_q, w->total_q) : w->q.shape[1];
  return GLINT_OK;
}

static glint_status check_pages(glint_checker *c) {
  glint_work *w = c->w;
  if (w->cu_seqlens_k.data) return glint_refuse(c, "page_table is given together with cu_seqlens_k: expected one of them");
  if (w->k.shape[1] < 1) return glint_refuse(c, "k.shape[1] (page_size) is 0: expected 1 or more");
  if (c->p->page_size && c->p->page_size != w->k.shape[1])
    return glint_refuse(c, "page_size is %" PRId64 ": expected 0 or k.shape[1] = %" PRId64, c->p->page_size, w->k.shape[1]);
  w->page_size = w->k.shape[1];
  GLINT_TRY(glint_check_axis(c, "page_table", &w->page_table, 0, w->batch, "batch"));
  if (!glint_multiply(w->page_table.shape[1], w->page_size, &w->seqlen_k))
    return glint_refuse(c, "page_table.shape[1] is %" PRId64 ": times page_size %" PRId64 " it must fit 63 bits", w->page_table.shape[1],
                        w->page_size);
  return GLINT_OK;
}

static glint_status check_k_rows(glint_checker *c) {
  glint_work *w = c->w;
  GLINT_TRY(glint_check_cu(c, "cu_seqlens_k", &c->p->cu_seqlens_k, "k", &w->k, &w->cu_seqlens_k));
  GLINT_TRY(glint_check_tensor(c, "page_table", &c->p->page_table, GLINT_BIT(GLINT_INT32), 2, 2, 0, &w->page_table));
  if (w->page_table.data) {
    GLINT_TRY(check_pages(c));
  } else if (c->p->page_size) {
    return glint_refuse(c, "page_size is %" PRId64 ": expected 0 without page_table", c->p->page_size);
  } else if (w->cu_seqlens_k.data) {
    GLINT_TRY(glint_check_axis(c, "cu_seqlens_k", &w->cu_seqlens_k, 0, w->batch + 1, "batch + 1"));
    w->seqlen_k = glint_packed_length(c->p->max_seqlen_k, w->k.shape[1]);
  } else {
    GLINT_TRY(glint_check_axis(c, "k", &w->k, 0, w->batch, "batch"));
    w->seqlen_k = w->k.shape[1];
  }
  w->total_k = w->k.shape[1];
  if (!w->cu_seqlens_k.data && !glint_multiply(w->batch, w->seqlen_k, &w->total_k))
    return glint_refuse(c, "page_table.shape is [%" PRId64 ", %" PRId64 "]: batch * max_pages * page_size must fit 63 bits",
                        w->page_table.shape[0], w->page_table.shape[1]);
  return GLINT_OK;
}

/* Engines index work items by batch * heads * row; in packed and paged problems no tensor bounds that product. */
static glint_status check_products(glint_checker *c) {
  const glint_work *w = c->w;
  int64_t product;
  if (!glint_multiply(w->batch, w->heads_q, &product) || !glint_multiply(product, w->seqlen_q ? w->seqlen_q : 1, &product) ||
      !glint_multiply(product, w->head_dim > w->head_dim_v ? w->head_dim : w->head_dim_v, &product))
    return glint_refuse(c, "batch %" PRId64 " * heads_q %" PRId64 " * seqlen_q %" PRId64 " * head_dim must fit 63 bits", w->batch,
                        w->heads_q, w->seqlen_q);
  if (!glint_multiply(w->batch, w->heads_kv, &product) || !glint_multiply(product, w->seqlen_k ? w->seqlen_k : 1, &product) ||
      !glint_multiply(product, w->head_dim > w->head_dim_v ? w->head_dim : w->head_dim_v, &product))
    return glint_refuse(c, "batch %" PRId64 " * heads_kv %" PRId64 " * seqlen_k %" PRId64 " * head_dim must fit 63 bits", w->batch,
                        w->heads_kv, w->seqlen_k);
  return GLINT_OK;
}

static glint_status check_outputs(glint_checker *c) {
  glint_work *w = c->w;
  int backward = w->pass == GLINT_PASS_BACKWARD;
  unsigned fp8 = GLINT_BIT(w->q.dtype) & GLINT_FP8_DTYPES;
  unsigned dtypes = GLINT_OUTPUT_DTYPES | (fp8 ? GLINT_HALF_DTYPES : GLINT_BIT(w->q.dtype));
  unsigned role = backward ? 0u : (unsigned)GLINT_OUTPUT;
  GLINT_TRY(glint_check_tensor(c, "o", &c->p->o, dtypes, 4, 4, GLINT_REQUIRED | role, &w->o));
  GLINT_TRY(glint_check_axis(c, "o", &w->o, 0, w->q.shape[0], "q.shape[0]"));
  GLINT_TRY(glint_check_axis(c, "o", &w->o, 1, w->q.shape[1], "q.shape[1]"));
  GLINT_TRY(glint_check_axis(c, "o", &w->o, 2, w->heads_q, "q.shape[2] (heads_q)"));
  GLINT_TRY(glint_check_axis(c, "o", &w->o, 3, w->head_dim_v, "v.shape[3] (head_dim_v)"));
  unsigned needed = backward ? (unsigned)GLINT_REQUIRED : 0u;
  GLINT_TRY(glint_check_tensor(c, "lse", &c->p->lse, GLINT_OUTPUT_DTYPES, 3, 3, role | needed, &w->lse));
  if (!w->lse.rank) return GLINT_OK;
  GLINT_TRY(glint_check_axis(c, "lse", &w->lse, 0, w->q.shape[0], "q.shape[0]"));
  GLINT_TRY(glint_check_axis(c, "lse", &w->lse, 1, w->heads_q, "q.shape[2] (heads_q)"));
  return glint_check_axis(c, "lse", &w->lse, 2, w->q.shape[1], "q.shape[1]");
}

glint_status glint_check_main(glint_checker *c) {
  GLINT_TRY(check_qkv(c));
  GLINT_TRY(check_q_rows(c));
  GLINT_TRY(check_k_rows(c));
  GLINT_TRY(check_products(c));
  return check_outputs(c);
}

static glint_status check_all(glint_checker *c) {
  GLINT_TRY(glint_check_main(c));
  GLINT_TRY(glint_check_cache(c));
  GLINT_TRY(glint_check_lengths(c));
  GLINT_TRY(glint_check_positions(c));
  GLINT_TRY(glint_check_scores(c));
  GLINT_TRY(glint_check_descale(c));
  c->w->stream = c->p->stream, c->w->workspace = c->p->workspace, c->w->workspace_bytes = c->p->workspace_bytes;
  return c->w->pass == GLINT_PASS_BACKWARD ? glint_check_gradients(c) : GLINT_OK;
}

glint_status glint_check(const glint_problem *problem, const glint_gradients *gradients, glint_pass pass, int host, glint_work *work,
                         char *error, size_t size) {
  glint_checker c = {NULL, NULL, work, host, error, size};
  glint_problem p;
  glint_gradients g;
  if (!problem) return glint_refuse(&c, "problem is NULL: expected a pointer");
  if (pass != GLINT_PASS_FORWARD && pass != GLINT_PASS_BACKWARD)
    return glint_refuse(&c, "pass is %d: expected GLINT_PASS_FORWARD or GLINT_PASS_BACKWARD", (int)pass);
  GLINT_TRY(glint_check_struct(&c, "problem", problem, problem->struct_size, sizeof p));
  memcpy(&p, problem, sizeof p);
  c.p = &p;
  if (gradients && pass == GLINT_PASS_BACKWARD) {
    GLINT_TRY(glint_check_struct(&c, "gradients", gradients, gradients->struct_size, sizeof g));
    memcpy(&g, gradients, sizeof g);
    c.g = &g;
  }
  memset(work, 0, sizeof *work);
  work->pass = pass;
  return check_all(&c);
}
