/* glint layout: the layout algebra at the command line. This file has the options, the report and the dispatch; layout_algebra.c the verbs of
 * the algebra, layout_hardware.c banks, descriptors and atoms, layout_draw.c the pictures. */
#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "layout_tool.h"
#include "verb.h"

enum {
  KEY_FORMAT = 0x400,
  KEY_JSON,
  KEY_ZIPPED,
  KEY_TILED,
  KEY_FLAT,
  KEY_BLOCKED,
  KEY_RAKED,
  KEY_LEFT,
  KEY_PROFILE,
  KEY_ELEMENT,
  KEY_TV,
  KEY_ACCESS,
  KEY_GLOBAL,
  KEY_FIX,
  KEY_VECTOR,
  KEY_INSTRUCTION,
  KEY_MAJOR,
  KEY_ROWS,
  KEY_AT,
  KEY_BASE
};

static const struct argp_option option_list[] = {
    {"format", KEY_FORMAT, "FORM", 0, "text (default), svg or json", 0},
    {"json", KEY_JSON, 0, 0, "the same as --format json", 0},
    {"output", 'o', "FILE", 0, "write there instead of to the terminal", 0},
    {0, 0, 0, 0, "divide, product", 1},
    {"zipped", KEY_ZIPPED, 0, 0, "((tiles), (rests))", 1},
    {"tiled", KEY_TILED, 0, 0, "((tiles), rest, ...)", 1},
    {"flat", KEY_FLAT, 0, 0, "(tile, ..., rest, ...)", 1},
    {"blocked", KEY_BLOCKED, 0, 0, "product: (block, copies) mode by mode", 1},
    {"raked", KEY_RAKED, 0, 0, "product: (copies, block) mode by mode", 1},
    {0, 0, 0, 0, "inverse, coalesce, filter", 2},
    {"left", KEY_LEFT, 0, 0, "inverse: the left one (default: the right one)", 2},
    {"profile", KEY_PROFILE, "SHAPE", 0, "coalesce, filter: by mode, at the leaves of this shape", 2},
    {0, 0, 0, 0, "show, banks, descriptor", 3},
    {"element", KEY_ELEMENT, "BITS", 0, "width of an element (banks, descriptor: default 16)", 3},
    {"tv", KEY_TV, "LAYOUT", 0, "(lane, value) -> integer coordinate of the layout; default: the layout is that map itself", 3},
    {"access", KEY_ACCESS, "NAME", 0, "ld.32 (default), ld.64, ld.128, st..., cp.async.16, ldmatrix.x4, stmatrix.x1 ...", 3},
    {"global", KEY_GLOBAL, 0, 0, "banks: global memory; counts sectors and lines", 3},
    {"fix", KEY_FIX, 0, 0, "banks: find the smallest swizzle and the smallest padding without conflicts", 3},
    {"vector", KEY_VECTOR, "BYTES", 0, "banks --fix: keep runs of so many bytes whole (default: the access's width)", 3},
    {"instruction", KEY_INSTRUCTION, "I", 0, "banks: show this one (default: the worst)", 3},
    {"major", KEY_MAJOR, "k|mn", 0, "descriptor: which mode is contiguous (default: the one that is)", 3},
    {"rows", KEY_ROWS, "N", 0, "descriptor: rows of the operand (default: 64, or all if fewer)", 3},
    {"at", KEY_AT, "(MN,K)", 0, "descriptor: where the operand starts in the layout (default (0,0))", 3},
    {"base", KEY_BASE, "ADDRESS", 0, "banks, descriptor: byte address of offset 0 (default 0)", 3},
    {0},
};

static const char usage[] =
    "show LAYOUT\neval LAYOUT COORDINATE...\ncompose A B\ncomplement LAYOUT [COTARGET]\ndivide LAYOUT TILER\nproduct BLOCK TILER\ninverse "
    "LAYOUT\n"
    "coalesce LAYOUT\nfilter LAYOUT\nflatten LAYOUT\nsort LAYOUT\nvector A B\nrecast LAYOUT OLD_BITS NEW_BITS\ntile LAYOUT SHAPE [ORDER]\n"
    "local-tile LAYOUT TILER COORDINATE\nlocal-partition LAYOUT THREADS THREAD\nslice LAYOUT COORDINATE\nbanks LAYOUT\ndescriptor LAYOUT\n"
    "atom [INSTRUCTION [OPERAND]]";

static const char doc[] =
    "Computes with layouts as CuTe writes them, and shows what the hardware makes of them.\v"
    "A LAYOUT is shape:stride, e.g. '((2,4),8):((1,16),2)', or 'Sw<3,3,3> o 0 o (8,64):(64,1)'; without strides it is compact. A TILER is "
    "a "
    "layout, a shape (by mode), or '<4:1,8:2>' (by mode); '_' leaves a mode alone. In a COORDINATE '_' keeps a mode. The last line of the "
    "output is the result.";

typedef struct command {
  layout_call call;
  const char *verb, *file;
} command;

static long long number_option(struct argp_state *state, const char *name, const char *text, long long lowest, long long highest) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 0);
  if (errno || end == text || *end || value < lowest || value > highest)
    argp_error(state, "--%s is '%s', expected an integer from %lld to %lld", name, text, lowest, highest);
  return value;
}

static void set_form(layout_call *call, glint_layout_form form) {
  call->form = form;
  call->form_given = 1;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  command *c = state->input;
  layout_call *call = &c->call;
  switch (key) {
  case KEY_FORMAT:
    if (strcmp(text, "text") == 0)
      call->output = LAYOUT_TEXT;
    else if (strcmp(text, "svg") == 0)
      call->output = LAYOUT_SVG;
    else if (strcmp(text, "json") == 0)
      call->output = LAYOUT_JSON;
    else
      argp_error(state, "--format is '%s', expected text, svg or json", text);
    return 0;
  case KEY_JSON: call->output = LAYOUT_JSON; return 0;
  case 'o': c->file = text; return 0;
  case KEY_ZIPPED: set_form(call, GLINT_LAYOUT_ZIPPED); return 0;
  case KEY_TILED: set_form(call, GLINT_LAYOUT_TILED); return 0;
  case KEY_FLAT: set_form(call, GLINT_LAYOUT_FLAT); return 0;
  case KEY_BLOCKED: set_form(call, GLINT_LAYOUT_BLOCKED); return 0;
  case KEY_RAKED: set_form(call, GLINT_LAYOUT_RAKED); return 0;
  case KEY_LEFT: call->left = 1; return 0;
  case KEY_PROFILE: call->profile = text; return 0;
  case KEY_ELEMENT: call->element_bits = (int)number_option(state, "element", text, 1, 128); return 0;
  case KEY_TV: call->tv = text; return 0;
  case KEY_ACCESS: call->access = text; return 0;
  case KEY_GLOBAL: call->global = 1; return 0;
  case KEY_FIX: call->fix = 1; return 0;
  case KEY_VECTOR: call->vector_bytes = (int)number_option(state, "vector", text, 1, 128); return 0;
  case KEY_INSTRUCTION: call->instruction = number_option(state, "instruction", text, 0, 1ll << 40); return 0;
  case KEY_MAJOR: call->major = text; return 0;
  case KEY_ROWS: call->rows = number_option(state, "rows", text, 8, 256); return 0;
  case KEY_AT: call->at = text; return 0;
  case KEY_BASE: call->base = number_option(state, "base", text, 0, (1 << 18) - 1); return 0;
  case ARGP_KEY_ARG:
    if (!c->verb)
      c->verb = text;
    else if (call->argument_count < (int)(sizeof call->argument / sizeof *call->argument))
      call->argument[call->argument_count++] = text;
    else
      argp_error(state, "too many arguments");
    return 0;
  case ARGP_KEY_END:
    if (!c->verb) argp_error(state, "which operation?");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {option_list, parse, usage, doc, NULL, NULL, NULL};

/* ---- report ------------------------------------------------------------------------------------------------------------------- */

void layout_say(layout_call *call, const char *key, const char *format, ...) {
  char text[LAYOUT_TEXT_SIZE];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (call->output == LAYOUT_TEXT) fprintf(call->to, "%-12s %s\n", key, text);
  if (call->output == LAYOUT_JSON) cJSON_AddStringToObject(call->json, key, text);
}

void layout_say_number(layout_call *call, const char *key, long long number) {
  if (call->output == LAYOUT_TEXT) fprintf(call->to, "%-12s %lld\n", key, number);
  if (call->output == LAYOUT_JSON) cJSON_AddNumberToObject(call->json, key, (double)number);
}

void layout_say_layout(layout_call *call, const char *key, const glint_layout *layout) {
  char text[LAYOUT_TEXT_SIZE];
  glint_layout_format(layout, text, sizeof text);
  layout_say(call, key, "%s", text);
}

glint_status layout_refuse(layout_call *call, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(call->error.text, sizeof call->error.text, format, args);
  va_end(args);
  return GLINT_ERROR_INVALID_ARGUMENT;
}

/* Puts the argument in front of the library's reason. */
static glint_status name_argument(layout_call *call, int i, glint_status status) {
  glint_layout_error reason = call->error;
  if (status) snprintf(call->error.text, sizeof call->error.text, "'%.60s': %.180s", call->argument[i], reason.text);
  return status;
}

glint_status layout_argument(layout_call *call, int i, glint_layout *layout) {
  if (i >= call->argument_count) return layout_refuse(call, "a layout is missing; see `glint layout --help`");
  return name_argument(call, i, glint_layout_parse(call->argument[i], layout, &call->error));
}

glint_status layout_tiler_argument(layout_call *call, int i, glint_layout *tiler) {
  if (i >= call->argument_count) return layout_refuse(call, "a tiler is missing; see `glint layout --help`");
  return name_argument(call, i, glint_layout_parse_tiler(call->argument[i], tiler, &call->error));
}

glint_status layout_integer(layout_call *call, const char *what, const char *text, long long lowest, long long highest, long long *value) {
  char *end;
  errno = 0;
  *value = strtoll(text, &end, 0);
  if (errno || end == text || *end || *value < lowest || *value > highest)
    return layout_refuse(call, "%s is '%.60s', expected an integer from %lld to %lld", what, text, lowest, highest);
  return GLINT_OK;
}

glint_status layout_integer_argument(layout_call *call, int i, const char *what, long long lowest, long long highest, long long *value) {
  if (i >= call->argument_count) return layout_refuse(call, "%s is missing; see `glint layout --help`", what);
  return layout_integer(call, what, call->argument[i], lowest, highest, value);
}

static void add_text(cJSON *object, const char *key, size_t (*format)(const glint_layout *, char *, size_t), const glint_layout *layout) {
  char text[LAYOUT_TEXT_SIZE];
  format(layout, text, sizeof text);
  cJSON_AddStringToObject(object, key, text);
}

static void finish_json(layout_call *call) {
  if (call->has_result) {
    const glint_layout *l = &call->result;
    cJSON *object = cJSON_AddObjectToObject(call->json, "result");
    add_text(object, "layout", glint_layout_format, l);
    add_text(object, "shape", glint_layout_format_shape, l);
    cJSON_AddNumberToObject(object, "size", (double)glint_layout_size(l));
    cJSON_AddNumberToObject(object, "cosize", (double)glint_layout_cosize(l));
    cJSON_AddNumberToObject(object, "rank", glint_layout_rank(l));
    cJSON_AddNumberToObject(object, "depth", glint_layout_depth(l));
  }
  char *text = cJSON_Print(call->json);
  fprintf(call->to, "%s\n", text ? text : "{}");
  cJSON_free(text);
}

/* The result itself, as text or as a picture. */
static glint_status finish(layout_call *call) {
  if (call->output == LAYOUT_JSON) finish_json(call);
  if (!call->has_result) return GLINT_OK;
  if (call->output == LAYOUT_SVG) return layout_show(call);
  if (call->output == LAYOUT_TEXT) {
    char text[LAYOUT_TEXT_SIZE];
    glint_layout_format(&call->result, text, sizeof text);
    fprintf(call->to, "%s\n", text);
  }
  return GLINT_OK;
}

static int run(int argc, char **argv) {
  command c = {.call = {.rows = -1, .base = 0, .instruction = -1, .to = stdout}};
  layout_call *call = &c.call;
  argp_parse(&parser, argc, argv, 0, NULL, &c);
  layout_body body = layout_find_algebra(c.verb);
  if (!body) body = layout_find_hardware(c.verb);
  if (!body) {
    fprintf(stderr, "glint: layout: no operation '%s'; see `glint layout --help`\n", c.verb);
    return 2;
  }
  if (c.file) call->to = fopen(c.file, "w");
  if (!call->to) {
    fprintf(stderr, "glint: layout: %s: %s\n", c.file, strerror(errno));
    return 1;
  }
  if (call->output == LAYOUT_JSON) call->json = cJSON_CreateObject();
  glint_status status = body(call);
  if (!status) status = finish(call);
  if (status) fprintf(stderr, "glint: layout %s: %s\n", c.verb, call->error.text);
  int failed = ferror(call->to) || (c.file && fclose(call->to) != 0);
  if (failed) fprintf(stderr, "glint: layout: writing failed: %s\n", strerror(errno));
  cJSON_Delete(call->json);
  return status || failed ? 1 : 0;
}

const glint_verb glint_verb_layout = {"layouts: compose, divide, bank conflicts, wgmma descriptors", run};
