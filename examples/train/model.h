/* The model: a decoder of the usual kind, small. Characters in, a guess of the next character out.
 *
 *   x = character
 *   for each layer:  x += attention(rotated(norm(x) Wqkv)) Wo;   x += swiglu(norm(x) Wz) Wd
 *   logits = norm(x) Wh
 *
 * Everything that the backward pass needs is kept from the forward pass, layer by layer; of attention that is q, k, v, its output and one
 * number a row, lse. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H
#include "attention.h"

enum { MODEL_LAYERS_MAX = 16 };

typedef struct model_shape {
  int64_t characters; /* how many different ones */
  int64_t batch, seqlen;
  int64_t layers, heads, head_dim; /* the width is heads * head_dim */
  int64_t hidden;                  /* of the feed-forward layers */
} model_shape;

typedef struct layer_parameters {
  float *norm1, *qkv, *out; /* [width], [width][3 width], [width][width] */
  float *norm2, *up, *down; /* [width], [width][2 hidden], [hidden][width] */
} layer_parameters;

/* Pointers into one block, so that an optimizer can walk over it. Gradients have the same form. */
typedef struct parameters {
  float *block;
  int64_t count;
  float *characters; /* [characters][width] */
  layer_parameters layer[MODEL_LAYERS_MAX];
  float *norm, *head; /* [width], [width][characters] */
} parameters;

/* What the forward pass of a layer leaves for the backward pass. */
typedef struct layer_values {
  float *x, *scale1, *norm1, *qkv, *attended, *lse; /* up to attention */
  float *middle, *scale2, *norm2, *z, *hidden;      /* from there on */
} layer_values;

typedef struct model {
  model_shape shape;
  parameters weights, gradients;
  layer_values layer[MODEL_LAYERS_MAX];
  float *x, *scale, *norm, *logits; /* behind the last layer */
  float *values;                    /* block of all values and of the scratch for gradients */
  float *dx, *dmiddle, *dnorm, *dqkv, *dattended, *dz, *dhidden, *dlogits;
  attention *attention; /* not owned */
  float dropout;        /* of attention, in the calls to come; 0 unless training */
  uint64_t step;        /* which random numbers dropout takes */
} model;

/* 1, or 0 when memory is short. Weights are drawn from seed. */
int model_open(model *m, const model_shape *shape, attention *a, uint64_t seed);
void model_close(model *m);

/* The mean loss in nats a character over batch sequences of seqlen characters, at most those of the shape; logits and values are left in m.
 * Negative when attention failed. target may be NULL: then only the logits are computed, and 0 is returned. */
double model_forward(model *m, const uint8_t *input, const uint8_t *target, int64_t batch, int64_t seqlen);
/* Gradients of that loss, into m->gradients. Returns 1, or 0 when attention failed. */
int model_backward(model *m, const uint8_t *input, int64_t batch, int64_t seqlen);
#endif
