/* A checked problem: what every engine receives. glint_check fills it; from there on nothing is optional by accident. */
#ifndef GLINT_WORK_H
#define GLINT_WORK_H

#include "glint.h"

/* A view with resolved strides (elements). data == NULL: absent. Axes of q, k, v, o: batch (or page), row, head, column. */
typedef struct glint_view {
  void *data;
  int64_t shape[4];
  int64_t stride[4]; /* broadcast axes have stride 0 */
  glint_dtype dtype;
  int32_t rank;
} glint_view;

/* Invariants: every size is >= 0 and every product of shape and stride fits int64; column strides are 1; optional pieces are absent views. */
typedef struct glint_work {
  glint_pass pass;
  uint32_t flags;
  int64_t batch, heads_q, heads_kv, head_dim, head_dim_v;
  int64_t seqlen_q, seqlen_k;        /* dense: lengths; packed: max_seqlen (at most total); paged: max_pages * page_size */
  int64_t total_q, total_k;          /* packed: rows in the packed tensors; otherwise batch * seqlen */
  float scale;                       /* resolved */
  float softcap;                     /* 0: off */
  int64_t window_left, window_right; /* resolved: causal folded in (window_right <= 0); -1: unbounded */
  int32_t causal;                    /* as the user said; needed for rotary only */
  int64_t page_size;                 /* 0: not paged */
  int64_t seqlen_new;                /* rows of k_new; 0: no append */
  int64_t rotary_dim;                /* 0: none */
  int32_t rotary_interleaved;
  int32_t num_splits;      /* 0: the plan chooses */
  uint32_t drop_threshold; /* T of glint.h; 0: no dropout */
  float keep_scale;        /* 1 / (1 - T / 65536) */
  uint64_t dropout_seed, dropout_offset;
  glint_view q, k, v, o, lse;                       /* lse: [batch, heads, row], packed [1, heads, total] */
  glint_view alibi_slopes;                          /* 2 axes: batch (stride 0 when shared), head */
  glint_view sinks;                                 /* 1 axis: head */
  glint_view bias;                                  /* 4 axes, broadcast axes with stride 0 */
  glint_view cu_seqlens_q, cu_seqlens_k, seqused_q; /* 1 axis */
  glint_view seqused_k;  /* 1 axis; cache_seqlens ends up here; with seqlen_new > 0 it counts the keys BEFORE the append */
  glint_view page_table; /* 2 axes */
  glint_view k_new, v_new, rotary_cos, rotary_sin;
  glint_view descale_q, descale_k, descale_v;             /* 3 axes: batch, head, block (stride 0 where shared). The head axis of descale_q
                                                           * may be that of k and v: shape[1] says (heads_q or heads_kv) */
  int64_t descale_rows_q, descale_rows_k, descale_rows_v; /* rows per block; 0: one block */
  void *stream, *workspace;
  size_t workspace_bytes;
  /* backward */
  glint_view d_o, d_lse, dq, dk, dv, dsinks, dbias;
  int32_t accumulate;
} glint_work;

/* Where one sequence lies. Only for host engines: reads cu_seqlens, seqused and so on. */
typedef struct glint_sequence {
  int64_t row_q, len_q;     /* first row in the packed tensor (0 when dense) and rows that exist */
  int64_t used_q;           /* rows that are computed; len_q - used_q rows get o = 0, lse = -inf. The mask is aligned to used_q and len_k */
  int64_t row_k, len_k;     /* first key row and keys visible in the end (append included) */
  int64_t batch_q, batch_k; /* index on the batch axis of q/o (0 when packed) and of k/v (0 when packed; unused when paged) */
} glint_sequence;
glint_sequence glint_sequence_of(const glint_work *w, int64_t b);

/* Offset in elements of key row j of sequence s (batch index b), head hk, in view k or v: follows the page table. */
int64_t glint_key_offset(const glint_work *w, const glint_view *view, int64_t b, const glint_sequence *s, int64_t j, int64_t head);

/* Keys visible to row i of a sequence: [*first, *end); empty when *first >= *end. */
void glint_visible_keys(const glint_work *w, const glint_sequence *s, int64_t i, int64_t *first, int64_t *end);

/* Matrix FLOPs that the visible keys need (2 a multiply-add; forward 2 products, backward 5) and bytes that must move at least. host: lengths
 * may be read; otherwise an upper bound from the shapes. */
void glint_work_cost(const glint_work *w, int host, double *flops, double *bytes);

/* Checks problem (and gradients, for the backward pass) completely and fills work. host: index arrays (cu_seqlens, ...) may be read.
 * On failure writes the message into error (size bytes) and leaves *work unspecified. */
glint_status glint_check(const glint_problem *problem, const glint_gradients *gradients, glint_pass pass, int host, glint_work *work,
                         char *error, size_t size);

#endif
