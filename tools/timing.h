/* Wall time, and the median time of a repeated call. */
#ifndef GLINT_TOOLS_TIMING_H
#define GLINT_TOOLS_TIMING_H

#include "glint.h"

double timing_now(void);                          /* seconds of a clock that never goes back */
double timing_median(double *seconds, int count); /* sorts */

typedef glint_status (*timing_call)(void *argument);

/* Calls once to warm up and then until `budget` seconds are spent or 1000 calls are made, but at least `least` times; *seconds is the median.
 * With least 0, a warm-up that alone takes longer than the budget is the only call. Stops at the first failure and returns it. */
glint_status timing_measure(timing_call call, void *argument, double budget, int least, double *seconds);

#endif
