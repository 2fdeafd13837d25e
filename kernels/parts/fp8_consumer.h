// A consumer warpgroup: 64 query rows against the tile's blocks of keys, from the last block to the first.
#ifndef GLINT_PARTS_FP8_CONSUMER_H
#define GLINT_PARTS_FP8_CONSUMER_H

// What a consumer carries along
typedef struct fp8_consumer {
  u32 smem, index;
  int leader;  // its first thread speaks for it
  u32 n, n_kv; // tiles, and blocks of keys, consumed so far
  float scale; // of Q K^T to log2 units, with the factors of Q and, unless K has one for each block, of K
  float slope; // ALiBi's, in log2 units
  float v;     // V's factor, unless it has one for each block
  int scaled;  // scores are in log2 units before the softmax, since a bias was added
} fp8_consumer;

// What decides over masks: keys that all rows of the warpgroup see, keys that any of them sees, and the thread's first row as a position
// among the keys
typedef struct fp8_limits {
  i32 free_begin, free_end, begin, end, position;
} fp8_limits;

FN fp8_limits row_limits(const glint_forward_params *p, const fa3_tile *t, i32 row0, i32 row) {
  i32 offset = t->seqlen_k - t->seqlen_q;
  fp8_limits l = {0, t->seqlen_k, 0, t->seqlen_k, row + offset};
  if (MASKED) {
    l.end = min_i32(l.end, row0 + 63 + offset + p->window_right + 1);
    l.free_end = min_i32(l.free_end, row0 + offset + p->window_right + 1);
    l.begin = max_i32(0, row0 + offset - p->window_left);
    l.free_begin = max_i32(0, row0 + 63 + offset - p->window_left);
  }
  return l;
}

// Bit e: whether the thread's element e of a row, column 8 (e / 2) + e % 2 from its first one, is at most `last`. All bits at once, since
// ptxas tests bits of a word eight at a time (R2P), and comparisons one by one.
FN u32 visible_to(i32 last) {
  i32 count = last < 0 ? 0 : (last / 8) * 2 + 1 + ((last & 7) != 0);
  return count >= 32 ? ~0u : (1u << count) - 1;
}

FN void mask_block(const glint_forward_params *p, const fa3_tile *t, float *s, const fp8_limits *l, i32 first_key) {
  if (first_key + TILE_K <= l->free_end && (!MASKED || first_key >= l->free_begin)) return;
  UNROLL
  for (int part = 0; part < TILE_K; part += 128) { // the columns of one word of bits
    i32 column = first_key + part + (i32)(tid() % 4 * 2);
    UNROLL
    for (int i = 0; i < 2; i++) {
      i32 last = t->seqlen_k - 1 - column, first = 0;
      if (MASKED) {
        last = min_i32(last, l->position + 8 * i + p->window_right - column);
        first = l->position + 8 * i - p->window_left - column;
      }
      u32 visible = visible_to(last) & ~visible_to(first - 1);
      UNROLL
      for (int e = 0; e < 32 && part + e * 4 < TILE_K; e++)
        if (!(visible & 1u << e)) s[part / 2 + e / 2 * 4 + 2 * i + e % 2] = -INFINITY;
    }
  }
}

// Softcap and ALiBi, where the variant and the problem have them; then scores are in log2 units.
FN void bias_block(const glint_forward_params *p, const fp8_consumer *c, float *s, const fp8_limits *l, i32 first_key, const fp8_block *b) {
  if (!BIASED || !c->scaled) return;
  fp8_block raw = block_open(b->table, c->scale, 0);
  float distance = (float)(l->position - first_key - (i32)(tid() % 4 * 2)),
        cap_in = p->softcap_in > 0.f ? rcp_approx(p->softcap_log2) : 0.f;
  UNROLL
  for (int g = 0; g < GROUPS; g++) {
    float scale = group_factors(&raw, g, c->scale).scale;
    UNROLL
    for (int i = 0; i < 8; i++) {
      float *x = &s[8 * g + i];
      *x *= scale;
      // tanh x = 1 - 2 / (exp(2x) + 1): as exact as the softmax; tanh.approx is not
      if (cap_in > 0.f) *x = p->softcap_log2 - 2.f * p->softcap_log2 * rcp_approx(exp2_approx(*x * cap_in * (2.f * LOG2E)) + 1.f);
      *x -= c->slope * fabsf(distance + (float)(i / 2 % 2 * 8) - (float)(16 * g + i / 4 * 8 + i % 2));
    }
  }
}

// Ping-pong: a consumer waits for its turn before it issues products and passes the turn on when they are issued.
FN void turn_wait(const fp8_consumer *c) {
  if (PINGPONG) bar_sync(BARRIER_TURN + c->index, 256);
}
FN void turn_pass(const fp8_consumer *c) {
  if (PINGPONG) bar_arrive(BARRIER_TURN + (c->index + 1) % CONSUMERS, 256);
}

// Block n of K and of V, counted over all tiles
FN void await_k(const fp8_consumer *c, u32 n) { mbarrier_wait(k_full(c->smem, ring_index(n, STAGES)), ring_parity(n, STAGES)); }
FN void await_v(const fp8_consumer *c, u32 n) { mbarrier_wait(v_full(c->smem, ring_index(n, STAGES)), ring_parity(n, STAGES)); }
// K is free when its product is done, its factors when each warp has used them
FN void release_k(const fp8_consumer *c, u32 n) {
  if (BLOCK_SCALES) warp_sync();
  if (BLOCK_SCALES ? tid() % 32 == 0 : c->leader) mbarrier_arrive(k_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_v(const fp8_consumer *c, u32 n) {
  if (c->leader) mbarrier_arrive(v_empty(c->smem, ring_index(n, STAGES)));
}
FN void release_q(const fp8_consumer *c) {
  if (c->leader) mbarrier_arrive(q_empty(c->smem));
}
FN u32 block_k(const fp8_consumer *c, u32 n) { return k_tile(c->smem, ring_index(n, STAGES)); }
FN u32 block_v(const fp8_consumer *c, u32 n) { return v_tile(c->smem, ring_index(n, STAGES)); }
FN u32 block_factors(const fp8_consumer *c, u32 n) { return k_factors(c->smem, ring_index(n, STAGES)); }

// A block that no row of this warpgroup sees, though another's do. The leader speaks for all four warps, and here no product keeps them
// together: without the barrier one could sleep through a whole phase of K's mbarrier, and wait for ever.
FN void skip_block(fp8_consumer *c, int last_block) {
  await_k(c, c->n_kv);
  turn_wait(c);
  turn_pass(c);
  await_v(c, c->n_kv);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  if (last_block) release_q(c);
  release_k(c, c->n_kv);
  release_v(c, c->n_kv++);
}

// A block's sums of rounded P. They start anew with each block, since the tensor core's own sums lose bits as they grow.
FN void add_rounded(fp8_rows *r, const float *ones) {
  UNROLL
  for (int i = 0; i < 2 * ONES; i++) r->rounded[i] += ones[2 * i];
}

// The tensor core sums 8-bit products with about 14 bits: what a block adds to a long sum loses its low ones, always downwards. With
// FEATURE_FP32_ACCUMULATE such a sum spans PROMOTE blocks only and is then added to o. *blocks counts those in it.
FN void promote(float *o, const float *part, int *blocks) {
  if (!PROMOTES || ++*blocks < PROMOTE) return;
  *blocks = 0;
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] += part[i];
}

// o = sum over blocks b down to the tile's first of P V, unnormalised. The next Q K^T runs while this block's softmax is computed.
FN void attend(const glint_forward_params *p, const fa3_tile *t, fp8_consumer *c, u32 q, float *o, fp8_rows *r, const fp8_limits *l,
               i32 b) {
  float s[TILE_K / 2], factor[2], ones[4], second[PROMOTES ? HEAD_DIM_V / 2 : 1], *sum_pv = PROMOTES ? second : o;
  int blocks = 0;
  UNROLL
  for (int i = 0; PROMOTES && i < HEAD_DIM_V / 2; i++) o[i] = 0.f;
  u32 pr[TILE_K / 8];
  await_k(c, c->n_kv);
  turn_wait(c);
  issue_qk(s, q, block_k(c, c->n_kv));
  turn_pass(c);
  wgmma_wait(0);
  if (b == t->block_begin) release_q(c);
  fp8_block keys = block_open(block_factors(c, c->n_kv), c->scale, c->scaled);
  bias_block(p, c, s, l, b * TILE_K, &keys);
  if (keys.uniform) release_k(c, c->n_kv);
  mask_block(p, t, s, l, b * TILE_K);
  exponentials_again(s, pr, r, r->sum, r->p_sum, factor, &keys, c->scale);
  if (!keys.uniform) release_k(c, c->n_kv);
  int accumulate = 0;
  NO_UNROLL
  for (b--; b >= t->block_begin; b--) {
    await_k(c, c->n_kv + 1);
    turn_wait(c);
    issue_qk(s, q, block_k(c, c->n_kv + 1));
    await_v(c, c->n_kv);
    issue_pv(sum_pv, ones, pr, block_v(c, c->n_kv), ones_tile(c->smem), accumulate);
    turn_pass(c);
    wgmma_wait(1);
    if (b == t->block_begin) release_q(c);
    keys = block_open(block_factors(c, c->n_kv + 1), c->scale, c->scaled);
    bias_block(p, c, s, l, b * TILE_K, &keys);
    if (keys.uniform) release_k(c, c->n_kv + 1);
    u32 early[EARLY_COLUMNS / 8 + 1];
    if (MASKED) mask_block(p, t, s, l, b * TILE_K);
    float sum[2] = {0.f, 0.f}, p_sum[2] = {0.f, 0.f};
    u32 high = exponentials(s, early, r->shift, sum, p_sum, &keys, c->scale, 0, EARLY_COLUMNS / 16);
    if (PIN_SOFTMAX) compute_before_u32(high);
    wgmma_wait(0);
    release_v(c, c->n_kv++);
    add_rounded(r, ones);
    promote(o, second, &blocks);
    high |= exponentials(s, pr, r->shift, sum, p_sum, &keys, c->scale, EARLY_COLUMNS / 16, GROUPS);
    // not a plain copy, which ptxas would resolve by computing into the registers of a product in flight, and serialise
    UNROLL
    for (int i = 0; i < EARLY_COLUMNS / 8; i++) pr[i] = early[i] ^ c->n >> 31;
    if (any_lane(high != 0)) {
      exponentials_again(s, pr, r, sum, p_sum, factor, &keys, c->scale);
      scale_rows(o, factor);
      if (PROMOTES) scale_rows(second, factor);
    }
    if (!keys.uniform) release_k(c, c->n_kv);
    UNROLL
    for (int i = 0; i < 2; i++) {
      r->sum[i] += sum[i];
      r->p_sum[i] += p_sum[i];
    }
    accumulate = !PROMOTES || blocks > 0;
  }
  await_v(c, c->n_kv);
  issue_pv(sum_pv, ones, pr, block_v(c, c->n_kv), ones_tile(c->smem), accumulate);
  wgmma_wait(0);
  release_v(c, c->n_kv++);
  add_rounded(r, ones);
  blocks = PROMOTE;
  promote(o, second, &blocks);
}

// For a warpgroup whose rows see no key. No product keeps its warps together: the barrier keeps them within a tile of each other.
FN void store_nothing(const glint_forward_params *p, fp8_consumer *c, const fa3_tile *t, i32 row) {
  float o[HEAD_DIM_V / 2];
  fp8_rows r;
  fp8_finish f;
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.f;
  rows_reset(&r);
  bar_sync(BARRIER_CONSUMER + c->index, 128);
  finish_rows(p, &r, t, row, 0.f, &f);
  store_o(p, c->smem, c->index, o, &f, t);
}

// Factors of the tile: of this warp's 16 rows, which lie in one block of Q's, and of the head's K and V.
FN void tile_factors(const glint_forward_params *p, fp8_consumer *c, const fa3_tile *t, i32 row0) {
  c->scale = p->scale_log2 * descale_q(p, t, min_i32(row0 + (i32)(tid() % 128 / 32 * 16), max_i32(t->seqlen_q - 1, 0)));
  c->v = 1.f;
  if (BLOCK_SCALES) return;
  c->scale *= descale_k(p, t, 0);
  c->v = descale_v(p, t, 0);
}

FN void consume_tile(const glint_forward_params *p, fp8_consumer *c, const fa3_tile *t) {
  i32 row0 = t->m * TILE_Q + (i32)c->index * 64, row = row0 + (i32)(tid() % 128 / 32 * 16 + tid() % 32 / 4);
  fp8_limits l = row_limits(p, t, row0, row);
  if (BIASED) c->slope = p->alibi_slopes ? gmem_load_f32_nc(p->alibi_slopes + t->batch * p->alibi_batch_stride + t->head) * LOG2E : 0.f;
  i32 b = t->block_end - 1,
      own = l.end > l.begin && row0 < t->seqlen_q ? (l.end - 1) / TILE_K : -1; // the last block with work for this one
  tile_factors(p, c, t, row0);
  if (b >= t->block_begin) mbarrier_wait(q_full(c->smem), t->q_parity);
  NO_UNROLL
  for (; b > own && b >= t->block_begin; b--) skip_block(c, b == t->block_begin);
  if (b < t->block_begin) {
    store_nothing(p, c, t, row);
    return;
  }
  float o[HEAD_DIM_V / 2];
  fp8_rows r;
  rows_reset(&r);
  attend(p, t, c, q_tile(c->smem, c->index), o, &r, &l, b);
  fp8_finish f;
  finish_rows(p, &r, t, row, c->v, &f);
  store_o(p, c->smem, c->index, o, &f, t);
}

FN void consume(const glint_forward_params *p, u32 smem, u32 index) {
  fp8_consumer c = {smem, index, tid() % 128 == 0, 0, 0, 0.f, 0.f, 0.f, 0};
  c.scaled = BIASED && (p->softcap_in > 0.f || p->alibi_slopes);
  if (index == CONSUMERS - 1) turn_pass(&c); // the first turn is the first consumer's
  for (;; c.n++) {
    fa3_tile t = tile_await(p, smem, c.n, 1);
    if (t.block_end < 0) break;
    consume_tile(p, &c, &t);
  }
  if (!PACKED) tma_store_wait(0);
}

#endif
