/* One launch: parameters, attributes, grid. */
#include "cuda/launch.h"
#include "cuda/backward.h"
#include "cuda/family.h"
#include "cuda/plan.h"
#include "cuda/ranges.h"

#include <string.h>

glint_status glint_cuda_start(const glint_driver *driver, const glint_start *start, void *params, glint_error *error) {
  void *parameters[] = {params};
  CUlaunchAttribute overlap = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value.programmatic = 1};
  CUlaunchConfig config = {.grid_x = (uint32_t)start->grid,
                           .grid_y = 1,
                           .grid_z = 1,
                           .block_x = (uint32_t)start->threads,
                           .block_y = 1,
                           .block_z = 1,
                           .shared_bytes = (uint32_t)start->shared_bytes,
                           .stream = start->stream,
                           .attributes = start->behind ? &overlap : NULL,
                           .attribute_count = start->behind ? 1 : 0};
  /* a kernel of a library stands where a function is expected, and runs in the current context */
  return GLINT_DRIVER_CALL(driver, error, cuLaunchKernelEx, (&config, (CUfunction)(void *)start->kernel, parameters, NULL));
}

static glint_status launch(const glint_cuda *cuda, const glint_variant *v, CUkernel kernel, CUstream stream, int64_t grid, int behind,
                           glint_forward_params *params, glint_error *error) {
  glint_start start = {kernel, stream, grid, v->threads, v->shared_bytes, behind};
  return glint_cuda_start(&cuda->driver, &start, params, error);
}

/* Partial results of split keys to o and lse */
static glint_status combine(glint_cuda *cuda, const glint_work *w, const glint_plan_info *plan, void *workspace,
                            glint_forward_params *params, glint_error *error) {
  const int64_t rows = w->batch * w->heads_q * w->seqlen_q;
  for (int i = 0; glint_variants[i].name; i++) {
    const glint_variant *v = &glint_variants[i];
    CUkernel kernel;
    if (!glint_is_combine(v) || v->dtype != (int32_t)w->q.dtype) continue;
    glint_status status = glint_cuda_kernel(cuda, i, &kernel, error);
    if (status != GLINT_OK) return status;
    const int64_t at_once = v->threads / 32;
    if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
    return launch(cuda, v, kernel, w->stream, (rows + at_once - 1) / at_once, 1, params, error);
  }
  return glint_fail(error, GLINT_ERROR_INTERNAL, "the library has no kernel that combines split keys for this dtype");
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
  glint_forward_fill(v, w, cuda->machine[scope->device].l2_bytes, plan->grid, plan->num_splits, &params);
  if (!workspace && plan->workspace_bytes) status = glint_cuda_workspace(cuda, scope, stream, plan->workspace_bytes, &workspace, error);
  if (status == GLINT_OK && v->persistent) status = glint_cuda_counter(cuda, scope, stream, &params.tile_counter, error);
  if (status == GLINT_OK && family->prepare) status = family->prepare(&cuda->driver, v, w, workspace, &params, error);
  if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
  if (status == GLINT_OK) status = launch(cuda, v, kernel, stream, plan->grid, 0, &params, error);
  if (status == GLINT_OK && plan->num_splits > 1) status = combine(cuda, w, plan, workspace, &params, error);
  return status;
}

glint_status glint_cuda_run(glint_cuda *cuda, const glint_work *w, const glint_plan_info *plan, void *workspace, glint_error *error) {
  glint_scope scope;
  int index = glint_variant_index(plan->kernel);
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
