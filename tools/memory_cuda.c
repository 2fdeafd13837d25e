/* Memory of a GPU for the command: that of options.device. */
#include "memory_cuda.h"

#include "cuda/memory.h"

static glint_status allocate(void *state, size_t bytes, void **data, glint_error *error) {
  return glint_device_alloc(state, bytes, data, error);
}

static void release(void *state, void *data) {
  glint_error ignored;
  glint_device_free(state, data, &ignored);
}

static glint_status upload(void *state, void *to, const void *from, size_t bytes, glint_error *error) {
  return glint_device_upload(state, to, from, bytes, error);
}

static glint_status download(void *state, void *to, const void *from, size_t bytes, glint_error *error) {
  return glint_device_download(state, to, from, bytes, error);
}

static glint_status synchronize(void *state, glint_error *error) { return glint_device_synchronize(state, error); }

static void close_memory(void *state) { glint_device_memory_close(state); }

glint_status memory_open_cuda(const glint_options *options, memory *m, glint_error *error) {
  glint_device_memory *state;
  glint_status status = glint_device_memory_open(options->device, &state, error);
  if (status == GLINT_OK) *m = (memory){0, state, allocate, release, upload, download, synchronize, close_memory};
  return status;
}
