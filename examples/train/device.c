/* Host memory, or a GPU's by nine functions of the CUDA driver. */
#include "device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's types as far as they are needed: results are ints (0: success), addresses 64-bit numbers. */
struct device {
  void *library; /* NULL: host memory */
  int number;
  int (*initialize)(unsigned flags);
  int (*get)(int *number, int ordinal);
  int (*retain)(void **context, int number);
  int (*release)(int number);
  int (*set_current)(void *context);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*free)(uint64_t address);
  int (*upload)(uint64_t to, const void *from, size_t bytes);
  int (*download)(void *to, uint64_t from, size_t bytes);
};

static const char *find_functions(device *d) {
  const struct {
    const char *symbol;
    size_t offset;
  } table[] = {
      {"cuInit", offsetof(device, initialize)},
      {"cuDeviceGet", offsetof(device, get)},
      {"cuDevicePrimaryCtxRetain", offsetof(device, retain)},
      {"cuDevicePrimaryCtxRelease_v2", offsetof(device, release)},
      {"cuCtxPushCurrent_v2", offsetof(device, set_current)},
      {"cuMemAlloc_v2", offsetof(device, allocate)},
      {"cuMemFree_v2", offsetof(device, free)},
      {"cuMemcpyHtoD_v2", offsetof(device, upload)},
      {"cuMemcpyDtoH_v2", offsetof(device, download)},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    void *address = dlsym(d->library, table[i].symbol);
    if (!address) return table[i].symbol;
    memcpy((char *)d + table[i].offset, &address, sizeof address); /* ISO C has no cast from an object to a function pointer */
  }
  return NULL;
}

static int open_gpu(device *d, char *error, size_t size) {
  const char *path = getenv("GLINT_CUDA_LIBRARY"); /* the name that glint uses */
  if (!path || !*path) path = "libcuda.so.1";
  d->library = dlopen(path, RTLD_NOW | RTLD_NODELETE);
  if (!d->library) return snprintf(error, size, "no CUDA driver: %s", dlerror()), 0;
  const char *missing = find_functions(d);
  if (missing) return snprintf(error, size, "%s has no %s", path, missing), 0;
  void *context;
  int result = d->initialize(0);
  if (!result) result = d->get(&d->number, 0);
  if (!result) result = d->retain(&context, d->number);
  if (!result) result = d->set_current(context);
  return !result || (snprintf(error, size, "the CUDA driver cannot open the first GPU: error %d", result), 0);
}

device *device_open(int gpu, char *error, size_t size) {
  device *d = calloc(1, sizeof *d);
  if (!d) return snprintf(error, size, "out of memory"), NULL;
  if (!gpu || open_gpu(d, error, size)) return d;
  if (d->library) dlclose(d->library);
  free(d);
  return NULL;
}

void device_close(device *d) {
  if (!d) return;
  if (d->library) {
    d->release(d->number);
    dlclose(d->library);
  }
  free(d);
}

void *device_allocate(device *d, size_t bytes) {
  uint64_t address = 0;
  if (!d->library) return malloc(bytes);
  return d->allocate(&address, bytes) ? NULL : (void *)(uintptr_t)address;
}

void device_release(device *d, void *memory) {
  if (!d->library)
    free(memory);
  else if (memory)
    d->free((uint64_t)(uintptr_t)memory);
}

int device_upload(device *d, void *to, const void *from, size_t bytes) {
  if (d->library) return !d->upload((uint64_t)(uintptr_t)to, from, bytes);
  memcpy(to, from, bytes);
  return 1;
}

int device_download(device *d, void *to, const void *from, size_t bytes) {
  if (d->library) return !d->download(to, (uint64_t)(uintptr_t)from, bytes);
  memcpy(to, from, bytes);
  return 1;
}
