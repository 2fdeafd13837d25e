/* GPUs of the driver, and the way onto one of them and back. */
#include "cuda/state.h"

#include <string.h>

double glint_machine_flops_per_clock(int32_t compute) {
  switch (compute) {
  case 80: return 2048;
  case 86:
  case 89: return 1024;
  case 90: return 4096;
  case 100:
  case 103: return 8192;
  case 120: return 1024;
  default: return 0;
  }
}

static glint_status read_machine(const glint_driver *driver, int ordinal, glint_machine *m, glint_error *error) {
  CUdevice device;
  int major = 0, minor = 0, clock = 0, memory_clock = 0, bus = 0, l2 = 0, shared_sm = 0, shared_block = 0;
  const struct {
    int attribute;
    int *value;
  } wanted[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
                {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
                {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &clock},
                {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &memory_clock},
                {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &bus},
                {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared_sm},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_block},
                {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &m->multiprocessors},
                {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &m->threads_per_sm},
                {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &m->registers_per_sm}};
  glint_status status = GLINT_DRIVER_CALL(driver, error, cuDeviceGet, (&device, ordinal));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuDeviceGetName, (m->name, sizeof m->name, device));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuDeviceTotalMem, (&m->memory_bytes, device));
  for (size_t i = 0; status == GLINT_OK && i < sizeof wanted / sizeof wanted[0]; i++)
    status = GLINT_DRIVER_CALL(driver, error, cuDeviceGetAttribute, (wanted[i].value, wanted[i].attribute, device));
  m->compute = 10 * major + minor;
  m->shared_per_sm = shared_sm;
  m->shared_per_block = shared_block;
  m->l2_bytes = l2;
  m->flops_16bit = glint_machine_flops_per_clock(m->compute) * m->multiprocessors * clock * 1e3;
  m->bytes_per_second = 2.0 * memory_clock * 1e3 * bus / 8; /* two transfers a clock */
  return status;
}

glint_status glint_cuda_find_devices(glint_cuda *cuda, glint_error *error) {
  glint_status status = GLINT_DRIVER_CALL(&cuda->driver, error, cuDeviceGetCount, (&cuda->devices));
  if (status != GLINT_OK) return status;
  if (cuda->devices > GLINT_MAX_DEVICES) cuda->devices = GLINT_MAX_DEVICES;
  if (cuda->devices == 0) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s finds no GPU", cuda->driver.path);
  for (int i = 0; status == GLINT_OK && i < cuda->devices; i++) status = read_machine(&cuda->driver, i, &cuda->machine[i], error);
  return status;
}

/* -1: the thread has no context, or one of a device beyond those counted. */
static int current_device(const glint_cuda *cuda) {
  CUcontext context = NULL;
  CUdevice device;
  if (cuda->driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return -1; /* before a call that would fail: tools report those */
  return cuda->driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 && device < cuda->devices ? device : -1;
}

int glint_cuda_device_of(const glint_cuda *cuda, const void *pointer) {
  int device = -1;
  if (cuda->only_device) return cuda->device;
  if (pointer &&
      cuda->driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)pointer) == CUDA_SUCCESS &&
      device >= 0 && device < cuda->devices)
    return device;
  device = current_device(cuda);
  return device >= 0 ? device : cuda->device;
}

static glint_status primary_context(glint_cuda *cuda, int device, CUcontext *context, glint_error *error) {
  glint_status status = GLINT_OK;
  pthread_mutex_lock(&cuda->lock);
  if (!cuda->primary[device])
    status = GLINT_DRIVER_CALL(&cuda->driver, error, cuDevicePrimaryCtxRetain, (&cuda->primary[device], (CUdevice)device));
  *context = cuda->primary[device];
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

glint_status glint_cuda_enter(glint_cuda *cuda, const void *pointer, glint_scope *scope, glint_error *error) {
  scope->device = glint_cuda_device_of(cuda, pointer);
  scope->pushed = 0;
  if (current_device(cuda) == scope->device) return GLINT_OK;
  CUcontext context = NULL;
  glint_status status = GLINT_OK;
  if (!pointer ||
      cuda->driver.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)pointer) != CUDA_SUCCESS)
    context = NULL;
  if (!context) status = primary_context(cuda, scope->device, &context, error);
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(&cuda->driver, error, cuCtxPushCurrent, (context));
  scope->pushed = status == GLINT_OK;
  return status;
}

void glint_cuda_leave(glint_cuda *cuda, const glint_scope *scope) {
  CUcontext context;
  if (scope->pushed) cuda->driver.cuCtxPopCurrent(&context);
}
