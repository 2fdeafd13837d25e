/* Runs what the plan chose. */
#ifndef GLINT_CUDA_LAUNCH_H
#define GLINT_CUDA_LAUNCH_H

#include "cuda/state.h"

/* No allocation and no synchronization once the kernel is loaded and the stream has its counter. */
glint_status glint_cuda_run(glint_cuda *cuda, const glint_work *work, const glint_plan_info *plan, void *workspace, glint_error *error);

#endif
