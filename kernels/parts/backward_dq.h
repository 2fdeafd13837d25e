// dQ in the Hopper backward kernels (backward_params.h has the whole story). Warp 1 of the first warpgroup counts: when this block has added
// its part to a chunk, and when that was the last part of all, it puts the chunk into the queue. Warps 2 and 3 convert: they take chunks
// from the queue, whoever completed them, so that no block falls behind because it happens to come last.
#ifndef GLINT_BACKWARD_DQ_H
#define GLINT_BACKWARD_DQ_H

#include "backward_shared.h"

FN i32 chunk_end(const glint_backward_params *p, i32 chunk) { return smaller((chunk + 1) * p->chunk, p->q_blocks); }

// ---- counting: one thread ---------------------------------------------------------------------------------------------------------
// seen: keys have added to the chunk; otherwise its gradient is 0.
FN void enqueue(const glint_backward_params *p, i32 x, i32 chunk, u32 seen) {
  u32 *entry = p->queue + 2 * (u64)atomic_add_u32(p->queue_tail, 1);
  gmem_store_4(entry + 1, (u32)chunk * 2 + seen);
  gmem_store_release_u32(entry, (u32)x + 1);
}

FN void enqueue_unseen(const glint_backward_params *p, const tile *t, i32 x) {
  NO_UNROLL
  for (i32 chunk = 0; chunk < p->chunks; chunk++)
    if (key_blocks_of(p, t, chunk * p->chunk, chunk_end(p, chunk)) == 0) enqueue(p, x, chunk, 0);
}

FN void count_part(const glint_backward_params *p, const tile *t, i32 x, i32 chunk) {
  u32 *parts = p->dq_parts + (u32)(x % p->dq_slots * p->chunks + chunk);
  // releases the block's additions, which this thread has seen through the mbarrier
  u32 before = atomic_add_release_u32(parts, 1);
  if (before != (u32)key_blocks_of(p, t, chunk * p->chunk, chunk_end(p, chunk)) - 1) return;
  fence_gpu(); // those of the others
  gmem_store_4(parts, 0);
  enqueue(p, x, chunk, 1);
}

// In order: the block's part of one row block after the other, as it comes to lie in shared memory, when the parts before it are in. The look
// whether the next one's turn has come goes on beside the addition. Returns `step` afterwards.
FN u32 add_in_order(const glint_backward_params *p, u32 smem, const tile *t, i32 x, u32 step) {
  u32 *parts = p->dq_parts + (u32)(x % p->dq_slots * p->chunks);
  float *accum = p->dq_accum + (u64)(u32)(x % p->dq_slots * p->q_blocks) * (TILE_Q * HEAD_DIM);
  int ready = 0;
  NO_UNROLL
  for (i32 m = t->block_first; m < t->block_end; m++, step++) {
    u32 before = parts_before(p, t, m);
    if (p->dq && !ready) wait_for_turn(p, t, parts + m, m);
    mbarrier_wait(dq_full(smem, 0), step & 1);
    if (p->dq) {
      fence_proxy_async_global();
      tma_reduce_add_1d_f32(accum + (u64)(u32)m * (TILE_Q * HEAD_DIM), smem + SMEM_DQ, DQ_BYTES);
      tma_store_commit();
      ready = m + 1 < t->block_end && gmem_load_acquire_u32(parts + m + 1) == parts_before(p, t, m + 1);
      tma_store_wait_read(0);
    }
    mbarrier_arrive(dq_empty(smem, 0));
    if (!p->dq) continue;
    tma_store_wait(0);
    fence_proxy_async_global();
    int last = before + 1 == (u32)key_blocks_of(p, t, m, m + 1);
    gmem_store_release_u32(parts + m, last ? 0 : before + 1);
    if (last) enqueue(p, x, m, 1);
  }
  return step;
}

FN void count(const glint_backward_params *p, u32 smem) {
  u32 step = 0;
  NO_UNROLL
  for (u32 n = 0;; n++) {
    u32 slot = ring_index(n, 2);
    mbarrier_wait(tile_full(smem, slot), ring_parity(n, 2));
    tile_id id = read_tile(smem, slot);
    if (id.pair < 0) return;
    tile t = locate_tile(p, id);
    NO_UNROLL
    for (i32 g = 0; g < p->group; g++) {
      i32 x = id.pair * p->group + g;
      if (id.key_block == 0 && p->dq) enqueue_unseen(p, &t, x);
      if (DQ_STAGED) {
        step = add_in_order(p, smem, &t, x, step);
        continue;
      }
      NO_UNROLL
      for (i32 chunk = t.block_first / p->chunk; chunk * p->chunk < t.block_end; chunk++, step++) {
        u32 ring = ring_index(step, DQ_RING);
        mbarrier_wait(dq_full(smem, ring), ring_parity(step, DQ_RING));
        mbarrier_arrive(dq_empty(smem, ring));
        if (p->dq) count_part(p, &t, x, chunk);
      }
    }
    mbarrier_arrive(tile_empty(smem, slot));
  }
}

// ---- conversion: CONVERTERS threads -------------------------------------------------------------------------------------------------
#define CONVERTERS      64
#define FIRST_CONVERTER 64 // tid

// Four words a lane, one for each lane of its quad: afterwards word i is what lane i of the quad had for this lane.
FN void transpose_quad(u32 *x) {
  u32 q = tid() % 4, own[4];
  UNROLL
  for (u32 i = 0; i < 4; i++) own[i] = x[i];
  UNROLL
  for (u32 k = 1; k < 4; k++) {
    u32 to = q ^ k, send = to & 2 ? (to & 1 ? own[3] : own[2]) : (to & 1 ? own[1] : own[0]), got = shfl_xor_u32(send, k);
    UNROLL
    for (u32 i = 0; i < 4; i++) x[i] = i == to ? got : x[i];
  }
}

// A lane's four fragments (32 columns, of a row and the row 8 below) out of a piece, which is zeroed, into dq. In 16 bits the quad exchanges
// words, so that a lane stores 16 bytes.
FN void store_fragments(const glint_backward_params *p, const tile *t, const gradient_rows *rows, u32 piece, i32 m, u32 fragment,
                        u32 slot) {
  const u32 zero[4] = {0, 0, 0, 0};
  u32 upper[4], lower[4];
  i32 row = m * TILE_Q + (i32)dq_fragment_row(fragment, slot), column = (i32)dq_fragment_column(fragment, slot);
  int exact = p->gradient_float || p->accumulate;
  UNROLL
  for (u32 f = 0; f < 4; f++) {
    u32 bits[4];
    smem_load_16(bits, piece + f * 2048 + slot * 16);
    smem_store_16(piece + f * 2048 + slot * 16, zero);
    float x[4] = {f32_from_bits(bits[0]) * p->scale, f32_from_bits(bits[1]) * p->scale, f32_from_bits(bits[2]) * p->scale,
                  f32_from_bits(bits[3]) * p->scale};
    if (exact && column + (i32)f * 8 < p->head_dim) {
      if (row < t->len_q) store_pair(p, rows, row, column + (i32)f * 8, x[0], x[1]);
      if (row + 8 < t->len_q) store_pair(p, rows, row + 8, column + (i32)f * 8, x[2], x[3]);
    }
    upper[f] = PACK(x[0], x[1]);
    lower[f] = PACK(x[2], x[3]);
  }
  if (exact) return;
  transpose_quad(upper);
  transpose_quad(lower);
  column += (i32)(tid() % 4 * 6); // the lane's own 8 columns
  if (column >= p->head_dim) return;
  if (row < t->len_q) gmem_store_16(rows->base + row * rows->stride + column * 2, upper);
  if (row + 8 < t->len_q) gmem_store_16(rows->base + (row + 8) * rows->stride + column * 2, lower);
}

// Accumulators come and go by TMA, in pieces: ordinary loads would queue behind the additions of the multiplying warps. `passed` counts the
// pieces that have gone through the buffers.
#define PIECES_A_BLOCK (TILE_Q * HEAD_DIM * 4 / PIECE_BYTES)
FN u32 piece_buffer(u32 smem, u32 passed) { return smem + SMEM_PIECES + passed % PIECES * PIECE_BYTES; }

FN void load_piece(u32 smem, const float *from, u32 passed) {
  u32 bar = piece_full(smem, passed % PIECES);
  mbarrier_arrive_expect_tx(bar, PIECE_BYTES);
  tma_load_1d(piece_buffer(smem, passed), from, PIECE_BYTES, bar);
}

// One row block to dq as it should be, its accumulators back to zero. Returns `passed` afterwards.
FN u32 convert_row_block(const glint_backward_params *p, u32 smem, const tile *t, const gradient_rows *rows, i32 m, float *accum,
                         u32 passed) {
  u32 leader = tid() == FIRST_CONVERTER;
  if (leader)
    for (u32 i = 0; i < PIECES; i++) load_piece(smem, accum + i * (PIECE_BYTES / 4), passed + i);
  NO_UNROLL
  for (u32 i = 0; i < PIECES_A_BLOCK; i++, passed++) {
    u32 piece = piece_buffer(smem, passed);
    mbarrier_wait(piece_full(smem, passed % PIECES), passed / PIECES & 1);
    NO_UNROLL
    for (u32 slot = tid() - FIRST_CONVERTER; slot < 128; slot += CONVERTERS) store_fragments(p, t, rows, piece, m, i * 4, slot);
    fence_proxy_async();
    bar_sync(BAR_DQ, CONVERTERS);
    if (leader) {
      tma_store_1d(accum + i * (PIECE_BYTES / 4), piece, PIECE_BYTES);
      tma_store_commit();
      tma_store_wait_read(0);
      if (i + PIECES < PIECES_A_BLOCK) load_piece(smem, accum + (i + PIECES) * (PIECE_BYTES / 4), passed + PIECES);
    }
  }
  return passed;
}

FN void clear_row_block(const glint_backward_params *p, const tile *t, const gradient_rows *rows, i32 m) {
  NO_UNROLL
  for (u32 i = tid() - FIRST_CONVERTER; i < TILE_Q * HEAD_DIM / 2; i += CONVERTERS) {
    i32 row = m * TILE_Q + (i32)(i / (HEAD_DIM / 2)), column = (i32)(i % (HEAD_DIM / 2) * 2);
    if (row < t->len_q && column < p->head_dim) store_pair(p, rows, row, column, 0.f, 0.f);
  }
}

// What is to be converted stands in shared memory (dequeue) and is read again where it is needed: registers are few.
FN i32 job_head(u32 smem) { return (i32)smem_load_4(job_word(smem)) - 1; }
FN i32 job_chunk(u32 smem) { return (i32)(smem_load_4(job_word(smem) + 4) / 2); }
FN u32 job_seen(u32 smem) { return smem_load_4(job_word(smem) + 4) % 2; }

FN u32 convert_chunk(const glint_backward_params *p, u32 smem, u32 passed) {
  tile_id id = {job_head(smem) / p->group, 0};
  tile t = locate_tile(p, id);
  gradient_rows rows = rows_of(p, p->dq, &p->dq_stride, t.batch_q, t.row_q, t.head_kv * p->group + job_head(smem) % p->group);
  NO_UNROLL
  for (i32 m = job_chunk(smem) * p->chunk; m < chunk_end(p, job_chunk(smem)); m++) {
    float *accum = p->dq_accum + (u64)(u32)(job_head(smem) % p->dq_slots * p->q_blocks + m) * (TILE_Q * HEAD_DIM);
    if (job_seen(smem))
      passed = convert_row_block(p, smem, &t, &rows, m, accum, passed);
    else
      clear_row_block(p, &t, &rows, m);
  }
  if (tid() == FIRST_CONVERTER) { // the chunk has left its slot: its accumulators are zero for whoever sees the count
    tma_store_wait(0);
    fence_proxy_async_global();
    atomic_add_release_u32(p->dq_left + job_head(smem) % p->dq_slots, 1);
  }
  return passed;
}

// The next place in the queue, and what comes to stand there: x + 1 and chunk * 2 + seen through shared memory; 0 at the end.
FN void dequeue(const glint_backward_params *p, u32 smem) {
  u32 place = atomic_add_u32(p->queue_head, 1), x1 = 0, what = 0;
  if (place < (u32)(p->batch * p->heads_q * p->chunks)) {
    const u32 *entry = p->queue + 2 * (u64)place;
    while ((x1 = gmem_load_acquire_u32(entry)) == 0) nanosleep(400);
    what = gmem_load_4(entry + 1);
    fence_proxy_async_global();
  }
  smem_store_4(job_word(smem), x1);
  smem_store_4(job_word(smem) + 4, what);
}

FN void convert(const glint_backward_params *p, u32 smem) {
  u32 passed = 0;
  if (!p->dq) return;
  NO_UNROLL
  for (;;) {
    if (tid() == FIRST_CONVERTER) dequeue(p, smem);
    bar_sync(BAR_DQ, CONVERTERS);
    if (job_head(smem) < 0) return;
    passed = convert_chunk(p, smem, passed);
    bar_sync(BAR_DQ, CONVERTERS); // all have read the job
  }
}

#endif
