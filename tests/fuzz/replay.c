/* Runs a fuzz target on every file of the given folders, and on damaged copies of them: the part of fuzzing that every test run repeats. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state;

static uint64_t next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64 (Marsaglia 2003) */
  return state;
}

static void damage(uint8_t *copy, size_t size) {
  int changes = 1 + (int)(next() % 4);
  for (int i = 0; i < changes && size; i++) copy[next() % size] = (uint8_t)next();
}

/* The target sees a block of exactly its size. */
static void run(const uint8_t *data, size_t size, int damaged) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) exit(1);
  memcpy(copy, data, size);
  if (damaged) damage(copy, size);
  LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static int run_file(const char *path, int rounds) {
  static uint8_t data[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  run(data, size, 0);
  for (int i = 0; i < rounds; i++) run(data, next() % 8 ? size : next() % (size + 1), 1);
  return 1;
}

int main(int argc, char **argv) {
  const char *given = getenv("GLINT_SEED");
  state = (given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL)) | 1;
  printf("seed %llu (repeat with GLINT_SEED)\n", (unsigned long long)state);
  int files = 0;
  for (int i = 1; i < argc; i++) {
    DIR *folder = opendir(argv[i]);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
      char path[1024];
      snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
      if (entry->d_name[0] != '.') files += run_file(path, 500);
    }
    if (folder) closedir(folder);
  }
  printf("%d files\n", files);
  return files == 0;
}
