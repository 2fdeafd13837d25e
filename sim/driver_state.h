/* Inside the stand-in driver: state that its files share. */
#ifndef GLINT_SIM_DRIVER_STATE_H
#define GLINT_SIM_DRIVER_STATE_H

#include "cuda/driver.h"
#include "cuda/simulator.h"
#include "sim.h"

#include <pthread.h>

#define SIM_DEVICES 4
#define SIM_EXPORT  __attribute__((visibility("default")))
#define SIM_KEPT    64   /* launches of one capture */
#define SIM_PARAMS  4096 /* bytes of kernel parameters at most, as on the GPUs modelled */
#define SIM_RANGES  64

#define SIM_PROTOTYPE(name, symbol, parameters) SIM_EXPORT CUresult symbol parameters;
GLINT_DRIVER_FUNCTIONS(SIM_PROTOTYPE)
GLINT_DRIVER_GRAPH_FUNCTIONS(SIM_PROTOTYPE)
#undef SIM_PROTOTYPE

typedef struct sim_gpu {
  uint32_t arch;
  const char *name;
  sim_device *model;
  pthread_mutex_t lock; /* of the model: it serves one thread at a time */
} sim_gpu;
extern sim_gpu sim_gpus[SIM_DEVICES];

struct CUctx_st {
  int device;
};

struct CUkern_st {
  const sim_kernel *kernel;
  int shared[SIM_DEVICES]; /* dynamic bytes allowed */
};

typedef struct sim_kept_launch {
  CUkernel kernel;
  int device;
  u32 grid[3], threads, shared_bytes;
  _Alignas(64) unsigned char params[SIM_PARAMS]; /* tensor maps need it */
} sim_kept_launch;

struct CUgraph_st {
  unsigned long long capture; /* its id */
  int invalid;                /* 1: a call was made that a capture does not survive */
  int count;
  sim_kept_launch launches[SIM_KEPT];
};

struct CUstream_st {
  unsigned long long id;
  CUgraph capturing; /* NULL: not capturing */
};

/* driver_faults.c: every function of the API calls it first. Counts the call; returns what was ordered, else CUDA_SUCCESS. */
CUresult sim_enter(const char *function);
#define SIM_ENTER()                                                                                                                        \
  do {                                                                                                                                     \
    CUresult sim_ordered = sim_enter(__func__);                                                                                            \
    if (sim_ordered != CUDA_SUCCESS) return sim_ordered;                                                                                   \
  } while (0)
/* The same for a function that a capture forbids. */
#define SIM_ENTER_UNSAFE()                                                                                                                 \
  do {                                                                                                                                     \
    SIM_ENTER();                                                                                                                           \
    if (sim_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                                                               \
  } while (0)
void sim_fail(const char *function, int result, int after);
int sim_calls(const char *function);
void sim_forget_calls(void);

/* driver.c */
CUcontext sim_context(int device);   /* the device's primary one */
int sim_current_device(void);        /* -1: no context is current */
void sim_set_text(const char *text); /* what cuGetErrorString says to this thread about the next error */

/* driver_streams.c */
CUstream sim_stream(CUstream stream); /* the null stream has an object too */
int sim_capture_forbids(void);

/* driver_memory.c: registers a thread's ranges with a model whose lock is held, and takes them back. */
void sim_launch_ranges(const glint_sim_range *ranges, int count);
CUresult sim_ranges_register(int device);
void sim_ranges_unregister(int device);

/* driver_launch.c */
CUresult sim_run(int device, CUkernel kernel, const u32 grid[3], u32 threads, u32 shared_bytes, const void *params);

#endif
