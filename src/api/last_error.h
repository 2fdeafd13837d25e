/* The last error of each context on each thread. */
#ifndef GLINT_LAST_ERROR_H
#define GLINT_LAST_ERROR_H

#include <stdint.h>

/* Contexts are told apart by a number that is never used again, so that a new context at an old address starts without errors.
 * 0 stands for calls without a context. */
void glint_set_last_error(uint64_t context_id, const char *text);
const char *glint_get_last_error(uint64_t context_id);
void glint_drop_last_error(uint64_t context_id);

#endif
