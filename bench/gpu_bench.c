/* Attention on a GPU, forward or backward, timed: the papers' grid or any cell, one or several kernels against each other.
 *
 *   gpu_bench                                            bf16, head_dim 64 128 256, causal and not, seqlen 512 to 16384
 *   gpu_bench --kernel glint_forward_fa2,glint_forward_fa3 --head-dim 128
 *   gpu_bench --backward --head-dim 128 --kernel glint_backward_fa3,glint_backward_fa3+deterministic
 *   gpu_bench --quantize                                 glint_quantize against a copy, and with attention (gpu_quantize.c)
 *   gpu_bench --dtype e4m3 --scales block                o in bf16
 *   gpu_bench --cells < cells.txt                        one cell a line: dtype head_dim causal batch heads heads_kv seqlen_q seqlen_k
 *
 * Prints CSV: impl,dir,dtype,hdim,causal,batch,heads,heads_kv,seqlen,ms,tflops,check. Inputs are random normal numbers, ms is the median, and
 * TFLOP/s count 4 * batch * heads * seqlen_q * seqlen_k * head_dim, half of it when causal. check is the largest error of some rows against
 * the formula in double precision, over what rounding allows: 1 or less is right (of the forward pass; `glint check` judges gradients).
 * Backward counts 2.5 times the forward's FLOPs. Several kernels take turns within a cell, so that
 * a card that slows down slows all of them. */
#include "convert.h"
#include "cuda/memory.h"
#include "glint.h"
#include "gpu_clock.h"
#include "gpu_quantize.h"

#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KERNELS 16
#define MOST_LIST    32
#define MOST_REPS    200
#define TABLE        65536

#define SCALES     65536 /* room for the factors of one tensor */
#define BLOCK_ROWS 128   /* --scales block */

enum { LSE = 4, D_O, DQ, DK, DV, DEVICE_ARRAYS };
enum { SCALES_TENSOR, SCALES_HEAD, SCALES_BLOCK };

typedef struct cell {
  glint_dtype dtype;
  int causal;
  int64_t head_dim, batch, heads, heads_kv, seqlen_q, seqlen_k;
} cell;

typedef struct list {
  int64_t value[MOST_LIST];
  int count;
} list;

typedef struct settings {
  char *kernels[MOST_KERNELS];
  int deterministic[MOST_KERNELS]; /* "+deterministic" stood behind the name */
  int kernel_count;
  int arch, device, reps, warmup, check_rows, cells, backward, scales, quantize;
  uint32_t flags;
  double mean;
  list dtypes, head_dims, causals, seqlens;
  int64_t tokens, width, group;
} settings;

typedef struct bench {
  settings s;
  glint_device_memory *memory;
  gpu_clock *clock;
  glint_context *context[MOST_KERNELS];
  glint_context *forward; /* gives o and lse to backward kernels; NULL: the kernel's own context */
  void *host[3];          /* q, k, v, flat */
  float *scale[3];        /* FP8: their factors, SCALES each */
  void *device_scale[3];
  void *device[DEVICE_ARRAYS]; /* q, k, v, o, lse; for the backward pass d_o, dq, dk, dv */
  uint16_t *o;
  float *lse;
  int64_t elements, rows; /* room in each array, in lse */
  glint_dtype filled;
  uint64_t random;
  int failures;
} bench;

/* ---- data ---- */

static uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static uint16_t encode(glint_dtype dtype, double value) {
  if (dtype == GLINT_FLOAT8_E4M3) return glint_e4m3_from_float((float)value);
  return dtype == GLINT_BFLOAT16 ? glint_bf16_from_double(value) : glint_f16_from_double(value);
}

static double decode(glint_dtype dtype, const void *from, int64_t at) {
  if (dtype == GLINT_FLOAT8_E4M3) return (double)glint_float_from_e4m3(((const uint8_t *)from)[at]);
  const uint16_t bits = ((const uint16_t *)from)[at];
  return (double)(dtype == GLINT_BFLOAT16 ? glint_float_from_bf16(bits) : glint_float_from_f16(bits));
}

static glint_dtype o_dtype(const cell *c) { return c->dtype == GLINT_FLOAT8_E4M3 ? GLINT_BFLOAT16 : c->dtype; }

static const char *dtype_name(glint_dtype dtype) { return dtype == GLINT_FLOAT8_E4M3 ? "e4m3" : dtype == GLINT_BFLOAT16 ? "bf16" : "fp16"; }

/* Normal numbers drawn from a table of 65536: four for each 64 random bits. */
static void fill_normal(void *to, int64_t count, glint_dtype dtype, double mean, uint64_t *random) {
  static uint16_t table[TABLE];
  for (int i = 0; i < TABLE; i++) {
    double u = ((double)(next_random(random) >> 11) + 0.5) * 0x1p-53,
           angle = 6.283185307179586 * (double)(next_random(random) >> 11) * 0x1p-53;
    table[i] = encode(dtype, mean + sqrt(-2 * log(u)) * cos(angle));
  }
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t bits = next_random(random);
    for (int64_t j = i; j < i + 4 && j < count; j++, bits >>= 16) {
      if (dtype == GLINT_FLOAT8_E4M3)
        ((uint8_t *)to)[j] = (uint8_t)table[bits & 0xFFFF];
      else
        ((uint16_t *)to)[j] = table[bits & 0xFFFF];
    }
  }
}

/* ---- FP8: factors, laid out as [batch, heads, blocks] whatever their kind ---- */

static int64_t scale_blocks(const bench *b, int64_t seqlen) {
  return b->s.scales == SCALES_BLOCK ? (seqlen + BLOCK_ROWS - 1) / BLOCK_ROWS : 1;
}

/* tensor 0, 1, 2: q, k, v */
static double scale_of(const bench *b, const cell *c, int tensor, int64_t n, int64_t head, int64_t row) {
  if (c->dtype != GLINT_FLOAT8_E4M3) return 1;
  if (b->s.scales == SCALES_TENSOR) return (double)b->scale[tensor][0];
  if (b->s.scales == SCALES_HEAD) return (double)b->scale[tensor][n * c->heads_kv + (tensor ? head : head / (c->heads / c->heads_kv))];
  const int64_t blocks = scale_blocks(b, tensor ? c->seqlen_k : c->seqlen_q), heads = tensor ? c->heads_kv : c->heads;
  return (double)b->scale[tensor][(n * heads + head) * blocks + (blocks > 1 ? row / BLOCK_ROWS : 0)];
}

static glint_tensor scale_tensor(const bench *b, const cell *c, int tensor) {
  glint_tensor t = {.data = b->device_scale[tensor], .dtype = GLINT_FLOAT32, .rank = 1 + b->s.scales};
  const int64_t heads = tensor == 0 && b->s.scales == SCALES_BLOCK ? c->heads : c->heads_kv;
  const int64_t shape[3] = {b->s.scales == SCALES_TENSOR ? 1 : c->batch, heads, scale_blocks(b, tensor ? c->seqlen_k : c->seqlen_q)};
  memcpy(t.shape, shape, (size_t)t.rank * sizeof shape[0]);
  return t;
}

static glint_status reserve(bench *b, int64_t elements, int64_t rows, glint_error *error) {
  glint_status status = GLINT_OK;
  if (elements <= b->elements && rows <= b->rows) return GLINT_OK;
  if (elements < b->elements) elements = b->elements;
  if (rows < b->rows) rows = b->rows;
  for (int i = 0; i < (b->s.backward ? DEVICE_ARRAYS : LSE + 1) && status == GLINT_OK; i++) {
    status = glint_device_free(b->memory, b->device[i], error);
    if (status == GLINT_OK)
      status = glint_device_alloc(b->memory, i == LSE ? (size_t)rows * 4 : (size_t)elements * 2, &b->device[i], error);
  }
  for (int i = 0; i < 3; i++) b->host[i] = realloc(b->host[i], (size_t)elements * 2);
  b->o = realloc(b->o, (size_t)elements * 2);
  b->lse = realloc(b->lse, (size_t)rows * 4);
  if (!b->host[0] || !b->host[1] || !b->host[2] || !b->o || !b->lse)
    return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for %" PRId64 " elements", elements);
  for (int i = 0; i < 3 && status == GLINT_OK && !b->scale[i]; i++) {
    b->scale[i] = malloc(SCALES * sizeof(float));
    if (!b->scale[i]) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for factors");
    for (int n = 0; n < SCALES; n++) b->scale[i][n] = 0.75f + (float)(next_random(&b->random) % 512) / 1024;
    status = glint_device_alloc(b->memory, SCALES * sizeof(float), &b->device_scale[i], error);
    if (status == GLINT_OK) status = glint_device_upload(b->memory, b->device_scale[i], b->scale[i], SCALES * sizeof(float), error);
  }
  b->elements = elements;
  b->rows = rows;
  b->filled = GLINT_DTYPE_NONE;
  return status;
}

static glint_status fill(bench *b, glint_dtype dtype, glint_error *error) {
  glint_status status = GLINT_OK;
  if (b->filled == dtype) return GLINT_OK;
  for (int i = 0; i < 3 && status == GLINT_OK; i++) {
    fill_normal(b->host[i], b->elements, dtype, i == 2 ? b->s.mean : 0, &b->random);
    status = glint_device_upload(b->memory, b->device[i], b->host[i], (size_t)b->elements * 2, error);
  }
  /* q's numbers once more: what counts is that they are random */
  if (status == GLINT_OK && b->s.backward)
    status = glint_device_upload(b->memory, b->device[D_O], b->host[0], (size_t)b->elements * 2, error);
  b->filled = dtype;
  return status;
}

/* ---- check ---- */

/* Row i of (batch n, head h) by the formula; returns the natural log of the sum of exponentials. */
static double formula(const bench *b, const cell *c, int64_t n, int64_t h, int64_t i, double *o, double *p) {
  const int64_t kv = h / (c->heads / c->heads_kv), d = c->head_dim;
  const int64_t q = ((n * c->seqlen_q + i) * c->heads + h) * d;
  int64_t end = c->causal && i + c->seqlen_k - c->seqlen_q + 1 < c->seqlen_k ? i + c->seqlen_k - c->seqlen_q + 1 : c->seqlen_k;
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < end; j++) {
    const int64_t k = ((n * c->seqlen_k + j) * c->heads_kv + kv) * d;
    double dot = 0;
    for (int64_t x = 0; x < d; x++) dot += decode(c->dtype, b->host[0], q + x) * decode(c->dtype, b->host[1], k + x);
    p[j] = dot * scale_of(b, c, 0, n, h, i) * scale_of(b, c, 1, n, kv, j) / sqrt((double)d);
    if (p[j] > most) most = p[j];
  }
  for (int64_t x = 0; x < d; x++) o[x] = 0;
  for (int64_t j = 0; j < end; j++) {
    const int64_t v = ((n * c->seqlen_k + j) * c->heads_kv + kv) * d;
    const double e = exp(p[j] - most), scaled = e * scale_of(b, c, 2, n, kv, j);
    sum += e;
    for (int64_t x = 0; x < d; x++) o[x] += scaled * decode(c->dtype, b->host[2], v + x);
  }
  for (int64_t x = 0; x < d; x++) o[x] /= sum;
  return most + log(sum);
}

/* Rounding allows an element one unit of its own last place, and an error in proportion to the row's size from P's rounding, which is e4m3's
 * for FP8. */
static double row_error(const bench *b, const cell *c, int64_t n, int64_t h, int64_t i, double *o, double *p) {
  const double unit = c->dtype == GLINT_FLOAT8_E4M3 ? 0x1p-5 : c->dtype == GLINT_BFLOAT16 ? 0x1p-8 : 0x1p-11;
  const double lse = formula(b, c, n, h, i, o, p);
  double size = 0, worst;
  for (int64_t x = 0; x < c->head_dim; x++) size += o[x] * o[x];
  size = sqrt(size / (double)c->head_dim);
  worst = fabs(lse - (double)b->lse[(n * c->heads + h) * c->seqlen_q + i]) / (1e-3 * (1 + fabs(lse)));
  for (int64_t x = 0; x < c->head_dim; x++) {
    const double got = decode(o_dtype(c), b->o, ((n * c->seqlen_q + i) * c->heads + h) * c->head_dim + x);
    const double error = fabs(got - o[x]) / (unit * (fabs(o[x]) + 4 * size));
    if (!(error <= worst)) worst = error; /* NaN counts as worst */
  }
  return worst;
}

static glint_status check(bench *b, const cell *c, double *worst, glint_error *error) {
  const int64_t elements = c->batch * c->seqlen_q * c->heads * c->head_dim, rows = c->batch * c->heads * c->seqlen_q;
  glint_status status = glint_device_download(b->memory, b->o, b->device[3], (size_t)elements * 2, error);
  if (status == GLINT_OK) status = glint_device_download(b->memory, b->lse, b->device[4], (size_t)rows * 4, error);
  double *o = malloc((size_t)c->head_dim * sizeof *o), *p = malloc((size_t)c->seqlen_k * sizeof *p);
  *worst = 0;
  if (!o || !p) status = glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory for a row");
  for (int r = 0; r < b->s.check_rows && status == GLINT_OK; r++) {
    uint64_t bits = next_random(&b->random);
    /* the first and the last row, then any */
    int64_t n = (int64_t)(bits % (uint64_t)c->batch), h = (int64_t)((bits >> 20) % (uint64_t)c->heads);
    int64_t i = r == 0 ? 0 : r == 1 ? c->seqlen_q - 1 : (int64_t)((bits >> 36) % (uint64_t)c->seqlen_q);
    double e = row_error(b, c, n, h, i, o, p);
    if (!(e <= *worst)) *worst = e;
  }
  free(o);
  free(p);
  return status;
}

/* ---- one cell ---- */

static glint_tensor tensor(void *data, glint_dtype dtype, int64_t a, int64_t s, int64_t h, int64_t d) {
  return (glint_tensor){.data = data, .shape = {a, s, h, d}, .dtype = dtype, .rank = d ? 4 : 3};
}

static glint_problem problem_of(const bench *b, const cell *c) {
  glint_problem p = {.struct_size = sizeof p, .causal = c->causal};
  glint_tensor *scales[3] = {&p.descale_q, &p.descale_k, &p.descale_v};
  p.q = tensor(b->device[0], c->dtype, c->batch, c->seqlen_q, c->heads, c->head_dim);
  p.k = tensor(b->device[1], c->dtype, c->batch, c->seqlen_k, c->heads_kv, c->head_dim);
  p.v = tensor(b->device[2], c->dtype, c->batch, c->seqlen_k, c->heads_kv, c->head_dim);
  p.o = tensor(b->device[3], o_dtype(c), c->batch, c->seqlen_q, c->heads, c->head_dim);
  p.lse = tensor(b->device[4], GLINT_FLOAT32, c->batch, c->heads, c->seqlen_q, 0);
  for (int i = 0; i < 3 && c->dtype == GLINT_FLOAT8_E4M3; i++) *scales[i] = scale_tensor(b, c, i);
  if (c->dtype == GLINT_FLOAT8_E4M3) p.flags = b->s.flags;
  return p;
}

static glint_gradients gradients_of(const bench *b, const cell *c) {
  glint_gradients g = {.struct_size = sizeof g};
  g.d_o = tensor(b->device[D_O], c->dtype, c->batch, c->seqlen_q, c->heads, c->head_dim);
  g.dq = tensor(b->device[DQ], c->dtype, c->batch, c->seqlen_q, c->heads, c->head_dim);
  g.dk = tensor(b->device[DK], c->dtype, c->batch, c->seqlen_k, c->heads_kv, c->head_dim);
  g.dv = tensor(b->device[DV], c->dtype, c->batch, c->seqlen_k, c->heads_kv, c->head_dim);
  return g;
}

typedef struct timed_call {
  glint_context *context;
  glint_problem problem;
  const glint_gradients *gradients; /* NULL: forward */
} timed_call;

static glint_status pass(void *user) {
  const timed_call *call = user;
  return call->gradients ? glint_backward(call->context, &call->problem, call->gradients) : glint_forward(call->context, &call->problem);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Poisons o and lse, runs once, compares. */
static glint_status first_run(bench *b, const cell *c, const timed_call *call, double *worst, glint_error *error) {
  const size_t o_bytes = (size_t)(c->batch * c->seqlen_q * c->heads * c->head_dim) * 2, rows = (size_t)(c->batch * c->heads * c->seqlen_q);
  memset(b->o, 0xFF, o_bytes);
  memset(b->lse, 0xFF, rows * 4);
  *worst = 0;
  glint_status status = glint_device_upload(b->memory, b->device[3], b->o, o_bytes, error);
  if (status == GLINT_OK) status = glint_device_upload(b->memory, b->device[4], b->lse, rows * 4, error);
  if (status != GLINT_OK) return status;
  status = glint_forward(b->forward ? b->forward : call->context, &call->problem);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(b->forward ? b->forward : call->context));
  return b->s.check_rows ? check(b, c, worst, error) : glint_device_synchronize(b->memory, error);
}

static void print_row(bench *b, const cell *c, const char *kernel, int deterministic, double ms, double worst) {
  const double pairs = (double)c->batch * (double)c->heads * (double)c->seqlen_q * (double)c->seqlen_k * (c->causal ? 0.5 : 1);
  printf("%s%s,%s,%s,%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.4f,%.1f,%.2f\n", kernel,
         deterministic ? "+deterministic" : "", b->s.backward ? "bwd" : "fwd", dtype_name(c->dtype), c->head_dim, c->causal, c->batch,
         c->heads, c->heads_kv, c->seqlen_k, ms, (b->s.backward ? 10 : 4) * pairs * (double)c->head_dim / ms * 1e-9, worst);
  fflush(stdout);
  if (!(worst <= 1)) b->failures++;
}

static void report(const cell *c, const char *kernel, const char *why) {
  printf("%s,failed,%s,%" PRId64 ",%d,%" PRId64 ",%s\n", *kernel ? kernel : "glint", dtype_name(c->dtype), c->head_dim, c->causal,
         c->seqlen_k, why);
  fflush(stdout);
}

static glint_status time_all(bench *b, timed_call *calls, int count, double times[][MOST_REPS], glint_error *error) {
  glint_status status = GLINT_OK;
  for (int r = -b->s.warmup; r < b->s.reps && status == GLINT_OK; r++)
    for (int k = 0; k < count && status == GLINT_OK; k++) {
      double ms;
      int turn = r & 1 ? count - 1 - k : k;
      status = gpu_clock_time(b->clock, pass, &calls[turn], &ms, error);
      if (r >= 0) times[turn][r] = ms;
    }
  return status;
}

/* A kernel that refuses or fails the cell is reported and left out; GLINT_ERROR_DEVICE ends everything. */
static glint_status run_cell(bench *b, const cell *c, glint_error *error) {
  static double times[MOST_KERNELS][MOST_REPS];
  timed_call calls[MOST_KERNELS];
  glint_plan_info plans[MOST_KERNELS];
  double worst[MOST_KERNELS];
  int deterministic[MOST_KERNELS], count = 0;
  const int64_t q = c->batch * c->seqlen_q * c->heads * c->head_dim, k = c->batch * c->seqlen_k * c->heads_kv * c->head_dim;
  glint_status status = reserve(b, q > k ? q : k, c->batch * c->heads * c->seqlen_q, error);
  if (status == GLINT_OK) status = fill(b, c->dtype, error);
  if (status != GLINT_OK) return status;
  const glint_problem problem = problem_of(b, c);
  const glint_gradients gradients = gradients_of(b, c);
  for (int i = 0; i < b->s.kernel_count; i++) {
    calls[count] = (timed_call){b->context[i], problem, b->s.backward ? &gradients : NULL};
    deterministic[count] = b->s.deterministic[i];
    if (deterministic[count]) calls[count].problem.flags |= GLINT_DETERMINISTIC;
    plans[count].struct_size = sizeof plans[count];
    status = glint_plan(b->context[i], b->s.backward ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD, &calls[count].problem,
                        calls[count].gradients, &plans[count]);
    if (status != GLINT_OK) {
      report(c, b->s.kernels[i], glint_last_error(b->context[i]));
      continue;
    }
    status = first_run(b, c, &calls[count], &worst[count], error);
    if (status != GLINT_OK) return status;
    count++;
  }
  status = time_all(b, calls, count, times, error);
  if (status != GLINT_OK) return status;
  for (int i = 0; i < count; i++) {
    qsort(times[i], (size_t)b->s.reps, sizeof times[i][0], by_value);
    print_row(b, c, plans[i].kernel, deterministic[i], times[i][b->s.reps / 2], worst[i]);
  }
  return GLINT_OK;
}

/* ---- which cells ---- */

static glint_status run_grid(bench *b, glint_error *error) {
  const settings *s = &b->s;
  glint_status status = GLINT_OK;
  for (int t = 0; t < s->dtypes.count; t++)
    for (int d = 0; d < s->head_dims.count; d++)
      for (int m = 0; m < s->causals.count; m++)
        for (int n = 0; n < s->seqlens.count && status == GLINT_OK; n++) {
          cell c = {(glint_dtype)s->dtypes.value[t], (int)s->causals.value[m], s->head_dims.value[d], 0, 0, 0, 0, 0};
          c.seqlen_q = c.seqlen_k = s->seqlens.value[n];
          c.batch = s->tokens / c.seqlen_k > 1 ? s->tokens / c.seqlen_k : 1;
          c.heads = s->width / c.head_dim > 1 ? s->width / c.head_dim : 1;
          c.heads_kv = c.heads / s->group > 1 ? c.heads / s->group : 1;
          status = run_cell(b, &c, error);
        }
  return status;
}

/* Answers each line of standard input with its rows and an empty line, so that another program can take turns with this one. */
static glint_status run_cells(bench *b, glint_error *error) {
  char line[256], dtype[16];
  glint_status status = GLINT_OK;
  while (status == GLINT_OK && fgets(line, sizeof line, stdin)) {
    cell c;
    if (sscanf(line, "%15s %" SCNd64 " %d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, dtype, &c.head_dim, &c.causal,
               &c.batch, &c.heads, &c.heads_kv, &c.seqlen_q, &c.seqlen_k) != 8 ||
        c.head_dim < 1 || c.batch < 1 || c.heads < 1 || c.heads_kv < 1 || c.heads % c.heads_kv || c.seqlen_q < 1 || c.seqlen_k < 1)
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "not a cell: %s", line);
    c.dtype = strcmp(dtype, "fp16") == 0 ? GLINT_FLOAT16 : strcmp(dtype, "e4m3") == 0 ? GLINT_FLOAT8_E4M3 : GLINT_BFLOAT16;
    status = run_cell(b, &c, error);
    printf("\n");
    fflush(stdout);
  }
  return status;
}

/* ---- command line ---- */

static int parse_list(const char *text, list *out) {
  out->count = 0;
  while (*text && out->count < MOST_LIST) {
    char *end;
    out->value[out->count++] = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ',')) return 0;
    text = *end ? end + 1 : end;
  }
  return out->count > 0;
}

static int parse_dtypes(const char *text, list *out) {
  out->count = 0;
  if (strstr(text, "bf16")) out->value[out->count++] = GLINT_BFLOAT16;
  if (strstr(text, "fp16")) out->value[out->count++] = GLINT_FLOAT16;
  if (strstr(text, "e4m3")) out->value[out->count++] = GLINT_FLOAT8_E4M3;
  return out->count > 0;
}

static int parse_scales(const char *text, int *out) {
  static const char *const kinds[] = {"tensor", "head", "block"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, kinds[i]) == 0) return *out = i, 1;
  return 0;
}

enum {
  KEY_REPS = 256,
  KEY_WARMUP,
  KEY_CHECK,
  KEY_CELLS,
  KEY_TOKENS,
  KEY_WIDTH,
  KEY_GROUP,
  KEY_DEVICE,
  KEY_BACKWARD,
  KEY_SCALES,
  KEY_ACCUMULATE,
  KEY_MEAN,
  KEY_QUANTIZE
};

static error_t parse(int key, char *text, struct argp_state *state) {
  settings *s = state->input;
  int good = 1;
  switch (key) {
  case 'k':
    for (char *word = strtok(text, ","); word && s->kernel_count < MOST_KERNELS; word = strtok(NULL, ","), s->kernel_count++) {
      char *plus = strstr(word, "+deterministic");
      s->deterministic[s->kernel_count] = plus != NULL;
      if (plus) *plus = 0;
      s->kernels[s->kernel_count] = word;
    }
    break;
  case 'a': s->arch = atoi(text); break;
  case 't': good = parse_dtypes(text, &s->dtypes); break;
  case 'd': good = parse_list(text, &s->head_dims); break;
  case 'c': good = parse_list(text, &s->causals); break;
  case 'n': good = parse_list(text, &s->seqlens); break;
  case KEY_REPS: s->reps = atoi(text), good = s->reps > 0 && s->reps <= MOST_REPS; break;
  case KEY_WARMUP: s->warmup = atoi(text), good = s->warmup >= 0; break;
  case KEY_CHECK: s->check_rows = atoi(text), good = s->check_rows >= 0; break;
  case KEY_CELLS: s->cells = 1; break;
  case KEY_BACKWARD: s->backward = 1; break;
  case KEY_QUANTIZE: s->quantize = 1; break;
  case KEY_SCALES: good = parse_scales(text, &s->scales); break;
  case KEY_MEAN: s->mean = atof(text); break;
  case KEY_ACCUMULATE: s->flags |= GLINT_FP32_ACCUMULATE; break;
  case KEY_TOKENS: s->tokens = atoll(text), good = s->tokens > 0; break;
  case KEY_WIDTH: s->width = atoll(text), good = s->width > 0; break;
  case KEY_GROUP: s->group = atoll(text), good = s->group > 0; break;
  case KEY_DEVICE: s->device = atoi(text), good = s->device >= 0; break;
  default: return ARGP_ERR_UNKNOWN;
  }
  if (!good) argp_error(state, "'%s' is no value of this option", text);
  return 0;
}

static const struct argp_option options[] = {
    {"kernel", 'k', "PREFIX,...", 0,
     "Kernels whose names start so, taking turns (default: the plan's); NAME+deterministic: with GLINT_DETERMINISTIC", 0},
    {"arch", 'a', "N", 0, "Kernels of this architecture: 80 or 90", 0},
    {"dtype", 't', "LIST", 0, "bf16, fp16, e4m3 (default bf16)", 0},
    {"scales", KEY_SCALES, "KIND", 0, "e4m3: a factor a tensor, head or block (of 128 rows); default head", 0},
    {"mean", KEY_MEAN, "X", 0, "V's mean (default 0)", 0},
    {"accumulate", KEY_ACCUMULATE, NULL, 0, "e4m3: GLINT_FP32_ACCUMULATE", 0},
    {"head-dim", 'd', "LIST", 0, "default 64,128,256", 0},
    {"causal", 'c', "LIST", 0, "default 0,1", 0},
    {"seqlen", 'n', "LIST", 0, "default 512,1024,2048,4096,8192,16384", 0},
    {"tokens", KEY_TOKENS, "N", 0, "batch * seqlen (default 16384)", 0},
    {"width", KEY_WIDTH, "N", 0, "heads * head_dim (default 2048)", 0},
    {"group", KEY_GROUP, "N", 0, "query heads for each key/value head (default 1)", 0},
    {"reps", KEY_REPS, "N", 0, "timed runs (default 15)", 0},
    {"warmup", KEY_WARMUP, "N", 0, "runs before (default 3)", 0},
    {"check", KEY_CHECK, "ROWS", 0, "rows compared with the formula; 0: none (default 6)", 0},
    {"backward", KEY_BACKWARD, NULL, 0, "the backward pass", 0},
    {"quantize", KEY_QUANTIZE, NULL, 0, "quantization against a copy, and with attention", 0},
    {"cells", KEY_CELLS, NULL, 0, "read cells from standard input", 0},
    {"device", KEY_DEVICE, "N", 0, "ordinal of the GPU (default 0)", 0},
    {0}};

static glint_status open_all(bench *b, glint_error *error) {
  settings *s = &b->s;
  glint_status status = glint_device_memory_open(s->device, &b->memory, error);
  if (status == GLINT_OK) status = gpu_clock_open(s->device, &b->clock, error);
  if (status == GLINT_OK && s->backward) {
    glint_options o = {.struct_size = sizeof o, .engine = GLINT_ENGINE_CUDA, .device = s->device};
    status = glint_open(&o, &b->forward);
    if (status != GLINT_OK) status = glint_fail(error, status, "%s", glint_last_error(NULL));
  }
  for (int i = 0; i < s->kernel_count && status == GLINT_OK; i++) {
    glint_options o = {.struct_size = sizeof o, .engine = GLINT_ENGINE_CUDA, .device = s->device, .arch = s->arch, .kernel = s->kernels[i]};
    status = glint_open(&o, &b->context[i]);
    if (status != GLINT_OK) status = glint_fail(error, status, "%s", glint_last_error(NULL));
  }
  return status;
}

static void close_all(bench *b) {
  glint_error ignored;
  for (int i = 0; i < b->s.kernel_count; i++) glint_close(b->context[i]);
  glint_close(b->forward);
  for (int i = 0; i < DEVICE_ARRAYS; i++)
    if (b->memory) glint_device_free(b->memory, b->device[i], &ignored);
  for (int i = 0; i < 3; i++) {
    if (b->memory) glint_device_free(b->memory, b->device_scale[i], &ignored);
    free(b->host[i]);
    free(b->scale[i]);
  }
  free(b->o);
  free(b->lse);
  gpu_clock_close(b->clock);
  glint_device_memory_close(b->memory);
}

static glint_status run_quantize(const settings *s, glint_error *error) {
  const gpu_quantize_grid grid = {s->device,        s->reps,          s->warmup,          s->head_dims.value,
                                  s->seqlens.value, s->causals.value, s->head_dims.count, s->seqlens.count,
                                  s->causals.count, s->tokens,        s->width,           s->group};
  return gpu_quantize_run(&grid, error);
}

int main(int argc, char **argv) {
  static bench b = {.s = {.reps = 15, .warmup = 3, .check_rows = 6, .tokens = 16384, .width = 2048, .group = 1, .scales = SCALES_HEAD},
                    .random = 1};
  static const struct argp argp = {options, parse, NULL, "Times glint's kernels on a GPU.", NULL, NULL, NULL};
  glint_error error = {""};
  char no_kernel[] = "";
  parse_list("64,128,256", &b.s.head_dims);
  parse_list("0,1", &b.s.causals);
  parse_list("512,1024,2048,4096,8192,16384", &b.s.seqlens);
  parse_dtypes("bf16", &b.s.dtypes);
  argp_parse(&argp, argc, argv, 0, NULL, &b.s);
  if (!b.s.kernel_count) b.s.kernels[b.s.kernel_count++] = no_kernel;
  glint_status status = b.s.quantize ? run_quantize(&b.s, &error) : open_all(&b, &error);
  if (status == GLINT_OK && !b.s.quantize) {
    printf("impl,dir,dtype,hdim,causal,batch,heads,heads_kv,seqlen,ms,tflops,check\n");
    fflush(stdout);
    status = b.s.cells ? run_cells(&b, &error) : run_grid(&b, &error);
  }
  close_all(&b);
  if (status != GLINT_OK) fprintf(stderr, "gpu_bench: %s: %s\n", glint_status_text(status), error.text);
  if (b.failures) fprintf(stderr, "gpu_bench: %d rows are wrong (column check above 1)\n", b.failures);
  return status != GLINT_OK || b.failures;
}
