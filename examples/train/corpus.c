/* Reading the text and cutting batches out of it. */
#include "corpus.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *read_file(const char *path, int64_t *count) {
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = NULL;
  long size = -1;
  if (file && !fseek(file, 0, SEEK_END)) size = ftell(file);
  if (size > 0) bytes = malloc((size_t)size);
  if (bytes && (fseek(file, 0, SEEK_SET) || fread(bytes, 1, (size_t)size, file) != (size_t)size)) {
    free(bytes);
    bytes = NULL;
  }
  if (file) fclose(file);
  *count = size;
  return bytes;
}

int corpus_open(corpus *t, const char *path, int64_t at_least) {
  int number[256], seen[256] = {0};
  *t = (corpus){0};
  t->token = read_file(path, &t->count);
  if (!t->token || t->count < at_least) return corpus_close(t), 0;
  for (int64_t i = 0; i < t->count; i++) seen[t->token[i]] = 1;
  for (int byte = 0; byte < 256; byte++)
    if (seen[byte]) {
      number[byte] = (int)t->characters;
      t->of_token[t->characters++] = (char)byte;
    }
  for (int64_t i = 0; i < t->count; i++) t->token[i] = (uint8_t)number[t->token[i]];
  t->trained = t->count - t->count / 10;
  return 1;
}

void corpus_close(corpus *t) {
  free(t->token);
  *t = (corpus){0};
}

static void piece(const corpus *t, int64_t at, int64_t seqlen, uint8_t *input, uint8_t *target) {
  memcpy(input, t->token + at, (size_t)seqlen);
  memcpy(target, t->token + at + 1, (size_t)seqlen);
}

void corpus_batch(const corpus *t, uint64_t *random, int64_t batch, int64_t seqlen, uint8_t *input, uint8_t *target) {
  for (int64_t b = 0; b < batch; b++) {
    int64_t at = (int64_t)(random_uniform(random) * (double)(t->trained - seqlen));
    piece(t, at, seqlen, input + b * seqlen, target + b * seqlen);
  }
}

void corpus_held_out(const corpus *t, int64_t batch, int64_t seqlen, uint8_t *input, uint8_t *target) {
  int64_t room = t->count - t->trained - seqlen - 1;
  for (int64_t b = 0; b < batch; b++)
    piece(t, t->trained + room * b / (batch > 1 ? batch - 1 : 1), seqlen, input + b * seqlen, target + b * seqlen);
}
