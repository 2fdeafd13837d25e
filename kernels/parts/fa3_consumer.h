// A consumer warpgroup: 64 query rows against the tile's blocks of keys, from the last block to the first.
#ifndef GLINT_PARTS_FA3_CONSUMER_H
#define GLINT_PARTS_FA3_CONSUMER_H

// What a consumer carries along
typedef struct fa3_consumer {
  u32 smem, index;
  u32 n, n_kv;    // tiles, and blocks of keys, consumed so far
  float scale;    // of the scores that the softmax gets, to log2 units
  float slope[2]; // ALiBi's of the thread's rows, in log2 units
  fa3_trace trace;
} fa3_consumer;

// Softcap and ALiBi, where the variant and the problem have them; then scores are in log2 units.
FN void bias_block(const glint_forward_params *p, const fa3_consumer *c, float *s, const fa3_limits *l, i32 first_key) {
  if (!BIASED || !(p->softcap_in > 0.f || p->alibi_slopes)) return;
  i32 distance[2];
  UNROLL
  for (int i = 0; i < 2; i++) distance[i] = l->key[i] - first_key - (i32)(tid() % 4 * 2);
  bias_scores(s, p->scale_log2, p->softcap_in, p->softcap_log2, c->slope, distance);
}

FN void mask_block(const glint_forward_params *p, const fa3_tile *t, float *s, const fa3_limits *l, i32 first_key) {
  if (first_key + TILE_K <= l->free_end && (!MASKED || first_key >= l->free_begin)) return;
  i32 column = first_key + (i32)(tid() % 4 * 2), first[2], last[2];
  UNROLL
  for (int i = 0; i < 2; i++) {
    last[i] = t->seqlen_k - 1 - column;
    first[i] = 0;
    if (MASKED) {
      last[i] = min_i32(last[i], l->key[i] + p->window_right - column);
      first[i] = l->key[i] - p->window_left - column;
    }
  }
  mask_scores(s, first, last);
}

// Ping-pong: a consumer waits for its turn before it issues products and passes the turn on when they are issued.
FN void turn_wait(const fa3_consumer *c) {
  if (PINGPONG) bar_sync(BARRIER_TURN + c->index, 256);
}
FN void turn_pass(const fa3_consumer *c) {
  if (PINGPONG) bar_arrive(BARRIER_TURN + (c->index + 1) % CONSUMERS, 256);
}

// Block n of K and of V, counted over all tiles
FN void await_k(const fa3_consumer *c, u32 n) { mbarrier_wait(k_full(c->smem, ring_index(n, STAGES)), ring_parity(n, STAGES)); }
FN void await_v(const fa3_consumer *c, u32 n) { mbarrier_wait(v_full(c->smem, ring_index(n, STAGES)), ring_parity(n, STAGES)); }
FN void release_k(const fa3_consumer *c, u32 n) {
  if (tid() % 128 == 0) mbarrier_arrive(k_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_v(const fa3_consumer *c, u32 n) {
  if (tid() % 128 == 0) mbarrier_arrive(v_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_q(const fa3_consumer *c) {
  if (tid() % 128 == 0) mbarrier_arrive(q_empty(c->smem, c->index));
}
FN u32 block_k(const fa3_consumer *c, u32 n) { return k_tile(c->smem, ring_index(n, STAGES)); }
FN u32 block_v(const fa3_consumer *c, u32 n) { return v_tile(c->smem, ring_index(n, STAGES)); }

// The last block of keys that some row of this warpgroup sees; before the tile's first: none
FN i32 own_block(const fa3_consumer *c, const glint_forward_params *p, const fa3_tile *t, const fa3_limits *l) {
  i32 first_row = t->m * tile_positions(p) + (i32)c->index * 64;
  i32 own = l->end > l->begin && first_row < t->seqlen_q ? (l->end - 1) / TILE_K : -1;
  return own < t->block_begin ? t->block_begin - 1 : min_i32(own, t->block_end - 1);
}

FN void await_q(const fa3_consumer *c, const fa3_tile *t) { mbarrier_wait(q_full(c->smem, c->index), t->q_parity); }

// A block that no row of this warpgroup sees, though another's do. The leader speaks for all four warps, and here no product keeps them
// together: without the barrier one could sleep through a whole phase of K's mbarrier, and wait for ever. n: the block's number.
FN void skip_block(const fa3_consumer *c, u32 n, int last_block) {
  await_k(c, n);
  turn_wait(c);
  turn_pass(c);
  await_v(c, n);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  if (last_block) release_q(c);
  release_k(c, n);
  release_v(c, n);
}

// What Q K^T of block b, number n, leaves behind: its operands may be overwritten.
FN void release_qk(const fa3_consumer *c, const fa3_tile *t, u32 n, i32 b) {
  if (b == t->block_begin) release_q(c);
  release_k(c, n);
}

// Exponentials of a tile's first block: rows have no shift yet. The second half may be hidden from all rows, as on the diagonal for the
// upper half of a tile.
FN void softmax_first(const glint_forward_params *p, const fa3_tile *t, const fa3_consumer *c, float *s, u32 *pr, fa3_rows *r,
                      const fa3_limits *l, i32 b) {
  const float nothing[2] = {0.f, 0.f};
  float factor[2];
  rows_reset(r);
  bias_block(p, c, s, l, b * TILE_K);
  mask_block(p, t, s, l, b * TILE_K);
  rows_move(s, r, nothing, factor, c->scale);
  exponentials(s, pr, r, r->sum, c->scale, 0, HALF_K / 8);
  if (MASKED && l->end <= b * TILE_K + HALF_K) {
    UNROLL
    for (int i = HALF_K / 4; i < TILE_K / 4; i++) pr[i] = 0;
  } else {
    exponentials(s, pr, r, r->sum, c->scale, HALF_K / 8, TILE_K / 8);
  }
}

// Exponentials of any other block. Rows whose shift turns out to be too low, or that see their first key, take a second pass.
FN void softmax_next(const glint_forward_params *p, const fa3_tile *t, const fa3_consumer *c, float *s, u32 *pr, float *o, fa3_rows *r,
                     const fa3_limits *l, i32 b) {
  float sum[2], factor[2];
  bias_block(p, c, s, l, b * TILE_K);
  if (MASKED) mask_block(p, t, s, l, b * TILE_K);
  NO_UNROLL
  for (int again = 0;; again = 1) {
    sum[0] = sum[1] = 0.f;
    exponentials(s, pr, r, sum, c->scale, 0, TILE_K / 8);
    if (again || !rows_must_move(r, sum)) break;
    rows_move(s, r, sum, factor, c->scale);
    scale_rows(o, factor);
  }
  UNROLL
  for (int i = 0; i < 2; i++) r->sum[i] += sum[i];
}

// s = q k^T of the next block of keys, and o += p v of this one. Both are waited for before the softmax begins: other consumers exponentiate
// meanwhile, and registers of P and S need no doubles.
FN void multiply(fa3_consumer *c, float *s, u32 q, float *o, const u32 *pr) {
  u32 n = c->n_kv + 1;
  await_k(c, n);
  stamp(&c->trace, TRACE_K_READY);
  turn_wait(c);
  stamp(&c->trace, TRACE_TURN);
  issue_qk(s, q, block_k(c, n));
  stamp(&c->trace, TRACE_QK_ISSUED);
  if (!OVERLAP) wgmma_wait(0);
  await_v(c, c->n_kv);
  stamp(&c->trace, TRACE_V_READY);
  issue_pv(o, pr, block_v(c, c->n_kv));
  stamp(&c->trace, TRACE_PV_ISSUED);
  turn_pass(c);
  wgmma_wait(1);
  stamp(&c->trace, TRACE_QK_DONE);
}

// Rows that exist but are not used become 0, whatever their Q held.
FN void clear_unused(float *o, const fa3_tile *t, const fa3_limits *l) {
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++)
    if (l->row[i / 2 % 2] >= t->seqlen_q) o[i] = 0.f;
}

// For a warpgroup whose rows see no key. No product keeps its warps together: the barrier keeps them within a tile of each other, since the
// phases of a stage's mbarrier look alike to a warp that is two of them ahead.
FN void store_nothing(const glint_forward_params *p, fa3_consumer *c, const fa3_tile *t, const fa3_limits *l) {
  float o[HEAD_DIM_V / 2];
  fa3_rows r;
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.f;
  rows_reset(&r);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  finish_rows(p, &r, t, l);
  store_o(p, c->smem, c->index, c->n, o, t, l);
  tile_release(c->smem, c->n++, 1);
  stamp(&c->trace, TRACE_STORED);
}

// The end of tile c->n: what it is comes from its slot again, which saves registers.
FN void finish_tile(const glint_forward_params *p, fa3_consumer *c, float *o, fa3_rows *r) {
  fa3_tile t = tile_read(p, c->smem, c->n);
  fa3_limits l = row_limits(p, &t, c->index);
  finish_rows(p, r, &t, &l);
  scale_rows(o, r->sum);
  if (PACKED) clear_unused(o, &t, &l);
  store_o(p, c->smem, c->index, c->n, o, &t, &l);
  tile_release(c->smem, c->n++, 1);
  stamp(&c->trace, TRACE_STORED);
}

FN void take_slopes(const glint_forward_params *p, fa3_consumer *c, const fa3_tile *t, const fa3_limits *l) {
  UNROLL
  for (int i = 0; i < 2; i++)
    if (BIASED)
      c->slope[i] = p->alibi_slopes ? gmem_load_f32_nc(p->alibi_slopes + t->batch * p->alibi_batch_stride + l->head[i]) * LOG2E : 0.f;
}

// A tile of which block b is the last with work for this warpgroup. A block's P V goes together with the next block's Q K^T.
FN void attend(const glint_forward_params *p, fa3_consumer *c, const fa3_tile *t, const fa3_limits *l, i32 b) {
  float s[TILE_K / 2], o[HEAD_DIM_V / 2];
  u32 pr[TILE_K / 4];
  fa3_rows r;
  u32 q = q_tile(c->smem, c->index);
  take_slopes(p, c, t, l);
  await_q(c, t);
  await_k(c, c->n_kv);
  turn_wait(c);
  stamp(&c->trace, TRACE_TURN);
  issue_qk(s, q, block_k(c, c->n_kv));
  turn_pass(c);
  wgmma_wait(0);
  stamp(&c->trace, TRACE_QK_DONE);
  release_qk(c, t, c->n_kv, b);
  softmax_first(p, t, c, s, pr, &r, l, b);
  stamp(&c->trace, TRACE_PACKED);
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.f;
  NO_UNROLL
  for (b--; b >= t->block_begin; b--) {
    multiply(c, s, q, o, pr);
    release_qk(c, t, c->n_kv + 1, b);
    wgmma_wait(0);
    stamp(&c->trace, TRACE_PV_DONE);
    release_v(c, c->n_kv++);
    softmax_next(p, t, c, s, pr, o, &r, l, b);
    stamp(&c->trace, TRACE_PACKED);
  }
  await_v(c, c->n_kv);
  issue_pv(o, pr, block_v(c, c->n_kv));
  stamp(&c->trace, TRACE_PV_ISSUED);
  wgmma_wait(0);
  stamp(&c->trace, TRACE_PV_DONE);
  release_v(c, c->n_kv++);
  finish_tile(p, c, o, &r);
}

// Rows of Q that no head and position fills, because the group does not divide TILE_Q, are 0 for good.
FN void clear_spare_rows(const glint_forward_params *p, const fa3_consumer *c) {
  const u32 zero[4] = {0, 0, 0, 0}, chunks = ROW_BYTES / 16;
  u32 first = (u32)(tile_positions(p) * p->group);
  if (first == 64) return;
  for (u32 box = 0; box < BOXES_QK; box++)
    for (u32 i = first * chunks + tid() % 128; i < 64 * chunks; i += 128)
      smem_store_16(q_tile(c->smem, c->index) + box * 64 * ROW_BYTES + i * 16, zero);
  fence_proxy_async();
  bar_sync(BARRIER_CONSUMER + c->index, 128);
}

FN void consume(const glint_forward_params *p, u32 smem, u32 index) {
  fa3_consumer c = {smem, index, 0, 0, p->scale_log2, {0.f, 0.f}, trace_open(p, index)};
  if (BIASED && (p->softcap_in > 0.f || p->alibi_slopes)) c.scale = 1.f;
  if (GROUPED) clear_spare_rows(p, &c);
  if (index == CONSUMERS - 1) turn_pass(&c); // the first turn is the first consumer's
  for (;;) {
    fa3_tile t = tile_read(p, smem, c.n);
    if (t.block_end < 0) return;
    fa3_limits l = row_limits(p, &t, index);
    i32 b = own_block(&c, p, &t, &l), last = t.block_end - 1;
    stamp(&c.trace, TRACE_TILE);
    if (last > b && last >= t.block_begin && b < t.block_begin) await_q(&c, &t); // nobody else of this warpgroup will
    NO_UNROLL
    for (; last > b; last--) skip_block(&c, c.n_kv++, last == t.block_begin);
    if (b >= t.block_begin)
      attend(p, &c, &t, &l, b);
    else
      store_nothing(p, &c, &t, &l);
  }
}

#endif
