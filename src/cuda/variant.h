/* The kernels that were built: one row for each line of kernels/variants.txt, in its order. kernels/CMakeLists.txt makes the table. */
#ifndef GLINT_CUDA_VARIANT_H
#define GLINT_CUDA_VARIANT_H

#include <stdint.h>

typedef struct glint_variant {
  const char *name;
  const char *source;           /* file in kernels/: says which launch code it needs */
  int32_t arch;                 /* 80: this and every later GPU; 90: exactly Hopper */
  int32_t dtype;                /* glint_dtype */
  int32_t head_dim, head_dim_v; /* padded */
  uint32_t features;            /* FEATURE_ bits of kernels/params.h */
  int32_t tile_q, tile_k, stages, threads;
  int32_t min_blocks; /* blocks that fit on one multiprocessor */
  int32_t persistent;
  int64_t shared_bytes;                 /* dynamic */
  const unsigned char *code, *code_end; /* fatbin; NULL when the library was built without nvcc */
  int32_t registers;                    /* per thread; without nvcc the table's budget */
  int32_t min_keys;                     /* seqlen_k from which on it is chosen */
} glint_variant;

extern const glint_variant glint_variants[]; /* ends with a row whose name is NULL */
extern const int glint_variants_have_code;   /* 0: built without nvcc */

/* The row of that name; -1: there is none. */
int glint_variant_index(const char *name);

#endif
