/* The oracle against values worked out by hand and against the formula written down once more, dense and in long double. */
#include "philox.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static glint_context *context;
static uint64_t random_state;

static void forward(const glint_problem *p) {
  glint_status status = glint_forward(context, p);
  if (status) fail_msg("%s", glint_last_error(context));
}

static void near(double got, double expected) {
  if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected)))) fail_msg("%.17g: expected %.17g", got, expected);
}

/* [batch, seqlen, heads, columns] problem with float64 results; v has sk columns and is the identity, so that o is the matrix of
 * probabilities. */
static glint_problem identity_problem(testkit_case *c, int64_t batch, int64_t heads, int64_t heads_kv, int64_t sq, int64_t sk, int64_t d,
                                      double magnitude) {
  glint_problem p = {.struct_size = sizeof p};
  const int64_t q[] = {batch, sq, heads, d}, k[] = {batch, sk, heads_kv, d}, v[] = {batch, sk, heads_kv, sk}, o[] = {batch, sq, heads, sk},
                lse[] = {batch, heads, sq};
  p.q = testkit_tensor(c, GLINT_FLOAT32, 4, q, magnitude, &random_state),
  p.k = testkit_tensor(c, GLINT_FLOAT32, 4, k, magnitude, &random_state);
  p.v = testkit_tensor(c, GLINT_FLOAT32, 4, v, 0, NULL), p.o = testkit_tensor(c, GLINT_FLOAT64, 4, o, 0, NULL);
  p.lse = testkit_tensor(c, GLINT_FLOAT64, 3, lse, 0, NULL);
  memset(p.v.data, 0, (size_t)(batch * sk * heads_kv * sk) * sizeof(float));
  if (magnitude == 0) {
    memset(p.q.data, 0, (size_t)(batch * sq * heads * d) * sizeof(float));
    memset(p.k.data, 0, (size_t)(batch * sk * heads_kv * d) * sizeof(float));
  }
  for (int64_t n = 0; n < batch * sk; n++)
    for (int64_t h = 0; h < heads_kv; h++) ((float *)p.v.data)[(n * heads_kv + h) * sk + n % sk] = 1;
  return p;
}

static void test_by_hand(void **state) {
  (void)state;
  /* two keys with scores 0 and ln 3 (scale 1): probabilities 1/4 and 3/4 */
  float q[1] = {1}, k[2] = {0, (float)log(3)}, v[4] = {4, 8, 40, 80};
  double o[2], lse[1], gap = log(3) - (double)k[1];
  glint_problem p = {.struct_size = sizeof p, .scale = 1};
  p.q = (glint_tensor){q, {1, 1, 1, 1}, {0}, GLINT_FLOAT32, 4}, p.k = (glint_tensor){k, {1, 2, 1, 1}, {0}, GLINT_FLOAT32, 4};
  p.v = (glint_tensor){v, {1, 2, 1, 2}, {0}, GLINT_FLOAT32, 4}, p.o = (glint_tensor){o, {1, 1, 1, 2}, {0}, GLINT_FLOAT64, 4};
  p.lse = (glint_tensor){lse, {1, 1, 1}, {0}, GLINT_FLOAT64, 3};
  forward(&p);
  assert_true(fabs(o[0] - 31) < 40 * fabs(gap) + 1e-12 && fabs(o[1] - 62) < 80 * fabs(gap) + 1e-12);
  assert_true(fabs(lse[0] - log(4)) < fabs(gap) + 1e-12);
  /* a sink with logit ln 4 takes half */
  float sink = (float)log(4);
  p.sinks = (glint_tensor){&sink, {1}, {0}, GLINT_FLOAT32, 1};
  forward(&p);
  assert_true(fabs(o[0] - 15.5) < 1e-5 && fabs(o[1] - 31) < 1e-5 && fabs(lse[0] - log(8)) < 1e-6);
  /* default scale: 1 / sqrt(head_dim); one key: o = v, lse = the score in natural log */
  float q4[4] = {1, 2, 3, 4}, k4[4] = {2, 1, 0, 5};
  p.q = (glint_tensor){q4, {1, 1, 1, 4}, {0}, GLINT_FLOAT32, 4}, p.k = (glint_tensor){k4, {1, 1, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.v.shape[1] = 1, p.scale = 0, p.sinks.data = NULL;
  forward(&p);
  assert_true(o[0] == 4 && o[1] == 8 && lse[0] == 12);
  p.softcap = 6; /* 6 tanh(12 / 6) */
  forward(&p);
  near(lse[0], 6 * tanh(2));
}

/* With all scores equal, o shows the mask. */
static void test_visibility(void **state) {
  (void)state;
  static const int lengths[][2] = {{1, 1}, {4, 4}, {5, 2}, {2, 5}, {7, 1}, {1, 7}, {3, 11}, {11, 3}};
  for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
    for (int mask = 0; mask < 2 * 5 * 5; mask++) {
      testkit_case c = {0};
      int sq = lengths[n][0], sk = lengths[n][1], causal = mask % 2, left = mask / 2 % 5 - 1, right = mask / 10 - 1;
      glint_problem p = identity_problem(&c, 1, 1, 1, sq, sk, 2, 0);
      p.causal = causal, p.windowed = 1, p.window_left = left, p.window_right = right;
      forward(&p);
      for (int i = 0; i < sq; i++) {
        int seen[16], count = 0;
        for (int j = 0; j < sk; j++) {
          int distance = j - (i + sk - sq); /* to the right of the row's position */
          seen[j] = (!causal || distance <= 0) && (left < 0 || distance >= -left) && (right < 0 || distance <= right);
          count += seen[j];
        }
        double *row = (double *)p.o.data + i * sk, lse = ((double *)p.lse.data)[i];
        for (int j = 0; j < sk; j++) near(row[j], seen[j] ? 1.0 / count : 0);
        if (count)
          near(lse, log(count));
        else
          assert_true(lse == -(double)INFINITY);
      }
      testkit_free_case(&c);
    }
}

/* The formula of glint.h again, with nothing shared with the oracle. Writes row i's probabilities and returns lse. */
static long double formula(const glint_problem *p, int64_t b, int64_t h, int64_t i, long double *probability) {
  const int64_t sq = p->q.shape[1], hq = p->q.shape[2], d = p->q.shape[3], sk = p->k.shape[1], hk = p->k.shape[2];
  const float *q = (const float *)p->q.data + ((b * sq + i) * hq + h) * d;
  long double sum = p->sinks.data ? expl((long double)((const float *)p->sinks.data)[h]) : 0;
  for (int64_t j = 0; j < sk; j++) {
    const float *k = (const float *)p->k.data + ((b * sk + j) * hk + h / (hq / hk)) * d;
    long double s = 0;
    for (int64_t c = 0; c < d; c++) s += (long double)q[c] * (long double)k[c];
    s *= p->scale > 0 ? (long double)p->scale : (long double)(float)(1 / sqrt((double)d));
    if (p->softcap > 0) s = (long double)p->softcap * tanhl(s / (long double)p->softcap);
    if (p->bias.data) {
      const int64_t *n = p->bias.shape;
      s += (long double)((const float *)
                             p->bias.data)[(((n[0] > 1 ? b : 0) * n[1] + (n[1] > 1 ? h : 0)) * n[2] + (n[2] > 1 ? i : 0)) * n[3] + j];
    }
    int64_t distance = i + sk - sq - j;
    if (p->alibi_slopes.data)
      s -= (long double)((const float *)p->alibi_slopes.data)[p->alibi_slopes.rank == 2 ? b * hq + h : h] * (long double)llabs(distance);
    if (p->causal && distance < 0) s = -INFINITY;
    if (p->windowed && p->window_left >= 0 && distance > p->window_left) s = -INFINITY;
    if (p->windowed && p->window_right >= 0 && -distance > p->window_right) s = -INFINITY;
    sum += probability[j] = expl(s);
  }
  for (int64_t j = 0; j < sk; j++) probability[j] = sum > 0 ? probability[j] / sum : 0;
  return logl(sum);
}

static void random_problem(testkit_case *c, glint_problem *p) {
  int64_t group = 1 + testkit_random_below(&random_state, 3), hk = 1 + testkit_random_below(&random_state, 3),
          b = 1 + testkit_random_below(&random_state, 2);
  int64_t sq = 1 + testkit_random_below(&random_state, 9), sk = 1 + testkit_random_below(&random_state, 9),
          d = 1 + testkit_random_below(&random_state, 12);
  uint64_t on = testkit_random(&random_state);
  *p = identity_problem(c, b, hk * group, hk, sq, sk, d, 1);
  if (on & 1) p->scale = 0.7f;
  if (on & 2) p->softcap = 1.25f;
  if (on & 4) p->causal = 1;
  if (on & 8)
    p->windowed = 1, p->window_left = testkit_random_below(&random_state, 5) - 1,
    p->window_right = testkit_random_below(&random_state, 5) - 1;
  const int64_t slopes[] = {b, hk * group}, bias[] = {on & 256 ? b : 1, on & 512 ? hk * group : 1, on & 1024 ? sq : 1, sk};
  if (on & 16) p->alibi_slopes = testkit_tensor(c, GLINT_FLOAT32, on & 32 ? 2 : 1, on & 32 ? slopes : slopes + 1, 1, &random_state);
  if (on & 64) p->sinks = testkit_tensor(c, GLINT_FLOAT32, 1, slopes + 1, 1, &random_state);
  if (on & 128) p->bias = testkit_tensor(c, GLINT_FLOAT32, 4, bias, 1, &random_state);
}

static void test_formula(void **state) {
  (void)state;
  for (int round = 0; round < 400; round++) {
    testkit_case c = {0};
    glint_problem p;
    random_problem(&c, &p);
    forward(&p);
    int64_t b = p.q.shape[0], sq = p.q.shape[1], hq = p.q.shape[2], sk = p.k.shape[1];
    for (int64_t n = 0; n < b * sq * hq; n++) {
      int64_t h = n % hq, i = n / hq % sq, batch = n / hq / sq;
      long double probability[16], lse = formula(&p, batch, h, i, probability);
      for (int64_t j = 0; j < sk; j++) near(((double *)p.o.data)[n * sk + j], (double)probability[j]);
      double got = ((double *)p.lse.data)[(batch * hq + h) * sq + i];
      if (isinf(lse))
        assert_true(got == (double)lse);
      else
        near(got, (double)lse);
    }
    testkit_free_case(&c);
  }
}

/* Random123's published vectors. */
static void test_philox(void **state) {
  (void)state;
  static const struct {
    uint32_t counter[4], key[2], expected[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t n = 0; n < 3; n++) {
    uint32_t out[4];
    glint_philox(known[n].counter, known[n].key, out);
    assert_memory_equal(out, known[n].expected, sizeof out);
  }
}

/* The mask by the words of glint.h; the probabilities that stay are divided by 1 - p'; lse does not change. */
static void test_dropout(void **state) {
  (void)state;
  testkit_case c = {0};
  enum { Batch = 2, Heads = 3, SQ = 5, SK = 37 };
  glint_problem p = identity_problem(&c, Batch, Heads, 1, SQ, SK, 2, 0);
  p.dropout_p = 0.3f, p.dropout_seed = 0x123456789ABCDEF0, p.dropout_offset = 0xFEDCBA9800000007;
  forward(&p);
  uint32_t threshold = (uint32_t)lround(65536 * (double)0.3f), kept = 0;
  for (uint32_t b = 0; b < Batch; b++)
    for (uint32_t i = 0; i < SQ; i++)
      for (uint32_t h = 0; h < Heads; h++)
        for (uint32_t j = 0; j < SK; j++) {
          uint32_t counter[4] = {j / 8, i, b * Heads + h, 0x00000007}, key[2] = {0x9ABCDEF0, 0x12345678u ^ 0xFEDCBA98u}, x[4];
          glint_philox(counter, key, x);
          uint32_t u = j % 2 ? x[j % 8 / 2] >> 16 : x[j % 8 / 2] & 0xFFFF;
          double expected = u >= threshold ? 1.0 / SK / (1 - threshold / 65536.0) : 0;
          near(((double *)p.o.data)[((b * SQ + i) * Heads + h) * SK + j], expected);
          kept += u >= threshold;
        }
  for (int n = 0; n < Batch * Heads * SQ; n++) near(((double *)p.lse.data)[n], log(SK));
  double share = kept / (double)(Batch * Heads * SQ * SK);
  assert_true(share > 0.6 && share < 0.8);
  double before[Batch * SQ * Heads * SK];
  p.dropout_p = 0;
  forward(&p);
  memcpy(before, p.o.data, sizeof before);
  p.dropout_p = 1e-6f; /* rounds to a threshold of 0 */
  forward(&p);
  assert_memory_equal(before, p.o.data, sizeof before);
  testkit_free_case(&c);
}

/* NaN and Inf go where the formula takes them, and nowhere else. */
static void test_nan(void **state) {
  (void)state;
  testkit_case c = {0};
  glint_problem p = identity_problem(&c, 1, 1, 1, 4, 4, 2, 1);
  p.causal = 1;
  ((float *)p.k.data)[3 * 2] = NAN;          /* key 3: seen by row 3 only */
  ((float *)p.v.data)[2 * 4 + 1] = INFINITY; /* key 2: rows 2 and 3 */
  forward(&p);
  const double *o = p.o.data, *lse = p.lse.data;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      if (i == 3) assert_true(isnan(o[i * 4 + j]));
      if (i == 2) assert_true(j == 1 ? isinf(o[i * 4 + j]) : isfinite(o[i * 4 + j]));
      if (i < 2) assert_true(isfinite(o[i * 4 + j]));
    }
  assert_true(isnan(lse[3]) && isfinite(lse[2]));
  testkit_free_case(&c);
}

/* Rotation as multiplication by exp(i * position * frequency), pairs half a rotary_dim apart or side by side. */
static void test_rotary(void **state) {
  (void)state;
  enum { D = 10, Rotary = 6, Cached = 3, New = 2, SQ = 2, Room = 6, Positions = 9 };
  for (int style = 0; style < 4; style++) {
    testkit_case c = {0};
    int interleaved = style % 2, causal = style / 2;
    glint_problem p = identity_problem(&c, 1, 1, 1, SQ, Room, D, 1);
    const int64_t fresh_k[] = {1, New, 1, D}, fresh_v[] = {1, New, 1, Room}, table[] = {Positions, Rotary / 2};
    int32_t cached = Cached;
    p.scale = 1, p.causal = causal, p.rotary_interleaved = interleaved;
    p.cache_seqlens = testkit_int32(&c, &cached, 1);
    p.k_new = testkit_tensor(&c, GLINT_FLOAT32, 4, fresh_k, 1, &random_state),
    p.v_new = testkit_tensor(&c, GLINT_FLOAT32, 4, fresh_v, 1, &random_state);
    p.rotary_cos = testkit_tensor(&c, GLINT_FLOAT32, 2, table, 0, NULL),
    p.rotary_sin = testkit_tensor(&c, GLINT_FLOAT32, 2, table, 0, NULL);
    for (int n = 0; n < Positions * Rotary / 2; n++) {
      double angle = n / (Rotary / 2) * 0.3 + n % (Rotary / 2);
      ((float *)p.rotary_cos.data)[n] = (float)cos(angle), ((float *)p.rotary_sin.data)[n] = (float)sin(angle);
    }
    float fresh[New * D], values[New * Room];
    memcpy(fresh, p.k_new.data, sizeof fresh), memcpy(values, p.v_new.data, sizeof values);
    forward(&p);
    for (int n = 0; n < New; n++) {
      const float *k = (const float *)p.k.data + (Cached + n) * D;
      for (int pair = 0; pair < Rotary / 2; pair++) {
        int at = (Cached + n) * Rotary / 2 + pair, x = interleaved ? 2 * pair : pair, y = interleaved ? 2 * pair + 1 : pair + Rotary / 2;
        double complex turn = (double)((float *)p.rotary_cos.data)[at] + I * (double)((float *)p.rotary_sin.data)[at];
        double complex z = ((double)fresh[n * D + x] + I * (double)fresh[n * D + y]) * turn;
        assert_true(fabs((double)k[x] - creal(z)) < 1e-6 && fabs((double)k[y] - cimag(z)) < 1e-6);
      }
      assert_memory_equal(k + Rotary, fresh + n * D + Rotary, (D - Rotary) * sizeof(float));
      assert_memory_equal((float *)p.v.data + (Cached + n) * Room, values + n * Room, Room * sizeof(float));
    }
    for (int i = 0; i < SQ; i++) { /* lse from the cache as it is now, with q turned to its own position or to that of the first row */
      double sum = 0;
      for (int j = 0; j < Cached + New - (causal ? SQ - 1 - i : 0); j++) {
        double s = 0, position = causal ? Cached + i : Cached;
        const float *q = (const float *)p.q.data + i * D, *k = (const float *)p.k.data + j * D;
        for (int pair = 0; pair < Rotary / 2; pair++) {
          int at = (int)position * Rotary / 2 + pair, x = interleaved ? 2 * pair : pair, y = interleaved ? 2 * pair + 1 : pair + Rotary / 2;
          double complex turn = (double)((float *)p.rotary_cos.data)[at] + I * (double)((float *)p.rotary_sin.data)[at];
          double complex z = ((double)q[x] + I * (double)q[y]) * turn;
          s += creal(z) * (double)k[x] + cimag(z) * (double)k[y];
        }
        for (int column = Rotary; column < D; column++) s += (double)q[column] * (double)k[column];
        sum += exp(s);
      }
      near(((double *)p.lse.data)[i], log(sum));
    }
    testkit_free_case(&c);
  }
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
      cmocka_unit_test(test_by_hand), cmocka_unit_test(test_visibility), cmocka_unit_test(test_formula), cmocka_unit_test(test_philox),
      cmocka_unit_test(test_dropout), cmocka_unit_test(test_nan),        cmocka_unit_test(test_rotary),
  };
  return cmocka_run_group_tests(tests, open_context, close_context);
}
