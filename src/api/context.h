/* What a context is, for the files that hold the public calls. */
#ifndef GLINT_CONTEXT_H
#define GLINT_CONTEXT_H

#include "engine.h"

struct glint_context {
  uint64_t id; /* never used twice in a process */
  const glint_engine_vtable *engine;
  void *state;
};

/* The caller's workspace; memory NULL: none given. */
typedef struct glint_given_workspace {
  void *memory;
  size_t bytes;
  void *stream;
} glint_given_workspace;

/* At least bytes for one call: what was given, if it will do, or the engine's own. NULL when bytes is 0. */
glint_status glint_find_workspace(const glint_context *context, size_t bytes, const glint_given_workspace *given, void **workspace,
                                  glint_error *error);

#endif
