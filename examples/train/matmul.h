/* The one matrix product that all linear layers are made of. */
#ifndef TRAIN_MATMUL_H
#define TRAIN_MATMUL_H
#include <stdint.h>

/* A matrix as it lies in memory, or transposed: element (i, j) is data[i * row + j * column]. */
typedef struct matrix {
  const float *data;
  int64_t row, column;
} matrix;

/* c[m][n] += a[m][k] b[k][n]; c is row-major. */
void matmul_add(float *c, matrix a, matrix b, int64_t m, int64_t n, int64_t k);
#endif
