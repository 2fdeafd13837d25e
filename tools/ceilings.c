/* What this machine's CPU can do at most. */
#include "ceilings.h"

#include <string.h>

#include "cpu/peak.h"
#include "options.h"

static double ceiling(glint_peak_kind kind, glint_isa isa, int threads, int best_of) {
  static struct {
    glint_peak_kind kind;
    glint_isa isa;
    int threads;
    double value;
  } known[64];
  static int count;
  for (int i = 0; i < count; i++)
    if (known[i].kind == kind && known[i].isa == isa && known[i].threads == threads) return known[i].value;
  double value = 0;
  for (int i = 0; i < best_of; i++) {
    double again = glint_peak_measure(kind, isa, threads);
    value = again > value ? again : value;
  }
  if (count < 64) known[count].kind = kind, known[count].isa = isa, known[count].threads = threads, known[count++].value = value;
  return value;
}

/* Names are cpu_ISA_DTYPE, and the two bfloat16 sets are cpu_avx512_bf16 and cpu_amx_bf16: the longest name that fits is the set. */
double ceilings_compute(const char *kernel, int threads, int best_of) {
  for (int isa = GLINT_ISA_AMX_BF16; isa >= GLINT_ISA_PORTABLE; isa--) {
    const char *name = option_isa_name((glint_isa)isa);
    if (strncmp(kernel, "cpu_", 4) != 0 || strncmp(kernel + 4, name, strlen(name)) != 0) continue;
    return ceiling(isa >= GLINT_ISA_AVX512_BF16 ? GLINT_PEAK_DOT_BF16 : GLINT_PEAK_FMA_F32, (glint_isa)isa, threads, best_of);
  }
  return 0;
}

double ceilings_read(int threads, int best_of) { return ceiling(GLINT_PEAK_READ, GLINT_ISA_AUTO, threads, best_of); }
