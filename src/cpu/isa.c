/* Detection by cpuid and xgetbv: a set counts only when the operating system saves its registers. */
#include "isa.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const isa_names[] = {"auto", "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16", "neon"};

const char *glint_cpu_isa_name(glint_isa isa) { return (unsigned)isa < sizeof isa_names / sizeof *isa_names ? isa_names[isa] : "unknown"; }

int glint_cpu_isa_from_name(const char *name) {
  for (int i = 0; i < (int)(sizeof isa_names / sizeof *isa_names); i++)
    if (strcmp(name, isa_names[i]) == 0) return i;
  return -1;
}

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* XCR0: which register files the operating system saves. Written as bytes-free assembly because the intrinsic needs -mxsave. */
static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Linux hands out the 8 KiB of tile registers only to those who ask (arch_prctl ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
static int request_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return 0;
#endif
}

static void detect_sets(glint_cpu_machine *machine) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
  if ((c & (fma | osxsave | avx | f16c)) != (fma | osxsave | avx | f16c)) return;
  uint64_t saved = saved_registers();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
  uint32_t subleaves = a;
  const uint32_t avx2 = 1u << 5, f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
  machine->has[GLINT_ISA_AVX2] = (saved & 0x6) == 0x6 && (b & avx2);
  machine->has[GLINT_ISA_AVX512] = machine->has[GLINT_ISA_AVX2] && (saved & 0xE6) == 0xE6 && (b & (f | dq | bw | vl)) == (f | dq | bw | vl);
  const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  int tiles = (d & (amx_bf16 | amx_tile)) == (amx_bf16 | amx_tile) && (saved & 0x60000) == 0x60000;
  if (subleaves < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return;
  machine->has[GLINT_ISA_AVX512_BF16] = machine->has[GLINT_ISA_AVX512] && (a & 1u << 5);
  machine->has[GLINT_ISA_AMX_BF16] = machine->has[GLINT_ISA_AVX512_BF16] && tiles && request_tiles();
}

static void detect_name(glint_cpu_machine *machine) {
  uint32_t r[12];
  for (unsigned i = 0; i < 3; i++)
    if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3])) return;
  memcpy(machine->name, r, sizeof r);
  machine->name[sizeof r] = 0;
}

static void detect(glint_cpu_machine *machine) {
  uint32_t a, b, c, d;
  detect_sets(machine);
  detect_name(machine);
  if (__get_cpuid(0, &a, &b, &c, &d)) machine->slow_bf16_dot = b == 0x756E6547; /* "Genu"ineIntel */
}
#else
static void detect(glint_cpu_machine *machine) { (void)machine; }
#endif

static glint_cpu_machine machine_found;

static void find_machine(void) {
  glint_cpu_machine *machine = &machine_found;
  snprintf(machine->name, sizeof machine->name, "unknown");
  machine->has[GLINT_ISA_PORTABLE] = 1;
  detect(machine);
  for (int isa = GLINT_ISA_PORTABLE; isa <= GLINT_ISA_AMX_BF16; isa++)
    if (machine->has[isa]) machine->best = (glint_isa)isa;
  machine->l1d_bytes = machine->l2_bytes = -1;
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  machine->l1d_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  machine->l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (machine->l1d_bytes <= 0) machine->l1d_bytes = 32 << 10;
  if (machine->l2_bytes <= 0) machine->l2_bytes = 512 << 10;
}

const glint_cpu_machine *glint_cpu_machine_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_machine);
  return &machine_found;
}

glint_status glint_cpu_isa_choose(glint_isa wanted, glint_isa *isa, int *forced, glint_error *error) {
  const glint_cpu_machine *machine = glint_cpu_machine_get();
  const char *source = "options.isa", *variable = getenv("GLINT_ISA");
  if (wanted == GLINT_ISA_AUTO && variable && *variable) {
    int named = glint_cpu_isa_from_name(variable);
    if (named < 0)
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                        "GLINT_ISA is \"%s\", expected auto, portable, avx2, avx512, avx512_bf16, amx_bf16 or neon", variable);
    wanted = (glint_isa)named;
    source = "GLINT_ISA";
  }
  *forced = wanted != GLINT_ISA_AUTO;
  *isa = machine->best;
  if (!*forced) return GLINT_OK;
  if ((unsigned)wanted > GLINT_ISA_NEON)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.isa is %d, expected a value of glint_isa", (int)wanted);
  if (!machine->has[wanted])
    return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s asks for %s, which this machine (%s) cannot run; its best is %s", source,
                      glint_cpu_isa_name(wanted), machine->name, glint_cpu_isa_name(machine->best));
  *isa = wanted;
  return GLINT_OK;
}
