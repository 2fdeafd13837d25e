/* The loss over the steps, as text and as a drawing. */
#include "curve.h"

#include <math.h>
#include <string.h>

static double top_of(const curve *c) {
  double top = 0;
  for (int64_t i = 0; i < c->steps; i++) top = fmax(top, c->loss[i]);
  for (int64_t i = 0; i < c->held_count; i++) top = fmax(top, c->held_out[i]);
  return top > 0 ? ceil(top * 2) / 2 : 1;
}

/* Mean of share `part` of `parts` of the steps. */
static double mean_of(const curve *c, int64_t part, int64_t parts) {
  int64_t first = c->steps * part / parts, end = c->steps * (part + 1) / parts;
  double sum = 0;
  if (end <= first) end = first + 1;
  for (int64_t i = first; i < end; i++) sum += c->loss[i];
  return sum / (double)(end - first);
}

void curve_print(const curve *c, FILE *to) {
  enum { WIDTH = 72, HEIGHT = 16 };
  char picture[HEIGHT][WIDTH + 1];
  double top = top_of(c);
  if (c->steps == 0) return;
  memset(picture, ' ', sizeof picture);
  for (int x = 0; x < WIDTH; x++) {
    int y = (int)((1 - mean_of(c, x, WIDTH) / top) * HEIGHT);
    picture[y < 0 ? 0 : y >= HEIGHT ? HEIGHT - 1 : y][x] = '*';
  }
  for (int64_t i = 0; i < c->held_count; i++) {
    int64_t x = c->held_step[i] * WIDTH / c->steps;
    int y = (int)((1 - c->held_out[i] / top) * HEIGHT);
    picture[y < 0 ? 0 : y >= HEIGHT ? HEIGHT - 1 : y][x >= WIDTH ? WIDTH - 1 : x] = 'o';
  }
  for (int y = 0; y < HEIGHT; y++) {
    picture[y][WIDTH] = 0;
    if (y % 4 == 0)
      fprintf(to, "%5.2f |%s\n", top * (1 - (double)y / HEIGHT), picture[y]);
    else
      fprintf(to, "      |%s\n", picture[y]);
  }
  fputs(" 0.00 +", to);
  for (int x = 0; x < WIDTH; x++) fputc('-', to);
  fprintf(to, "\n       0%*lld steps    * loss, nats a character    o on the held-out text\n", WIDTH - 56, (long long)c->steps);
}

/* The drawing's frame, in pixels. */
enum { LEFT = 60, TOP = 30, WIDE = 620, HIGH = 300 };

static double x_of(const curve *c, int64_t step) { return LEFT + (double)WIDE * (double)step / (double)c->steps; }
static double y_of(double top, double loss) { return TOP + HIGH * (1 - loss / top); }

static void draw_frame(const curve *c, double top, FILE *to) {
  fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n",
          LEFT + WIDE + 30, TOP + HIGH + 50);
  fprintf(to, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"20\">loss, nats a character</text>\n", LEFT);
  for (int half = 0; half <= (int)(2 * top); half++)
    fprintf(to, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n", LEFT,
            y_of(top, half / 2.0), WIDE, LEFT - 6, y_of(top, half / 2.0) + 4, half / 2.0);
  for (int i = 0; i <= 4; i++)
    fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n", x_of(c, c->steps * i / 4), TOP + HIGH + 18,
            (long long)(c->steps * i / 4));
  fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">steps</text>\n", LEFT + WIDE / 2, TOP + HIGH + 38);
}

int curve_save(const curve *c, const char *path) {
  double top = top_of(c);
  FILE *to = c->steps ? fopen(path, "w") : NULL;
  if (!to) return 0;
  draw_frame(c, top, to);
  fputs("<polyline fill=\"none\" stroke=\"#36c\" points=\"", to);
  for (int64_t i = 0; i < c->steps; i++) fprintf(to, "%.1f,%.1f ", x_of(c, i + 1), y_of(top, c->loss[i]));
  fputs("\"/>\n<polyline fill=\"none\" stroke=\"#c52\" stroke-width=\"2\" points=\"", to);
  for (int64_t i = 0; i < c->held_count; i++) fprintf(to, "%.1f,%.1f ", x_of(c, c->held_step[i]), y_of(top, c->held_out[i]));
  fprintf(to, "\"/>\n<text x=\"%d\" y=\"20\" text-anchor=\"end\" fill=\"#36c\">on the batch</text>", LEFT + WIDE - 150);
  fprintf(to, "<text x=\"%d\" y=\"20\" text-anchor=\"end\" fill=\"#c52\">on the held-out text</text>\n</svg>\n", LEFT + WIDE);
  int failed = ferror(to);
  return !fclose(to) && !failed;
}
