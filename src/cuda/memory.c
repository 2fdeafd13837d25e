/* Device memory for the command, tests and benchmarks. */
#include "cuda/memory.h"
#include "cuda/driver.h"
#include "cuda/path.h"

#include <stdlib.h>

struct glint_device_memory {
  glint_driver driver;
  int device;
  CUcontext context;
};

glint_status glint_device_memory_open(int device, glint_device_memory **memory, glint_error *error) {
  glint_device_memory *m = calloc(1, sizeof *m);
  *memory = NULL;
  if (!m) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for a device's state");
  m->device = device;
  glint_status status = glint_driver_open(glint_cuda_path(), &m->driver, error);
  if (status == GLINT_OK) {
    status = GLINT_DRIVER_CALL(&m->driver, error, cuDevicePrimaryCtxRetain, (&m->context, (CUdevice)device));
    if (status != GLINT_OK) glint_driver_close(&m->driver);
  }
  if (status == GLINT_OK)
    *memory = m;
  else
    free(m);
  return status;
}

void glint_device_memory_close(glint_device_memory *m) {
  if (!m) return;
  m->driver.cuDevicePrimaryCtxRelease((CUdevice)m->device);
  glint_driver_close(&m->driver);
  free(m);
}

/* status of one call with the device's context current around it */
static glint_status push(glint_device_memory *m, glint_error *error) {
  return GLINT_DRIVER_CALL(&m->driver, error, cuCtxPushCurrent, (m->context));
}

static glint_status pop(glint_device_memory *m, glint_status status) {
  CUcontext context;
  m->driver.cuCtxPopCurrent(&context);
  return status;
}

glint_status glint_device_alloc(glint_device_memory *m, size_t bytes, void **pointer, glint_error *error) {
  CUdeviceptr address = 0;
  glint_status status = push(m, error);
  if (status != GLINT_OK) return status;
  status = pop(m, GLINT_DRIVER_CALL(&m->driver, error, cuMemAlloc, (&address, bytes ? bytes : 1)));
  *pointer = (void *)(uintptr_t)address;
  return status;
}

glint_status glint_device_free(glint_device_memory *m, void *pointer, glint_error *error) {
  if (!pointer) return GLINT_OK;
  glint_status status = push(m, error);
  if (status != GLINT_OK) return status;
  return pop(m, GLINT_DRIVER_CALL(&m->driver, error, cuMemFree, ((CUdeviceptr)(uintptr_t)pointer)));
}

glint_status glint_device_upload(glint_device_memory *m, void *to, const void *from, size_t bytes, glint_error *error) {
  if (bytes == 0) return GLINT_OK;
  glint_status status = push(m, error);
  if (status != GLINT_OK) return status;
  status = GLINT_DRIVER_CALL(&m->driver, error, cuMemcpyHtoD, ((CUdeviceptr)(uintptr_t)to, from, bytes));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(&m->driver, error, cuCtxSynchronize, ());
  return pop(m, status);
}

glint_status glint_device_download(glint_device_memory *m, void *to, const void *from, size_t bytes, glint_error *error) {
  glint_status status = push(m, error);
  if (status != GLINT_OK) return status;
  status = GLINT_DRIVER_CALL(&m->driver, error, cuCtxSynchronize, ());
  if (status == GLINT_OK && bytes) status = GLINT_DRIVER_CALL(&m->driver, error, cuMemcpyDtoH, (to, (CUdeviceptr)(uintptr_t)from, bytes));
  return pop(m, status);
}

glint_status glint_device_synchronize(glint_device_memory *m, glint_error *error) {
  glint_status status = push(m, error);
  if (status != GLINT_OK) return status;
  return pop(m, GLINT_DRIVER_CALL(&m->driver, error, cuCtxSynchronize, ()));
}
