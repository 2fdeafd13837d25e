/* Device memory for the command, tests and benchmarks: where a host problem's tensors go before a call of the cuda engine. The library
 * itself needs none of this: its callers own their memory. */
#ifndef GLINT_CUDA_MEMORY_H
#define GLINT_CUDA_MEMORY_H

#include "engine.h"

typedef struct glint_device_memory glint_device_memory;

/* Opens the driver that the cuda engine uses and stands on the primary context of a device. Works from any thread. */
glint_status glint_device_memory_open(int device, glint_device_memory **memory, glint_error *error);
void glint_device_memory_close(glint_device_memory *memory); /* does not free what was allocated; NULL is allowed */

/* At least bytes (0 counts as 1), 256-byte aligned. */
glint_status glint_device_alloc(glint_device_memory *memory, size_t bytes, void **pointer, glint_error *error);
glint_status glint_device_free(glint_device_memory *memory, void *pointer, glint_error *error); /* NULL is allowed */

/* Both are finished when they return; download waits for all work of the device first, and so reports its faults. */
glint_status glint_device_upload(glint_device_memory *memory, void *to, const void *from, size_t bytes, glint_error *error);
glint_status glint_device_download(glint_device_memory *memory, void *to, const void *from, size_t bytes, glint_error *error);
glint_status glint_device_synchronize(glint_device_memory *memory, glint_error *error);

#endif
