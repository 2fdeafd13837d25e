/* What this machine can run: instruction sets that both the processor and the operating system support, and its caches. */
#ifndef GLINT_CPU_ISA_H
#define GLINT_CPU_ISA_H
#include "../api/engine.h"

typedef struct glint_cpu_machine {
  int has[GLINT_ISA_NEON + 1]; /* indexed by glint_isa */
  glint_isa best;
  int slow_bf16_dot;           /* quirk: VDPBF16PS at half the FLOP rate of FMA (Intel): floats are faster for bfloat16 inputs */
  int64_t l1d_bytes, l2_bytes; /* of one core */
  char name[64];               /* brand string, or "unknown" */
} glint_cpu_machine;

/* Asks the processor once; thread-safe. Requests the AMX tile registers for this process where they exist. */
const glint_cpu_machine *glint_cpu_machine_get(void);

/* "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16", "neon"; GLINT_ISA_AUTO: "auto". */
const char *glint_cpu_isa_name(glint_isa isa);
/* -1 for an unknown name. */
int glint_cpu_isa_from_name(const char *name);

/* The set to use: wanted, or if AUTO that of the environment variable GLINT_ISA, or the best. GLINT_ERROR_INVALID_ARGUMENT for unknown
 * values, GLINT_ERROR_NOT_FOUND where the machine lacks the set. *forced: the choice was not ours. */
glint_status glint_cpu_isa_choose(glint_isa wanted, glint_isa *isa, int *forced, glint_error *error);
#endif
