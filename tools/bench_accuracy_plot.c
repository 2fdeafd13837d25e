/* The study as a picture: bars of RMSE for each kind of data, and lines of the relative error along the length; both axes logarithmic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_accuracy.h"

enum { LEFT = 60, PANEL_WIDTH = 900, PANEL_HEIGHT = 240, GAP = 90, MOST_NAMES = 16 };

static const char *const colours[] = {"#888888", "#4e79a7", "#59a14f", "#edc948", "#b07aa1", "#e15759", "#76b7b2", "#9c755f"};
enum { COLOURS = sizeof colours / sizeof *colours };

/* Number of a name in the order in which names came up. */
static int index_of(char names[][48], int *count, const char *name) {
  for (int i = 0; i < *count; i++)
    if (strcmp(names[i], name) == 0) return i;
  if (*count == MOST_NAMES) return MOST_NAMES - 1;
  snprintf(names[*count], 48, "%s", name);
  return (*count)++;
}

typedef struct axis {
  double low, high; /* powers of ten */
} axis;

static double height_of(const axis *a, double value) {
  double share = (log10(value) - a->low) / (a->high - a->low);
  return PANEL_HEIGHT * (share < 0 ? 0 : share);
}

static void widen(axis *a, double value) {
  if (!(value > 0)) return;
  a->low = fmin(a->low, floor(log10(value))), a->high = fmax(a->high, ceil(log10(value)));
}

static void draw_frame(FILE *to, int top, const axis *a, const char *title) {
  fprintf(to, "<text x=\"%d\" y=\"%d\" font-size=\"14\">%s</text>\n", LEFT, top - 12, title);
  for (int p = (int)a->low; p <= (int)a->high; p++) {
    double y = top + PANEL_HEIGHT - height_of(a, pow(10, p));
    fprintf(to, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", LEFT, LEFT + PANEL_WIDTH, y, y);
    fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n", LEFT - 6, y + 4, p);
  }
}

static void draw_key(FILE *to, int top, char names[][48], int count) {
  for (int i = 0; i < count; i++) {
    int x = LEFT + i % 4 * 230, y = top + i / 4 * 16;
    fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", x, y,
            colours[i % COLOURS], x + 15, y + 9, names[i]);
  }
}

static void draw_bars(FILE *to, const accuracy_plot *plot, int top) {
  char groups[MOST_NAMES][48], names[MOST_NAMES][48];
  int group_count = 0, name_count = 0;
  axis a = {0, -4};
  for (int i = 0; i < plot->bar_count; i++) {
    widen(&a, plot->bars[i].rmse);
    index_of(groups, &group_count, plot->bars[i].group), index_of(names, &name_count, plot->bars[i].way);
  }
  if (!group_count) return;
  draw_frame(to, top, &a, "RMSE of o against float64, by how q, k and v became e4m3");
  double width = (double)PANEL_WIDTH / group_count, bar = width * 0.8 / name_count;
  for (int i = 0; i < plot->bar_count; i++) {
    const accuracy_bar *b = &plot->bars[i];
    int g = index_of(groups, &group_count, b->group), n = index_of(names, &name_count, b->way);
    double h = height_of(&a, b->rmse);
    fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>%s, %s: %.2e</title></rect>\n",
            LEFT + g * width + width * 0.1 + n * bar, top + PANEL_HEIGHT - h, bar * 0.9, h, colours[n % COLOURS], b->group, b->way,
            b->rmse);
  }
  for (int g = 0; g < group_count; g++)
    fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", LEFT + (g + 0.5) * width, top + PANEL_HEIGHT + 16,
            groups[g]);
  draw_key(to, top + PANEL_HEIGHT + 26, names, name_count);
}

static void draw_lines(FILE *to, const accuracy_plot *plot, int top) {
  char names[MOST_NAMES][48];
  int count = 0;
  axis a = {0, -4};
  double shortest = INFINITY, longest = 0;
  for (int i = 0; i < plot->point_count; i++) {
    widen(&a, plot->points[i].error);
    shortest = fmin(shortest, plot->points[i].length), longest = fmax(longest, plot->points[i].length);
    index_of(names, &count, plot->points[i].line);
  }
  if (!count || longest <= shortest) return;
  draw_frame(to, top, &a, "RMSE over the root of o's mean square, along the length");
  for (int n = 0; n < count; n++) {
    fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[n % COLOURS]);
    for (int i = 0; i < plot->point_count; i++) {
      const accuracy_point *p = &plot->points[i];
      if (strcmp(p->line, names[n]) != 0) continue;
      fprintf(to, "%.1f,%.1f ", LEFT + PANEL_WIDTH * log(p->length / shortest) / log(longest / shortest),
              top + PANEL_HEIGHT - height_of(&a, p->error));
    }
    fprintf(to, "\"/>\n");
  }
  for (double length = shortest; length <= longest; length *= 2)
    fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0fK</text>\n",
            LEFT + PANEL_WIDTH * log(length / shortest) / log(longest / shortest), top + PANEL_HEIGHT + 16, length / 1024);
  draw_key(to, top + PANEL_HEIGHT + 26, names, count);
}

glint_status accuracy_draw(const accuracy_plot *plot, const char *path, glint_error *error) {
  FILE *to = fopen(path, "w");
  if (!to) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: cannot be written", path);
  int width = LEFT + PANEL_WIDTH + 20, height = 2 * (PANEL_HEIGHT + GAP) + 40;
  fprintf(to,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
          width, height, width, height);
  draw_bars(to, plot, 40);
  draw_lines(to, plot, 40 + PANEL_HEIGHT + GAP);
  fputs("</svg>\n", to);
  return fclose(to) == 0 ? GLINT_OK : glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: could not be written", path);
}
