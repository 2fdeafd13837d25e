/* Kernels of the stand-in driver: found by name among those linked in, run by the model. */
#include "driver_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_WITHOUT_ATTRIBUTE (48 * 1024)

struct CUlib_st {
  struct CUkern_st kernel;
};

/* Code is the kernel's name: the machine code of a simulated kernel is already in this library. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *options, void **values, unsigned count, int *library_options,
                           void **library_values, unsigned library_count) {
  SIM_ENTER_UNSAFE();
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  const sim_kernel *kernel = sim_find_kernel(code);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  *library = calloc(1, sizeof **library);
  if (!*library) return CUDA_ERROR_OUT_OF_MEMORY;
  (*library)->kernel.kernel = kernel;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  SIM_ENTER_UNSAFE();
  free(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  SIM_ENTER();
  *kernel = &library->kernel;
  return strcmp(library->kernel.kernel->name, name) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  SIM_ENTER();
  *function = (CUfunction)(void *)kernel;
  return sim_current_device() >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
  SIM_ENTER();
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    *value = kernel->shared[device];
  else if (attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES || attribute == CU_FUNC_ATTRIBUTE_NUM_REGS)
    *value = 0;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
  SIM_ENTER();
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= 0 && value <= 100) return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > (int)sim_smem_limit(sim_gpus[device].arch))
    return CUDA_ERROR_INVALID_VALUE;
  kernel->shared[device] = value;
  return CUDA_SUCCESS;
}

/* The newest hazard, in one line: what, where, against what. */
static void tell_hazard(sim_device *model) {
  char line[400];
  const sim_report *report = sim_get_report(model);
  if (!report->hazard_count) return;
  const sim_hazard *h = &report->hazards[report->hazard_count - 1];
  int length = snprintf(line, sizeof line, "%s", sim_hazard_name(h->kind));
  if (h->place) length += snprintf(line + length, sizeof line - (size_t)length, " at %.100s:%d", h->place->file, h->place->line);
  if (h->other) length += snprintf(line + length, sizeof line - (size_t)length, ", the other at %.100s:%d", h->other->file, h->other->line);
  snprintf(line + length, sizeof line - (size_t)length, ": %s", h->text);
  sim_set_text(line);
}

CUresult sim_run(int device, CUkernel kernel, const u32 grid[3], u32 threads, u32 shared_bytes, const void *params) {
  sim_gpu *gpu = &sim_gpus[device];
  CUresult result;
  pthread_mutex_lock(&gpu->lock);
  result = sim_ranges_register(device);
  if (result == CUDA_SUCCESS) {
    sim_status status = sim_launch(gpu->model, kernel->kernel, grid, threads, shared_bytes, params);
    sim_ranges_unregister(device);
    if (status == SIM_BAD_LAUNCH) {
      sim_set_text(sim_launch_error(gpu->model));
      result = CUDA_ERROR_INVALID_VALUE;
    } else if (status != SIM_OK) {
      tell_hazard(gpu->model);
      result = CUDA_ERROR_LAUNCH_FAILED;
    }
  }
  pthread_mutex_unlock(&gpu->lock);
  return result;
}

static CUresult keep(CUgraph graph, int device, CUkernel kernel, const CUlaunchConfig *c, const void *params) {
  if (graph->count == SIM_KEPT || kernel->kernel->params_size > SIM_PARAMS) return CUDA_ERROR_OUT_OF_MEMORY;
  sim_kept_launch *l = &graph->launches[graph->count++];
  *l = (sim_kept_launch){kernel, device, {c->grid_x, c->grid_y, c->grid_z}, c->block_x, c->shared_bytes, {0}};
  memcpy(l->params, params, kernel->kernel->params_size);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  SIM_ENTER();
  CUkernel kernel = (CUkernel)(void *)function;
  CUstream stream = sim_stream(config->stream);
  const int device = sim_current_device();
  const u32 grid[3] = {config->grid_x, config->grid_y, config->grid_z};
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (extra || config->block_y != 1 || config->block_z != 1 || !grid[0] || !grid[1] || !grid[2]) return CUDA_ERROR_INVALID_VALUE;
  if (config->shared_bytes > SHARED_WITHOUT_ATTRIBUTE && (int)config->shared_bytes > kernel->shared[device])
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing) return keep(stream->capturing, device, kernel, config, parameters[0]);
  return sim_run(device, kernel, grid, config->block_x, config->shared_bytes, parameters[0]);
}

CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *base, const uint64_t *sizes, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  SIM_ENTER();
  u64 dims[5] = {0}, bytes[4] = {0};
  if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < rank; i++) dims[i] = sizes[i];
  for (uint32_t i = 0; i + 1 < rank; i++) bytes[i] = strides[i];
  const char *wrong = sim_tensor_map_encode(map, type, rank, base, dims, bytes, box, steps, interleave, swizzle, promotion, fill);
  if (wrong) sim_set_text(wrong);
  return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
