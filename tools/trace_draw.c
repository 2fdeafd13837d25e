/* The pipeline of one thread block as an SVG: time runs to the right; each consumer warpgroup has a lane for its products in flight and one for
 * what it computes, the producer one for its loads. */
#include "trace_stamps.h"

enum { LEFT = 160, TOP = 56, LANE = 26, GAP = 10, WIDTH = 1400 };

static const char *const color[TRACE_KINDS] = {"#4878cf", "#6acc65", "#ee854a", "#956cb4", "#8c8c8c"};

static int lane_of(const trace_spans *s, const trace_span *span) {
  if (span->role == s->roles - 1) return 2 * span->role;
  return 2 * span->role + (span->kind != TRACE_QK && span->kind != TRACE_PV);
}
static int lane_top(int lane) { return TOP + lane * LANE + lane / 2 * GAP; }

static void draw_legend(FILE *to) {
  int x = LEFT;
  for (int kind = 0; kind < TRACE_KINDS; kind++) {
    fprintf(to, "<rect x=\"%d\" y=\"28\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"39\">%s</text>\n", x, color[kind],
            x + 17, trace_kind_name[kind]);
    x += 150;
  }
}

static void draw_axis(FILE *to, int64_t begin, int64_t length, int bottom) {
  int64_t step = 100;
  while (length / step > 12) step *= step % 3 == 1 ? 2 : 5; /* 100 200 1000 2000 ... */
  for (int64_t t = (begin + step - 1) / step * step; t <= begin + length; t += step) {
    double x = LEFT + (double)(t - begin) * WIDTH / (double)length;
    fprintf(
        to,
        "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n",
        x, TOP - 4, x, bottom, x, bottom + 14, (long long)t);
  }
}

static void draw_lanes(FILE *to, const trace_spans *s) {
  for (int role = 0; role < s->roles; role++) {
    if (role == s->roles - 1) {
      fprintf(to, "<text x=\"8\" y=\"%d\">producer</text>\n", lane_top(2 * role) + 17);
      continue;
    }
    fprintf(to, "<text x=\"8\" y=\"%d\">consumer %d products</text>\n", lane_top(2 * role) + 17, role);
    fprintf(to, "<text x=\"8\" y=\"%d\">consumer %d computes</text>\n", lane_top(2 * role + 1) + 17, role);
  }
}

void trace_draw(FILE *to, const trace_spans *s, int64_t begin, int64_t length, const char *title) {
  int bottom = lane_top(2 * s->roles - 1) + 4;
  fprintf(to,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
          "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"18\" font-size=\"14\">%s</text>\n",
          LEFT + WIDTH + 20, bottom + 24, LEFT + WIDTH + 20, bottom + 24, title);
  draw_legend(to);
  draw_axis(to, begin, length, bottom);
  draw_lanes(to, s);
  for (int i = 0; i < s->count; i++) {
    const trace_span *span = &s->span[i];
    int64_t from = span->begin > begin ? span->begin : begin, until = span->end < begin + length ? span->end : begin + length;
    if (until <= from) continue;
    double x = LEFT + (double)(from - begin) * WIDTH / (double)length, w = (double)(until - from) * WIDTH / (double)length;
    /* both products may be in flight at once: the second one is drawn in the lower half */
    int half = span->kind == TRACE_QK || span->kind == TRACE_PV;
    fprintf(to, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s: %lld cycles</title></rect>\n", x,
            lane_top(lane_of(s, span)) + (span->kind == TRACE_PV ? LANE / 2 : 1), w, half ? LANE / 2 - 1 : LANE - 3, color[span->kind],
            trace_kind_name[span->kind], (long long)(span->end - span->begin));
  }
  fputs("</svg>\n", to);
}
