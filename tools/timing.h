/* Wall time, and the median time of a repeated call. */
#ifndef GLINT_TOOLS_TIMING_H
#define GLINT_TOOLS_TIMING_H

#include "glint.h"

double timing_now(void);                          /* seconds of a clock that never goes back */
double timing_median(double *seconds, int count); /* sorts */

typedef glint_status (*timing_call)(void *argument);

/* Calls until `budget` seconds are spent or 1000 calls are made, at least once; *seconds is the median. Stops at the first failure and returns
 * it. */
glint_status timing_calls(timing_call call, void *argument, double budget, double *seconds);
/* The same after a call to warm up; when that alone takes longer than the budget, it is the only one. */
glint_status timing_measure(timing_call call, void *argument, double budget, double *seconds);

#endif
