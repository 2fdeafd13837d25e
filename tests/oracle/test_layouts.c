/* The oracle on packed, padded, paged, strided and scaled problems: the same bits as on the plain dense problem that each stands for. */
#include "convert.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

enum { B = 3, HQ = 4, HK = 2, D = 6, DV = 5, SQ = 7, SK = 11 };

static glint_context *context;
static uint64_t random_state;

static void forward(const glint_problem *p) {
  glint_status status = glint_forward(context, p);
  if (status) fail_msg("%s", glint_last_error(context));
}

static glint_tensor fresh(testkit_case *c, glint_dtype dtype, int64_t a, int64_t b, int64_t h, int64_t d, double magnitude) {
  const int64_t shape[] = {a, b, h, d};
  return testkit_tensor(c, dtype, 4, shape, magnitude, &random_state);
}

static glint_problem dense(testkit_case *c, int64_t batch, int64_t sq, int64_t sk) {
  glint_problem p = {.struct_size = sizeof p, .causal = 1};
  const int64_t lse[] = {batch, HQ, sq};
  p.q = fresh(c, GLINT_FLOAT32, batch, sq, HQ, D, 1), p.k = fresh(c, GLINT_FLOAT32, batch, sk, HK, D, 1);
  p.v = fresh(c, GLINT_FLOAT32, batch, sk, HK, DV, 1), p.o = fresh(c, GLINT_FLOAT64, batch, sq, HQ, DV, 0);
  p.lse = testkit_tensor(c, GLINT_FLOAT64, 3, lse, 0, NULL);
  return p;
}

/* Rows of sequence b of a problem, as a dense problem of their own that shares the memory of its inputs. */
static glint_problem one_sequence(testkit_case *c, const glint_problem *p, int64_t row_q, int64_t sq, int64_t row_k, int64_t sk) {
  glint_problem one = *p;
  const int64_t lse[] = {1, HQ, sq};
  glint_tensor none = {0};
  one.q.data = (float *)p->q.data + row_q * HQ * D, one.k.data = (float *)p->k.data + row_k * HK * D,
  one.v.data = (float *)p->v.data + row_k * HK * DV;
  one.q.shape[0] = one.k.shape[0] = one.v.shape[0] = 1, one.q.shape[1] = sq, one.k.shape[1] = one.v.shape[1] = sk;
  one.o = fresh(c, GLINT_FLOAT64, 1, sq, HQ, DV, 0), one.lse = testkit_tensor(c, GLINT_FLOAT64, 3, lse, 0, NULL);
  one.cu_seqlens_q = one.cu_seqlens_k = one.seqused_q = one.seqused_k = none;
  return one;
}

static void same_rows(const glint_problem *p, int64_t row_q, int64_t batch, const glint_problem *one) {
  int64_t sq = one->q.shape[1], rows = p->lse.shape[2];
  assert_memory_equal((double *)p->o.data + row_q * HQ * DV, one->o.data, (size_t)(sq * HQ * DV) * sizeof(double));
  for (int64_t h = 0; h < HQ; h++) {
    int64_t first = p->q.shape[0] == 1 ? h * rows + row_q : (batch * HQ + h) * rows;
    assert_memory_equal((double *)p->lse.data + first, (double *)one->lse.data + h * sq, (size_t)sq * sizeof(double));
  }
}

static int untouched(const double *values, int64_t count) {
  unsigned char ones[sizeof *values];
  memset(ones, 0xFF, sizeof ones);
  for (int64_t n = 0; n < count; n++)
    if (memcmp(&values[n], ones, sizeof ones)) return 0;
  return 1;
}

static void test_packed(void **state) {
  (void)state;
  testkit_case c = {0};
  static const int32_t cu_q[] = {2, 6, 6, 13}, cu_k[] = {1, 6, 9, 20};
  glint_problem p = dense(&c, 1, 15, 22);
  p.cu_seqlens_q = testkit_int32(&c, cu_q, B + 1), p.cu_seqlens_k = testkit_int32(&c, cu_k, B + 1);
  forward(&p);
  for (int b = 0; b < B; b++) {
    if (cu_q[b] == cu_q[b + 1]) continue;
    glint_problem one = one_sequence(&c, &p, cu_q[b], cu_q[b + 1] - cu_q[b], cu_k[b], cu_k[b + 1] - cu_k[b]);
    forward(&one);
    same_rows(&p, cu_q[b], b, &one);
  }
  assert_true(untouched(p.o.data, 2 * HQ * DV) && untouched((double *)p.o.data + 13 * HQ * DV, 2 * HQ * DV));
  assert_true(untouched(p.lse.data, 2) && untouched((double *)p.lse.data + 13, 2));
  testkit_free_case(&c);
}

static void test_used(void **state) {
  (void)state;
  testkit_case c = {0};
  static const int32_t used_q[] = {7, 3, 0}, used_k[] = {4, 11, 2};
  glint_problem p = dense(&c, B, SQ, SK);
  p.seqused_q = testkit_int32(&c, used_q, B), p.seqused_k = testkit_int32(&c, used_k, B);
  for (int b = 0; b < B; b++) { /* garbage behind the lengths */
    for (int n = used_k[b] * HK * D; n < SK * HK * D; n++) ((float *)p.k.data)[b * SK * HK * D + n] = NAN;
    for (int n = used_k[b] * HK * DV; n < SK * HK * DV; n++) ((float *)p.v.data)[b * SK * HK * DV + n] = NAN;
    for (int n = used_q[b] * HQ * D; n < SQ * HQ * D; n++) ((float *)p.q.data)[b * SQ * HQ * D + n] = NAN;
  }
  forward(&p);
  for (int b = 0; b < B; b++) {
    if (used_q[b]) {
      glint_problem one = one_sequence(&c, &p, b * SQ, used_q[b], b * SK, used_k[b]);
      forward(&one);
      assert_memory_equal((double *)p.o.data + b * SQ * HQ * DV, one.o.data, (size_t)used_q[b] * HQ * DV * sizeof(double));
    }
    for (int n = used_q[b] * HQ * DV; n < SQ * HQ * DV; n++) assert_true(((double *)p.o.data)[b * SQ * HQ * DV + n] == 0);
    for (int h = 0; h < HQ; h++)
      for (int i = used_q[b]; i < SQ; i++) assert_true(((double *)p.lse.data)[(b * HQ + h) * SQ + i] == -(double)INFINITY);
  }
  testkit_free_case(&c);
}

static void test_pages(void **state) {
  (void)state;
  testkit_case c = {0};
  glint_problem p = dense(&c, B, SQ, SK), paged = p;
  enum { Size = 4, Each = 3, Pages = 12 };
  static const int32_t table[B * Each] = {7, 0, 3, 11, 10, 1, 2, 9, 5}, used[B] = {SK, SK, SK};
  paged.o = fresh(&c, GLINT_FLOAT64, B, SQ, HQ, DV, 0);
  paged.k = fresh(&c, GLINT_FLOAT32, Pages, Size, HK, D, 0), paged.v = fresh(&c, GLINT_FLOAT32, Pages, Size, HK, DV, 0);
  paged.page_table = testkit_int32(&c, table, B * Each);
  paged.page_table.rank = 2, paged.page_table.shape[0] = B, paged.page_table.shape[1] = Each;
  paged.seqused_k = testkit_int32(&c, used, B);
  for (int n = 0; n < B * SK; n++) {
    int b = n / SK, j = n % SK, row = table[b * Each + j / Size] * Size + j % Size;
    memcpy((float *)paged.k.data + row * HK * D, (float *)p.k.data + n * HK * D, HK * D * sizeof(float));
    memcpy((float *)paged.v.data + row * HK * DV, (float *)p.v.data + n * HK * DV, HK * DV * sizeof(float));
  }
  forward(&p);
  forward(&paged);
  assert_memory_equal(p.o.data, paged.o.data, B * SQ * HQ * DV * sizeof(double));
  testkit_free_case(&c);
}

/* Heads before rows, gaps, and one batch entry of k for all. */
static void test_strides(void **state) {
  (void)state;
  testkit_case c = {0};
  glint_problem p = dense(&c, B, SQ, SK), other = p;
  for (int b = 1; b < B; b++) memcpy((float *)p.k.data + b * SK * HK * D, p.k.data, SK * HK * D * sizeof(float));
  other.k.stride[0] = 0, other.k.stride[1] = HK * D, other.k.stride[2] = D, other.k.stride[3] = 1;
  other.o = fresh(&c, GLINT_FLOAT64, B, HQ, SQ + 3, DV + 2, 0);
  other.o.shape[1] = SQ, other.o.shape[2] = HQ, other.o.shape[3] = DV;
  other.o.stride[0] = HQ * (SQ + 3) * (DV + 2), other.o.stride[1] = DV + 2, other.o.stride[2] = (SQ + 3) * (DV + 2), other.o.stride[3] = 1;
  forward(&p);
  forward(&other);
  for (int b = 0; b < B; b++)
    for (int i = 0; i < SQ; i++)
      for (int h = 0; h < HQ; h++) {
        const double *got = (double *)other.o.data + b * other.o.stride[0] + i * other.o.stride[1] + h * other.o.stride[2];
        assert_memory_equal(got, (double *)p.o.data + ((b * SQ + i) * HQ + h) * DV, DV * sizeof(double));
        assert_true(untouched(got + DV, 2));
      }
  testkit_free_case(&c);
}

/* FP8 with powers of two as scales: the same bits as float32 with the scaled values. */
static void test_descale(void **state) {
  (void)state;
  testkit_case c = {0};
  enum { Rows = 40 };
  glint_problem p = {.struct_size = sizeof p}, f;
  const int64_t per_block[] = {B, HK, 2}, per_head[] = {B, HK}, q_blocks[] = {B, HQ, 3}, all[] = {1};
  p.q = fresh(&c, GLINT_FLOAT8_E4M3, B, Rows, HQ, D, 1), p.k = fresh(&c, GLINT_FLOAT8_E4M3, B, Rows, HK, D, 1);
  p.v = fresh(&c, GLINT_FLOAT8_E4M3, B, Rows, HK, DV, 1), p.o = fresh(&c, GLINT_FLOAT64, B, Rows, HQ, DV, 0);
  for (int kind = 0; kind < 3; kind++) {
    p.descale_q = testkit_tensor(&c, GLINT_FLOAT32,
                                 kind == 0   ? 1
                                 : kind == 1 ? 2
                                             : 3,
                                 kind == 0   ? all
                                 : kind == 1 ? per_head
                                             : q_blocks,
                                 0, NULL);
    p.descale_k = testkit_tensor(&c, GLINT_FLOAT32, kind == 0 ? 2 : 3, kind == 0 ? per_head : per_block, 0, NULL);
    p.descale_v = testkit_tensor(&c, GLINT_FLOAT32, kind == 1 ? 1 : 3, kind == 1 ? all : per_block, 0, NULL);
    for (int n = 0; n < B * HQ * 3; n++) {
      if (n < (kind == 0 ? 1 : kind == 1 ? B * HK : B * HQ * 3)) ((float *)p.descale_q.data)[n] = exp2f((float)(n % 5 - 2));
      if (n < (kind == 0 ? B * HK : B * HK * 2)) ((float *)p.descale_k.data)[n] = exp2f((float)(n % 4 - 1));
      if (n < (kind == 1 ? 1 : B * HK * 2)) ((float *)p.descale_v.data)[n] = exp2f((float)(n % 3));
    }
    f = p;
    glint_tensor none = {0};
    f.descale_q = f.descale_k = f.descale_v = none;
    f.q = fresh(&c, GLINT_FLOAT32, B, Rows, HQ, D, 0), f.k = fresh(&c, GLINT_FLOAT32, B, Rows, HK, D, 0);
    f.v = fresh(&c, GLINT_FLOAT32, B, Rows, HK, DV, 0), f.o = fresh(&c, GLINT_FLOAT64, B, Rows, HQ, DV, 0);
    for (int n = 0; n < B * Rows * HQ * D; n++) {
      int h = n / D % HQ, i = n / D / HQ % Rows, b = n / D / HQ / Rows;
      int at = kind == 0 ? 0 : kind == 1 ? b * HK + h / (HQ / HK) : (b * HQ + h) * 3 + i / 16; /* 40 rows in 3 blocks: 16 each */
      ((float *)f.q.data)[n] = ((float *)p.descale_q.data)[at] * glint_float_from_e4m3(((uint8_t *)p.q.data)[n]);
    }
    for (int n = 0; n < B * Rows * HK; n++) {
      int h = n % HK, j = n / HK % Rows, b = n / HK / Rows, block = (b * HK + h) * 2 + j / 32; /* 40 rows in 2 blocks: 32 and 8 */
      for (int x = 0; x < D; x++)
        ((float *)f.k.data)[n * D + x] =
            ((float *)p.descale_k.data)[kind == 0 ? b * HK + h : block] * glint_float_from_e4m3(((uint8_t *)p.k.data)[n * D + x]);
      for (int x = 0; x < DV; x++)
        ((float *)f.v.data)[n * DV + x] =
            ((float *)p.descale_v.data)[kind == 1 ? 0 : block] * glint_float_from_e4m3(((uint8_t *)p.v.data)[n * DV + x]);
    }
    forward(&p);
    forward(&f);
    assert_memory_equal(p.o.data, f.o.data, B * Rows * HQ * DV * sizeof(double));
  }
  testkit_free_case(&c);
}

/* Threads must not show in the result. */
static void test_threads(void **state) {
  (void)state;
  testkit_case c = {0};
  glint_problem p = dense(&c, B, SQ, SK), again = p;
  again.o = fresh(&c, GLINT_FLOAT64, B, SQ, HQ, DV, 0);
  forward(&p);
  for (int threads = 1; threads <= 12; threads += 11) {
    glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE, .threads = threads};
    glint_context *other;
    assert_int_equal(glint_open(&options, &other), GLINT_OK);
    assert_int_equal(glint_forward(other, &again), GLINT_OK);
    assert_memory_equal(p.o.data, again.o.data, B * SQ * HQ * DV * sizeof(double));
    glint_close(other);
  }
  testkit_free_case(&c);
}

static int open_context(void **state) {
  (void)state;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE};
  random_state = testkit_fresh_seed();
  print_message("seed: GLINT_SEED=%llu\n", (unsigned long long)random_state);
  return glint_open(&options, &context) != GLINT_OK;
}

static int close_context(void **state) {
  (void)state;
  glint_close(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packed),  cmocka_unit_test(test_used),    cmocka_unit_test(test_pages),
      cmocka_unit_test(test_strides), cmocka_unit_test(test_descale), cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, open_context, close_context);
}
