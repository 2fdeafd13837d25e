/* A stand-in for NVIDIA's libcuda over the simulator, as far as glint's cuda engine calls it: devices, contexts, errors. Declarations come
 * from src/cuda/driver.h, so that the two cannot drift apart. */
#include "driver_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION      12000
#define DEPTH        16 /* contexts pushed by one thread */
#define MEMORY_BYTES ((size_t)8 << 30)

sim_gpu sim_gpus[SIM_DEVICES] = {{.arch = 90, .name = "glint simulator of sm_90a", .lock = PTHREAD_MUTEX_INITIALIZER},
                                 {.arch = 80, .name = "glint simulator of sm_80", .lock = PTHREAD_MUTEX_INITIALIZER},
                                 {.arch = 86, .name = "glint simulator of sm_86", .lock = PTHREAD_MUTEX_INITIALIZER},
                                 {.arch = 89, .name = "glint simulator of sm_89", .lock = PTHREAD_MUTEX_INITIALIZER}};
static struct CUctx_st primary[SIM_DEVICES] = {{0}, {1}, {2}, {3}};
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;
static _Thread_local char text[400];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_modes(uint32_t modes, uint64_t seed) {
  for (int i = 0; i < SIM_DEVICES; i++) {
    pthread_mutex_lock(&sim_gpus[i].lock);
    if (sim_gpus[i].model) sim_set_modes(sim_gpus[i].model, modes, seed);
    pthread_mutex_unlock(&sim_gpus[i].lock);
  }
}

static sim_device *model_of(int ordinal) { return ordinal >= 0 && ordinal < SIM_DEVICES ? sim_gpus[ordinal].model : NULL; }

static const sim_report *report(int ordinal) {
  sim_device *model = model_of(ordinal);
  return model ? sim_get_report(model) : NULL;
}

static void reset_report(int ordinal) {
  sim_device *model = model_of(ordinal);
  if (model) sim_reset_report(model);
}

static void skip(int ordinal, const sim_place *place) {
  sim_device *model = model_of(ordinal);
  if (model) sim_skip(model, place);
}

SIM_EXPORT const glint_sim_interface glint_sim_driver = {sim_launch_ranges, report,    reset_report,    set_modes, skip,
                                                         sim_fail,          sim_calls, sim_forget_calls};

static uint64_t number_from(const char *variable, uint64_t otherwise) {
  const char *value = getenv(variable);
  return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static void order_from_environment(void) {
  char function[64];
  int result, after;
  const char *order = getenv("GLINT_SIM_FAIL");
  if (order && sscanf(order, "%63[^:]:%d:%d", function, &result, &after) == 3) sim_fail(function, result, after);
}

static void start(void) {
  for (int i = 0; i < SIM_DEVICES; i++) {
    sim_config config = {.arch = sim_gpus[i].arch,
                         .modes = (u32)number_from("GLINT_SIM_MODES", SIM_ALL_MODES - 1),
                         .seed = number_from("GLINT_SIM_SEED", 1)};
    sim_gpus[i].model = sim_open(&config);
  }
  order_from_environment();
}

void sim_set_text(const char *words) { snprintf(text, sizeof text, "%s", words); }

CUcontext sim_context(int device) { return &primary[device]; }

int sim_current_device(void) { return depth ? stack[depth - 1]->device : -1; }

CUresult cuInit(unsigned flags) {
  pthread_once(&once, start);
  SIM_ENTER();
  for (int i = 0; i < SIM_DEVICES; i++)
    if (!sim_gpus[i].model) return CUDA_ERROR_OUT_OF_MEMORY;
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  SIM_ENTER();
  *version = VERSION;
  return CUDA_SUCCESS;
}

static const struct {
  CUresult result;
  const char *name, *words;
} errors[] = {{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
              {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
              {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
              {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
              {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
              {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context is current"},
              {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
              {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
              {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "launch failed"},
              {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted when a stream is capturing"},
              {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier call ended the capture"}};
#define ERRORS (sizeof errors / sizeof errors[0])

CUresult cuGetErrorName(CUresult result, const char **name) {
  *name = NULL;
  for (size_t i = 0; i < ERRORS; i++)
    if (errors[i].result == result) *name = errors[i].name;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **words) {
  static _Thread_local char said[sizeof text];
  *words = NULL;
  for (size_t i = 0; i < ERRORS; i++)
    if (errors[i].result == result) *words = errors[i].words;
  if (*text) {
    memcpy(said, text, sizeof said);
    *text = 0;
    *words = said;
  }
  return *words ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) {
  SIM_ENTER();
  *count = SIM_DEVICES;
  return CUDA_SUCCESS;
}

static int is_device(CUdevice device) { return device >= 0 && device < SIM_DEVICES; }

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  SIM_ENTER();
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  SIM_ENTER();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, (size_t)size, "%s", sim_gpus[device].name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  SIM_ENTER();
  *bytes = MEMORY_BYTES;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Clock rates are 0: a model has no speed. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  SIM_ENTER();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int arch = (int)sim_gpus[device].arch;
  const int shared = (int)sim_smem_limit(sim_gpus[device].arch);
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = arch / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = arch % 10; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = (int)number_from("GLINT_SIM_SMS", sim_sm_count()); break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = shared; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = shared + 1024; break;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = arch == 80 || arch == 90 ? 2048 : 1536; break;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 0; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  SIM_ENTER();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &primary[device];
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIM_ENTER();
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  SIM_ENTER();
  *context = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  SIM_ENTER();
  *device = sim_current_device();
  return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIM_ENTER();
  if (depth == DEPTH || !context) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  SIM_ENTER();
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack[--depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  SIM_ENTER_UNSAFE();
  return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
