/* Ceilings: chains of multiply-adds that live in registers, and passes over a large buffer. */
#include "peak.h"

#include "isa.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each runs `rounds` rounds and returns a value that depends on every operation, so that none is dropped. */
typedef float chain(long rounds);

enum { CHAINS_SSE = 12, CHAINS_AVX2 = 12, CHAINS_AVX512 = 24, TILE_ROUND = 4 };

typedef float four_floats __attribute__((vector_size(16)));
static float chain_portable(long rounds) {
  four_floats sum[CHAINS_SSE], b = {0.999f, 0.999f, 0.999f, 0.999f}, c = {0.1f, 0.1f, 0.1f, 0.1f};
  for (int i = 0; i < CHAINS_SSE; i++) sum[i] = c * (float)i;
  for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS_SSE; i++) sum[i] = sum[i] * b + c;
  float total = 0;
  for (int i = 0; i < CHAINS_SSE; i++) total += sum[i][0];
  return total;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float chain_avx2(long rounds) {
  __m256 sum[CHAINS_AVX2], b = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.1f);
  for (int i = 0; i < CHAINS_AVX2; i++) sum[i] = _mm256_set1_ps((float)i);
  for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS_AVX2; i++) sum[i] = _mm256_fmadd_ps(sum[i], b, c);
  float total = 0;
  for (int i = 0; i < CHAINS_AVX2; i++) total += _mm256_cvtss_f32(sum[i]);
  return total;
}

__attribute__((target("avx512f"))) static float chain_avx512(long rounds) {
  __m512 sum[CHAINS_AVX512], b = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.1f);
  for (int i = 0; i < CHAINS_AVX512; i++) sum[i] = _mm512_set1_ps((float)i);
  for (long r = 0; r < rounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS_AVX512; i++) sum[i] = _mm512_fmadd_ps(sum[i], b, c);
  float total = 0;
  for (int i = 0; i < CHAINS_AVX512; i++) total += _mm512_cvtss_f32(sum[i]);
  return total;
}

__attribute__((target("avx512f,avx512bf16"))) static float chain_bf16(long rounds) {
  __m512 sum[CHAINS_AVX512];
  __m512bh b = (__m512bh)_mm512_set1_epi16(0x3F80);
  for (int i = 0; i < CHAINS_AVX512; i++) sum[i] = _mm512_set1_ps((float)i);
  for (long r = 0; r < rounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS_AVX512; i++) sum[i] = _mm512_dpbf16_ps(sum[i], b, b);
  float total = 0;
  for (int i = 0; i < CHAINS_AVX512; i++) total += _mm512_cvtss_f32(sum[i]);
  return total;
}

__attribute__((target("amx-tile,amx-bf16"))) static float chain_tiles(long rounds) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape;
  float out[256];
  memset(&shape, 0, sizeof shape);
  memset(out, 0, sizeof out);
  shape.palette = 1;
  for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = 16;
  /* some compilers' tile intrinsics do not say what memory they read */
  __asm__ volatile("" : : "r"(&shape), "r"(out) : "memory");
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, out, 64);
  _tile_loadd(5, out, 64);
  _tile_loadd(6, out, 64);
  _tile_loadd(7, out, 64);
  for (long r = 0; r < rounds; r++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  _tile_release();
  return out[0];
}
#endif

/* The chain of an instruction set and the FLOPs of one of its rounds. */
static chain *chain_of(glint_peak_kind kind, glint_isa isa, double *flops) {
  const glint_cpu_machine *machine = glint_cpu_machine_get();
  if ((unsigned)isa > GLINT_ISA_NEON || !machine->has[isa]) return NULL;
  if (kind == GLINT_PEAK_FMA_F32 && isa == GLINT_ISA_PORTABLE) return *flops = CHAINS_SSE * 4 * 2, chain_portable;
#if defined(__x86_64__)
  if (kind == GLINT_PEAK_FMA_F32 && isa == GLINT_ISA_AVX2) return *flops = CHAINS_AVX2 * 8 * 2, chain_avx2;
  if (kind == GLINT_PEAK_FMA_F32 && isa == GLINT_ISA_AVX512) return *flops = CHAINS_AVX512 * 16 * 2, chain_avx512;
  if (kind == GLINT_PEAK_DOT_BF16 && isa == GLINT_ISA_AVX512_BF16) return *flops = CHAINS_AVX512 * 32 * 2, chain_bf16;
  if (kind == GLINT_PEAK_DOT_BF16 && isa == GLINT_ISA_AMX_BF16) return *flops = TILE_ROUND * 16.0 * 16 * 32 * 2, chain_tiles;
#endif
  return NULL;
}

static double time_chain(chain *run, long rounds, int threads) {
  float sum = 0;
  double start = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  {
    sum += run(rounds / 8 + 1); /* wakes the vector units */
#pragma omp barrier
#pragma omp master
    start = seconds();
#pragma omp barrier
    sum += run(rounds);
  }
  double took = seconds() - start;
  return isnan(sum) ? took * 2 : took;
}

/* Eight words of every cache line, in eight independent sums, so that the compiler's plain vectors are no limit. */
static uint64_t sum_words(const uint64_t *words, size_t n) {
  uint64_t sum[8] = {0};
  for (size_t i = 0; i + 8 <= n; i += 8) {
    __builtin_prefetch(words + i + 512);
    for (int j = 0; j < 8; j++) sum[j] += words[i + (size_t)j];
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* The buffer of GLINT_PEAK_READ, and the part of it that one sample reads: what it read before is long out of the caches by then. */
#define READ_BYTES ((size_t)1 << 30)
#define READ_PART  ((size_t)1 << 28)

struct glint_peak {
  chain *run; /* NULL: reads */
  double flops;
  long rounds;
  int threads;
  uint64_t *buffer;
  size_t part;
};

static int open_read(glint_peak *peak) {
  size_t words = READ_BYTES / sizeof(uint64_t), share = words / (size_t)peak->threads;
  peak->buffer = aligned_alloc(1 << 21, READ_BYTES);
  if (!peak->buffer) return 0;
    /* pages belong to the memory of the cores that touch them first */
#pragma omp parallel for num_threads(peak->threads) schedule(static)
  for (int t = 0; t < peak->threads; t++) memset(peak->buffer + (size_t)t * share, 1, share * sizeof(uint64_t));
  memset(peak->buffer + share * (size_t)peak->threads, 1, (words - share * (size_t)peak->threads) * sizeof(uint64_t));
  return 1;
}

static double sample_read(glint_peak *peak) {
  size_t parts = READ_BYTES / READ_PART, threads = (size_t)peak->threads;
  /* each thread stays within what it touched first */
  size_t share = READ_BYTES / sizeof(uint64_t) / threads, count = share / parts / 8 * 8, at = peak->part++ % parts * count;
  uint64_t sum = 0;
  double start = seconds();
#pragma omp parallel for num_threads(peak->threads) schedule(static) reduction(+ : sum)
  for (size_t t = 0; t < threads; t++) sum += sum_words(peak->buffer + t * share + at, count);
  double took = seconds() - start;
  return sum ? (double)(count * threads * sizeof(uint64_t)) / took : 0;
}

glint_peak *glint_peak_open(glint_peak_kind kind, glint_isa isa, int threads) {
  glint_peak *peak = calloc(1, sizeof *peak);
  if (!peak) return NULL;
  peak->threads = threads > 0 ? threads : omp_get_max_threads();
  int opened = 1;
  if (kind == GLINT_PEAK_READ) {
    opened = open_read(peak);
  } else {
    peak->run = chain_of(kind, isa, &peak->flops);
    opened = peak->run != NULL;
    for (peak->rounds = 1024; opened && peak->rounds < 1L << 40 && time_chain(peak->run, peak->rounds, 1) < 0.01;) peak->rounds *= 2;
  }
  if (opened) return peak;
  free(peak);
  return NULL;
}

double glint_peak_sample(glint_peak *peak) {
  if (!peak->run) return sample_read(peak);
  return peak->flops * (double)peak->rounds * peak->threads / time_chain(peak->run, peak->rounds, peak->threads);
}

void glint_peak_close(glint_peak *peak) {
  if (peak) free(peak->buffer);
  free(peak);
}

double glint_peak_measure(glint_peak_kind kind, glint_isa isa, int threads) {
  glint_peak *peak = glint_peak_open(kind, isa, threads);
  double best = 0;
  for (int i = 0; peak && i < 7; i++) {
    double rate = glint_peak_sample(peak);
    best = rate > best ? rate : best;
  }
  glint_peak_close(peak);
  return best;
}
