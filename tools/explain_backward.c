/* glint explain backward: dQ, dK and dV derived and computed step by step, and compared with glint_backward and with differences. */
#include "explain.h"
#include "verb.h"

#include <math.h>
#include <stdio.h>

typedef struct steps {
  explain_matrix s, p, o, dv, dp, ds, dq, dk;
  double lse[EXPLAIN_N], from_p[EXPLAIN_N], delta[EXPLAIN_N];
} steps;

static steps compute(void) {
  steps x;
  x.s = explain_product(EXPLAIN_SCALE, &explain_q, 0, &explain_k, 1);
  explain_softmax(&x.s, x.lse, &x.p);
  x.o = explain_product(1, &x.p, 0, &explain_v, 0);
  x.dv = explain_product(1, &x.p, 1, &explain_d_o, 0);
  x.dp = explain_product(1, &explain_d_o, 0, &explain_v, 1);
  for (int i = 0; i < EXPLAIN_N; i++) {
    x.from_p[i] = x.delta[i] = 0;
    for (int j = 0; j < EXPLAIN_N; j++) {
      x.from_p[i] += x.p.at[i][j] * x.dp.at[i][j];
      x.delta[i] += explain_d_o.at[i][j] * x.o.at[i][j];
    }
    for (int j = 0; j < EXPLAIN_N; j++) x.ds.at[i][j] = x.p.at[i][j] * (x.dp.at[i][j] - x.delta[i]);
  }
  x.dq = explain_product(EXPLAIN_SCALE, &x.ds, 0, &explain_k, 0);
  x.dk = explain_product(EXPLAIN_SCALE, &x.ds, 1, &explain_q, 0);
  return x;
}

static void tell_forward(const steps *x) {
  puts("The backward pass of attention by hand: one head, 4 rows, 4 keys, head_dim 4, c = 1/sqrt(4) = 0.5.\n"
       "Given are Q, K, V and dO, the gradient of the loss L by the output:\n");
  explain_show(4, (explain_shown[]){{"Q", &explain_q}, {"K", &explain_k}, {"V", &explain_v}, {"dO", &explain_d_o}}, 0);
  puts("0. What the forward pass computed.   S = c Q K^T    lse_i = log sum_j e^S_ij    P_ij = e^(S_ij - lse_i)    O = P V\n"
       "   It kept O and lse. S and P are computed again here: 4 x 4 numbers, but n x n in general, too many to keep.\n");
  printf("   S_01 = c q_0 . k_1 = 0.5 (2*0 + 0*1 + 1*1 + 0*0) = %.4f      P_01 = e^(%.4f - %.4f) = %.4f\n\n", x->s.at[0][1], x->s.at[0][1],
         x->lse[0], x->p.at[0][1]);
  explain_show(3, (explain_shown[]){{"S", &x->s}, {"P", &x->p}, {"O", &x->o}}, 4);
  explain_show_row("lse (rows 0 to 3)", x->lse);
}

static void tell_values(const steps *x) {
  puts("\n1. dV.   O_ic = sum_j P_ij V_jc, so V_jc reaches O_ic with weight P_ij, and L through it with P_ij dO_ic:\n"
       "       dV = P^T dO\n");
  printf("   dV_00 = P_00 dO_00 + P_10 dO_10 + P_20 dO_20 + P_30 dO_30 = %.4f*1 + %.4f*0 + %.4f*0 + %.4f*1 = %.4f\n\n", x->p.at[0][0],
         x->p.at[1][0], x->p.at[2][0], x->p.at[3][0], x->dv.at[0][0]);
  puts("2. dP.   The same sum, read by P: P_ij reaches O_ic with weight V_jc:\n"
       "       dP = dO V^T\n");
  explain_show(2, (explain_shown[]){{"dV", &x->dv}, {"dP", &x->dp}}, 4);
}

static void tell_scores(const steps *x) {
  puts("3. dS.   P_ij = e^S_ij / sum_k e^S_ik, so dP_ij/dS_ik = P_ij (1 if j = k, else 0) - P_ij P_ik. Summed over j:\n"
       "       dS_ik = P_ik (dP_ik - D_i)      D_i = sum_j P_ij dP_ij\n"
       "   A key that is as useful as the row's average gets nothing: only what is better or worse than D counts.\n"
       "   D needs no sum over keys:   sum_j P_ij (dO_i . V_j) = dO_i . sum_j P_ij V_j = dO_i . O_i\n");
  explain_show_row("sum_j P_ij dP_ij", x->from_p);
  explain_show_row("D_i = dO_i . O_i", x->delta);
  printf("\n   dS_01 = P_01 (dP_01 - D_0) = %.4f (%.4f - %.4f) = %.4f      (each row of dS adds up to 0)\n\n", x->p.at[0][1],
         x->dp.at[0][1], x->delta[0], x->ds.at[0][1]);
  explain_show(1, (explain_shown[]){{"dS", &x->ds}}, 4);
}

static void tell_inputs(const steps *x) {
  puts("4. dQ and dK.   S_ij = c sum_d Q_id K_jd: Q_id reaches S_ij with weight c K_jd, and K_jd with c Q_id:\n"
       "       dQ = c dS K      dK = c dS^T Q\n");
  printf("   dQ_00 = c (dS_00 K_00 + dS_01 K_10 + dS_02 K_20 + dS_03 K_30) = 0.5 (%.4f*1 %+.4f*0 %+.4f*0 %+.4f*1) = %.4f\n\n",
         x->ds.at[0][0], x->ds.at[0][1], x->ds.at[0][2], x->ds.at[0][3], x->dq.at[0][0]);
  explain_show(2, (explain_shown[]){{"dQ", &x->dq}, {"dK", &x->dk}}, 4);
  puts("   Five products in all: S, dP, dV, dQ, dK. The forward pass has two, S and O: hence the 2.5 in every table of speeds.\n");
}

/* ---- proofs ---- */

/* L = sum of dO O. */
static double loss_of(const explain_matrix *q, const explain_matrix *k, const explain_matrix *v) {
  explain_matrix s = explain_product(EXPLAIN_SCALE, q, 0, k, 1), p;
  double lse[EXPLAIN_N], loss = 0;
  explain_softmax(&s, lse, &p);
  explain_matrix o = explain_product(1, &p, 0, v, 0);
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N; n++) loss += explain_d_o.at[n / EXPLAIN_N][n % EXPLAIN_N] * o.at[n / EXPLAIN_N][n % EXPLAIN_N];
  return loss;
}

static double largest_from_differences(const steps *x) {
  const explain_matrix *gradient[] = {&x->dq, &x->dk, &x->dv};
  const double h = 1e-4;
  double largest = 0;
  for (int n = 0; n < 3 * EXPLAIN_N * EXPLAIN_N; n++) {
    int which = n / (EXPLAIN_N * EXPLAIN_N), i = n / EXPLAIN_N % EXPLAIN_N, j = n % EXPLAIN_N;
    explain_matrix input[] = {explain_q, explain_k, explain_v};
    input[which].at[i][j] += h;
    double above = loss_of(&input[0], &input[1], &input[2]);
    input[which].at[i][j] -= 2 * h;
    double below = loss_of(&input[0], &input[1], &input[2]);
    largest = fmax(largest, fabs((above - below) / (2 * h) - gradient[which]->at[i][j]));
  }
  return largest;
}

typedef struct floats {
  float at[EXPLAIN_N][EXPLAIN_N];
} floats;

static floats floats_of(const explain_matrix *m) {
  floats f;
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N; n++) f.at[n / EXPLAIN_N][n % EXPLAIN_N] = (float)m->at[n / EXPLAIN_N][n % EXPLAIN_N];
  return f;
}

static glint_tensor tensor_of(floats *f) {
  return (glint_tensor){.data = f->at, .shape = {1, EXPLAIN_N, 1, EXPLAIN_N}, .dtype = GLINT_FLOAT32, .rank = 4};
}

static double largest_between(const floats *got, const explain_matrix *expected) {
  double largest = 0;
  for (int n = 0; n < EXPLAIN_N * EXPLAIN_N; n++) {
    double difference = fabs((double)got->at[n / EXPLAIN_N][n % EXPLAIN_N] - expected->at[n / EXPLAIN_N][n % EXPLAIN_N]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/* The same through the library, on the CPU engine. Returns the verb's status. */
static int run_engine(const steps *x, double *largest) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  floats q = floats_of(&explain_q), k = floats_of(&explain_k), v = floats_of(&explain_v), d_o = floats_of(&explain_d_o);
  floats o = {{{0}}}, dq = o, dk = o, dv = o;
  float lse[EXPLAIN_N];
  glint_problem p = {.struct_size = sizeof p, .q = tensor_of(&q), .k = tensor_of(&k), .v = tensor_of(&v), .o = tensor_of(&o)};
  glint_gradients g = {.struct_size = sizeof g, .d_o = tensor_of(&d_o), .dq = tensor_of(&dq), .dk = tensor_of(&dk), .dv = tensor_of(&dv)};
  p.lse = (glint_tensor){.data = lse, .shape = {1, 1, EXPLAIN_N}, .dtype = GLINT_FLOAT32, .rank = 3};
  glint_context *context;
  if (glint_open(&options, &context) != GLINT_OK) return verb_fail_library(NULL, "explain");
  int status = 0;
  if (glint_forward(context, &p) != GLINT_OK || glint_backward(context, &p, &g) != GLINT_OK) status = verb_fail_library(context, "explain");
  glint_close(context);
  if (!status) *largest = fmax(largest_between(&dq, &x->dq), fmax(largest_between(&dk, &x->dk), largest_between(&dv, &x->dv)));
  return status;
}

int explain_backward(void) {
  steps x = compute();
  double from_engine = 0, from_differences = largest_from_differences(&x);
  int status = run_engine(&x, &from_engine);
  if (status) return status;
  tell_forward(&x);
  tell_values(&x);
  tell_scores(&x);
  tell_inputs(&x);
  /* limits, not values: the text is the same on every machine */
  printf("   glint_backward (cpu, float32) gives these dQ, dK and dV within 1e-6: %s\n", from_engine <= 1e-6 ? "yes" : "NO");
  printf("   central differences of L = sum of dO O give them within 1e-7:        %s\n", from_differences <= 1e-7 ? "yes" : "NO");
  return !(from_engine <= 1e-6 && from_differences <= 1e-7);
}
