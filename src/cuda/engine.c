/* The cuda engine: the table of functions that src/api calls. */
#include "cuda/backward.h"
#include "cuda/family.h"
#include "cuda/launch.h"
#include "cuda/path.h"
#include "cuda/plan.h"
#include "cuda/quantize.h"
#include "cuda/state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static glint_status allocate(const glint_options *options, glint_cuda **cuda, glint_error *error) {
  int variants = 0;
  while (glint_variants[variants].name) variants++;
  glint_cuda *c = calloc(1, sizeof *c);
  *cuda = c;
  if (c) {
    pthread_mutex_init(&c->lock, NULL);
    c->variants = variants;
    c->library = calloc((size_t)variants + 1, sizeof *c->library);
    c->kernel_of = calloc((size_t)variants + 1, sizeof *c->kernel_of);
  }
  if (!c || !c->library || !c->kernel_of) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for the engine's state");
  c->device = options->device;
  c->arch = options->arch;
  if (options->kernel && strlen(options->kernel) >= sizeof c->kernel)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.kernel has %zu characters: expected at most %zu",
                      strlen(options->kernel), sizeof c->kernel - 1);
  snprintf(c->kernel, sizeof c->kernel, "%s", options->kernel ? options->kernel : "");
  return GLINT_OK;
}

glint_status glint_cuda_open(const char *path, const glint_options *options, void **state, glint_error *error) {
  glint_cuda *cuda = NULL;
  *state = NULL;
  glint_status status = allocate(options, &cuda, error);
  if (status == GLINT_OK) status = glint_driver_open(path, &cuda->driver, error);
  if (status == GLINT_OK) status = glint_cuda_find_devices(cuda, error);
  if (status == GLINT_OK && !cuda->driver.simulator && !glint_variants_have_code)
    status = glint_fail(error, GLINT_ERROR_NOT_FOUND, "this library was built without nvcc: it has no GPU code");
  if (status == GLINT_OK && options->device >= cuda->devices)
    status = glint_fail(error, GLINT_ERROR_NOT_FOUND, "options.device is %" PRId32 ": the driver has %d devices", options->device,
                        cuda->devices);
  if (status == GLINT_OK)
    *state = cuda;
  else
    glint_cuda_close(cuda);
  return status;
}

void glint_cuda_close(void *state) {
  glint_cuda *cuda = state;
  if (!cuda) return;
  if (cuda->driver.library) {
    glint_cuda_free_pools(cuda);
    glint_cuda_unload(cuda);
    for (int i = 0; i < cuda->devices; i++)
      if (cuda->primary[i]) cuda->driver.cuDevicePrimaryCtxRelease((CUdevice)i);
  }
  glint_driver_close(&cuda->driver);
  pthread_mutex_destroy(&cuda->lock);
  free(cuda->library);
  free((void *)cuda->kernel_of);
  free(cuda);
}

static glint_status open_cuda(const glint_options *options, void **state, glint_error *error) {
  return glint_cuda_open(glint_cuda_path(), options, state, error);
}

glint_status glint_cuda_engine_plan(void *state, const glint_work *work, glint_plan_info *info, glint_error *error) {
  glint_cuda *cuda = state;
  glint_choice choice = {&cuda->machine[glint_cuda_device_of(cuda, work->q.data)], glint_variants, cuda->arch, cuda->kernel};
  int variant;
  if (work->pass == GLINT_PASS_BACKWARD) return glint_backward_plan(&choice, work, info, error);
  return glint_cuda_plan(&choice, work, &variant, info, error);
}

glint_status glint_cuda_engine_run(void *state, const glint_work *work, const glint_plan_info *info, void *workspace, glint_error *error) {
  return glint_cuda_run(state, work, info, workspace, error);
}

/* Which device needs the workspace only run can tell, from the tensors: it takes one where none is given. */
glint_status glint_cuda_engine_reserve(void *state, size_t bytes, void *stream, void **workspace, glint_error *error) {
  (void)state, (void)bytes, (void)stream, (void)error;
  *workspace = NULL;
  return GLINT_OK;
}

/* *length counts what the whole text has. */
void glint_append(char *text, size_t size, size_t *length, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text && *length < size ? text + *length : NULL, text && *length < size ? size - *length : 0, format, arguments);
  va_end(arguments);
  if (written > 0) *length += (size_t)written;
}

static void describe_code(char *text, size_t size, size_t *length) {
  size_t bytes = 0;
  int rows = 0;
  for (; glint_variants[rows].name; rows++) bytes += (size_t)(glint_variants[rows].code_end - glint_variants[rows].code);
  if (glint_variants_have_code)
    glint_append(text, size, length, "cuda: %d kernels in this library, %zu bytes of GPU code\n", rows, bytes);
  else
    glint_append(text, size, length, "cuda: no GPU code in this library: built without nvcc\n");
}

void glint_cuda_describe_devices(const glint_cuda *cuda, const char *prefix, char *text, size_t size, size_t *length) {
  glint_append(text, size, length, "%s: driver %s, CUDA %d.%d\n", prefix, cuda->driver.path, cuda->driver.version / 1000,
               cuda->driver.version % 1000 / 10);
  for (int i = 0; i < cuda->devices; i++) {
    const glint_machine *m = &cuda->machine[i];
    glint_append(text, size, length,
                 "%s: device %d: %s, sm_%d, %d SMs, %.1f GB, %" PRId64 " KB shared memory a block, %" PRId64
                 " MB L2, %.0f TFLOP/s 16-bit, %.2f TB/s\n",
                 prefix, i, m->name, (int)m->compute, (int)m->multiprocessors, (double)m->memory_bytes / 1e9, m->shared_per_block / 1024,
                 m->l2_bytes >> 20, m->flops_16bit / 1e12, m->bytes_per_second / 1e12);
  }
}

static size_t describe(void *state, char *text, size_t size) {
  static const glint_options defaults = {.struct_size = sizeof defaults};
  size_t length = 0;
  void *own = NULL;
  glint_error error = {""};
  describe_code(text, size, &length);
  if (!state && open_cuda(&defaults, &own, &error) != GLINT_OK)
    glint_append(text, size, &length, "cuda: not usable: %s\n", error.text);
  else
    glint_cuda_describe_devices(state ? state : own, "cuda", text, size, &length);
  if (own) glint_cuda_close(own);
  return length;
}

const glint_engine_vtable glint_engine_cuda = {GLINT_ENGINE_CUDA,
                                               "cuda",
                                               0,
                                               open_cuda,
                                               glint_cuda_close,
                                               glint_cuda_engine_plan,
                                               glint_cuda_engine_run,
                                               glint_cuda_engine_reserve,
                                               describe,
                                               glint_cuda_quantize_workspace,
                                               glint_cuda_quantize};
