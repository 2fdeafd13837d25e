/* The engines that this build has, and how one is chosen. */
#ifndef GLINT_ENGINES_H
#define GLINT_ENGINES_H

#include "engine.h"

/* The n-th engine, NULL behind the last. */
const glint_engine_vtable *glint_engine_at(int n);

/* Resolves AUTO (environment variable GLINT_ENGINE, then cuda where it opens, then cpu) and opens the engine. */
glint_status glint_open_engine(const glint_options *options, const glint_engine_vtable **engine, void **state, glint_error *error);

#endif
