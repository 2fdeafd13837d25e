/* The CUDA engine's state, shared by the files of this folder. One state serves every device of the process's driver. */
#ifndef GLINT_CUDA_STATE_H
#define GLINT_CUDA_STATE_H

#include "cuda/driver.h"
#include "cuda/machine.h"
#include "cuda/variant.h"

#include <pthread.h>
#include <stdatomic.h>

#define GLINT_MAX_DEVICES 32

/* Whose work is in order by itself. While a stream is captured its id must not be asked for, which would end the capture: then it is the
 * capture's own id, with the stream's handle, since a capture may spread over several streams. */
typedef struct glint_owner {
  unsigned long long stream;  /* cuStreamGetId: unlike a handle, never used twice */
  unsigned long long capture; /* 0: none */
} glint_owner;

/* Device memory that belongs to the state: a workspace or a tile counter of one owner. Never freed or moved before the state is closed,
 * because a captured graph may hold its address. */
typedef struct glint_block {
  struct glint_block *next;
  int device;
  glint_owner owner;
  CUdeviceptr address;
  size_t bytes;
} glint_block;

typedef struct glint_cuda {
  glint_driver driver;
  int devices;
  glint_machine machine[GLINT_MAX_DEVICES];
  int device;                           /* used when no context is current and no pointer tells */
  int only_device;                      /* 1: that device and no other, whatever is current (the simulator) */
  int32_t arch;                         /* options.arch; 0: best */
  char kernel[96];                      /* options.kernel: prefix of the names allowed; "" for all */
  pthread_mutex_t lock;                 /* guards everything below but the atomics */
  CUcontext primary[GLINT_MAX_DEVICES]; /* retained when first needed */
  int variants;
  CUlibrary *library;           /* by variant; NULL: not loaded yet */
  _Atomic(CUkernel) *kernel_of; /* by variant; set once, after library and attributes are ready */
  glint_block *workspaces, *counters;
  CUdeviceptr counter_page[GLINT_MAX_DEVICES]; /* zeroed ints from which counters are handed out */
  int counters_left[GLINT_MAX_DEVICES];
} glint_cuda;

/* ---- device.c ---- */

glint_status glint_cuda_find_devices(glint_cuda *cuda, glint_error *error);

/* A call's stay on a device: enter makes a context of the pointer's device current, unless one is already; leave restores. */
typedef struct glint_scope {
  int device;
  int pushed;
} glint_scope;
/* pointer NULL or unknown to the driver: the current context's device, or cuda->device when there is none. */
glint_status glint_cuda_enter(glint_cuda *cuda, const void *pointer, glint_scope *scope, glint_error *error);
void glint_cuda_leave(glint_cuda *cuda, const glint_scope *scope);

/* The device that enter would choose; touches no context. */
int glint_cuda_device_of(const glint_cuda *cuda, const void *pointer);

/* ---- kernels.c ---- */

/* The kernel of a variant, loaded at first use. Inside a scope. */
glint_status glint_cuda_kernel(glint_cuda *cuda, int variant, CUkernel *kernel, glint_error *error);
void glint_cuda_unload(glint_cuda *cuda);

/* ---- pool.c ---- */

/* At least bytes of device memory that only this stream uses. Inside a scope. */
glint_status glint_cuda_workspace(glint_cuda *cuda, const glint_scope *scope, CUstream stream, size_t bytes, void **workspace,
                                  glint_error *error);
/* An int that is 0 between the calls of this stream; a captured call gets one of its own. Inside a scope. */
glint_status glint_cuda_counter(glint_cuda *cuda, const glint_scope *scope, CUstream stream, int32_t **counter, glint_error *error);
void glint_cuda_free_pools(glint_cuda *cuda);

/* ---- engine.c ---- */

/* The engine on the driver library at path: what the cuda and the sim engine have in common. */
glint_status glint_cuda_open(const char *path, const glint_options *options, void **state, glint_error *error);
void glint_cuda_close(void *state);
glint_status glint_cuda_engine_plan(void *state, const glint_work *work, glint_plan_info *info, glint_error *error);
glint_status glint_cuda_engine_run(void *state, const glint_work *work, const glint_plan_info *info, void *workspace, glint_error *error);
glint_status glint_cuda_engine_reserve(void *state, size_t bytes, void *stream, void **workspace, glint_error *error);
/* Appends to text of size bytes as snprintf does; *length is the length of the whole text so far. */
__attribute__((format(printf, 4, 5))) void glint_append(char *text, size_t size, size_t *length, const char *format, ...);
/* Appends a line for each device, prefix first. */
void glint_cuda_describe_devices(const glint_cuda *cuda, const char *prefix, char *text, size_t size, size_t *length);

#endif
