/* Quantization on a GPU, timed. First table: each way of quantizing q, k and v of a bfloat16 problem. bytes counts what must cross the memory's
 * pins: inputs once for each pass over them, results once; the copy beside it is the driver's, device to device, of as many bytes in and
 * out together, in the same run. Second table: attention in bfloat16, in FP8, and FP8 with the quantization before it. */
#include "gpu_quantize.h"

#include "cuda/driver.h"
#include "cuda/memory.h"
#include "cuda/path.h"
#include "gpu_clock.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, Q8, K8, V8, O, FACTORS_Q, FACTORS_K, FACTORS_V, MEAN, SHIFT, COPY_FROM, COPY_TO, ARRAYS, MOST_REPS = 200, MOST_CALLS = 4 };

typedef struct way {
  const char *name;
  int rank; /* of the factors: 1, 2, 3 */
  int64_t block_rows;
  int rotate, smooth;
} way;

static const way ways[] = {{"tensor", 1, 0, 0, 0},
                           {"head", 2, 0, 0, 0},
                           {"block128", 3, 128, 0, 0},
                           {"block64", 3, 64, 0, 0},
                           {"tensor rotate", 1, 0, 1, 0},
                           {"head rotate", 2, 0, 1, 0},
                           {"block128 rotate", 3, 128, 1, 0},
                           {"block64 rotate", 3, 64, 1, 0},
                           {"block128 smooth", 3, 128, 0, 1},
                           {"head rotate smooth", 2, 0, 1, 1},
                           {"block128 rotate smooth", 3, 128, 1, 1}};
enum { WAYS = sizeof ways / sizeof ways[0] };

typedef struct bench {
  const gpu_quantize_grid *g;
  glint_device_memory *memory;
  gpu_clock *clock;
  glint_context *context;
  CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
  void *array[ARRAYS];
  size_t bytes[ARRAYS];
  int64_t batch, seqlen, heads, heads_kv, d;
  int causal;
} bench;

static int64_t q_elements(const bench *b) { return b->batch * b->seqlen * b->heads * b->d; }
static int64_t k_elements(const bench *b) { return b->batch * b->seqlen * b->heads_kv * b->d; }

/* Normal numbers as bfloat16, a table of them over and over in another order. */
static glint_status upload_normal(bench *b, int n, int64_t count, glint_error *error) {
  static uint16_t table[65536];
  uint16_t *host = malloc((size_t)count * 2);
  uint64_t x = 88172645463325252u + (uint64_t)n;
  if (!host) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for %" PRId64 " elements", count);
  for (int i = 0; i < 65536; i++) {
    double u = ((double)i + 0.5) / 65536, t = sqrt(-2 * log(u < 0.5 ? u : 1 - u)), value = t - 0.5; /* near enough to normal */
    float f = (float)(u < 0.5 ? -value : value);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    table[i] = (uint16_t)(bits >> 16);
  }
  for (int64_t i = 0; i < count; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    host[i] = table[x & 0xFFFF];
  }
  glint_status status = glint_device_upload(b->memory, b->array[n], host, (size_t)count * 2, error);
  free(host);
  return status;
}

static glint_status make_arrays(bench *b, glint_error *error) {
  const size_t q = (size_t)q_elements(b), k = (size_t)k_elements(b), rows = (size_t)(b->batch * b->heads * b->seqlen);
  const size_t wanted[ARRAYS] = {
      2 * q,    2 * k,           2 * k,          q, k, k, 2 * q, rows, rows, rows, (size_t)(b->batch * b->heads * b->d) * 4,
      4 * rows, 2 * (q + 2 * k), 2 * (q + 2 * k)};
  glint_status status = GLINT_OK;
  for (int n = 0; n < ARRAYS && status == GLINT_OK; n++) {
    size_t bytes = wanted[n] < 4096 ? 4096 : wanted[n];
    if (bytes <= b->bytes[n]) continue;
    status = glint_device_free(b->memory, b->array[n], error);
    if (status == GLINT_OK) status = glint_device_alloc(b->memory, bytes, &b->array[n], error);
    b->bytes[n] = bytes;
    if (status == GLINT_OK && n <= V) status = upload_normal(b, n, (int64_t)(bytes / 2), error);
  }
  return status;
}

static glint_tensor tensor(void *data, glint_dtype dtype, int64_t a, int64_t s, int64_t h, int64_t d) {
  return (glint_tensor){.data = data, .shape = {a, s, h, d}, .dtype = dtype, .rank = d ? 4 : h ? 3 : s ? 2 : 1};
}

static glint_tensor factors(const bench *b, const way *w, void *data, int64_t heads) {
  if (w->rank == 1) return tensor(data, GLINT_FLOAT32, 1, 0, 0, 0);
  if (w->rank == 2) return tensor(data, GLINT_FLOAT32, b->batch, b->heads_kv, 0, 0);
  return tensor(data, GLINT_FLOAT32, b->batch, heads, (b->seqlen + w->block_rows - 1) / w->block_rows, 0);
}

static glint_quantization quantization_of(const bench *b, const way *w) {
  glint_quantization q = {.struct_size = sizeof q, .rotate = w->rotate, .rotation_seed = 7, .smooth = w->smooth};
  q.q = tensor(b->array[Q], GLINT_BFLOAT16, b->batch, b->seqlen, b->heads, b->d);
  q.k = tensor(b->array[K], GLINT_BFLOAT16, b->batch, b->seqlen, b->heads_kv, b->d);
  q.v = tensor(b->array[V], GLINT_BFLOAT16, b->batch, b->seqlen, b->heads_kv, b->d);
  q.q_fp8 = tensor(b->array[Q8], GLINT_FLOAT8_E4M3, b->batch, b->seqlen, b->heads, b->d);
  q.k_fp8 = tensor(b->array[K8], GLINT_FLOAT8_E4M3, b->batch, b->seqlen, b->heads_kv, b->d);
  q.v_fp8 = tensor(b->array[V8], GLINT_FLOAT8_E4M3, b->batch, b->seqlen, b->heads_kv, b->d);
  q.descale_q = factors(b, w, b->array[FACTORS_Q], b->heads);
  q.descale_k = factors(b, w, b->array[FACTORS_K], b->heads_kv);
  q.descale_v = factors(b, w, b->array[FACTORS_V], b->heads_kv);
  return q;
}

static glint_problem attention_of(const bench *b, const glint_quantization *q, int fp8) {
  glint_problem p = {.struct_size = sizeof p, .causal = b->causal};
  p.q = fp8 ? q->q_fp8 : q->q, p.k = fp8 ? q->k_fp8 : q->k, p.v = fp8 ? q->v_fp8 : q->v;
  p.o = tensor(b->array[O], GLINT_BFLOAT16, b->batch, b->seqlen, b->heads, b->d);
  if (fp8) p.descale_q = q->descale_q, p.descale_k = q->descale_k, p.descale_v = q->descale_v;
  return p;
}

/* What is timed: a copy, a quantization, an attention, or the last two. */
typedef struct timed {
  bench *b;
  const glint_quantization *quantization;
  const glint_problem *problem;
  size_t copied;
} timed;

static glint_status run(void *user) {
  const timed *t = user;
  glint_status status = GLINT_OK;
  if (t->copied)
    return t->b->copy((CUdeviceptr)(uintptr_t)t->b->array[COPY_TO], (CUdeviceptr)(uintptr_t)t->b->array[COPY_FROM], t->copied, NULL)
               ? GLINT_ERROR_DEVICE
               : GLINT_OK;
  if (t->quantization) status = glint_quantize(t->b->context, t->quantization);
  if (status == GLINT_OK && t->problem) status = glint_forward(t->b->context, t->problem);
  return status;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Medians of calls that take turns; a call that fails beforehand gets NaN. */
static glint_status time_calls(bench *b, timed *calls, int count, double *ms, glint_error *error) {
  static double times[MOST_CALLS][MOST_REPS];
  glint_status status = GLINT_OK;
  int works[MOST_CALLS];
  for (int k = 0; k < count; k++) works[k] = run(&calls[k]) == GLINT_OK;
  for (int r = -b->g->warmup; r < b->g->reps && status == GLINT_OK; r++)
    for (int k = 0; k < count && status == GLINT_OK; k++) {
      double once = 0;
      if (works[k]) status = gpu_clock_time(b->clock, run, &calls[k], &once, error);
      if (r >= 0) times[k][r] = once;
    }
  for (int k = 0; k < count && status == GLINT_OK; k++) {
    qsort(times[k], (size_t)b->g->reps, sizeof times[k][0], by_value);
    ms[k] = works[k] ? times[k][b->g->reps / 2] : (double)NAN;
  }
  return status;
}

static size_t moved_bytes(const bench *b, const way *w) {
  const size_t q = (size_t)q_elements(b), k = (size_t)k_elements(b), all = q + 2 * k;
  return 2 * all * (w->rank == 3 ? 1 : 2) + all + (w->smooth ? 2 * k : 0);
}

static glint_status time_way(bench *b, const way *w, glint_error *error) {
  const size_t bytes = moved_bytes(b, w);
  const glint_quantization q = quantization_of(b, w);
  size_t half = bytes / 2 < b->bytes[COPY_TO] ? bytes / 2 : b->bytes[COPY_TO];
  timed calls[2] = {{b, &q, NULL, 0}, {b, NULL, NULL, half}};
  double ms[2];
  glint_status status = time_calls(b, calls, 2, ms, error);
  if (status != GLINT_OK) return status;
  const double rate = (double)bytes / ms[0] * 1e-6, copy = 2 * (double)half / ms[1] * 1e-6;
  printf("quantize,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.4f,%.0f,%.0f,%.3f\n", w->name, b->d, b->batch, b->heads,
         b->heads_kv, b->seqlen, ms[0], rate, copy, rate / copy);
  fflush(stdout);
  return GLINT_OK;
}

static glint_status time_attention(bench *b, const way *w, glint_error *error) {
  const glint_quantization q = quantization_of(b, w);
  const glint_problem wide = attention_of(b, &q, 0), narrow = attention_of(b, &q, 1);
  timed calls[3] = {{b, NULL, &wide, 0}, {b, NULL, &narrow, 0}, {b, &q, &narrow, 0}};
  double ms[3];
  /* gives the FP8 problem its inputs */
  glint_status status = glint_quantize(b->context, &q);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(b->context));
  status = time_calls(b, calls, 3, ms, error);
  if (status != GLINT_OK) return status;
  printf("attention,%s,%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.4f,%.4f,%.4f,%.3f\n", w->name, b->d, b->causal,
         b->batch, b->heads, b->heads_kv, b->seqlen, ms[0], ms[1], ms[2], ms[0] / ms[2]);
  fflush(stdout);
  return GLINT_OK;
}

static void set_cell(bench *b, int64_t d, int64_t seqlen) {
  const gpu_quantize_grid *g = b->g;
  b->d = d, b->seqlen = seqlen;
  b->batch = g->tokens / seqlen > 1 ? g->tokens / seqlen : 1;
  b->heads = g->width / d > 1 ? g->width / d : 1;
  b->heads_kv = b->heads / g->group > 1 ? b->heads / g->group : 1;
}

static glint_status run_grid(bench *b, glint_error *error) {
  const gpu_quantize_grid *g = b->g;
  glint_status status = GLINT_OK;
  printf("table,way,hdim,batch,heads,heads_kv,seqlen,ms,gbps,copy_gbps,of_copy\n");
  for (int d = 0; d < g->head_dim_count; d++)
    for (int n = 0; n < g->seqlen_count && status == GLINT_OK; n++) {
      set_cell(b, g->head_dims[d], g->seqlens[n]);
      status = make_arrays(b, error);
      for (int w = 0; w < WAYS && status == GLINT_OK; w++) status = time_way(b, &ways[w], error);
    }
  printf("table,way,hdim,causal,batch,heads,heads_kv,seqlen,ms_bf16,ms_fp8,ms_quantize_fp8,speedup\n");
  for (int d = 0; d < g->head_dim_count; d++)
    for (int c = 0; c < g->causal_count; c++)
      for (int n = 0; n < g->seqlen_count && status == GLINT_OK; n++) {
        set_cell(b, g->head_dims[d], g->seqlens[n]);
        b->causal = (int)g->causals[c];
        status = make_arrays(b, error);
        for (int w = 0; w < WAYS && status == GLINT_OK; w++)
          if (w == 1 || w == 5 || w == 6) status = time_attention(b, &ways[w], error);
      }
  return status;
}

static glint_status open_all(bench *b, glint_error *error) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA, .device = b->g->device};
  glint_status status = glint_device_memory_open(b->g->device, &b->memory, error);
  if (status == GLINT_OK) status = gpu_clock_open(b->g->device, &b->clock, error);
  if (status != GLINT_OK) return status;
  if (glint_open(&options, &b->context) != GLINT_OK) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s", glint_last_error(NULL));
  void *library = dlopen(glint_cuda_path(), RTLD_NOW), *symbol = library ? dlsym(library, "cuMemcpyDtoDAsync_v2") : NULL;
  if (!symbol) return glint_fail(error, GLINT_ERROR_NOT_FOUND, "the driver has no cuMemcpyDtoDAsync_v2");
  memcpy(&b->copy, &symbol, sizeof symbol);
  return GLINT_OK;
}

glint_status gpu_quantize_run(const gpu_quantize_grid *grid, glint_error *error) {
  bench b = {.g = grid};
  glint_error ignored;
  glint_status status = open_all(&b, error);
  if (status == GLINT_OK) status = run_grid(&b, error);
  for (int n = 0; b.memory && n < ARRAYS; n++) glint_device_free(b.memory, b.array[n], &ignored);
  glint_close(b.context);
  gpu_clock_close(b.clock);
  glint_device_memory_close(b.memory);
  return status;
}
