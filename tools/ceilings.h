/* What this machine's CPU can do at most, measured at first use and remembered. */
#ifndef GLINT_TOOLS_CEILINGS_H
#define GLINT_TOOLS_CEILINGS_H

#include "glint.h"

#include "cpu/peak.h"

/* The ceiling of the instructions that the CPU engine's kernel of this name computes with, opened at first use and kept until ceilings_close;
 * NULL: no CPU kernel. */
glint_peak *ceilings_compute(const char *kernel, int threads);
/* Bytes read from memory. */
glint_peak *ceilings_read(int threads);
void ceilings_close(void);

/* The plan's roofline in seconds, or, for the CPU engine, whose plan does not know what the machine can do, one from ceilings measured now;
 * 0: unknown. */
double ceilings_roofline(const glint_plan_info *plan);

#endif
