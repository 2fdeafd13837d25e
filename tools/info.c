/* glint info: what glint sees of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "report.h"
#include "verb.h"

typedef struct arguments {
  glint_options options;
  int json;
} arguments;

enum { KEY_JSON = OPTION_VERB_KEYS };

static error_t parse(int key, char *text, struct argp_state *state) {
  (void)text;
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options; return 0;
  case KEY_JSON: a->json = 1; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no arguments are expected"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option option_list[] = {{"json", KEY_JSON, NULL, 0, "as JSON", 0}, {0}};
static const struct argp parser = {
    option_list,         parse, NULL, "Prints what glint sees of this machine: engines, instruction sets, GPUs, libraries.",
    options_engine_only, NULL,  NULL};

static void print_json(const char *engine, char *facts) {
  cJSON *object = cJSON_CreateObject(), *list = cJSON_CreateArray();
  cJSON_AddStringToObject(object, "engine", engine);
  cJSON_AddItemToObject(object, "facts", list);
  char *rest = NULL;
  for (char *line = strtok_r(facts, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    cJSON_AddItemToArray(list, cJSON_CreateString(line));
  char *text = cJSON_Print(object);
  puts(text ? text : "{}");
  cJSON_free(text);
  cJSON_Delete(object);
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options}};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  glint_context *context;
  int found = glint_open(&a.options, &context) == GLINT_OK;
  /* with nothing to run on, what was looked for matters most */
  if (!found) verb_fail_library(NULL, "info");
  const char *engine = found ? option_engine_name(glint_context_engine(context)) : "none";
  size_t length = glint_describe(context, NULL, 0);
  char *facts = malloc(length + 1);
  if (facts) glint_describe(context, facts, length + 1);
  if (facts && a.json)
    print_json(engine, facts);
  else if (facts)
    printf("engine: %s\n%s%s", engine, facts, length && facts[length - 1] != '\n' ? "\n" : "");
  free(facts);
  glint_close(context);
  return facts && found ? 0 : 1;
}

const glint_verb glint_verb_info = {"what glint sees of this machine", run};
