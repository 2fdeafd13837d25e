/* Random numbers (splitmix64, Steele et al. 2014) and the tensors made of them. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t testkit_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t testkit_random_below(uint64_t *state, int64_t limit) { return (int64_t)(testkit_random(state) % (uint64_t)limit); }

double testkit_random_normal(uint64_t *state) {
  double u = (double)((testkit_random(state) >> 11) + 1) * 0x1p-53, v = (double)(testkit_random(state) >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t testkit_fresh_seed(void) {
  const char *given = getenv("GLINT_SEED");
  if (given && *given) return strtoull(given, NULL, 0);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t state = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
  return testkit_random(&state) >> 32; /* short enough to type again */
}

/* Blocks form a list through their first bytes, which lie before what the caller sees. */
enum { LINK = 256 };

void *testkit_block(testkit_case *made, size_t bytes) {
  void *block = NULL;
  if (posix_memalign(&block, LINK, LINK + bytes + 256)) return NULL;
  memset(block, 0xFF, LINK + bytes + 256);
  memcpy(block, &made->blocks, sizeof made->blocks);
  made->blocks = block;
  return (char *)block + LINK;
}

void testkit_free_case(testkit_case *made) {
  while (made->blocks) {
    void *block = made->blocks;
    memcpy(&made->blocks, block, sizeof made->blocks);
    free(block);
  }
}

int64_t testkit_count(const glint_tensor *t) {
  int64_t count = 1;
  for (int a = 0; a < t->rank; a++) count *= t->shape[a];
  return count;
}

int64_t testkit_offset(const glint_tensor *t, int64_t n) {
  int given = 0;
  int64_t offset = 0;
  for (int a = 0; a < t->rank; a++) given |= t->stride[a] != 0;
  if (!given) return n;
  for (int a = t->rank - 1; a >= 0; a--) {
    offset += n % t->shape[a] * t->stride[a];
    n /= t->shape[a];
  }
  return offset;
}

int64_t testkit_span(const glint_tensor *t) {
  int64_t count = testkit_count(t);
  return count ? testkit_offset(t, count - 1) + 1 : 0;
}

void testkit_fill(const glint_tensor *t, double magnitude, uint64_t *random) {
  for (int64_t n = 0, count = testkit_count(t); n < count; n++)
    glint_store(t->data, t->dtype, testkit_offset(t, n), magnitude * testkit_random_normal(random));
}

glint_tensor testkit_tensor(testkit_case *made, glint_dtype dtype, int32_t rank, const int64_t *shape, double magnitude, uint64_t *random) {
  glint_tensor t = {NULL, {0}, {0}, dtype, rank};
  for (int32_t a = 0; a < rank; a++) t.shape[a] = shape[a];
  t.data = testkit_block(made, (size_t)testkit_count(&t) * glint_dtype_size(dtype));
  if (t.data && magnitude != 0) testkit_fill(&t, magnitude, random);
  return t;
}

glint_tensor testkit_int32(testkit_case *made, const int32_t *values, int64_t count) {
  glint_tensor t = {testkit_block(made, (size_t)count * sizeof *values), {count, 0, 0, 0}, {0}, GLINT_INT32, 1};
  if (t.data) memcpy(t.data, values, (size_t)count * sizeof *values);
  return t;
}
