// Counts that everyone knows: bank conflicts of column reads and of ldmatrix, coalescing, the price of narrow loads.
#include "cmocka_all.h"
#include "sim.h"
#include "sim_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096 };
static _Alignas(128) u32 in[WORDS], out[WORDS];

// Runs the kernel; returns the counts of its last line with that instruction.
static sim_line run(const char *kernel, u32 n, const char *instruction, sim_tensor *input) {
  static const u32 grid[3] = {1, 1, 1};
  sim_config config = {.arch = 80, .seed = 7};
  sim_device *d = sim_open(&config);
  assert_non_null(d);
  assert_int_equal(sim_memory_register(d, "in", in, sizeof in), 0);
  assert_int_equal(sim_memory_register(d, "out", out, sizeof out), 0);
  test_params p = {.n = n, .in = in, .out = out};
  assert_int_equal(sim_launch(d, sim_find_kernel(kernel), grid, 32, 8192, &p), SIM_OK);
  const sim_report *r = sim_get_report(d);
  sim_line found = {0};
  for (u32 i = 0; i < r->line_count; i++)
    if (!strcmp(r->lines[i].place->instruction, instruction)) found = r->lines[i];
  if (input) *input = r->tensors[0];
  sim_close(d);
  return found;
}

static void column_reads_of_a_32x32_tile_conflict_32_ways_padded_ones_not(void **state) {
  (void)state;
  sim_line square = run("known_column", 32, "ld.shared.f32", NULL), padded = run("known_column", 33, "ld.shared.f32", NULL);
  assert_int_equal(square.warp_instructions, 32);
  assert_int_equal(square.worst_ways, 32);
  assert_int_equal(square.smem_wavefronts, 32 * 32);
  assert_int_equal(padded.warp_instructions, 32);
  assert_int_equal(padded.worst_ways, 1);
  assert_int_equal(padded.smem_wavefronts, padded.smem_ideal);
}

/* Transposed or not: what is fetched are the same rows of 16 bytes, so V needs the swizzle as much as K. */
static void ldmatrix_at_stride_128_conflicts_8_ways_swizzled_not(void **state) {
  (void)state;
  for (u32 trans = 0; trans < 2; trans++) {
    const char *instruction = trans ? "ldmatrix.x4.trans" : "ldmatrix.x4";
    sim_line rows = run("known_ldmatrix", 2 * trans, instruction, NULL), swizzled = run("known_ldmatrix", 2 * trans + 1, instruction, NULL);
    assert_int_equal(rows.warp_instructions, 2);
    assert_int_equal(rows.worst_ways, 8);
    assert_int_equal(rows.smem_wavefronts, 2 * 4 * 8);
    assert_int_equal(swizzled.worst_ways, 1);
    assert_int_equal(swizzled.smem_wavefronts, 2 * 4);
  }
}

static void scalar_16_bit_loads_take_8_times_the_instructions(void **state) {
  (void)state;
  sim_tensor narrow_in, wide_in;
  sim_line narrow = run("known_vector_loads", 0, "ld.global.u16", &narrow_in),
           wide = run("known_vector_loads", 1, "ld.global.v4", &wide_in);
  assert_int_equal(wide.warp_instructions, 2);
  assert_int_equal(narrow.warp_instructions, 8 * wide.warp_instructions);
  assert_int_equal(wide_in.bytes_read, 1024);
  assert_int_equal(narrow_in.bytes_read, 1024);
  assert_int_equal(wide.gmem_transactions, 8);
  assert_int_equal(narrow.gmem_transactions, 16);
  sim_line store = run("known_vector_loads", 1, "st.shared.v4", NULL);
  assert_int_equal(store.smem_wavefronts, store.smem_ideal);
}

static void strides_cost_sectors_and_transactions(void **state) {
  (void)state;
  static const struct { u32 stride, sectors, transactions; } expected[] = {{1, 4, 1}, {2, 8, 2}, {8, 32, 8}, {32, 32, 32}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    sim_line l = run("known_stride", expected[i].stride, "ld.global.u32", NULL);
    assert_int_equal(l.warp_instructions, 1);
    assert_int_equal(l.gmem_sectors, expected[i].sectors);
    assert_int_equal(l.gmem_transactions, expected[i].transactions);
    assert_int_equal(l.gmem_bytes, 128);
  }
}

static void a_copy_counts_the_lanes_that_read(void **state) {
  (void)state;
  static const u32 lanes[] = {0, 1, 8, 31, 32};
  for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
    sim_tensor read;
    sim_line l = run("known_zero_fill", lanes[i], "cp.async 16", &read);
    assert_int_equal(l.warp_instructions, 1);
    assert_int_equal(l.gmem_bytes, 16 * lanes[i]);
    assert_int_equal(read.bytes_read, 16 * lanes[i]);
    assert_int_equal(read.sectors_read, (lanes[i] + 1) / 2);
    assert_int_equal(l.smem_wavefronts, l.smem_ideal);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(column_reads_of_a_32x32_tile_conflict_32_ways_padded_ones_not),
      cmocka_unit_test(ldmatrix_at_stride_128_conflicts_8_ways_swizzled_not),
      cmocka_unit_test(scalar_16_bit_loads_take_8_times_the_instructions),
      cmocka_unit_test(strides_cost_sectors_and_transactions),
      cmocka_unit_test(a_copy_counts_the_lanes_that_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
