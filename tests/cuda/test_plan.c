/* The choice of a kernel, without any GPU: a table and machines made up here. */
#include "cuda/family.h"
#include "cuda/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* after the headers that it needs */
#include <cmocka.h>

#define PLAIN (FEATURE_MASK | FEATURE_VARLEN)
#define FULL  (PLAIN | FEATURE_SOFTCAP | FEATURE_ALIBI | FEATURE_SINKS)

#define ROW_OF(source, name, arch, dtype, d, dv, features, tile_q, threads, persistent, shared, registers)                                 \
  { name, source, arch, dtype, d, dv, features, tile_q, 64, 2, threads, 1, persistent, shared, NULL, NULL, registers, 0 }
#define ROW(...) ROW_OF("any.c", __VA_ARGS__)
static const glint_variant table[] = {
    ROW("hopper_d128", 90, GLINT_BFLOAT16, 128, 128, FEATURE_MASK, 128, 384, 1, 200 * 1024, 168),
    ROW("ampere_d64", 80, GLINT_BFLOAT16, 64, 64, PLAIN, 128, 128, 0, 48 * 1024, 168),
    ROW("ampere_d96_exact", 80, GLINT_BFLOAT16, 96, 96, PLAIN | FEATURE_UNPADDED, 128, 128, 0, 72 * 1024, 168),
    ROW("ampere_d128", 80, GLINT_BFLOAT16, 128, 128, PLAIN, 128, 128, 0, 96 * 1024, 240),
    ROW("ampere_d128_full", 80, GLINT_BFLOAT16, 128, 128, FULL, 128, 128, 0, 96 * 1024, 240),
    ROW("ampere_d256_big", 80, GLINT_BFLOAT16, 256, 256, PLAIN, 128, 256, 0, 128 * 1024, 200),
    ROW("ampere_d256_small", 80, GLINT_BFLOAT16, 256, 256, PLAIN, 64, 128, 0, 96 * 1024, 255),
    ROW("ampere_f16_d64", 80, GLINT_FLOAT16, 64, 64, PLAIN, 128, 128, 0, 48 * 1024, 168),
    {0}};

static glint_machine machine(int compute, int64_t shared_block) {
  return (glint_machine){.name = "test GPU",
                         .compute = compute,
                         .multiprocessors = 100,
                         .threads_per_sm = 2048,
                         .registers_per_sm = 65536,
                         .shared_per_sm = shared_block + 1024,
                         .shared_per_block = shared_block,
                         .l2_bytes = 50 << 20,
                         .flops_16bit = 1e15,
                         .bytes_per_second = 4e12};
}
static glint_machine hopper(void) { return machine(90, 227 * 1024); }
static glint_machine ampere(void) { return machine(80, 163 * 1024); }
static glint_machine small(void) { return machine(86, 99 * 1024); }

static _Alignas(256) char memory[256];

static glint_tensor tensor(glint_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (glint_tensor){.data = memory, .shape = {a, b, c, d}, .dtype = dtype, .rank = d ? 4 : c ? 3 : b ? 2 : 1};
}

static glint_problem dense(glint_dtype dtype, int64_t seqlen_q, int64_t seqlen_k, int64_t d, int64_t dv) {
  glint_problem p = {.struct_size = sizeof p};
  p.q = tensor(dtype, 2, seqlen_q, 8, d);
  p.k = tensor(dtype, 2, seqlen_k, 4, d);
  p.v = tensor(dtype, 2, seqlen_k, 4, dv);
  p.o = tensor(dtype, 2, seqlen_q, 8, dv);
  return p;
}

static glint_work work_of(const glint_problem *p) {
  glint_work w;
  char error[512] = "";
  if (glint_check(p, NULL, GLINT_PASS_FORWARD, 0, &w, error, sizeof error) != GLINT_OK) fail_msg("%s", error);
  return w;
}

typedef struct result {
  glint_status status;
  int variant;
  glint_plan_info plan;
  glint_error error;
} result;

static result plan_with(const glint_problem *p, glint_machine m, int32_t arch, const char *kernel) {
  result r = {.variant = -1, .error = {""}};
  const glint_work w = work_of(p);
  const glint_choice choice = {&m, table, arch, kernel};
  r.status = glint_cuda_plan(&choice, &w, &r.variant, &r.plan, &r.error);
  return r;
}

static void assert_kernel(const glint_problem *p, glint_machine m, const char *name) {
  result r = plan_with(p, m, 0, "");
  if (r.status != GLINT_OK) fail_msg("%s", r.error.text);
  assert_string_equal(r.plan.kernel, name);
  assert_string_equal(table[r.variant].name, name);
}

static void assert_refused(const glint_problem *p, glint_machine m, const char *field) {
  result r = plan_with(p, m, 0, "");
  assert_int_equal(r.status, GLINT_ERROR_UNSUPPORTED);
  if (!strstr(r.error.text, field)) fail_msg("'%s' does not name %s", r.error.text, field);
}

static void test_first_line_that_fits(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 512, 512, 128, 128);
  assert_kernel(&p, hopper(), "hopper_d128");
  assert_kernel(&p, ampere(), "ampere_d128");
  p.softcap = 30;
  assert_kernel(&p, hopper(), "ampere_d128_full");
  p = dense(GLINT_BFLOAT16, 512, 512, 64, 64);
  assert_kernel(&p, ampere(), "ampere_d64");
  assert_kernel(&p, hopper(), "hopper_d128"); /* stands first and takes smaller head_dims */
  p = dense(GLINT_BFLOAT16, 512, 512, 40, 64);
  assert_kernel(&p, ampere(), "ampere_d64");
  p = dense(GLINT_BFLOAT16, 512, 512, 64, 72); /* head_dim_v alone asks for more */
  assert_kernel(&p, ampere(), "ampere_d128");
  p = dense(GLINT_FLOAT16, 512, 512, 64, 64);
  assert_kernel(&p, hopper(), "ampere_f16_d64");
}

static void test_exact_head_dim(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 512, 512, 96, 96);
  assert_kernel(&p, ampere(), "ampere_d96_exact");
  p = dense(GLINT_BFLOAT16, 512, 512, 88, 88);
  assert_kernel(&p, ampere(), "ampere_d128");
}

static void test_machines(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 512, 512, 128, 128);
  assert_kernel(&p, machine(100, 227 * 1024), "ampere_d128"); /* sm_90a code runs on compute capability 9.0 alone */
  assert_kernel(&p, machine(89, 99 * 1024), "ampere_d128");
  p = dense(GLINT_BFLOAT16, 512, 512, 256, 256);
  assert_kernel(&p, ampere(), "ampere_d256_big");
  assert_kernel(&p, small(), "ampere_d256_small"); /* 128 KB do not fit */
  assert_refused(&p, machine(75, 64 * 1024), "7.5");
}

static void test_options(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 512, 512, 128, 128);
  result r = plan_with(&p, hopper(), 80, "");
  assert_string_equal(r.plan.kernel, "ampere_d128");
  assert_non_null(strstr(r.plan.reason, "options"));
  r = plan_with(&p, hopper(), 0, "ampere_d256");
  assert_string_equal(r.plan.kernel, "ampere_d256_big");
  r = plan_with(&p, hopper(), 0, "no_such_kernel");
  assert_int_equal(r.status, GLINT_ERROR_UNSUPPORTED);
  assert_non_null(strstr(r.error.text, "no_such_kernel"));
  r = plan_with(&p, ampere(), 90, "");
  assert_int_equal(r.status, GLINT_ERROR_UNSUPPORTED);
}

static void test_refusals_name_the_field(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_FLOAT32, 64, 64, 64, 64);
  assert_refused(&p, hopper(), "q.dtype is float32");
  p = dense(GLINT_BFLOAT16, 64, 64, 264, 64);
  assert_refused(&p, hopper(), "head_dim is 264");
  p = dense(GLINT_BFLOAT16, 64, 64, 60, 64);
  assert_refused(&p, hopper(), "head_dim is 60");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.dropout_p = 0.5f;
  assert_refused(&p, hopper(), "dropout_p");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.bias = tensor(GLINT_FLOAT32, 1, 8, 64, 64);
  assert_refused(&p, hopper(), "bias");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.num_splits = 3;
  assert_refused(&p, hopper(), "num_splits");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.o.dtype = GLINT_FLOAT32;
  assert_refused(&p, hopper(), "o.dtype");
  p = dense(GLINT_FLOAT16, 64, 64, 64, 64);
  p.softcap = 20;
  assert_refused(&p, hopper(), "softcap");
  p = dense(GLINT_BFLOAT16, 64, 64, 192, 64); /* both served, but by different rows */
  p.softcap = 20;
  assert_refused(&p, hopper(), "softcap");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.v.data = memory + 2;
  assert_refused(&p, hopper(), "v.data");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.k.stride[0] = 64 * 4 * 68;
  p.k.stride[1] = 4 * 68;
  p.k.stride[2] = 68;
  p.k.stride[3] = 1;
  assert_refused(&p, hopper(), "k.stride");
  p = dense(GLINT_BFLOAT16, 1 << 30, 64, 64, 64);
  assert_refused(&p, hopper(), "seqlen_q");
  p = dense(GLINT_BFLOAT16, 64, 64, 64, 64);
  p.q.shape[0] = p.k.shape[0] = p.v.shape[0] = p.o.shape[0] = (int64_t)1 << 29; /* times 8 heads: 2^32 tiles */
  p.q.shape[1] = p.k.shape[1] = p.v.shape[1] = p.o.shape[1] = 1;
  assert_refused(&p, hopper(), "batch");
}

static void test_features(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 100, 300, 64, 64);
  glint_work w = work_of(&p);
  assert_int_equal(glint_cuda_features(&w), 0);
  p.causal = 1;
  w = work_of(&p);
  assert_int_equal(glint_cuda_features(&w), FEATURE_MASK);
  p.seqused_k = tensor(GLINT_INT32, 2, 0, 0, 0);
  w = work_of(&p);
  assert_int_equal(glint_cuda_features(&w), FEATURE_MASK | FEATURE_VARLEN);
  p = dense(GLINT_BFLOAT16, 100, 300, 64, 64);
  p.softcap = 10;
  p.alibi_slopes = tensor(GLINT_FLOAT32, 8, 0, 0, 0);
  p.sinks = tensor(GLINT_FLOAT32, 8, 0, 0, 0);
  w = work_of(&p);
  assert_int_equal(glint_cuda_features(&w), FEATURE_SOFTCAP | FEATURE_ALIBI | FEATURE_SINKS);
}

/* Windows that hide nothing need no masking kernel; the smallest ones that hide something do. */
static void test_window_bounds(void **state) {
  (void)state;
  int32_t left, right;
  const struct {
    int64_t seqlen_q, seqlen_k, left, right;
    int masks;
  } cases[] = {{1, 300, -1, 0, 0},    {2, 300, -1, 0, 1},    {100, 300, 299, -1, 0}, {100, 300, 298, -1, 1}, {100, 300, -1, 99, 0},
               {100, 300, -1, 98, 1}, {300, 100, 99, -1, 0}, {300, 100, 98, -1, 1},  {300, 100, -1, 299, 0}, {300, 100, -1, 298, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    glint_problem p = dense(GLINT_BFLOAT16, cases[i].seqlen_q, cases[i].seqlen_k, 64, 64);
    p.windowed = 1;
    p.window_left = cases[i].left;
    p.window_right = cases[i].right;
    glint_work w = work_of(&p);
    glint_cuda_window(&w, &left, &right);
    assert_int_equal(left != GLINT_UNBOUNDED || right != GLINT_UNBOUNDED, cases[i].masks);
    double all = 2.0 * 8 * (double)cases[i].seqlen_q * (double)cases[i].seqlen_k;
    assert_int_equal(glint_cuda_visible_pairs(&w) < all, cases[i].masks);
  }
}

static void test_visible_pairs_against_counting(void **state) {
  (void)state;
  const unsigned seed = (unsigned)time(NULL);
  print_message("seed %u\n", seed);
  srand(seed);
  for (int n = 0; n < 300; n++) {
    glint_problem p = dense(GLINT_BFLOAT16, 1 + rand() % 40, 1 + rand() % 40, 8, 8);
    p.causal = rand() % 2;
    p.windowed = rand() % 2;
    p.window_left = p.windowed ? rand() % 45 - 1 : 0;
    p.window_right = p.windowed ? rand() % 45 - 1 : 0;
    glint_work w = work_of(&p);
    double pairs = 0;
    for (int64_t i = 0; i < w.seqlen_q; i++)
      for (int64_t j = 0; j < w.seqlen_k; j++) {
        int64_t at = i + w.seqlen_k - w.seqlen_q;
        pairs += (!p.causal || j <= at) &&
                 (!p.windowed || ((p.window_left < 0 || j >= at - p.window_left) && (p.window_right < 0 || j <= at + p.window_right)));
      }
    assert_true(glint_cuda_visible_pairs(&w) == pairs * 2 * 8);
  }
}

static void test_numbers_of_the_plan(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 1000, 1000, 64, 64);
  p.lse = tensor(GLINT_FLOAT32, 2, 8, 1000, 0);
  result r = plan_with(&p, ampere(), 0, "");
  assert_int_equal(r.status, GLINT_OK);
  assert_int_equal(r.plan.grid, 8 * 2 * 8); /* ceil(1000 / 128) tiles, 16 heads */
  assert_int_equal(
      glint_cuda_occupancy(
          &(glint_machine){.threads_per_sm = 2048, .registers_per_sm = 65536, .shared_per_sm = 164 * 1024, .shared_per_block = 163 * 1024},
          &table[1]),
      3); /* 65536 / (168 * 128) = 3.05; 164 / 49 = 3.3 */
  assert_int_equal(r.plan.waves_x100, 128 * 100 / 300);
  assert_true(r.plan.flops == 4.0 * 64 * 1000 * 1000 * 16);
  assert_true(r.plan.bytes == 2.0 * 2 * 1000 * 64 * (8 + 4 + 4 + 8) + 4.0 * 2 * 8 * 1000);
  assert_true(r.plan.roofline_seconds > 0);
  assert_int_equal(r.plan.workspace_bytes, 0);
  p = dense(GLINT_BFLOAT16, 4096, 4096, 128, 128);
  r = plan_with(&p, hopper(), 0, "");
  assert_int_equal(r.plan.grid, 100); /* persistent: 512 tiles, but 100 blocks run at once */
  p = dense(GLINT_BFLOAT16, 128, 4096, 128, 128);
  r = plan_with(&p, hopper(), 0, "");
  assert_int_equal(r.plan.grid, 16);
}

static void test_parameters(void **state) {
  (void)state;
  glint_forward_params f;
  glint_problem p = dense(GLINT_BFLOAT16, 100, 300, 64, 48);
  p.softcap = 20;
  p.scale = 0.25f;
  p.causal = 1;
  p.q.stride[0] = 100 * 8 * 64 * 3;
  p.q.stride[1] = 64 * 8;
  p.q.stride[2] = 64;
  p.q.stride[3] = 1;
  glint_work w = work_of(&p);
  glint_forward_fill(&table[4], &w, 1 << 20, 100, 1, &f);
  assert_int_equal(f.q_stride.batch, 100 * 8 * 64 * 3);
  assert_int_equal(f.k_stride.row, 4 * 64);
  assert_int_equal(f.v_stride.head, 48);
  assert_int_equal(f.group, 2);
  assert_int_equal(f.window_right, 0);
  assert_int_equal(f.window_left, GLINT_UNBOUNDED);
  assert_int_equal(f.num_tiles, 16);
  assert_int_equal(f.q_tiles, 1);
  assert_int_equal(f.heads_together, (1 << 19) / (300 * (64 + 48) * 2) * 2); /* two query heads share keys */
  assert_true(f.softcap_in == 0.25f / 20 && f.softcap_log2 > 28.85f && f.softcap_log2 < 28.86f);
  assert_true(f.scale_log2 > 0.3606f && f.scale_log2 < 0.3607f);
  assert_null(f.lse);
}

/* A line for few rows, whose keys may be split, before one for many. */
static const glint_variant few_rows[] = {
    ROW_OF("forward_fa3.c", "grouped_d128", 90, GLINT_BFLOAT16, 128, 128, FULL | FEATURE_SPLIT | FEATURE_PAGED | FEATURE_GROUPED, 64, 256,
           1, 96 * 1024, 128),
    ROW_OF("forward_fa3.c", "tall_d128", 90, GLINT_BFLOAT16, 128, 128, FULL, 128, 384, 1, 200 * 1024, 168),
    {0}};

static result plan_few(const glint_problem *p) {
  result r = {.variant = -1, .error = {""}};
  const glint_machine m = hopper();
  const glint_work w = work_of(p);
  const glint_choice choice = {&m, few_rows, 0, ""};
  r.status = glint_cuda_plan(&choice, &w, &r.variant, &r.plan, &r.error);
  if (r.status != GLINT_OK) fail_msg("%s", r.error.text);
  return r;
}

/* By seqlen: two heads a group, so 64 positions make 128 rows. */
static void test_grouped_for_few_rows(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 64, 4096, 128, 128);
  assert_string_equal(plan_few(&p).plan.kernel, "grouped_d128");
  p = dense(GLINT_BFLOAT16, 65, 4096, 128, 128);
  assert_string_equal(plan_few(&p).plan.kernel, "tall_d128");
  p = dense(GLINT_BFLOAT16, 1, 4096, 128, 128);
  p.q.shape[2] = p.o.shape[2] = 4 * 65; /* a group that fits no tile */
  assert_string_equal(plan_few(&p).plan.kernel, "tall_d128");
  p = dense(GLINT_BFLOAT16, 4, 4, 128, 128);
  p.q.shape[0] = p.k.shape[0] = p.v.shape[0] = p.o.shape[0] = 1;
  p.cu_seqlens_q = p.cu_seqlens_k = tensor(GLINT_INT32, 3, 0, 0, 0);
  p.max_seqlen_q = p.max_seqlen_k = 4;
  assert_string_equal(plan_few(&p).plan.kernel, "tall_d128");
}

/* By the number of keys, unless the name is asked for */
static void test_variant_for_many_keys(void **state) {
  (void)state;
  static const glint_variant lines[] = {
      {"long_d128", "any.c", 90, GLINT_BFLOAT16, 128, 128, 0, 128, 176, 2, 384, 1, 1, 200 * 1024, NULL, NULL, 168, 4096},
      ROW("any_d128", 90, GLINT_BFLOAT16, 128, 128, 0, 128, 384, 1, 200 * 1024, 168),
      {0}};
  const glint_machine m = hopper();
  const struct {
    int64_t keys;
    const char *asked, *chosen;
  } cases[] = {{4096, "", "long_d128"}, {4095, "", "any_d128"}, {100, "long_d128", "long_d128"}, {4096, "any_d128", "any_d128"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    result r = {.variant = -1, .error = {""}};
    const glint_problem p = dense(GLINT_BFLOAT16, 512, cases[i].keys, 128, 128);
    const glint_work w = work_of(&p);
    const glint_choice choice = {&m, lines, 0, cases[i].asked};
    assert_int_equal(glint_cuda_plan(&choice, &w, &r.variant, &r.plan, &r.error), GLINT_OK);
    assert_string_equal(r.plan.kernel, cases[i].chosen);
  }
}

static void test_pages_of_grouped(void **state) {
  (void)state;
  const struct {
    int64_t page_size;
    int fits;
  } sizes[] = {{8, 1}, {16, 1}, {64, 1}, {256, 1}, {4, 0}, {24, 0}, {96, 0}};
  glint_problem p = dense(GLINT_BFLOAT16, 1, 64, 128, 128);
  p.page_table = tensor(GLINT_INT32, 2, 9, 0, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    p.k.shape[1] = p.v.shape[1] = sizes[i].page_size;
    const glint_work w = work_of(&p);
    assert_int_equal(glint_variant_can(&few_rows[0], &w), sizes[i].fits);
  }
}

static void test_splits(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 1, 65536, 128, 128);
  result r = plan_few(&p);
  /* 8 groups of heads, 200 blocks at once: all have work, none much more than another */
  assert_in_range(r.plan.num_splits, 13, 25);
  assert_int_equal(r.plan.grid, 8 * r.plan.num_splits);
  assert_int_equal(r.plan.workspace_bytes, (int64_t)r.plan.num_splits * 2 * 8 * (128 + 1) * 4);
  p.num_splits = 5;
  assert_int_equal(plan_few(&p).plan.num_splits, 5);
  p.num_splits = 1;
  assert_int_equal(plan_few(&p).plan.num_splits, 1);
  assert_int_equal(plan_few(&p).plan.workspace_bytes, 0);
  p = dense(GLINT_BFLOAT16, 1, 64, 128, 128); /* one block of keys */
  assert_int_equal(plan_few(&p).plan.num_splits, 1);
  p = dense(GLINT_BFLOAT16, 1, 65536, 128, 128);
  p.q.shape[0] = p.k.shape[0] = p.v.shape[0] = p.o.shape[0] = 400; /* work enough without */
  assert_int_equal(plan_few(&p).plan.num_splits, 1);
}

/* The number of parts must not depend on the batch. */
static void test_batch_invariant(void **state) {
  (void)state;
  glint_problem p = dense(GLINT_BFLOAT16, 1, 65536, 128, 128);
  p.flags = GLINT_BATCH_INVARIANT;
  const int32_t splits = plan_few(&p).plan.num_splits;
  p.q.shape[0] = p.k.shape[0] = p.v.shape[0] = p.o.shape[0] = 7;
  assert_int_equal(plan_few(&p).plan.num_splits, splits);
}

static void test_tile_order(void **state) {
  (void)state;
  glint_forward_params f;
  glint_problem p = dense(GLINT_BFLOAT16, 1024, 1024, 128, 128);
  glint_work w = work_of(&p);
  glint_forward_fill(&few_rows[1], &w, 50 << 20, 20, 1, &f);
  assert_int_equal(f.q_tiles, 8);
  assert_int_equal(f.heads_together, 4); /* 20 blocks want three heads; two share keys */
  assert_int_equal(f.tail_tiles, 0);
  p.causal = 1;
  w = work_of(&p);
  glint_forward_fill(&few_rows[1], &w, 50 << 20, 20, 1, &f);
  assert_int_equal(f.tail_tiles, 3);
  p.windowed = 1;
  p.window_left = 10;
  p.window_right = -1;
  w = work_of(&p);
  glint_forward_fill(&few_rows[1], &w, 50 << 20, 20, 1, &f);
  assert_int_equal(f.tail_tiles, 0); /* row blocks have as many keys each */
  glint_forward_fill(&few_rows[0], &w, 50 << 20, 20, 3, &f);
  assert_int_equal(f.q_tiles, 32); /* 32 positions of two heads */
  assert_int_equal(f.num_tiles, 32 * 4 * 2 * 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_line_that_fits),
                                     cmocka_unit_test(test_exact_head_dim),
                                     cmocka_unit_test(test_machines),
                                     cmocka_unit_test(test_options),
                                     cmocka_unit_test(test_refusals_name_the_field),
                                     cmocka_unit_test(test_features),
                                     cmocka_unit_test(test_window_bounds),
                                     cmocka_unit_test(test_visible_pairs_against_counting),
                                     cmocka_unit_test(test_numbers_of_the_plan),
                                     cmocka_unit_test(test_parameters),
                                     cmocka_unit_test(test_grouped_for_few_rows),
                                     cmocka_unit_test(test_variant_for_many_keys),
                                     cmocka_unit_test(test_pages_of_grouped),
                                     cmocka_unit_test(test_splits),
                                     cmocka_unit_test(test_batch_invariant),
                                     cmocka_unit_test(test_tile_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
