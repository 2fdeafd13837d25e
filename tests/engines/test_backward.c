/* B: backward and tails. */
#include "harness.h"

#include <math.h>
#include <string.h>

static void judge_both(engine *e, const glint_problem *p, const glint_gradients *g) {
  judge(e, p, NULL);
  judge(e, p, g);
}

/* The size that was reported where the engine is a GPU's, a smaller one with the same cause elsewhere. */
static int64_t sized(const engine *e, int64_t reported, int64_t smaller) { return e->kind == GLINT_ENGINE_CUDA ? reported : smaller; }

/* Very negative lse, keys that do not fill a tile: exp(0 - lse) of padding would overflow. */
static void b1(engine *e) {
  static const int lengths[][2] = {{64, 64}, {192, 192}, {300, 300}, {1, 128}, {100, 37}, {704, 704}};
  for (int n = 0; n < 6; n++)
    for (int t = 0; t < FLOAT_DTYPES; t++) {
      if (lengths[n][0] > 300 && (!e->best || float_dtypes[t] != GLINT_BFLOAT16)) continue; /* slow */
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, lengths[n][0], lengths[n][1], 2, 2, 64, 64}, 0.02);
      glint_gradients g = make_gradients(e, &p);
      for (int64_t i = 0; i < lengths[n][0]; i++)
        for (int64_t c = 0; c < 64; c++) set_value(&p.q, 0, i, 1, c, 4);
      for (int64_t j = 0; j < lengths[n][1]; j++)
        for (int64_t c = 0; c < 64; c++) set_value(&p.k, 0, j, 1, c, -4 + 0.125 * (double)(j % 3)); /* scores near -128 */
      judge_both(e, &p, &g);
      p.causal = 1;
      judge_both(e, &p, &g);
    }
}

/* One row and one key: dQ = dK = 0, dV = dO. */
static void b2(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 1, 1, 1, 1, 16, 16}, 3);
    glint_gradients g = make_gradients(e, &p);
    fill_value(&g.d_o, 1);
    judge_both(e, &p, &g);
    if (!run_forward(e, &p) || !run_backward(e, &p, &g)) return;
    for (int64_t c = 0; c < 16; c++) {
      assert_true(fabs(value_at(&g.dq, 0, 0, 0, c)) < 1e-5 && fabs(value_at(&g.dk, 0, 0, 0, c)) < 1e-5);
      /* exactly dO in 16 bits; in float32 up to the rounding of lse, a number near 100 here */
      assert_true(fabs(value_at(&g.dv, 0, 0, 0, c) - 1) <= (float_dtypes[t] == GLINT_FLOAT32 ? 2e-5 : 0));
    }
  }
}

static void packed(engine *e, glint_problem *p, const int32_t *cu_q, const int32_t *cu_k, int64_t batch) {
  p->cu_seqlens_q = make_int32(e, cu_q, batch + 1), p->cu_seqlens_k = make_int32(e, cu_k, batch + 1);
}

/* Many rows on one key each. */
static void b3(engine *e) {
  static const int32_t cu_q[] = {0, 76, 110, 256}, cu_k[] = {0, 1, 2, 3};
  glint_problem p = make_problem(e, GLINT_FLOAT16, (sizes){1, 256, 3, 1, 1, 32, 32}, 3);
  glint_gradients g = make_gradients(e, &p);
  packed(e, &p, cu_q, cu_k, 3);
  p.causal = 1;
  judge_both(e, &p, &g);
  if (!run_forward(e, &p) || !run_backward(e, &p, &g)) return;
  for (int64_t n = 0; n < 256; n++)
    for (int64_t c = 0; c < 32; c++) {
      double got = value_at(&g.dq, 0, n, 0, c);
      if (n == 75 || n == 109 || n == 255)
        assert_true(fabs(got) < 1e-4);
      else
        assert_true(got == 0); /* sees no key */
    }
}

/* Empty sequences on either side; empty problems. */
static void b4(engine *e) {
  static const int32_t cu_q[] = {0, 0, 120, 204, 204}, cu_k[] = {0, 253, 428, 512, 819};
  const int64_t d = sized(e, 256, 128);
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 204, 819, 4, 1, d, d}, 1);
  glint_gradients g = make_gradients(e, &p);
  packed(e, &p, cu_q, cu_k, 4);
  judge_both(e, &p, &g);
  p.causal = 1;
  judge_both(e, &p, &g);
  if (run_forward(e, &p) && run_backward(e, &p, &g))
    for (int64_t j = 0; j < 253; j++)
      for (int64_t c = 0; c < d; c++) assert_true(value_at(&g.dk, 0, j, 0, c) == 0 && value_at(&g.dv, 0, j, 0, c) == 0);
  static const sizes none[] = {{2, 5, 0, 2, 1, 64, 64}, {2, 0, 5, 2, 1, 64, 64}, {0, 5, 5, 2, 1, 64, 64}, {2, 0, 0, 2, 1, 64, 64}};
  for (int n = 0; n < 4; n++) {
    glint_problem empty = make_problem(e, GLINT_FLOAT32, none[n], 1);
    glint_gradients zero = make_gradients(e, &empty);
    judge_both(e, &empty, &zero);
    if (!run_forward(e, &empty) || !run_backward(e, &empty, &zero)) continue;
    for (size_t at = 0; at < bytes_of(&zero.dk) / 4; at++)
      assert_true(((float *)zero.dk.data)[at] == 0 && ((float *)zero.dv.data)[at] == 0);
    for (size_t at = 0; at < bytes_of(&zero.dq) / 4; at++) assert_true(((float *)zero.dq.data)[at] == 0);
  }
}

/* Causal with unequal lengths and grouped heads. */
static void b5(engine *e) {
  static const int lengths[][2] = {{40, 113}, {113, 40}, {64, 65}, {65, 64}, {1, 90}};
  for (int n = 0; n < 5; n++)
    for (int t = 0; t < FLOAT_DTYPES; t++) {
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){2, lengths[n][0], lengths[n][1], 6, 2, 64, 64}, 1);
      glint_gradients g = make_gradients(e, &p);
      p.causal = 1;
      judge_both(e, &p, &g);
    }
}

/* Large values, odd lengths. */
static void b6(engine *e) {
  const int64_t length = sized(e, 1024, 260), heads = sized(e, 8, 2);
  glint_problem p = make_problem(e, GLINT_FLOAT16, (sizes){1, length, length, 1, 1, 128, 128}, 3),
                other = make_problem(e, GLINT_BFLOAT16, (sizes){1, 238, 238, heads, heads, 64, 64}, 1);
  glint_gradients g = make_gradients(e, &p), g_other = make_gradients(e, &other);
  p.causal = other.causal = 1;
  judge_both(e, &p, &g);
  judge_both(e, &other, &g_other);
}

/* Far more rows than keys, many times: a buffer must not be written again while it is read. */
static void b7(engine *e) {
  const int64_t d = sized(e, 128, 64);
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){sized(e, 30, 6), sized(e, 1024, 300), 128, 1, 1, d, d}, 1);
  glint_gradients g = make_gradients(e, &p), again = make_gradients(e, &p);
  again.d_o = g.d_o;
  judge_both(e, &p, &g);
  if (!run_forward(e, &p) || !run_backward(e, &p, &g)) return;
  for (int n = 0; n < 50 && (e->kind == GLINT_ENGINE_CPU || e->kind == GLINT_ENGINE_CUDA); n++) {
    assert_true(run_backward(e, &p, &again));
    assert_same(&g.dk, &again.dk);
    assert_same(&g.dv, &again.dv);
  }
}

/* Many short packed sequences, the caller's workspace full of NaN (the judge fills it). */
static void b8(engine *e) {
  int32_t cu_q[41], cu_k[41];
  for (int b = 0, q = 0, k = 0; b < 41; b++) {
    cu_q[b] = q, cu_k[b] = k;
    q += 1 + b * 7 % 5, k += b * 11 % 13;
  }
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, cu_q[40], cu_k[40], 2, 1, 64, 64}, 1);
  glint_gradients g = make_gradients(e, &p);
  packed(e, &p, cu_q, cu_k, 40);
  p.workspace_bytes = 1, p.causal = 1;
  judge_both(e, &p, &g);
}

/* dO with other strides than O, and one dO row for all. */
static void b9(engine *e) {
  glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){2, 33, 47, 3, 3, 64, 64}, 1);
  glint_gradients g = make_gradients(e, &p), other = make_gradients(e, &p);
  other.d_o = make_tensor(e, GLINT_FLOAT32, 2, 3, 33, 80, 0);
  other.d_o.shape[1] = 33, other.d_o.shape[2] = 3, other.d_o.shape[3] = 64;
  other.d_o.stride[0] = 3 * 33 * 80, other.d_o.stride[1] = 80, other.d_o.stride[2] = 33 * 80, other.d_o.stride[3] = 1;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t i = 0; i < 33; i++)
      for (int64_t h = 0; h < 3; h++)
        for (int64_t c = 0; c < 64; c++) set_value(&other.d_o, b, i, h, c, value_at(&g.d_o, b, i, h, c));
  judge(e, &p, &g);
  judge(e, &p, &other);
  if (run_forward(e, &p) && run_backward(e, &p, &g) && run_backward(e, &p, &other)) {
    for (size_t n = 0; n < bytes_of(&g.dq) / 4; n++)
      assert_true(fabs((double)((float *)g.dq.data)[n] - (double)((float *)other.dq.data)[n]) < 1e-5);
    assert_same(&g.dv, &other.dv);
  }
  other.d_o.stride[0] = other.d_o.stride[1] = other.d_o.stride[2] = 0;
  judge(e, &p, &other);
}

/* GLINT_DETERMINISTIC: the same bits in every run. Large on a GPU, so that its blocks meet in another order each time. */
static void b_same_bits(engine *e) {
  const int gpu = e->kind == GLINT_ENGINE_CUDA, runs = gpu ? 100 : 3;
  const int64_t most = e->max_work, rows = gpu ? 1500 : 90;
  static const struct {
    int64_t d;
    int causal;
  } kinds[] = {{128, 0}, {128, 1}, {64, 0}, {256, 1}};
  for (int n = 0; n < 4 && e->best && e->kind != GLINT_ENGINE_ORACLE; n++) {
    glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){2, rows, rows, 4, 2, kinds[n].d, kinds[n].d}, 1);
    glint_gradients g = make_gradients(e, &p), again = make_gradients(e, &p);
    p.causal = kinds[n].causal, p.flags = GLINT_DETERMINISTIC;
    again.d_o = g.d_o;
    if (gpu) e->max_work = INT64_MAX; /* no oracle here */
    int done = run_forward(e, &p) && run_backward(e, &p, &g);
    for (int run = 1; run < runs && done; run++) {
      assert_true(run_backward(e, &p, &again));
      assert_same(&g.dq, &again.dq);
      assert_same(&g.dk, &again.dk);
      assert_same(&g.dv, &again.dv);
    }
    e->max_work = most;
  }
}

int main(void) {
  static const engine_case cases[] = {{"B1", b1}, {"B2", b2}, {"B3", b3}, {"B4", b4}, {"B5", b5},
                                      {"B6", b6}, {"B7", b7}, {"B8", b8}, {"B9", b9}, {"same bits", b_same_bits}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
