/* The model, put together from its layers. */
#include "model.h"

#include "layers.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Hands out pieces of a block; with a block of NULL it only counts. */
typedef struct pieces {
  float *block;
  int64_t count;
} pieces;

static float *take(pieces *p, int64_t count) {
  float *piece = p->block ? p->block + p->count : NULL;
  p->count += count;
  return piece;
}

static int64_t width_of(const model_shape *s) { return s->heads * s->head_dim; }

static void lay_out_parameters(parameters *p, const model_shape *s) {
  int64_t width = width_of(s);
  pieces at = {p->block, 0};
  p->characters = take(&at, s->characters * width);
  for (int64_t l = 0; l < s->layers; l++) {
    layer_parameters *layer = &p->layer[l];
    layer->norm1 = take(&at, width), layer->qkv = take(&at, width * 3 * width), layer->out = take(&at, width * width);
    layer->norm2 = take(&at, width), layer->up = take(&at, width * 2 * s->hidden), layer->down = take(&at, s->hidden * width);
  }
  p->norm = take(&at, width), p->head = take(&at, width * s->characters);
  p->count = at.count;
}

static int64_t lay_out_values(model *m) {
  const model_shape *s = &m->shape;
  int64_t n = s->batch * s->seqlen, width = width_of(s);
  pieces at = {m->values, 0};
  for (int64_t l = 0; l < s->layers; l++) {
    layer_values *v = &m->layer[l];
    v->x = take(&at, n * width), v->scale1 = take(&at, n), v->norm1 = take(&at, n * width), v->qkv = take(&at, n * 3 * width);
    v->attended = take(&at, n * width), v->lse = take(&at, n * s->heads), v->middle = take(&at, n * width), v->scale2 = take(&at, n);
    v->norm2 = take(&at, n * width), v->z = take(&at, n * 2 * s->hidden), v->hidden = take(&at, n * s->hidden);
  }
  m->x = take(&at, n * width), m->scale = take(&at, n), m->norm = take(&at, n * width), m->logits = take(&at, n * s->characters);
  m->dx = take(&at, n * width), m->dmiddle = take(&at, n * width), m->dnorm = take(&at, n * width), m->dqkv = take(&at, n * 3 * width);
  m->dattended = take(&at, n * width), m->dz = take(&at, n * 2 * s->hidden), m->dhidden = take(&at, n * s->hidden);
  m->dlogits = take(&at, n * s->characters);
  return at.count;
}

static void draw(float *w, int64_t count, double deviation, uint64_t *random) {
  for (int64_t i = 0; i < count; i++) w[i] = (float)(deviation * random_normal(random));
}

static void fill(float *w, int64_t count, float value) {
  for (int64_t i = 0; i < count; i++) w[i] = value;
}

/* Products start out with the variance of their inputs; what adds to the residual stream is smaller the more layers do so. */
static void draw_weights(const parameters *w, const model_shape *s, uint64_t seed) {
  int64_t width = width_of(s);
  double plain = 1 / sqrt((double)width), residual = 1 / sqrt(2 * (double)s->layers);
  draw(w->characters, s->characters * width, 0.5, &seed);
  for (int64_t l = 0; l < s->layers; l++) {
    const layer_parameters *layer = &w->layer[l];
    fill(layer->norm1, width, 1), fill(layer->norm2, width, 1);
    draw(layer->qkv, width * 3 * width, plain, &seed), draw(layer->out, width * width, plain * residual, &seed);
    draw(layer->up, width * 2 * s->hidden, plain, &seed);
    draw(layer->down, s->hidden * width, residual / sqrt((double)s->hidden), &seed);
  }
  fill(w->norm, width, 1), draw(w->head, width * s->characters, 0.1 * plain, &seed);
}

int model_open(model *m, const model_shape *shape, attention *a, uint64_t seed) {
  *m = (model){.shape = *shape, .attention = a};
  lay_out_parameters(&m->weights, shape);
  m->weights.block = malloc((size_t)m->weights.count * sizeof(float));
  m->gradients.block = malloc((size_t)m->weights.count * sizeof(float));
  m->values = malloc((size_t)lay_out_values(m) * sizeof(float));
  if (!m->weights.block || !m->gradients.block || !m->values) return model_close(m), 0;
  lay_out_parameters(&m->weights, shape);
  lay_out_parameters(&m->gradients, shape);
  lay_out_values(m);
  draw_weights(&m->weights, shape, seed);
  return 1;
}

void model_close(model *m) {
  free(m->weights.block);
  free(m->gradients.block);
  free(m->values);
  *m = (model){0};
}

static void zero(float *x, int64_t count) { memset(x, 0, (size_t)count * sizeof *x); }
static void copy(float *to, const float *from, int64_t count) { memcpy(to, from, (size_t)count * sizeof *to); }

static attention_shape shape_of(const model *m, int64_t layer, int64_t batch, int64_t seqlen) {
  const model_shape *s = &m->shape;
  return (attention_shape){batch, seqlen, s->heads, s->head_dim, m->dropout, m->step * (uint64_t)s->layers + (uint64_t)layer};
}

/* From v->x to y, the x of the next layer. */
static int layer_forward(const model *m, const layer_values *v, const layer_parameters *w, float *y, const attention_shape *shape) {
  int64_t n = shape->batch * shape->seqlen, width = width_of(&m->shape), hidden = m->shape.hidden;
  norm_forward(v->norm1, v->scale1, v->x, w->norm1, n, width);
  zero(v->qkv, n * 3 * width);
  linear_forward(v->qkv, v->norm1, w->qkv, n, width, 3 * width);
  rotate(v->qkv, n, shape->seqlen, m->shape.heads, m->shape.head_dim, 1);
  if (!attention_forward(m->attention, shape, v->qkv, v->attended, v->lse)) return 0;
  copy(v->middle, v->x, n * width);
  linear_forward(v->middle, v->attended, w->out, n, width, width);
  norm_forward(v->norm2, v->scale2, v->middle, w->norm2, n, width);
  zero(v->z, n * 2 * hidden);
  linear_forward(v->z, v->norm2, w->up, n, width, 2 * hidden);
  gate_forward(v->hidden, v->z, n, hidden);
  copy(y, v->middle, n * width);
  linear_forward(y, v->hidden, w->down, n, hidden, width);
  return 1;
}

double model_forward(model *m, const uint8_t *input, const uint8_t *target, int64_t batch, int64_t seqlen) {
  const model_shape *s = &m->shape;
  int64_t n = batch * seqlen, width = width_of(s);
  embed_forward(m->layer[0].x, input, m->weights.characters, n, width);
  for (int64_t l = 0; l < s->layers; l++) {
    attention_shape shape = shape_of(m, l, batch, seqlen);
    if (!layer_forward(m, &m->layer[l], &m->weights.layer[l], l + 1 < s->layers ? m->layer[l + 1].x : m->x, &shape)) return -1;
  }
  norm_forward(m->norm, m->scale, m->x, m->weights.norm, n, width);
  zero(m->logits, n * s->characters);
  linear_forward(m->logits, m->norm, m->weights.head, n, width, s->characters);
  return target ? cross_entropy(m->dlogits, m->logits, target, n, s->characters) : 0;
}

/* layer_forward read from its last line to its first. m->dx: the gradient of the layer's output, and at the end that of its input. */
static int layer_backward(const model *m, const layer_values *v, const layer_parameters *w, const layer_parameters *d,
                          const attention_shape *shape) {
  int64_t n = shape->batch * shape->seqlen, width = width_of(&m->shape), hidden = m->shape.hidden;
  zero(m->dhidden, n * hidden), zero(m->dz, n * 2 * hidden), zero(m->dnorm, n * width), zero(m->dattended, n * width);
  linear_backward(m->dhidden, d->down, m->dx, v->hidden, w->down, n, hidden, width);
  gate_backward(m->dz, m->dhidden, v->z, n, hidden);
  linear_backward(m->dnorm, d->up, m->dz, v->norm2, w->up, n, width, 2 * hidden);
  copy(m->dmiddle, m->dx, n * width); /* past the feed-forward layer */
  norm_backward(m->dmiddle, d->norm2, m->dnorm, v->middle, v->scale2, w->norm2, n, width);
  linear_backward(m->dattended, d->out, m->dmiddle, v->attended, w->out, n, width, width);
  if (!attention_backward(m->attention, shape, v->qkv, v->attended, v->lse, m->dattended, m->dqkv)) return 0;
  rotate(m->dqkv, n, shape->seqlen, m->shape.heads, m->shape.head_dim, -1);
  zero(m->dnorm, n * width);
  linear_backward(m->dnorm, d->qkv, m->dqkv, v->norm1, w->qkv, n, width, 3 * width);
  copy(m->dx, m->dmiddle, n * width); /* past attention */
  norm_backward(m->dx, d->norm1, m->dnorm, v->x, v->scale1, w->norm1, n, width);
  return 1;
}

int model_backward(model *m, const uint8_t *input, int64_t batch, int64_t seqlen) {
  const model_shape *s = &m->shape;
  const parameters *w = &m->weights, *d = &m->gradients;
  int64_t n = batch * seqlen, width = width_of(s);
  zero(d->block, d->count), zero(m->dnorm, n * width), zero(m->dx, n * width);
  linear_backward(m->dnorm, d->head, m->dlogits, m->norm, w->head, n, width, s->characters);
  norm_backward(m->dx, d->norm, m->dnorm, m->x, m->scale, w->norm, n, width);
  for (int64_t l = s->layers - 1; l >= 0; l--) {
    attention_shape shape = shape_of(m, l, batch, seqlen);
    if (!layer_backward(m, &m->layer[l], &w->layer[l], &d->layer[l], &shape)) return 0;
  }
  embed_backward(d->characters, m->dx, input, n, width);
  return 1;
}
