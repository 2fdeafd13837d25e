/* The CUDA driver API, as much of it as glint uses, declared here so that the host code builds without any CUDA installed. Names and
 * numbers are those of NVIDIA's CUDA Driver API manual; suffixes _v2 are the names that the library exports. Needs a driver of CUDA 12.0
 * or newer: kernels are loaded with cuLibraryLoadData, once for all contexts. */
#ifndef GLINT_CUDA_DRIVER_H
#define GLINT_CUDA_DRIVER_H

#include "cuda/simulator.h"
#include "engine.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
};

enum { /* CUdevice_attribute */
       CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
       CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
       CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
       CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};
enum { CU_POINTER_ATTRIBUTE_CONTEXT = 1, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 };
enum { /* CUfunction_attribute */
       CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
       CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9 /* percent of what L1 and shared memory divide */
};
enum {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_STREAM_NON_BLOCKING = 1
};

typedef struct CUlaunchAttribute {
  uint32_t id; /* which member of value counts */
  char pad[4];
  union {
    char pad[64];
    struct {
      uint32_t x, y, z;
    } cluster;
    int32_t programmatic;
  } value;
} CUlaunchAttribute;
enum { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

typedef struct CUlaunchConfig {
  uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  uint32_t attribute_count;
} CUlaunchConfig;

enum { /* cuTensorMapEncodeTiled */
       CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
       CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
       CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
       CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
       CU_TENSOR_MAP_SWIZZLE_NONE = 0,
       CU_TENSOR_MAP_SWIZZLE_32B = 1,
       CU_TENSOR_MAP_SWIZZLE_64B = 2,
       CU_TENSOR_MAP_SWIZZLE_128B = 3,
       CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
       CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
       CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
};

/* X(name, exported symbol, parameters): every function is needed and returns a CUresult. */
#define GLINT_DRIVER_FUNCTIONS(X)                                                                                                          \
  X(cuInit, cuInit, (unsigned flags))                                                                                                      \
  X(cuDriverGetVersion, cuDriverGetVersion, (int *version))                                                                                \
  X(cuGetErrorName, cuGetErrorName, (CUresult result, const char **text))                                                                  \
  X(cuGetErrorString, cuGetErrorString, (CUresult result, const char **text))                                                              \
  X(cuDeviceGetCount, cuDeviceGetCount, (int *count))                                                                                      \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                                                            \
  X(cuDeviceGetName, cuDeviceGetName, (char *name, int size, CUdevice device))                                                             \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                              \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                                              \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                            \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                            \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))                                                                               \
  X(cuCtxGetDevice, cuCtxGetDevice, (CUdevice * device))                                                                                   \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                                                                            \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))                                                                            \
  X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                                            \
  X(cuPointerGetAttribute, cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer))                                       \
  X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                                                      \
  X(cuMemFree, cuMemFree_v2, (CUdeviceptr pointer))                                                                                        \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                                                       \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                                             \
  X(cuMemsetD32Async, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                                   \
  X(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                                                                   \
  X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                                                                \
  X(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                                                           \
  X(cuStreamGetId, cuStreamGetId, (CUstream stream, unsigned long long *id))                                                               \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                                                                                     \
    (CUstream stream, int *status, unsigned long long *id, void **graph, const void **nodes, size_t *count))                               \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode))                                                     \
  X(cuLibraryLoadData, cuLibraryLoadData,                                                                                                  \
    (CUlibrary * library, const void *code, int *options, void **values, unsigned count, int *library_options, void **library_values,      \
     unsigned library_count))                                                                                                              \
  X(cuLibraryUnload, cuLibraryUnload, (CUlibrary library))                                                                                 \
  X(cuLibraryGetKernel, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))                                      \
  X(cuKernelGetFunction, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                                                    \
  X(cuKernelGetAttribute, cuKernelGetAttribute, (int *value, int attribute, CUkernel kernel, CUdevice device))                             \
  X(cuKernelSetAttribute, cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device))                              \
  X(cuLaunchKernelEx, cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))              \
  X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,                                                                                        \
    (void *map, int type, uint32_t rank, void *base, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,                  \
     const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))

/* Graphs: the engine is captured but captures nothing itself, so only tests call these. Same X. */
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
#define GLINT_DRIVER_GRAPH_FUNCTIONS(X)                                                                                                    \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                            \
  X(cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                            \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                  \
  X(cuGraphLaunch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                                               \
  X(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec executable))                                                                      \
  X(cuGraphDestroy, cuGraphDestroy, (CUgraph graph))

typedef struct glint_driver {
  void *library; /* of dlopen */
  char path[256];
  int version; /* 12020: CUDA 12.2 */
  /* The stand-in of sim/driver.c, whose kernels are found by name and need no code; NULL: a real driver. */
  const glint_sim_interface *simulator;
#define GLINT_DRIVER_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
  GLINT_DRIVER_FUNCTIONS(GLINT_DRIVER_MEMBER)
#undef GLINT_DRIVER_MEMBER
} glint_driver;

/* Opens the library at path and finds every symbol; cuInit is called. GLINT_ERROR_NOT_FOUND says what was looked for. */
glint_status glint_driver_open(const char *path, glint_driver *driver, glint_error *error);
void glint_driver_close(glint_driver *driver);

/* GLINT_OK for CUDA_SUCCESS; otherwise OUT_OF_MEMORY or DEVICE with the call's name and the driver's own text. */
glint_status glint_driver_result(const glint_driver *driver, CUresult result, const char *call, glint_error *error);

/* glint_driver_result of one call: GLINT_DRIVER_CALL(driver, error, cuMemFree, (pointer)). */
#define GLINT_DRIVER_CALL(driver, error, name, arguments) glint_driver_result(driver, (driver)->name arguments, #name, error)

#endif
