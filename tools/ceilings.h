/* What this machine's CPU can do at most, measured at first use and remembered. */
#ifndef GLINT_TOOLS_CEILINGS_H
#define GLINT_TOOLS_CEILINGS_H

/* FLOP/s of the instructions that the CPU engine's kernel of this name computes with; 0: no CPU kernel. best_of: measurements at first use. */
double ceilings_compute(const char *kernel, int threads, int best_of);
/* bytes/s read from memory. */
double ceilings_read(int threads, int best_of);

#endif
