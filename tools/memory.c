/* Memory that an engine reads and writes: placement of whole problems. */
#include "memory.h"

#include "problem.h"

#ifdef GLINT_HAVE_MEMORY_CUDA
#include "memory_cuda.h"
#endif

glint_status memory_open(glint_engine engine, const glint_options *options, memory *m, glint_error *error) {
  *m = (memory){.host = engine != GLINT_ENGINE_CUDA};
  if (m->host) return GLINT_OK;
#ifdef GLINT_HAVE_MEMORY_CUDA
  return memory_open_cuda(options, m, error);
#else
  (void)options;
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "this build of the command cannot copy tensors to a GPU");
#endif
}

void memory_close(memory *m) {
  if (m->close) m->close(m->state);
  *m = (memory){0};
}

glint_status memory_wait(const memory *m, glint_error *error) { return m->host ? GLINT_OK : m->synchronize(m->state, error); }

static size_t bytes_of(const glint_tensor *tensor) {
  size_t bytes = glint_dtype_size(tensor->dtype);
  for (int32_t i = 0; i < tensor->rank; i++) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

/* Every tensor field of a problem, the outputs last. */
static glint_tensor *tensor_at(glint_problem *problem, int i) {
  return i < PROBLEM_INPUTS ? problem_tensor(problem, i) : i == PROBLEM_INPUTS ? &problem->o : &problem->lse;
}
enum { TENSORS = PROBLEM_INPUTS + 2 };

glint_status memory_place(memory *m, const glint_problem *host, placed_problem *placed, glint_error *error) {
  *placed = (placed_problem){.api = *host, .m = m};
  if (m->host) return GLINT_OK;
  for (int i = 0; i < TENSORS; i++) tensor_at(&placed->api, i)->data = NULL;
  for (int i = 0; i < TENSORS; i++) {
    glint_problem source = *host;
    const void *from = tensor_at(&source, i)->data;
    glint_tensor *to = tensor_at(&placed->api, i);
    size_t bytes = from ? bytes_of(to) : 0;
    if (!from) continue;
    glint_status status = m->allocate(m->state, bytes ? bytes : 1, &to->data, error);
    if (status == GLINT_OK && bytes) status = m->upload(m->state, to->data, from, bytes, error);
    if (status == GLINT_OK) continue;
    memory_release(placed);
    return status;
  }
  return GLINT_OK;
}

glint_status memory_fetch(const placed_problem *placed, const glint_problem *host, glint_error *error) {
  const memory *m = placed->m;
  if (m->host) return GLINT_OK;
  glint_status status = m->synchronize(m->state, error);
  if (status == GLINT_OK) status = m->download(m->state, host->o.data, placed->api.o.data, bytes_of(&host->o), error);
  if (status == GLINT_OK && host->lse.data)
    status = m->download(m->state, host->lse.data, placed->api.lse.data, bytes_of(&host->lse), error);
  return status;
}

void memory_release(placed_problem *placed) {
  if (placed->m->host) return;
  for (int i = 0; i < TENSORS; i++) {
    glint_tensor *tensor = tensor_at(&placed->api, i);
    if (tensor->data) placed->m->release(placed->m->state, tensor->data);
    tensor->data = NULL;
  }
}
