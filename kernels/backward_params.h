/* What the backward kernels are given: one struct per launch, as in params.h. */
#ifndef GLINT_BACKWARD_PARAMS_H
#define GLINT_BACKWARD_PARAMS_H

#include "params.h"

/* ---- more bits of FEATURES ---- */
#define FEATURE_ORDERED 0x10000 /* GLINT_DETERMINISTIC: parts of dq are added in a fixed order */
#define FEATURE_STAGED  0x20000 /* nothing else than that: parts of dq go through shared memory (DQ_STAGED) */

/* The gradient of q is summed over key blocks in float32. Its accumulators live in a ring of slots that stays in L2, one slot a query head in
 * flight: block (key block n of head x) adds its part of every row block to slot x % dq_slots. Row blocks come in chunks. Who adds the last
 * part of a chunk puts it into a queue; any block takes it from there, converts it to its place in dq and clears its accumulators. Head
 * x + dq_slots waits until its slot's count says that all chunks of head x have left. A count costs a memory fence, hence chunks.
 *
 *   dq_accum   float [dq_slots][q_blocks][TILE_Q * HEAD_DIM], in the order of the wgmma fragments
 *   dq_parts   u32   [dq_slots][chunks]    parts added to that chunk so far
 *   dq_left    u32   [dq_slots]            chunks that have left this slot since the launch
 *   queue      u32   [batch * heads_q * chunks][2]  head x + 1 (0: not there yet), 2 * chunk + (1: keys have added to it)
 *   tile_counter, queue_tail, queue_head: one u32 each
 * All of them are zero when the main kernel starts (the preparing kernel clears them). */
typedef struct glint_backward_params {
  /* TMA: columns, head, row, batch. Boxes of 64 columns x (TILE_Q or TILE_K or 64) rows, 128-byte swizzle. */
  tensor_map map_q, map_k, map_v, map_do, map_dk, map_dv;

  const void *o, *d_o; /* for the preparing kernel */
  const float *lse;    /* natural logarithm, of the forward pass */
  const float *d_lse;  /* NULL: none */
  void *dq, *dk, *dv;  /* each NULL when not wanted */
  glint_stride o_stride, do_stride, dq_stride, dk_stride, dv_stride;
  int64_t lse_batch_stride, lse_head_stride, d_lse_batch_stride, d_lse_head_stride;

  /* Written by the preparing kernel: [batch, heads_q, rows_padded], rows_padded = q_blocks * TILE_Q. lse2 = lse * log2(e) (lse itself for
   * kernels with SCORE_FEATURES, whose scores a bias may push to the lowest float), +inf where a row
   * does not exist or sees nothing, so that its probabilities come out as 0; delta = rowsum(o * d_o) - d_lse (FlashAttention, appendix B.4). */
  float *lse2, *delta;
  float *dq_accum;
  uint32_t *dq_parts, *dq_left, *queue, *queue_tail, *queue_head, *tile_counter;
  int64_t clear_bytes; /* what the preparing kernel clears, from dq_accum on; a multiple of 16 */

  int32_t batch, heads_q, heads_kv, group;
  int32_t seqlen_q, seqlen_k; /* packed: upper bounds */
  int32_t head_dim, head_dim_v;
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *seqused_q, *seqused_k;

  float scale, scale_log2, softcap_in, softcap_log2;
  int32_t window_left, window_right;
  const float *alibi_slopes;
  int64_t alibi_batch_stride;
  uint32_t drop_threshold;
  float keep_scale;
  uint64_t dropout_seed, dropout_offset;

  int32_t q_blocks, k_blocks; /* row blocks and key blocks of the longest sequence */
  int32_t rows_padded;
  int32_t heads_together; /* key/value heads (over batch x heads_kv) whose tiles are handed out together */
  int32_t dq_slots;
  int32_t chunk, chunks;  /* row blocks of a chunk, a power of 2 (1 where deterministic); ceil(q_blocks / chunk) */
  int32_t gradient_float; /* 1: dq, dk, dv are float32 */
  int32_t accumulate;     /* 1: add to dq, dk, dv */
  int32_t deterministic;  /* 1: parts of dq are added in the order of key blocks */
  int32_t fixed_tickets;  /* 1: the n-th tile of block b has the ticket b + n * grid; 0: tickets are drawn from tile_counter */

  /* backward_fa2.c and backward_finish.c. There dq_accum is float [batch, heads_q, q_blocks][TILE_Q * HEAD_DIM] in the order of
   * parts/backward_accumulators.h, dq_parts u32 [batch * heads_q][q_blocks] (deterministic only), tile_counter one u32. */
  const void *q, *k, *v;
  glint_stride q_stride, k_stride, v_stride;
  int32_t o_float, do_float; /* o, d_o are float32 */
  int32_t dq_float, dk_float, dv_float;
  int32_t adds_four;      /* 1: the main kernel is code for Hopper, which adds four accumulators at once */
  int32_t padded_dim;     /* HEAD_DIM of the main kernel */
  int32_t lse_is_natural; /* lse2 holds lse itself */
  const float *sinks;     /* [heads_q] */
  float *dsinks;
  const void *bias; /* as in glint_forward_params */
  int64_t bias_batch_stride, bias_head_stride, bias_row_stride, bias_key_stride;
  int32_t bias_float;
  float *dbias; /* NULL: not wanted; broadcast axes have stride 0 */
  int64_t dbias_stride[4], dbias_shape[4];
} glint_backward_params;

#endif
