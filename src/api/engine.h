/* The table that every engine fills. Adding an engine: one more glint_engine_vtable and one line in engines.c. */
#ifndef GLINT_ENGINE_H
#define GLINT_ENGINE_H

#include "quantization.h"
#include "work.h"

/* Where an engine writes why it failed. glint_fail formats into it and returns status, so that `return glint_fail(...)` reads well. */
typedef struct glint_error {
  char text[512];
} glint_error;
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
glint_status
glint_fail(glint_error *error, glint_status status, const char *format, ...);

typedef struct glint_engine_vtable {
  glint_engine engine;
  const char *name; /* "cpu", as the command spells it */
  int host;         /* 1: pointers in a problem are host pointers */
  /* GLINT_ERROR_NOT_FOUND when this machine cannot run it. */
  glint_status (*open)(const glint_options *options, void **state, glint_error *error);
  void (*close)(void *state);
  /* Pure: depends on work's shapes (and, on host engines, lengths), state's machine and nothing else. GLINT_ERROR_UNSUPPORTED, with the
   * field's name, for what the engine cannot do. plan->struct_size and engine are set by the caller. */
  glint_status (*plan)(void *state, const glint_work *work, glint_plan_info *plan, glint_error *error);
  /* Runs what plan said. workspace: plan->workspace_bytes bytes, 256-byte aligned, or NULL when 0. Thread-safe. */
  glint_status (*run)(void *state, const glint_work *work, const glint_plan_info *plan, void *workspace, glint_error *error);
  /* Workspace of the context when the caller gives none. */
  glint_status (*reserve)(void *state, size_t bytes, void *stream, void **workspace, glint_error *error);
  /* One fact a line, appended to text as snprintf does. Returns the length it has in whole. state may be NULL (not openable here). */
  size_t (*describe)(void *state, char *text, size_t size);
  /* Workspace of quantize: from shapes and machine alone. GLINT_ERROR_UNSUPPORTED, with the field's name, for what the engine cannot do. */
  glint_status (*quantize_workspace)(void *state, const glint_quantize_work *work, size_t *bytes, glint_error *error);
  /* Runs it; workspace as in run. */
  glint_status (*quantize)(void *state, const glint_quantize_work *work, void *workspace, glint_error *error);
} glint_engine_vtable;

extern const glint_engine_vtable glint_engine_oracle;
extern const glint_engine_vtable glint_engine_cpu;
extern const glint_engine_vtable glint_engine_cuda; /* built always: libcuda is opened at run time */
extern const glint_engine_vtable glint_engine_sim;  /* the cuda engine on the simulator's driver */

#endif
