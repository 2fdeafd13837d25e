/* One launch: parameters, attributes, grid. */
#include "cuda/launch.h"
#include "cuda/backward.h"
#include "cuda/family.h"
#include "cuda/plan.h"
#include "cuda/ranges.h"

#include <string.h>

static int variant_of(const char *name) {
  for (int i = 0; glint_variants[i].name; i++)
    if (strcmp(glint_variants[i].name, name) == 0) return i;
  return -1;
}

static glint_status launch(const glint_cuda *cuda, const glint_variant *v, CUkernel kernel, CUstream stream, int64_t grid,
                           glint_forward_params *params, glint_error *error) {
  void *parameters[] = {params};
  CUlaunchConfig config = {.grid_x = (uint32_t)grid,
                           .grid_y = 1,
                           .grid_z = 1,
                           .block_x = (uint32_t)v->threads,
                           .block_y = 1,
                           .block_z = 1,
                           .shared_bytes = (uint32_t)v->shared_bytes,
                           .stream = stream};
  /* a kernel of a library stands where a function is expected, and runs in the current context */
  return GLINT_DRIVER_CALL(&cuda->driver, error, cuLaunchKernelEx, (&config, (CUfunction)(void *)kernel, parameters, NULL));
}

static glint_status run_inside(glint_cuda *cuda, const glint_scope *scope, int index, const glint_work *w, const glint_plan_info *plan,
                               void *workspace, glint_error *error) {
  const glint_variant *v = &glint_variants[index];
  const glint_family *family = glint_family_of(v);
  CUstream stream = w->stream;
  CUkernel kernel;
  glint_forward_params params;
  glint_status status = glint_cuda_kernel(cuda, index, &kernel, error);
  if (status != GLINT_OK) return status;
  glint_forward_fill(v, w, cuda->machine[scope->device].l2_bytes, &params);
  if (!workspace && plan->workspace_bytes) status = glint_cuda_workspace(cuda, scope, stream, plan->workspace_bytes, &workspace, error);
  if (status == GLINT_OK && v->persistent) status = glint_cuda_counter(cuda, scope, stream, &params.tile_counter, error);
  if (status == GLINT_OK && family->prepare) status = family->prepare(&cuda->driver, v, w, workspace, &params, error);
  if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
  if (status == GLINT_OK) status = launch(cuda, v, kernel, stream, plan->grid, &params, error);
  return status;
}

glint_status glint_cuda_run(glint_cuda *cuda, const glint_work *w, const glint_plan_info *plan, void *workspace, glint_error *error) {
  glint_scope scope;
  int index = variant_of(plan->kernel);
  if (index < 0) return glint_fail(error, GLINT_ERROR_INTERNAL, "plan names the kernel %s, which does not exist", plan->kernel);
  if (plan->grid == 0 && w->pass == GLINT_PASS_FORWARD) return GLINT_OK; /* gradients of sinks and bias are sums, of nothing: 0 */
  glint_status status = glint_cuda_enter(cuda, w->q.data, &scope, error);
  if (status != GLINT_OK) return status;
  if (w->pass == GLINT_PASS_BACKWARD)
    status = glint_backward_run(cuda, &scope, w, plan, workspace, error);
  else
    status = run_inside(cuda, &scope, index, w, plan, workspace, error);
  glint_cuda_leave(cuda, &scope);
  return status;
}
