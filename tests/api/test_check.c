/* Every refusal of glint_check, one by one: its status, the field, the value and the expectation in its text, and that nothing is written. */
#include "glint.h"
#include "work.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, SQ = 4, SK = 6, HQ = 4, HK = 2, D = 8, PAGES = 8, PAGE = 4, NEW = 2, ROOM = 4096 };

/* A valid problem with room behind every tensor. */
typedef struct fixture {
  glint_problem p;
  glint_gradients g;
  glint_pass pass;
  _Alignas(16) float q[ROOM], k[ROOM], v[ROOM], o[ROOM], lse[ROOM], extra[ROOM], more[ROOM], d_o[ROOM], dq[ROOM], dk[ROOM], dv[ROOM],
      dsinks[ROOM], dbias[ROOM];
  int32_t cu_q[B + 1], cu_k[B + 1], used_q[B], used_k[B], pages[B * PAGES];
} fixture;

static glint_context *context;

static glint_tensor tensor(void *data, glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (glint_tensor){data, {a, b, c, d}, {0}, dtype, rank};
}

static void reset(fixture *f) {
  memset(f, 0, sizeof *f);
  memset(f->o, 0x5A, sizeof f->o), memset(f->lse, 0x5A, sizeof f->lse);
  memset(f->dq, 0x5A, sizeof f->dq), memset(f->dk, 0x5A, sizeof f->dk), memset(f->dv, 0x5A, sizeof f->dv);
  memset(f->dsinks, 0x5A, sizeof f->dsinks), memset(f->dbias, 0x5A, sizeof f->dbias);
  for (int n = 0; n < ROOM; n++) f->extra[n] = f->more[n] = 1;
  f->p.struct_size = sizeof f->p;
  f->p.q = tensor(f->q, GLINT_FLOAT32, 4, B, SQ, HQ, D), f->p.k = tensor(f->k, GLINT_FLOAT32, 4, B, SK, HK, D);
  f->p.v = tensor(f->v, GLINT_FLOAT32, 4, B, SK, HK, D), f->p.o = tensor(f->o, GLINT_FLOAT32, 4, B, SQ, HQ, D);
  f->p.lse = tensor(f->lse, GLINT_FLOAT32, 3, B, HQ, SQ, 0);
  f->g.struct_size = sizeof f->g;
  f->g.d_o = tensor(f->d_o, GLINT_FLOAT32, 4, B, SQ, HQ, D), f->g.dq = tensor(f->dq, GLINT_FLOAT32, 4, B, SQ, HQ, D);
  f->g.dk = tensor(f->dk, GLINT_FLOAT32, 4, B, SK, HK, D), f->g.dv = tensor(f->dv, GLINT_FLOAT32, 4, B, SK, HK, D);
}

/* q as [1, B * SQ, ...] with cu_seqlens_q; k and v likewise. */
static void pack(fixture *f) {
  reset(f);
  f->p.q.shape[0] = f->p.o.shape[0] = f->p.k.shape[0] = f->p.v.shape[0] = f->p.lse.shape[0] = 1;
  f->p.q.shape[1] = f->p.o.shape[1] = f->p.lse.shape[2] = B * SQ, f->p.k.shape[1] = f->p.v.shape[1] = B * SK;
  for (int b = 0; b <= B; b++) f->cu_q[b] = b * SQ, f->cu_k[b] = b * SK;
  f->p.cu_seqlens_q = tensor(f->cu_q, GLINT_INT32, 1, B + 1, 0, 0, 0), f->p.cu_seqlens_k = tensor(f->cu_k, GLINT_INT32, 1, B + 1, 0, 0, 0);
}

/* A paged cache with room for PAGES / B pages a sequence. */
static void page(fixture *f) {
  reset(f);
  f->p.k = tensor(f->k, GLINT_FLOAT32, 4, PAGES, PAGE, HK, D), f->p.v = tensor(f->v, GLINT_FLOAT32, 4, PAGES, PAGE, HK, D);
  for (int n = 0; n < PAGES; n++) f->pages[n] = n;
  f->p.page_table = tensor(f->pages, GLINT_INT32, 2, B, PAGES / B, 0, 0);
  f->used_k[0] = 5, f->used_k[1] = 0;
}

/* New keys for the cache, with rotary embedding. */
static void append(fixture *f) {
  page(f);
  f->p.cache_seqlens = tensor(f->used_k, GLINT_INT32, 1, B, 0, 0, 0);
  f->p.k_new = tensor(f->extra, GLINT_FLOAT32, 4, B, NEW, HK, D), f->p.v_new = tensor(f->more, GLINT_FLOAT32, 4, B, NEW, HK, D);
  f->p.rotary_cos = tensor(f->extra + 512, GLINT_FLOAT32, 2, 16, D / 2, 0, 0);
  f->p.rotary_sin = tensor(f->extra + 1024, GLINT_FLOAT32, 2, 16, D / 2, 0, 0);
}

static void fp8(fixture *f) {
  reset(f);
  f->p.q.dtype = f->p.k.dtype = f->p.v.dtype = GLINT_FLOAT8_E4M3;
  f->p.descale_q = tensor(f->extra, GLINT_FLOAT32, 1, 1, 0, 0, 0), f->p.descale_k = tensor(f->extra, GLINT_FLOAT32, 2, B, HK, 0, 0);
  f->p.descale_v = tensor(f->extra, GLINT_FLOAT32, 3, B, HK, 3, 0);
}

static void backward(fixture *f) {
  reset(f);
  f->pass = GLINT_PASS_BACKWARD;
}

static glint_status call(fixture *f) {
  return f->pass == GLINT_PASS_BACKWARD ? glint_backward(context, &f->p, &f->g) : glint_forward(context, &f->p);
}

/* The whole fixture must be as before: no refused call writes anything. */
static void refused(fixture *f, glint_status expected, const char *text, int line) {
  fixture *before = malloc(sizeof *before);
  assert_non_null(before);
  memcpy(before, f, sizeof *f);
  glint_status status = call(f);
  if (status != expected || !strstr(glint_last_error(context), text))
    fail_msg("line %d: status %d, text \"%s\"; expected status %d, \"%s\"", line, (int)status, glint_last_error(context), (int)expected,
             text);
  assert_memory_equal(before, f, sizeof *f);
  glint_plan_info plan = {.struct_size = sizeof plan};
  if (!strstr(text, "overlap"))
    assert_int_equal(glint_plan(context, f->pass, &f->p, f->pass == GLINT_PASS_BACKWARD ? &f->g : NULL, &plan), expected);
  free(before);
}

static fixture *f; /* of the running test */

#define REFUSED(make, change, text)                                                                                                        \
  do {                                                                                                                                     \
    make(f);                                                                                                                               \
    assert_int_equal(call(f), GLINT_OK);                                                                                                   \
    make(f);                                                                                                                               \
    change;                                                                                                                                \
    refused(f, GLINT_ERROR_INVALID_ARGUMENT, text, __LINE__);                                                                              \
  } while (0)

#define ACCEPTED(make, change)                                                                                                             \
  do {                                                                                                                                     \
    make(f);                                                                                                                               \
    change;                                                                                                                                \
    glint_status accepted_status = call(f);                                                                                                \
    if (accepted_status) fail_msg("line %d: %s", __LINE__, glint_last_error(context));                                                     \
  } while (0)

static void test_structs(void **state) {
  (void)state;
  struct {
    glint_problem p;
    char tail[16];
  } future;
  reset(f);
  assert_int_equal(glint_forward(context, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(context), "problem is NULL: expected a pointer");
  assert_int_equal(glint_forward(NULL, &f->p), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(NULL), "context is NULL: expected one from glint_open");
  REFUSED(reset, f->p.struct_size = 0, "problem.struct_size is 0: expected sizeof(glint_problem) = ");
  REFUSED(reset, f->p.struct_size--, "expected sizeof(glint_problem) = ");
  REFUSED(reset, f->p.struct_size = SIZE_MAX, "expected sizeof(glint_problem) = ");
  reset(f);
  memset(&future, 0, sizeof future);
  future.p = f->p;
  future.p.struct_size = sizeof future;
  assert_int_equal(glint_forward(context, &future.p), GLINT_OK); /* a newer caller that uses nothing new */
  future.tail[15] = 1;
  assert_int_equal(glint_forward(context, &future.p), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(glint_last_error(context), "of the part unknown to this version"));
  REFUSED(backward, f->g.struct_size = 3, "gradients.struct_size is 3: expected sizeof(glint_gradients) = ");
  backward(f);
  assert_int_equal(glint_backward(context, &f->p, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(context), "gradients is NULL: expected a pointer");
}

static void test_dtype_and_rank(void **state) {
  (void)state;
  REFUSED(reset, f->p.q.dtype = GLINT_INT32, "q.dtype is 6 (int32): expected float32 or bfloat16 or float16 or float8_e4m3 or float8_e5m2");
  REFUSED(reset, f->p.q.dtype = GLINT_FLOAT64, "q.dtype is 7 (float64): expected float32");
  REFUSED(reset, f->p.q.dtype = GLINT_DTYPE_NONE, "q.dtype is 0 (none): expected float32");
  REFUSED(reset, f->p.q.dtype = (glint_dtype)99, "q.dtype is 99 (unknown): expected float32");
  REFUSED(reset, f->p.q.dtype = (glint_dtype)-1, "q.dtype is 4294967295 (unknown): expected float32");
  REFUSED(reset, f->p.k.dtype = GLINT_FLOAT16, "k.dtype is 3 (float16): expected float32");
  REFUSED(reset, f->p.v.dtype = GLINT_BFLOAT16, "v.dtype is 2 (bfloat16): expected float32");
  REFUSED(reset, f->p.o.dtype = GLINT_BFLOAT16, "o.dtype is 2 (bfloat16): expected float32 or float64");
  REFUSED(reset, f->p.lse.dtype = GLINT_BFLOAT16, "lse.dtype is 2 (bfloat16): expected float32");
  REFUSED(reset, f->p.q.rank = 3; f->p.q.shape[3] = 0, "q.rank is 3: expected 4");
  REFUSED(reset, f->p.q.rank = 5, "q.rank is 5: expected 4");
  REFUSED(reset, f->p.q.rank = -1, "q.rank is -1: expected 4");
  REFUSED(reset, f->p.k.rank = 0, "k.rank is 0: expected 4");
  REFUSED(reset, f->p.lse.rank = 4; f->p.lse.shape[3] = 1, "lse.rank is 4: expected 3");
  REFUSED(reset, f->p.lse.shape[3] = 1, "lse.shape[3] is 1: expected 0, since lse.rank is 3");
  REFUSED(reset, f->p.lse.stride[3] = 1, "lse.stride[3] is 1: expected 0, since lse.rank is 3");
  ACCEPTED(reset, f->p.o.dtype = GLINT_FLOAT64;); /* the oracle's own */
}

static void test_shapes(void **state) {
  (void)state;
  REFUSED(reset, f->p.q.shape[1] = -1, "q.shape[1] is -1: expected 0 or more");
  REFUSED(reset, f->p.k.shape[2] = f->p.v.shape[2] = 3, "k.shape[2] (heads_kv) is 3: expected a divisor of q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.k.shape[2] = f->p.v.shape[2] = 0, "k.shape[2] (heads_kv) is 0: expected a divisor of q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.q.shape[2] = 0, "q.shape[2] (heads_q) is 0: expected 1 or more");
  REFUSED(reset, f->p.q.shape[3] = 0, "q.shape[3] (head_dim) is 0: expected 1 to 512");
  REFUSED(reset, f->p.q.shape[3] = 513, "q.shape[3] (head_dim) is 513: expected 1 to 512");
  REFUSED(reset, f->p.v.shape[3] = 0, "v.shape[3] (head_dim_v) is 0: expected 1 to 512");
  REFUSED(reset, f->p.v.shape[3] = 1000, "v.shape[3] (head_dim_v) is 1000: expected 1 to 512");
  REFUSED(reset, f->p.k.shape[3] = 4, "k.shape[3] is 4: expected q.shape[3] (head_dim) = 8");
  REFUSED(reset, f->p.k.shape[0] = f->p.v.shape[0] = 1, "k.shape[0] is 1: expected batch = 2");
  REFUSED(reset, f->p.v.shape[0] = 1, "v.shape[0] is 1: expected k.shape[0] = 2");
  REFUSED(reset, f->p.v.shape[1] = 5, "v.shape[1] is 5: expected k.shape[1] = 6");
  REFUSED(reset, f->p.v.shape[2] = 1, "v.shape[2] is 1: expected k.shape[2] (heads_kv) = 2");
  REFUSED(reset, f->p.o.shape[0] = 3, "o.shape[0] is 3: expected q.shape[0] = 2");
  REFUSED(reset, f->p.o.shape[1] = 5, "o.shape[1] is 5: expected q.shape[1] = 4");
  REFUSED(reset, f->p.o.shape[2] = 2, "o.shape[2] is 2: expected q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.o.shape[3] = 7, "o.shape[3] is 7: expected v.shape[3] (head_dim_v) = 8");
  REFUSED(reset, f->p.lse.shape[0] = 1, "lse.shape[0] is 1: expected q.shape[0] = 2");
  REFUSED(reset, f->p.lse.shape[1] = 2, "lse.shape[1] is 2: expected q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.lse.shape[2] = 3, "lse.shape[2] is 3: expected q.shape[1] = 4");
}

static void test_pointers(void **state) {
  (void)state;
  REFUSED(reset, f->p.q.data = NULL, "q.data is NULL: expected a pointer");
  REFUSED(reset, f->p.k.data = NULL, "k.data is NULL: expected a pointer");
  REFUSED(reset, f->p.v.data = NULL, "v.data is NULL: expected a pointer");
  REFUSED(reset, f->p.o.data = NULL, "o.data is NULL: expected a pointer");
  REFUSED(reset, f->p.q.data = (char *)f->q + 2, ": expected a multiple of 4 bytes, the size of one element");
  REFUSED(reset, f->p.o.data = (char *)f->o + 1, "o.data is ");
  REFUSED(reset, f->p.lse.data = (char *)f->lse + 3, "lse.data is ");
  REFUSED(reset, f->p.o.data = f->q, "expected memory that does not overlap q");
  REFUSED(reset, f->p.o.data = f->k + 1, "expected memory that does not overlap k");
  REFUSED(reset, f->p.lse.data = f->o, "expected memory that does not overlap lse");
  REFUSED(append, f->p.v.data = f->k, "expected memory that does not overlap v");
  REFUSED(backward, f->g.dk.data = f->dq, "expected memory that does not overlap gradients.dk");
  REFUSED(backward, f->g.dv.data = f->v, "expected memory that does not overlap v");
  ACCEPTED(reset, f->p.lse.data = NULL);
  ACCEPTED(reset, f->p.v.data = f->k); /* inputs may be one array */
  ACCEPTED(reset, f->p.q.data = f->q + 3; f->p.o.data = f->o + 1);
}

static void strides(glint_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  t->stride[0] = a, t->stride[1] = b, t->stride[2] = c, t->stride[3] = d;
}

static void test_strides(void **state) {
  (void)state;
  REFUSED(reset, strides(&f->p.q, SQ * HQ * D, HQ * D, -D, 1), "q.stride[2] is -8: expected 0 or more");
  REFUSED(reset, strides(&f->p.q, SQ * HQ * D * 2, HQ * D * 2, D * 2, 2), "q.stride[3] is 2: expected 1, the last axis must be contiguous");
  REFUSED(reset, strides(&f->p.k, SK * HK * D, HK * D, 1, HK), "k.stride[3] is 2: expected 1");
  REFUSED(reset, strides(&f->p.q, SQ * HQ * D, HQ * D, D, 0), "q.stride[3] is 0: expected 1");
  REFUSED(reset, strides(&f->p.o, 0, HQ * D, D, 1), "o.stride[0] is 0: expected more than ");
  REFUSED(reset, strides(&f->p.o, SQ * HQ * D, HQ * D, D - 1, 1),
          "o.stride[2] is 7: expected more than 7, elements of an output must not overlap");
  REFUSED(reset, strides(&f->p.o, SQ * HQ * D - 1, HQ * D, D, 1), "o.stride[0] is 127: expected more than 127");
  REFUSED(reset, strides(&f->p.lse, HQ * SQ, 0, 1, 0), "lse.stride[1] is 0: expected more than 0");
  REFUSED(append, strides(&f->p.k, 0, HK * D, D, 1), "k.stride[0] is 0: expected more than ");
  REFUSED(backward, strides(&f->g.dq, SQ * HQ * D, 0, D, 1), "gradients.dq.stride[1] is 0: expected more than ");
  ACCEPTED(reset, strides(&f->p.q, 0, HQ * D, D, 1));
  ACCEPTED(reset, strides(&f->p.k, SK * HK * D, HK * D, 0, 1));
  ACCEPTED(reset, strides(&f->p.o, SQ * HQ * D, D, SQ * D, 1));                           /* heads before rows */
  ACCEPTED(reset, f->p.v.shape[3] = f->p.o.shape[3] = 1; strides(&f->p.v, 12, 2, 1, 99)); /* one column: its stride says nothing */
}

static void test_overflow(void **state) {
  (void)state;
  int64_t huge = INT64_C(1) << 61;
  REFUSED(reset, f->p.q.shape[1] = huge, "its size in bytes must fit 63 bits");
  REFUSED(reset, f->p.q.shape[0] = 0; f->p.q.shape[1] = INT64_MAX, "its size in bytes must fit 63 bits");
  REFUSED(reset, strides(&f->p.q, INT64_MAX, HQ * D, D, 1),
          "q.stride[0] is 9223372036854775807: (shape - 1) * stride summed over the axes must fit 63 bits");
  REFUSED(reset, strides(&f->p.q, INT64_MAX / 2, INT64_MAX / 4, D, 1), "summed over the axes must fit 63 bits");
  REFUSED(reset, strides(&f->p.k, INT64_MAX / 3, HK * D, D, 1), ": expected to end within the address space");
  REFUSED(page, f->p.page_table.shape[1] = INT64_C(1) << 59; f->p.k.shape[1] = f->p.v.shape[1] = 32; f->p.k.shape[0] = f->p.v.shape[0] = 2;
          strides(&f->p.page_table, 0, 1, 0, 0), "page_table.shape[1] is 576460752303423488: times page_size 32 it must fit 63 bits");
  REFUSED(page, f->p.page_table.shape[1] = INT64_C(1) << 58; f->p.k.shape[1] = f->p.v.shape[1] = 16; f->p.k.shape[0] = f->p.v.shape[0] = 2;
          strides(&f->p.page_table, 0, 1, 0, 0), "batch * max_pages * page_size must fit 63 bits");
}

static void test_mask(void **state) {
  (void)state;
  REFUSED(reset, f->p.causal = 2, "causal is 2: expected 0 or 1");
  REFUSED(reset, f->p.windowed = -1, "windowed is -1: expected 0 or 1");
  REFUSED(reset, f->p.windowed = 1; f->p.window_left = -2, "window_left is -2: expected -1 (all) or more");
  REFUSED(reset, f->p.windowed = 1; f->p.window_right = -5, "window_right is -5: expected -1 (all) or more");
  REFUSED(reset, f->p.window_left = -2, "window_left is -2: expected -1 (all) or more");
  REFUSED(reset, f->p.window_left = 3, "window_left is 3: expected 0 or -1, since windowed is 0");
  REFUSED(reset, f->p.window_right = 1, "window_right is 1: expected 0 or -1, since windowed is 0");
  ACCEPTED(reset, f->p.window_left = f->p.window_right = -1);
  ACCEPTED(reset, f->p.windowed = 1; f->p.window_left = f->p.window_right = INT64_MAX);
}

static void test_scores(void **state) {
  (void)state;
  REFUSED(reset, f->p.scale = NAN, "scale is nan: expected a finite positive number, or 0");
  REFUSED(reset, f->p.scale = -1, "scale is -1: expected a finite positive number");
  REFUSED(reset, f->p.scale = INFINITY, "scale is inf: expected a finite positive number");
  REFUSED(reset, f->p.softcap = -0.5f, "softcap is -0.5: expected a finite positive number");
  REFUSED(reset, f->p.softcap = NAN, "softcap is nan: expected a finite positive number");
  REFUSED(reset, f->p.alibi_slopes = tensor(f->extra, GLINT_FLOAT32, 1, HK, 0, 0, 0),
          "alibi_slopes.shape[0] is 2: expected q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.alibi_slopes = tensor(f->extra, GLINT_FLOAT32, 2, 3, HQ, 0, 0), "alibi_slopes.shape[0] is 3: expected batch = 2");
  REFUSED(reset, f->p.alibi_slopes = tensor(f->extra, GLINT_FLOAT16, 1, HQ, 0, 0, 0),
          "alibi_slopes.dtype is 3 (float16): expected float32");
  REFUSED(reset, f->p.alibi_slopes = tensor(f->extra, GLINT_FLOAT32, 3, 1, 1, HQ, 0), "alibi_slopes.rank is 3: expected 1 to 2");
  REFUSED(reset, f->p.sinks = tensor(f->extra, GLINT_FLOAT32, 1, 3, 0, 0, 0), "sinks.shape[0] is 3: expected q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.sinks = tensor(f->extra, GLINT_INT32, 1, HQ, 0, 0, 0), "sinks.dtype is 6 (int32): expected float32");
  REFUSED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT16, 4, 1, 1, SQ, SK), "bias.dtype is 3 (float16): expected float32");
  REFUSED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 3, 1, SQ, SK), "bias.shape[0] is 3: expected 1 or batch = 2");
  REFUSED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 2, SQ, SK),
          "bias.shape[1] is 2: expected 1 or q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, 3, SK), "bias.shape[2] is 3: expected 1 or seqlen_q = 4");
  REFUSED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, SQ, 1), "bias.shape[3] is 1: expected seqlen_k = 6");
  ACCEPTED(reset, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, 1, SK));
  REFUSED(reset, f->p.num_splits = -1, "num_splits is -1: expected 0 or more");
  REFUSED(reset, f->p.flags = 8, "flags is 0x8: expected only bits of 0x7");
  REFUSED(reset, f->p.flags = GLINT_FP32_ACCUMULATE, "flags is 0x4: expected no GLINT_FP32_ACCUMULATE, since q.dtype is float32");
  REFUSED(reset, f->p.dropout_p = 1, "dropout_p is 1: expected at least 0 and less than 1");
  REFUSED(reset, f->p.dropout_p = -0.25f, "dropout_p is -0.25: expected at least 0 and less than 1");
  REFUSED(reset, f->p.dropout_p = NAN, "dropout_p is nan: expected at least 0 and less than 1");
}

static void test_packed(void **state) {
  (void)state;
  REFUSED(pack, f->cu_q[1] = 9, "cu_seqlens_q[2] is 8: expected at least cu_seqlens_q[1] = 9");
  REFUSED(pack, f->cu_q[0] = -1, "cu_seqlens_q[0] is -1: expected 0 or more");
  REFUSED(pack, f->cu_q[2] = 9, "cu_seqlens_q[2] is 9: expected at most 8, the rows that are packed");
  REFUSED(pack, f->cu_k[0] = INT32_MIN, "cu_seqlens_k[0] is -2147483648: expected 0 or more");
  REFUSED(pack, f->cu_k[2] = 5, "cu_seqlens_k[2] is 5: expected at least cu_seqlens_k[1] = 6");
  REFUSED(pack, f->cu_k[2] = 13, "cu_seqlens_k[2] is 13: expected at most 12");
  REFUSED(pack, f->p.cu_seqlens_q.dtype = (glint_dtype)8,
          "cu_seqlens_q.dtype is 8 (unknown): expected int32"); /* int64 of another library */
  REFUSED(pack, f->p.cu_seqlens_k.dtype = GLINT_FLOAT64, "cu_seqlens_k.dtype is 7 (float64): expected int32");
  REFUSED(pack, f->p.cu_seqlens_q.shape[0] = 0, "cu_seqlens_q.shape[0] is 0: expected batch + 1");
  REFUSED(pack, f->p.cu_seqlens_k.shape[0] = 2, "cu_seqlens_k.shape[0] is 2: expected batch + 1 = 3");
  REFUSED(pack, f->p.q.shape[0] = f->p.o.shape[0] = f->p.lse.shape[0] = 2,
          "q.shape[0] is 2: expected 1, since cu_seqlens_q packs the sequences");
  REFUSED(pack, f->p.k.shape[0] = f->p.v.shape[0] = 2, "k.shape[0] is 2: expected 1, since cu_seqlens_k packs the sequences");
  REFUSED(pack, f->p.max_seqlen_q = 3, "max_seqlen_q is 3: expected at least 4, the length of sequence 0");
  REFUSED(pack, f->p.max_seqlen_k = 5, "max_seqlen_k is 5: expected at least 6, the keys of sequence 0");
  REFUSED(pack, f->p.max_seqlen_q = -1, "max_seqlen_q is -1: expected 0 or more");
  REFUSED(pack, f->p.max_seqlen_k = -7, "max_seqlen_k is -7: expected 0 or more");
  REFUSED(pack, f->used_q[1] = 5;
          f->p.seqused_q = tensor(f->used_q, GLINT_INT32, 1, B, 0, 0, 0), "seqused_q[1] is 5 with 0 new keys: expected at most 4");
  REFUSED(pack, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, 1, SK), "bias.shape[3] is 6: expected max_seqlen_k = 12");
  ACCEPTED(pack, f->p.max_seqlen_q = 1000; f->p.max_seqlen_k = INT64_MAX);
  ACCEPTED(pack, f->p.max_seqlen_k = SK; f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, 1, SK));
  ACCEPTED(pack, f->cu_q[1] = 0; f->cu_k[1] = 12);
}

static void use_q(fixture *x, int32_t first, int32_t second) {
  x->used_q[0] = first, x->used_q[1] = second;
  x->p.seqused_q = tensor(x->used_q, GLINT_INT32, 1, B, 0, 0, 0);
}

static void use_k(fixture *x, int32_t first, int32_t second) {
  x->used_k[0] = first, x->used_k[1] = second;
  x->p.seqused_k = tensor(x->used_k, GLINT_INT32, 1, B, 0, 0, 0);
}

static void test_used(void **state) {
  (void)state;
  REFUSED(reset, use_q(f, 1, -1), "seqused_q[1] is -1: expected 0 or more");
  REFUSED(reset, use_q(f, 5, 0), "seqused_q[0] is 5 with 0 new keys: expected at most 4");
  REFUSED(reset, use_k(f, -3, 0), "seqused_k[0] is -3: expected 0 or more");
  REFUSED(reset, use_k(f, 0, 7), "seqused_k[1] is 7 with 0 new keys: expected at most 6");
  REFUSED(reset, use_k(f, 1, 1); f->p.seqused_k.shape[0] = 3, "seqused_k.shape[0] is 3: expected batch = 2");
  REFUSED(reset, use_q(f, 1, 1); f->p.seqused_q.shape[0] = 1, "seqused_q.shape[0] is 1: expected batch = 2");
  REFUSED(reset, use_k(f, 1, 1);
          f->p.cache_seqlens = f->p.seqused_k, "seqused_k is given together with cache_seqlens: expected one of them");
  REFUSED(reset, use_k(f, 1, 1); f->p.seqused_k.dtype = GLINT_FLOAT32, "seqused_k.dtype is 1 (float32): expected int32");
}

static void test_pages(void **state) {
  (void)state;
  REFUSED(page, f->pages[3] = 8, "page_table[0][3] is 8: expected 0 to 7 (k.shape[0] - 1)");
  REFUSED(page, f->pages[4] = -1, "page_table[1][0] is -1: expected 0 to 7");
  REFUSED(page, f->p.page_size = 5, "page_size is 5: expected 0 or k.shape[1] = 4");
  REFUSED(page, f->p.page_table.shape[0] = 1, "page_table.shape[0] is 1: expected batch = 2");
  REFUSED(page, f->p.page_table.rank = 1; f->p.page_table.shape[1] = 0, "page_table.rank is 1: expected 2");
  REFUSED(page, f->p.page_table.dtype = GLINT_FLOAT32, "page_table.dtype is 1 (float32): expected int32");
  REFUSED(page, f->p.k.shape[1] = f->p.v.shape[1] = 0, "k.shape[1] (page_size) is 0: expected 1 or more");
  REFUSED(page, use_k(f, 17, 0), "seqused_k[0] is 17 with 0 new keys: expected at most 16");
  REFUSED(reset, f->p.page_size = 16, "page_size is 16: expected 0 without page_table");
  REFUSED(page, f->p.cu_seqlens_k = tensor(f->cu_k, GLINT_INT32, 1, B + 1, 0, 0, 0);
          f->p.k.shape[0] = f->p.v.shape[0] = 1, "page_table is given together with cu_seqlens_k: expected one of them");
  ACCEPTED(page, f->pages[2] = 99; f->pages[3] = -9; f->pages[4] = 77; use_k(f, 8, 0); f->pages[4] = -1); /* unused entries are not read */
}

static void test_append(void **state) {
  (void)state;
  glint_tensor none = {0};
  REFUSED(append, f->used_k[0] = 15, "cache_seqlens[0] is 15 with 2 new keys: expected at most 16 together");
  REFUSED(append, f->used_k[1] = -1, "cache_seqlens[1] is -1: expected 0 or more");
  REFUSED(append, f->p.cache_seqlens = none, "cache_seqlens.data is NULL: expected a pointer, k_new needs it");
  REFUSED(append, f->p.v_new = none, "v_new.data is NULL: expected a pointer");
  REFUSED(append, f->p.k_new = none, "k_new.data is NULL: expected a pointer, since v_new is given");
  REFUSED(append, f->p.k_new.shape[0] = 1, "k_new.shape[0] is 1: expected batch = 2");
  REFUSED(append, f->p.k_new.shape[2] = 1, "k_new.shape[2] is 1: expected k.shape[2] (heads_kv) = 2");
  REFUSED(append, f->p.k_new.shape[3] = 4, "k_new.shape[3] is 4: expected q.shape[3] (head_dim) = 8");
  REFUSED(append, f->p.v_new.shape[1] = 1, "v_new.shape[1] is 1: expected k_new.shape[1] = 2");
  REFUSED(append, f->p.k_new.dtype = GLINT_FLOAT16, "k_new.dtype is 3 (float16): expected float32");
  REFUSED(append, f->p.k_new.shape[1] = f->p.v_new.shape[1] = 17, "k_new.shape[1] is 17: expected at most 16, the capacity of k");
  REFUSED(pack, f->p.k_new = tensor(f->extra, GLINT_FLOAT32, 4, B, 1, HK, D),
          "k_new is given together with cu_seqlens_k: expected one of them");
  REFUSED(append, f->pages[1] = 8, "page_table[0][1] is 8: expected 0 to 7"); /* holds the second of the new keys */
}

static void test_rotary(void **state) {
  (void)state;
  glint_tensor none = {0};
  REFUSED(append, f->p.rotary_sin = none, "rotary_sin.data is NULL: expected a pointer");
  REFUSED(append, f->p.rotary_cos = none, "rotary_cos.data is NULL: expected a pointer, since rotary_sin is given");
  REFUSED(append, f->p.rotary_cos.shape[1] = f->p.rotary_sin.shape[1] = 5,
          "rotary_cos.shape[1] (rotary_dim / 2) is 5: expected 1 to head_dim / 2 = 4");
  REFUSED(append, f->p.rotary_cos.shape[1] = f->p.rotary_sin.shape[1] = 0, "rotary_cos.shape[1] (rotary_dim / 2) is 0: expected 1 to");
  REFUSED(append, f->p.rotary_sin.shape[0] = 15, "rotary_sin.shape[0] is 15: expected rotary_cos.shape[0] = 16");
  REFUSED(append, f->p.rotary_sin.shape[1] = 3, "rotary_sin.shape[1] is 3: expected rotary_cos.shape[1] = 4");
  REFUSED(append, f->p.rotary_cos.dtype = GLINT_FLOAT16, "rotary_cos.dtype is 3 (float16): expected float32");
  REFUSED(append, f->p.rotary_cos.shape[0] = f->p.rotary_sin.shape[0] = 6,
          "rotary_cos.shape[0] is 6: expected at least 7, the positions of sequence 0");
  REFUSED(append, f->p.causal = 1;
          f->p.rotary_cos.shape[0] = f->p.rotary_sin.shape[0] = 8, "rotary_cos.shape[0] is 8: expected at least 9");
  REFUSED(append, f->p.rotary_interleaved = 2, "rotary_interleaved is 2: expected 0 or 1");
  REFUSED(page, f->p.rotary_cos = f->p.rotary_sin = tensor(f->extra, GLINT_FLOAT32, 2, 16, 2, 0, 0),
          "rotary_cos is given without k_new: expected both");
  ACCEPTED(append, f->p.causal = 1; f->p.rotary_cos.shape[0] = f->p.rotary_sin.shape[0] = 9);
}

static void test_descale(void **state) {
  (void)state;
  glint_tensor none = {0};
  REFUSED(reset, f->p.descale_q = tensor(f->extra, GLINT_FLOAT32, 1, 1, 0, 0, 0),
          "descale_q is given: expected none, since q.dtype is float32");
  REFUSED(fp8, f->p.descale_q = none, "descale_q.data is NULL: expected a pointer");
  REFUSED(fp8, f->p.descale_k = none, "descale_k.data is NULL: expected a pointer");
  REFUSED(fp8, f->p.descale_v = none, "descale_v.data is NULL: expected a pointer");
  REFUSED(fp8, f->p.descale_q.shape[0] = 2, "descale_q.shape[0] is 2: expected one value = 1");
  REFUSED(fp8, f->p.descale_k.shape[0] = 1, "descale_k.shape[0] is 1: expected batch = 2");
  REFUSED(fp8, f->p.descale_k.shape[1] = HQ, "descale_k.shape[1] is 4: expected k.shape[2] (heads_kv) = 2");
  REFUSED(fp8, f->p.descale_v.shape[1] = HQ, "descale_v.shape[1] is 4: expected k.shape[2] (heads_kv) = 2");
  REFUSED(fp8, f->p.descale_v.shape[2] = 0, "descale_v.shape[2] (blocks) is 0: expected 1 or more");
  REFUSED(fp8, f->p.descale_q = tensor(f->extra, GLINT_FLOAT32, 3, B, HK, 1, 0),
          "descale_q.shape[1] is 2: expected q.shape[2] (heads_q) = 4");
  REFUSED(fp8, f->p.descale_k.dtype = GLINT_FLOAT16, "descale_k.dtype is 3 (float16): expected float32");
  REFUSED(fp8, f->extra[3] = 0, "descale_k[1][1][0] is 0: expected a finite positive number");
  REFUSED(fp8, f->extra[0] = -1, "descale_q[0][0][0] is -1: expected a finite positive number");
  REFUSED(fp8, f->extra[11] = NAN, "descale_v[1][1][2] is nan: expected a finite positive number");
  REFUSED(fp8, f->p.o.dtype = GLINT_FLOAT8_E4M3, "o.dtype is 4 (float8_e4m3): expected float32 or bfloat16 or float16 or float64");
  ACCEPTED(fp8, f->p.flags = GLINT_FP32_ACCUMULATE);
}

static void test_gradients(void **state) {
  (void)state;
  glint_tensor none = {0};
  REFUSED(backward, f->p.lse = none, "lse.data is NULL: expected a pointer");
  REFUSED(backward, f->g.d_o = none, "gradients.d_o.data is NULL: expected a pointer");
  REFUSED(backward, f->g.d_o.shape[1] = 3, "gradients.d_o.shape[1] is 3: expected o.shape[1] = 4");
  REFUSED(backward, f->g.d_o.dtype = GLINT_FLOAT16, "gradients.d_o.dtype is 3 (float16): expected float32");
  REFUSED(backward, f->g.d_lse = tensor(f->extra, GLINT_FLOAT32, 3, B, HQ, 3, 0),
          "gradients.d_lse.shape[2] is 3: expected lse.shape[2] = 4");
  REFUSED(backward, f->g.dq.shape[3] = 4, "gradients.dq.shape[3] is 4: expected q.shape[3] = 8");
  REFUSED(backward, f->g.dk.shape[2] = HQ, "gradients.dk.shape[2] is 4: expected k.shape[2] = 2");
  REFUSED(backward, f->g.dv.shape[1] = 1, "gradients.dv.shape[1] is 1: expected v.shape[1] = 6");
  REFUSED(backward, f->g.dv.dtype = GLINT_BFLOAT16, "gradients.dv.dtype is 2 (bfloat16): expected float32");
  REFUSED(backward, f->g.dk.data = (char *)f->dk + 2, "gradients.dk.data is ");
  REFUSED(backward, f->g.accumulate = 2, "gradients.accumulate is 2: expected 0 or 1");
  REFUSED(backward, f->g.dsinks = tensor(f->dsinks, GLINT_FLOAT32, 1, HQ, 0, 0, 0),
          "gradients.dsinks is given without sinks: expected both");
  REFUSED(backward, f->g.dbias = tensor(f->dbias, GLINT_FLOAT32, 4, 1, 1, SQ, SK), "gradients.dbias is given without bias: expected both");
  REFUSED(backward, f->p.sinks = tensor(f->extra, GLINT_FLOAT32, 1, HQ, 0, 0, 0);
          f->g.dsinks = tensor(f->dsinks, GLINT_FLOAT32, 1, 3, 0, 0, 0), "gradients.dsinks.shape[0] is 3: expected sinks.shape[0] = 4");
  REFUSED(backward, f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, 1, SQ, SK);
          f->g.dbias = tensor(f->dbias, GLINT_FLOAT32, 4, 1, HQ, SQ, SK), "gradients.dbias.shape[1] is 4: expected bias.shape[1] = 1");
  append(f);
  f->pass = GLINT_PASS_BACKWARD;
  f->g.dk = f->g.dv = none;
  refused(f, GLINT_ERROR_UNSUPPORTED, "k_new is given: the backward pass of a KV cache is not supported", __LINE__);
  page(f);
  f->pass = GLINT_PASS_BACKWARD;
  refused(f, GLINT_ERROR_UNSUPPORTED, "page_table is given: the backward pass of a KV cache is not supported", __LINE__);
  ACCEPTED(backward, f->g.dq = f->g.dk = f->g.dv = none);
}

/* Without the right to read lengths (device pointers), wrong values pass and pointers are not followed. */
static void test_device(void **state) {
  (void)state;
  char text[256];
  glint_work work;
  append(f);
  f->p.cache_seqlens.data = f->p.page_table.data = f->p.q.data = (void *)(uintptr_t)4096;
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 0, &work, text, sizeof text), GLINT_OK);
  assert_int_equal(work.seqlen_k, PAGES / B * PAGE);
  f->p.rotary_cos.shape[0] = f->p.rotary_sin.shape[0] = 15;
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 0, &work, text, sizeof text), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(text, "rotary_cos.shape[0] is 15: expected at least 16, the capacity of k");
  pack(f);
  f->p.cu_seqlens_q.data = f->p.cu_seqlens_k.data = (void *)(uintptr_t)4096;
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 0, &work, text, sizeof text), GLINT_OK);
  assert_int_equal(glint_check(&f->p, NULL, (glint_pass)2, 0, &work, text, sizeof text), GLINT_ERROR_INVALID_ARGUMENT);
}

/* What the engines rely on. */
static void test_work(void **state) {
  (void)state;
  char text[256];
  glint_work w;
  reset(f);
  f->p.causal = f->p.windowed = 1, f->p.window_left = INT64_MAX, f->p.window_right = 7, f->p.dropout_p = 0.99999f;
  f->p.alibi_slopes = tensor(f->extra, GLINT_FLOAT32, 1, HQ, 0, 0, 0), f->p.bias = tensor(f->extra, GLINT_FLOAT32, 4, 1, HQ, 1, SK);
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 1, &w, text, sizeof text), GLINT_OK);
  assert_int_equal(w.window_left, SQ + SK);
  assert_int_equal(w.window_right, 0);
  assert_int_equal(w.drop_threshold, 65535);
  assert_true(w.keep_scale == 65536.0f);
  assert_true(w.scale == (float)(1 / sqrt(8.0)));
  assert_int_equal(w.alibi_slopes.rank, 2);
  assert_int_equal(w.alibi_slopes.stride[0], 0);
  assert_int_equal(w.bias.stride[0], 0);
  assert_int_equal(w.bias.stride[1], SK);
  assert_int_equal(w.bias.stride[2], 0);
  assert_int_equal(w.q.stride[0], SQ * HQ * D);
  pack(f);
  f->p.max_seqlen_q = 5, f->p.max_seqlen_k = 999;
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 1, &w, text, sizeof text), GLINT_OK);
  assert_int_equal(w.batch, B);
  assert_int_equal(w.seqlen_q, 5);
  assert_int_equal(w.seqlen_k, B * SK);
  fp8(f);
  f->p.descale_q = tensor(f->extra, GLINT_FLOAT32, 3, B, HQ, 2, 0);
  assert_int_equal(glint_check(&f->p, NULL, GLINT_PASS_FORWARD, 1, &w, text, sizeof text), GLINT_OK);
  assert_int_equal(w.descale_rows_q, 16); /* 4 rows in 2 blocks: 2, rounded up */
  assert_int_equal(w.descale_rows_k, 0);
}

static int open_context(void **state) {
  (void)state;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE};
  f = malloc(sizeof *f);
  return !f || glint_open(&options, &context) != GLINT_OK;
}

static int close_context(void **state) {
  (void)state;
  free(f);
  glint_close(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_structs),  cmocka_unit_test(test_dtype_and_rank), cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_pointers), cmocka_unit_test(test_strides),        cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_mask),     cmocka_unit_test(test_scores),         cmocka_unit_test(test_packed),
      cmocka_unit_test(test_used),     cmocka_unit_test(test_pages),          cmocka_unit_test(test_append),
      cmocka_unit_test(test_rotary),   cmocka_unit_test(test_descale),        cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_device),   cmocka_unit_test(test_work),
  };
  return cmocka_run_group_tests(tests, open_context, close_context);
}
