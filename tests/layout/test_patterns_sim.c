/* The simulator counts the same wavefronts and conflicts as the tool: bench/banks/expected.csv, pattern by pattern. */
#include "cmocka_all.h"
#include "sim.h"
#include "sim_params.h"

#include <stdio.h>
#include <string.h>

static const char *expected_path;

/* The one access to shared memory that is not the fill. */
static sim_line run(const char *pattern) {
  static _Alignas(128) u32 out[32];
  static const u32 grid[3] = {1, 1, 1};
  char kernel[96];
  sim_config config = {.arch = 90, .seed = 7};
  sim_device *d = sim_open(&config);
  sim_line found = {0};
  int lines = 0;
  test_params p = {.out = out};
  assert_non_null(d);
  snprintf(kernel, sizeof kernel, "pattern_%s", pattern);
  assert_int_equal(sim_memory_register(d, "out", out, sizeof out), 0);
  assert_int_equal(sim_launch(d, sim_find_kernel(kernel), grid, 32, 8192, &p), SIM_OK);
  const sim_report *r = sim_get_report(d);
  for (u32 i = 0; i < r->line_count; i++)
    if (r->lines[i].smem_wavefronts && strcmp(r->lines[i].place->instruction, "st.shared.f32") != 0) found = r->lines[i], lines++;
  assert_int_equal(lines, 1);
  sim_close(d);
  return found;
}

static void simulator_counts_what_the_tool_counts(void **state) {
  (void)state;
  char line[128], name[64], access[32];
  int wavefronts, conflicts, patterns = 0;
  FILE *expected = fopen(expected_path, "r");
  assert_non_null(expected);
  assert_non_null(fgets(line, sizeof line, expected));
  for (; fgets(line, sizeof line, expected); patterns++) {
    assert_int_equal(sscanf(line, "%63[^,],%31[^,],%d,%d", name, access, &wavefronts, &conflicts), 4);
    sim_line l = run(name);
    if (l.warp_instructions != 1 || (int)l.smem_wavefronts != wavefronts || (int)(l.smem_wavefronts - l.smem_ideal) != conflicts)
      fail_msg("%s: simulator %d wavefronts, %d conflicts; tool %d, %d", name, (int)l.smem_wavefronts,
               (int)(l.smem_wavefronts - l.smem_ideal), wavefronts, conflicts);
  }
  assert_true(patterns >= 10);
  fclose(expected);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  expected_path = argv[1];
  const struct CMUnitTest tests[] = {cmocka_unit_test(simulator_counts_what_the_tool_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
