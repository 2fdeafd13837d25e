/* The CPU engine's entry in the table of engines. */
#include "backward.h"
#include "quantize.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A workspace of the context: lent to one call at a time, so that calls from many threads do not meet. */
typedef struct buffer {
  struct buffer *next;
  void *memory;
  size_t bytes;
  int lent;
} buffer;

struct glint_cpu_state {
  glint_cpu_settings settings;
  pthread_mutex_t lock; /* guards the list */
  buffer *buffers;
};

static glint_status open_cpu(const glint_options *options, void **state, glint_error *error) {
  glint_cpu_settings settings = {.machine = glint_cpu_machine_get()};
  glint_status status = glint_cpu_isa_choose(options->isa, &settings.isa, &settings.forced, error);
  if (status) return status;
  settings.threads = options->threads > 0 ? options->threads : omp_get_max_threads();
  glint_cpu_state *opened = calloc(1, sizeof *opened);
  if (!opened) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof *opened);
  opened->settings = settings;
  pthread_mutex_init(&opened->lock, NULL);
  *state = opened;
  return GLINT_OK;
}

static void close_cpu(void *state) {
  glint_cpu_state *opened = state;
  while (opened->buffers) {
    buffer *first = opened->buffers;
    opened->buffers = first->next;
    free(first->memory);
    free(first);
  }
  pthread_mutex_destroy(&opened->lock);
  free(opened);
}

static glint_status plan_cpu(void *state, const glint_work *w, glint_plan_info *info, glint_error *error) {
  const glint_cpu_settings *settings = &((glint_cpu_state *)state)->settings;
  (void)error;
  if (w->pass == GLINT_PASS_BACKWARD) {
    glint_cpu_backward_plan backward = glint_cpu_plan_backward(settings, w);
    glint_cpu_describe_backward(settings, &backward, w, info);
    return GLINT_OK;
  }
  glint_cpu_plan plan = glint_cpu_plan_forward(settings, w);
  glint_cpu_plan_describe(settings, &plan, w, info);
  return GLINT_OK;
}

static void give_back(glint_cpu_state *opened, const void *memory) {
  pthread_mutex_lock(&opened->lock);
  for (buffer *b = opened->buffers; b; b = b->next)
    if (b->memory == memory) b->lent = 0;
  pthread_mutex_unlock(&opened->lock);
}

static glint_status run_cpu(void *state, const glint_work *w, const glint_plan_info *info, void *workspace, glint_error *error) {
  glint_cpu_state *opened = state;
  (void)info, (void)error;
  if (w->pass == GLINT_PASS_BACKWARD) {
    glint_cpu_backward_plan plan = glint_cpu_plan_backward(&opened->settings, w);
    glint_cpu_backward_pass(w, &plan, workspace);
  } else {
    glint_cpu_plan plan = glint_cpu_plan_forward(&opened->settings, w);
    glint_cpu_forward(w, &plan, workspace);
  }
  if (!w->workspace) give_back(opened, workspace);
  return GLINT_OK;
}

/* A free buffer that is large enough, or a free one grown, or a new one. Call with the lock held. */
static buffer *find_buffer(glint_cpu_state *opened, size_t bytes) {
  buffer *found = NULL;
  for (buffer *b = opened->buffers; b; b = b->next)
    if (!b->lent && (!found || b->bytes > found->bytes)) found = b;
  if (!found) {
    found = calloc(1, sizeof *found);
    if (!found) return NULL;
    found->next = opened->buffers;
    opened->buffers = found;
  }
  if (found->bytes < bytes) {
    free(found->memory);
    found->bytes = (bytes + 4095) / 4096 * 4096;
    found->memory = aligned_alloc(4096, found->bytes);
    if (!found->memory) found->bytes = 0;
  }
  return found->memory ? found : NULL;
}

static glint_status reserve_cpu(void *state, size_t bytes, void *stream, void **workspace, glint_error *error) {
  glint_cpu_state *opened = state;
  (void)stream;
  pthread_mutex_lock(&opened->lock);
  buffer *found = find_buffer(opened, bytes);
  if (found) found->lent = 1, *workspace = found->memory;
  pthread_mutex_unlock(&opened->lock);
  return found ? GLINT_OK : glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "out of memory: %zu bytes of workspace", bytes);
}

static size_t describe_cpu(void *state, char *text, size_t size) {
  const glint_cpu_machine *machine = glint_cpu_machine_get();
  const glint_cpu_state *opened = state;
  char sets[128] = "";
  size_t at = 0;
  for (int isa = GLINT_ISA_PORTABLE; isa <= GLINT_ISA_NEON; isa++)
    if (machine->has[isa] && at < sizeof sets)
      at += (size_t)snprintf(sets + at, sizeof sets - at, " %s", glint_cpu_isa_name((glint_isa)isa));
  return (size_t)snprintf(text, size, "cpu: %s; L1d %lld KiB, L2 %lld KiB\ncpu: instruction sets%s; uses %s, %d threads\n", machine->name,
                          (long long)machine->l1d_bytes >> 10, (long long)machine->l2_bytes >> 10, sets,
                          glint_cpu_isa_name(opened ? opened->settings.isa : machine->best),
                          opened ? opened->settings.threads : omp_get_max_threads());
}

static glint_status size_quantize_cpu(void *state, const glint_quantize_work *w, size_t *bytes, glint_error *error) {
  (void)state, (void)error;
  *bytes = glint_cpu_quantize_workspace(w);
  return GLINT_OK;
}

static glint_status quantize_cpu(void *state, const glint_quantize_work *w, void *workspace, glint_error *error) {
  glint_cpu_state *opened = state;
  (void)error;
  glint_cpu_quantize(w, opened->settings.threads, workspace);
  if (!w->workspace && workspace) give_back(opened, workspace);
  return GLINT_OK;
}

const glint_engine_vtable glint_engine_cpu = {
    GLINT_ENGINE_CPU, "cpu", 1, open_cpu, close_cpu, plan_cpu, run_cpu, reserve_cpu, describe_cpu, size_quantize_cpu, quantize_cpu};
