/* Random problems over all features. Every draw happens whether or not its feature is allowed, as far as that is practical, so that a mask
 * removes features from a case rather than making another one. */
#include "internal.h"

#include <math.h>
#include <string.h>

typedef struct maker {
  testkit_case *made;
  const testkit_options *options;
  uint64_t random;
  glint_dtype dtype;
  int64_t batch, heads_q, heads_kv, d, dv, sq, sk; /* sq, sk: the longest sequence's */
  int64_t len_q[8], len_k[8];                      /* rows that exist */
  int64_t used_q[8], used_k[8];                    /* rows in use; used_k counts appended keys */
  int64_t fresh;                                   /* appended keys */
  int64_t start_q[8], start_k[8], total_q, total_k;
  double magnitude;
  int fp8, packed_q, packed_k, out_of_memory;
} maker;

static int64_t below(maker *m, int64_t limit) { return testkit_random_below(&m->random, limit); }

/* True once in n draws, if the feature is allowed; then marks it as used. */
static int chance(maker *m, int64_t n, unsigned feature) {
  int yes = below(m, n) == 0 && (m->options->features & feature);
  if (yes) m->made->features |= feature;
  return yes;
}

static glint_dtype pick_dtype(maker *m) {
  glint_dtype allowed[8];
  int count = 0;
  unsigned mask = m->options->dtypes ? m->options->dtypes : 1u << GLINT_FLOAT32 | 1u << GLINT_BFLOAT16 | 1u << GLINT_FLOAT16;
  for (int t = GLINT_FLOAT32; t <= GLINT_FLOAT8_E5M2; t++)
    if (mask >> t & 1) allowed[count++] = (glint_dtype)t;
  return count ? allowed[below(m, count)] : GLINT_FLOAT32;
}

static int64_t pick_dim(maker *m, int odd) {
  static const int even_dims[] = {64, 128, 8, 16, 32, 40, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 512};
  static const int odd_dims[] = {1, 2, 3, 4, 59, 63, 65, 100, 111, 129, 250};
  if (m->options->head_dims_count) return m->options->head_dims[below(m, m->options->head_dims_count)];
  return odd ? odd_dims[below(m, 11)] : even_dims[below(m, 18)];
}

static int64_t pick_length(maker *m) {
  switch (below(m, 8)) {
  case 0: return 1;
  case 1: return 1 + below(m, 8);
  case 2:
  case 3: return 1 + below(m, 64);
  case 4: return 64 * (1 + below(m, 4)) - 1 + below(m, 3);
  case 5: return 1 + below(m, 700);
  default: return 1 + below(m, 260);
  }
}

static void pick_sizes(maker *m) {
  static const int groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
  int64_t limit = m->options->max_work ? m->options->max_work : (int64_t)1 << 22;
  m->dtype = pick_dtype(m);
  m->fp8 = m->dtype == GLINT_FLOAT8_E4M3 || m->dtype == GLINT_FLOAT8_E5M2;
  m->batch = 1 + below(m, 4), m->heads_kv = 1 + below(m, 3);
  int64_t group = groups[below(m, 9)];
  m->heads_q = m->heads_kv * (chance(m, 2, TESTKIT_GQA) ? group : 1);
  m->d = pick_dim(m, chance(m, 6, TESTKIT_ODD_DIM)), m->dv = m->d;
  if (chance(m, 4, TESTKIT_HEAD_DIM_V)) m->dv = pick_dim(m, chance(m, 4, TESTKIT_ODD_DIM));
  m->sq = pick_length(m), m->sk = pick_length(m);
  if (below(m, 3) == 0) m->sq = m->sk;
  if (below(m, 6) == 0) m->sq = 1, m->sk *= 4;
  if (chance(m, 24, TESTKIT_EMPTY)) m->sq = 0;
  if (chance(m, 24, TESTKIT_EMPTY)) m->sk = 0;
  if (chance(m, 40, TESTKIT_EMPTY)) m->batch = 0;
  while (m->batch * m->heads_q * m->sq * m->sk * (m->d + m->dv) > limit && (m->sq > 1 || m->sk > 1)) {
    if (m->sq > m->sk)
      m->sq = (m->sq + 1) / 2;
    else
      m->sk = (m->sk + 1) / 2;
  }
}

/* Lengths of the sequences, and where they start in packed tensors, with gaps that belong to nobody. */
static void pick_lengths(maker *m) {
  glint_problem *p = &m->made->problem;
  int packed = chance(m, 4, TESTKIT_PACKED), ends = (int)below(m, 4), gap = (int)below(m, 2);
  m->packed_q = packed && ends != 1, m->packed_k = packed && ends != 2;
  int used_q = chance(m, 8, TESTKIT_SEQUSED), used_k = chance(m, 4, TESTKIT_SEQUSED);
  m->total_q = m->total_k = gap ? below(m, 5) : 0;
  for (int64_t b = 0; b < m->batch; b++) {
    m->len_q[b] = m->packed_q && b ? below(m, m->sq + 1) : m->sq, m->len_k[b] = m->packed_k && b ? below(m, m->sk + 1) : m->sk;
    m->start_q[b] = m->total_q, m->total_q += m->len_q[b];
    m->start_k[b] = m->total_k, m->total_k += m->len_k[b];
    m->used_q[b] = used_q ? below(m, m->len_q[b] + 1) : m->len_q[b];
    m->used_k[b] = used_k ? below(m, m->len_k[b] + 1) : m->len_k[b];
  }
  int64_t bounds_q[] = {0, m->sq, m->sq + 7}, bounds_k[] = {0, m->sk, m->sk + 9}, pick = below(m, 3);
  int32_t cu_q[9] = {(int32_t)m->total_q}, cu_k[9] = {(int32_t)m->total_k}, seq_q[8], seq_k[8];
  for (int64_t b = 0; b < m->batch; b++) {
    cu_q[b] = (int32_t)m->start_q[b], cu_q[b + 1] = (int32_t)(m->start_q[b] + m->len_q[b]);
    cu_k[b] = (int32_t)m->start_k[b], cu_k[b + 1] = (int32_t)(m->start_k[b] + m->len_k[b]);
    seq_q[b] = (int32_t)m->used_q[b], seq_k[b] = (int32_t)m->used_k[b];
  }
  if (m->packed_q) p->cu_seqlens_q = testkit_int32(m->made, cu_q, m->batch + 1), p->max_seqlen_q = bounds_q[pick];
  if (m->packed_k) p->cu_seqlens_k = testkit_int32(m->made, cu_k, m->batch + 1), p->max_seqlen_k = bounds_k[pick];
  if (used_q) p->seqused_q = testkit_int32(m->made, seq_q, m->batch);
  if (used_k) p->seqused_k = testkit_int32(m->made, seq_k, m->batch);
  if (gap) m->total_q += below(m, 5), m->total_k += below(m, 5);
}

/* A tensor whose strides may be permuted, have gaps, or (inputs) repeat one batch; contents NaN. */
static glint_tensor make(maker *m, glint_dtype dtype, int rank, int64_t s0, int64_t s1, int64_t s2, int64_t s3, int input) {
  int64_t shape[4] = {s0, s1, s2, s3}, shift = below(m, 8), pads[4];
  glint_tensor t = {NULL, {s0, s1, s2, s3}, {0}, dtype, rank};
  int strided = chance(m, 3, TESTKIT_STRIDES), misaligned = chance(m, 6, TESTKIT_MISALIGN), same = below(m, 6) == 0;
  int order[4] = {0, 1, 2, 3};
  for (int n = rank - 2; n > 0; n--) {
    int other = (int)below(m, n + 1), kept = order[n];
    order[n] = order[other], order[other] = kept;
  }
  for (int n = 0; n < 4; n++) pads[n] = below(m, 3);
  if (strided) {
    int64_t step = 1;
    for (int n = rank - 1; n >= 0; n--) {
      int a = n == rank - 1 ? n : order[n];
      t.stride[a] = step;
      step = step * (shape[a] ? shape[a] : 1) + pads[n] * (misaligned ? 1 : 16);
    }
    if (same && input && rank == 4 && s0 > 1) t.stride[0] = 0;
  }
  size_t element = glint_dtype_size(dtype);
  char *block = testkit_block(m->made, (size_t)testkit_span(&t) * element + 8 * element);
  if (!block) m->out_of_memory = 1;
  t.data = block ? block + (misaligned ? (size_t)shift * element : 0) : NULL;
  return t;
}

static void put(maker *m, const glint_tensor *t, int64_t i0, int64_t i1, int64_t i2, double magnitude) {
  int64_t at = testkit_offset(t, ((i0 * t->shape[1] + i1) * t->shape[2] + i2) * t->shape[3]);
  for (int64_t c = 0; c < t->shape[3]; c++) glint_store(t->data, t->dtype, at + c, magnitude * testkit_random_normal(&m->random));
}

/* Rows in use of a tensor shaped like q. */
static void fill_rows(maker *m, const glint_tensor *t, double magnitude) {
  for (int64_t b = 0; b < m->batch; b++)
    for (int64_t i = 0; i < m->used_q[b]; i++)
      for (int64_t h = 0; h < m->heads_q; h++) put(m, t, m->packed_q ? 0 : b, m->packed_q ? m->start_q[b] + i : i, h, magnitude);
}

/* Keys in use before the call. */
static void fill_keys(maker *m, const glint_tensor *t, double magnitude) {
  const glint_tensor *table = &m->made->problem.page_table;
  for (int64_t b = 0; b < m->batch; b++)
    for (int64_t j = 0; j < m->used_k[b] - m->fresh; j++) {
      int64_t first = m->packed_k ? 0 : b, row = m->packed_k ? m->start_k[b] + j : j;
      if (table->data) first = ((const int32_t *)table->data)[b * table->shape[1] + j / t->shape[1]], row = j % t->shape[1];
      for (int64_t h = 0; h < m->heads_kv; h++) put(m, t, first, row, h, magnitude);
    }
}

/* Without lengths every row of every page counts, so that lengths must be given unless the sequences fill their pages. */
static void make_page_lengths(maker *m, int64_t capacity) {
  int32_t used[8];
  int full = 1;
  for (int64_t b = 0; b < m->batch; b++) used[b] = (int32_t)m->used_k[b], full &= m->used_k[b] == capacity;
  glint_problem *p = &m->made->problem;
  if (!full && !p->seqused_k.data && !p->cache_seqlens.data) p->seqused_k = testkit_int32(m->made, used, m->batch);
}

/* Scattered pages; the page table's entries beyond the lengths and the pages in nobody's table stay garbage. */
static void make_pages(maker *m, int64_t *num_pages, int64_t *page_size) {
  static const int sizes[] = {1, 2, 7, 16, 64, 128, 256};
  int32_t order[4096];
  *page_size = sizes[below(m, 7)];
  while (m->batch * ((m->sk + *page_size - 1) / *page_size + 1) > 4000) *page_size *= 2;
  int64_t max_pages = (m->sk + *page_size - 1) / *page_size + below(m, 2), next = 0;
  *num_pages = m->batch * max_pages + 1 + below(m, 3);
  for (int64_t n = 0; n < *num_pages; n++) order[n] = (int32_t)n;
  for (int64_t n = *num_pages - 1; n > 0; n--) {
    int64_t other = below(m, n + 1);
    int32_t kept = order[n];
    order[n] = order[other], order[other] = kept;
  }
  glint_tensor *table = &m->made->problem.page_table;
  *table = make(m, GLINT_INT32, 2, m->batch, max_pages, 0, 0, 0);
  memset(table->stride, 0, sizeof table->stride);
  for (int64_t b = 0; b < m->batch && table->data; b++)
    for (int64_t n = 0; n * *page_size < m->used_k[b]; n++) ((int32_t *)table->data)[b * max_pages + n] = order[next++];
  if (below(m, 2)) m->made->problem.page_size = *page_size;
  make_page_lengths(m, max_pages * *page_size);
}

static void make_append(maker *m) {
  glint_problem *p = &m->made->problem;
  int32_t cached[8];
  m->fresh = m->sk ? 1 + below(m, m->sk < 9 ? m->sk : 9) : 0;
  for (int64_t b = 0; b < m->batch; b++) {
    if (m->used_k[b] < m->fresh) m->used_k[b] = m->fresh;
    cached[b] = (int32_t)(m->used_k[b] - m->fresh);
  }
  memset(&p->seqused_k, 0, sizeof p->seqused_k);
  p->cache_seqlens = testkit_int32(m->made, cached, m->batch);
}

static void make_rotary(maker *m) {
  glint_problem *p = &m->made->problem;
  int64_t half = 1 + below(m, m->d / 2), rows = m->sk + m->sq + 1;
  /* lengths on a device cannot be read: then the table must reach as far as the cache */
  int64_t capacity = p->page_table.data ? p->page_table.shape[1] * p->k.shape[1] : p->k.shape[1];
  if (m->options->memory && rows < capacity) rows = capacity;
  glint_dtype dtype = m->fp8 || below(m, 2) ? GLINT_FLOAT32 : m->dtype;
  p->rotary_cos = make(m, dtype, 2, rows, half, 0, 0, 0), p->rotary_sin = make(m, dtype, 2, rows, half, 0, 0, 0);
  p->rotary_interleaved = (int32_t)below(m, 2);
  for (int64_t n = 0; n < rows * half && !m->out_of_memory; n++) {
    double angle = (double)(n / half) * pow(10000, -(double)(n % half) / (double)half);
    glint_store(p->rotary_cos.data, dtype, testkit_offset(&p->rotary_cos, n), cos(angle));
    glint_store(p->rotary_sin.data, dtype, testkit_offset(&p->rotary_sin, n), sin(angle));
  }
}

static void make_qkv(maker *m) {
  glint_problem *p = &m->made->problem;
  int paged = chance(m, 3, TESTKIT_PAGED) && !m->packed_k, append = chance(m, 3, TESTKIT_APPEND) && !m->packed_k && m->sk > 0;
  m->made->features &= ~((paged ? 0u : (unsigned)TESTKIT_PAGED) | (append ? 0u : (unsigned)TESTKIT_APPEND));
  if (append) make_append(m);
  int64_t first = m->packed_k ? 1 : m->batch, rows = m->packed_k ? m->total_k : m->sk;
  if (paged) make_pages(m, &first, &rows);
  p->q = make(m, m->dtype, 4, m->packed_q ? 1 : m->batch, m->packed_q ? m->total_q : m->sq, m->heads_q, m->d, 1);
  p->k = make(m, m->dtype, 4, first, rows, m->heads_kv, m->d, !append && !paged);
  p->v = make(m, m->dtype, 4, first, rows, m->heads_kv, m->dv, !append && !paged);
  m->magnitude = chance(m, 8, TESTKIT_LARGE) ? 5 : m->fp8 || below(m, 2) ? 1 : 2;
  if (m->out_of_memory) return;
  fill_rows(m, &p->q, m->magnitude), fill_keys(m, &p->k, m->magnitude), fill_keys(m, &p->v, 1);
  if (!append) return;
  p->k_new = make(m, m->dtype, 4, m->batch, m->fresh, m->heads_kv, m->d, 1);
  p->v_new = make(m, m->dtype, 4, m->batch, m->fresh, m->heads_kv, m->dv, 1);
  if (m->out_of_memory) return;
  testkit_fill(&p->k_new, m->magnitude, &m->random), testkit_fill(&p->v_new, 1, &m->random);
  if (chance(m, 2, TESTKIT_ROTARY) && m->d >= 2) make_rotary(m);
}

static void make_mask(maker *m) {
  glint_problem *p = &m->made->problem;
  p->causal = chance(m, 2, TESTKIT_CAUSAL);
  p->windowed = chance(m, 4, TESTKIT_WINDOW);
  int64_t left = below(m, 4) ? below(m, m->sk + 2) : -1, right = below(m, 4) ? below(m, m->sk / 2 + 2) : -1;
  if (below(m, 3) == 0 && left > 0) left = below(m, 20);
  if (p->windowed) p->window_left = left, p->window_right = right;
  int no_keys = 0;
  for (int64_t b = 0; b < m->batch; b++) no_keys |= m->used_q[b] > m->used_k[b];
  if (no_keys && (p->causal || p->windowed) && !(m->options->features & TESTKIT_NO_KEYS))
    p->causal = p->windowed = 0, p->window_left = p->window_right = 0;
  if (no_keys && (p->causal || p->windowed)) m->made->features |= TESTKIT_NO_KEYS;
}

/* Entries beyond the lengths stay NaN. Some are -inf or the most negative finite number, as masks written by hand are. */
static void make_bias(maker *m) {
  glint_problem *p = &m->made->problem;
  glint_dtype dtype = m->fp8 || below(m, 2) ? GLINT_FLOAT32 : m->dtype;
  int64_t rows = m->packed_q ? p->max_seqlen_q ? p->max_seqlen_q : m->total_q : m->sq;
  int64_t keys = m->packed_k          ? p->max_seqlen_k ? p->max_seqlen_k : m->total_k
                 : p->page_table.data ? p->page_table.shape[1] * p->k.shape[1]
                                      : m->sk;
  int64_t shape[3] = {below(m, 2) ? m->batch : 1, below(m, 2) ? m->heads_q : 1, below(m, 3) ? rows : 1}, masks = below(m, 3);
  if (masks == 2 && (m->made->features & TESTKIT_BACKWARD) && !(m->options->features & TESTKIT_COARSE_LSE)) masks = 1;
  if (shape[0] * shape[1] * shape[2] * keys > 1 << 22) return;
  m->made->features |= TESTKIT_BIAS;
  p->bias = make(m, dtype, 4, shape[0], shape[1], shape[2], keys, 0);
  for (int64_t n = 0, count = testkit_count(&p->bias); n < count && p->bias.data; n++) {
    int64_t j = n % keys, i = n / keys % shape[2], b = n / keys / shape[2] / shape[1], used_q = 0, used_k = 0;
    for (int64_t other = 0; other < m->batch; other++) {
      if (shape[0] != 1 && other != b) continue;
      if (m->used_q[other] > used_q) used_q = m->used_q[other];
      if (m->used_k[other] > used_k) used_k = m->used_k[other];
    }
    double value = testkit_random_normal(&m->random), lowest = dtype == GLINT_FLOAT32    ? -3.4028234663852886e38
                                                               : dtype == GLINT_BFLOAT16 ? -3.3895313892515355e38
                                                                                         : -65504;
    if (masks && below(m, 8) == 0) value = masks == 1 ? -(double)INFINITY : lowest;
    if (j < used_k && (shape[2] == 1 || i < used_q)) glint_store(p->bias.data, dtype, testkit_offset(&p->bias, n), value);
  }
}

static void make_scores(maker *m) {
  glint_problem *p = &m->made->problem;
  static const float scales[] = {0, 0, 0.1f, 0.3f}, caps[] = {15, 30, 5, 1.5f}, rates[] = {0.1f, 0.5f, 0.9f, 0.25f};
  p->scale = scales[below(m, 4)];
  if (chance(m, 6, TESTKIT_SOFTCAP)) p->softcap = caps[below(m, 4)];
  if (chance(m, 6, TESTKIT_ALIBI)) {
    int both = (int)below(m, 2);
    p->alibi_slopes = both ? make(m, GLINT_FLOAT32, 2, m->batch, m->heads_q, 0, 0, 0) : make(m, GLINT_FLOAT32, 1, m->heads_q, 0, 0, 0, 0);
    for (int64_t n = 0, count = testkit_count(&p->alibi_slopes); n < count && p->alibi_slopes.data; n++)
      ((float *)p->alibi_slopes.data)[testkit_offset(&p->alibi_slopes, n)] = (float)exp2(-8.0 * (double)below(m, 9) / 8);
  }
  if (chance(m, 6, TESTKIT_SINKS)) {
    p->sinks = make(m, GLINT_FLOAT32, 1, m->heads_q, 0, 0, 0, 0);
    if (p->sinks.data) testkit_fill(&p->sinks, 2, &m->random);
  }
  if (below(m, 6) == 0 && (m->options->features & TESTKIT_BIAS)) make_bias(m);
  if (chance(m, 6, TESTKIT_DROPOUT)) {
    p->dropout_p = rates[below(m, 4)];
    p->dropout_seed = testkit_random(&m->random), p->dropout_offset = testkit_random(&m->random);
  }
  static const int splits[] = {1, 2, 3, 5, 17, 133};
  if (chance(m, 5, TESTKIT_SPLITS)) p->num_splits = splits[below(m, 6)];
}

static void make_descale(maker *m, glint_tensor *t, int64_t heads) {
  int64_t kind = below(m, 3), blocks = 1 + below(m, 4);
  if (kind == 0) *t = make(m, GLINT_FLOAT32, 1, 1, 0, 0, 0, 0);
  if (kind == 1) *t = make(m, GLINT_FLOAT32, 2, m->batch, m->heads_kv, 0, 0, 0);
  if (kind == 2) *t = make(m, GLINT_FLOAT32, 3, m->batch, heads, blocks, 0, 0);
  for (int64_t n = 0, count = testkit_count(t); n < count && t->data; n++)
    ((float *)t->data)[testkit_offset(t, n)] = 0.5f + (float)below(m, 100) / 64;
}

static glint_dtype gradient_dtype(maker *m) { return below(m, 3) ? m->dtype : GLINT_FLOAT32; }

static void make_gradients(maker *m) {
  const glint_problem *p = &m->made->problem;
  glint_gradients *g = &m->made->gradients;
  const int64_t *q = p->q.shape, *k = p->k.shape, *v = p->v.shape, *o = p->o.shape, *lse = p->lse.shape;
  g->struct_size = sizeof *g;
  g->d_o = make(m, p->o.dtype, 4, o[0], o[1], o[2], o[3], 1);
  if (g->d_o.data) fill_rows(m, &g->d_o, 1);
  if (below(m, 4) == 0) g->d_lse = make(m, GLINT_FLOAT32, 3, lse[0], lse[1], lse[2], 0, 1);
  for (int64_t b = 0; b < m->batch && g->d_lse.data; b++)
    for (int64_t n = 0; n < m->heads_q * m->used_q[b]; n++) {
      int64_t h = n / m->used_q[b], i = n % m->used_q[b] + (m->packed_q ? m->start_q[b] : 0);
      glint_store(g->d_lse.data, GLINT_FLOAT32, testkit_offset(&g->d_lse, ((m->packed_q ? 0 : b) * lse[1] + h) * lse[2] + i),
                  testkit_random_normal(&m->random));
    }
  int64_t wanted = below(m, 8);
  g->accumulate = below(m, 4) == 0;
  if (wanted != 1) g->dq = make(m, gradient_dtype(m), 4, q[0], q[1], q[2], q[3], 0);
  if (wanted != 2) g->dk = make(m, gradient_dtype(m), 4, k[0], k[1], k[2], k[3], 0);
  if (wanted != 3) g->dv = make(m, gradient_dtype(m), 4, v[0], v[1], v[2], v[3], 0);
  if (p->sinks.data) g->dsinks = make(m, GLINT_FLOAT32, 1, m->heads_q, 0, 0, 0, 0);
  if (p->bias.data) g->dbias = make(m, GLINT_FLOAT32, 4, p->bias.shape[0], p->bias.shape[1], p->bias.shape[2], p->bias.shape[3], 0);
  glint_tensor *sums[] = {&g->dq, &g->dk, &g->dv, &g->dsinks, &g->dbias};
  for (int n = 0; n < 5; n++)
    if (g->accumulate && sums[n]->data) testkit_fill(sums[n], 1, &m->random);
}

/* A few NaN somewhere in K or V, seen by all rows, by some or by none. Not with dropout: whether a dropped NaN counts is nobody's promise. */
static void spoil_keys(maker *m) {
  glint_problem *p = &m->made->problem;
  const glint_tensor *t = below(m, 2) ? &p->k : &p->v;
  int64_t elements = t->data ? testkit_count(t) : 0;
  for (int64_t n = 1 + below(m, 3); n > 0 && elements > 0 && p->dropout_p == 0; n--)
    glint_store(t->data, t->dtype, testkit_offset(t, below(m, elements)), (double)NAN);
}

int testkit_make_case(testkit_case *made, const testkit_options *options, uint64_t seed, uint64_t index) {
  maker m = {.made = made, .options = options, .random = seed * 0xD1342543DE82EF95u + index * 0x9E3779B97F4A7C15u};
  glint_problem *p = &made->problem;
  memset(made, 0, sizeof *made);
  testkit_random(&m.random);
  p->struct_size = sizeof *p, p->flags = options->flags;
  pick_sizes(&m);
  int backward = chance(&m, options->only_backward ? 1 : 2, TESTKIT_BACKWARD);
  if (m.fp8) backward = 0;
  pick_lengths(&m);
  testkit_options without = *options;
  without.features &= ~(unsigned)(TESTKIT_PAGED | TESTKIT_APPEND | TESTKIT_ROTARY);
  if (backward) m.options = &without; /* a cache has no backward pass */
  make_qkv(&m);
  make_mask(&m);
  make_scores(&m);
  int wide = chance(&m, 3, TESTKIT_FLOAT32_OUT);
  glint_dtype out = wide ? GLINT_FLOAT32 : m.fp8 ? GLINT_BFLOAT16 : m.dtype;
  p->o = make(&m, out, 4, p->q.shape[0], p->q.shape[1], m.heads_q, m.dv, 0);
  if (below(&m, 4) || backward) p->lse = make(&m, GLINT_FLOAT32, 3, p->q.shape[0], m.heads_q, p->q.shape[1], 0, 0);
  if (m.fp8) {
    make_descale(&m, &p->descale_q, m.heads_q);
    make_descale(&m, &p->descale_k, m.heads_kv);
    make_descale(&m, &p->descale_v, m.heads_kv);
  }
  if (chance(&m, 4, TESTKIT_WORKSPACE)) p->workspace_bytes = 1; /* the judge makes it as large as the plan says */
  made->pass = backward ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD;
  if (!backward) made->features &= ~(unsigned)TESTKIT_BACKWARD;
  if (backward) make_gradients(&m);
  if (!backward && chance(&m, 4, TESTKIT_KEY_NAN)) spoil_keys(&m);
  return !m.out_of_memory;
}

testkit_outcome testkit_run_case(glint_context *context, const testkit_options *options, uint64_t seed, uint64_t index,
                                 testkit_report *report) {
  testkit_case made;
  testkit_outcome outcome = TESTKIT_FAILED;
  memset(report, 0, sizeof *report);
  report->outcome = outcome;
  if (testkit_make_case(&made, options, seed, index))
    outcome = testkit_judge(context, options, &made.problem, made.pass == GLINT_PASS_BACKWARD ? &made.gradients : NULL, report);
  testkit_free_case(&made);
  return outcome;
}
