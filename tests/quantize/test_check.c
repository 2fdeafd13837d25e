/* Every refusal of glint_quantize, one by one: its status, the field, the value and the expectation in its text, and that nothing is written. */
#include "glint.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <string.h>

enum { B = 2, SQ = 40, SK = 50, HQ = 4, HK = 2, D = 16, ROOM = 16384 };

typedef struct fixture {
  glint_quantization q;
  _Alignas(16) float in[3][ROOM], factors[3][64], mean[B * HK * D], shift[B * HQ * SQ];
  unsigned char out[3][ROOM];
  int32_t cu_q[B + 1], cu_k[B + 1], used[B];
} fixture;

static glint_context *context;
static fixture fixture_of_all, before;
static fixture *const f = &fixture_of_all;

static glint_tensor tensor(void *data, glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (glint_tensor){data, {a, b, c, d}, {0}, dtype, rank};
}

static void reset(void) {
  glint_quantization *q = &f->q;
  memset(f, 0, sizeof *f);
  memset(f->out, 0x5A, sizeof f->out);
  q->struct_size = sizeof *q;
  q->q = tensor(f->in[0], GLINT_FLOAT32, 4, B, SQ, HQ, D), q->q_fp8 = tensor(f->out[0], GLINT_FLOAT8_E4M3, 4, B, SQ, HQ, D);
  q->k = tensor(f->in[1], GLINT_FLOAT32, 4, B, SK, HK, D), q->k_fp8 = tensor(f->out[1], GLINT_FLOAT8_E4M3, 4, B, SK, HK, D);
  q->v = tensor(f->in[2], GLINT_FLOAT32, 4, B, SK, HK, D), q->v_fp8 = tensor(f->out[2], GLINT_FLOAT8_E4M3, 4, B, SK, HK, D);
  q->descale_q = tensor(f->factors[0], GLINT_FLOAT32, 3, B, HQ, 2, 0);
  q->descale_k = tensor(f->factors[1], GLINT_FLOAT32, 2, B, HK, 0, 0);
  q->descale_v = tensor(f->factors[2], GLINT_FLOAT32, 1, 1, 0, 0, 0);
  q->smooth = 1;
  q->k_mean = tensor(f->mean, GLINT_FLOAT32, 3, B, HK, D, 0), q->lse_shift = tensor(f->shift, GLINT_FLOAT32, 3, B, HQ, SQ, 0);
}

static void pack(void) {
  reset();
  glint_quantization *q = &f->q;
  q->q = tensor(f->in[0], GLINT_FLOAT32, 4, 1, B * SQ, HQ, D), q->q_fp8 = tensor(f->out[0], GLINT_FLOAT8_E4M3, 4, 1, B * SQ, HQ, D);
  q->lse_shift = tensor(f->shift, GLINT_FLOAT32, 3, 1, HQ, B * SQ, 0);
  for (int b = 0; b <= B; b++) f->cu_q[b] = b * SQ;
  q->cu_seqlens_q = tensor(f->cu_q, GLINT_INT32, 1, B + 1, 0, 0, 0);
}

static void refused_with(glint_status expected, const char *text, int line) {
  memcpy(&before, f, sizeof before);
  glint_status status = glint_quantize(context, &f->q);
  const char *told = glint_last_error(context);
  if (status != expected || !strstr(told, text)) fail_msg("line %d: status %d, '%s', expected '%s'", line, (int)status, told, text);
  if (memcmp(&before, f, sizeof before) != 0) fail_msg("line %d: something was written", line);
}

static void refused(const char *text, int line) { refused_with(GLINT_ERROR_INVALID_ARGUMENT, text, line); }

#define REFUSED(make, change, text)                                                                                                        \
  do {                                                                                                                                     \
    make();                                                                                                                                \
    if (glint_quantize(context, &f->q)) fail_msg("line %d: %s", __LINE__, glint_last_error(context));                                      \
    make();                                                                                                                                \
    change;                                                                                                                                \
    refused(text, __LINE__);                                                                                                               \
  } while (0)

#define ACCEPTED(make, change)                                                                                                             \
  do {                                                                                                                                     \
    make();                                                                                                                                \
    change;                                                                                                                                \
    if (glint_quantize(context, &f->q)) fail_msg("line %d: %s", __LINE__, glint_last_error(context));                                      \
  } while (0)

static void drop(glint_tensor *t) { *t = (glint_tensor){0}; }

static void refuses_structs(void **state) {
  (void)state;
  size_t bytes;
  reset();
  assert_int_equal(glint_quantize(context, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(context), "quantization is NULL: expected a pointer");
  assert_int_equal(glint_quantize(NULL, &f->q), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(NULL), "context is NULL: expected one from glint_open");
  assert_int_equal(glint_quantize_workspace(context, &f->q, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_quantize_workspace(context, &f->q, &bytes), GLINT_OK);
  assert_true(bytes > 0);
  REFUSED(reset, f->q.struct_size--, "quantization.struct_size is ");
  reset();
  f->q.workspace = (char *)f->in[0] + 4, f->q.workspace_bytes = bytes;
  refused_with(GLINT_ERROR_WORKSPACE, "workspace is ", __LINE__);
  f->q.workspace = (void *)(((uintptr_t)f->in[0] + 255) / 256 * 256), f->q.workspace_bytes = bytes - 1;
  refused_with(GLINT_ERROR_WORKSPACE, "workspace_bytes is ", __LINE__);
}

static void refuses_tensors(void **state) {
  (void)state;
  REFUSED(reset, f->q.q.dtype = GLINT_FLOAT8_E4M3, "q.dtype is 4 (float8_e4m3): expected float32 or bfloat16 or float16");
  REFUSED(reset, f->q.k.dtype = GLINT_FLOAT16, "k.dtype is 3 (float16): expected float32");
  REFUSED(reset, f->q.q_fp8.dtype = GLINT_FLOAT16, "q_fp8.dtype is 3 (float16): expected float8_e4m3 or float8_e5m2");
  REFUSED(reset, f->q.v_fp8.dtype = GLINT_FLOAT8_E5M2, "v_fp8.dtype is 5 (float8_e5m2): expected float8_e4m3");
  REFUSED(reset, f->q.q.rank = 3, "q.rank is 3: expected 4");
  REFUSED(reset, f->q.k.shape[3] = 8, "k.shape[3] is 8: expected q.shape[3] (head_dim) = 16");
  REFUSED(reset, f->q.v.shape[1] = SK - 1, "v.shape[1] is 49: expected k's = 50");
  REFUSED(reset, f->q.k.shape[0] = f->q.v.shape[0] = 1, "batch of k and v is 1: expected that of q = 2");
  REFUSED(reset, (f->q.q.shape[2] = 3), "k.shape[2] (heads_kv) is 2: expected a divisor of q.shape[2] (heads_q) = 3");
  REFUSED(reset, f->q.q.shape[2] = 0, "q.shape[2] (heads) is 0: expected 1 or more");
  REFUSED(reset, f->q.v.shape[3] = 513, "v.shape[3] (head_dim) is 513: expected 1 to 512");
  REFUSED(reset, f->q.k_fp8.shape[1]++, "k_fp8.shape[1] is 51: expected k.shape[1] = 50");
  REFUSED(reset, drop(&f->q.q_fp8), "q_fp8.data is NULL: expected a pointer");
  REFUSED(reset, drop(&f->q.descale_k), "descale_k.data is NULL: expected a pointer");
  REFUSED(reset, f->q.q_fp8.stride[3] = 1, "q_fp8.stride[0] is 0: expected more than 0, elements of an output must not overlap");
  REFUSED(reset, f->q.k_fp8.data = f->q.q_fp8.data, "q_fp8.data is ");
  REFUSED(reset, f->q.k_mean.data = f->q.k.data, "k_mean.data is ");
  ACCEPTED(reset, drop(&f->q.k_mean));
  ACCEPTED(reset, drop(&f->q.lse_shift));
}

static void refuses_orphans(void **state) {
  (void)state;
  REFUSED(reset, drop(&f->q.q), "q_fp8 is given: expected none, since q is absent");
  REFUSED(reset, (drop(&f->q.q), drop(&f->q.q_fp8)), "descale_q is given: expected none, since q is absent");
  REFUSED(reset, (drop(&f->q.q), drop(&f->q.q_fp8), drop(&f->q.descale_q)), "lse_shift is given: expected none, since q is absent");
  REFUSED(pack, (drop(&f->q.q), drop(&f->q.q_fp8), drop(&f->q.descale_q), drop(&f->q.lse_shift)),
          "cu_seqlens_q is given: expected none, since q is absent");
  REFUSED(reset, f->q.smooth = 0, "k_mean is given: expected none, since smooth is 0, smoothing absent");
  REFUSED(reset, (drop(&f->q.k), drop(&f->q.k_fp8), drop(&f->q.descale_k)), "smooth is 1: expected 0 or 2, since k is absent");
  reset();
  f->q = (glint_quantization){.struct_size = sizeof f->q};
  refused("q, k and v are absent: expected at least one of them", __LINE__);
  ACCEPTED(reset, (drop(&f->q.q), drop(&f->q.q_fp8), drop(&f->q.descale_q), drop(&f->q.lse_shift)));
}

static void refuses_factors(void **state) {
  (void)state;
  REFUSED(reset, f->q.descale_q.dtype = GLINT_FLOAT16, "descale_q.dtype is 3 (float16): expected float32");
  REFUSED(reset, f->q.descale_q.shape[1] = HK, "descale_q.shape[1] is 2: expected q.shape[2] (heads_q) = 4");
  REFUSED(reset, f->q.descale_q.shape[2] = 0, "descale_q.shape[2] (blocks) is 0: expected 1 or more");
  REFUSED(reset, f->q.descale_k.shape[0] = 1, "descale_k.shape[0] is 1: expected batch = 2");
  REFUSED(reset, f->q.descale_k.shape[1] = HQ, "descale_k.shape[1] is 4: expected heads_kv = 2");
  REFUSED(reset, f->q.descale_v.shape[0] = 2, "descale_v.shape[0] is 2: expected one value = 1");
  REFUSED(reset, f->q.descale_given = 2, "descale_given is 2: expected 0 or 1");
  REFUSED(reset, f->q.descale_given = 1, "descale_q[0][0][0] is 0: expected a finite positive number");
  ACCEPTED(reset, f->q.descale_q = tensor(f->factors[0], GLINT_FLOAT32, 2, B, HK, 0, 0));
}

static void refuses_switches(void **state) {
  (void)state;
  REFUSED(reset, f->q.rotate = -1, "rotate is -1: expected 0 or 1");
  REFUSED(reset, f->q.smooth = 3, "smooth is 3: expected 0, 1 or 2");
  REFUSED(reset, (f->q.smooth = 2, drop(&f->q.k_mean)), "k_mean.data is NULL: expected a pointer");
  REFUSED(reset, f->q.k_mean.shape[1] = HQ, "k_mean.shape[1] is 4: expected heads_kv = 2");
  REFUSED(reset, f->q.lse_shift.shape[2] = SK, "lse_shift.shape[2] is 50: expected q.shape[1] = 40");
  REFUSED(reset, f->q.scale = -1, "scale is -1: expected 0 (default), or finite and positive");
}

static void refuses_lengths(void **state) {
  (void)state;
  REFUSED(pack, f->cu_q[1] = -1, "cu_seqlens_q[1] is -1: expected at least cu_seqlens_q[0] = 0");
  REFUSED(pack, f->cu_q[2] = B * SQ + 1, "cu_seqlens_q[2] is 81: expected at most 80");
  REFUSED(pack, f->q.max_seqlen_q = SQ - 1, "max_seqlen_q is 39: expected at least 40, the length of sequence 0");
  REFUSED(reset, f->q.max_seqlen_k = -5, "max_seqlen_k is -5: expected 0 or more");
  REFUSED(reset, (f->used[0] = SQ + 1, f->q.seqused_q = tensor(f->used, GLINT_INT32, 1, B, 0, 0, 0)), "seqused_q[0] is 41");
  REFUSED(pack, f->q.q.shape[0] = 2, "q.shape[0] is 2: expected 1, since cu_seqlens_q packs the sequences");
}

static int open_context(void **state) {
  (void)state;
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  return glint_open(&options, &context) != GLINT_OK;
}

static int close_context(void **state) {
  (void)state;
  glint_close(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_structs),  cmocka_unit_test(refuses_tensors),
                                     cmocka_unit_test(refuses_orphans),  cmocka_unit_test(refuses_factors),
                                     cmocka_unit_test(refuses_switches), cmocka_unit_test(refuses_lengths)};
  return cmocka_run_group_tests(tests, open_context, close_context);
}
