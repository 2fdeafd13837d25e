// A consumer warpgroup: 64 query rows against the tile's blocks of keys, from the last block to the first.
#ifndef GLINT_PARTS_FA3_CONSUMER_H
#define GLINT_PARTS_FA3_CONSUMER_H

// What a consumer carries along
typedef struct fa3_consumer {
  u32 smem, index;
  int leader;  // its first thread speaks for it
  u32 n, n_kv; // tiles, and blocks of keys, consumed so far
  float scale; // of the scores that the softmax gets, to log2 units
  float slope; // ALiBi's, in log2 units
  fa3_trace trace;
} fa3_consumer;

// What decides over masks: keys that all rows of the warpgroup see, keys that any of them sees, and the thread's first row as a position
// among the keys
typedef struct fa3_limits {
  i32 free_begin, free_end, begin, end, position;
} fa3_limits;

FN fa3_limits row_limits(const glint_forward_params *p, const fa3_tile *t, i32 row0, i32 row) {
  i32 offset = t->seqlen_k - t->seqlen_q;
  fa3_limits l = {0, t->seqlen_k, 0, t->seqlen_k, row + offset};
  if (MASKED) {
    l.end = min_i32(l.end, row0 + 63 + offset + p->window_right + 1);
    l.free_end = min_i32(l.free_end, row0 + offset + p->window_right + 1);
    l.begin = max_i32(0, row0 + offset - p->window_left);
    l.free_begin = max_i32(0, row0 + 63 + offset - p->window_left);
  }
  return l;
}

// Softcap and ALiBi, where the variant and the problem have them; then scores are in log2 units.
FN void bias_block(const glint_forward_params *p, const fa3_consumer *c, float *s, const fa3_limits *l, i32 first_key, int columns) {
  if (!BIASED || !(p->softcap_in > 0.f || p->alibi_slopes)) return;
  i32 distance[2];
  distance[0] = l->position - first_key - (i32)(tid() % 4 * 2);
  distance[1] = distance[0] + 8;
  bias_scores(s, p->scale_log2, p->softcap_in, p->softcap_log2, c->slope, distance, columns);
}

FN void mask_block(const glint_forward_params *p, const fa3_tile *t, float *s, const fa3_limits *l, i32 first_key, int columns) {
  if (first_key + columns <= l->free_end && (!MASKED || first_key >= l->free_begin)) return;
  i32 column = first_key + (i32)(tid() % 4 * 2), first[2], last[2];
  UNROLL
  for (int i = 0; i < 2; i++) {
    last[i] = t->seqlen_k - 1 - column;
    first[i] = 0;
    if (MASKED) {
      last[i] = min_i32(last[i], l->position + 8 * i + p->window_right - column);
      first[i] = l->position + 8 * i - p->window_left - column;
    }
  }
  mask_scores(s, first, last, columns);
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
  if (c->leader) mbarrier_arrive(k_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_v(const fa3_consumer *c, u32 n) {
  if (c->leader) mbarrier_arrive(v_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_q(const fa3_consumer *c) {
  if (c->leader) mbarrier_arrive(q_empty(c->smem));
}
FN u32 block_k(const fa3_consumer *c, u32 n) { return k_tile(c->smem, ring_index(n, STAGES)); }
FN u32 block_v(const fa3_consumer *c, u32 n) { return v_tile(c->smem, ring_index(n, STAGES)); }

// A block that no row of this warpgroup sees, though another's do. The leader speaks for all four warps, and here no product keeps them
// together: without the barrier one could sleep through a whole phase of K's mbarrier, and wait for ever.
FN void skip_block(fa3_consumer *c, int last_block) {
  await_k(c, c->n_kv);
  turn_wait(c);
  turn_pass(c);
  await_v(c, c->n_kv);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  if (last_block) release_q(c);
  release_k(c, c->n_kv);
  release_v(c, c->n_kv++);
}

// The first block has nothing to overlap with. Where its second half is hidden from all rows, as on the diagonal for the upper half of a
// tile, only the first half is computed.
FN void first_block(const glint_forward_params *p, const fa3_tile *t, fa3_consumer *c, u32 q, float *s, u32 *pr, fa3_rows *r,
                    const fa3_limits *l, i32 b, int last_block) {
  float factor[2];
  await_k(c, c->n_kv);
  turn_wait(c);
  stamp(&c->trace, TRACE_TURN);
  if (MASKED && l->end <= b * TILE_K + HALF_K) {
    issue_qk_half(s, q, block_k(c, c->n_kv));
    turn_pass(c);
    wgmma_wait(0);
    stamp(&c->trace, TRACE_QK_DONE);
    bias_block(p, c, s, l, b * TILE_K, HALF_K);
    mask_block(p, t, s, l, b * TILE_K, HALF_K);
    softmax(s, r, factor, c->scale, HALF_K);
    pack_p(pr, s, HALF_K);
    UNROLL
    for (int i = HALF_K / 4; i < TILE_K / 4; i++) pr[i] = 0;
  } else {
    issue_qk(s, q, block_k(c, c->n_kv));
    turn_pass(c);
    wgmma_wait(0);
    stamp(&c->trace, TRACE_QK_DONE);
    bias_block(p, c, s, l, b * TILE_K, TILE_K);
    mask_block(p, t, s, l, b * TILE_K, TILE_K);
    softmax(s, r, factor, c->scale, TILE_K);
    pack_p(pr, s, TILE_K);
  }
  if (last_block) release_q(c);
  release_k(c, c->n_kv);
}

// o = sum over blocks b down to the tile's first of P V, unnormalised. The next Q K^T runs while this block's softmax is computed.
FN void attend_overlapped(const glint_forward_params *p, const fa3_tile *t, fa3_consumer *c, u32 q, float *o, fa3_rows *r,
                          const fa3_limits *l, i32 b) {
  float s[TILE_K / 2], factor[2];
  u32 pr[TILE_K / 4];
  first_block(p, t, c, q, s, pr, r, l, b, b == t->block_begin);
  int accumulate = 0;
  NO_UNROLL
  for (b--; b >= t->block_begin; b--) {
    await_k(c, c->n_kv + 1);
    stamp(&c->trace, TRACE_K_READY);
    turn_wait(c);
    stamp(&c->trace, TRACE_TURN);
    issue_qk(s, q, block_k(c, c->n_kv + 1));
    stamp(&c->trace, TRACE_QK_ISSUED);
    await_v(c, c->n_kv);
    stamp(&c->trace, TRACE_V_READY);
    issue_pv(o, pr, block_v(c, c->n_kv), accumulate);
    stamp(&c->trace, TRACE_PV_ISSUED);
    turn_pass(c);
    wgmma_wait(1);
    stamp(&c->trace, TRACE_QK_DONE);
    if (b == t->block_begin) release_q(c);
    release_k(c, c->n_kv + 1);
    bias_block(p, c, s, l, b * TILE_K, TILE_K);
    if (MASKED) mask_block(p, t, s, l, b * TILE_K, TILE_K);
    int move = softmax(s, r, factor, c->scale, TILE_K);
    if (PIN_SOFTMAX) compute_before(r->sum[0] + r->sum[1]);
    stamp(&c->trace, TRACE_SOFTMAX);
    wgmma_wait(0);
    stamp(&c->trace, TRACE_PV_DONE);
    release_v(c, c->n_kv++);
    pack_p(pr, s, TILE_K);
    if (move) scale_rows(o, factor);
    stamp(&c->trace, TRACE_PACKED);
    accumulate = 1;
  }
  await_v(c, c->n_kv);
  stamp(&c->trace, TRACE_V_READY);
  issue_pv(o, pr, block_v(c, c->n_kv), accumulate);
  stamp(&c->trace, TRACE_PV_ISSUED);
  wgmma_wait(0);
  stamp(&c->trace, TRACE_PV_DONE);
  release_v(c, c->n_kv++);
}

// The same one step after the other: fewer registers, for blocks that overlap with one another
FN void attend_in_turn(const glint_forward_params *p, const fa3_tile *t, fa3_consumer *c, u32 q, float *o, fa3_rows *r, const fa3_limits *l,
                       i32 b) {
  float s[TILE_K / 2], factor[2];
  u32 pr[TILE_K / 4];
  NO_UNROLL
  for (int accumulate = 0; b >= t->block_begin; b--, accumulate = 1) {
    await_k(c, c->n_kv);
    turn_wait(c);
    issue_qk(s, q, block_k(c, c->n_kv));
    wgmma_wait(0);
    turn_pass(c);
    if (b == t->block_begin) release_q(c);
    release_k(c, c->n_kv);
    bias_block(p, c, s, l, b * TILE_K, TILE_K);
    mask_block(p, t, s, l, b * TILE_K, TILE_K);
    int move = softmax(s, r, factor, c->scale, TILE_K);
    pack_p(pr, s, TILE_K);
    if (move && accumulate) scale_rows(o, factor);
    await_v(c, c->n_kv);
    issue_pv(o, pr, block_v(c, c->n_kv), accumulate);
    wgmma_wait(0);
    release_v(c, c->n_kv++);
  }
}

// Rows that exist but are not used become 0, whatever their Q held.
FN void clear_unused(float *o, const fa3_tile *t, i32 row) {
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++)
    if (row + 8 * (i / 2 % 2) >= t->seqlen_q) o[i] = 0.f;
}

// For a warpgroup whose rows see no key. No product keeps its warps together: the barrier keeps them within a tile of each other, since the
// phases of a stage's mbarrier look alike to a warp that is two of them ahead.
FN void store_nothing(const glint_forward_params *p, fa3_consumer *c, const fa3_tile *t, i32 row) {
  float o[HEAD_DIM_V / 2];
  fa3_rows r;
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.f;
  rows_reset(&r);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  finish_rows(p, &r, t, row);
  store_o(p, c->smem, c->index, c->n, o, t);
  stamp(&c->trace, TRACE_STORED);
}

FN void consume_tile(const glint_forward_params *p, fa3_consumer *c, const fa3_tile *t) {
  i32 row0 = t->m * TILE_Q + (i32)c->index * 64, row = row0 + (i32)(tid() % 128 / 32 * 16 + tid() % 32 / 4);
  fa3_limits l = row_limits(p, t, row0, row);
  if (BIASED) c->slope = p->alibi_slopes ? gmem_load_f32_nc(p->alibi_slopes + t->batch * p->alibi_batch_stride + t->head) * LOG2E : 0.f;
  i32 b = t->block_end - 1,
      own = l.end > l.begin && row0 < t->seqlen_q ? (l.end - 1) / TILE_K : -1; // the last block with work for this one
  stamp(&c->trace, TRACE_TILE);
  if (b >= t->block_begin) mbarrier_wait(q_full(c->smem), t->q_parity);
  NO_UNROLL
  for (; b > own && b >= t->block_begin; b--) skip_block(c, b == t->block_begin);
  if (b < t->block_begin) {
    store_nothing(p, c, t, row);
    return;
  }
  float o[HEAD_DIM_V / 2];
  fa3_rows r;
  rows_reset(&r);
#if OVERLAP
  attend_overlapped(p, t, c, q_tile(c->smem, c->index), o, &r, &l, b);
#else
  attend_in_turn(p, t, c, q_tile(c->smem, c->index), o, &r, &l, b);
#endif
  finish_rows(p, &r, t, row);
  scale_rows(o, r.sum);
  if (PACKED) clear_unused(o, t, row);
  store_o(p, c->smem, c->index, c->n, o, t);
  stamp(&c->trace, TRACE_STORED);
}

FN void consume(const glint_forward_params *p, u32 smem, u32 index) {
  fa3_consumer c = {smem, index, tid() % 128 == 0, 0, 0, p->scale_log2, 0.f, trace_open(p, index)};
  if (BIASED && (p->softcap_in > 0.f || p->alibi_slopes)) c.scale = 1.f;
  if (index == CONSUMERS - 1) turn_pass(&c); // the first turn is the first consumer's
  for (;; c.n++) {
    fa3_tile t = tile_await(p, smem, c.n, 1);
    if (t.block_end < 0) return;
    consume_tile(p, &c, &t);
  }
}

#endif
