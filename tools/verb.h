/* What a verb of the command is. Exit statuses: 0 done, 1 failed (the reason is on stderr), 2 wrong use. */
#ifndef GLINT_TOOLS_VERB_H
#define GLINT_TOOLS_VERB_H

#include "engine.h"

typedef struct glint_verb {
  const char *summary;               /* one line for `glint --help` */
  int (*run)(int argc, char **argv); /* argv[0] is "glint VERB"; returns the exit status */
} glint_verb;

/* Prints "glint: text" to stderr and returns 1. */
int verb_fail(const glint_error *error);
/* The same with the text of a failed library call; context may be NULL after glint_open. */
int verb_fail_library(const glint_context *context, const char *doing);

#endif
