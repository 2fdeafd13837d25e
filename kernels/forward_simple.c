/* The plain forward pass: what the fast kernels refuse, slowly. Any dtype, head_dim up to 512 at any alignment, paged keys and values, and every
 * feature of the scores, in a few lines of ordinary arithmetic: also the kernel to read first.
 *
 * A warp owns ROWS query rows, which lie in shared memory as floats. It walks the keys 32 at a time, one a lane: the lane computes the scores of
 * its key with all rows; the warp finds maxima and sums by shuffles (online softmax: Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018); then the lanes share out the columns of V, and each adds up its columns of o over the 32 keys. */
#include "params.h"

#include "parts/philox.h"

#define WARPS   (THREADS / 32)
#define ROWS    (TILE_Q / WARPS)
#define COLUMNS ((HEAD_DIM_V + 31) / 32) /* of o, for each lane */
#define LOG2_E  1.44269504f
#define LN_2    0.69314718f
#define ELEMENT (DTYPE == DTYPE_FLOAT32 ? 4 : 2)

#if TILE_K != 32 || TILE_Q % WARPS != 0
#error "TILE_K is 32, one key a lane; TILE_Q is a multiple of the warps"
#endif
#if SHARED < 4 * TILE_Q * HEAD_DIM
#error "SHARED holds TILE_Q rows of HEAD_DIM floats"
#endif

/* One block's work: TILE_Q rows of one head of one sequence. */
typedef struct place {
  i32 batch, head, row;     /* query head; first row, counted inside the sequence */
  i32 len_q, used_q, len_k; /* rows that exist, rows to compute, keys */
  i32 shift;                /* row i stands at key i + shift: aligned to the bottom right */
  i64 first_q, first_k;     /* row of the packed tensor where the sequence starts; 0 when dense */
} place;

typedef struct warp_row {
  i32 row, first, last; /* in the sequence; keys seen: first to last, none when last < first */
  float max, sum;       /* of the scores; of their exponentials */
} warp_row;

FN float load_element(const char *at) {
#if DTYPE == DTYPE_FLOAT32
  return gmem_load_f32_nc(at);
#elif DTYPE == DTYPE_BF16
  return unpack_bf16_lo(gmem_load_2_nc(at));
#else
  return unpack_f16_lo(gmem_load_2_nc(at));
#endif
}

FN u16 round_element(float x) { return (u16)(DTYPE == DTYPE_BF16 ? pack_bf16(x, 0.f) : pack_f16(x, 0.f)); }

FN i32 load_index(const i32 *array, i64 i) { return (i32)gmem_load_4_nc(array + i); }

FN place find_place(const glint_forward_params *p, i32 block) {
  i32 lane = block / p->q_tiles;
  place t = {lane / p->heads_q, lane % p->heads_q, block % p->q_tiles * TILE_Q, p->seqlen_q, 0, p->seqlen_k, 0, 0, 0};
  if (p->cu_seqlens_q) {
    t.first_q = load_index(p->cu_seqlens_q, t.batch);
    t.len_q = load_index(p->cu_seqlens_q, t.batch + 1) - (i32)t.first_q;
  }
  if (p->cu_seqlens_k) {
    t.first_k = load_index(p->cu_seqlens_k, t.batch);
    t.len_k = load_index(p->cu_seqlens_k, t.batch + 1) - (i32)t.first_k;
  }
  t.used_q = p->seqused_q ? load_index(p->seqused_q, t.batch) : t.len_q;
  if (p->seqused_k) t.len_k = load_index(p->seqused_k, t.batch);
  t.shift = t.len_k - t.used_q;
  return t;
}

/* Keys that a row sees: first to last; none where last < first. */
FN i32 first_key(const glint_forward_params *p, const place *t, i32 row) {
  i32 first = row + t->shift - p->window_left;
  return first > 0 ? first : 0;
}
FN i32 last_key(const glint_forward_params *p, const place *t, i32 row) {
  i32 last = row + t->shift + p->window_right;
  return row >= t->used_q ? -1 : last < t->len_k - 1 ? last : t->len_k - 1;
}

FN const char *row_address(const void *base, const glint_stride *stride, i32 batch, i32 head, i64 row) {
  return (const char *)base + (batch * stride->batch + head * stride->head + row * stride->row) * ELEMENT;
}

/* Where key j's row of k or v starts. */
FN const char *key_address(const glint_forward_params *p, const place *t, const void *base, const glint_stride *stride, i32 j) {
  i32 head = t->head / p->group;
  if (p->page_table) {
    i32 page = load_index(p->page_table + t->batch * p->page_table_stride, j / p->page_size);
    return row_address(base, stride, page, head, j % p->page_size);
  }
  return row_address(base, stride, t->batch, head, t->first_k + j);
}

/* 1 - 2 / (1 + e^2x) cancels below 1/2: there x + x^3 p(x^2), which interpolates tanh at Chebyshev's nodes to the last bit or so. */
FN float tanh_f32(float x) {
  const float u = x * x;
  float p = fma_f32(u, -6.6102278e-3f, 2.13093887e-2f);
  p = fma_f32(p, u, -5.39094288e-2f);
  p = fma_f32(p, u, 1.33331137e-1f);
  p = fma_f32(p, u, -3.3333332e-1f);
  return u < 0.3025f ? fma_f32(p * u, x, x) : 1.f - 2.f / (1.f + exp2_approx(x * (2.f * LOG2_E)));
}

/* From the product of row and key to the score. In natural units, not those of exp2: a bias of the most negative float must stay finite. */
FN float score(const glint_forward_params *p, const place *t, float product, i32 row, i32 key, float slope) {
  float x = product * p->scale;
  if (p->softcap_in != 0.f) x = tanh_f32(product * p->softcap_in) * (p->scale / p->softcap_in);
  if (p->bias) {
    i64 at = t->batch * p->bias_batch_stride + t->head * p->bias_head_stride + row * p->bias_row_stride + key * p->bias_key_stride;
    float bias = p->bias_float ? gmem_load_f32_nc((const float *)p->bias + at) : load_element((const char *)p->bias + at * ELEMENT);
    x += bias;
  }
  i32 distance = row + t->shift - key;
  return fma_f32(-slope, (float)(distance < 0 ? -distance : distance), x);
}

FN float warp_max(float x) {
  UNROLL for (u32 m = 16; m; m /= 2) x = max_f32(x, shfl_xor_f32(x, m));
  return x;
}

FN float warp_sum(float x) {
  UNROLL for (u32 m = 16; m; m /= 2) x += shfl_xor_f32(x, m);
  return x;
}

/* max_f32 takes the number where one of two is NaN; a NaN score must not get lost. */
FN float exponential(float x, float max) { return exp2_approx((x - (max == -INFINITY ? 0.f : max)) * LOG2_E); }

FN int is_dropped(const glint_forward_params *p, const place *t, i32 row, i32 key) {
  u32 x[4] = {(u32)key / 8, (u32)row, (u32)(t->batch * p->heads_q + t->head), (u32)p->dropout_offset};
  philox_4x32(x, (u32)p->dropout_seed, (u32)(p->dropout_seed >> 32) ^ (u32)(p->dropout_offset >> 32));
  u32 word = key % 8 < 2 ? x[0] : key % 8 < 4 ? x[1] : key % 8 < 6 ? x[2] : x[3];
  return (key % 2 ? word >> 16 : word & 0xffffu) < p->drop_threshold;
}

/* The warp's rows as floats; zeros where there is no row, and behind head_dim up to a multiple of 4. */
FN void load_rows(const glint_forward_params *p, const place *t, u32 smem, i32 first) {
  for (i32 r = 0; r < ROWS; r++) {
    const char *q = row_address(p->q, &p->q_stride, t->batch, t->head, t->first_q + first + r);
    for (i32 c = (i32)(tid() % 32); c < (p->head_dim + 3) / 4 * 4; c += 32)
      smem_store_f32(smem + 4 * (u32)(r * HEAD_DIM + c),
                     first + r < t->used_q && c < p->head_dim ? load_element(q + (i64)c * ELEMENT) : 0.f);
  }
  warp_sync();
}

/* Products of the lane's key with all rows. */
FN void multiply(const glint_forward_params *p, u32 smem, const char *k, float s[ROWS]) {
  UNROLL for (i32 r = 0; r < ROWS; r++) s[r] = 0.f;
  NO_UNROLL for (i32 c = 0; c < p->head_dim; c += 4) {
    float x[4];
    UNROLL for (i32 i = 0; i < 4; i++) x[i] = c + i < p->head_dim ? load_element(k + (i64)(c + i) * ELEMENT) : 0.f;
    UNROLL for (i32 r = 0; r < ROWS; r++) {
      u32 q[4];
      smem_load_16(q, smem + 4 * (u32)(r * HEAD_DIM + c));
      UNROLL for (i32 i = 0; i < 4; i++) s[r] = fma_f32(f32_from_bits(q[i]), x[i], s[r]);
    }
  }
}

/* Scores of 32 keys become probabilities; what o and sum hold shrinks to the new maximum. seen: the lanes whose key the row sees. */
FN void softmax(const glint_forward_params *p, const place *t, warp_row *w, float *s, u32 *seen, float o[COLUMNS], i32 key, float slope) {
  int sees = key >= w->first && key <= w->last;
  float x = sees ? score(p, t, *s, w->row, key, slope) : -INFINITY;
  float max = max_f32(w->max, warp_max(x)), rescale = exponential(w->max, max);
  *seen = ballot_lanes(sees);
  *s = sees ? exponential(x, max) : 0.f;
  w->max = max;
  w->sum = w->sum * rescale + warp_sum(*s);
  UNROLL for (i32 i = 0; i < COLUMNS; i++) o[i] *= rescale;
  if (sees && p->drop_threshold && is_dropped(p, t, w->row, key)) *s = 0.f;
}

/* o += P V. A key that a row does not see adds nothing to it, not even 0 times what may be NaN. */
FN void add_values(const glint_forward_params *p, const place *t, const float s[ROWS], const u32 seen[ROWS], float o[ROWS][COLUMNS],
                   i32 first_key) {
  u32 any = 0;
  UNROLL for (i32 r = 0; r < ROWS; r++) any |= seen[r];
  NO_UNROLL for (i32 j = 0; j < 32; j++) {
    float probability[ROWS];
    UNROLL for (i32 r = 0; r < ROWS; r++) probability[r] = shfl_idx_f32(s[r], (u32)j);
    if (!(any >> j & 1)) continue;
    const char *v = key_address(p, t, p->v, &p->v_stride, first_key + j);
    UNROLL for (i32 i = 0; i < COLUMNS; i++) {
      i32 c = 32 * i + (i32)(tid() % 32);
      float x = c < p->head_dim_v ? load_element(v + (i64)c * ELEMENT) : 0.f;
      UNROLL for (i32 r = 0; r < ROWS; r++) if (seen[r] >> j & 1) o[r][i] = fma_f32(probability[r], x, o[r][i]);
    }
  }
}

FN void store_row(const glint_forward_params *p, const place *t, warp_row *w, const float o[COLUMNS]) {
  if (w->row >= t->len_q) return;
  int used = w->row < t->used_q;
  float sink = p->sinks && used ? gmem_load_f32_nc(p->sinks + t->head) : -INFINITY, max = max_f32(w->max, sink);
  float sum = w->sum * exponential(w->max, max) + (sink == -INFINITY ? 0.f : exponential(sink, max));
  float scale =
      used && w->last >= w->first && sum != 0.f ? exponential(w->max, max) / sum * (p->drop_threshold ? p->keep_scale : 1.f) : 0.f;
  i64 row = t->first_q + w->row, at = t->batch * p->o_stride.batch + t->head * p->o_stride.head + row * p->o_stride.row;
  UNROLL for (i32 i = 0; i < COLUMNS; i++) {
    i32 c = 32 * i + (i32)(tid() % 32);
    float x = scale == 0.f ? 0.f : o[i] * scale;
    if (c >= p->head_dim_v) continue;
    if (DTYPE == DTYPE_FLOAT32 || p->o_float)
      gmem_store_f32((float *)p->o + at + c, x);
    else
      gmem_store_2((u16 *)p->o + at + c, round_element(x));
  }
  if (p->lse && tid() % 32 == 0)
    gmem_store_f32(p->lse + t->batch * p->lse_batch_stride + t->head * p->lse_head_stride + row,
                   sum == 0.f ? -INFINITY : max + log2_approx(sum) * LN_2);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) {
  place t = find_place(&p, (i32)block_id_x());
  i32 first = t.row + (i32)(tid() / 32) * ROWS, begin = t.len_k, end = 0;
  u32 smem = smem_base() + tid() / 32 * (ROWS * HEAD_DIM * 4);
  float o[ROWS][COLUMNS], slope = p.alibi_slopes ? gmem_load_f32_nc(p.alibi_slopes + t.batch * p.alibi_batch_stride + t.head) : 0.f;
  warp_row w[ROWS];
  UNROLL for (i32 r = 0; r < ROWS; r++) {
    w[r] = (warp_row){first + r, first_key(&p, &t, first + r), last_key(&p, &t, first + r), -INFINITY, 0.f};
    UNROLL for (i32 i = 0; i < COLUMNS; i++) o[r][i] = 0.f;
    if (w[r].last < w[r].first) continue;
    if (w[r].first < begin) begin = w[r].first;
    if (w[r].last >= end) end = w[r].last + 1;
  }
  load_rows(&p, &t, smem, first);
  NO_UNROLL for (i32 key = begin; key < end; key += 32) {
    float s[ROWS];
    u32 seen[ROWS];
    i32 mine = key + (i32)(tid() % 32);
    multiply(&p, smem, key_address(&p, &t, p.k, &p.k_stride, mine < end ? mine : end - 1), s);
    UNROLL for (i32 r = 0; r < ROWS; r++) softmax(&p, &t, &w[r], &s[r], &seen[r], o[r], mine, slope);
    add_values(&p, &t, s, seen, o, key);
  }
  UNROLL for (i32 r = 0; r < ROWS; r++) store_row(&p, &t, &w[r], o[r]);
}
