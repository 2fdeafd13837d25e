// Every kind of report is shown by a kernel with a planted fault, and its correct twin is silent, in all modes and several orders.
#include "cmocka_all.h"
#include "sim.h"
#include "sim_params.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096, SM90_SMEM = 4 * 8192 + 64 };

typedef struct fault_case {
  const char *kernel;
  sim_hazard_kind kind;
  u32 arch, threads, smem, n;
  sim_hazard_kind or_kind; // the same fault when this run's order shows it from the other side; 0: none
} fault_case;

static const fault_case cases[] = {
    {"fault_race", SIM_RACE, 80, 64, 1024, 0, 0},
    {"fault_race_reuse", SIM_RACE, 80, 64, 1024, 0, 0},
    {"fault_race_in_warp", SIM_RACE, 80, 32, 1024, 0, 0},
    {"fault_smem_bounds", SIM_SMEM_OUT_OF_BOUNDS, 80, 32, 1024, 0, 0},
    {"fault_gmem_bounds", SIM_GMEM_OUT_OF_BOUNDS, 80, 32, 0, WORDS, 0},
    {"fault_gmem_store_bounds", SIM_GMEM_OUT_OF_BOUNDS, 80, 32, 0, WORDS, 0},
    {"fault_smem_misaligned", SIM_MISALIGNED, 80, 32, 1024, 0, 0},
    {"fault_gmem_misaligned", SIM_MISALIGNED, 80, 32, 0, 0, 0},
    {"fault_uninitialised", SIM_UNINITIALISED, 80, 32, 1024, 0, 0},
    {"fault_uninitialised_ldmatrix", SIM_UNINITIALISED, 80, 32, 1024, 0, 0},
    {"fault_cp_async_wait", SIM_CP_ASYNC_NOT_WAITED, 80, 32, 1024, 0, 0},
    {"fault_cp_async_group", SIM_CP_ASYNC_NOT_WAITED, 80, 32, 1024, 0, 0},
    {"fault_cp_async_barrier", SIM_CP_ASYNC_NOT_WAITED, 80, 64, 1024, 0, 0},
    {"fault_cp_async_reuse", SIM_RACE, 80, 64, 1024, 0, 0},
    {"fault_divergent_shuffle", SIM_DIVERGENT, 80, 32, 0, 0, 0},
    {"fault_missing_lane", SIM_DIVERGENT, 80, 32, 0, 0, 0},
    {"fault_divergent_barrier", SIM_DIVERGENT, 80, 64, 0, 0, 0},
    {"fault_barrier_lanes", SIM_DIVERGENT, 80, 64, 0, 0, 0},
    {"fault_barrier_counts", SIM_BARRIER_MISUSE, 80, 64, 0, 0, 0},
    {"fault_deadlock", SIM_DEADLOCK, 80, 64, 0, 0, 0},
    {"fault_spin", SIM_DEADLOCK, 80, 32, 0, 0, 0},
    {"fault_not_on_arch", SIM_NOT_ON_ARCH, 80, 32, 1024, 0, 0},
    {"fault_tma_wait", SIM_TMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, SIM_RACE},
    {"fault_tma_parity", SIM_TMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, SIM_RACE},
    {"fault_tma_too_few_expected", SIM_MBARRIER_MISUSE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_too_many_expected", SIM_DEADLOCK, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_reuse", SIM_RACE, 90, 128, SM90_SMEM, 0, SIM_TMA_NOT_WAITED},
    {"fault_tma_left_behind", SIM_TMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_misaligned", SIM_MISALIGNED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_rank", SIM_BAD_TENSOR_MAP, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_coordinate", SIM_BAD_OPERAND, 90, 128, SM90_SMEM, 0, 0},
    {"fault_store_before_tensor", SIM_BAD_OPERAND, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_smem_bounds", SIM_SMEM_OUT_OF_BOUNDS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_tma_over_mbarrier", SIM_MBARRIER_MISUSE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_mbarrier_not_initialised", SIM_MBARRIER_MISUSE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_mbarrier_init_order", SIM_MBARRIER_MISUSE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_mbarrier_init_fence", SIM_MISSING_INIT_FENCE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_mbarrier_arrivals", SIM_MBARRIER_MISUSE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_mbarrier_deadlock", SIM_DEADLOCK, 90, 128, SM90_SMEM, 0, 0},
    {"fault_store_fence", SIM_MISSING_PROXY_FENCE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_store_order", SIM_RACE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_store_overwritten", SIM_TMA_STILL_READS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_store_exit", SIM_TMA_STILL_READS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_wait", SIM_WGMMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_written", SIM_WGMMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_fence", SIM_MISSING_WGMMA_FENCE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_operand_reuse", SIM_WGMMA_STILL_READS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_operand_written", SIM_WGMMA_STILL_READS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_proxy_fence", SIM_MISSING_PROXY_FENCE, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_one_warp_waits", SIM_TMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_descriptor_bounds", SIM_SMEM_OUT_OF_BOUNDS, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_divergent", SIM_DIVERGENT, 90, 128, SM90_SMEM, 0, 0},
    {"fault_wgmma_left_behind", SIM_WGMMA_NOT_WAITED, 90, 128, SM90_SMEM, 0, 0},
    {"fault_stmatrix_race", SIM_RACE, 90, 64, SM90_SMEM, 0, 0},
    {"fault_registers_deadlock", SIM_DEADLOCK, 90, 384, 0, 0, 0},
    {"fault_registers_operand", SIM_BAD_OPERAND, 90, 384, 0, 0, 0},
};

static _Alignas(64) struct { u32 in[WORDS], gap_1[64], out[WORDS], gap_2[64]; } memory; // gaps belong to no tensor
static u32 *const in = memory.in, *const out = memory.out;
static test_params params;

// One device an arch, used again: reports start anew.
static sim_device *device_for(u32 arch, u32 modes, u64 seed) {
  static sim_device *devices[2];
  sim_device **d = &devices[arch == 90];
  if (!*d) {
    sim_config config = {.arch = arch};
    *d = sim_open(&config);
    assert_non_null(*d);
    assert_int_equal(sim_memory_register(*d, "in", in, WORDS * sizeof *in), 0);
    assert_int_equal(sim_memory_register(*d, "out", out, WORDS * sizeof *out), 0);
  }
  sim_set_modes(*d, modes, seed);
  sim_reset_report(*d);
  return *d;
}

static int has(const sim_report *r, sim_hazard_kind kind) {
  for (u32 i = 0; i < r->hazard_count; i++)
    if (r->hazards[i].kind == kind) return 1;
  return 0;
}

static void run_case(const fault_case *c, u32 fault, u32 modes, u64 seed) {
  static const u32 grid[3] = {1, 1, 1};
  sim_device *d = device_for(c->arch, modes, seed);
  sim_kernel *k = sim_find_kernel(c->kernel);
  assert_non_null(k);
  memset(out, 0, WORDS * sizeof *out);
  params.fault = fault, params.n = c->n, params.in = in, params.out = out;
  sim_status s = sim_launch(d, k, grid, c->threads, c->smem, &params);
  const sim_report *r = sim_get_report(d);
  int good = fault ? (has(r, c->kind) || (c->or_kind && has(r, c->or_kind))) && s != SIM_OK : s == SIM_OK && r->hazard_count == 0;
  if (!good || (fault && getenv("GLINT_SIM_SHOW"))) sim_report_print(r, stderr);
  if (!good)
    fail_msg("%s, fault %u, modes %u, seed %llu: status %d, expected %s", c->kernel, fault, modes, seed, (int)s,
             fault ? sim_hazard_name(c->kind) : "silence");
}

static void each_fault_is_reported_and_its_twin_is_silent(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (u32 modes = 0; modes < SIM_ALL_MODES; modes++)
      for (u64 seed = 1; seed <= 3; seed++)
        for (u32 fault = 0; fault < 2; fault++) run_case(&cases[i], fault, modes, seed);
}

// 64 x 64 bf16, boxes of the whole, 128-byte swizzle
static void encode(tensor_map *map, void *base) {
  const u64 dims[2] = {64, 64}, strides[1] = {128};
  const u32 box[2] = {64, 64}, steps[2] = {1, 1};
  assert_null(sim_tensor_map_encode(map, 9, 2, base, dims, strides, box, steps, 0, 3, 0, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_fault_is_reported_and_its_twin_is_silent)};
  for (u32 i = 0; i < WORDS; i++) in[i] = i;
  encode(&params.map, in);
  encode(&params.map_out, out);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
