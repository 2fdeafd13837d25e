// The loader of the Hopper backward kernels: one thread that draws tiles, announces them, and keeps the TMA busy.
#ifndef GLINT_BACKWARD_LOADER_H
#define GLINT_BACKWARD_LOADER_H

#include "backward_shared.h"

FN void load_box(u32 dst, const tensor_map *map, u32 bar, u32 rows, i32 head, i32 row, i32 batch) {
  NO_UNROLL
  for (u32 c = 0; c < HEAD_DIM / 64; c++) tma_load_4d(dst + c * rows * 128, map, bar, (i32)(c * 64), head, row, batch);
}

// Head x may use its accumulators when every chunk of the head before it in that slot has left.
FN void wait_for_slot(const glint_backward_params *p, i32 x) {
  u32 slot = (u32)(x % p->dq_slots), needed = (u32)(x / p->dq_slots) * (u32)p->chunks;
  while (gmem_load_acquire_u32(p->dq_left + slot) < needed) nanosleep(64);
}

FN void announce_tile(u32 smem, u32 n, tile_id id) {
  u32 slot = ring_index(n, 2);
  mbarrier_wait(tile_empty(smem, slot), ring_parity(n, 2) ^ 1);
  smem_store_4(tile_word(smem, slot), (u32)id.pair);
  smem_store_4(tile_word(smem, slot) + 4, (u32)id.key_block);
  mbarrier_arrive(tile_full(smem, slot));
}

FN void load_keys(const glint_backward_params *p, u32 smem, const tile *t, u32 n) {
  u32 kv = ring_index(n, KV_BUFFERS), full = kv_full(smem, kv);
  mbarrier_wait(kv_empty(smem, kv), ring_parity(n, KV_BUFFERS) ^ 1);
  mbarrier_arrive_expect_tx(full, 2 * KV_BYTES);
  load_box(smem + SMEM_K + kv * KV_BYTES, &p->map_k, full, TILE_K, t->head_kv, t->row_k + t->key0, t->batch_k);
  load_box(smem + SMEM_V + kv * KV_BYTES, &p->map_v, full, TILE_K, t->head_kv, t->row_k + t->key0, t->batch_k);
}

// A row block of one query head: q with its lse, and dO with its delta. x: the head's place in lse2 and delta.
FN void load_rows(const glint_backward_params *p, u32 smem, const tile *t, i32 head, i32 x, i32 m, u32 step) {
  u32 s = ring_index(step, STAGES), empty = ring_parity(step, STAGES) ^ 1;
  i64 at = (i64)x * p->rows_padded + m * TILE_Q;
  i32 row = t->row_q + m * TILE_Q;
  mbarrier_wait(q_empty(smem, s), empty);
  mbarrier_arrive_expect_tx(q_full(smem, s), Q_BYTES + TILE_Q * 4);
  load_box(smem + SMEM_Q + s * Q_BYTES, &p->map_q, q_full(smem, s), TILE_Q, head, row, t->batch_q);
  tma_load_1d(smem + SMEM_LSE + s * TILE_Q * 4, p->lse2 + at, TILE_Q * 4, q_full(smem, s));
  mbarrier_wait(do_empty(smem, s), empty);
  mbarrier_arrive_expect_tx(do_full(smem, s), Q_BYTES + TILE_Q * 4);
  load_box(smem + SMEM_DO + s * Q_BYTES, &p->map_do, do_full(smem, s), TILE_Q, head, row, t->batch_q);
  tma_load_1d(smem + SMEM_DELTA + s * TILE_Q * 4, p->delta + at, TILE_Q * 4, do_full(smem, s));
}

// A ticket for the n-th tile, when the one before it is done.
FN i32 draw_late(const glint_backward_params *p, u32 smem, u32 n) {
  mbarrier_wait(kv_empty(smem, ring_index(n, KV_BUFFERS)), ring_parity(n, KV_BUFFERS) ^ 1);
  return (i32)atomic_add_u32(p->tile_counter, 1);
}

FN void load(const glint_backward_params *p, u32 smem) {
  u32 step = 0, n = 0;
  i32 ticket = p->fixed_tickets ? (i32)block_id_x() : (i32)atomic_add_u32(p->tile_counter, 1);
  NO_UNROLL
  for (;;) {
    tile_id id = tile_of_ticket(p, ticket);
    if (id.pair < 0) break;
    // long before it is needed; but where other blocks wait for this one's tile, it must not wait for the tile before it
    if (p->fixed_tickets) ticket += (i32)grid_size_x();
    if (!p->fixed_tickets && !DQ_STAGED) ticket = (i32)atomic_add_u32(p->tile_counter, 1);
    tile t = locate_tile(p, id);
    if (t.key0 >= t.len_k && id.key_block > 0) { // this sequence ends before
      if (DQ_STAGED && !p->fixed_tickets) ticket = draw_late(p, smem, n);
      continue;
    }
    if (p->dq)
      for (i32 g = 0; g < p->group; g++) wait_for_slot(p, id.pair * p->group + g);
    announce_tile(smem, n, id);
    load_keys(p, smem, &t, n++);
    NO_UNROLL
    for (i32 g = 0; g < p->group; g++) {
      NO_UNROLL
      for (i32 m = t.block_first; m < t.block_end; m++, step++)
        load_rows(p, smem, &t, t.head_kv * p->group + g, id.pair * p->group + g, m, step);
    }
    if (DQ_STAGED && !p->fixed_tickets) ticket = draw_late(p, smem, n);
  }
  tile_id end = {-1, 0};
  announce_tile(smem, n, end);
}

#endif
