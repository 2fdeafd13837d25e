/* Timing on a GPU: events around one call, with the launch's own latency hidden behind a kernel that keeps the GPU busy while the host
 * queues the call. Stands on the primary context of one device, which it makes current for the calling thread. */
#ifndef GLINT_TOOLS_GPU_CLOCK_H
#define GLINT_TOOLS_GPU_CLOCK_H

#include "engine.h"

typedef struct gpu_clock gpu_clock;

glint_status gpu_clock_open(int device, gpu_clock **clock, glint_error *error);
void gpu_clock_close(gpu_clock *clock);

/* Milliseconds between an event before and an event after call(user), both on the null stream. */
glint_status gpu_clock_time(gpu_clock *clock, glint_status (*call)(void *user), void *user, double *milliseconds, glint_error *error);

#endif
