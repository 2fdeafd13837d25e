/* What the parts of `glint explain` share: the example and how it is printed. */
#ifndef GLINT_TOOLS_EXPLAIN_H
#define GLINT_TOOLS_EXPLAIN_H

enum { EXPLAIN_N = 4 }; /* rows, keys and head_dim alike */

typedef struct explain_matrix {
  double at[EXPLAIN_N][EXPLAIN_N];
} explain_matrix;

/* The example of both explanations; c = 1 / sqrt(head_dim). */
extern const explain_matrix explain_q, explain_k, explain_v, explain_d_o;
#define EXPLAIN_SCALE 0.5

/* factor * a b, with either factor transposed. */
explain_matrix explain_product(double factor, const explain_matrix *a, int a_transposed, const explain_matrix *b, int b_transposed);

/* lse of each row, natural logarithm; P = e^(S - lse). */
void explain_softmax(const explain_matrix *s, double lse[EXPLAIN_N], explain_matrix *p);

/* Prints matrices beside each other under their names; digits behind the point. */
typedef struct explain_shown {
  const char *name;
  const explain_matrix *matrix;
} explain_shown;
void explain_show(int count, const explain_shown *shown, int digits);
/* Prints "    NAME   x  x  x  x". */
void explain_show_row(const char *name, const double row[EXPLAIN_N]);

int explain_forward(void);
int explain_backward(void);
#endif
