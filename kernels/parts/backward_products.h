// The products of the Hopper backward kernels, and what moves between registers and shared memory around them.
#ifndef GLINT_BACKWARD_PRODUCTS_H
#define GLINT_BACKWARD_PRODUCTS_H

#include "backward_shared.h"

// `thread` is always the index in the warpgroup, kept in a register.

FN u64 descriptor_k_major(u32 address) { return wgmma_descriptor(address, 16, 1024, 1); }
FN u64 descriptor_mn_major(u32 address, u32 box_bytes) { return wgmma_descriptor(address, box_bytes, 1024, 1); }

// st = K Q^T (or V dO^T): 64 keys x TILE_Q rows, issued and committed
FN void issue_keys_by_rows(float *st, u32 keys, u32 rows) {
  UNROLL
  for (u32 i = 0; i < HEAD_DIM / 16; i++)
    WGMMA_SS(TILE_Q, st, descriptor_k_major(keys + i / 4 * TILE_K * 128 + i % 4 * 32),
             descriptor_k_major(rows + i / 4 * TILE_Q * 128 + i % 4 * 32), i != 0);
  wgmma_commit();
}

// dkv += pt rows: 64 keys x HEAD_DIM
FN void issue_gradient_of_keys(float *dkv, const u32 *pt, u32 rows) {
  UNROLL
  for (u32 i = 0; i < TILE_Q / 16; i++) WGMMA_RS_TB(HEAD_DIM, dkv, pt + 4 * i, descriptor_mn_major(rows + i * 2048, TILE_Q * 128), 1);
  wgmma_commit();
}

// dq = dS K: this warpgroup's share of the TILE_Q x HEAD_DIM result
FN void issue_dq(float *dq, u32 ds, u32 keys, u32 warpgroup) {
  u32 a = TILE_Q == 64 ? ds : ds + warpgroup * TILE_K * 128, column = DQ_FIRST_COLUMN(warpgroup);
  u32 b = keys + column / 64 * TILE_K * 128 + column % 64 * 2;
  UNROLL
  for (u32 i = 0; i < TILE_K / 16; i++) {
#if HEAD_DIM == 192
    if (DQ_OWN_COLUMNS(warpgroup) == 64) {
      WGMMA_SS_TATB(64, dq, descriptor_mn_major(a + i * 2048, 0), descriptor_mn_major(b + i * 2048, TILE_K * 128), i != 0);
      continue;
    }
#endif
    WGMMA_SS_TATB(DQ_N, dq, descriptor_mn_major(a + i * 2048, 0), descriptor_mn_major(b + i * 2048, TILE_K * 128), i != 0);
  }
  wgmma_commit();
}

// dS^T of this warpgroup's keys into shared memory as [TILE_Q / 64][TILE_K keys][64 rows]
FN void store_ds(u32 ds_smem, const u32 *ds, u32 warpgroup, u32 thread) {
  u32 lane = thread % 32, matrix = lane / 8, key = warpgroup * 64 + thread / 32 * 16 + (matrix & 1) * 8 + lane % 8;
  UNROLL
  for (u32 j = 0; j < TILE_Q / 16; j++) {
    u32 chunk = 2 * j + (matrix >> 1);
    stmatrix_x4(ds_smem + chunk / 8 * TILE_K * 128 + key * 128 + ((chunk % 8 ^ (key & 7)) << 4), ds + 4 * j);
  }
}

// Rows from `first` on belong to someone else or to nobody: zero, so that they multiply to nothing whatever they held.
FN void clear_rows(u32 buffer, u32 rows, i32 first) {
  const u32 zero[4] = {0, 0, 0, 0};
  u32 begin = first < 0 ? 0 : (u32)first;
  for (u32 i = begin * 8 + tid() - 128; i < rows * 8; i += MULTIPLIERS * 128)
    for (u32 c = 0; c < HEAD_DIM / 64; c++) smem_store_16(buffer + c * rows * 128 + i * 16, zero);
}
FN void rows_cleared(void) {
  fence_proxy_async();
  bar_sync(BAR_BOTH, MULTIPLIERS * 128);
}

// Scores outside the thread's limits become -inf. Its keys are two matrix rows; st[4j + {0, 1}] is the first's, at columns 8j + {0, 1} from
// the thread's own first column, st[4j + {2, 3}] the second's.
FN void mask_scores(float *st, const i32 *first, const i32 *last) {
  UNROLL
  for (i32 j = 0; j < TILE_Q / 8; j++) UNROLL
  for (i32 i = 0; i < 4; i++) {
    i32 column = 8 * j + i % 2;
    if (column < first[i / 2] || column > last[i / 2]) st[4 * j + i] = -INFINITY;
  }
}

// One of dK and dV, for the 64 keys of a tile that start at its row `key_row`.
typedef struct key_gradient {
  void *out;
  const glint_stride *stride;
  const tensor_map *map;
  float factor;
  i32 columns;
} key_gradient;

FN key_gradient gradient_k(const glint_backward_params *p) {
  key_gradient g = {p->dk, &p->dk_stride, &p->map_dk, p->scale, p->head_dim};
  return g;
}
FN key_gradient gradient_v(const glint_backward_params *p) {
  key_gradient g = {p->dv, &p->dv_stride, &p->map_dv, 1.f, p->head_dim_v};
  return g;
}

// Straight from registers, where a TMA store cannot do it: accumulation, float32, the end of a packed sequence.
FN void store_keys_direct(const glint_backward_params *p, const tile *t, const key_gradient *g, const float *x, u32 key_row, u32 thread) {
  gradient_rows rows = rows_of(p, g->out, g->stride, t->batch_k, t->row_k, t->head_kv);
  i32 key = t->key0 + (i32)(key_row + thread / 32 * 16 + thread % 32 / 4);
  UNROLL
  for (i32 j = 0; j < HEAD_DIM / 8; j++) {
    i32 column = 8 * j + (i32)(thread % 4 * 2);
    UNROLL
    for (i32 i = 0; i < 2; i++)
      if (key + 8 * i < t->len_k && column < g->columns)
        store_pair(p, &rows, key + 8 * i, column, x[4 * j + 2 * i] * g->factor, x[4 * j + 2 * i + 1] * g->factor);
  }
}

// By way of the same rows of the K or V buffer, which nobody reads any more, and TMA. named: the warpgroup's barrier.
FN void store_keys_tma(const tile *t, const key_gradient *g, u32 buffer, const float *x, u32 key_row, u32 named, u32 thread) {
  u32 lane = thread % 32, matrix = lane / 8, row = key_row + thread / 32 * 16 + (matrix & 1) * 8 + lane % 8;
  UNROLL
  for (u32 j = 0; j < HEAD_DIM / 16; j++) {
    u32 chunk = 2 * j + (matrix >> 1);
    const u32 packed[4] = {PACK(x[8 * j] * g->factor, x[8 * j + 1] * g->factor), PACK(x[8 * j + 2] * g->factor, x[8 * j + 3] * g->factor),
                           PACK(x[8 * j + 4] * g->factor, x[8 * j + 5] * g->factor),
                           PACK(x[8 * j + 6] * g->factor, x[8 * j + 7] * g->factor)};
    stmatrix_x4(buffer + chunk / 8 * TILE_K * 128 + row * 128 + ((chunk % 8 ^ (row & 7)) << 4), packed);
  }
  fence_proxy_async();
  bar_sync(named, 128);
  if (thread == 0) {
    for (u32 c = 0; c < HEAD_DIM / 64; c++)
      tma_store_4d(g->map, buffer + c * TILE_K * 128 + key_row * 128, (i32)(c * 64), t->head_kv, t->row_k + t->key0 + (i32)key_row,
                   t->batch_k);
    tma_store_commit();
  }
}

FN void store_keys(const glint_backward_params *p, const tile *t, const key_gradient *g, u32 buffer, const float *x, u32 key_row, u32 named,
                   u32 thread) {
  if (!g->out) return;
  if (t->store_by_tma)
    store_keys_tma(t, g, buffer, x, key_row, named, thread);
  else
    store_keys_direct(p, t, g, x, key_row, thread);
}

// This thread's share of a part of dQ into the accumulators, in fragment order.
FN void add_dq(const glint_backward_params *p, u32 smem, u32 slot, u32 block, i32 m, const float *dq, u32 warpgroup, u32 thread) {
  if (p->deterministic) {
    tile t = locate_tile(p, read_tile(smem, slot));
    if (thread == 0) wait_for_turn(p, &t, p->dq_parts + block, m);
    bar_sync(BAR_WARPGROUP + warpgroup, 128);
  }
  float *accum = p->dq_accum + (u64)block * (TILE_Q * HEAD_DIM) + DQ_FIRST_FRAGMENT(warpgroup) * 512 + thread * 4;
  UNROLL
  for (u32 j = 0; j < DQ_OWN_COLUMNS(warpgroup) / 8; j++)
    red_add_v4_f32(accum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
}

// The same into shared memory (where dq is not wanted, for nobody), from where the counting thread has it added. count: how many row blocks before.
FN void stage_dq(u32 smem, u32 count, const float *dq, u32 warpgroup, u32 thread) {
  mbarrier_wait(dq_empty(smem, 0), (count & 1) ^ 1);
  UNROLL
  for (u32 j = 0; j < DQ_OWN_COLUMNS(warpgroup) / 8; j++) {
    const u32 bits[4] = {bits_from_f32(dq[4 * j]), bits_from_f32(dq[4 * j + 1]), bits_from_f32(dq[4 * j + 2]),
                         bits_from_f32(dq[4 * j + 3])};
    smem_store_16(smem + SMEM_DQ + (DQ_FIRST_FRAGMENT(warpgroup) + j) * 2048 + thread * 16, bits);
  }
  fence_proxy_async();
  warp_sync();
  if (thread % 32 == 0) mbarrier_arrive(dq_full(smem, 0));
}

// The warp's additions to a chunk of row blocks are made: tells the dQ warps. count: how many chunks before.
FN void announce_dq(u32 smem, u32 count, u32 thread) {
  u32 ring = ring_index(count, DQ_RING);
  warp_sync();
  if (thread % 32 == 0) {
    mbarrier_wait(dq_empty(smem, ring), ring_parity(count, DQ_RING) ^ 1);
    mbarrier_arrive(dq_full(smem, ring));
  }
}
FN int ends_chunk(const glint_backward_params *p, i32 m, i32 end) { return m + 1 == end || ((m + 1) & (p->chunk - 1)) == 0; }

// Hides what rows of block m must not see of the warpgroup's keys, which start at row key_row of the tile in `slot`.
FN void mask_block(const glint_backward_params *p, u32 smem, u32 slot, float *s, u32 key_row, i32 m, u32 thread) {
  tile t = locate_tile(p, read_tile(smem, slot));
  i32 first[2], last[2], key = t.key0 + (i32)(key_row + thread / 32 * 16 + thread % 32 / 4);
  UNROLL
  for (i32 i = 0; i < 2; i++) visible_rows(p, &t, key + 8 * i, m * TILE_Q + (i32)(thread % 4 * 2), &first[i], &last[i]);
  mask_scores(s, first, last);
}

// Scores to probabilities: exp2(score - lse).
FN void probabilities(const glint_backward_params *p, float *s, u32 lse, u32 thread) {
  UNROLL
  for (u32 j = 0; j < TILE_Q / 8; j++) {
    u32 pair[2];
    smem_load_8(pair, lse + thread % 4 * 8 + j * 32);
    UNROLL
    for (u32 i = 0; i < 4; i++) s[4 * j + i] = exp2_approx(fma_f32(s[4 * j + i], p->scale_log2, -f32_from_bits(pair[i % 2])));
  }
}

// dS = P * (dP - delta), FlashAttention-2, algorithm 2. In place of dP.
FN void score_gradients(float *dp, const float *probability, u32 delta, u32 thread) {
  UNROLL
  for (u32 j = 0; j < TILE_Q / 8; j++) {
    u32 pair[2];
    smem_load_8(pair, delta + thread % 4 * 8 + j * 32);
    UNROLL
    for (u32 i = 0; i < 4; i++) dp[4 * j + i] = probability[4 * j + i] * (dp[4 * j + i] - f32_from_bits(pair[i % 2]));
  }
}

// Accumulators, packed in order, are the A operand of the next product.
FN void pack_operand(u32 *packed, const float *x) {
  UNROLL
  for (u32 i = 0; i < TILE_Q / 4; i++) packed[i] = PACK(x[2 * i], x[2 * i + 1]);
}

// Rows that the block must not see although they lie in memory. Both warpgroups come here, or neither.
FN void clear_tail_of_keys(const tile *t, u32 k, u32 v) {
  if (!t->clear_tails || t->key0 + TILE_K <= t->used_k) return;
  clear_rows(k, TILE_K, t->used_k - t->key0);
  clear_rows(v, TILE_K, t->used_k - t->key0);
  rows_cleared();
}
FN void clear_tail_of_rows(const glint_backward_params *p, u32 smem, u32 slot, i32 m, u32 q, u32 d_o) {
  tile t = locate_tile(p, read_tile(smem, slot));
  clear_rows(q, TILE_Q, t.used_q - m * TILE_Q);
  clear_rows(d_o, TILE_Q, t.used_q - m * TILE_Q);
  rows_cleared();
}

#endif
