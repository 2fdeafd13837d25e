/* Trains a small transformer on a text, character by character, with glint's attention forward and backward. README.md says what to see. */
#include "adam.h"
#include "corpus.h"
#include "curve.h"
#include "random.h"

#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct arguments {
  const char *file, *drawing;
  glint_options options;
  glint_dtype precision;
  int64_t steps, compare, sample;
  uint64_t seed;
  double rate, dropout;
  model_shape shape;
} arguments;

/* How far the loss may be from the one that the oracle's attention gives. */
#define COMPARE_TOLERANCE 1e-3

enum {
  KEY_STEPS = 0x100,
  KEY_COMPARE,
  KEY_SAMPLE,
  KEY_SEED,
  KEY_RATE,
  KEY_DROPOUT,
  KEY_BATCH,
  KEY_SEQLEN,
  KEY_LAYERS,
  KEY_HEADS,
  KEY_HEAD_DIM,
  KEY_BF16
};

static const struct argp_option option_list[] = {
    {"engine", 'e', "NAME", 0, "who computes attention: cpu (default), oracle, cuda or sim", 0},
    {"bf16", KEY_BF16, NULL, 0, "round q, k, v and their gradients to bfloat16 (always with cuda and sim)", 0},
    {"threads", 't', "N", 0, "threads of glint's CPU engine (default: OpenMP's)", 0},
    {"compare", KEY_COMPARE, "N", 0, "repeat the first N steps with the oracle; exit with 1 when a loss differs by more than 0.001", 0},
    {"steps", KEY_STEPS, "N", 0, "how long (default 600)", 0},
    {"rate", KEY_RATE, "X", 0, "learning rate (default 0.003)", 0},
    {"dropout", KEY_DROPOUT, "P", 0, "share of attention's probabilities to drop while training (default 0.3)", 0},
    {"seed", KEY_SEED, "S", 0, "of weights and batches (default 1)", 0},
    {"batch", KEY_BATCH, "N", 0, "pieces of text a step (default 8)", 0},
    {"seqlen", KEY_SEQLEN, "N", 0, "characters a piece, and how far the model looks back (default 128)", 0},
    {"layers", KEY_LAYERS, "N", 0, "(default 3)", 0},
    {"heads", KEY_HEADS, "N", 0, "(default 3)", 0},
    {"head-dim", KEY_HEAD_DIM, "N", 0, "(default 32)", 0},
    {"sample", KEY_SAMPLE, "N", 0, "characters to write at the end (default 400)", 0},
    {"output", 'o', "FILE.svg", 0, "draw the loss here", 0},
    {0},
};

static int64_t number(struct argp_state *state, const char *text, int64_t lowest, int64_t highest) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (*end || end == text || value < lowest || value > highest)
    argp_error(state, "%s: expected a number from %lld to %lld", text, (long long)lowest, (long long)highest);
  return value;
}

static glint_engine engine_of(struct argp_state *state, const char *text) {
  static const char *const names[] = {"auto", "cpu", "cuda", "sim", "oracle"};
  for (int i = 1; i < 5; i++)
    if (!strcmp(text, names[i])) return (glint_engine)i;
  argp_error(state, "%s: expected cpu, oracle, cuda or sim", text);
  return GLINT_ENGINE_AUTO;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case 'e': a->options.engine = engine_of(state, text); return 0;
  case KEY_BF16: a->precision = GLINT_BFLOAT16; return 0;
  case 't': a->options.threads = (int32_t)number(state, text, 1, 4096); return 0;
  case KEY_COMPARE: a->compare = number(state, text, 0, 1 << 20); return 0;
  case KEY_STEPS: a->steps = number(state, text, 1, 1 << 20); return 0;
  case KEY_RATE: a->rate = atof(text); return 0;
  case KEY_DROPOUT: a->dropout = atof(text); return 0;
  case KEY_SEED: a->seed = (uint64_t)number(state, text, 0, INT64_MAX); return 0;
  case KEY_BATCH: a->shape.batch = number(state, text, 1, 4096); return 0;
  case KEY_SEQLEN: a->shape.seqlen = number(state, text, 2, 65536); return 0;
  case KEY_LAYERS: a->shape.layers = number(state, text, 1, MODEL_LAYERS_MAX); return 0;
  case KEY_HEADS: a->shape.heads = number(state, text, 1, 256); return 0;
  case KEY_HEAD_DIM: a->shape.head_dim = number(state, text, 1, 512); return 0;
  case KEY_SAMPLE: a->sample = number(state, text, 0, 1 << 20); return 0;
  case 'o': a->drawing = text; return 0;
  case ARGP_KEY_ARG:
    if (a->file) argp_error(state, "one text at a time");
    a->file = text;
    return 0;
  case ARGP_KEY_NO_ARGS: argp_error(state, "which text?"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list, parse, "TEXT", "Trains a small transformer on a text, character by character, with glint's attention.", NULL, NULL, NULL};

/* ---- one training run ---- */

typedef struct trainer {
  attention *attention;
  model model;
  adam adam;
} trainer;

static int fail(const char *what) {
  fprintf(stderr, "train: %s\n", what);
  return 0;
}

static int trainer_open(trainer *t, const glint_options *options, const arguments *a) {
  if (!attention_open(options, a->precision, &t->attention)) return fail(attention_error(NULL));
  return (model_open(&t->model, &a->shape, t->attention, a->seed) && adam_open(&t->adam, t->model.weights.count)) || fail("out of memory");
}

static void trainer_close(trainer *t) {
  adam_close(&t->adam);
  model_close(&t->model);
  attention_close(t->attention);
}

/* Rises over 20 steps and falls to a tenth along a cosine. */
static double rate_at(const arguments *a, int64_t step) {
  double rise = fmin(1, (double)(step + 1) / 20);
  return a->rate * rise * (0.55 + 0.45 * cos(3.141592653589793 * (double)step / (double)a->steps));
}

/* The loss before the step; negative when it failed. */
static double train_step(trainer *t, const arguments *a, const uint8_t *input, const uint8_t *target, int64_t step) {
  t->model.dropout = (float)a->dropout, t->model.step = (uint64_t)step;
  double loss = model_forward(&t->model, input, target, a->shape.batch, a->shape.seqlen);
  if (loss < 0 || !model_backward(&t->model, input, a->shape.batch, a->shape.seqlen)) return fail(attention_error(t->attention)), -1;
  adam_step(&t->adam, &t->model.weights, &t->model.gradients, rate_at(a, step));
  t->model.dropout = 0;
  return loss;
}

/* ---- writing ---- */

/* A character by its probability, sharpened a little. */
static uint8_t draw_character(const float *logits, int64_t characters, uint64_t *random) {
  const float temperature = 0.7f;
  float largest = logits[0];
  double sum = 0, point;
  for (int64_t c = 1; c < characters; c++) largest = fmaxf(largest, logits[c]);
  for (int64_t c = 0; c < characters; c++) sum += exp((double)((logits[c] - largest) / temperature));
  point = random_uniform(random) * sum;
  for (int64_t c = 0; c < characters; c++) {
    point -= exp((double)((logits[c] - largest) / temperature));
    if (point < 0) return (uint8_t)c;
  }
  return (uint8_t)(characters - 1);
}

/* Continues the first characters of the held-out text, which the model has never seen. */
static int write_sample(trainer *t, const arguments *a, const corpus *source) {
  int64_t seqlen = a->shape.seqlen, used = seqlen < 32 ? seqlen / 2 : 32;
  uint8_t *window = malloc((size_t)seqlen);
  uint64_t random = a->seed;
  if (!window) return fail("out of memory");
  memcpy(window, source->token + source->trained, (size_t)used);
  for (int64_t i = 0; i < used; i++) putchar(source->of_token[window[i]]);
  printf(" |");
  for (int64_t n = 0; n < a->sample; n++) {
    if (model_forward(&t->model, window, NULL, 1, used) < 0) return free(window), fail(attention_error(t->attention));
    uint8_t next = draw_character(t->model.logits + (used - 1) * a->shape.characters, a->shape.characters, &random);
    putchar(source->of_token[next]);
    if (used == seqlen) memmove(window, window + 1, (size_t)--used);
    window[used++] = next;
  }
  putchar('\n');
  free(window);
  return 1;
}

/* ---- the whole ---- */

typedef struct record {
  double *loss, *held_out;
  int64_t *held_step, held_count;
  double largest_difference;
} record;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { REPORTS = 20 };

static int report(trainer *t, const arguments *a, const corpus *source, uint8_t *input, uint8_t *target, int64_t step, double since,
                  record *r) {
  int64_t every = a->steps / REPORTS ? a->steps / REPORTS : 1, first = step + 1 > every ? step + 1 - every : 0;
  double mean = 0;
  if ((step + 1) % every && step + 1 != a->steps) return 1;
  for (int64_t i = first; i <= step; i++) mean += r->loss[i] / (double)(step + 1 - first);
  corpus_held_out(source, a->shape.batch, a->shape.seqlen, input, target);
  double held_out = model_forward(&t->model, input, target, a->shape.batch, a->shape.seqlen);
  if (held_out < 0) return fail(attention_error(t->attention));
  if (r->held_count < 2 * REPORTS) {
    r->held_step[r->held_count] = step + 1;
    r->held_out[r->held_count++] = held_out;
  }
  printf("step %5lld   loss %.3f   held out %.3f   %5.1f s, attention %4.1f s\n", (long long)step + 1, mean, held_out, seconds() - since,
         attention_seconds(t->attention));
  fflush(stdout);
  return 1;
}

static int train(trainer *t, trainer *oracle, const arguments *a, const corpus *source, record *r) {
  size_t room = (size_t)(a->shape.batch * a->shape.seqlen);
  uint8_t *input = malloc(room), *target = malloc(room);
  uint64_t random = a->seed + 1;
  double since = seconds();
  int good = (input && target) || fail("out of memory");
  for (int64_t step = 0; good && step < a->steps; step++) {
    corpus_batch(source, &random, a->shape.batch, a->shape.seqlen, input, target);
    r->loss[step] = train_step(t, a, input, target, step);
    good = r->loss[step] >= 0;
    if (good && step < a->compare) {
      double expected = train_step(oracle, a, input, target, step);
      r->largest_difference = fmax(r->largest_difference, fabs(expected - r->loss[step]));
      good = expected >= 0;
      if (good && step + 1 == a->compare)
        printf("the same %lld steps with the oracle's attention: losses differ by at most %.1e\n", (long long)a->compare,
               r->largest_difference);
    }
    good = good && report(t, a, source, input, target, step, since, r);
  }
  free(input);
  free(target);
  return good;
}

static int show(trainer *t, const arguments *a, const corpus *source, const record *r) {
  curve c = {r->loss, a->steps, r->held_out, r->held_step, r->held_count};
  putchar('\n');
  curve_print(&c, stdout);
  if (a->drawing && !curve_save(&c, a->drawing)) return fail("the drawing cannot be written");
  if (a->drawing) printf("\ndrawn: %s\n", a->drawing);
  if (a->sample) printf("\nwhat it writes (behind the bar):\n\n");
  if (a->sample && !write_sample(t, a, source)) return 0;
  return !(a->compare && r->largest_difference > COMPARE_TOLERANCE) || fail("the oracle's loss is another one: see above");
}

static int run(const arguments *a, const corpus *source) {
  const glint_options reference = {.struct_size = sizeof reference, .engine = GLINT_ENGINE_ORACLE};
  trainer t = {0}, oracle = {0};
  record r = {malloc((size_t)a->steps * sizeof *r.loss), malloc(2 * REPORTS * sizeof *r.held_out),
              malloc(2 * REPORTS * sizeof *r.held_step), 0, 0};
  int good = (r.loss && r.held_out && r.held_step) || fail("out of memory");
  good = good && trainer_open(&t, &a->options, a) && (!a->compare || trainer_open(&oracle, &reference, a));
  if (good) {
    printf("%lld characters of text, %lld different ones; %lld layers of %lld heads, %lld weights; %lld x %lld characters a step\n",
           (long long)source->count, (long long)source->characters, (long long)a->shape.layers, (long long)a->shape.heads,
           (long long)t.model.weights.count, (long long)a->shape.batch, (long long)a->shape.seqlen);
    good = train(&t, &oracle, a, source, &r);
  }
  if (good) printf("attention ran as %s\n", attention_kernel(t.attention));
  good = good && show(&t, a, source, &r);
  trainer_close(&t);
  trainer_close(&oracle);
  free(r.loss);
  free(r.held_out);
  free(r.held_step);
  return good;
}

int main(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options, .engine = GLINT_ENGINE_CPU},
                 .precision = GLINT_FLOAT32,
                 .steps = 600,
                 .sample = 400,
                 .seed = 1,
                 .rate = 3e-3,
                 .dropout = 0.3,
                 .shape = {.batch = 8, .seqlen = 128, .layers = 3, .heads = 3, .head_dim = 32}};
  corpus source;
  argp_err_exit_status = 2;
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  if (a.options.engine == GLINT_ENGINE_CUDA || a.options.engine == GLINT_ENGINE_SIM) a.precision = GLINT_BFLOAT16;
  a.shape.hidden = 8 * a.shape.heads * a.shape.head_dim / 3 / 32 * 32 + 32;
  if (!corpus_open(&source, a.file, 20 * a.shape.seqlen)) {
    fprintf(stderr, "train: %s cannot be read, or is shorter than 20 pieces of %lld characters\n", a.file, (long long)a.shape.seqlen);
    return 1;
  }
  a.shape.characters = source.characters;
  int good = run(&a, &source);
  corpus_close(&source);
  return !good;
}
