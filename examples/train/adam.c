/* The optimizer. */
#include "adam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEAN_DECAY   0.9f
#define SQUARE_DECAY 0.99f /* shorter than the usual 0.999: a run has some hundred steps */
#define WEIGHT_DECAY 0.1
#define NORM_LIMIT   1.0

int adam_open(adam *a, int64_t count) {
  *a = (adam){.count = count};
  a->mean = calloc((size_t)count, sizeof(float)), a->square = calloc((size_t)count, sizeof(float));
  if (a->mean && a->square) return 1;
  adam_close(a);
  return 0;
}

void adam_close(adam *a) {
  free(a->mean);
  free(a->square);
  *a = (adam){0};
}

static double norm_of(const float *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

double adam_step(adam *a, const parameters *weights, const parameters *gradients, double rate) {
  double norm = norm_of(gradients->block, a->count);
  float limit = norm > NORM_LIMIT ? (float)(NORM_LIMIT / norm) : 1;
  a->steps++;
  /* the means start at 0: what is missing of them after so many steps */
  float mean_share = 1 - powf(MEAN_DECAY, (float)a->steps), square_share = 1 - powf(SQUARE_DECAY, (float)a->steps);
  float step = (float)rate / mean_share, keep = (float)(1 - rate * WEIGHT_DECAY);
  float *w = weights->block;
#pragma omp parallel for
  for (int64_t i = 0; i < a->count; i++) {
    float g = gradients->block[i] * limit;
    a->mean[i] = MEAN_DECAY * a->mean[i] + (1 - MEAN_DECAY) * g;
    a->square[i] = SQUARE_DECAY * a->square[i] + (1 - SQUARE_DECAY) * g * g;
    w[i] = keep * w[i] - step * a->mean[i] / (sqrtf(a->square[i] / square_share) + 1e-8f);
  }
  return norm;
}
