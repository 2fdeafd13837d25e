/* glint picture: the attention probabilities of one head as an SVG heat map over the words.
 *
 * The probabilities come from the engine itself: attention over the identity matrix as values gives softmax(scores) exactly as every other
 * result is made, masks, biases and sinks included. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "memory.h"
#include "options.h"
#include "problem.h"
#include "report.h"
#include "verb.h"

enum { LARGEST = 512 }; /* columns of v in the API; a larger picture could not be read either */

typedef struct arguments {
  glint_options options;
  glint_problem scores;
  const char *file, *output, *name;
  int64_t head;
  int json;
} arguments;

enum { KEY_HEAD = OPTION_VERB_KEYS, KEY_JSON };

static const struct argp_option option_list[] = {
    {"output", 'o', "OUT.svg", 0, "where to write (default attention.svg)", 0},
    {"name", 'n', "NAME", 0, "the problem of the file (default: the first)", 0},
    {"head", KEY_HEAD, "H", 0, "query head (default 0)", 0},
    {"json", KEY_JSON, NULL, 0, "what was drawn, as JSON", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->options, state->child_inputs[1] = &a->scores; return 0;
  case 'o': a->output = text; return 0;
  case 'n': a->name = text; return 0;
  case KEY_HEAD: a->head = option_integer(state, "head", text, 0, INT32_MAX); return 0;
  case KEY_JSON: a->json = 1; return 0;
  case ARGP_KEY_ARG: a->file = text; return 0;
  case ARGP_KEY_END:
    if (!a->file) argp_error(state, "give FILE.safetensors");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    option_list,
    parse,
    "FILE.safetensors",
    "Draws the attention probabilities of one head as an SVG heat map.\v"
    "Rows are queries, columns are keys. The words come from the file's metadata: for a problem NAME.REST, the JSON list NAME.tokens.",
    options_engine_and_scores,
    NULL,
    NULL};

/* ---- probabilities ---- */

static glint_status identity_values(const io_array *k, io_array *v, glint_error *error) {
  int64_t n = k->shape[1], heads = k->shape[2], shape[4] = {k->shape[0], n, heads, n};
  glint_status status = io_array_allocate(v, k->dtype, 4, shape, error);
  if (status != GLINT_OK) return status;
  for (int64_t i = 0; i < v->count; i++) glint_store(v->data, v->dtype, i, i / (heads * n) % n == i % n);
  return GLINT_OK;
}

static glint_status check_drawable(const loaded_problem *p, int64_t head, glint_error *error) {
  const int64_t *q = p->inputs[0].shape, *k = p->inputs[1].shape;
  if (p->api.cu_seqlens_q.data || p->api.page_table.data || p->api.k_new.data)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "only dense problems can be drawn");
  if (k[1] < 1 || k[1] > LARGEST || q[0] < 1 || q[1] < 1 || q[1] > LARGEST)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%lld queries and %lld keys; 1 to %d can be drawn", (long long)q[1], (long long)k[1],
                      LARGEST);
  if (head >= q[2])
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "--head is %lld; there are %lld heads", (long long)head, (long long)q[2]);
  return GLINT_OK;
}

/* Fills p->o with probabilities, float32 [batch, seqlen_q, heads, seqlen_k]. */
static glint_status compute(const arguments *a, loaded_problem *p, glint_error *error) {
  memory m = {0};
  placed_problem placed = {.m = &m};
  glint_context *context = NULL;
  int64_t shape[4] = {p->o.shape[0], p->o.shape[1], p->o.shape[2], p->inputs[1].shape[1]};
  io_array_free(&p->inputs[2]);
  io_array_free(&p->o);
  glint_status status = identity_values(&p->inputs[1], &p->inputs[2], error);
  if (status == GLINT_OK) status = io_array_allocate(&p->o, GLINT_FLOAT32, 4, shape, error);
  if (status != GLINT_OK) return status;
  p->api.v = problem_tensor_of(&p->inputs[2]);
  p->api.o = problem_tensor_of(&p->o);
  status = glint_open(&a->options, &context);
  if (status != GLINT_OK) return glint_fail(error, status, "%s", glint_last_error(NULL));
  status = memory_open(glint_context_engine(context), &a->options, &m, error);
  if (status == GLINT_OK) status = memory_place(&m, &p->api, &placed, error);
  if (status == GLINT_OK) {
    status = glint_forward(context, &placed.api);
    if (status != GLINT_OK)
      glint_fail(error, status, "%s", glint_last_error(context));
    else
      status = memory_fetch(&placed, &p->api, error);
    memory_release(&placed);
  }
  memory_close(&m);
  glint_close(context);
  return status;
}

/* ---- drawing ---- */

typedef struct drawing {
  FILE *to;
  const float *probability; /* [rows, columns], with row stride */
  int64_t rows, columns, stride;
  float largest;
  const cJSON *words; /* list of texts, or NULL */
  int cell, margin;
} drawing;

static void put_escaped(FILE *to, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      fputs("&lt;", to);
    else if (*text == '>')
      fputs("&gt;", to);
    else if (*text == '&')
      fputs("&amp;", to);
    else if (*text == '"')
      fputs("&quot;", to);
    else
      fputc(iscntrl((unsigned char)*text) ? ' ' : *text, to);
  }
}

/* The words are those of the keys; queries are the last rows of the same sequence. */
static void put_word(const drawing *d, int64_t key) {
  const char *word = d->words ? cJSON_GetStringValue(cJSON_GetArrayItem(d->words, (int)key)) : NULL;
  if (word)
    put_escaped(d->to, word);
  else
    fprintf(d->to, "%lld", (long long)key);
}

/* White to dark blue, in equal steps of each component. */
static void colour(float share, char text[8]) {
  static const int light[3] = {247, 251, 255}, dark[3] = {8, 48, 107};
  int rgb[3];
  for (int i = 0; i < 3; i++) rgb[i] = (int)lroundf((float)light[i] + share * (float)(dark[i] - light[i])) & 255;
  snprintf(text, 8, "#%02x%02x%02x", (unsigned)rgb[0] & 255u, (unsigned)rgb[1] & 255u, (unsigned)rgb[2] & 255u);
}

static void draw_labels(const drawing *d) {
  int64_t shift = d->columns - d->rows;
  for (int64_t i = 0; i < d->rows; i++) {
    fprintf(d->to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", d->margin - 6, (double)d->margin + ((double)i + 0.7) * d->cell);
    put_word(d, i + shift);
    fputs("</text>\n", d->to);
  }
  for (int64_t j = 0; j < d->columns; j++) {
    double x = (double)d->margin + ((double)j + 0.65) * d->cell;
    fprintf(d->to, "<text transform=\"translate(%.1f %d) rotate(-60)\">", x, d->margin - 6);
    put_word(d, j);
    fputs("</text>\n", d->to);
  }
}

static void draw_cells(const drawing *d) {
  char fill[8];
  for (int64_t i = 0; i < d->rows; i++)
    for (int64_t j = 0; j < d->columns; j++) {
      float p = d->probability[i * d->stride + j];
      colour(d->largest > 0 && p > 0 ? p / d->largest : 0, fill);
      fprintf(d->to, "<rect x=\"%lld\" y=\"%lld\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>%.4f</title></rect>\n",
              (long long)(d->margin + j * d->cell), (long long)(d->margin + i * d->cell), d->cell - 1, d->cell - 1, fill, (double)p);
    }
}

static void draw_legend(const drawing *d, int64_t x, int64_t y) {
  char fill[8];
  fprintf(d->to, "<text x=\"%lld\" y=\"%lld\">0</text>\n", (long long)x, (long long)y + 10);
  for (int i = 0; i < 40; i++) {
    colour((float)i / 39.0f, fill);
    fprintf(d->to, "<rect x=\"%lld\" y=\"%lld\" width=\"3\" height=\"12\" fill=\"%s\"/>\n", (long long)x + 14 + 3 * i, (long long)y, fill);
  }
  fprintf(d->to, "<text x=\"%lld\" y=\"%lld\">%.2f</text>\n", (long long)x + 140, (long long)y + 10, (double)d->largest);
}

static void draw(const drawing *d, const char *name, int64_t head) {
  int64_t width = d->margin + d->columns * d->cell + 40, height = d->margin + d->rows * d->cell + 44;
  if (width < d->margin + 220) width = d->margin + 220;
  fprintf(d->to,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" viewBox=\"0 0 %lld %lld\" "
          "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text "
          "x=\"8\" y=\"18\" font-size=\"14\">",
          (long long)width, (long long)height, (long long)width, (long long)height);
  put_escaped(d->to, *name ? name : "attention");
  fprintf(d->to, ", head %lld</text>\n", (long long)head);
  draw_labels(d);
  draw_cells(d);
  draw_legend(d, d->margin, d->margin + d->rows * d->cell + 16);
  fputs("</svg>\n", d->to);
}

static cJSON *words_of(const problem_source *source, const char *name) {
  char key[512];
  snprintf(key, sizeof key, "%.*s.tokens", (int)strcspn(name, "."), name);
  const char *text = io_safetensors_metadata(&source->file, key);
  return text ? cJSON_Parse(text) : NULL;
}

static glint_status draw_file(const arguments *a, const problem_source *source, const loaded_problem *p, float *largest,
                              glint_error *error) {
  int64_t rows = p->o.shape[1], heads = p->o.shape[2], columns = p->o.shape[3];
  cJSON *words = words_of(source, p->name);
  drawing d = {.probability = (const float *)p->o.data + a->head * columns,
               .rows = rows,
               .columns = columns,
               .stride = heads * columns,
               .words = cJSON_GetArraySize(words) == columns ? words : NULL,
               .cell = columns > 60 ? 10 : 22,
               .margin = 90};
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) d.largest = fmaxf(d.largest, d.probability[i * d.stride + j]);
  *largest = d.largest;
  d.to = fopen(a->output, "w");
  glint_status status = GLINT_OK;
  if (d.to) draw(&d, p->name, a->head);
  if (!d.to || ferror(d.to) | fclose(d.to)) status = glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: cannot write", a->output);
  cJSON_Delete(words);
  return status;
}

static void tell(const arguments *a, const loaded_problem *p, float largest) {
  if (!a->json) {
    printf("%s\n", a->output);
    return;
  }
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "output", a->output);
  cJSON_AddStringToObject(object, "problem", p->name);
  cJSON_AddNumberToObject(object, "head", (double)a->head);
  cJSON_AddNumberToObject(object, "largest_probability", (double)largest);
  char *text = cJSON_Print(object);
  puts(text ? text : "{}");
  cJSON_free(text);
  cJSON_Delete(object);
}

static glint_status find_problem(const arguments *a, const problem_source *source, int *index, glint_error *error) {
  for (*index = 0; *index < source->count; (*index)++)
    if (!a->name || strcmp(a->name, source->names[*index]) == 0) return GLINT_OK;
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: no problem is named '%s'", a->file, a->name);
}

static int run(int argc, char **argv) {
  arguments a = {.options = {.struct_size = sizeof a.options}, .output = "attention.svg"};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  problem_source source;
  loaded_problem p = {0};
  glint_error error = {{0}};
  int index = 0;
  float largest = 0;
  glint_status status = problem_source_open(a.file, &source, &error);
  if (status != GLINT_OK) return verb_fail(&error);
  status = find_problem(&a, &source, &index, &error);
  if (status == GLINT_OK) status = problem_load(&source, index, &a.scores, GLINT_DTYPE_NONE, &p, &error);
  if (status == GLINT_OK) status = check_drawable(&p, a.head, &error);
  if (status == GLINT_OK) status = compute(&a, &p, &error);
  if (status == GLINT_OK) status = draw_file(&a, &source, &p, &largest, &error);
  if (status == GLINT_OK) tell(&a, &p, largest);
  problem_free(&p);
  problem_source_close(&source);
  return status == GLINT_OK ? 0 : verb_fail(&error);
}

const glint_verb glint_verb_picture = {"attention probabilities of one head as an SVG heat map", run};
