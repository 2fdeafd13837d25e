/* E: empty rows, minus infinity, lse. */
#include "harness.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Scores of early rows all near -200: no stand-in for -inf may beat them. */
static void e1(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 88, 448, 14, 2, 64, 64}, 0.01);
    fill_value(&p.q, 5);
    for (int64_t j = 0; j < 448; j++)
      for (int64_t h = 0; h < 2; h++)
        for (int64_t c = 0; c < 64; c++) set_value(&p.k, 0, j, h, c, -5);
    p.causal = 1; /* 64 * 5 * -5 / 8 = -200 */
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) return;
    for (int64_t i = 0; i < 88; i += 29) assert_true(fabs(value_at(&p.lse, 0, 13, i, 0) - (-200 + log((double)(i + 361)))) < 1e-3);
  }
}

/* One key with a score of -46340.95: probability 1. */
static void e2(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 1, 1, 1, 1, 128, 128}, 1);
    fill_value(&p.q, 64);
    fill_value(&p.k, -64);
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) return;
    assert_memory_equal(p.o.data, p.v.data, bytes_of(&p.v));
    assert_true(fabs(value_at(&p.lse, 0, 0, 0, 0) - -524288 / sqrt(128)) < 0.01);
  }
}

/* Causal with more rows than keys: the first rows see nothing. */
static void e3(engine *e) {
  static const int lengths[][2] = {{5, 2}, {300, 170}, {3, 128}, {129, 1}, {2048, 1024}}; /* the last for engines that are fast */
  for (int n = 0; n < 5; n++)
    for (int t = 0; t < FLOAT_DTYPES; t++) {
      int64_t sq = lengths[n][0], sk = lengths[n][1];
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, sq, sk, 2, 1, 64, 64}, 1), paged = p;
      p.causal = paged.causal = 1;
      judge(e, &p, NULL);
      int64_t pages = (sk + 15) / 16;
      int32_t table[64], used = (int32_t)sk;
      paged.k = make_tensor(e, float_dtypes[t], pages, 16, 1, 64, 1), paged.v = make_tensor(e, float_dtypes[t], pages, 16, 1, 64, 1);
      for (int32_t m = 0; m < pages; m++) table[m] = (int32_t)pages - 1 - m;
      paged.page_table = make_int32(e, table, pages), paged.seqused_k = make_int32(e, &used, 1);
      paged.page_table.rank = 2, paged.page_table.shape[1] = pages, paged.page_table.shape[0] = 1;
      judge(e, &paged, NULL);
      if (run_forward(e, &p)) {
        for (int64_t i = 0; i < sq - sk; i++) {
          assert_true(value_at(&p.lse, 0, 1, i, 0) == -(double)INFINITY);
          for (int64_t c = 0; c < 64; c++) assert_true(value_at(&p.o, 0, i, 1, c) == 0);
        }
        if (sq >= sk) /* the first row that sees a key sees exactly key 0 */
          for (int64_t c = 0; c < 64; c++) assert_true(value_at(&p.o, 0, sq - sk, 0, c) == value_at(&p.v, 0, 0, 0, c));
      }
    }
}

/* Splits that own no valid key, and rows for which no split does. */
static void e4(engine *e) {
  for (int splits = 1; splits < 70; splits = splits * 2 + 1) {
    glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){3, 4, 256, 2, 1, 64, 64}, 1);
    static const int32_t used[] = {0, 3, 130};
    p.num_splits = splits, p.causal = 1, p.seqused_k = make_int32(e, used, 3);
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) return;
    for (int64_t c = 0; c < 64; c++) assert_true(value_at(&p.o, 0, 2, 1, c) == 0 && value_at(&p.o, 1, 0, 1, c) == 0);
    assert_true(value_at(&p.lse, 0, 0, 3, 0) == -(double)INFINITY);
  }
}

/* NaN beyond a length, in the rest of a page, in another sequence's page: the same bits as with zeros there. */
static void e5(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    static const int32_t used[] = {1, 3}, one_page[] = {107};
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){2, 2, 3, 2, 1, 64, 64}, 1), zeros;
    p.cache_seqlens = make_int32(e, used, 2);
    zeros = p;
    zeros.o = make_tensor(e, float_dtypes[t], 2, 2, 2, 64, 0);
    glint_problem page = make_problem(e, float_dtypes[t], (sizes){1, 2, 256, 2, 1, 64, 64}, 1);
    page.seqused_k = make_int32(e, one_page, 1);
    for (int64_t j = 1; j < 3; j++)
      for (int64_t c = 0; c < 64; c++) set_value(&p.k, 0, j, 0, c, 0), set_value(&p.v, 0, j, 0, c, 0);
    int done = run_forward(e, &zeros);
    for (int64_t j = 1; j < 3; j++)
      for (int64_t c = 0; c < 64; c++) set_value(&p.k, 0, j, 0, c, (double)NAN), set_value(&p.v, 0, j, 0, c, (double)NAN);
    if (done && run_forward(e, &p)) assert_same(&p.o, &zeros.o);
    judge(e, &p, NULL);
    int32_t table[] = {1, 0};
    glint_problem paged = page;
    paged.k = make_tensor(e, float_dtypes[t], 2, 256, 1, 64, 0), paged.v = make_tensor(e, float_dtypes[t], 2, 256, 1, 64, 0);
    for (int64_t j = 0; j < 107; j++)
      for (int64_t c = 0; c < 64; c++) set_value(&paged.k, 1, j, 0, c, 0.5), set_value(&paged.v, 1, j, 0, c, (double)j);
    paged.page_table = make_int32(e, table, 1);
    paged.page_table.rank = 2, paged.page_table.shape[1] = 1;
    judge(e, &paged, NULL);
  }
}

/* A padded batch of decodes: the row of an empty sequence is written. */
static void e6(engine *e) {
  static const int32_t used[] = {5, 0, 200};
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){3, 1, 200, 8, 2, 128, 128}, 1);
  p.seqused_k = make_int32(e, used, 3);
  judge(e, &p, NULL);
  if (!run_forward(e, &p)) return;
  for (int64_t h = 0; h < 8; h++)
    for (int64_t c = 0; c < 128; c++) assert_true(value_at(&p.o, 1, 0, h, c) == 0);
}

/* A real NaN is not hidden. */
static void e7(engine *e) {
  for (int causal = 0; causal < 2; causal++) {
    glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){2, 16, 16, 4, 4, 8, 8}, 1);
    p.causal = causal;
    fill_value(&p.q, (double)NAN);
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) return;
    for (int64_t n = 0; n < 2 * 16 * 4 * 8; n++) assert_true(isnan(((float *)p.o.data)[n]));
  }
}

/* A bias of the most negative finite number for a whole row: the mean of V. */
static void e8(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++) {
    const double room = float_dtypes[t] == GLINT_FLOAT32 ? 1e-5 : 1e-2;
    glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 441, 441, 1, 1, 64, 64}, 1);
    p.bias = make_tensor(e, GLINT_FLOAT32, 1, 1, 441, 441, 1);
    for (int64_t j = 0; j < 441; j++) set_value(&p.bias, 0, 0, 7, j, -(double)FLT_MAX);
    for (int64_t j = 0; j < 441; j++) set_value(&p.bias, 0, 0, 9, j, -(double)INFINITY);
    judge(e, &p, NULL);
    if (!run_forward(e, &p)) continue;
    for (int64_t c = 0; c < 64; c++) {
      double mean = 0;
      for (int64_t j = 0; j < 441; j++) mean += value_at(&p.v, 0, j, 0, c) / 441;
      assert_true(fabs(value_at(&p.o, 0, 7, 0, c) - mean) < room);
      assert_true(value_at(&p.o, 0, 9, 0, c) == 0);
    }
  }
}

/* A sink in a row without keys: o = 0, lse = the sink. */
static void e9(engine *e) {
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){2, 6, 3, 4, 2, 64, 64}, 1),
                empty = make_problem(e, GLINT_BFLOAT16, (sizes){1, 2, 0, 2, 2, 64, 64}, 1);
  p.sinks = empty.sinks = make_tensor(e, GLINT_FLOAT32, 4, 0, 0, 0, 2);
  empty.sinks.shape[0] = 2;
  p.causal = 1;
  judge(e, &p, NULL);
  judge(e, &empty, NULL);
  if (!run_forward(e, &p)) return;
  for (int64_t h = 0; h < 4; h++)
    for (int64_t i = 0; i < 3; i++) {
      assert_true(fabs(value_at(&p.lse, 1, h, i, 0) - value_at(&p.sinks, h, 0, 0, 0)) < 1e-6);
      for (int64_t c = 0; c < 64; c++) assert_true(value_at(&p.o, 1, i, h, c) == 0);
    }
}

/* lse is in natural log for every scale. */
static void e10(engine *e) {
  static const float scales[] = {1, 0.125f, 3};
  for (int n = 0; n < 3 * FLOAT_DTYPES; n++) {
    glint_problem p = make_problem(e, float_dtypes[n / 3], (sizes){1, 1, 1, 1, 1, 16, 16}, 1);
    double dot = 0;
    p.scale = scales[n % 3];
    for (int64_t c = 0; c < 16; c++) dot += value_at(&p.q, 0, 0, 0, c) * value_at(&p.k, 0, 0, 0, c);
    judge(e, &p, NULL);
    if (run_forward(e, &p)) assert_true(fabs(value_at(&p.lse, 0, 0, 0, 0) - (double)p.scale * dot) < 1e-4);
  }
}

int main(void) {
  static const engine_case cases[] = {{"E1", e1}, {"E2", e2}, {"E3", e3}, {"E4", e4}, {"E5", e5},
                                      {"E6", e6}, {"E7", e7}, {"E8", e8}, {"E9", e9}, {"E10", e10}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
