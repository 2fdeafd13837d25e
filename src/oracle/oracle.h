/* The oracle: attention in double precision, straight from the formula of glint.h, without tiles or an online softmax. Everything else is
 * judged against it, so it is written to be read. */
#ifndef GLINT_ORACLE_H
#define GLINT_ORACLE_H

#include "../api/engine.h"

/* One sequence's keys and values of one key/value head. */
typedef struct oracle_group {
  const glint_work *w;
  glint_sequence s;
  int64_t b, head_kv;
  double *k; /* [len_k, head_dim] */
  double *v; /* [len_k, head_dim_v] */
} oracle_group;

/* One query row. Arrays over keys hold entries first to end - 1, the visible keys. */
typedef struct oracle_row {
  int64_t first, end;
  double lse;
  double sink_p;     /* probability that the sink takes */
  double *q;         /* [head_dim] */
  double *p;         /* [len_k]: probability, before dropout */
  double *softcap_d; /* [len_k]: derivative of the softcap at this score, 1 without */
  double *keep;      /* [len_k]: factor of dropout, 0 or 1 / (1 - p'); 1 without */
  double *out;       /* [max(head_dim, head_dim_v)]: scratch of the caller */
  double *extra;     /* [len_k]: scratch of the caller */
} oracle_row;

/* Reads keys and values. 0 when memory is short; free with oracle_group_free. */
int oracle_group_load(oracle_group *g, const glint_work *w, int64_t b, int64_t head_kv);
void oracle_group_free(oracle_group *g);

int oracle_row_alloc(oracle_row *r, const oracle_group *g);
void oracle_row_free(oracle_row *r);

/* The one place where scores are made: fills r for row i of query head head. */
void oracle_row_compute(oracle_row *r, const oracle_group *g, int64_t head, int64_t i);

/* Its parts: the query row as it enters the scores (dequantised, rotated), and the dropout factors of the visible keys into r->keep. */
void oracle_load_query(double *q, const oracle_group *g, int64_t head, int64_t i);
void oracle_dropout(oracle_row *r, const oracle_group *g, int64_t head, int64_t i);

/* Rotary embedding of x (head_dim values) at a position (Su et al. 2021, "RoFormer"). */
void oracle_rotate(const glint_work *w, double *x, int64_t position);

/* Appends k_new (rotated) and v_new to the cache. */
void oracle_append(const glint_work *w);

/* The three passes; 0 when memory is short. */
int oracle_forward(const glint_work *w, int threads);
int oracle_backward(const glint_work *w, int threads);

/* Quantization by the formulas of glint_quantization, in double precision with one rounding at the end. 0: out of memory. */
int oracle_quantize(const glint_quantize_work *w);

#endif
