/* Attention of the model, through glint's public interface alone. This is the file to read for how to call the library while training. */
#ifndef TRAIN_ATTENTION_H
#define TRAIN_ATTENTION_H
#include "glint.h"

typedef struct attention attention;

/* What glint needs to know of a batch of sequences. */
typedef struct attention_shape {
  int64_t batch, seqlen, heads, head_dim;
  float dropout;           /* share of probabilities that are dropped; 0: none */
  uint64_t dropout_offset; /* another one for each call; the backward pass needs that of its forward pass, and no mask is stored */
} attention_shape;

/* precision: that of q, k, v and o inside the engine; GPU kernels take bfloat16 and float16. On failure *a is NULL, and the text is in
 * attention_error(NULL). */
int attention_open(const glint_options *options, glint_dtype precision, attention **a);
void attention_close(attention *a);
const char *attention_error(const attention *a);
const char *attention_kernel(const attention *a); /* what ran last in the backward pass */
double attention_seconds(const attention *a);     /* in glint since the beginning */

/* qkv: rows of 3 * heads * head_dim values, first all of q, then k, then v; o: rows of heads * head_dim; lse: [batch][heads][seqlen], kept
 * for the way back. Causal. Return 1, or 0 with a text in attention_error. */
int attention_forward(attention *a, const attention_shape *shape, const float *qkv, float *o, float *lse);
/* Writes dqkv, laid out as qkv. */
int attention_backward(attention *a, const attention_shape *shape, const float *qkv, const float *o, const float *lse, const float *d_o,
                       float *dqkv);
#endif
