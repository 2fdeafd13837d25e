/* P: pages. D: determinism. R: dropout. C: softcap. */
#include "harness.h"

#include <math.h>
#include <string.h>

/* K and V of p cut into pages in the order of table, one sequence. */
static glint_problem paged(engine *e, const glint_problem *p, int64_t page_size, const int32_t *table, int64_t pages) {
  glint_problem x = *p;
  int64_t hk = p->k.shape[2], d = p->k.shape[3], dv = p->v.shape[3], sk = p->k.shape[1];
  int32_t used = (int32_t)sk;
  x.k = make_tensor(e, p->k.dtype, pages, page_size, hk, d, 0), x.v = make_tensor(e, p->v.dtype, pages, page_size, hk, dv, 0);
  for (int64_t j = 0; j < sk; j++)
    for (int64_t h = 0; h < hk; h++) {
      int64_t page = table[j / page_size], row = j % page_size;
      for (int64_t c = 0; c < d; c++) set_value(&x.k, page, row, h, c, value_at(&p->k, 0, j, h, c));
      for (int64_t c = 0; c < dv; c++) set_value(&x.v, page, row, h, c, value_at(&p->v, 0, j, h, c));
    }
  x.page_table = make_int32(e, table, pages), x.seqused_k = make_int32(e, &used, 1);
  x.page_table.rank = 2, x.page_table.shape[0] = 1, x.page_table.shape[1] = (sk + page_size - 1) / page_size;
  x.o = make_tensor(e, p->o.dtype, p->o.shape[0], p->o.shape[1], p->o.shape[2], p->o.shape[3], 0);
  return x;
}

/* The same keys in order and scattered: the same bits. */
static void p1(engine *e) {
  static const int page_sizes[] = {1, 16, 128, 256};
  for (int n = 0; n < 8; n++) {
    int64_t page_size = page_sizes[n % 4], sk = n < 4 ? 150 : 9, pages = (sk + page_size - 1) / page_size + 2;
    glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 3, sk, 14, 2, 64, 64}, 1);
    int32_t ordered[256], scattered[256];
    for (int32_t m = 0; m < pages; m++) ordered[m] = m, scattered[m] = (int32_t)(((int64_t)m * 7 + 3) % pages);
    if (pages % 7 == 0) continue;
    p.causal = 1;
    glint_problem a = paged(e, &p, page_size, ordered, pages), b = paged(e, &p, page_size, scattered, pages);
    judge(e, &b, NULL);
    if (run_forward(e, &a) && run_forward(e, &b)) assert_same(&a.o, &b.o);
  }
}

/* Packed queries, pages and several splits together. */
static void p2(engine *e) {
  static const int32_t cu[] = {0, 5, 6, 18}, used[] = {200, 17, 90}, table[] = {4, 2, 9, 0, 1, 3, 8, 5, 7, 6, 11, 10};
  for (int splits = 1; splits < 20; splits = splits * 2 + 1) {
    glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 18, 64, 4, 2, 64, 64}, 1);
    p.k = make_tensor(e, GLINT_BFLOAT16, 12, 64, 2, 64, 1), p.v = make_tensor(e, GLINT_BFLOAT16, 12, 64, 2, 64, 1);
    p.cu_seqlens_q = make_int32(e, cu, 4), p.max_seqlen_q = 12, p.seqused_k = make_int32(e, used, 3),
    p.page_table = make_int32(e, table, 12);
    p.page_table.rank = 2, p.page_table.shape[0] = 3, p.page_table.shape[1] = 4;
    p.causal = 1, p.num_splits = splits;
    judge(e, &p, NULL);
  }
}

static void p3(engine *e) {
  static const int32_t cached[] = {31};
  if (e->memory) return; /* lengths that lie on a device are not checked */
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 2, 32, 2, 2, 64, 64}, 1);
  p.cache_seqlens = make_int32(e, cached, 1);
  p.k_new = make_tensor(e, GLINT_BFLOAT16, 1, 2, 2, 64, 1), p.v_new = make_tensor(e, GLINT_BFLOAT16, 1, 2, 2, 64, 1);
  assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(glint_last_error(e->context), "cache_seqlens[0] is 31 with 2 new keys: expected at most 32 together"));
}

/* Bit-equal backward with the deterministic flag. */
static void d1(engine *e) {
  for (int64_t heads_kv = 1; heads_kv <= 4; heads_kv += 3) {
    glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){2, 100, 100, 4, heads_kv, 64, 64}, 1);
    glint_gradients g = make_gradients(e, &p), again = make_gradients(e, &p);
    again.d_o = g.d_o;
    p.causal = 1, p.flags = GLINT_DETERMINISTIC;
    judge(e, &p, &g);
    if (!run_forward(e, &p) || !run_backward(e, &p, &g)) return;
    for (int n = 0; n < 20 && (e->kind == GLINT_ENGINE_CPU || e->kind == GLINT_ENGINE_CUDA); n++) {
      assert_true(run_backward(e, &p, &again));
      assert_same(&g.dq, &again.dq);
      assert_same(&g.dk, &again.dk);
      assert_same(&g.dv, &again.dv);
    }
  }
}

/* Forward gives the same bits for every number of threads, and a sequence alone gives those it has in a batch when that is asked for. */
static void d2(engine *e) {
  glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){3, 1, 400, 4, 2, 64, 64}, 1), one = p;
  p.flags = one.flags = GLINT_BATCH_INVARIANT;
  one.q.shape[0] = one.k.shape[0] = one.v.shape[0] = one.lse.shape[0] = one.o.shape[0] = 1;
  one.o = make_tensor(e, GLINT_FLOAT32, 1, 1, 4, 64, 0), one.lse = make_tensor(e, GLINT_FLOAT32, 1, 4, 1, 0, 0);
  judge(e, &p, NULL);
  if (!run_forward(e, &p) || !run_forward(e, &one)) return;
  assert_memory_equal(p.o.data, one.o.data, bytes_of(&one.o));
  if (e->kind != GLINT_ENGINE_CPU) return;
  for (int threads = 1; threads < 8; threads++) {
    glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU, .threads = threads};
    glint_problem again = p;
    glint_tensor outputs[2] = {make_tensor(e, GLINT_FLOAT32, 3, 1, 4, 64, 0), make_tensor(e, GLINT_FLOAT32, 3, 1, 4, 64, 0)};
    for (int n = 0; n < 2; n++) {
      options.threads = n ? threads : 1;
      glint_context *context;
      again.o = outputs[n];
      assert_int_equal(glint_open(&options, &context), GLINT_OK);
      assert_int_equal(glint_forward(context, &again), GLINT_OK);
      glint_close(context);
    }
    assert_same(&outputs[0], &outputs[1]);
  }
}

static void r1(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){2, 50, 75, 4, 2, 64, 64}, 1), without = p;
    glint_gradients g = make_gradients(e, &p);
    p.causal = without.causal = 1, p.dropout_p = 0.4f, p.dropout_seed = e->random, p.dropout_offset = 77;
    judge(e, &p, NULL);
    judge(e, &p, &g);
    without.o = make_tensor(e, float_dtypes[t], 2, 50, 4, 64, 0), without.lse = make_tensor(e, GLINT_FLOAT32, 2, 4, 50, 0, 0);
    if (!run_forward(e, &p) || !run_forward(e, &without)) continue;
    for (size_t n = 0; n < bytes_of(&p.lse) / 4; n++) /* dropped after the sum */
      assert_true(fabs((double)(((float *)p.lse.data)[n] - ((float *)without.lse.data)[n])) < 1e-4);
  }
}

static void r2(engine *e) {
  glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){1, 20, 30, 2, 2, 64, 64}, 1), again = p;
  again.o = make_tensor(e, GLINT_FLOAT32, 1, 20, 2, 64, 0);
  again.dropout_seed = 99, again.dropout_offset = 5;
  if (run_forward(e, &p) && run_forward(e, &again)) assert_same(&p.o, &again.o);
  p.dropout_p = 1;
  assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
}

static void c1(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 40, 60, 2, 1, 64, 64}, 3.5);
    glint_gradients g = make_gradients(e, &p);
    p.softcap = 15;
    for (int causal = 0; causal < 2; causal++) {
      p.causal = causal, p.scale = 1; /* scores near +-100 */
      judge(e, &p, NULL);
      judge(e, &p, &g);
    }
    if (!run_forward(e, &p)) continue;
    for (int64_t i = 0; i < 40; i++) assert_true(value_at(&p.lse, 0, 1, i, 0) < 15 + log(60) + 1e-3);
  }
}

int main(void) {
  static const engine_case cases[] = {{"P1", p1}, {"P2", p2}, {"P3", p3}, {"D1", d1}, {"D2", d2}, {"R1", r1}, {"R2", r2}, {"C1", c1}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
