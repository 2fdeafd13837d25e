/* Opens the CUDA driver at run time and turns its results into glint's. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MINIMUM_VERSION 12000

static glint_status find_symbols(glint_driver *driver, glint_error *error) {
  static const struct {
    const char *symbol;
    size_t offset;
  } table[] = {
#define ROW(name, symbol, parameters) {#symbol, offsetof(glint_driver, name)},
      GLINT_DRIVER_FUNCTIONS(ROW)
#undef ROW
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    void *address = dlsym(driver->library, table[i].symbol);
    if (!address)
      return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s has no symbol %s: a driver of CUDA %d.%d or newer is needed", driver->path,
                        table[i].symbol, MINIMUM_VERSION / 1000, MINIMUM_VERSION % 1000 / 10);
    memcpy((char *)driver + table[i].offset, &address, sizeof address); /* ISO C has no cast from void * to a function pointer */
  }
  return GLINT_OK;
}

glint_status glint_driver_open(const char *path, glint_driver *driver, glint_error *error) {
  memset(driver, 0, sizeof *driver);
  snprintf(driver->path, sizeof driver->path, "%s", path);
  driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* the driver has threads of its own */
  if (!driver->library) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "no CUDA driver: %s", dlerror());
  glint_status status = find_symbols(driver, error);
  if (status == GLINT_OK) {
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS) {
      glint_driver_result(driver, result, "cuInit", error);
      status = result == CUDA_ERROR_NO_DEVICE ? GLINT_ERROR_NOT_FOUND : GLINT_ERROR_DEVICE;
    }
  }
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuDriverGetVersion, (&driver->version));
  driver->simulator = dlsym(driver->library, "glint_sim_driver");
  if (status != GLINT_OK) glint_driver_close(driver);
  return status;
}

void glint_driver_close(glint_driver *driver) {
  if (driver->library) dlclose(driver->library);
  driver->library = NULL;
}

glint_status glint_driver_result(const glint_driver *driver, CUresult result, const char *call, glint_error *error) {
  if (result == CUDA_SUCCESS) return GLINT_OK;
  const char *name = NULL, *text = NULL;
  driver->cuGetErrorName(result, &name);
  driver->cuGetErrorString(result, &text);
  return glint_fail(error, result == CUDA_ERROR_OUT_OF_MEMORY ? GLINT_ERROR_OUT_OF_MEMORY : GLINT_ERROR_DEVICE, "%s: %s (%d): %s", call,
                    name ? name : "unknown error", result, text ? text : "no text");
}
