/* The matrix product: C is cut into tiles of 4 x 32 that stay in registers, B into blocks that stay in the first-level cache. */
#include "matmul.h"

#include <omp.h>
#include <string.h>

/* 16 floats; the compiler makes one, two or four instructions of them. */
typedef float vector __attribute__((vector_size(64)));
enum { LANES = 16, VECTORS = 2, COLUMNS = LANES * VECTORS, ROWS = 4, DEPTH = 256 };

/* The same code for several instruction sets, chosen when the program starts. Not under the sanitizers, which cannot run that early. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_MACHINE __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define FOR_EACH_MACHINE
#endif

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* depth rows of b from column j on, COLUMNS wide, zeros beyond the n-th column. */
static void pack(vector block[DEPTH][VECTORS], matrix b, int64_t first, int64_t depth, int64_t j, int64_t n) {
  int64_t columns = smaller(COLUMNS, n - j);
  if (columns < COLUMNS) memset(block, 0, (size_t)depth * sizeof *block);
  for (int64_t u = 0; u < depth; u++) {
    const float *from = b.data + (first + u) * b.row + j * b.column;
    float *to = (float *)block[u];
    for (int64_t c = 0; c < columns; c++) to[c] = from[c * b.column];
  }
}

/* Rows [begin, end) of C, columns [j, j + COLUMNS): adds depth products, whose B lies in block. */
FOR_EACH_MACHINE static void multiply(float *c, matrix a, vector block[DEPTH][VECTORS], int64_t begin, int64_t end, int64_t j, int64_t n,
                                      int64_t first, int64_t depth) {
  int64_t columns = smaller(COLUMNS, n - j);
  for (int64_t i = begin; i < end; i += ROWS) {
    vector sum[ROWS][VECTORS] = {{{0}}};
    const float *from[ROWS];
    for (int r = 0; r < ROWS; r++) from[r] = a.data + smaller(i + r, end - 1) * a.row + first * a.column;
    for (int64_t u = 0; u < depth; u++)
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) sum[r][v] += from[r][u * a.column] * block[u][v];
    for (int r = 0; r < ROWS && i + r < end; r++) {
      const float *result = (const float *)sum[r];
      for (int64_t x = 0; x < columns; x++) c[(i + r) * n + j + x] += result[x];
    }
  }
}

void matmul_add(float *c, matrix a, matrix b, int64_t m, int64_t n, int64_t k) {
#pragma omp parallel
  {
    vector block[DEPTH][VECTORS];
    int64_t strips = (m + ROWS - 1) / ROWS, threads = omp_get_num_threads(), thread = omp_get_thread_num();
    int64_t begin = strips * thread / threads * ROWS, end = smaller(m, strips * (thread + 1) / threads * ROWS);
    for (int64_t j = 0; j < n && begin < end; j += COLUMNS)
      for (int64_t first = 0; first < k; first += DEPTH) {
        int64_t depth = smaller(DEPTH, k - first);
        pack(block, b, first, depth, j, n);
        multiply(c, a, block, begin, end, j, n, first, depth);
      }
  }
}
