/* The table of engines. A part that brings an engine defines GLINT_HAVE_<NAME> for glint_objects in its CMakeLists.txt. */
#include "engines.h"

#include <stdlib.h>
#include <string.h>

static const glint_engine_vtable *const engines[] = {
#ifdef GLINT_HAVE_CPU
    &glint_engine_cpu,
#endif
#ifdef GLINT_HAVE_CUDA
    &glint_engine_cuda,
#endif
#ifdef GLINT_HAVE_SIM
    &glint_engine_sim,
#endif
    &glint_engine_oracle, NULL,
};

const glint_engine_vtable *glint_engine_at(int n) { return engines[n]; }

static const glint_engine_vtable *by_number(glint_engine number) {
  for (int n = 0; engines[n]; n++)
    if (engines[n]->engine == number) return engines[n];
  return NULL;
}

/* What GLINT_ENGINE asks for; an empty value asks for nothing. */
static glint_status from_environment(glint_engine *number, glint_error *error) {
  static const char *const names[] = {"auto", "cpu", "cuda", "sim", "oracle"};
  const char *wish = getenv("GLINT_ENGINE");
  if (!wish || !*wish) return GLINT_OK;
  for (int n = 0; n <= GLINT_ENGINE_ORACLE; n++)
    if (!strcmp(wish, names[n])) {
      *number = (glint_engine)n;
      return GLINT_OK;
    }
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                    "environment variable GLINT_ENGINE is \"%.60s\": expected auto, cpu, cuda, sim or oracle", wish);
}

static glint_status open_auto(const glint_options *options, const glint_engine_vtable **engine, void **state, glint_error *error) {
  static const glint_engine order[] = {GLINT_ENGINE_CUDA, GLINT_ENGINE_CPU};
  for (int n = 0; n < 2; n++) {
    *engine = by_number(order[n]);
    if (*engine && !(*engine)->open(options, state, error)) return GLINT_OK;
  }
  if (*engine) return GLINT_ERROR_NOT_FOUND;
  return glint_fail(error, GLINT_ERROR_NOT_FOUND,
                    "options.engine is auto: this build of glint has no cpu engine and no usable cuda engine");
}

glint_status glint_open_engine(const glint_options *options, const glint_engine_vtable **engine, void **state, glint_error *error) {
  glint_engine number = options->engine;
  if (number == GLINT_ENGINE_AUTO) {
    glint_status status = from_environment(&number, error);
    if (status) return status;
  }
  if (number == GLINT_ENGINE_AUTO) return open_auto(options, engine, state, error);
  *engine = by_number(number);
  if (!*engine)
    return glint_fail(error, GLINT_ERROR_NOT_FOUND, "options.engine is %d: this build of glint does not have that engine", (int)number);
  return (*engine)->open(options, state, error);
}
