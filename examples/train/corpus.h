/* The text that is learned, one byte a character. */
#ifndef TRAIN_CORPUS_H
#define TRAIN_CORPUS_H
#include <stdint.h>

typedef struct corpus {
  uint8_t *token; /* numbers of characters, 0 to characters - 1 */
  int64_t count;
  int64_t trained; /* the first so many are trained on, the rest is held out */
  char of_token[256];
  int64_t characters;
} corpus;

/* Returns 1, or 0 when the file cannot be read or has fewer than so many characters. */
int corpus_open(corpus *t, const char *path, int64_t at_least);
void corpus_close(corpus *t);

/* batch pieces of seqlen characters and, shifted by one, what follows each of them; from random places of what is trained on. */
void corpus_batch(const corpus *t, uint64_t *random, int64_t batch, int64_t seqlen, uint8_t *input, uint8_t *target);
/* The same from evenly spaced places of the held-out text. */
void corpus_held_out(const corpus *t, int64_t batch, int64_t seqlen, uint8_t *input, uint8_t *target);
#endif
