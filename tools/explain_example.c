/* The example of `glint explain`: numbers small enough to follow with a pencil. */
#include "explain.h"

#include <math.h>
#include <stdio.h>

const explain_matrix explain_q = {{{2, 0, 1, 0}, {0, 2, 1, 0}, {2, 0, 0, 1}, {1, 1, 0, 2}}};
const explain_matrix explain_k = {{{1, 1, 0, 0}, {0, 1, 1, 0}, {0, 0, 1, 1}, {1, 0, 1, 1}}};
const explain_matrix explain_v = {{{1, 0, 0, 2}, {0, 1, 0, -1}, {0, 0, 1, 0}, {1, 1, -1, 0}}};
const explain_matrix explain_d_o = {{{1, 0, 0, 0}, {0, 1, 0, -1}, {0, 0, 2, 0}, {1, 0, 0, 1}}};

explain_matrix explain_product(double factor, const explain_matrix *a, int a_transposed, const explain_matrix *b, int b_transposed) {
  explain_matrix c = {{{0}}};
  for (int i = 0; i < EXPLAIN_N; i++)
    for (int j = 0; j < EXPLAIN_N; j++) {
      for (int u = 0; u < EXPLAIN_N; u++)
        c.at[i][j] += (a_transposed ? a->at[u][i] : a->at[i][u]) * (b_transposed ? b->at[j][u] : b->at[u][j]);
      c.at[i][j] *= factor;
    }
  return c;
}

void explain_softmax(const explain_matrix *s, double lse[EXPLAIN_N], explain_matrix *p) {
  for (int i = 0; i < EXPLAIN_N; i++) {
    double sum = 0;
    for (int j = 0; j < EXPLAIN_N; j++) sum += exp(s->at[i][j]);
    lse[i] = log(sum);
    for (int j = 0; j < EXPLAIN_N; j++) p->at[i][j] = exp(s->at[i][j] - lse[i]);
  }
}

/* A number whose rounding is 0 is printed without a sign, wherever the arithmetic left it. */
static double printable(double x, int digits) { return fabs(x) < 0.5 * pow(10, -digits) ? 0 : x; }

void explain_show(int count, const explain_shown *shown, int digits) {
  int width = digits ? digits + 4 : 4;
  for (int n = 0; n < count; n++) printf("   %*s%-*s", width - 2, "", n + 1 < count ? EXPLAIN_N * width + 2 - width : 0, shown[n].name);
  putchar('\n');
  for (int i = 0; i < EXPLAIN_N; i++) {
    for (int n = 0; n < count; n++) {
      printf("   ");
      for (int j = 0; j < EXPLAIN_N; j++) printf("%*.*f", width, digits, printable(shown[n].matrix->at[i][j], digits));
    }
    putchar('\n');
  }
  putchar('\n');
}

void explain_show_row(const char *name, const double row[EXPLAIN_N]) {
  printf("    %-24s", name);
  for (int i = 0; i < EXPLAIN_N; i++) printf("%9.4f", printable(row[i], 4));
  putchar('\n');
}
