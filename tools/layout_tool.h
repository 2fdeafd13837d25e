/* What the parts of `glint layout` share: one call with its options, and how it reports. */
#ifndef GLINT_TOOLS_LAYOUT_TOOL_H
#define GLINT_TOOLS_LAYOUT_TOOL_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "glint_layout.h"

enum { LAYOUT_TEXT_SIZE = 8192 }; /* holds the text of every layout: 128 modes of two integers below 2^48 */

typedef enum layout_output { LAYOUT_TEXT, LAYOUT_SVG, LAYOUT_JSON } layout_output;

typedef struct layout_call {
  /* from the command line */
  char *argument[8]; /* what follows the verb */
  int argument_count;
  layout_output output;
  int form_given, left, global, fix;
  glint_layout_form form;
  int element_bits; /* 0: not given */
  int vector_bytes; /* 0: the access's own width */
  const char *tv, *access, *profile, *at, *major;
  long long rows, base, instruction; /* -1: not given */
  /* the report */
  FILE *to;
  cJSON *json; /* LAYOUT_JSON: the object in the making */
  glint_layout result;
  int has_result;
  glint_layout_error error;
} layout_call;

/* A verb's body. Anything but GLINT_OK: the call's error says why. */
typedef glint_status (*layout_body)(layout_call *call);

/* A named fact: a line of text, or a member of the JSON object. Nothing in SVG. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void layout_say(layout_call *call, const char *key, const char *format, ...);
void layout_say_number(layout_call *call, const char *key, long long number);
void layout_say_layout(layout_call *call, const char *key, const glint_layout *layout);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
glint_status
layout_refuse(layout_call *call, const char *format, ...);
/* Argument i as a layout, a tiler, an integer; each with an error that names it. */
glint_status layout_argument(layout_call *call, int i, glint_layout *layout);
glint_status layout_tiler_argument(layout_call *call, int i, glint_layout *tiler);
glint_status layout_integer_argument(layout_call *call, int i, const char *what, long long lowest, long long highest, long long *value);
glint_status layout_integer(layout_call *call, const char *what, const char *text, long long lowest, long long highest, long long *value);

/* One cell of a picture: label and a color number; cells with equal group that touch along a row are drawn as one where merge is set. */
typedef struct layout_cell {
  char label[32];
  int color; /* 0 to 31; -1: empty */
  long long group;
} layout_cell;
typedef struct layout_picture {
  long long rows, columns;
  int merge;
  const void *data;
  void (*cell)(const void *data, long long row, long long column, layout_cell *cell);
} layout_picture;
void layout_draw_text(FILE *to, const layout_picture *picture);
void layout_draw_svg(FILE *to, const layout_picture *picture, const char *title);

/* A picture of the layout's offsets (and banks, where element_bits is known), of rank 1 or 2. */
glint_status layout_show(layout_call *call);
/* A picture of who holds what: tv over a column-major tile of rows x columns. */
glint_status layout_show_tv(layout_call *call, const glint_layout *tv, long long rows, long long columns, const char *title);

layout_body layout_find_algebra(const char *verb);
layout_body layout_find_hardware(const char *verb);

#endif
