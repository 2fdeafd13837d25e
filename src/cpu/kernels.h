/* The table of functions and block sizes that each instruction set of the CPU engine fills: all that the driver (forward.c) knows of it.
 *
 * The engine works on scores turned round: a block of S is [key][query row], query rows along the vector. So the maximum and the sum of
 * a row run down the block, lane by lane, with no shuffles; rescaling O is one multiplication by a vector; and of K and V single words
 * are broadcast, which lets both keep the layout that they have in memory.
 *
 * Vocabulary. word: 32 bits: one float, or two bfloat16 that are neighbours along the axis that a product sums over (bf16 = 1). panel: the
 * query rows that one kernel call handles, `panel` of them (unused ones are zero). Rows are the query rows of all heads of a group,
 * position by position: row r is position r / group, head r % group. Blocks, all of words, in the scratch of one thread:
 *   Q  [units_d][panel]       units_d words of head_dim a row (a multiple of step_d), zero padded
 *   K  [block_k][units_d]     rows as in memory, zero padded
 *   V  block_k keys x columns (a multiple of step_v), in an order that belongs to the kernel
 *   S  [block_k][panel]       floats; the probabilities P overwrite it: float [key][panel], or pairs of bfloat16 [key / 2][panel]
 *   O  [columns][panel]       floats, not normalised
 * P = 2^((s - m) * unit): the scores' unit in log 2 is the driver's choice. */
#ifndef GLINT_CPU_KERNELS_H
#define GLINT_CPU_KERNELS_H
#include "glint.h"

#include <stddef.h>
#include <stdint.h>

enum { GLINT_CPU_PANEL_MAX = 64, GLINT_CPU_BLOCK_K_MAX = 512 };

/* A larger maximum makes P and O be rescaled only when it grew by more than this (in log 2 units): exact, since l uses the same maximum
 * (kernel-level idea of FlashAttention-4; decided row by row, so that a row's bits do not depend on its neighbours). */
#define GLINT_CPU_RESCALE_THRESHOLD 8.0f

/* What softmax does to the scores of one panel before the exponential; a NULL piece is absent. All per-row arrays have `panel` entries. */
typedef struct glint_cpu_scores {
  float cap;             /* > 0: s = cap * tanh(s), Q already scaled by scale / softcap */
  const float *bias;     /* [panel][bias_ld], added */
  ptrdiff_t bias_ld;     /* in floats, a multiple of 16 */
  const float *slope;    /* ALiBi: s -= slope[r] * |position[r] - j|, j counting from the block's first key */
  const float *position; /* relative to the block's first key */
} glint_cpu_scores;

/* What dropout's numbers are made of, and what they decide: kept where a number is at least threshold. */
typedef struct glint_cpu_dropout {
  uint32_t key[2], offset, threshold;
  float factor; /* of what is kept */
  uint32_t row[GLINT_CPU_PANEL_MAX], batch_head[GLINT_CPU_PANEL_MAX];
} glint_cpu_dropout;

/* One panel against one block with nothing between the scores and the probabilities but a mask. */
typedef struct glint_cpu_step {
  const float *q, *k, *v; /* k and v: the block's first key */
  int units_d, columns, block_k;
  int first, keys;         /* keys of the block, multiples of step_k */
  const float *low, *high; /* limits of each row, relative to the block's first key; NULL: every row sees every key */
  int all_low, all_high;   /* the largest low and the smallest high */
  float unit;              /* as in softmax */
  float *s;                /* [block_k][panel]; P is left in it */
  float *m, *l, *o;
} glint_cpu_step;

/* Backward pass. A matrix of weights (P or dS) has a row of `panel` values a key: floats, or bfloat16 in half the space. */
typedef struct glint_cpu_backward {
  /* Packs rows r < panel of `rows` (ld words apart, columns values each, as scores want them in Q before the transposition) for
   * add_product: floats [panel][columns], or pairs of rows [panel / 2][columns]. */
  void (*pack_rows)(const float *rows, ptrdiff_t ld, int columns, float *packed);
  /* c[j][n] += sum over the panel's rows of weights[j][row] rows[row][n]; c: floats [keys][columns]; columns as pack_rows. */
  void (*add_product)(const float *weights, int keys, const float *packed, int columns, float *c);
  /* s: scores (masked ones -inf) in, the weights of kept probabilities out; dp: gradient of the probabilities in, of the scores out, as
   * accumulate wants its P; ds_weights: the same as weights (NULL on floats: dp is both):
   *   p = e^((s scale + minus_lse) + rest);  s = p keep;  dp = p (dp keep - delta).  keep NULL: 1. minus_lse, rest, delta: one a row. */
  void (*gradients)(float *s, float *dp, float *ds_weights, int keys, float scale, const float *minus_lse, const float *rest,
                    const float *delta, const float *keep);
  /* Sum of a[c] b[c], on floats with the roundings that scores make: a row with one key then has dP = delta exactly, and no gradient. */
  float (*dot)(const float *a, const float *b, int64_t n);
  /* slope = 1 - tanh(s factor)^2, the derivative of softcap. */
  void (*cap_slope)(const float *s, int keys, float factor, float *slope);
} glint_cpu_backward;

typedef struct glint_cpu_kernels {
  const char *name; /* avx512_f32 */
  glint_isa isa;
  int bf16;                          /* words are pairs of bfloat16 */
  int panel, step_k, step_d, step_v; /* step_d in words */
  int block_k;                       /* keys a block: chosen so that S and one slice of K stay in L1, K and V in L2 */
  void (*begin)(void);               /* per thread before the first kernel (AMX tile configuration); may be NULL */
  void (*end)(void);

  /* dst[0..n) = scale * (float)src[0..n); dtype float32, bfloat16, float16 or FP8. */
  void (*to_float)(float *dst, const void *src, glint_dtype dtype, int64_t n, float scale);
  /* dst[0..n) = rounded (scale * src[0..n)); dtype float32, bfloat16, float16. */
  void (*from_float)(void *dst, glint_dtype dtype, const float *src, int64_t n, float scale);
  /* dst[c][r] = src[r][c] for r < rows, c < columns; both multiples of 16; leading dimensions in words. */
  void (*transpose)(const float *src, ptrdiff_t ld_src, float *dst, ptrdiff_t ld_dst, int rows, int columns);
  /* Packs count rows of K; rows count..padded become zero. scales: factor a row (FP8) or NULL. */
  void (*pack_k)(const void *const *rows, const float *scales, int count, int padded, glint_dtype dtype, int head_dim, int units_d,
                 float *k);
  /* The same for V with columns padded to a multiple of step_v. scratch: 2 * columns words times 16. Returns 1 when every value is finite. */
  int (*pack_v)(const void *const *rows, const float *scales, int count, int padded, glint_dtype dtype, int head_dim_v, int columns,
                float *v, float *scratch);
  /* S[0..keys) = K Q; keys a multiple of step_k. */
  void (*scores)(const float *q, const float *k, int units_d, int keys, float *s);
  /* S = what *change says of factor * S. first: the block-relative key of S's row 0. */
  void (*change)(float *s, int first, int keys, const glint_cpu_scores *change, float factor);
  /* S[j][r] = -inf unless low[r] <= first + j < high[r]. */
  void (*mask)(float *s, int first, int keys, const float *low, const float *high);
  /* Online softmax step: P from S, m and l updated, alpha = what O must be multiplied by. Returns 0 when every alpha is 1. */
  int (*softmax)(float *s, int keys, float unit, float *m, float *l, float *alpha);
  /* O = alpha O + V P over keys first..first + keys of the block (multiples of step_k). alpha NULL: 1. */
  void (*accumulate)(const float *p, const float *v, int first, int keys, int columns, float *o, const float *alpha);
  /* scores, mask, softmax and accumulate in one, as the instruction set likes it best. A row's bits do not depend on the other rows, nor on
   * first and keys, as long as what these leave out is masked. */
  void (*attend)(const glint_cpu_step *step);
  /* Keys 8 block + first .. 8 block + end, end at most 8. keep[key][row] = factor or 0; p: probabilities as accumulate wants them, those that
   * are dropped become 0 (bfloat16: first and end even). Both point at the row of key 8 block + first. */
  void (*keep)(float *keep, uint32_t block, int first, int end, const glint_cpu_dropout *d);
  void (*drop)(float *p, uint32_t block, int first, int end, const glint_cpu_dropout *d);
  /* Address of an element of packed V (a float or a bfloat16), for the careful path. */
  void *(*element)(float *v, int key, int column, int columns);

  /* Few query rows (decode): see rows_template.h. */
  const struct glint_cpu_rows *rows;
  const glint_cpu_backward *backward; /* NULL where there are none */
} glint_cpu_kernels;

extern const glint_cpu_kernels glint_cpu_portable_f32, glint_cpu_avx2_f32, glint_cpu_avx512_f32, glint_cpu_avx512_bf16, glint_cpu_amx_bf16;

#endif
