/* Attention through glint. Two ways to hand tensors over:
 *   in place  the engine reads and writes the model's own float arrays, by strides: nothing is copied
 *   staged    rounded to 16 bits, in the engine's memory (a GPU's, or the host's for the simulator), and back */
#include "attention.h"

#include "device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Staged arrays. */
enum { QKV, OUT, LSE, D_OUT, D_QKV, ARRAYS };

struct attention {
  glint_context *context;
  glint_dtype precision;
  device *device; /* NULL: in place */
  void *array[ARRAYS];
  size_t bytes[ARRAYS];
  void *rounded; /* 16-bit values on their way */
  size_t rounded_bytes;
  double seconds;
  char kernel[96], error[512];
};

static char open_error[512];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int attention_open(const glint_options *options, glint_dtype precision, attention **result) {
  attention *a = calloc(1, sizeof *a);
  int gpu = options->engine == GLINT_ENGINE_CUDA;
  *result = NULL;
  if (!a) return snprintf(open_error, sizeof open_error, "out of memory"), 0;
  a->precision = precision;
  /* first the device: glint uses the GPU whose context is current */
  if (gpu || precision != GLINT_FLOAT32) a->device = device_open(gpu, open_error, sizeof open_error);
  if ((gpu || precision != GLINT_FLOAT32) && !a->device) return free(a), 0;
  if (glint_open(options, &a->context) != GLINT_OK) {
    snprintf(open_error, sizeof open_error, "%s", glint_last_error(NULL));
    device_close(a->device);
    free(a);
    return 0;
  }
  *result = a;
  return 1;
}

void attention_close(attention *a) {
  if (!a) return;
  glint_close(a->context);
  for (int i = 0; i < ARRAYS; i++)
    if (a->device) device_release(a->device, a->array[i]);
  device_close(a->device);
  free(a->rounded);
  free(a);
}

const char *attention_error(const attention *a) { return a ? a->error : open_error; }
const char *attention_kernel(const attention *a) { return a->kernel; }
double attention_seconds(const attention *a) { return a->seconds; }

static int fail(attention *a, const char *text) { return snprintf(a->error, sizeof a->error, "%s", text), 0; }

/* ---- the problem, by strides: q, k and v of a head are columns of the same rows ---- */

/* [batch, seqlen, heads, head_dim] in rows of `row` values, from column `column` on. */
static glint_tensor columns_of(const void *data, glint_dtype dtype, const attention_shape *s, int64_t row, int64_t column) {
  glint_tensor t = {.dtype = dtype, .rank = 4, .shape = {s->batch, s->seqlen, s->heads, s->head_dim}};
  t.data = (char *)(uintptr_t)data + (size_t)column * glint_dtype_size(dtype);
  t.stride[0] = s->seqlen * row, t.stride[1] = row, t.stride[2] = s->head_dim, t.stride[3] = 1;
  return t;
}

static glint_problem problem_of(const attention *a, const attention_shape *s, const void *qkv, const void *o, void *lse) {
  int64_t width = s->heads * s->head_dim;
  glint_problem p = {.struct_size = sizeof p, .causal = 1, .dropout_p = s->dropout, .dropout_offset = s->dropout_offset};
  p.q = columns_of(qkv, a->precision, s, 3 * width, 0);
  p.k = columns_of(qkv, a->precision, s, 3 * width, width);
  p.v = columns_of(qkv, a->precision, s, 3 * width, 2 * width);
  p.o = columns_of(o, a->precision, s, width, 0);
  p.lse = (glint_tensor){.data = lse, .dtype = GLINT_FLOAT32, .rank = 3, .shape = {s->batch, s->heads, s->seqlen}};
  return p;
}

static int run_forward(attention *a, const attention_shape *s, const void *qkv, void *o, void *lse) {
  glint_problem p = problem_of(a, s, qkv, o, lse);
  return glint_forward(a->context, &p) == GLINT_OK || fail(a, glint_last_error(a->context));
}

static int run_backward(attention *a, const attention_shape *s, const void *qkv, const void *o, void *lse, const void *d_o, void *dqkv) {
  int64_t width = s->heads * s->head_dim;
  glint_problem p = problem_of(a, s, qkv, o, lse);
  glint_gradients g = {.struct_size = sizeof g};
  glint_plan_info plan = {.struct_size = sizeof plan};
  g.d_o = columns_of(d_o, a->precision, s, width, 0);
  g.dq = columns_of(dqkv, a->precision, s, 3 * width, 0);
  g.dk = columns_of(dqkv, a->precision, s, 3 * width, width);
  g.dv = columns_of(dqkv, a->precision, s, 3 * width, 2 * width);
  if (!a->kernel[0] && glint_plan(a->context, GLINT_PASS_BACKWARD, &p, &g, &plan) == GLINT_OK)
    snprintf(a->kernel, sizeof a->kernel, "%s", plan.kernel);
  return glint_backward(a->context, &p, &g) == GLINT_OK || fail(a, glint_last_error(a->context));
}

/* ---- staging ---- */

/* bfloat16 is the upper half of a float; ties go to even. */
static uint16_t bfloat16_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float of_bfloat16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* An array of the engine's memory of at least so many bytes. */
static void *array_of(attention *a, int which, size_t bytes) {
  if (a->bytes[which] < bytes) {
    device_release(a->device, a->array[which]);
    a->array[which] = device_allocate(a->device, bytes);
    a->bytes[which] = a->array[which] ? bytes : 0;
    if (!a->array[which]) fail(a, "out of memory");
  }
  return a->array[which];
}

static int stage(attention *a, int which, const float *from, size_t count) {
  void *to = array_of(a, which, count * sizeof(uint16_t));
  if (a->rounded_bytes < count * sizeof(uint16_t)) {
    free(a->rounded);
    a->rounded = malloc(count * sizeof(uint16_t));
    a->rounded_bytes = a->rounded ? count * sizeof(uint16_t) : 0;
  }
  if (!to || !a->rounded) return fail(a, "out of memory");
  uint16_t *rounded = a->rounded;
  for (size_t i = 0; i < count; i++) rounded[i] = bfloat16_of(from[i]);
  return device_upload(a->device, to, rounded, count * sizeof(uint16_t)) || fail(a, "the copy to the device failed");
}

/* rounded is large enough: count is never more than what was staged. */
static int fetch(attention *a, int which, float *to, size_t count) {
  uint16_t *rounded = a->rounded;
  if (!device_download(a->device, rounded, a->array[which], count * sizeof(uint16_t))) return fail(a, "the copy from the device failed");
  for (size_t i = 0; i < count; i++) to[i] = of_bfloat16(rounded[i]);
  return 1;
}

/* ---- the two calls ---- */

int attention_forward(attention *a, const attention_shape *s, const float *qkv, float *o, float *lse) {
  size_t values = (size_t)(s->batch * s->seqlen * s->heads * s->head_dim), rows = (size_t)(s->batch * s->heads * s->seqlen);
  double start = now();
  int done;
  if (!a->device)
    done = run_forward(a, s, qkv, o, lse);
  else
    done = stage(a, QKV, qkv, 3 * values) && array_of(a, OUT, values * sizeof(uint16_t)) && array_of(a, LSE, rows * sizeof(float)) &&
           run_forward(a, s, a->array[QKV], a->array[OUT], a->array[LSE]) && fetch(a, OUT, o, values) &&
           (device_download(a->device, lse, a->array[LSE], rows * sizeof(float)) || fail(a, "the copy from the device failed"));
  a->seconds += now() - start;
  return done;
}

int attention_backward(attention *a, const attention_shape *s, const float *qkv, const float *o, const float *lse, const float *d_o,
                       float *dqkv) {
  size_t values = (size_t)(s->batch * s->seqlen * s->heads * s->head_dim), rows = (size_t)(s->batch * s->heads * s->seqlen);
  double start = now();
  int done;
  if (!a->device)
    done = run_backward(a, s, qkv, o, (float *)(uintptr_t)lse, d_o, dqkv); /* read only here */
  else
    done = stage(a, QKV, qkv, 3 * values) && stage(a, OUT, o, values) && stage(a, D_OUT, d_o, values) &&
           array_of(a, LSE, rows * sizeof(float)) && array_of(a, D_QKV, 3 * values * sizeof(uint16_t)) &&
           (device_upload(a->device, a->array[LSE], lse, rows * sizeof(float)) || fail(a, "the copy to the device failed")) &&
           run_backward(a, s, a->array[QKV], a->array[OUT], a->array[LSE], a->array[D_OUT], a->array[D_QKV]) &&
           fetch(a, D_QKV, dqkv, 3 * values);
  a->seconds += now() - start;
  return done;
}
