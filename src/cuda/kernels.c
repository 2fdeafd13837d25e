/* Kernels come to the GPU when they are first used. cuLibraryLoadData makes them known to every context of the process at once, so nothing
 * here depends on which context is current. */
#include "cuda/state.h"

#include <string.h>

int glint_variant_index(const char *name) {
  for (int i = 0; glint_variants[i].name; i++)
    if (strcmp(glint_variants[i].name, name) == 0) return i;
  return -1;
}

/* Loading allocates, which a capturing stream forbids unless the thread says that it knows what it does. */
static void allow_during_capture(const glint_driver *driver, int *mode) { driver->cuThreadExchangeStreamCaptureMode(mode); }

/* The kernels read global memory past L1, so shared memory may have all that the two divide: room for the blocks that the plan counts on. */
static glint_status allow_shared_memory(const glint_cuda *cuda, const glint_variant *v, CUkernel kernel, glint_error *error) {
  glint_status status = GLINT_OK;
  for (int i = 0; status == GLINT_OK && i < cuda->devices; i++) {
    if (v->shared_bytes > cuda->machine[i].shared_per_block) continue;
    status = GLINT_DRIVER_CALL(&cuda->driver, error, cuKernelSetAttribute,
                               (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)v->shared_bytes, kernel, (CUdevice)i));
    if (status == GLINT_OK)
      status = GLINT_DRIVER_CALL(&cuda->driver, error, cuKernelSetAttribute,
                                 (CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100, kernel, (CUdevice)i));
  }
  return status;
}

static glint_status load(glint_cuda *cuda, int index, CUkernel *kernel, glint_error *error) {
  const glint_driver *driver = &cuda->driver;
  const glint_variant *v = &glint_variants[index];
  const void *code = driver->simulator ? (const void *)v->name : v->code;
  if (!code) return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "this library was built without nvcc: it has no GPU code");
  CUfunction function;
  glint_status status = GLINT_OK;
  if (!cuda->library[index])
    status = GLINT_DRIVER_CALL(driver, error, cuLibraryLoadData, (&cuda->library[index], code, NULL, NULL, 0, NULL, NULL, 0));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuLibraryGetKernel, (kernel, cuda->library[index], v->name));
  if (status == GLINT_OK) status = allow_shared_memory(cuda, v, *kernel, error);
  /* brings the code into the current context now, rather than inside a capture */
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuKernelGetFunction, (&function, *kernel));
  return status;
}

glint_status glint_cuda_kernel(glint_cuda *cuda, int variant, CUkernel *kernel, glint_error *error) {
  *kernel = atomic_load_explicit(&cuda->kernel_of[variant], memory_order_acquire);
  if (*kernel) return GLINT_OK;
  glint_status status = GLINT_OK;
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  pthread_mutex_lock(&cuda->lock);
  *kernel = atomic_load_explicit(&cuda->kernel_of[variant], memory_order_relaxed);
  if (!*kernel) {
    allow_during_capture(&cuda->driver, &mode);
    status = load(cuda, variant, kernel, error);
    allow_during_capture(&cuda->driver, &mode);
    if (status == GLINT_OK) atomic_store_explicit(&cuda->kernel_of[variant], *kernel, memory_order_release);
  }
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

void glint_cuda_unload(glint_cuda *cuda) {
  for (int i = 0; i < cuda->variants; i++)
    if (cuda->library[i]) cuda->driver.cuLibraryUnload(cuda->library[i]);
}
