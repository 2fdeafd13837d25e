/* S: sizes, strides, head dims. G: groups of heads. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Batches beyond 16 bits; the larger problems only on a GPU, whose grids end there. */
static void s1(engine *e) {
  static const sizes shapes[] = {
      {65536, 4, 4, 1, 1, 8, 8}, {80000, 1, 1, 1, 1, 8, 8}, {65535, 1, 4, 1, 1, 64, 64}, {80000, 4, 1, 1, 1, 64, 64}};
  const int count = e->kind == GLINT_ENGINE_CUDA ? 4 : 2;
  for (int n = 0; n < count && e->best; n++) {
    glint_problem p = make_problem(e, GLINT_BFLOAT16, shapes[n], 1);
    judge(e, &p, NULL);
  }
}

/* A batch so large that sums over its heads and columns leave 32 bits in a careless kernel's units. */
static void s2(engine *e) {
  const int64_t batch = e->kind == GLINT_ENGINE_CUDA ? 8300 : 830;
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){batch, 1, 1, 16, 16, 128, 128}, 1);
  glint_gradients g = make_gradients(e, &p);
  if (!e->best) return;
  judge(e, &p, NULL);
  judge(e, &p, &g);
}

/* Rows of K so far apart that row * stride exceeds 2^31 elements, in an address range of which few pages are ever touched. */
static void s3(engine *e) {
  enum { Keys = 80, D = 64 };
  const int64_t stride = INT64_C(1) << 26; /* elements; 80 rows reach 5.3e9 */
  size_t bytes = (size_t)(Keys * stride) * sizeof(uint16_t);
  if (e->kind != GLINT_ENGINE_CPU && e->kind != GLINT_ENGINE_ORACLE) return;
  void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) skip();
  glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, 5, Keys, 1, 1, D, D}, 1), far = p;
  far.k.data = range, far.k.stride[0] = Keys * stride, far.k.stride[1] = stride, far.k.stride[2] = D, far.k.stride[3] = 1;
  far.o = make_tensor(e, GLINT_BFLOAT16, 1, 5, 1, D, 0);
  for (int64_t j = 0; j < Keys; j++) memcpy((uint16_t *)range + j * stride, (uint16_t *)p.k.data + j * D, D * sizeof(uint16_t));
  if (run_forward(e, &p) && run_forward(e, &far)) assert_same(&p.o, &far.o);
  munmap(range, bytes);
}

static void s4(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++)
    for (int64_t d = 8; d <= 16; d += 8) {
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 256, 300, 2, 2, d, d}, 1);
      glint_gradients g = make_gradients(e, &p);
      judge(e, &p, NULL);
      judge(e, &p, &g);
    }
}

static void s5(engine *e) {
  static const int splits[] = {1, 2, 3, 5, 17, 32, 55, 97, 133, 1000};
  static const sizes shapes[] = {{2, 1, 700, 4, 2, 64, 64}, {1, 33, 150, 2, 2, 128, 64}};
  for (int shape = 0; shape < 2; shape++)
    for (int causal = 0; causal < 2; causal++) {
      glint_problem p = make_problem(e, GLINT_FLOAT32, shapes[shape], 1);
      glint_tensor first = p.o;
      p.causal = causal;
      for (int n = 0; n < 10; n++) {
        p.num_splits = splits[n];
        if (n) p.o = make_tensor(e, GLINT_FLOAT32, first.shape[0], first.shape[1], first.shape[2], first.shape[3], 0);
        if (n % 4 == 0) judge(e, &p, NULL);
        if (!run_forward(e, &p)) continue;
        for (size_t at = 0; n && at < bytes_of(&first) / 4; at++)
          assert_true(fabs((double)(((float *)first.data)[at] - ((float *)p.o.data)[at])) < 1e-5);
      }
    }
}

/* Base pointers off by 1, 2, 3 elements. */
static void s6(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++)
    for (size_t off = 1; off < 4; off++) {
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 40, 70, 2, 1, 64, 64}, 1);
      size_t bytes = off * glint_dtype_size(p.q.dtype);
      glint_tensor *tensors[] = {&p.q, &p.k, &p.v};
      for (int n = 0; n < 3; n++) { /* blocks have spare bytes behind them */
        memmove((char *)tensors[n]->data + bytes, tensors[n]->data, bytes_of(tensors[n]));
        tensors[n]->data = (char *)tensors[n]->data + bytes;
      }
      p.o.data = (char *)p.o.data + bytes, p.lse.data = (float *)p.lse.data + off;
      glint_gradients g = make_gradients(e, &p);
      g.dq.data = (char *)g.dq.data + bytes, g.dv.data = (char *)g.dv.data + bytes;
      judge(e, &p, NULL);
      judge(e, &p, &g);
    }
}

static void s7(engine *e) {
  glint_problem p = make_problem(e, GLINT_FLOAT32, (sizes){1, 4, 4, 2, 2, 64, 64}, 1);
  p.k.stride[0] = 512, p.k.stride[1] = 128, p.k.stride[2] = 1, p.k.stride[3] = 2;
  assert_int_equal(glint_forward(e->context, &p), GLINT_ERROR_INVALID_ARGUMENT);
}

static void s8(engine *e) {
  static const int dims[] = {59, 63, 100, 111, 1, 2, 3, 5, 250};
  for (int t = 0; t < FLOAT_DTYPES; t++)
    for (int n = 0; n < 9; n++) {
      glint_problem p = make_problem(e, float_dtypes[t], (sizes){1, 30, 50, 2, 1, dims[n], dims[(n + t) % 9]}, 1);
      glint_gradients g = make_gradients(e, &p);
      p.causal = n % 2;
      judge(e, &p, NULL);
      judge(e, &p, &g);
    }
}

static void g1(engine *e) {
  static const int heads[][2] = {{5, 1}, {12, 2}, {28, 4}, {24, 4}, {64, 4}};
  for (int n = 0; n < 5; n++)
    for (int64_t sq = 1; sq < 30; sq += 20) {
      glint_problem p = make_problem(e, GLINT_BFLOAT16, (sizes){1, sq, 90, heads[n][0], heads[n][1], 64, 64}, 1);
      glint_gradients g = make_gradients(e, &p);
      p.causal = 1;
      judge(e, &p, NULL);
      judge(e, &p, &g);
    }
}

static void g2(engine *e) {
  for (int t = 0; t < FLOAT_DTYPES; t++)
    for (int64_t group = 1; group <= 8; group *= 2)
      for (int64_t sq = 1; sq <= group; sq += group > 1 ? group - 1 : 1) {
        glint_problem p = make_problem(e, float_dtypes[t], (sizes){2, sq, 130, 2 * group, 2, 64, 64}, 1);
        judge(e, &p, NULL); /* lse too */
      }
}

int main(void) {
  static const engine_case cases[] = {{"S1", s1}, {"S2", s2}, {"S3", s3}, {"S4", s4}, {"S5", s5},
                                      {"S6", s6}, {"S7", s7}, {"S8", s8}, {"G1", g1}, {"G2", g2}};
  return run_cases(cases, sizeof cases / sizeof *cases);
}
