/* The simulator's library beside the command: its reports. */
#include "simulator.h"

#include "cuda/path.h"

#include <dlfcn.h>

const glint_sim_interface *simulator_find(glint_error *error) {
  char path[4096];
  glint_sim_path(path, sizeof path);
  void *library = dlopen(path, RTLD_NOW);
  const glint_sim_interface *simulator = library ? (const glint_sim_interface *)dlsym(library, "glint_sim_driver") : NULL;
  if (!simulator) glint_fail(error, GLINT_ERROR_NOT_FOUND, "the simulator is not usable: %.300s", dlerror());
  return simulator;
}

const sim_report *simulator_report(const glint_sim_interface *simulator) {
  for (int i = 0;; i++) {
    const sim_report *r = simulator->report(i);
    if (!r || r->launches) return r;
  }
}

void simulator_reset(const glint_sim_interface *simulator) {
  for (int i = 0; simulator->report(i); i++) simulator->reset_report(i);
}
