/* V: packed lengths. W: windows. */
#include "harness.h"

#include "convert.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static glint_problem packed(engine *e, glint_dtype dtype, const int32_t *cu_q, const int32_t *cu_k, int64_t batch, int64_t hq, int64_t hk,
                            int64_t d) {
  glint_problem p = make_problem(e, dtype, (sizes){1, cu_q[batch], cu_k[batch], hq, hk, d, d}, 1);
  p.cu_seqlens_q = make_int32(e, cu_q, batch + 1), p.cu_seqlens_k = make_int32(e, cu_k, batch + 1);
  return p;
}

static void v1(engine *e) {
  static const int32_t cu_q[] = {0, 1, 1, 2}, cu_k[] = {0, 3, 3, 8};
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = packed(e, float_dtypes[t], cu_q, cu_k, 3, 9, 3, 64);
    glint_gradients g = make_gradients(e, &p);
    p.causal = 1;
    judge(e, &p, NULL);
    judge(e, &p, &g);
  }
}

static void v2(engine *e) {
  static const int32_t cu[] = {0, 0, 0, 0, 1};
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = packed(e, float_dtypes[t], cu, cu, 4, 21, 7, 120);
    glint_gradients g = make_gradients(e, &p);
    judge(e, &p, NULL);
    judge(e, &p, &g);
  }
}

/* cu_seqlens ends before the tensor and starts behind its first row: the rest is untouched. */
static void v3(engine *e) {
  static const int32_t cu_q[] = {3, 20, 45}, cu_k[] = {1, 70, 100};
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 60, 130, 4, 2, 64, 64}, 1);
  glint_gradients g = make_gradients(e, &p);
  p.cu_seqlens_q = make_int32(e, cu_q, 3), p.cu_seqlens_k = make_int32(e, cu_k, 3);
  judge(e, &p, NULL); /* fails on any row that was touched */
  judge(e, &p, &g);
  if (!run_forward(e, &p)) return;
  for (int64_t n = 0; n < 60; n++)
    for (int64_t h = 0; h < 4; h++)
      for (int64_t c = 0; c < 64; c++) assert_int_equal(isnan(value_at(&p.o, 0, n, h, c)) != 0, n < 3 || n >= 45);
}

static void v4(engine *e) {
  static const int32_t cu_q[] = {0, 17, 30}, cu_k[] = {0, 40, 111};
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    const double room = float_dtypes[t] == GLINT_FLOAT32 ? 1e-5 : 1e-2;
    glint_problem p = packed(e, float_dtypes[t], cu_q, cu_k, 2, 4, 2, 64), larger = p;
    p.causal = larger.causal = 1;
    p.max_seqlen_q = 17, p.max_seqlen_k = 71, larger.max_seqlen_q = 4096, larger.max_seqlen_k = 100000;
    larger.o = make_tensor(e, float_dtypes[t], 1, 30, 4, 64, 0);
    judge(e, &larger, NULL);
    if (!run_forward(e, &p) || !run_forward(e, &larger)) return;
    for (int64_t i = 0; i < 30; i++)
      for (int64_t h = 0; h < 4; h++)
        for (int64_t c = 0; c < 64; c++) assert_true(fabs(value_at(&p.o, 0, i, h, c) - value_at(&larger.o, 0, i, h, c)) < room);
  }
}

static void v5(engine *e) {
  static const int32_t wrong[][3] = {{0, 9, 8}, {-1, 4, 8}, {0, 4, 9}};
  static const int32_t right[] = {0, 4, 8};
  if (e->memory) return; /* lengths that lie on a device are not checked */
  for (int n = 0; n < 3; n++)
    for (int side = 0; side < 2; side++) {
      glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){1, 8, 8, 2, 2, 64, 64}, 1);
      p.cu_seqlens_q = make_int32(e, side ? right : wrong[n], 3), p.cu_seqlens_k = make_int32(e, side ? wrong[n] : right, 3);
      assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
      assert_non_null(strstr(glint_last_error(e->context), side ? "cu_seqlens_k" : "cu_seqlens_q"));
    }
}

/* Four ways to say the same mask. The long sequence only where that is fast. */
static void w1(engine *e) {
  const int64_t s = e->kind == GLINT_ENGINE_CUDA ? 16384 : e->kind == GLINT_ENGINE_CPU ? 4096 : 100;
  static const int spare = 16; /* head_dim */
  engine unlimited = *e;
  unlimited.max_work = (int64_t)1 << 40;
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    const glint_dtype dtype = float_dtypes[t];
    const double room = dtype == GLINT_FLOAT32 ? 1e-5 : 2e-2;
    if (t && e->kind == GLINT_ENGINE_CPU) return; /* its masks are those of float32 */
    glint_problem p = make_problem(e, dtype, (sizes){1, s, s, 1, 1, spare, spare}, 1);
    glint_tensor first = p.o;
    for (int way = 0; way < 4; way++) {
      p.causal = way == 0, p.windowed = way > 0;
      p.window_left = way == 0 ? 0 : way == 1 ? -1 : way == 2 ? s : s - 1, p.window_right = 0;
      p.o = way ? make_tensor(e, dtype, 1, s, 1, spare, 0) : first;
      if (s <= 100) judge(e, &p, NULL);
      if (!run_forward(&unlimited, &p)) return;
      for (int64_t n = 0; n < s * spare; n++) {
        const double a = glint_load(first.data, dtype, n), b = glint_load(p.o.data, dtype, n);
        if (!(fabs(a - b) < room)) fail_msg("element %" PRId64 " is %g when the mask is said in way %d: expected %g", n, b, way, a);
      }
    }
  }
}

/* Window (W - 1, 0): exactly W keys. With q = 0 and V counting keys, o is their mean. */
static void w2(engine *e) {
  static const int windows[] = {1, 2, 16, 63, 64, 65, 100};
  for (int n = 0; n < 7 * FLOAT_DTYPES; n++) {
    const glint_dtype dtype = float_dtypes[n / 7];
    const int window = windows[n % 7];
    glint_problem p = make_problem(e, dtype, (sizes){1, 150, 150, 1, 1, 64, 64}, 1);
    fill_value(&p.q, 0);
    for (int64_t j = 0; j < 150; j++)
      for (int64_t c = 0; c < 64; c++) set_value(&p.v, 0, j, 0, c, (double)j);
    p.windowed = 1, p.window_left = window - 1, p.window_right = 0;
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) return;
    for (int64_t i = 0; i < 150; i++) {
      const double first = i - window + 1 > 0 ? (double)(i - window + 1) : 0, mean = (first + (double)i) / 2;
      assert_true(fabs(value_at(&p.o, 0, i, 0, 3) - mean) <= (dtype == GLINT_FLOAT32 ? 1e-3 : 1e-3 + mean / 100));
    }
  }
}

static void w3(engine *e) {
  glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){1, 8, 8, 1, 1, 64, 64}, 1);
  p.windowed = 1, p.window_left = -2;
  assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
  p.window_left = 0, p.window_right = -1000;
  assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
}

/* One key, a window of one: only the last row sees it. */
static void w4(engine *e) {
  static const int dims[] = {1, 64};
  for (int n = 0; n < 2 * FLOAT_DTYPES; n++) {
    const int d = dims[n % 2];
    glint_problem p = make_problem(e, float_dtypes[n / 2], (sizes){1, 17, 1, 13, 1, d, d}, 1);
    glint_gradients g = make_gradients(e, &p);
    p.windowed = 1;
    judge(e, &p, NULL);
    judge(e, &p, &g);
    if (!run_forward(e, &p)) continue;
    for (int64_t i = 0; i < 17; i++) assert_true(value_at(&p.o, 0, i, 12, 0) == (i == 16 ? value_at(&p.v, 0, 0, 0, 0) : 0));
  }
}

int main(void) {
  static const engine_case cases[] = {{"V1", v1}, {"V2", v2}, {"V3", v3}, {"V4", v4}, {"V5", v5},
                                      {"W1", w1}, {"W2", w2}, {"W3", w3}, {"W4", w4}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
