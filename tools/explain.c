/* glint explain: attention derived and computed by hand on four rows and four keys. */
#include "explain.h"
#include "verb.h"

#include <argp.h>
#include <string.h>

static error_t parse(int key, char *text, struct argp_state *state) {
  int (**explanation)(void) = state->input;
  switch (key) {
  case ARGP_KEY_ARG:
    if (*explanation) argp_error(state, "one pass at a time");
    if (!strcmp(text, "forward"))
      *explanation = explain_forward;
    else if (!strcmp(text, "backward"))
      *explanation = explain_backward;
    else
      argp_error(state, "%s: expected forward or backward", text);
    return 0;
  case ARGP_KEY_NO_ARGS: argp_error(state, "which pass: forward or backward?"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    NULL,
    parse,
    "forward|backward",
    "Computes a pass of attention step by step on four rows and four keys, with its formulas, and compares the "
    "result with the library's. Exits with 1 when they differ.",
    NULL,
    NULL,
    NULL};

static int run(int argc, char **argv) {
  int (*explanation)(void) = NULL;
  argp_parse(&parser, argc, argv, 0, NULL, &explanation);
  return explanation();
}

const glint_verb glint_verb_explain = {"forward or backward pass by hand, step by step, on four rows and four keys", run};
