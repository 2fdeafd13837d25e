/* The contract between host and device for quantization (quantize.c, quantize_mean.c). See glint_quantization in glint.h for what is computed. */
#ifndef GLINT_QUANTIZE_PARAMS_H
#define GLINT_QUANTIZE_PARAMS_H

#include "params.h" /* glint_stride, DTYPE_ */

/* Values of STEP in quantize.c. */
#define STEP_BLOCKS  1 /* one pass: maximum, factor and conversion of a tile that is a block of its own */
#define STEP_MAXIMA  2 /* two passes: the maximum of each tile; */
#define STEP_FACTORS 3 /* the factor of each slot, from its tiles' maxima or from the caller; */
#define STEP_CONVERT 4 /* the conversion */
/* Values of STEP in quantize_mean.c. */
#define STEP_SUMS    1 /* of chunks of QUANTIZE_CHUNK rows of k */
#define STEP_MEANS   2 /* of k, from those */
#define STEP_SHIFTS  3 /* scale * q . mean */

#define QUANTIZE_COLUMNS 16 /* of a row that a lane handles at once: 16 bytes of results */
#define QUANTIZE_CHUNK   32 /* GLINT_MEAN_CHUNK */
#define QUANTIZE_SUMS    8  /* GLINT_MEAN_SUMS */

/* One tensor. Tiles: `rows` rows of one head. Numbered (batch, tile, head), the head fastest, as rows lie in memory. A slot is what has one
 * factor; its tiles are `slot_tiles` consecutive numbers of the order (batch, head, tile), in which maxima lie. */
typedef struct glint_quantize_operand {
  const void *in;
  uint8_t *out;
  glint_stride in_stride, out_stride; /* batch 0 where cu_seqlens packs the sequences */
  const int32_t *cu_seqlens, *seqused;
  float *descale; /* of slot (batch, head / heads_a_scale, block) */
  int64_t descale_batch, descale_head, descale_block;
  float *maxima;      /* of tiles */
  float *multipliers; /* of slots */
  const float *mean;  /* of (batch, head): head_dim floats, subtracted; NULL: none */
  int64_t mean_batch, mean_head;
  int32_t mean_aligned; /* rows of mean start at multiples of 16 bytes and are whole vectors */
  int32_t seqlen, heads, columns;
  int32_t vectors;                    /* columns / QUANTIZE_COLUMNS, rounded up */
  uint32_t vectors_magic;             /* (2^16 - 1) / vectors + 1: n * magic >> 16 is n / vectors for n below the 512 threads */
  int32_t step;                       /* rows that the threads of a block have at once: threads / vectors */
  int32_t rows, tiles;                /* of a tile; tiles of the longest sequence */
  int32_t heads_a_scale, block_tiles; /* tiles of a block of rows; 0: one factor for all rows of a sequence */
  int32_t blocks;                     /* of rows; 1 without */
  int32_t slot_tiles, slots, shared;  /* shared: one slot for the tensor */
  int32_t first_block;                /* number of its first tile, or slot, among those of all operands */
  int32_t rotate;                     /* columns of a Hadamard matrix; 0: no rotation */
  float factor;                       /* 1 / sqrt of that, or 1 */
  int32_t aligned;                    /* rows of in and out start at multiples of 16 bytes, columns is a multiple of QUANTIZE_COLUMNS */
} glint_quantize_operand;

typedef struct glint_quantize_params {
  glint_quantize_operand operand[3];
  int32_t operands;
  int32_t blocks; /* tiles, or slots, of all operands */
  uint32_t signs[16];
  float largest;
  int32_t e5m2;
  int32_t given; /* factors are read, not made */
} glint_quantize_params;

typedef struct glint_quantize_mean_params {
  const void *q, *k;
  glint_stride q_stride, k_stride;
  const int32_t *cu_seqlens_q, *seqused_q, *cu_seqlens_k, *seqused_k;
  float *sums;      /* [batch, heads_kv, chunks, columns] */
  float *mean;      /* [batch, heads_kv, columns]: written by STEP_MEANS, or the caller's */
  float *mean_copy; /* the caller's k_mean; NULL: none */
  float *shift;     /* lse_shift */
  int64_t mean_batch, mean_head, copy_batch, copy_head, shift_batch, shift_head, shift_row;
  int32_t batch, heads_q, heads_kv, group, columns;
  int32_t seqlen_q, seqlen_k, chunks; /* chunks of the longest sequence */
  int32_t k_aligned;                  /* rows of k start at multiples of 16 bytes, columns is a multiple of 16 */
  float scale;
} glint_quantize_mean_params;

#endif
