/* Runs what the plan chose. */
#ifndef GLINT_CUDA_LAUNCH_H
#define GLINT_CUDA_LAUNCH_H

#include "cuda/state.h"

/* No allocation and no synchronization once the kernel is loaded and the stream has its counter. */
glint_status glint_cuda_run(glint_cuda *cuda, const glint_work *work, const glint_plan_info *plan, void *workspace, glint_error *error);

/* Puts a kernel into a stream. behind: it waits by itself (griddepcontrol) for the one before it, so that its launch costs no time. */
typedef struct glint_start {
  CUkernel kernel;
  CUstream stream;
  int64_t grid, threads, shared_bytes;
  int behind;
} glint_start;
glint_status glint_cuda_start(const glint_driver *driver, const glint_start *start, void *params, glint_error *error);

#endif
