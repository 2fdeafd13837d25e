/* Device memory of the state: workspaces and tile counters, one for each stream (while it is captured, one for the
 * capture), so that calls on different streams never share one. */
#include "cuda/state.h"

#include <stdlib.h>

#define COUNTERS_PER_PAGE 16384 /* 64 KB */
#define WORKSPACE_ROUND   ((size_t)1 << 20)

static glint_status find_owner(const glint_cuda *cuda, CUstream stream, glint_owner *owner, glint_error *error) {
  int capture = CU_STREAM_CAPTURE_STATUS_NONE;
  *owner = (glint_owner){0};
  glint_status status =
      GLINT_DRIVER_CALL(&cuda->driver, error, cuStreamGetCaptureInfo, (stream, &capture, &owner->capture, NULL, NULL, NULL));
  if (status != GLINT_OK) return status;
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    owner->stream = (uintptr_t)stream;
    return GLINT_OK;
  }
  owner->capture = 0;
  return GLINT_DRIVER_CALL(&cuda->driver, error, cuStreamGetId, (stream, &owner->stream));
}

static glint_block *find(glint_block *list, int device, glint_owner owner, size_t bytes) {
  for (; list; list = list->next)
    if (list->device == device && list->owner.stream == owner.stream && list->owner.capture == owner.capture && list->bytes >= bytes)
      return list;
  return NULL;
}

static glint_status add(glint_block **list, int device, glint_owner owner, CUdeviceptr address, size_t bytes, glint_error *error) {
  glint_block *block = malloc(sizeof *block);
  if (!block) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for a list entry");
  *block = (glint_block){*list, device, owner, address, bytes};
  *list = block;
  return GLINT_OK;
}

/* Outgrown workspaces stay: sizes double, so all of them together are at most twice the largest. */
static glint_status grow(glint_cuda *cuda, const glint_scope *scope, glint_owner owner, size_t bytes, void **workspace,
                         glint_error *error) {
  glint_block *block = find(cuda->workspaces, scope->device, owner, bytes);
  if (!block) {
    size_t size = WORKSPACE_ROUND;
    while (size < bytes) {
      if (size > SIZE_MAX / 2) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "a workspace of %zu bytes", bytes);
      size *= 2;
    }
    CUdeviceptr address;
    glint_status status = GLINT_DRIVER_CALL(&cuda->driver, error, cuMemAlloc, (&address, size));
    if (status != GLINT_OK) return status;
    status = add(&cuda->workspaces, scope->device, owner, address, size, error);
    if (status != GLINT_OK) {
      cuda->driver.cuMemFree(address);
      return status;
    }
    block = cuda->workspaces;
  }
  *workspace = (void *)(uintptr_t)block->address;
  return GLINT_OK;
}

glint_status glint_cuda_workspace(glint_cuda *cuda, const glint_scope *scope, CUstream stream, size_t bytes, void **workspace,
                                  glint_error *error) {
  glint_owner owner;
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  glint_status status = find_owner(cuda, stream, &owner, error);
  if (status != GLINT_OK) return status;
  pthread_mutex_lock(&cuda->lock);
  cuda->driver.cuThreadExchangeStreamCaptureMode(&mode);
  status = grow(cuda, scope, owner, bytes, workspace, error);
  cuda->driver.cuThreadExchangeStreamCaptureMode(&mode);
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

/* Zeroed on a stream of its own: the null stream may be part of a capture. */
static glint_status new_page(glint_cuda *cuda, int device, glint_error *error) {
  const glint_driver *driver = &cuda->driver;
  const size_t bytes = COUNTERS_PER_PAGE * sizeof(int32_t);
  CUdeviceptr page = 0;
  CUstream stream = NULL;
  glint_status status = GLINT_DRIVER_CALL(driver, error, cuMemAlloc, (&page, bytes));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuMemsetD32Async, (page, 0, COUNTERS_PER_PAGE, stream));
  if (status == GLINT_OK) status = GLINT_DRIVER_CALL(driver, error, cuStreamSynchronize, (stream));
  if (stream) driver->cuStreamDestroy(stream);
  /* a page is owned by the list of workspaces: no device has this number */
  if (status == GLINT_OK) status = add(&cuda->workspaces, -1, (glint_owner){0}, page, bytes, error);
  if (status != GLINT_OK) {
    if (page) driver->cuMemFree(page);
    return status;
  }
  cuda->counter_page[device] = page;
  cuda->counters_left[device] = COUNTERS_PER_PAGE;
  return GLINT_OK;
}

/* A captured call has a counter of its own: a graph may run it beside others of the same capture. */
static glint_status take_counter(glint_cuda *cuda, int device, glint_owner owner, int32_t **counter, glint_error *error) {
  glint_block *block = owner.capture ? NULL : find(cuda->counters, device, owner, 0);
  glint_status status = GLINT_OK;
  if (!block) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (cuda->counters_left[device] == 0) {
      cuda->driver.cuThreadExchangeStreamCaptureMode(&mode);
      status = new_page(cuda, device, error);
      cuda->driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
    if (status != GLINT_OK) return status;
    CUdeviceptr address = cuda->counter_page[device] + 4u * (unsigned)--cuda->counters_left[device];
    *counter = (int32_t *)(uintptr_t)address;
    if (!owner.capture) status = add(&cuda->counters, device, owner, address, 0, error);
    return status;
  }
  *counter = (int32_t *)(uintptr_t)block->address;
  return GLINT_OK;
}

glint_status glint_cuda_counter(glint_cuda *cuda, const glint_scope *scope, CUstream stream, int32_t **counter, glint_error *error) {
  glint_owner owner;
  glint_status status = find_owner(cuda, stream, &owner, error);
  if (status != GLINT_OK) return status;
  pthread_mutex_lock(&cuda->lock);
  status = take_counter(cuda, scope->device, owner, counter, error);
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

static void free_memory(glint_cuda *cuda, CUdeviceptr address) {
  glint_scope scope;
  glint_error ignored;
  if (glint_cuda_enter(cuda, (void *)(uintptr_t)address, &scope, &ignored) != GLINT_OK) return;
  cuda->driver.cuMemFree(address);
  glint_cuda_leave(cuda, &scope);
}

static void free_list(glint_cuda *cuda, glint_block *list, int memory) {
  while (list) {
    glint_block *next = list->next;
    if (memory) free_memory(cuda, list->address);
    free(list);
    list = next;
  }
}

void glint_cuda_free_pools(glint_cuda *cuda) {
  free_list(cuda, cuda->workspaces, 1);
  free_list(cuda, cuda->counters, 0);
}
