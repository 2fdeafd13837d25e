/* This machine's own ceilings, measured: what benchmarks are compared with. */
#ifndef GLINT_CPU_PEAK_H
#define GLINT_CPU_PEAK_H
#include "glint.h"

typedef enum glint_peak_kind {
  GLINT_PEAK_FMA_F32 =
      0,               /* FLOP/s of float32 fused multiply-adds (portable: multiplies and adds) in registers; isa portable, avx2, avx512 */
  GLINT_PEAK_DOT_BF16, /* FLOP/s of bfloat16 dot products with float32 sums; isa avx512_bf16 (VDPBF16PS), amx_bf16 (TDPBF16PS) */
  GLINT_PEAK_READ      /* bytes/s read from memory (a buffer far larger than the caches); isa is ignored */
} glint_peak_kind;

/* A ceiling ready to be measured again and again: a benchmark samples it between its own runs, since clocks move. */
typedef struct glint_peak glint_peak;

/* On `threads` OpenMP threads; 0: OpenMP's default. NULL when the machine or the build lacks the instruction set, when the kind has no meaning
 * for it, or when memory is short. */
glint_peak *glint_peak_open(glint_peak_kind kind, glint_isa isa, int threads);
/* The rate of one run of about 10 ms (READ: 256 MiB, another part of the buffer each time). */
double glint_peak_sample(glint_peak *peak);
void glint_peak_close(glint_peak *peak);

/* Best of seven samples; 0 where glint_peak_open gives NULL. */
double glint_peak_measure(glint_peak_kind kind, glint_isa isa, int threads);
#endif
