/* Memory of the first GPU. */
#include "device_memory.h"

#include "cuda/memory.h"

static glint_device_memory *device;

static void *device_alloc(void *user, size_t bytes) {
  glint_error error;
  void *pointer;
  return glint_device_alloc(user, bytes, &pointer, &error) == GLINT_OK ? pointer : NULL;
}

static void device_free(void *user, void *pointer) {
  glint_error error;
  glint_device_free(user, pointer, &error);
}

static int device_upload(void *user, void *to, const void *from, size_t bytes) {
  glint_error error;
  return glint_device_upload(user, to, from, bytes, &error) == GLINT_OK;
}

static int device_download(void *user, void *to, const void *from, size_t bytes) {
  glint_error error;
  return glint_device_download(user, to, from, bytes, &error) == GLINT_OK;
}

const testkit_memory *device_memory(void) {
  static testkit_memory memory = {NULL, device_alloc, device_free, device_upload, device_download};
  glint_error error;
  if (!device && glint_device_memory_open(0, &device, &error) != GLINT_OK) return NULL;
  memory.user = device;
  return &memory;
}

void device_memory_close(void) {
  glint_device_memory_close(device);
  device = NULL;
}
