/* A program for ThreadSanitizer (races.sh): the CPU engine on several threads, forward and backward, with and without splits over keys, and on
 * two contexts at once. "planted" as the argument: a race of its own instead, which the sanitizer must report. */
#include <glint.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BATCH = 2, HEADS_Q = 8, HEADS_KV = 2, DIM = 64 };

typedef struct shape {
  int64_t seqlen_q, seqlen_k;
  glint_dtype dtype;
  int32_t causal, num_splits;
} shape;

static glint_tensor tensor(glint_dtype dtype, int64_t rows, int64_t heads) {
  size_t count = (size_t)(BATCH * rows * heads * DIM);
  glint_tensor t = {.dtype = dtype, .rank = 4, .shape = {BATCH, rows, heads, DIM}, .data = malloc(count * 4)};
  for (size_t n = 0; t.data && n < count; n++) {
    float value = (float)((n * 2654435761u >> 8) % 2001) / 1000.0f - 1;
    unsigned char bytes[4];
    memcpy(bytes, &value, 4);
    if (dtype == GLINT_FLOAT32)
      memcpy((char *)t.data + 4 * n, bytes, 4);
    else
      memcpy((char *)t.data + 2 * n, bytes + 2, 2); /* bfloat16: the upper half */
  }
  return t;
}

static int run(const shape *s) {
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU, .threads = THREADS};
  glint_problem p = {.struct_size = sizeof p, .causal = s->causal, .num_splits = s->num_splits};
  glint_gradients g = {.struct_size = sizeof g};
  glint_context *context;
  p.q = tensor(s->dtype, s->seqlen_q, HEADS_Q), p.o = tensor(s->dtype, s->seqlen_q, HEADS_Q);
  p.k = tensor(s->dtype, s->seqlen_k, HEADS_KV), p.v = tensor(s->dtype, s->seqlen_k, HEADS_KV);
  p.lse = (glint_tensor){.dtype = GLINT_FLOAT32, .rank = 3, .shape = {BATCH, HEADS_Q, s->seqlen_q}};
  p.lse.data = malloc((size_t)(BATCH * HEADS_Q * s->seqlen_q) * 4);
  g.d_o = tensor(s->dtype, s->seqlen_q, HEADS_Q), g.dq = tensor(s->dtype, s->seqlen_q, HEADS_Q);
  g.dk = tensor(s->dtype, s->seqlen_k, HEADS_KV), g.dv = tensor(s->dtype, s->seqlen_k, HEADS_KV);
  int failed = glint_open(&options, &context) != GLINT_OK;
  for (int round = 0; round < 2 && !failed; round++) failed = glint_forward(context, &p) || glint_backward(context, &p, &g);
  if (!failed) glint_close(context);
  void *blocks[] = {p.q.data, p.k.data, p.v.data, p.o.data, p.lse.data, g.d_o.data, g.dq.data, g.dk.data, g.dv.data};
  for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++) free(blocks[n]);
  return failed;
}

static void *run_all(void *result) {
  static const shape shapes[] = {
      {200, 200, GLINT_FLOAT32, 1, 0}, {130, 300, GLINT_BFLOAT16, 0, 3}, {1, 2000, GLINT_BFLOAT16, 0, 0}, {1, 1500, GLINT_FLOAT32, 0, 5}};
  for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) *(int *)result |= run(&shapes[n]);
  return NULL;
}

static int plant(void) {
  int sum = 0;
#pragma omp parallel num_threads(THREADS)
  for (int n = 0; n < 1000; n++) sum += n;
  return sum == 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "planted") == 0) return plant();
  int failed[2] = {0, 0};
  pthread_t other;
  if (pthread_create(&other, NULL, run_all, &failed[0])) return 2;
  run_all(&failed[1]);
  pthread_join(other, NULL);
  puts(failed[0] || failed[1] ? "refused" : "done");
  return failed[0] || failed[1];
}
