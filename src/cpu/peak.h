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

/* Best of several runs of about 20 ms (READ: about 0.1 s) on `threads` OpenMP threads; 0: OpenMP's default. Returns 0 when the machine or
 * the build lacks the instruction set, when the kind has no meaning for it, or when memory is short. Takes up to half a second. */
double glint_peak_measure(glint_peak_kind kind, glint_isa isa, int threads);
#endif
