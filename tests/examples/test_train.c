/* The training example: every layer's gradients against differences, the whole model's too, and training with the engine and the oracle. */
#include "adam.h"
#include "cmocka_all.h"
#include "corpus.h"
#include "layers.h"
#include "matmul.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state; /* of the random numbers; the seed is printed */

static int64_t below(int64_t limit) { return (int64_t)(random_uniform(&state) * (double)limit); }

static void draw(float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = (float)random_normal(&state);
}

/* ---- differences ---- */

/* A function of some arrays whose derivative is wanted: sum of weight * output. */
typedef struct problem {
  double (*loss)(const struct problem *p);
  const float *weight; /* the gradient that comes from behind */
  int64_t n, width, other;
  float *x, *w, *y, *kept;
} problem;

static double weighted(const problem *p, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)p->weight[i] * (double)p->y[i];
  return sum;
}

static double difference(double (*loss)(const void *), const void *user, float *x, float step) {
  float kept = *x, above = kept + step, below_it = kept - step;
  *x = above;
  double high = loss(user);
  *x = below_it;
  double low = loss(user);
  *x = kept;
  return (high - low) / ((double)above - (double)below_it);
}

/* Fourth order: the error of the second order cancelled between two steps. */
static void check_gradient(const char *name, double (*loss)(const void *), const void *user, float *x, const float *dx, int64_t count,
                           int64_t samples, float step, double share) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)dx[i]));
  assert_true(largest > 0);
  for (int64_t s = 0; s < samples; s++) {
    int64_t i = samples == count ? s : below(count);
    double expected = (4 * difference(loss, user, x + i, step) - difference(loss, user, x + i, 2 * step)) / 3;
    if (!(fabs((double)dx[i] - expected) <= share * largest + 1e-4))
      fail_msg("%s[%lld] is %.6g, differences say %.6g (the largest is %.6g)", name, (long long)i, (double)dx[i], expected, largest);
  }
}

#define LAYER_STEP 0x1p-6f

static double loss_of_problem(const void *user) {
  const problem *p = user;
  return p->loss(p);
}

/* ---- layers ---- */

enum { N = 5, WIDTH = 6, OTHER = 9, ROOM = 512 };
static float x[ROOM], w[ROOM], y[ROOM], kept[ROOM], dx[ROOM], dw[ROOM], dy[ROOM];

static void start(void) {
  draw(x, ROOM), draw(w, ROOM), draw(dy, ROOM);
  memset(dx, 0, sizeof dx), memset(dw, 0, sizeof dw);
}

static double norm_loss(const problem *p) {
  norm_forward(p->y, p->kept, p->x, p->w, p->n, p->width);
  return weighted(p, p->n * p->width);
}

static void norm_gradient(void **unused) {
  (void)unused;
  start();
  problem p = {norm_loss, dy, N, WIDTH, 0, x, w, y, kept};
  norm_loss(&p);
  norm_backward(dx, dw, dy, x, kept, w, N, WIDTH);
  check_gradient("dx of norm", loss_of_problem, &p, x, dx, N * WIDTH, N * WIDTH, LAYER_STEP, 1e-3);
  check_gradient("dgain of norm", loss_of_problem, &p, w, dw, WIDTH, WIDTH, LAYER_STEP, 1e-3);
}

static double linear_loss(const problem *p) {
  memset(p->y, 0, (size_t)(p->n * p->other) * sizeof(float));
  linear_forward(p->y, p->x, p->w, p->n, p->width, p->other);
  return weighted(p, p->n * p->other);
}

static void linear_gradient(void **unused) {
  (void)unused;
  start();
  problem p = {linear_loss, dy, N, WIDTH, OTHER, x, w, y, NULL};
  linear_backward(dx, dw, dy, x, w, N, WIDTH, OTHER);
  check_gradient("dx of linear", loss_of_problem, &p, x, dx, N * WIDTH, N * WIDTH, LAYER_STEP, 1e-3);
  check_gradient("dw of linear", loss_of_problem, &p, w, dw, WIDTH * OTHER, WIDTH * OTHER, LAYER_STEP, 1e-3);
}

static double gate_loss(const problem *p) {
  gate_forward(p->y, p->x, p->n, p->width);
  return weighted(p, p->n * p->width);
}

static void gate_gradient(void **unused) {
  (void)unused;
  start();
  problem p = {gate_loss, dy, N, WIDTH, 0, x, NULL, y, NULL};
  gate_backward(dx, dy, x, N, WIDTH);
  check_gradient("dz of gate", loss_of_problem, &p, x, dx, 2 * N * WIDTH, 2 * N * WIDTH, LAYER_STEP, 1e-3);
}

/* Rows of q, k, v: 2 heads of head_dim 6. */
static double rotate_loss(const problem *p) {
  memcpy(p->y, p->x, (size_t)(p->n * 36) * sizeof(float));
  rotate(p->y, p->n, 3, 2, 6, 1);
  return weighted(p, p->n * 36);
}

static void rotate_gradient(void **unused) {
  (void)unused;
  start();
  problem p = {rotate_loss, dy, N, 0, 0, x, NULL, y, NULL};
  memcpy(dx, dy, sizeof dx);
  rotate(dx, N, 3, 2, 6, -1);
  check_gradient("dqkv of rotate", loss_of_problem, &p, x, dx, N * 36, N * 36, LAYER_STEP, 1e-3);
}

static const uint8_t targets[N] = {3, 0, 8, 3, 5};

static double entropy_loss(const problem *p) { return cross_entropy(p->y, p->x, targets, p->n, p->other); }

static void entropy_gradient(void **unused) {
  (void)unused;
  start();
  problem p = {entropy_loss, NULL, N, 0, OTHER, x, NULL, y, NULL};
  cross_entropy(dx, x, targets, N, OTHER);
  check_gradient("dlogits", loss_of_problem, &p, x, dx, N * OTHER, N * OTHER, LAYER_STEP, 1e-3);
}

/* Tails in every direction, and every kind of transposition. */
static void product(void **unused) {
  (void)unused;
  for (int round = 0; round < 24; round++) {
    int64_t m = 1 + below(40), n = 1 + below(70), k = 1 + below(round % 4 ? 30 : 600);
    float *a = malloc((size_t)(m * k) * sizeof *a), *b = malloc((size_t)(k * n) * sizeof *b), *c = malloc((size_t)(m * n) * sizeof *c);
    assert_true(a && b && c);
    draw(a, m * k), draw(b, k * n);
    for (int64_t i = 0; i < m * n; i++) c[i] = (float)i;
    matrix left = round & 1 ? (matrix){a, 1, m} : (matrix){a, k, 1}, right = round & 2 ? (matrix){b, 1, k} : (matrix){b, n, 1};
    matmul_add(c, left, right, m, n, k);
    for (int64_t i = 0; i < m * n; i++) {
      double sum = (double)i;
      for (int64_t u = 0; u < k; u++)
        sum += (double)left.data[i / n * left.row + u * left.column] * (double)right.data[u * right.row + i % n * right.column];
      assert_true(fabs((double)c[i] - sum) <= 1e-5 * ((double)i + 10 * sqrt((double)k)));
    }
    free(a), free(b), free(c);
  }
}

/* ---- the model ---- */

static attention *open_attention(glint_engine engine) {
  glint_options options = {.struct_size = sizeof options, .engine = engine};
  attention *a;
  if (!attention_open(&options, GLINT_FLOAT32, &a)) fail_msg("%s", attention_error(NULL));
  return a;
}

typedef struct trial {
  model *m;
  const uint8_t *input, *target;
  int64_t batch, seqlen;
} trial;

static double model_loss(const void *user) {
  const trial *t = user;
  return model_forward(t->m, t->input, t->target, t->batch, t->seqlen);
}

static void model_gradient(void **unused) {
  (void)unused;
  const model_shape shape = {.characters = 7, .batch = 2, .seqlen = 6, .layers = 2, .heads = 2, .head_dim = 8, .hidden = 24};
  static const uint8_t input[] = {0, 1, 2, 3, 2, 1, 6, 5, 4, 3, 0, 0}, target[] = {1, 2, 3, 2, 1, 0, 5, 4, 3, 0, 0, 6};
  attention *a = open_attention(GLINT_ENGINE_CPU);
  model m;
  assert_true(model_open(&m, &shape, a, random_bits(&state)));
  m.dropout = 0.3f, m.step = random_bits(&state); /* the same mask in every call */
  trial t = {&m, input, target, 2, 6};
  assert_true(model_loss(&t) > 0);
  assert_true(model_backward(&m, input, 2, 6));
  const layer_parameters *first = m.weights.layer, *d_first = m.gradients.layer;
  const struct {
    const char *name;
    float *x, *dx;
    int64_t count;
  } tensors[] = {{"dcharacters", m.weights.characters, m.gradients.characters, 7 * 16},
                 {"dnorm1", first->norm1, d_first->norm1, 16},
                 {"dqkv", first->qkv, d_first->qkv, 16 * 48},
                 {"dout", first->out, d_first->out, 16 * 16},
                 {"dnorm2", first->norm2, d_first->norm2, 16},
                 {"dup", first->up, d_first->up, 16 * 48},
                 {"ddown", first->down, d_first->down, 24 * 16},
                 {"dnorm", m.weights.norm, m.gradients.norm, 16},
                 {"dqkv of layer 1", first[1].qkv, d_first[1].qkv, 16 * 48},
                 {"dhead", m.weights.head, m.gradients.head, 16 * 7}};
  float *gradient = malloc((size_t)m.weights.count * sizeof *gradient);
  assert_non_null(gradient);
  memcpy(gradient, m.gradients.block, (size_t)m.weights.count * sizeof *gradient);
  for (size_t n = 0; n < sizeof tensors / sizeof *tensors; n++)
    check_gradient(tensors[n].name, model_loss, &t, tensors[n].x, gradient + (tensors[n].dx - m.gradients.block), tensors[n].count,
                   tensors[n].count < 40 ? tensors[n].count : 40, 0x1p-9f, 1e-2);
  free(gradient);
  model_close(&m);
  attention_close(a);
}

/* What comes later must not change what is guessed earlier. */
static void no_look_ahead(void **unused) {
  (void)unused;
  const model_shape shape = {.characters = 7, .batch = 1, .seqlen = 6, .layers = 2, .heads = 2, .head_dim = 8, .hidden = 24};
  uint8_t input[] = {0, 1, 2, 3, 2, 1};
  float before[6 * 7];
  attention *a = open_attention(GLINT_ENGINE_CPU);
  model m;
  assert_true(model_open(&m, &shape, a, random_bits(&state)));
  assert_true(model_forward(&m, input, NULL, 1, 6) == 0);
  memcpy(before, m.logits, sizeof before);
  input[4] = 6;
  assert_true(model_forward(&m, input, NULL, 1, 6) == 0);
  assert_memory_equal(before, m.logits, 4 * 7 * sizeof *before);
  assert_memory_not_equal(before + 4 * 7, m.logits + 4 * 7, 7 * sizeof *before);
  assert_memory_not_equal(before + 5 * 7, m.logits + 5 * 7, 7 * sizeof *before);
  model_close(&m);
  attention_close(a);
}

/* ---- training ---- */

enum { STEPS = 24 };

static void run(glint_engine engine, const corpus *source, const model_shape *shape, int64_t steps, double *loss) {
  attention *a = open_attention(engine);
  uint8_t input[4 * 48], target[4 * 48];
  uint64_t random = 5;
  model m;
  adam optimizer;
  assert_true(model_open(&m, shape, a, 3) && adam_open(&optimizer, m.weights.count));
  for (int64_t step = 0; step < steps; step++) {
    corpus_batch(source, &random, shape->batch, shape->seqlen, input, target);
    loss[step] = model_forward(&m, input, target, shape->batch, shape->seqlen);
    assert_true(loss[step] > 0 && model_backward(&m, input, shape->batch, shape->seqlen));
    adam_step(&optimizer, &m.weights, &m.gradients, 3e-3);
  }
  adam_close(&optimizer);
  model_close(&m);
  attention_close(a);
}

/* Each target is the character behind its input; held-out pieces come from the end of the text. */
static void batches(void **text_path) {
  enum { BATCH = 5, SEQLEN = 40 };
  uint8_t input[BATCH * SEQLEN], target[BATCH * SEQLEN];
  corpus c;
  assert_true(corpus_open(&c, *text_path, 1000));
  for (int round = 0; round < 20; round++) {
    if (round)
      corpus_batch(&c, &state, BATCH, SEQLEN, input, target);
    else
      corpus_held_out(&c, BATCH, SEQLEN, input, target);
    for (int b = 0; b < BATCH; b++) {
      const uint8_t *from = input + b * SEQLEN, *to = target + b * SEQLEN;
      int64_t first = round ? 0 : c.trained, end = round ? c.trained : c.count, at = first;
      while (at + SEQLEN < end && memcmp(c.token + at, from, SEQLEN)) at++;
      assert_true(at + SEQLEN < end);
      assert_memory_equal(c.token + at + 1, to, SEQLEN);
    }
  }
  corpus_close(&c);
}

static void training(void **text_path) {
  model_shape shape = {.batch = 4, .seqlen = 48, .layers = 2, .heads = 2, .head_dim = 16, .hidden = 64};
  corpus source;
  double engine[STEPS], oracle[STEPS], largest = 0;
  assert_true(corpus_open(&source, *text_path, 1000));
  shape.characters = source.characters;
  run(GLINT_ENGINE_CPU, &source, &shape, STEPS, engine);
  run(GLINT_ENGINE_ORACLE, &source, &shape, STEPS, oracle);
  for (int i = 0; i < STEPS; i++) largest = fmax(largest, fabs(engine[i] - oracle[i]));
  print_message("loss %.4f, after %d steps %.4f; from the oracle's at most %.1e\n", engine[0], STEPS, engine[STEPS - 1], largest);
  assert_true(fabs(engine[0] - log((double)source.characters)) < 0.3); /* knows nothing yet */
  assert_true(engine[STEPS - 1] < engine[0] - 0.8);
  assert_true(largest <= 1e-3);
  corpus_close(&source);
}

int main(int argc, char **argv) {
  const char *wish = getenv("GLINT_SEED");
  state = wish ? strtoull(wish, NULL, 0) : (uint64_t)time(NULL);
  printf("GLINT_SEED=%llu\n", (unsigned long long)state);
  if (argc != 2) return 2;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(product),
      cmocka_unit_test(norm_gradient),
      cmocka_unit_test(linear_gradient),
      cmocka_unit_test(gate_gradient),
      cmocka_unit_test(rotate_gradient),
      cmocka_unit_test(entropy_gradient),
      cmocka_unit_test(model_gradient),
      cmocka_unit_test(no_look_ahead),
      cmocka_unit_test_prestate(batches, argv[1]),
      cmocka_unit_test_prestate(training, argv[1]),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
