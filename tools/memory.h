/* Memory that an engine reads and writes. Engines on the host use the command's own arrays; the tensors of a device engine are copied there
 * and back. */
#ifndef GLINT_TOOLS_MEMORY_H
#define GLINT_TOOLS_MEMORY_H

#include "engine.h"

typedef struct memory {
  int host; /* 1: problems are used where they lie, the functions below are not called */
  void *state;
  glint_status (*allocate)(void *state, size_t bytes, void **data, glint_error *error);
  void (*release)(void *state, void *data);
  glint_status (*upload)(void *state, void *to, const void *from, size_t bytes, glint_error *error);
  glint_status (*download)(void *state, void *to, const void *from, size_t bytes, glint_error *error);
  glint_status (*synchronize)(void *state, glint_error *error); /* waits for the work of the null stream */
  void (*close)(void *state);
} memory;

/* options: those of the context that the memory is for; engine: what that context runs (never AUTO). */
glint_status memory_open(glint_engine engine, const glint_options *options, memory *m, glint_error *error);
void memory_close(memory *m);

/* A host problem with its tensors in an engine's memory. */
typedef struct placed_problem {
  glint_problem api;
  memory *m;
} placed_problem;

/* Copies every present tensor of host (contiguous ones). */
glint_status memory_place(memory *m, const glint_problem *host, placed_problem *placed, glint_error *error);
/* Waits, and copies o and lse back to the tensors of host. */
glint_status memory_fetch(const placed_problem *placed, const glint_problem *host, glint_error *error);
glint_status memory_wait(const memory *m, glint_error *error);
void memory_release(placed_problem *placed);

#endif
