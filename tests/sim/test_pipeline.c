// The six faults of a Hopper pipeline: each is reported in every mode, the pipeline without them is silent and right in every mode.
#include "cmocka_all.h"
#include "pipeline_sm90.h"
#include "sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUERIES = 256, KEYS = 512, D = 128 };
static _Alignas(128) u16 q[QUERIES * D], k[KEYS * D], v[KEYS * D], o[QUERIES * D];
static u64 seed;

static float random_float(void) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (float)(i32)(seed >> 32) * 0x1p-31f;
}
static void fill(u16 *x, size_t n, float range) {
  for (size_t i = 0; i < n; i++) x[i] = (u16)sim_pack_bf16(range * random_float(), 0.f);
}
static double value(u16 x) { return (double)sim_f32((u32)x << 16); }

static void encode(tensor_map *map, u16 *base, u32 rows, u32 box_rows) {
  const u64 dims[2] = {D, rows}, strides[1] = {2 * D};
  const u32 box[2] = {64, box_rows}, steps[2] = {1, 1};
  assert_null(sim_tensor_map_encode(map, 9, 2, base, dims, strides, box, steps, 0, 3, 0, 0));
}

static double worst_error(double scale) {
  double worst = 0;
  static double p[KEYS];
  for (u32 i = 0; i < QUERIES; i++) {
    double max = -1e300, sum = 0;
    for (u32 j = 0; j < KEYS; j++) {
      double s = 0;
      for (u32 d = 0; d < D; d++) s += value(q[i * D + d]) * value(k[j * D + d]);
      p[j] = s * scale;
      if (p[j] > max) max = p[j];
    }
    for (u32 j = 0; j < KEYS; j++) sum += p[j] = exp(p[j] - max);
    for (u32 d = 0; d < D; d++) {
      double s = 0;
      for (u32 j = 0; j < KEYS; j++) s += p[j] * value(v[j * D + d]);
      double e = fabs(s / sum - value(o[i * D + d]));
      if (!(e <= worst)) worst = e;
    }
  }
  return worst;
}

static const sim_report *run(sim_device *d, const char *kernel, u32 modes, double *error, sim_status *status) {
  static const u32 grid[3] = {QUERIES / 128, 1, 1};
  static pipeline_params p;
  double scale = 1 / sqrt(D);
  encode(&p.q, q, QUERIES, 64), encode(&p.o, o, QUERIES, 64), encode(&p.k, k, KEYS, 128), encode(&p.v, v, KEYS, 128);
  p.keys = KEYS, p.scale_log2 = (float)(scale / log(2));
  memset(o, 0xff, sizeof o);
  sim_set_modes(d, modes, 1 + modes);
  sim_reset_report(d);
  *status = sim_launch(d, sim_find_kernel(kernel), grid, 384, PIPELINE_SMEM, &p);
  if (error) *error = worst_error(scale);
  return sim_get_report(d);
}

static sim_device *device(void) {
  static sim_device *d;
  if (d) return d;
  sim_config config = {.arch = 90};
  d = sim_open(&config);
  assert_non_null(d);
  assert_int_equal(sim_memory_register(d, "q", q, sizeof q), 0);
  assert_int_equal(sim_memory_register(d, "k", k, sizeof k), 0);
  assert_int_equal(sim_memory_register(d, "v", v, sizeof v), 0);
  assert_int_equal(sim_memory_register(d, "o", o, sizeof o), 0);
  return d;
}

static void the_pipeline_is_silent_and_right(void **state) {
  (void)state;
  for (u32 modes = 0; modes < SIM_ALL_MODES; modes++) {
    double error;
    sim_status s;
    const sim_report *r = run(device(), "pipeline_0", modes, &error, &s);
    if (s != SIM_OK) sim_report_print(r, stderr);
    assert_int_equal(s, SIM_OK);
    assert_true(error < 5e-3);
    assert_int_equal(r->bank_conflicts, 0);
    assert_int_equal(r->wgmma, QUERIES / 64 * (KEYS / 128) * 16);
    assert_int_equal(r->tensors[1].bytes_read, QUERIES / 128 * sizeof k); // K once for each block of queries
    assert_int_equal(r->tensors[3].bytes_written, sizeof o);
  }
}

static void expect(const char *kernel, sim_hazard_kind kind, sim_hazard_kind or_kind) {
  for (u32 modes = 0; modes < SIM_ALL_MODES; modes++) {
    sim_status s;
    const sim_report *r = run(device(), kernel, modes, NULL, &s);
    int found = 0;
    for (u32 i = 0; i < r->hazard_count; i++) found |= r->hazards[i].kind == kind || r->hazards[i].kind == or_kind;
    if (!found || getenv("GLINT_SIM_SHOW")) sim_report_print(r, stderr);
    if (!found) fail_msg("%s, modes %u: %s was not reported", kernel, modes, sim_hazard_name(kind));
    assert_int_not_equal(s, SIM_OK);
  }
}

static void v_not_waited_for(void **state) { (void)state, expect("pipeline_1", SIM_TMA_NOT_WAITED, SIM_TMA_NOT_WAITED); }
static void qk_not_waited_for(void **state) { (void)state, expect("pipeline_2", SIM_WGMMA_NOT_WAITED, SIM_WGMMA_NOT_WAITED); }
static void too_many_bytes_expected(void **state) { (void)state, expect("pipeline_3", SIM_DEADLOCK, SIM_DEADLOCK); }
static void v_released_early(void **state) { (void)state, expect("pipeline_5", SIM_WGMMA_STILL_READS, SIM_WGMMA_STILL_READS); }
static void k_released_just_before_the_wait(void **state) {
  (void)state, expect("pipeline_6", SIM_WGMMA_STILL_READS, SIM_WGMMA_STILL_READS);
}

// Not a hazard, but a wrong result, and bank conflicts that say where.
static void no_swizzle_in_the_epilogue(void **state) {
  (void)state;
  double error;
  sim_status s;
  const sim_report *r = run(device(), "pipeline_4", 7, &error, &s);
  assert_true(!(error < 5e-3));
  assert_true(r->bank_conflicts > 0);
  for (u32 i = 0; i < r->line_count; i++)
    if (r->lines[i].smem_wavefronts > r->lines[i].smem_ideal) assert_string_equal(r->lines[i].place->instruction, "stmatrix.x4");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_pipeline_is_silent_and_right), cmocka_unit_test(v_not_waited_for),           cmocka_unit_test(qk_not_waited_for),
      cmocka_unit_test(too_many_bytes_expected),          cmocka_unit_test(no_swizzle_in_the_epilogue), cmocka_unit_test(v_released_early),
      cmocka_unit_test(k_released_just_before_the_wait),
  };
  const char *given = getenv("GLINT_TEST_SEED");
  seed = given ? strtoull(given, NULL, 0) : (u64)time(NULL);
  printf("seed %llu (GLINT_TEST_SEED)\n", seed);
  fill(q, sizeof q / 2, 2), fill(k, sizeof k / 2, 2), fill(v, sizeof v / 2, 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
