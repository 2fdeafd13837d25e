/* What this machine's CPU can do at most. */
#include "ceilings.h"

#include <math.h>
#include <string.h>

#include "options.h"

typedef struct ceiling {
  glint_peak_kind kind;
  glint_isa isa;
  int threads;
  glint_peak *peak;
  double best; /* of several samples; 0: not taken yet */
} ceiling;

static ceiling known[64];
static int known_count;

static ceiling *find(glint_peak_kind kind, glint_isa isa, int threads) {
  for (int i = 0; i < known_count; i++)
    if (known[i].kind == kind && known[i].isa == isa && known[i].threads == threads) return &known[i];
  if (known_count == (int)(sizeof known / sizeof *known)) return NULL;
  glint_peak *peak = glint_peak_open(kind, isa, threads);
  if (!peak) return NULL;
  known[known_count] = (ceiling){kind, isa, threads, peak, 0};
  return &known[known_count++];
}

/* Names are cpu_ISA_DTYPE, and the two bfloat16 sets are cpu_avx512_bf16 and cpu_amx_bf16: the longest name that fits is the set. */
static ceiling *find_compute(const char *kernel, int threads) {
  for (int isa = GLINT_ISA_AMX_BF16; isa >= GLINT_ISA_PORTABLE; isa--) {
    const char *name = option_isa_name((glint_isa)isa);
    if (strncmp(kernel, "cpu_", 4) != 0 || strncmp(kernel + 4, name, strlen(name)) != 0) continue;
    return find(isa >= GLINT_ISA_AVX512_BF16 ? GLINT_PEAK_DOT_BF16 : GLINT_PEAK_FMA_F32, (glint_isa)isa, threads);
  }
  return NULL;
}

glint_peak *ceilings_compute(const char *kernel, int threads) {
  ceiling *found = find_compute(kernel, threads);
  return found ? found->peak : NULL;
}

glint_peak *ceilings_read(int threads) {
  ceiling *found = find(GLINT_PEAK_READ, GLINT_ISA_AUTO, threads);
  return found ? found->peak : NULL;
}

void ceilings_close(void) {
  while (known_count) glint_peak_close(known[--known_count].peak);
}

static double best(ceiling *c) {
  for (int i = 0; c && c->best == 0 && i < 5; i++) {
    double rate = glint_peak_sample(c->peak);
    c->best = rate > c->best ? rate : c->best;
  }
  return c ? c->best : 0;
}

/* Above this, tensors come from memory and not from a cache. Measuring that takes a large buffer, so smaller problems go without. */
#define FROM_MEMORY (1 << 28)

double ceilings_roofline(const glint_plan_info *plan) {
  if (plan->roofline_seconds > 0) return plan->roofline_seconds;
  double rate = best(find_compute(plan->kernel, plan->threads)), seconds = rate > 0 ? plan->flops / rate : 0;
  if (rate <= 0 || plan->bytes <= FROM_MEMORY) return seconds;
  double read = best(find(GLINT_PEAK_READ, GLINT_ISA_AUTO, plan->threads));
  return read > 0 ? fmax(seconds, plan->bytes / read) : seconds;
}
