/* The loss over the steps, as text and as a drawing. */
#ifndef TRAIN_CURVE_H
#define TRAIN_CURVE_H
#include <stdint.h>
#include <stdio.h>

typedef struct curve {
  const double *loss; /* of each step */
  int64_t steps;
  const double *held_out;   /* of text that is not trained on, measured now and then */
  const int64_t *held_step; /* after how many steps */
  int64_t held_count;
} curve;

void curve_print(const curve *c, FILE *to);
int curve_save(const curve *c, const char *path); /* SVG; 0 when the file cannot be written */
#endif
