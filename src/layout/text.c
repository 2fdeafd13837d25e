/* The text form of layouts, tilers and coordinates, read and written.
 *
 *   layout     = [ swizzle "o" integer "o" ] shape [ ":" stride ]      swizzle = "Sw<" B "," M "," S ">"
 *   shape      = integer | "(" shape { "," shape } [ "," ] ")"         stride: the same, congruent with the shape
 *   tiler      = "_" | "<" tiler { "," tiler } ">" | shape [ ":" stride ]
 *   coordinate = as shape, with "_" where a mode is kept
 *
 * Integers are decimal, with an optional minus and an optional underscore in front (CuTe prints static integers so). */
#include "tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
  const char *text; /* the whole, for messages */
  const char *at;
  layout_builder b;
} reader;

static void refuse(reader *r, const char *expected) {
  if (r->b.status) return;
  r->b.status = layout_fail(r->b.error, GLINT_ERROR_INVALID_ARGUMENT, "expected %s at character %d, before \"%.20s\"", expected,
                            (int)(r->at - r->text) + 1, r->at);
}

static void skip_blanks(reader *r) {
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r') r->at++;
}

static int accept(reader *r, const char *token) {
  skip_blanks(r);
  size_t n = strlen(token);
  if (strncmp(r->at, token, n) != 0) return 0;
  r->at += n;
  return 1;
}

static void expect(reader *r, const char *token) {
  char quoted[24];
  if (r->b.status || accept(r, token)) return;
  snprintf(quoted, sizeof quoted, "\"%s\"", token);
  refuse(r, quoted);
}

static int64_t read_integer(reader *r) {
  skip_blanks(r);
  const char *start = r->at;
  int negative = *r->at == '-';
  if (negative) r->at++;
  if (*r->at == '_') r->at++;
  if (*r->at < '0' || *r->at > '9') {
    r->at = start;
    refuse(r, "an integer");
    return 0;
  }
  int64_t value = 0;
  for (; *r->at >= '0' && *r->at <= '9'; r->at++) {
    value = value * 10 + (*r->at - '0');
    if (value >= GLINT_LAYOUT_MAX_SIZE) {
      r->at = start;
      refuse(r, "an integer below 2^48");
      return 0;
    }
  }
  return negative ? -value : value;
}

/* _ alone, not the prefix of an integer. */
static int accept_all(reader *r) {
  skip_blanks(r);
  if (r->at[0] != '_' || (r->at[1] >= '0' && r->at[1] <= '9')) return 0;
  r->at++;
  return 1;
}

/* Appends a tuple of integers; strides stay 0. with_all: _ may stand for an integer. */
static void read_tuple(reader *r, int32_t depth, int with_all) {
  if (r->b.status) return;
  if (with_all && accept_all(r)) {
    layout_put(&r->b, GLINT_LAYOUT_ALL, 0, 0, 0);
  } else if (accept(r, "(")) {
    if (depth == GLINT_LAYOUT_MAX_DEPTH) {
      refuse(r, "at most 16 levels of parentheses");
      return;
    }
    int32_t open = r->b.out->count, rank = 0;
    layout_put_tuple(&r->b, 0);
    do {
      read_tuple(r, depth + 1, with_all);
      rank++;
      if (r->b.status) return;
      if (!accept(r, ",")) break;
      skip_blanks(r);
    } while (*r->at != ')');
    expect(r, ")");
    if (!r->b.status) r->b.out->node[open].rank = rank;
  } else {
    layout_put_mode(&r->b, read_integer(r), 0);
  }
}

/* Compact strides from the left. Sizes beyond the limit stop at it; layout_end then refuses. */
static void fill_strides(glint_layout *l, int32_t node) {
  int64_t stride = 1;
  for (; node < l->count; node++)
    if (l->node[node].kind == GLINT_LAYOUT_MODE) {
      l->node[node].stride = stride;
      if (__builtin_mul_overflow(stride, l->node[node].shape, &stride) || stride > GLINT_LAYOUT_MAX_SIZE) stride = GLINT_LAYOUT_MAX_SIZE;
    }
}

/* Takes the integers of a stride tuple, read behind `count` nodes, into the shapes in front of it. */
static void merge_strides(reader *r, int32_t first, int32_t count) {
  glint_layout *l = r->b.out;
  int congruent = l->count - count == count - first;
  for (int32_t i = 0; congruent && i < count - first; i++) {
    glint_layout_node *shape = &l->node[first + i], *stride = &l->node[count + i];
    congruent = shape->kind == stride->kind && shape->rank == stride->rank;
    if (shape->kind == GLINT_LAYOUT_MODE) shape->stride = stride->shape;
  }
  l->count = count;
  if (!congruent && !r->b.status)
    r->b.status = layout_fail(r->b.error, GLINT_ERROR_INVALID_ARGUMENT, "the stride's parentheses differ from the shape's");
}

static void check_shapes(reader *r, int32_t first) {
  for (int32_t i = first; i < r->b.out->count; i++) {
    const glint_layout_node *n = &r->b.out->node[i];
    if (!r->b.status && n->kind == GLINT_LAYOUT_MODE && n->shape < 1)
      r->b.status = layout_fail(r->b.error, GLINT_ERROR_INVALID_ARGUMENT, "a shape is %lld, expected at least 1", (long long)n->shape);
  }
}

/* shape [ ":" stride ]; returns 1 if strides were given. */
static int read_plain(reader *r) {
  int32_t first = r->b.out->count;
  read_tuple(r, 0, 0);
  if (r->b.status) return 0;
  check_shapes(r, first);
  if (!accept(r, ":")) {
    fill_strides(r->b.out, first);
    return 0;
  }
  int32_t count = r->b.out->count;
  read_tuple(r, 0, 0);
  if (!r->b.status) merge_strides(r, first, count);
  return 1;
}

static void read_end(reader *r) {
  skip_blanks(r);
  if (*r->at) refuse(r, "the end");
}

static glint_status finish(reader *r, const glint_layout *result, glint_layout *out) {
  read_end(r);
  if (!layout_end(&r->b)) *out = *result;
  return r->b.status;
}

static int accept_swizzle(reader *r, glint_swizzle *swizzle) {
  if (!accept(r, "Sw<") && !accept(r, "Swizzle<") && !accept(r, "S<")) return 0;
  int64_t field[3] = {0, 0, 0};
  for (int i = 0; i < 3; i++) {
    field[i] = read_integer(r);
    expect(r, i < 2 ? "," : ">");
    if (field[i] > 64 || field[i] < -64) refuse(r, "a swizzle of less than 64 bits");
  }
  *swizzle = (glint_swizzle){(int32_t)field[0], (int32_t)field[1], (int32_t)field[2]};
  return 1;
}

glint_status glint_layout_parse(const char *text, glint_layout *layout, glint_layout_error *error) {
  glint_layout result;
  reader r = {text, text, layout_begin(&result, error)};
  glint_swizzle swizzle = {0, 0, 0};
  int64_t offset = 0;
  int swizzled = accept_swizzle(&r, &swizzle);
  if (swizzled) {
    expect(&r, "o");
    offset = r.b.status ? 0 : read_integer(&r);
    expect(&r, "o");
  }
  if (!r.b.status) read_plain(&r);
  glint_status status = finish(&r, &result, &result);
  if (!status && swizzled) status = glint_layout_swizzled(swizzle, offset, &result, &result, error);
  if (!status) *layout = result;
  return status;
}

/* A shape without strides becomes a tiler by mode: every tuple a tiler's tuple, every integer N:1. */
static void make_by_mode(glint_layout *l, int32_t first) {
  for (int32_t i = first; i < l->count; i++) {
    if (l->node[i].kind == GLINT_LAYOUT_TUPLE) l->node[i].kind = GLINT_LAYOUT_TILER;
    if (l->node[i].kind == GLINT_LAYOUT_MODE) l->node[i].stride = 1;
  }
}

static void read_tiler(reader *r, int32_t depth) {
  if (r->b.status) return;
  if (accept_all(r)) {
    layout_put(&r->b, GLINT_LAYOUT_ALL, 0, 0, 0);
  } else if (accept(r, "<")) {
    if (depth == GLINT_LAYOUT_MAX_DEPTH) {
      refuse(r, "at most 16 levels of brackets");
      return;
    }
    int32_t open = r->b.out->count, rank = 0;
    layout_put(&r->b, GLINT_LAYOUT_TILER, 0, 0, 0);
    do {
      read_tiler(r, depth + 1);
      rank++;
      if (r->b.status) return;
    } while (accept(r, ","));
    expect(r, ">");
    if (!r->b.status) r->b.out->node[open].rank = rank;
  } else {
    int32_t first = r->b.out->count;
    if (!read_plain(r) && !r->b.status) make_by_mode(r->b.out, first);
  }
}

glint_status glint_layout_parse_tiler(const char *text, glint_layout *tiler, glint_layout_error *error) {
  glint_layout result;
  reader r = {text, text, layout_begin(&result, error)};
  read_tiler(&r, 0);
  return finish(&r, &result, tiler);
}

glint_status glint_layout_parse_coordinate(const char *text, glint_layout *coordinate, glint_layout_error *error) {
  glint_layout result;
  reader r = {text, text, layout_begin(&result, error)};
  read_tuple(&r, 0, 1);
  if (!r.b.status) read_end(&r);
  if (!r.b.status) *coordinate = result;
  return r.b.status;
}

typedef struct writer {
  char *text;
  size_t size, length;
} writer;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
print(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t left = w->length < w->size ? w->size - w->length : 0;
  int n = vsnprintf(left ? w->text + w->length : NULL, left, format, args);
  va_end(args);
  w->length += (size_t)n;
}

static void print_node(writer *w, const glint_layout *l, int32_t node, int strides) {
  const glint_layout_node *n = &l->node[node];
  switch (n->kind) {
  case GLINT_LAYOUT_MODE: print(w, "%lld", (long long)(strides ? n->stride : n->shape)); return;
  case GLINT_LAYOUT_ALL: print(w, "_"); return;
  default: break;
  }
  for (int32_t i = 0; i < n->rank; i++) {
    print(w, i ? "," : "(");
    print_node(w, l, layout_child(l, node, i), strides);
  }
  print(w, ")");
}

static void print_tiler(writer *w, const glint_layout *l, int32_t node) {
  const glint_layout_node *n = &l->node[node];
  if (n->kind != GLINT_LAYOUT_TILER) {
    print_node(w, l, node, 0);
    if (n->kind == GLINT_LAYOUT_ALL) return;
    print(w, ":");
    print_node(w, l, node, 1);
    return;
  }
  for (int32_t i = 0; i < n->rank; i++) {
    print(w, i ? "," : "<");
    print_tiler(w, l, layout_child(l, node, i));
  }
  print(w, ">");
}

size_t glint_layout_format(const glint_layout *layout, char *text, size_t size) {
  writer w = {text, size, 0};
  if (layout_is_swizzled(layout))
    print(&w, "Sw<%d,%d,%d> o %lld o ", layout->swizzle.bits, layout->swizzle.base, layout->swizzle.shift, (long long)layout->offset);
  print_tiler(&w, layout, 0);
  return w.length;
}

size_t glint_layout_format_shape(const glint_layout *layout, char *text, size_t size) {
  writer w = {text, size, 0};
  print_node(&w, layout, 0, 0);
  return w.length;
}
