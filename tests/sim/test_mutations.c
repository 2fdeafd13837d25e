/* Would the model notice? Of a kernel of the variants table, every synchronisation in turn is left out (each wait, barrier, fence and arrival
 * that a small problem executes), and the model must report a hazard or the result must be wrong. What survives is listed: either it is not
 * needed, or the model is blind to it.
 *
 *   test_mutations NAME [least percentage found]      (a prefix of NAME takes the first kernel so called) */
#include "cuda/path.h"
#include "cuda/simulator.h"
#include "cuda/variant.h"
#include "sim.h"
#include "testkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLACES 256

typedef struct place {
  const sim_place *at;
  int found;
} place;

static const char *const synchronisations[] = {"mbarrier.try_wait",
                                               "mbarrier.test_wait",
                                               "mbarrier.arrive",
                                               "bar.sync",
                                               "bar.arrive",
                                               "bar.warp.sync",
                                               "cp.async.wait_group",
                                               "wgmma.wait_group",
                                               "wgmma.fence",
                                               "fence.proxy.async.shared",
                                               "fence.mbarrier_init",
                                               "cp.async.bulk.wait_group",
                                               "cp.async.bulk.wait_group.read",
                                               "bar.sync 0"};

static int is_synchronisation(const sim_place *at) {
  for (size_t i = 0; i < sizeof synchronisations / sizeof *synchronisations; i++)
    if (!strcmp(at->instruction, synchronisations[i])) return 1;
  return 0;
}

/* Several tiles of keys, and several tiles of queries for each of two multiprocessors, so that every buffer is used again; lengths that end
 * inside a tile. */
#define MULTIPROCESSORS "2"
static testkit_outcome run(glint_context *context, const glint_variant *v, testkit_report *report) {
  const glint_dtype dtype = (glint_dtype)v->dtype;
  const int64_t sq = v->tile_q + 5, sk = 4 * v->tile_k + 3;
  const int64_t q[4] = {1, sq, 4, v->head_dim}, k[4] = {1, sk, 2, v->head_dim}, vv[4] = {1, sk, 2, v->head_dim_v},
                o[4] = {1, sq, 4, v->head_dim_v}, lse[3] = {1, 4, sq};
  uint64_t random = 12345;
  testkit_case c;
  memset(&c, 0, sizeof c);
  c.problem.struct_size = sizeof c.problem;
  c.problem.q = testkit_tensor(&c, dtype, 4, q, 1, &random);
  c.problem.k = testkit_tensor(&c, dtype, 4, k, 1, &random);
  c.problem.v = testkit_tensor(&c, dtype, 4, vv, 1, &random);
  c.problem.o = testkit_tensor(&c, dtype, 4, o, 0, &random);
  c.problem.lse = testkit_tensor(&c, GLINT_FLOAT32, 3, lse, 0, &random);
  const testkit_outcome outcome = testkit_judge(context, NULL, &c.problem, NULL, report);
  testkit_free_case(&c);
  return outcome;
}

static int mutate(const glint_variant *v, const glint_sim_interface *simulator, int least) {
  const int ordinal = v->arch == 90 ? 0 : 1; /* of the stand-in's devices */
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_SIM, .arch = v->arch, .kernel = v->name};
  glint_context *context;
  testkit_report judged;
  place places[MOST_PLACES];
  int count = 0, found = 0;
  if (glint_open(&options, &context) != GLINT_OK) {
    printf("%s: %s\n", v->name, glint_last_error(NULL));
    return 1;
  }
  simulator->reset_report(ordinal);
  if (run(context, v, &judged) != TESTKIT_PASSED) {
    printf("%s: %s\n", v->name, judged.message);
    glint_close(context);
    return 1;
  }
  const sim_report *report = simulator->report(ordinal);
  for (u32 i = 0; i < report->line_count && count < MOST_PLACES; i++)
    if (is_synchronisation(report->lines[i].place)) places[count++].at = report->lines[i].place;
  for (int i = 0; i < count; i++) {
    simulator->reset_report(ordinal);
    simulator->skip(ordinal, places[i].at);
    const int noticed = run(context, v, &judged) != TESTKIT_PASSED;
    found += noticed;
    const sim_report *r = simulator->report(ordinal);
    const char *as = r->hazard_count ? sim_hazard_name(r->hazards[0].kind) : "a wrong result";
    char text[160];
    printf("  %-52s %s\n", sim_place_text(places[i].at, text, sizeof text), noticed ? as : "SURVIVES");
  }
  simulator->skip(ordinal, NULL);
  printf("%s: %d of %d left-out synchronisations noticed\n", v->name, found, count);
  glint_close(context);
  return !count || 100 * found < least * count;
}

int main(int argc, char **argv) {
  char path[4096];
  if (argc < 2) return 2;
  setenv("GLINT_SIM_SMS", MULTIPROCESSORS, 1);
  glint_sim_path(path, sizeof path);
  void *library = dlopen(path, RTLD_NOW);
  const glint_sim_interface *simulator = library ? dlsym(library, "glint_sim_driver") : NULL;
  if (!simulator) {
    printf("%s\n", dlerror());
    return 1;
  }
  for (const glint_variant *v = glint_variants; v->name; v++)
    if (!strncmp(v->name, argv[1], strlen(argv[1]))) return mutate(v, simulator, argc > 2 ? atoi(argv[2]) : 80);
  printf("no kernel is called %s\n", argv[1]);
  return 77; /* skipped: its line is not in the table of this build */
}
