/* The sim engine: the cuda engine on the simulator's driver (sim/driver.c), whose devices are models of GPUs. Pointers are host pointers. */
#include "cuda/path.h"
#include "cuda/quantize.h"
#include "cuda/state.h"

#include <inttypes.h>

/* The modelled GPU of this compute capability; 0: the newest. */
static int find_model(const glint_cuda *cuda, int32_t arch) {
  int best = -1;
  for (int i = 0; i < cuda->devices; i++) {
    if (cuda->machine[i].compute == arch) return i;
    if (!arch && (best < 0 || cuda->machine[i].compute > cuda->machine[best].compute)) best = i;
  }
  return best;
}

static glint_status open_sim(const glint_options *options, void **state, glint_error *error) {
  char path[4096];
  glint_options common = *options;
  common.device = 0;
  common.arch = 0; /* chooses the machine here, not the kernels */
  glint_sim_path(path, sizeof path);
  glint_status status = glint_cuda_open(path, &common, state, error);
  if (status != GLINT_OK) return status;
  glint_cuda *cuda = *state;
  cuda->device = find_model(cuda, options->arch);
  cuda->only_device = 1;
  if (!cuda->driver.simulator)
    status = glint_fail(error, GLINT_ERROR_NOT_FOUND, "GLINT_SIM_LIBRARY is %.200s: this is not glint's simulator", path);
  else if (cuda->device < 0)
    status = glint_fail(error, GLINT_ERROR_NOT_FOUND, "options.arch is %" PRId32 ": the simulator models 80, 86, 89 and 90", options->arch);
  if (status != GLINT_OK) {
    glint_cuda_close(cuda);
    *state = NULL;
  }
  return status;
}

static size_t describe(void *state, char *text, size_t size) {
  static const glint_options defaults = {.struct_size = sizeof defaults};
  size_t length = 0;
  void *own = NULL;
  glint_error error = {""};
  if (!state && open_sim(&defaults, &own, &error) != GLINT_OK)
    glint_append(text, size, &length, "sim: not usable: %s\n", error.text);
  else
    glint_cuda_describe_devices(state ? state : own, "sim", text, size, &length);
  if (own) glint_cuda_close(own);
  return length;
}

const glint_engine_vtable glint_engine_sim = {GLINT_ENGINE_SIM,
                                              "sim",
                                              1,
                                              open_sim,
                                              glint_cuda_close,
                                              glint_cuda_engine_plan,
                                              glint_cuda_engine_run,
                                              glint_cuda_engine_reserve,
                                              describe,
                                              glint_cuda_quantize_workspace,
                                              glint_cuda_quantize};
