/* The contract between host and device: what a kernel is given. Plain C to gcc (host and simulator) and to nvcc (device). The host fills one
 * struct per launch, the kernel's only parameter:
 *   KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) { ... p.q ... }
 *
 * The variants table (variants.txt) gives every kernel these macros: GLINT_KERNEL (its name), DTYPE, HEAD_DIM, HEAD_DIM_V, TILE_Q, TILE_K,
 * STAGES, THREADS, MIN_BLOCKS, SHARED, FEATURES, and whatever else its line says. */
#ifndef GLINT_PARAMS_H
#define GLINT_PARAMS_H

#include "isa/types.h" /* tensor_map */

#include <stdint.h>

/* ---- values of DTYPE: those of glint_dtype in glint.h ---- */
#define DTYPE_FLOAT32 1
#define DTYPE_BF16    2
#define DTYPE_FP16    3
#define DTYPE_E4M3    4
#define DTYPE_E5M2    5

/* ---- bits of FEATURES: what a variant can do beyond dense attention with any batch and row strides and any GQA group. A problem needs a
 * variant that has all its bits; among those that fit, the first line of the table wins, so plain ones stand first ---- */
#define FEATURE_MASK         0x001 /* causal, window: window_left, window_right */
#define FEATURE_VARLEN       0x002 /* cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k */
#define FEATURE_SOFTCAP      0x004
#define FEATURE_ALIBI        0x008
#define FEATURE_SINKS        0x010
#define FEATURE_BIAS         0x020
#define FEATURE_DROPOUT      0x040
#define FEATURE_PAGED        0x080 /* page_table */
#define FEATURE_SPLIT        0x100 /* several blocks share the keys of a row */
#define FEATURE_O_FLOAT      0x200 /* o is float32 where the inputs are not (o_float is set) */
#define FEATURE_UNPADDED     0x400 /* head_dim and head_dim_v are exactly HEAD_DIM and HEAD_DIM_V: such a line takes no smaller ones */
#define FEATURE_UNALIGNED    0x800 /* rows of q, k, v, o start anywhere, head_dim is any number; without it all are multiples of 16 bytes */
#define FEATURE_BLOCK_SCALES 0x1000 /* FP8: descale_k, descale_v have more than one block of rows */
#define FEATURE_GROUPED      0x2000 /* a tile's rows are the query heads of one group; no cu_seqlens_q, and few rows (cuda/family.h) */

/* A bound of the window that hides nothing. Sequence lengths stay below it, so i + seqlen_k - seqlen_q + bound fits int32. */
#define GLINT_UNBOUNDED (1 << 30)

/* Strides in elements, 64 bits: an offset is int64 row * stride, never an int product. The column stride is 1. */
typedef struct glint_stride {
  int64_t batch; /* 0 where cu_seqlens packs the sequences: then row counts from the packed tensor's first row. Paged k and v: a page */
  int64_t row;
  int64_t head;
} glint_stride;

typedef struct glint_forward_params {
  /* TMA kernels only. Axes, fastest first: column, head, row, batch (page). Boxes are the launch file's business. */
  tensor_map map_q, map_k, map_v, map_o;

  const void *q, *k, *v;
  void *o;
  float *lse; /* NULL: not wanted */
  glint_stride q_stride, k_stride, v_stride, o_stride;
  int64_t lse_batch_stride, lse_head_stride; /* row stride 1; natural logarithm */

  int32_t batch, heads_q, heads_kv;
  int32_t group;                /* heads_q / heads_kv: query head h reads key/value head h / group */
  int32_t seqlen_q, seqlen_k;   /* rows; with cu_seqlens an upper bound of every sequence's */
  int32_t total_q, total_k;     /* rows of the packed tensors; batch * seqlen where nothing is packed */
  int32_t head_dim, head_dim_v; /* at most the variant's HEAD_DIM, HEAD_DIM_V: columns beyond are neither read nor written */

  /* FEATURE_VARLEN; each NULL where absent. cu[batch + 1], used[batch]. Rows of o from seqused_q on become 0, of lse -inf. */
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *seqused_q, *seqused_k;

  /* Scores. Without softcap: exp2(qk * scale_log2 - max). With it: tanh(qk * softcap_in) * softcap_log2 in its place. bias, slopes and
   * sinks are in natural units: times log2(e). */
  float scale;        /* as in the formula */
  float scale_log2;   /* scale * log2(e) */
  float softcap_in;   /* scale / softcap; 0: no softcap */
  float softcap_log2; /* softcap * log2(e) */

  /* FEATURE_MASK. Key j is visible to row i when -window_left <= j - (i + seqlen_k - seqlen_q) <= window_right; causal is window_right 0.
   * GLINT_UNBOUNDED where open. seqlen_q here is the sequence's own (seqused_q), seqlen_k too. */
  int32_t window_left, window_right;

  const float *alibi_slopes; /* FEATURE_ALIBI: [batch, heads_q] */
  int64_t alibi_batch_stride;
  const float *sinks; /* FEATURE_SINKS: [heads_q] */
  const void *bias;   /* FEATURE_BIAS: [batch, heads_q, row, key], broadcast axes have stride 0, key stride 1 or 0 */
  int64_t bias_batch_stride, bias_head_stride, bias_row_stride, bias_key_stride;
  int32_t bias_float; /* 1: float32; 0: the dtype of q */

  int32_t o_float; /* FEATURE_O_FLOAT: 1 when o is float32 */

  /* FEATURE_DROPOUT, as glint.h defines it: drop when the 16-bit number is below drop_threshold; multiply what stays by keep_scale. */
  uint32_t drop_threshold;
  float keep_scale;
  uint64_t dropout_seed, dropout_offset;

  /* FP8 only: [batch, head, block of rows]. */
  const float *descale_q, *descale_k, *descale_v;
  int64_t descale_q_stride[3], descale_k_stride[3], descale_v_stride[3];
  int32_t descale_rows_q, descale_rows_k, descale_rows_v; /* rows of a block; 0: one block. Otherwise multiples of 16 */
  int32_t descale_q_group;                                /* query heads that share an entry of descale_q's head axis */
  int32_t o_half;                                         /* 1: o is float16; 0: bfloat16 (or float32: o_float) */

  /* FEATURE_PAGED */
  int32_t page_size;
  const int32_t *page_table; /* [batch, max_pages] */
  int64_t page_table_stride;

  /* Work. A tile is TILE_Q rows of one head of one sequence. Non-persistent kernels get one block a tile, in grid.x alone (y and z are
   * limited to 65535). Persistent ones get as many blocks as run at once, but at most num_tiles: a block's first tile is its index, later
   * ones are grid_size + n with n = atomic_add(tile_counter, 1), until that is num_tiles or more. The counter is 0 at the start and must be
   * 0 again at the end: exactly num_tiles additions are made, so whoever gets n == num_tiles - 1 sets it back (atomic_exch). */
  int32_t q_tiles;   /* tiles of one head of one sequence: ceil(seqlen_q / TILE_Q); FEATURE_GROUPED: of a group, TILE_Q / group rows each */
  int32_t num_tiles; /* q_tiles * heads_q * batch; FEATURE_GROUPED: q_tiles * heads_kv * batch * num_splits */
  int32_t
      heads_together; /* tiles of so many query heads are handed out together: enough for all blocks, unless their K and V overflow half of
                           * L2; at least 1 */
  int32_t tail_tiles; /* with a causal mask: so many of a head's q_tiles, those with fewest keys, are handed out after all others */
  int32_t num_splits; /* FEATURE_SPLIT: parts that the keys of a tile are cut into; 1 elsewhere */
  int32_t *tile_counter;
  float *o_partial;   /* FEATURE_SPLIT: [split, batch, heads_q, row, head_dim_v] */
  float *lse_partial; /* FEATURE_SPLIT: [split, batch, heads_q, row], in log2 units */

  uint32_t *trace; /* instrumented variants only: stamps of block 0 (trace.h) */
} glint_forward_params;

#endif
