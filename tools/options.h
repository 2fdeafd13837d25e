/* Options that several verbs share, as argp children, and the parsers of their values. A value that cannot be meant ends the command with
 * status 2 through argp_error. */
#ifndef GLINT_TOOLS_OPTIONS_H
#define GLINT_TOOLS_OPTIONS_H

#include <argp.h>

#include "glint.h"

/* Keys below 128 are short options; those without one count from here, each group in its own range. */
enum { OPTION_ENGINE_KEYS = 0x200, OPTION_SCORE_KEYS = 0x300, OPTION_VERB_KEYS = 0x400 };

/* --engine --isa --threads --arch --kernel --device. Input: glint_options *. */
extern const struct argp options_engine;
/* --causal --window --scale --softcap --splits. Input: glint_problem *. */
extern const struct argp options_scores;

/* Children list of both; the parser hands them their inputs in ARGP_KEY_INIT: state->child_inputs[0] and [1]. */
extern const struct argp_child options_engine_and_scores[];
extern const struct argp_child options_engine_only[];

int64_t option_integer(struct argp_state *state, const char *name, const char *text, int64_t lowest, int64_t highest);
double option_number(struct argp_state *state, const char *name, const char *text);
glint_dtype option_dtype(struct argp_state *state, const char *text);
glint_engine option_engine(struct argp_state *state, const char *text);
glint_isa option_isa(struct argp_state *state, const char *text);
/* "H" or "H/K": query heads and key/value heads. */
void option_heads(struct argp_state *state, const char *text, int64_t *heads_q, int64_t *heads_kv);

const char *option_engine_name(glint_engine engine);
const char *option_isa_name(glint_isa isa);

#endif
