/* Forward passes beyond the papers' grid, timed on a GPU: decoding, grouped heads, windows, long and odd lengths, packed batches, head_dim
 * 192/128; and whether ten runs give the same bits.
 *
 *   gpu_beyond [--reps N] [--only WORD] [--kernel PREFIX]     cases whose name contains WORD
 *   gpu_beyond --repeat KERNEL,... | all     ten runs of each kernel on one problem, compared bit by bit; all: Hopper's 16-bit forward ones
 *
 * Prints CSV: impl,case,head_dim,head_dim_v,causal,window,batch,heads,heads_kv,seqlen_q,seqlen_k,splits,ms,tflops,gbs. TFLOP/s count what the
 * mask leaves visible, GB/s what must be read and written once. Where keys and values fit into L2 several times, calls go through several
 * copies in turn, so that each finds its own in device memory. Results are judged by `glint check`, not here. */
#include "convert.h"
#include "cuda/memory.h"
#include "cuda/variant.h"
#include "glint.h"
#include "gpu_clock.h"

#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REPS   100
#define MOST_COPIES 64
#define FOOTPRINT   ((int64_t)400 << 20) /* bytes of keys and values that calls go through: several times the L2 cache */
#define PATTERN     ((size_t)32 << 20)   /* bytes of random numbers that fill every tensor, again and again */
#define SEQUENCES   32                   /* of a packed batch */
#define RUNS        10

typedef struct beyond_case {
  const char *name;
  int64_t head_dim, head_dim_v;
  int causal;
  int64_t window, batch, heads, heads_kv, seqlen_q, seqlen_k; /* window: keys to the left; -1: all */
  int packed;                                                 /* SEQUENCES lengths, log-normal, mean seqlen_q */
} beyond_case;

static const beyond_case cases[] = {
    {"decode", 128, 128, 0, -1, 1, 32, 8, 1, 4096, 0},
    {"decode", 128, 128, 0, -1, 1, 32, 8, 1, 16384, 0},
    {"decode", 128, 128, 0, -1, 1, 32, 8, 1, 65536, 0},
    {"decode", 128, 128, 0, -1, 8, 32, 8, 1, 4096, 0},
    {"decode", 128, 128, 0, -1, 8, 32, 8, 1, 16384, 0},
    {"decode", 128, 128, 0, -1, 8, 32, 8, 1, 65536, 0},
    {"decode", 128, 128, 0, -1, 64, 32, 8, 1, 4096, 0},
    {"decode", 128, 128, 0, -1, 64, 32, 8, 1, 16384, 0},
    {"decode", 128, 128, 0, -1, 64, 32, 8, 1, 65536, 0},
    {"decode-heads", 128, 128, 0, -1, 8, 32, 32, 1, 16384, 0},
    {"decode-64", 64, 64, 0, -1, 8, 64, 8, 1, 16384, 0},
    {"decode-256", 256, 256, 0, -1, 8, 16, 4, 1, 16384, 0},
    {"speculate", 128, 128, 1, -1, 8, 32, 8, 4, 16384, 0},
    {"gqa", 128, 128, 0, -1, 4, 32, 8, 4096, 4096, 0},
    {"gqa", 128, 128, 1, -1, 4, 32, 8, 4096, 4096, 0},
    {"window", 128, 128, 1, 4096, 1, 16, 16, 65536, 65536, 0},
    {"long", 128, 128, 0, -1, 1, 16, 16, 131072, 131072, 0},
    {"long", 128, 128, 1, -1, 1, 16, 16, 131072, 131072, 0},
    {"odd", 128, 128, 0, -1, 16, 16, 16, 1000, 1000, 0},
    {"odd", 128, 128, 0, -1, 16, 16, 16, 1023, 1023, 0},
    {"odd", 128, 128, 0, -1, 4, 16, 16, 4097, 4097, 0},
    {"odd", 128, 128, 1, -1, 16, 16, 16, 1000, 1000, 0},
    {"odd", 128, 128, 1, -1, 16, 16, 16, 1023, 1023, 0},
    {"odd", 128, 128, 1, -1, 4, 16, 16, 4097, 4097, 0},
    {"packed", 128, 128, 1, -1, SEQUENCES, 16, 16, 1024, 1024, 1},
    {"packed-dense", 128, 128, 1, -1, SEQUENCES, 16, 16, 1024, 1024, 0},
    {"packed", 128, 128, 0, -1, SEQUENCES, 16, 16, 1024, 1024, 1},
    {"packed-dense", 128, 128, 0, -1, SEQUENCES, 16, 16, 1024, 1024, 0},
    {"d192-128", 192, 128, 0, -1, 4, 16, 16, 4096, 4096, 0},
    {"d192-128", 192, 128, 1, -1, 4, 16, 16, 4096, 4096, 0},
};

typedef struct beyond {
  glint_device_memory *memory;
  gpu_clock *clock;
  glint_context *context;
  uint16_t *pattern;
  int reps;
  const char *only, *kernel;
  char *repeat;
} beyond;

/* One case on the device: q, o, lse, lengths once, keys and values copies times. */
typedef struct loaded {
  glint_problem problem;
  void *q, *o, *lse, *cu, *k[MOST_COPIES], *v[MOST_COPIES];
  int copies, next;
  int64_t rows, keys;
  double pairs; /* visible, over batch and heads */
  glint_context *context;
} loaded;

static uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53; }
static double normal(uint64_t *state) {
  const double radius = sqrt(-2 * log(uniform(state)));
  return radius * cos(6.283185307179586 * uniform(state));
}

static glint_status new_tensor(beyond *b, int64_t elements, void **to, glint_error *error) {
  const size_t bytes = (size_t)elements * 2;
  glint_status status = glint_device_alloc(b->memory, bytes, to, error);
  for (size_t at = 0; status == GLINT_OK && at < bytes; at += PATTERN)
    status = glint_device_upload(b->memory, (char *)*to + at, b->pattern, bytes - at < PATTERN ? bytes - at : PATTERN, error);
  return status;
}

static glint_tensor tensor(void *data, glint_dtype dtype, int64_t a, int64_t s, int64_t h, int64_t d) {
  return (glint_tensor){.data = data, .shape = {a, s, h, d}, .dtype = dtype, .rank = d ? 4 : h ? 3 : 1};
}

/* Keys that the rows of a sequence see, summed */
static double visible(const beyond_case *c, int64_t rows, int64_t keys) {
  double pairs = 0;
  for (int64_t i = 0; i < rows; i++) {
    int64_t at = i + keys - rows, end = c->causal && at + 1 < keys ? at + 1 : keys,
            begin = c->window >= 0 && at > c->window ? at - c->window : 0;
    if (end > begin) pairs += (double)(end - begin);
  }
  return pairs;
}

/* Log-normal lengths (sigma 0.7) of the wanted mean, the same on every machine */
static void lengths(const beyond_case *c, int32_t *cu, loaded *l, int64_t *longest) {
  uint64_t random = 7;
  l->pairs = 0;
  *longest = 0;
  cu[0] = 0;
  for (int i = 0; i < SEQUENCES; i++) {
    int64_t n = (int64_t)((double)c->seqlen_q * exp(0.7 * normal(&random) - 0.245));
    if (n < 1) n = 1;
    if (n > *longest) *longest = n;
    l->pairs += visible(c, n, n) * (double)c->heads;
    cu[i + 1] = cu[i] + (int32_t)n;
  }
  l->rows = l->keys = cu[SEQUENCES];
}

static glint_status load_packed(beyond *b, const beyond_case *c, loaded *l, glint_error *error) {
  int32_t cu[SEQUENCES + 1];
  int64_t longest;
  lengths(c, cu, l, &longest);
  glint_status status = glint_device_alloc(b->memory, sizeof cu, &l->cu, error);
  if (status == GLINT_OK) status = glint_device_upload(b->memory, l->cu, cu, sizeof cu, error);
  l->problem.cu_seqlens_q = l->problem.cu_seqlens_k = tensor(l->cu, GLINT_INT32, SEQUENCES + 1, 0, 0, 0);
  l->problem.max_seqlen_q = l->problem.max_seqlen_k = longest;
  return status;
}

static glint_status load(beyond *b, const beyond_case *c, loaded *l, glint_error *error) {
  glint_status status = GLINT_OK;
  memset(l, 0, sizeof *l);
  l->context = b->context;
  l->problem.struct_size = sizeof l->problem;
  l->problem.causal = c->causal;
  l->problem.windowed = c->window >= 0;
  l->problem.window_left = c->window;
  l->problem.window_right = -1;
  l->rows = c->batch * c->seqlen_q;
  l->keys = c->batch * c->seqlen_k;
  l->pairs = (double)(c->batch * c->heads) * visible(c, c->seqlen_q, c->seqlen_k);
  if (c->packed) status = load_packed(b, c, l, error);
  const int64_t kv_bytes = l->keys * c->heads_kv * (c->head_dim + c->head_dim_v) * 2, batch = c->packed ? 1 : c->batch;
  l->copies = (int)(FOOTPRINT / kv_bytes + 1);
  if (l->copies > MOST_COPIES) l->copies = MOST_COPIES;
  if (status == GLINT_OK) status = new_tensor(b, l->rows * c->heads * c->head_dim, &l->q, error);
  if (status == GLINT_OK) status = new_tensor(b, l->rows * c->heads * c->head_dim_v, &l->o, error);
  if (status == GLINT_OK) status = glint_device_alloc(b->memory, (size_t)(l->rows * c->heads) * 4, &l->lse, error);
  for (int i = 0; i < l->copies && status == GLINT_OK; i++) {
    status = new_tensor(b, l->keys * c->heads_kv * c->head_dim, &l->k[i], error);
    if (status == GLINT_OK) status = new_tensor(b, l->keys * c->heads_kv * c->head_dim_v, &l->v[i], error);
  }
  l->problem.q = tensor(l->q, GLINT_BFLOAT16, batch, l->rows / batch, c->heads, c->head_dim);
  l->problem.o = tensor(l->o, GLINT_BFLOAT16, batch, l->rows / batch, c->heads, c->head_dim_v);
  l->problem.k = tensor(l->k[0], GLINT_BFLOAT16, batch, l->keys / batch, c->heads_kv, c->head_dim);
  l->problem.v = tensor(l->v[0], GLINT_BFLOAT16, batch, l->keys / batch, c->heads_kv, c->head_dim_v);
  l->problem.lse = tensor(l->lse, GLINT_FLOAT32, batch, c->heads, l->rows / batch, 0);
  return status;
}

static void unload(beyond *b, loaded *l) {
  glint_error ignored;
  void *all[] = {l->q, l->o, l->lse, l->cu};
  for (int i = 0; i < 4; i++) glint_device_free(b->memory, all[i], &ignored);
  for (int i = 0; i < MOST_COPIES; i++) {
    glint_device_free(b->memory, l->k[i], &ignored);
    glint_device_free(b->memory, l->v[i], &ignored);
  }
}

static glint_status pass(void *user) {
  loaded *l = user;
  l->problem.k.data = l->k[l->next];
  l->problem.v.data = l->v[l->next];
  l->next = (l->next + 1) % l->copies;
  return glint_forward(l->context, &l->problem);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static glint_status time_case(beyond *b, const beyond_case *c, loaded *l, glint_error *error) {
  double times[MOST_REPS];
  glint_plan_info plan = {.struct_size = sizeof plan};
  glint_status status = glint_plan(b->context, GLINT_PASS_FORWARD, &l->problem, NULL, &plan);
  if (status != GLINT_OK) {
    printf("glint,%s,refused: %s\n", c->name, glint_last_error(b->context));
    return GLINT_OK;
  }
  for (int r = -3; r < b->reps && status == GLINT_OK; r++) {
    double ms;
    status = gpu_clock_time(b->clock, pass, l, &ms, error);
    if (r >= 0) times[r] = ms;
  }
  if (status != GLINT_OK) return status;
  qsort(times, (size_t)b->reps, sizeof times[0], by_value);
  const double ms = times[b->reps / 2], bytes = 2.0 * (double)(c->head_dim + c->head_dim_v) *
                                                ((double)l->rows * (double)c->heads + (double)l->keys * (double)c->heads_kv);
  printf("%s,%s,%" PRId64 ",%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId32
         ",%.4f,%.1f,%.0f\n",
         plan.kernel, c->name, c->head_dim, c->head_dim_v, c->causal, c->window, c->batch, c->heads, c->heads_kv, c->seqlen_q, c->seqlen_k,
         plan.num_splits, ms, 2.0 * (double)(c->head_dim + c->head_dim_v) * l->pairs / ms * 1e-9, bytes / ms * 1e-6);
  fflush(stdout);
  return GLINT_OK;
}

static glint_status run_cases(beyond *b, glint_error *error) {
  glint_status status = GLINT_OK;
  printf("impl,case,head_dim,head_dim_v,causal,window,batch,heads,heads_kv,seqlen_q,seqlen_k,splits,ms,tflops,gbs\n");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == GLINT_OK; i++) {
    loaded l;
    if (b->only && !strstr(cases[i].name, b->only)) continue;
    status = load(b, &cases[i], &l, error);
    if (status == GLINT_OK) status = time_case(b, &cases[i], &l, error);
    unload(b, &l);
  }
  return status;
}

/* ---- ten runs ---- */

/* Runs into poisoned memory and downloads; the first run's bits are what the others must give. */
static glint_status run_again(beyond *b, loaded *l, size_t bytes, uint16_t *o, glint_error *error) {
  memset(o, 0xFF, bytes);
  glint_status status = glint_device_upload(b->memory, l->o, o, bytes, error);
  if (status == GLINT_OK && glint_forward(l->context, &l->problem) != GLINT_OK)
    status = glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s", glint_last_error(l->context));
  return status == GLINT_OK ? glint_device_download(b->memory, o, l->o, bytes, error) : status;
}

/* head_dim as the kernel's name has it: _d128, _d192x128 */
static beyond_case case_of(const char *kernel) {
  beyond_case c = {"repeat", 128, 128, strstr(kernel, "_mask") || strstr(kernel, "_all"), -1, 3, 8, 2, 1500, 1500, 0};
  const char *d = strstr(kernel, "_d");
  char *end;
  if (d) c.head_dim = c.head_dim_v = strtoll(d + 2, &end, 10);
  if (d && *end == 'x') c.head_dim_v = strtoll(end + 1, NULL, 10);
  if (strstr(kernel, "_grouped")) c.seqlen_q = 3, c.seqlen_k = 9000;
  return c;
}

static int repeat(beyond *b, const char *kernel, glint_error *error) {
  const glint_options o = {.struct_size = sizeof o, .engine = GLINT_ENGINE_CUDA, .kernel = kernel};
  const beyond_case c = case_of(kernel);
  const size_t bytes = (size_t)(c.batch * c.seqlen_q * c.heads * c.head_dim_v) * 2;
  uint16_t *first = malloc(bytes), *again = malloc(bytes);
  glint_context *context = NULL;
  loaded l = {.q = NULL};
  int different = 0;
  glint_status status = first && again ? GLINT_OK : glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory");
  if (status == GLINT_OK && glint_open(&o, &context) != GLINT_OK)
    status = glint_fail(error, GLINT_ERROR_NOT_FOUND, "%s", glint_last_error(NULL));
  if (status == GLINT_OK) status = load(b, &c, &l, error);
  l.context = context;
  if (status == GLINT_OK) status = run_again(b, &l, bytes, first, error);
  for (int r = 1; r < RUNS && status == GLINT_OK; r++) {
    status = run_again(b, &l, bytes, again, error);
    if (status == GLINT_OK) different += memcmp(first, again, bytes) != 0;
  }
  printf("%s,%s\n", kernel, status != GLINT_OK ? error->text : different ? "DIFFERENT BITS" : "ten runs, the same bits");
  fflush(stdout);
  unload(b, &l);
  glint_close(context);
  free(first);
  free(again);
  return status != GLINT_OK || different;
}

static int repeat_named(beyond *b, glint_error *error) {
  int failed = 0;
  for (char *kernel = strtok(b->repeat, ","); kernel; kernel = strtok(NULL, ",")) failed += repeat(b, kernel, error);
  return failed;
}

static int repeat_all(beyond *b, glint_error *error) {
  int failed = 0;
  for (const glint_variant *v = glint_variants; v->name; v++)
    if (strcmp(v->source, "forward_fa3.c") == 0 && v->dtype == GLINT_BFLOAT16) failed += repeat(b, v->name, error);
  return failed;
}

/* ---- command line ---- */

enum { KEY_REPS = 256, KEY_ONLY, KEY_KERNEL, KEY_REPEAT };

static error_t parse(int key, char *text, struct argp_state *state) {
  beyond *b = state->input;
  switch (key) {
  case KEY_REPS:
    b->reps = atoi(text);
    if (b->reps < 1 || b->reps > MOST_REPS) argp_error(state, "reps is %s: 1 to %d are expected", text, MOST_REPS);
    return 0;
  case KEY_ONLY: b->only = text; return 0;
  case KEY_KERNEL: b->kernel = text; return 0;
  case KEY_REPEAT: b->repeat = text; return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option options[] = {{"reps", KEY_REPS, "N", 0, "timed runs (default 15)", 0},
                                             {"only", KEY_ONLY, "WORD", 0, "cases whose name contains WORD", 0},
                                             {"kernel", KEY_KERNEL, "PREFIX", 0, "kernels whose name starts so (default: the plan's)", 0},
                                             {"repeat", KEY_REPEAT, "KERNEL,...", 0, "ten runs of each, compared bit by bit", 0},
                                             {0}};

int main(int argc, char **argv) {
  static const struct argp argp = {options, parse, NULL, "Times forward passes beyond the papers' grid.", NULL, NULL, NULL};
  beyond b = {.reps = 15};
  glint_error error = {""};
  uint64_t random = 1;
  int failed = 0;
  argp_parse(&argp, argc, argv, 0, NULL, &b);
  const glint_options o = {.struct_size = sizeof o, .engine = GLINT_ENGINE_CUDA, .kernel = b.kernel};
  glint_status status = glint_device_memory_open(0, &b.memory, &error);
  if (status == GLINT_OK) status = gpu_clock_open(0, &b.clock, &error);
  if (status == GLINT_OK && glint_open(&o, &b.context) != GLINT_OK)
    status = glint_fail(&error, GLINT_ERROR_NOT_FOUND, "%s", glint_last_error(NULL));
  b.pattern = malloc(PATTERN);
  if (status == GLINT_OK && !b.pattern) status = glint_fail(&error, GLINT_ERROR_OUT_OF_MEMORY, "no host memory");
  for (size_t i = 0; status == GLINT_OK && i < PATTERN / 2; i++)
    b.pattern[i] = i < 65536 ? glint_bf16_from_double(normal(&random)) : b.pattern[next_random(&random) & 0xFFFF];
  if (status == GLINT_OK && !b.repeat) status = run_cases(&b, &error);
  if (status == GLINT_OK && b.repeat) failed = strcmp(b.repeat, "all") == 0 ? repeat_all(&b, &error) : repeat_named(&b, &error);
  if (status != GLINT_OK) fprintf(stderr, "gpu_beyond: %s: %s\n", glint_status_text(status), error.text);
  glint_close(b.context);
  gpu_clock_close(b.clock);
  glint_device_memory_close(b.memory);
  free(b.pattern);
  return status != GLINT_OK || failed;
}
