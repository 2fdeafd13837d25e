/* Every instruction set's kernels against the portable ones, on random and on adversarial input: the same problem goes through each table's
 * functions and comes back in plain row-major arrays. */
#include "convert.h"
#include "isa.h"
#include "kernels.h"
#include "rows.h"
#include "testkit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ROWS is a multiple of every panel; lengths are odd on purpose. */
enum { ROWS = 192, KEYS = 61, PADDED = 64, DIM = 37, DIM_V = 45, WIDE = 512 };

static uint64_t seed;

static const glint_cpu_kernels *const tables[] = {
    &glint_cpu_portable_f32,
#if defined(__x86_64__)
    &glint_cpu_avx2_f32,     &glint_cpu_avx512_f32, &glint_cpu_avx512_bf16, &glint_cpu_amx_bf16,
#endif
};
enum { TABLES = sizeof tables / sizeof *tables };

static int available(const glint_cpu_kernels *kernels) { return glint_cpu_machine_get()->has[kernels->isa]; }

/* One problem: values are bfloat16 numbers, so that both kinds of kernels see the same. */
typedef struct setup {
  float q[ROWS][DIM], k[KEYS][DIM], v[KEYS][DIM_V], bias[ROWS][PADDED + 16];
  float low[ROWS], high[ROWS], slope[ROWS], position[ROWS];
  float cap;
  int use_bias, use_slope, use_mask;
} setup;

typedef struct outcome {
  float s[PADDED][ROWS], p[PADDED][ROWS], m[ROWS], l[ROWS], o[ROWS][DIM_V];
  int finite;
} outcome;

static float bf16_normal(uint64_t *random, double magnitude) {
  return glint_float_from_bf16(glint_bf16_from_float((float)(testkit_random_normal(random) * magnitude)));
}

static void make_setup(setup *p, uint64_t *random, double magnitude) {
  for (int i = 0; i < ROWS; i++) {
    for (int c = 0; c < DIM; c++) p->q[i][c] = bf16_normal(random, magnitude);
    for (int j = 0; j < PADDED + 16; j++) p->bias[i][j] = (float)testkit_random_normal(random);
    p->low[i] = (float)testkit_random_below(random, KEYS);
    p->high[i] = (float)testkit_random_below(random, KEYS + 1);
    p->slope[i] = (float)testkit_random_normal(random) * 0.1f;
    p->position[i] = (float)testkit_random_below(random, KEYS);
  }
  for (int j = 0; j < KEYS; j++) {
    for (int c = 0; c < DIM; c++) p->k[j][c] = bf16_normal(random, magnitude);
    for (int c = 0; c < DIM_V; c++) p->v[j][c] = bf16_normal(random, 1);
  }
  p->cap = 0, p->use_bias = p->use_slope = p->use_mask = 0;
}

static void *allocate(size_t floats) {
  void *memory = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
  assert_non_null(memory);
  memset(memory, 0xFF, floats * sizeof(float)); /* NaN: what a kernel does not write must not be read */
  return memory;
}

static int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/* Rows of n floats as kernels want them: floats, or bfloat16. */
static void *rows_of(const float *from, int count, int n, int bf16, const void **rows) {
  char *memory = allocate((size_t)count * (size_t)n);
  size_t element = bf16 ? 2 : 4;
  for (int j = 0; j < count; j++) {
    rows[j] = memory + (size_t)j * (size_t)n * element;
    for (int c = 0; c < n; c++)
      glint_store(memory + (size_t)j * (size_t)n * element, bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32, c, (double)from[j * n + c]);
  }
  return memory;
}

static void pack_panel(const glint_cpu_kernels *kernels, const setup *in, int base, int units_d, float *q) {
  float *rows = allocate((size_t)kernels->panel * WIDE);
  memset(rows, 0, (size_t)kernels->panel * WIDE * sizeof(float));
  for (int n = 0; n < kernels->panel; n++)
    kernels->from_float(rows + n * WIDE, kernels->bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32, in->q[base + n], DIM, 1.0f);
  kernels->transpose(rows, WIDE, q, kernels->panel, kernels->panel, units_d);
  free(rows);
}

static float probability(const glint_cpu_kernels *kernels, const float *s, int j, int n) {
  uint16_t half;
  if (!kernels->bf16) return s[j * kernels->panel + n];
  memcpy(&half, (const char *)(s + j / 2 * kernels->panel + n) + j % 2 * 2, sizeof half);
  return glint_float_from_bf16(half);
}

/* scores, change, mask, softmax, accumulate; two softmax steps over the same block, so that the rescaling is seen. */
static void run_panel(const glint_cpu_kernels *kernels, const setup *in, int base, int units_d, int columns, const float *k, const float *v,
                      outcome *out) {
  int panel = kernels->panel, keys = round_up(KEYS, kernels->step_k);
  float *q = allocate((size_t)(panel * units_d)), *s = allocate((size_t)(panel * keys)), *o = allocate((size_t)(panel * columns));
  float low[GLINT_CPU_PANEL_MAX], high[GLINT_CPU_PANEL_MAX], alpha[GLINT_CPU_PANEL_MAX];
  glint_cpu_scores change = {.cap = in->cap};
  if (in->use_bias) change.bias = in->bias[base], change.bias_ld = PADDED + 16;
  if (in->use_slope) change.slope = in->slope + base, change.position = in->position + base;
  for (int n = 0; n < panel; n++) {
    low[n] = in->use_mask ? in->low[base + n] : 0, high[n] = in->use_mask ? in->high[base + n] : KEYS;
    out->m[base + n] = -INFINITY, out->l[base + n] = 0;
  }
  pack_panel(kernels, in, base, units_d, q);
  memset(o, 0, (size_t)(panel * columns) * sizeof(float));
  for (int step = 0; step < 2; step++) {
    kernels->scores(q, k, units_d, keys, s);
    kernels->change(s, 0, keys, &change, step ? 0.5f : 0.25f);
    for (int j = 0; j < KEYS; j++)
      for (int n = 0; n < panel; n++) out->s[j][base + n] = s[j * panel + n];
    kernels->mask(s, 0, keys, low, high);
    int rescale = kernels->softmax(s, keys, 1.25f, out->m + base, out->l + base, alpha);
    kernels->accumulate(s, v, 0, keys, columns, o, rescale ? alpha : NULL);
  }
  for (int n = 0; n < panel; n++) {
    for (int j = 0; j < KEYS; j++) out->p[j][base + n] = probability(kernels, s, j, n);
    for (int c = 0; c < DIM_V; c++) out->o[base + n][c] = o[c * panel + n];
  }
  free(q), free(s), free(o);
}

static void run_table(const glint_cpu_kernels *kernels, const setup *in, outcome *out) {
  int units_d = round_up(kernels->bf16 ? (DIM + 1) / 2 : DIM, kernels->step_d), columns = round_up(DIM_V, kernels->step_v);
  int keys = round_up(KEYS, kernels->step_k);
  const void *rows[KEYS];
  float *k = allocate((size_t)(keys * units_d)), *v = allocate((size_t)(keys * columns)), *scratch = allocate((size_t)(16 * columns));
  glint_dtype dtype = kernels->bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32;
  if (kernels->begin) kernels->begin();
  void *memory = rows_of(in->k[0], KEYS, DIM, kernels->bf16, rows);
  kernels->pack_k(rows, NULL, KEYS, keys, dtype, DIM, units_d, k);
  free(memory);
  memory = rows_of(in->v[0], KEYS, DIM_V, kernels->bf16, rows);
  out->finite = kernels->pack_v(rows, NULL, KEYS, keys, dtype, DIM_V, columns, v, scratch);
  free(memory);
  for (int j = 0; j < KEYS; j++)
    for (int c = 0; c < DIM_V; c++) {
      float value = (float)glint_load(kernels->element(v, j, c, columns), dtype, 0);
      assert_true(value == in->v[j][c] || (isnan(value) && isnan(in->v[j][c])));
    }
  for (int base = 0; base < ROWS; base += kernels->panel) run_panel(kernels, in, base, units_d, columns, k, v, out);
  if (kernels->end) kernels->end();
  free(k), free(v), free(scratch);
}

/* a is the portable result. */
static void near(const char *table, const char *what, int i, int j, float a, float b, double tolerance) {
  if (isnan(a) && isnan(b)) return;
  if (a == b) return;
  if (!(fabs((double)a - (double)b) <= tolerance))
    fail_msg("%s: %s[%d][%d] is %.9g, portable %.9g, allowed %g (seed %llu)", table, what, i, j, (double)b, (double)a, tolerance,
             (unsigned long long)seed);
}

/* Scores differ by the order of sums; P by that and by its rounding to bfloat16; O and l follow P. */
static void compare(const glint_cpu_kernels *kernels, const outcome *a, const outcome *b, double magnitude) {
  double s_error = 2e-6 * DIM * magnitude * magnitude, p_error = (s_error * 2 + (kernels->bf16 ? 1.0 / 256 : 1e-6));
  assert_int_equal(a->finite, b->finite);
  for (int i = 0; i < ROWS; i++) {
    near(kernels->name, "m", i, 0, a->m[i], b->m[i], s_error);
    near(kernels->name, "l", i, 0, a->l[i], b->l[i], (double)a->l[i] * (s_error * 2 + 1e-5));
    for (int j = 0; j < KEYS; j++) {
      near(kernels->name, "s", j, i, a->s[j][i], b->s[j][i], s_error);
      near(kernels->name, "p", j, i, a->p[j][i], b->p[j][i], (double)a->p[j][i] * p_error + 1e-30);
    }
    for (int c = 0; c < DIM_V; c++) near(kernels->name, "o", i, c, a->o[i][c], b->o[i][c], (double)a->l[i] * 4 * p_error);
  }
}

static void compare_all(const setup *in, double magnitude) {
  static outcome portable, other;
  run_table(tables[0], in, &portable);
  for (int n = 1; n < TABLES; n++) {
    if (!available(tables[n])) continue;
    run_table(tables[n], in, &other);
    compare(tables[n], &portable, &other, magnitude);
  }
}

static void test_random(void **state) {
  static setup in;
  uint64_t random = seed;
  (void)state;
  for (int round = 0; round < 12; round++) {
    double magnitude = round % 3 == 2 ? 3 : 1;
    make_setup(&in, &random, magnitude);
    in.use_mask = round & 1, in.use_bias = round >> 1 & 1, in.use_slope = round >> 2 & 1, in.cap = round % 5 == 4 ? 15.0f : 0;
    compare_all(&in, magnitude);
  }
}

/* Infinities and NaN in K, V and Q; scores that are all equal, and all far below zero; rows that see nothing. */
static void test_adversarial(void **state) {
  static setup in;
  uint64_t random = seed + 1;
  (void)state;
  make_setup(&in, &random, 1);
  in.use_mask = 1;
  in.k[7][3] = NAN, in.k[20][0] = INFINITY, in.v[9][DIM_V - 1] = INFINITY, in.v[10][2] = NAN;
  for (int c = 0; c < DIM; c++) in.q[5][c] = NAN, in.q[6][c] = 0;
  for (int i = 40; i < 48; i++) in.low[i] = 30, in.high[i] = 30;
  compare_all(&in, 1);
  make_setup(&in, &random, 1);
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < PADDED; j++) in.bias[i][j] = i % 3 == 0 ? -3.4028234e38f : i % 3 == 1 ? -1000.0f : -INFINITY;
  in.use_bias = 1;
  compare_all(&in, 1);
}

/* Bits: conversions are exact or rounded to even on every set, for every length of tail. */
static void test_conversions(void **state) {
  const glint_dtype dtypes[] = {GLINT_FLOAT32, GLINT_BFLOAT16, GLINT_FLOAT16};
  enum { N = 4096 };
  static float values[N], back[N], expected_back[N];
  static uint8_t bits[N * 4], expected[N * 4];
  uint64_t random = seed + 2;
  (void)state;
  for (int i = 0; i < N; i++) {
    uint32_t word = (uint32_t)testkit_random(&random);
    if (i % 4 == 1) word = (word & 0xFFFF0000) | 0x8000;                             /* ties of bfloat16 */
    if (i % 4 == 2) word = ((word & 0xFFFFE000) | 0x1000) % 0x10000000 + 0x38000000; /* ties of float16 */
    if (i % 16 == 3) word = word << 31 | (i % 32 == 3 ? 0x7F800000 : 0x7F7FFFFF);
    memcpy(&values[i], &word, sizeof word);
  }
  for (int n = 0; n < TABLES; n++) {
    if (!available(tables[n])) continue;
    for (int d = 0; d < 3; d++) {
      int count = N - (int)testkit_random_below(&random, 40);
      tables[n]->from_float(bits, dtypes[d], values, count, 1.0f);
      for (int i = 0; i < count; i++) {
        uint16_t half = dtypes[d] == GLINT_BFLOAT16 ? glint_bf16_from_float(values[i]) : glint_f16_from_float(values[i]);
        if (dtypes[d] == GLINT_FLOAT32)
          memcpy(expected + 4 * i, &values[i], 4);
        else
          memcpy(expected + 2 * i, &half, 2);
      }
      tables[n]->to_float(back, bits, dtypes[d], count, 1.0f);
      for (int i = 0; i < count; i++) {
        expected_back[i] = (float)glint_load(expected, dtypes[d], i);
        if (isnan(values[i]) ? !isnan(back[i]) : back[i] != expected_back[i])
          fail_msg("%s: dtype %d: %a became %a, expected %a (seed %llu)", tables[n]->name, dtypes[d], (double)values[i], (double)back[i],
                   (double)expected_back[i], (unsigned long long)seed);
      }
    }
  }
}

static void fill(float *to, int count, uint64_t *random) {
  for (int i = 0; i < count; i++) to[i] = bf16_normal(random, 0.5);
}

/* The few-rows kernels: 1, 2 and 4 rows, each dtype, odd counts. */
static void test_few_rows(void **state) {
  enum { D = 48, D_V = 80, COUNT = 53 };
  static float q[4][D], k[COUNT][D], v[COUNT][D_V];
  uint64_t random = seed + 3;
  const int row_counts[] = {1, 2, 4};
  (void)state;
  fill(&q[0][0], 4 * D, &random);
  fill(&k[0][0], COUNT * D, &random);
  fill(&v[0][0], COUNT * D_V, &random);
  for (int round = 0; round < 6; round++) {
    int rows = row_counts[round % 3], bf16 = round / 3;
    const void *k_rows[COUNT + GLINT_CPU_ROWS_PAD], *v_rows[COUNT + GLINT_CPU_ROWS_PAD];
    void *k_memory = rows_of(k[0], COUNT, D, bf16, k_rows), *v_memory = rows_of(v[0], COUNT, D_V, bf16, v_rows);
    float slope[4] = {0.1f, 0.2f, 0, 0.3f}, position[4] = {COUNT - 1, COUNT - 2, COUNT - 3, 5};
    glint_cpu_rows_change change = {.cap = round % 2 ? 10.0f : 0, .slope = round % 2 ? slope : NULL, .position = position};
    glint_cpu_soon soon = {k_rows, COUNT, D};
    float first[4][D_V], first_m[4], first_l[4];
    for (int n = 0; n < GLINT_CPU_ROWS_PAD; n++) k_rows[COUNT + n] = k_rows[COUNT - 1], v_rows[COUNT + n] = v_rows[COUNT - 1];
    for (int n = 0; n < TABLES; n++) {
      if (!available(tables[n])) continue;
      const glint_cpu_rows *few = tables[n]->rows;
      float s[(COUNT + GLINT_CPU_ROWS_PAD) * 4], o[4][D_V] = {{0}}, alpha[4];
      float m[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, l[4] = {0};
      glint_dtype dtype = bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32;
      for (int step = 0; step < 2; step++) {
        few->scores(rows, q[0], D, k_rows, 0, COUNT, dtype, D, s, &soon);
        few->softmax(rows, s, COUNT, &change, 1.4426950f, m, l, alpha);
        few->accumulate(rows, s, v_rows, 0, COUNT, dtype, D_V, o[0], D_V, alpha, &soon);
      }
      if (n == 0) memcpy(first, o, sizeof o), memcpy(first_m, m, sizeof m), memcpy(first_l, l, sizeof l);
      for (int r = 0; r < rows; r++) {
        near(tables[n]->name, "few m", r, rows, first_m[r], m[r], 1e-5);
        near(tables[n]->name, "few l", r, rows, first_l[r], l[r], (double)first_l[r] * 1e-5);
        for (int c = 0; c < D_V; c++) near(tables[n]->name, "few o", r, c, first[r][c], o[r][c], (double)first_l[r] * 1e-5);
      }
    }
    free(k_memory), free(v_memory);
  }
}

/* Scores of 4 rows by tiles, against sums in double; keys some bytes apart, counts of 16 and 32 and 48. */
static void test_tile_rows(void **state) {
  enum { D = 96, LD = 160, COUNT = 48 };
  static float q[GLINT_CPU_TILE_ROWS][D], packed[D / 2 * GLINT_CPU_TILE_ROWS], values[COUNT][LD];
  static uint16_t keys[COUNT][LD];
  uint64_t random = seed + 4;
  (void)state;
  fill(&q[0][0], GLINT_CPU_TILE_ROWS * D, &random);
  fill(&values[0][0], COUNT * LD, &random);
  for (int j = 0; j < COUNT; j++)
    for (int c = 0; c < LD; c++) keys[j][c] = glint_bf16_from_float(values[j][c]);
  for (int n = 0; n < TABLES; n++) {
    const glint_cpu_tile_rows *tiles = tables[n]->rows->tiles;
    if (!available(tables[n]) || !tiles) continue;
    for (int count = GLINT_CPU_TILE_KEYS; count <= COUNT; count += GLINT_CPU_TILE_KEYS) {
      const void *next[] = {keys[0], keys[5]};
      glint_cpu_soon soon = {next, 2, 2 * D};
      float s[COUNT][GLINT_CPU_TILE_ROWS];
      memset(s, 0xFF, sizeof s);
      tiles->begin();
      tiles->pack_q(q[0], D, D, packed);
      tiles->scores(packed, keys, sizeof keys[0], count, D, s[0], &soon);
      tiles->end();
      if (tables[n]->end) tables[n]->end();
      for (int j = 0; j < count; j++)
        for (int r = 0; r < GLINT_CPU_TILE_ROWS; r++) {
          double sum = 0;
          for (int c = 0; c < D; c++) sum += (double)q[r][c] * (double)values[j][c];
          near(tables[n]->name, "tile score", j, r, (float)sum, s[j][r], 1e-5);
        }
    }
  }
}

int main(void) {
  seed = testkit_fresh_seed();
  printf("seed %llu\n", (unsigned long long)seed);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversions), cmocka_unit_test(test_random), cmocka_unit_test(test_adversarial),
                                     cmocka_unit_test(test_few_rows), cmocka_unit_test(test_tile_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
