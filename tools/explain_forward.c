/* glint explain forward: the online softmax of one head, two tiles of keys, and the same through the library. */
#include "explain.h"
#include "verb.h"

#include <math.h>
#include <stdio.h>

enum { TILE = 2 };

/* What a kernel keeps of each row from tile to tile. */
typedef struct state {
  double m[EXPLAIN_N], l[EXPLAIN_N], alpha[EXPLAIN_N];
  explain_matrix o; /* not divided by l yet */
} state;

/* P~ = e^(S - m) of the tile's keys joins l and O, after both were scaled down to the new maximum. */
static void visit(state *x, const explain_matrix *s, int first, explain_matrix *p) {
  for (int i = 0; i < EXPLAIN_N; i++) {
    double old = x->m[i];
    for (int j = first; j < first + TILE; j++) x->m[i] = fmax(x->m[i], s->at[i][j]);
    x->alpha[i] = exp(old - x->m[i]);
    x->l[i] *= x->alpha[i];
    for (int c = 0; c < EXPLAIN_N; c++) x->o.at[i][c] *= x->alpha[i];
    for (int j = first; j < first + TILE; j++) {
      p->at[i][j] = exp(s->at[i][j] - x->m[i]);
      x->l[i] += p->at[i][j];
      for (int c = 0; c < EXPLAIN_N; c++) x->o.at[i][c] += p->at[i][j] * explain_v.at[j][c];
    }
  }
}

static void tell_state(const state *x, const char *name) {
  explain_show_row("m, the largest so far", x->m);
  explain_show_row("alpha = e^(m_old - m)", x->alpha);
  explain_show_row("l = alpha l + sum of P~", x->l);
  putchar('\n');
  explain_show(1, (explain_shown[]){{name, &x->o}}, 4);
}

static double largest_from_library(const explain_matrix *o, const double lse[EXPLAIN_N], int *status) {
  float q[EXPLAIN_N][EXPLAIN_N], k[EXPLAIN_N][EXPLAIN_N], v[EXPLAIN_N][EXPLAIN_N], got[EXPLAIN_N][EXPLAIN_N], got_lse[EXPLAIN_N];
  const glint_tensor like = {.shape = {1, EXPLAIN_N, 1, EXPLAIN_N}, .dtype = GLINT_FLOAT32, .rank = 4};
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  glint_problem p = {.struct_size = sizeof p, .q = like, .k = like, .v = like, .o = like};
  glint_context *context;
  double largest = 0;
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N; n++) {
    int i = n / EXPLAIN_N, j = n % EXPLAIN_N;
    q[i][j] = (float)explain_q.at[i][j], k[i][j] = (float)explain_k.at[i][j], v[i][j] = (float)explain_v.at[i][j];
  }
  p.q.data = q, p.k.data = k, p.v.data = v, p.o.data = got;
  p.lse = (glint_tensor){.data = got_lse, .shape = {1, 1, EXPLAIN_N}, .dtype = GLINT_FLOAT32, .rank = 3};
  if (glint_open(&options, &context) != GLINT_OK) return *status = verb_fail_library(NULL, "explain"), 0;
  *status = glint_forward(context, &p) == GLINT_OK ? 0 : verb_fail_library(context, "explain");
  glint_close(context);
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N && !*status; n++) {
    int i = n / EXPLAIN_N, j = n % EXPLAIN_N;
    largest = fmax(largest, fmax(fabs((double)got[i][j] - o->at[i][j]), fabs((double)got_lse[i] - lse[i])));
  }
  return largest;
}

int explain_forward(void) {
  state x = {{0}, {0}, {0}, {{{0}}}};
  explain_matrix s = explain_product(EXPLAIN_SCALE, &explain_q, 0, &explain_k, 1), p = {{{0}}}, whole, o;
  double lse[EXPLAIN_N], whole_lse[EXPLAIN_N];
  int status;
  for (int i = 0; i < EXPLAIN_N; i++) x.m[i] = -(double)INFINITY;
  puts("The forward pass by hand, as a kernel does it: keys in two tiles of two, and no row of scores is ever whole.\n"
       "One head, 4 rows, 4 keys, head_dim 4, c = 1/sqrt(4) = 0.5.\n");
  explain_show(3, (explain_shown[]){{"Q", &explain_q}, {"K", &explain_k}, {"V", &explain_v}}, 0);
  puts("Wanted is O = P V with P = softmax(c Q K^T). The softmax of a row needs the row's maximum m and its sum l of e^(S - m), and both "
       "need\n"
       "all keys. But they can be carried along: when a later tile raises m, everything so far is too large by e^(m - m_old), and\n"
       "one factor a row, alpha = e^(m_old - m), puts l and O right (Milakov and Gimelshein, 2018; Dao et al., 2022).\n");
  puts("1. Keys 0 and 1.   S = c Q K^T    P~ = e^(S - m)    O~ = alpha O~ + P~ V\n");
  visit(&x, &s, 0, &p);
  for (int i = 0; i < EXPLAIN_N; i++)
    printf("    row %d:  S %7.4f %7.4f    P~ %7.4f %7.4f\n", i, s.at[i][0], s.at[i][1], p.at[i][0], p.at[i][1]);
  putchar('\n');
  tell_state(&x, "O~");
  puts("2. Keys 2 and 3.   Rows 0, 2 and 3 meet a larger score: their alpha is below 1.\n");
  visit(&x, &s, TILE, &p);
  for (int i = 0; i < EXPLAIN_N; i++)
    printf("    row %d:  S %7.4f %7.4f    P~ %7.4f %7.4f\n", i, s.at[i][2], s.at[i][3], p.at[i][2], p.at[i][3]);
  putchar('\n');
  tell_state(&x, "O~");
  puts("3. The end.   O = O~ / l    lse = m + log l, the one number a row that the backward pass needs\n");
  for (int i = 0; i < EXPLAIN_N; i++) {
    lse[i] = x.m[i] + log(x.l[i]);
    for (int c = 0; c < EXPLAIN_N; c++) o.at[i][c] = x.o.at[i][c] / x.l[i];
  }
  explain_show_row("lse", lse);
  putchar('\n');
  explain_show(1, (explain_shown[]){{"O", &o}}, 4);
  explain_softmax(&s, whole_lse, &p);
  whole = explain_product(1, &p, 0, &explain_v, 0);
  double from_whole = 0, from_library = largest_from_library(&o, lse, &status);
  if (status) return status;
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N; n++)
    from_whole = fmax(from_whole, fabs(whole.at[n / EXPLAIN_N][n % EXPLAIN_N] - o.at[n / EXPLAIN_N][n % EXPLAIN_N]));
  /* limits, not values: the text is the same on every machine */
  printf("   the softmax of whole rows gives the same O within 1e-14:           %s\n", from_whole <= 1e-14 ? "yes" : "NO");
  printf("   glint_forward (cpu, float32) gives the same O and lse within 1e-6: %s\n", from_library <= 1e-6 ? "yes" : "NO");
  return !(from_whole <= 1e-14 && from_library <= 1e-6);
}
