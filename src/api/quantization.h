/* A checked quantization: what every engine receives. */
#ifndef GLINT_QUANTIZATION_H
#define GLINT_QUANTIZATION_H

#include "work.h"

/* One of q, k, v. in.data == NULL: not part of the call. Invariants as in glint_work. */
typedef struct glint_quantize_tensor {
  glint_view in, out;    /* axes: batch, row, head, column */
  glint_view descale;    /* 3 axes: batch, group of heads, block of rows; stride 0 where shared by all */
  int64_t heads_a_scale; /* consecutive heads with one factor: 1, or heads_q / heads_kv */
  int64_t block_rows;    /* rows of a block; 0: one factor for all rows of a sequence */
  int64_t seqlen;        /* rows of the longest sequence */
  int shared;            /* one factor for the whole tensor */
  int of_keys;           /* lengths are those of k */
  int rotate;
} glint_quantize_tensor;

enum { GLINT_QUANTIZE_Q, GLINT_QUANTIZE_K, GLINT_QUANTIZE_V, GLINT_QUANTIZE_TENSORS };

typedef struct glint_quantize_work {
  glint_work lengths; /* batch, heads, head_dim, seqlen, total, cu_seqlens, seqused: what glint_sequence_of reads; q, k, v: shapes only */
  glint_quantize_tensor tensor[GLINT_QUANTIZE_TENSORS];
  glint_dtype dtype; /* of the results */
  int descale_given;
  uint64_t rotation_seed;
  int smooth;           /* as in glint_quantization */
  glint_view k_mean;    /* 3 axes */
  glint_view lse_shift; /* 3 axes */
  float scale;          /* resolved */
  void *stream, *workspace;
  size_t workspace_bytes;
} glint_quantize_work;

/* Checks completely and fills work; host: index arrays and factors may be read. On failure writes the message into error. */
glint_status glint_check_quantization(const glint_quantization *quantization, int host, glint_quantize_work *work, char *error,
                                      size_t size);
/* Between tensors, only before a run. */
struct glint_error;
glint_status glint_check_quantize_aliasing(const glint_quantize_work *work, struct glint_error *error);

/* 448 or 57344. */
float glint_fp8_largest(glint_dtype dtype);

/* Rows of one sequence: the first in the packed tensor (0 when dense), how many there are, and how many are used. */
typedef struct glint_quantize_rows {
  int64_t batch, first, len, used;
} glint_quantize_rows;
glint_quantize_rows glint_quantize_rows_of(const glint_quantize_work *work, const glint_quantize_tensor *tensor, int64_t b);

/* The rotation. Columns that one Hadamard matrix takes: the largest power of two that divides head_dim. */
int64_t glint_rotation_block(int64_t head_dim);
/* Bit c of the 512: column c has the sign -. */
void glint_rotation_signs(uint64_t seed, uint32_t signs[16]);
/* x = S x; x = H x, without the factor 1 / sqrt(block): butterflies from neighbours up, whose order fixes the bits of the result. */
void glint_rotation_flip(float *x, int64_t head_dim, const uint32_t signs[16]);
void glint_rotation_mix(float *x, int64_t head_dim);
/* 1 / sqrt(block), rounded. */
float glint_rotation_factor(int64_t head_dim);

/* Factors of a block whose largest |H S x| is amax: stored = FP8(H S x * multiplier), R x = stored * descale. factor: of the rotation, or 1.
 * The operations, one rounding each, are part of the contract between engines. */
typedef struct glint_quantize_factors {
  float descale, multiplier;
} glint_quantize_factors;
glint_quantize_factors glint_quantize_factors_of(float amax, float largest, float factor);

/* The mean of k, in the order of additions that all engines keep: float32 sums of chunks of 32 rows, one row after the other; chunk n goes to
 * sum n % 8; then the eight sums pairwise; then the division by the number of rows. */
enum { GLINT_MEAN_CHUNK = 32, GLINT_MEAN_SUMS = 8 };

#endif
