/* Where the driver libraries are looked for. */
#ifndef GLINT_CUDA_PATH_H
#define GLINT_CUDA_PATH_H

#include <stddef.h>

/* The environment variable GLINT_CUDA_LIBRARY, or libcuda.so.1 on the system's search path. */
const char *glint_cuda_path(void);

/* The simulator's driver: the environment variable GLINT_SIM_LIBRARY, or libglint_sim.so near this code's file (beside it, one folder up, in the
 * lib folder of an installation), then near the executable, then on the system's search path. */
void glint_sim_path(char *path, size_t size);

#endif
