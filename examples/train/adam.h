/* The optimizer: Adam (Kingma and Ba, 2015) with decoupled weight decay (Loshchilov and Hutter, 2019) and a limit on the gradient's norm. */
#ifndef TRAIN_ADAM_H
#define TRAIN_ADAM_H
#include "model.h"

typedef struct adam {
  float *mean, *square; /* running means of the gradient and of its square */
  int64_t count, steps;
} adam;

int adam_open(adam *a, int64_t count); /* 0 when memory is short */
void adam_close(adam *a);
/* One step of every weight against its gradient. Returns the gradient's norm before it was limited. */
double adam_step(adam *a, const parameters *weights, const parameters *gradients, double rate);
#endif
