/* The glint command: finds the verb and runs it. */
#include "verb.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#define VERB(name) extern const glint_verb glint_verb_##name;
#include "verbs.inc"
#undef VERB

static const struct {
  const char *name;
  const glint_verb *verb;
} verbs[] = {
#define VERB(name) {#name, &glint_verb_##name},
#include "verbs.inc"
#undef VERB
};
enum { VERBS = sizeof verbs / sizeof *verbs };

int verb_fail(const glint_error *error) {
  fprintf(stderr, "glint: %s\n", error->text);
  return 1;
}

int verb_fail_library(const glint_context *context, const char *doing) {
  fprintf(stderr, "glint: %s: %s\n", doing, glint_last_error(context));
  return 1;
}

static void print_help(FILE *to) {
  fputs("Usage: glint VERB [OPTION...]\nExact attention (FlashAttention) on tensors in files, its tests and its measurements.\n\n", to);
  for (int i = 0; i < VERBS; i++) fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].verb->summary);
  fputs("\n`glint VERB --help` lists the options of a verb; `glint --version` prints the version.\n", to);
}

static void print_version(void) {
  int v = glint_version();
  printf("glint %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
}

int main(int argc, char **argv) {
  argp_err_exit_status = 2;
  const char *name = argc > 1 ? argv[1] : "";
  for (int i = 0; i < VERBS; i++) {
    if (strcmp(name, verbs[i].name) != 0) continue;
    char shown[64];
    snprintf(shown, sizeof shown, "glint %s", name);
    argv[1] = shown;
    return verbs[i].verb->run(argc - 1, argv + 1);
  }
  if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) return print_help(stdout), 0;
  if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) return print_version(), 0;
  if (*name) fprintf(stderr, "glint: no verb '%s'\n", name);
  print_help(stderr);
  return 2;
}
