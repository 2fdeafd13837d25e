/* Timing on a GPU by the driver's events. */
#include "gpu_clock.h"

#include "cuda/driver.h"
#include "cuda/path.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_CLOCKS 400000ull /* about 0.2 ms: longer than any call takes to queue */

/* Waits so many clocks. PTX, so that no compiler is needed here: the driver's own takes it. */
static const char spin_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 clocks) {\n"
    "  .reg .u64 t<5>;\n  .reg .pred p;\n"
    "  ld.param.u64 t1, [clocks];\n  mov.u64 t2, %clock64;\n"
    "again:\n  mov.u64 t3, %clock64;\n  sub.u64 t4, t3, t2;\n  setp.lt.u64 p, t4, t1;\n  @p bra again;\n  ret;\n}\n";

struct gpu_clock {
  glint_driver driver;
  CUresult (*event_create)(CUevent *event, unsigned flags);
  CUresult (*event_record)(CUevent event, CUstream stream);
  CUresult (*event_synchronize)(CUevent event);
  CUresult (*event_elapsed)(float *milliseconds, CUevent from, CUevent to);
  CUresult (*event_destroy)(CUevent event);
  CUcontext context;
  int device;
  CUevent from, to;
  CUlibrary library;
  CUkernel spin;
};

static glint_status find(gpu_clock *c, const char *symbol, void *function, glint_error *error) {
  void *address = dlsym(c->driver.library, symbol);
  if (!address) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s has no symbol %s", c->driver.path, symbol);
  memcpy(function, &address, sizeof address);
  return GLINT_OK;
}

static glint_status start(gpu_clock *c, glint_error *error) {
  const struct {
    const char *symbol;
    void *function;
  } wanted[] = {{"cuEventCreate", &c->event_create},
                {"cuEventRecord", &c->event_record},
                {"cuEventSynchronize", &c->event_synchronize},
                {"cuEventElapsedTime", &c->event_elapsed},
                {"cuEventDestroy_v2", &c->event_destroy}};
  glint_status status = GLINT_OK;
  for (size_t i = 0; status == GLINT_OK && i < sizeof wanted / sizeof wanted[0]; i++)
    status = find(c, wanted[i].symbol, wanted[i].function, error);
  const glint_driver *driver = &c->driver;
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuDevicePrimaryCtxRetain, (&c->context, (CUdevice)c->device));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuCtxPushCurrent, (c->context));
  if (status == GLINT_OK)
    status = GLINT_DRIVER_CALL(driver, error, cuLibraryLoadData, (&c->library, spin_ptx, NULL, NULL, 0, NULL, NULL, 0));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuLibraryGetKernel, (&c->spin, c->library, "spin"));
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_create(&c->from, 0), "cuEventCreate", error);
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_create(&c->to, 0), "cuEventCreate", error);
  return status;
}

glint_status gpu_clock_open(int device, gpu_clock **clock, glint_error *error) {
  gpu_clock *c = calloc(1, sizeof *c);
  *clock = NULL;
  if (!c) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for a clock");
  c->device = device;
  glint_status status = glint_driver_open(glint_cuda_path(), &c->driver, error);
  if (status == GLINT_OK) {
    status = start(c, error);
    if (status != GLINT_OK) glint_driver_close(&c->driver);
  }
  if (status == GLINT_OK)
    *clock = c;
  else
    free(c);
  return status;
}

void gpu_clock_close(gpu_clock *c) {
  CUcontext context;
  if (!c) return;
  c->event_destroy(c->from);
  c->event_destroy(c->to);
  c->driver.cuLibraryUnload(c->library);
  c->driver.cuCtxPopCurrent(&context);
  c->driver.cuDevicePrimaryCtxRelease((CUdevice)c->device);
  glint_driver_close(&c->driver);
  free(c);
}

glint_status gpu_clock_time(gpu_clock *c, glint_status (*call)(void *user), void *user, double *milliseconds, glint_error *error) {
  const glint_driver *driver = &c->driver;
  unsigned long long clocks = SPIN_CLOCKS;
  void *parameters[] = {&clocks};
  const CUlaunchConfig one = {.grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
  float elapsed = 0;
  glint_status status = GLINT_DRIVER_CALL(driver, error, cuLaunchKernelEx, (&one, (CUfunction)(void *)c->spin, parameters, NULL));
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_record(c->from, NULL), "cuEventRecord", error);
  if (status == GLINT_OK) {
    status = call(user);
    if (status != GLINT_OK) return glint_fail(error, status, "the call that is timed failed");
  }
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_record(c->to, NULL), "cuEventRecord", error);
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_synchronize(c->to), "cuEventSynchronize", error);
  if (status == GLINT_OK) status = glint_driver_result(driver, c->event_elapsed(&elapsed, c->from, c->to), "cuEventElapsedTime", error);
  *milliseconds = (double)elapsed;
  return status;
}
