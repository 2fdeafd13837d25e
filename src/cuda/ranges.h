/* What the simulator must know of host memory: its kernels may touch nothing else. */
#ifndef GLINT_CUDA_RANGES_H
#define GLINT_CUDA_RANGES_H

#include "cuda/simulator.h"
#include "work.h"

/* Bytes from a view's first element to its last, both included; 0 for one without elements. */
size_t glint_view_bytes(const glint_view *view);

/* Names every tensor of the problem, and a workspace that the caller gave, for the calling thread's next launch. */
void glint_simulator_ranges(const glint_sim_interface *simulator, const glint_work *work, const void *workspace, size_t workspace_bytes);

#endif
