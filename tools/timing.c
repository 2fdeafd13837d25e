/* Wall time and medians. */
#include "timing.h"

#include <stdlib.h>
#include <time.h>

double timing_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

double timing_median(double *seconds, int count) {
  qsort(seconds, (size_t)count, sizeof *seconds, ascending);
  return count % 2 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
}

glint_status timing_calls(timing_call call, void *argument, double budget, double *seconds) {
  double taken[1000], first = timing_now();
  int count = 0;
  do {
    double before = timing_now();
    glint_status status = call(argument);
    if (status != GLINT_OK) return status;
    taken[count++] = timing_now() - before;
  } while (timing_now() - first < budget && count < 1000);
  *seconds = timing_median(taken, count);
  return GLINT_OK;
}

glint_status timing_measure(timing_call call, void *argument, double budget, double *seconds) {
  double start = timing_now();
  glint_status status = call(argument);
  *seconds = timing_now() - start;
  return status != GLINT_OK || *seconds > budget ? status : timing_calls(call, argument, budget, seconds);
}
