/* Kernels for few query rows (decode): K and V are read once, where they lie, with vectors along head_dim, for 1, 2 or 4 rows together.
 * The time is that of reading memory, so each kernel also asks for the rows that the next one will read. */
#ifndef GLINT_CPU_ROWS_H
#define GLINT_CPU_ROWS_H
#include "glint.h"

#include <stddef.h>
#include <stdint.h>

/* Keys a block, and how many further entries key and value pointer arrays need (copies of the last row). */
enum { GLINT_CPU_ROWS_BLOCK = 32, GLINT_CPU_ROWS_PAD = 16, GLINT_CPU_ROWS_MAX = 4 };

/* Rows of memory that will be needed soon: count pointers, bytes of each. A kernel asks for all of them, evenly over its work and in the order
 * of memory: the second-level cache's prefetcher takes the hint and runs ahead. */
typedef struct glint_cpu_soon {
  const void *const *rows;
  int count;
  int64_t bytes;
} glint_cpu_soon;

/* What is done to scores before the softmax; one entry a row. */
typedef struct glint_cpu_rows_change {
  float cap;             /* > 0: s = cap * tanh(s), as in glint_cpu_scores */
  const float *slope;    /* ALiBi; NULL: none */
  const float *position; /* relative to the block's first key */
} glint_cpu_rows_change;

typedef struct glint_cpu_rows {
  int column_unit; /* head_dim and head_dim_v must be multiples of it */
  /* s[j][r] = q[r] . key j for count keys, rounded up to whole vectors. Key j lies `at` bytes after keys[j]. rows: 1, 2 or 4. dtype: float32,
   * bfloat16, float16. */
  void (*scores)(int rows, const float *q, ptrdiff_t ld_q, const void *const *keys, ptrdiff_t at, int count, glint_dtype dtype,
                 int head_dim, float *s, const glint_cpu_soon *soon);
  /* Online softmax step over count keys; P overwrites S; alpha[r] multiplies O. */
  void (*softmax)(int rows, float *s, int count, const glint_cpu_rows_change *change, float unit, float *m, float *l, float *alpha);
  /* o[r][c] = alpha[r] o[r][c] + sum over j of p[j][r] v[j][c]; value row j lies `at` bytes after values[j]. */
  void (*accumulate)(int rows, const float *p, const void *const *values, ptrdiff_t at, int count, glint_dtype dtype, int head_dim_v,
                     float *o, ptrdiff_t ld_o, const float *alpha, const glint_cpu_soon *soon);
  const struct glint_cpu_tile_rows *tiles; /* NULL where there are none */
} glint_cpu_rows;

/* Scores of 4 rows by matrix instructions: 16 keys against 4 rows at a time, bfloat16, head_dim a multiple of 32. */
enum { GLINT_CPU_TILE_KEYS = 16, GLINT_CPU_TILE_ROWS = 4, GLINT_CPU_TILE_COLUMNS = 32 };
typedef struct glint_cpu_tile_rows {
  void (*begin)(void); /* before the first call of an item and after the last one: the tiles have another shape than the panel kernels' */
  void (*end)(void);
  /* 4 rows of q, rounded to bfloat16, as words [head_dim / 2][4]. */
  void (*pack_q)(const float *q, ptrdiff_t ld_q, int head_dim, float *packed);
  /* s[j][4] for count keys (a multiple of 16) that lie stride bytes apart. */
  void (*scores)(const float *packed, const void *keys, ptrdiff_t stride, int count, int head_dim, float *s, const glint_cpu_soon *soon);
} glint_cpu_tile_rows;
#endif
