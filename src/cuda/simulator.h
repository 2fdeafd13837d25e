/* What the stand-in for the CUDA driver (sim/driver.c, libglint_sim.so) offers beyond the driver API: the model's reports, and switches for tests. Found as
 * the symbol glint_sim_driver. Its devices are models of GPUs, its device memory is host memory, and work is done when a call returns. */
#ifndef GLINT_CUDA_SIMULATOR_H
#define GLINT_CUDA_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

struct sim_report;
struct sim_place;

/* Host memory that is not of cuMemAlloc, by the name that reports use. */
typedef struct glint_sim_range {
  const char *name;
  const void *base;
  size_t bytes;
} glint_sim_range;

typedef struct glint_sim_interface {
  /* Host memory that the calling thread's next launch may touch besides cuMemAlloc's. Ranges that overlap count as one. Copied but for the
   * names. Afterwards it is forgotten. */
  void (*launch_ranges)(const glint_sim_range *ranges, int count);

  /* What the model of a device ordinal has counted and found since its last reset (sim.h); NULL: no such device. Valid until the next
   * launch there. */
  const struct sim_report *(*report)(int ordinal);
  void (*reset_report)(int ordinal);
  /* When asynchronous work completes, and the order of warps: modes and seed of sim.h, for every device. At the start the environment
   * variables GLINT_SIM_MODES (default 7: all late) and GLINT_SIM_SEED (default 1). */
  void (*set_modes)(uint32_t modes, uint64_t seed);

  /* Mutation testing: no thread of that device executes the instruction at this place of a report; NULL: all do again (sim_skip of sim.h). */
  void (*skip)(int ordinal, const struct sim_place *place);

  /* The function's call number `after` from now on (0: the next one) returns result instead of doing its work, once. The environment variable
   * GLINT_SIM_FAIL="cuMemAlloc_v2:2:0" does the same from outside. result 0 forgets the order. */
  void (*order_failure)(const char *function, int result, int after);
  /* Calls of a function ("" for all) since the last call of forget_calls. */
  int (*calls)(const char *function);
  void (*forget_calls)(void);
} glint_sim_interface;

extern const glint_sim_interface glint_sim_driver;

#endif
