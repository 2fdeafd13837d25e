/* glint layout: pictures of layouts, as text for a terminal and as SVG for a document. */
#include <stdlib.h>
#include <string.h>

#include "layout_tool.h"

enum { TEXT_ROWS = 128, TEXT_COLUMNS = 128, SVG_CELLS = 1 << 16, TV_CELLS = 64 * 256 };

/* ---- text --------------------------------------------------------------------------------------------------------------------- */

void layout_draw_text(FILE *to, const layout_picture *p) {
  layout_cell cell;
  long long rows = p->rows < TEXT_ROWS ? p->rows : TEXT_ROWS, columns = p->columns < TEXT_COLUMNS ? p->columns : TEXT_COLUMNS;
  int width = snprintf(NULL, 0, "%lld", columns - 1), margin = snprintf(NULL, 0, "%lld", rows - 1);
  for (long long i = 0; i < rows; i++)
    for (long long j = 0; j < columns; j++) {
      p->cell(p->data, i, j, &cell);
      int length = (int)strlen(cell.label);
      if (length > width) width = length;
    }
  fprintf(to, "%*s |", margin, "");
  for (long long j = 0; j < columns; j++) fprintf(to, " %*lld", width, j);
  fprintf(to, "\n%.*s-+%.*s\n", margin, "--------------------", 0, "");
  for (long long i = 0; i < rows; i++) {
    fprintf(to, "%*lld |", margin, i);
    for (long long j = 0; j < columns; j++) {
      p->cell(p->data, i, j, &cell);
      fprintf(to, " %*s", width, cell.label);
    }
    fprintf(to, "\n");
  }
  if (rows < p->rows || columns < p->columns)
    fprintf(to, "(the first %lld of %lld rows and %lld of %lld columns)\n", rows, p->rows, columns, p->columns);
}

/* ---- SVG ---------------------------------------------------------------------------------------------------------------------- */

/* 32 colors around the wheel, light enough for black text. Neighbouring numbers are 11 steps apart, so that they can be told apart. */
static void color_of(int number, char text[8]) {
  if (number < 0) {
    snprintf(text, 8, "#ffffff");
    return;
  }
  double hue = number * 11 % 32 * 6.0 / 32, low = number % 2 ? 0.62 : 0.74, rgb[3];
  for (int i = 0; i < 3; i++) {
    double d = hue - 2 * i; /* distance to the primary on a wheel of circumference 6 */
    if (d < 0) d = -d;
    if (d > 3) d = 6 - d;
    double full = d < 1 ? 1 : d < 2 ? 2 - d : 0;
    rgb[i] = low + (1 - low) * full;
  }
  snprintf(text, 8, "#%02x%02x%02x", (unsigned)(rgb[0] * 255), (unsigned)(rgb[1] * 255), (unsigned)(rgb[2] * 255));
}

/* Width of one column in pixels: the label's, shared by the columns that are drawn as one. */
static int column_width(const layout_picture *p) {
  layout_cell cell, next;
  long long shortest = p->columns;
  int longest = 2;
  for (long long i = 0; i < p->rows; i++) {
    long long run = 0;
    for (long long j = 0; j < p->columns; j++) {
      p->cell(p->data, i, j, &cell);
      if ((int)strlen(cell.label) > longest) longest = (int)strlen(cell.label);
      run++;
      int last = j + 1 == p->columns;
      if (!last) p->cell(p->data, i, j + 1, &next);
      if (last || !p->merge || next.group != cell.group) {
        if (run < shortest) shortest = run;
        run = 0;
      }
    }
  }
  int width = (longest * 7 + 6 + (int)shortest - 1) / (int)shortest;
  return width < 6 ? 6 : width;
}

static void escape(FILE *to, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      fputs("&lt;", to);
    else if (*text == '>')
      fputs("&gt;", to);
    else if (*text == '&')
      fputs("&amp;", to);
    else
      fputc(*text, to);
  }
}

void layout_draw_svg(FILE *to, const layout_picture *p, const char *title) {
  enum { LEFT = 34, TOP = 44, HEIGHT = 16 };
  int width = column_width(p);
  long long total_width = LEFT + p->columns * width + 10, total_height = TOP + p->rows * HEIGHT + 10;
  fprintf(to,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" viewBox=\"0 0 %lld %lld\" "
          "font-family=\"monospace\" font-size=\"11\" text-anchor=\"middle\">\n",
          total_width, total_height, total_width, total_height);
  fprintf(to, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n<text x=\"%d\" y=\"16\" text-anchor=\"start\">", LEFT);
  escape(to, title);
  fprintf(to, "</text>\n");
  for (long long i = 0; i < p->rows; i++) {
    long long y = TOP + i * HEIGHT;
    fprintf(to, "<text x=\"%d\" y=\"%lld\" text-anchor=\"end\" fill=\"#666666\">%lld</text>\n", LEFT - 5, y + 12, i);
    for (long long j = 0; j < p->columns;) {
      layout_cell cell, next;
      char color[8];
      long long end = j + 1;
      p->cell(p->data, i, j, &cell);
      for (; p->merge && end < p->columns; end++) {
        p->cell(p->data, i, end, &next);
        if (next.group != cell.group) break;
      }
      color_of(cell.color, color);
      long long x = LEFT + j * width, w = (end - j) * width;
      if (i == 0) fprintf(to, "<text x=\"%lld\" y=\"%d\" fill=\"#666666\">%lld</text>\n", x + w / 2, TOP - 6, j);
      fprintf(to, "<rect x=\"%lld\" y=\"%lld\" width=\"%lld\" height=\"%d\" fill=\"%s\" stroke=\"#888888\" stroke-width=\"0.5\"/>", x, y, w,
              HEIGHT, color);
      fprintf(to, "<text x=\"%lld\" y=\"%lld\">%s</text>\n", x + w / 2, y + 12, cell.label);
      j = end;
    }
  }
  fprintf(to, "</svg>\n");
}

/* ---- offsets of a layout -------------------------------------------------------------------------------------------------------- */

typedef struct offsets {
  const glint_layout *layout;
  long long rows;
  int bits; /* 0: unknown */
} offsets;

static void offset_cell(const void *data, long long row, long long column, layout_cell *cell) {
  const offsets *o = data;
  long long offset = glint_layout_at(o->layout, row + o->rows * column), bits = o->bits ? o->bits : 32;
  snprintf(cell->label, sizeof cell->label, "%lld", offset);
  cell->color = (int)((offset * bits / 32) & 31);
  long long chunk = offset * bits / 128;
  cell->group = (chunk << 20) ^ (offset - column); /* one 16-byte chunk whose offsets ascend with the column */
}

glint_status layout_show(layout_call *call) {
  const glint_layout *l = &call->result;
  glint_layout mode;
  glint_status status = GLINT_OK;
  offsets o = {.layout = l, .rows = 1, .bits = call->element_bits};
  layout_picture p = {.rows = 1, .columns = glint_layout_size(l), .data = &o, .cell = offset_cell};
  if (glint_layout_rank(l) > 2) return layout_refuse(call, "a picture has two dimensions, the layout %d modes", glint_layout_rank(l));
  if (glint_layout_rank(l) == 2) {
    status = glint_layout_mode(l, 0, &mode, &call->error);
    if (status) return status;
    o.rows = p.rows = glint_layout_size(&mode);
    p.columns = glint_layout_size(l) / p.rows;
  }
  if (call->output == LAYOUT_TEXT) {
    layout_draw_text(call->to, &p);
    return GLINT_OK;
  }
  if (p.rows * p.columns > SVG_CELLS)
    return layout_refuse(call, "%lld cells are too many for a picture (%d)", p.rows * p.columns, SVG_CELLS);
  char title[LAYOUT_TEXT_SIZE + 128], text[LAYOUT_TEXT_SIZE];
  if (!o.bits && p.columns > 16) o.bits = 16;
  p.merge = o.bits > 0 && o.bits < 128;
  glint_layout_format(l, text, sizeof text);
  snprintf(title, sizeof title, p.merge ? "%s   offset of each 16-byte chunk of %d-bit elements, color: bank" : "%s", text, o.bits);
  layout_draw_svg(call->to, &p, title);
  return GLINT_OK;
}

/* ---- who holds what ------------------------------------------------------------------------------------------------------------- */

typedef struct owners {
  long long rows;
  short thread[TV_CELLS], value[TV_CELLS]; /* -1: nobody */
} owners;

static void owner_cell(const void *data, long long row, long long column, layout_cell *cell) {
  const owners *o = data;
  long long at = row + o->rows * column;
  cell->label[0] = '\0';
  if (o->thread[at] >= 0) snprintf(cell->label, sizeof cell->label, "T%dV%d", o->thread[at], o->value[at]);
  cell->color = o->thread[at] < 0 ? -1 : o->thread[at] % 32;
  cell->group = at;
}

glint_status layout_show_tv(layout_call *call, const glint_layout *tv, long long rows, long long columns, const char *title) {
  glint_layout mode;
  if (rows * columns > TV_CELLS) return layout_refuse(call, "%lld cells are too many for a picture (%d)", rows * columns, TV_CELLS);
  glint_status status = glint_layout_mode(tv, 0, &mode, &call->error);
  if (status) return status;
  long long threads = glint_layout_size(&mode), values = glint_layout_size(tv) / threads;
  owners *o = malloc(sizeof *o);
  if (!o) return layout_refuse(call, "out of memory");
  o->rows = rows;
  for (long long i = 0; i < TV_CELLS; i++) o->thread[i] = o->value[i] = -1;
  for (long long i = 0; i < threads * values; i++) {
    long long at = glint_layout_at(tv, i);
    if (at < 0 || at >= rows * columns) continue;
    o->thread[at] = (short)(i % threads);
    o->value[at] = (short)(i / threads);
  }
  layout_picture p = {.rows = rows, .columns = columns, .data = o, .cell = owner_cell};
  if (call->output == LAYOUT_SVG) layout_draw_svg(call->to, &p, title);
  if (call->output == LAYOUT_TEXT) layout_draw_text(call->to, &p);
  free(o);
  return GLINT_OK;
}
