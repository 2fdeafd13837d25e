/* Random quantizations and their guards. */
#include "random_case.h"

#include "convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, FILL = 0xA5, MOST_BATCH = 4 };

typedef struct maker {
  quantize_case *c;
  uint64_t random;
  int64_t batch, sq, sk, heads_q, heads_kv, d, dv, total_q, total_k;
  int packed_q, packed_k;
  glint_dtype dtype;
} maker;

static int64_t below(maker *m, int64_t n) { return testkit_random_below(&m->random, n); }

/* Rows apart by a gap, heads outside rows at times: any order of axes that keeps the column last. */
static void give_strides(maker *m, glint_tensor *t) {
  int64_t gap = below(m, 3), *s = t->stride;
  if (below(m, 2)) return;
  s[3] = 1;
  if (below(m, 2)) {
    s[2] = t->shape[3] + gap, s[1] = s[2] * t->shape[2] + gap, s[0] = s[1] * (t->shape[1] ? t->shape[1] : 1);
  } else {
    s[1] = t->shape[3] + gap, s[2] = s[1] * (t->shape[1] ? t->shape[1] : 1) + gap, s[0] = s[2] * t->shape[2];
  }
}

static size_t span_bytes(const glint_tensor *t) {
  int64_t span = 1, contiguous = 1, given = 0;
  for (int a = 0; a < t->rank; a++) given |= t->stride[a];
  for (int a = t->rank - 1; a >= 0; a--) {
    if (!t->shape[a]) return 0;
    span += (t->shape[a] - 1) * (given ? t->stride[a] : contiguous);
    contiguous *= t->shape[a];
  }
  return (size_t)span * glint_dtype_size(t->dtype);
}

static int64_t offset_of(const glint_tensor *t, const int64_t at[4]) {
  int64_t offset = 0, contiguous = 1, given = 0;
  for (int a = 0; a < t->rank; a++) given |= t->stride[a];
  for (int a = t->rank - 1; a >= 0; a--) {
    offset += at[a] * (given ? t->stride[a] : contiguous);
    contiguous *= t->shape[a];
  }
  return offset;
}

/* Normal numbers with outliers and, in some columns, a bias; now and then a row of zeros, an infinity or a NaN. */
static glint_tensor input(maker *m, int64_t rows, int64_t heads, int64_t columns, int64_t batch) {
  glint_tensor t = {NULL, {batch, rows, heads, columns}, {0}, m->dtype, 4};
  give_strides(m, &t);
  int64_t span = (int64_t)span_bytes(&t) / (int64_t)glint_dtype_size(m->dtype), at[4];
  const int64_t shape[1] = {span + 8};
  double magnitude = ldexp(1, (int)below(m, 9) - 4);
  glint_tensor block = testkit_tensor(&m->c->made, m->dtype, 1, shape, 1, &m->random);
  t.data = (char *)block.data + (size_t)below(m, 8) * glint_dtype_size(m->dtype);
  for (at[0] = 0; at[0] < batch; at[0]++)
    for (at[1] = 0; at[1] < rows; at[1]++)
      for (at[2] = 0; at[2] < heads; at[2]++) {
        int kind = (int)below(m, 64);
        for (at[3] = 0; at[3] < columns; at[3]++) {
          double x = testkit_random_normal(&m->random) + (at[3] % 7 == 3 ? 4 : 0);
          if (below(m, 500) == 0) x *= 50;
          if (kind == 0) x = 0;
          if (kind == 1 && below(m, 40) == 0) x = below(m, 2) ? (double)NAN : below(m, 2) ? (double)INFINITY : -(double)INFINITY;
          glint_store(t.data, m->dtype, offset_of(&t, at), kind == 2 ? x * 1e-30 : x * magnitude);
        }
      }
  return t;
}

static glint_tensor output(maker *m, glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  glint_tensor t = {(void *)(uintptr_t)64, {a, b, c, d}, {0}, dtype, rank};
  if (rank == 4) give_strides(m, &t);
  return t;
}

/* [1], [batch, heads_kv] or [batch, heads, blocks]. */
static glint_tensor factors(maker *m, int64_t heads, int64_t seqlen) {
  int64_t kind = below(m, 4), most = seqlen / 16 + 1;
  if (kind == 0) return output(m, GLINT_FLOAT32, 1, 1, 0, 0, 0);
  if (kind == 1) return output(m, GLINT_FLOAT32, 2, m->batch, m->heads_kv, 0, 0);
  return output(m, GLINT_FLOAT32, 3, m->batch, heads, 1 + below(m, most < 7 ? most : 7), 0);
}

static void pick_lengths(maker *m, int keys) {
  glint_quantization *q = &m->c->q;
  int packed = below(m, 2) == 0, used = below(m, 3) == 0;
  int64_t longest = keys ? m->sk : m->sq, total = below(m, 3);
  int32_t cu[MOST_BATCH + 1] = {(int32_t)total}, seq[MOST_BATCH];
  for (int64_t b = 0; b < m->batch; b++) {
    int64_t len = packed && b ? below(m, longest + 1) : longest;
    total += len, cu[b + 1] = (int32_t)total;
    seq[b] = (int32_t)below(m, len + 1);
  }
  total += below(m, 3);
  if (packed) {
    *(keys ? &q->cu_seqlens_k : &q->cu_seqlens_q) = testkit_int32(&m->c->made, cu, m->batch + 1);
    if (below(m, 2)) *(keys ? &q->max_seqlen_k : &q->max_seqlen_q) = longest + below(m, 9);
  }
  if (used) *(keys ? &q->seqused_k : &q->seqused_q) = testkit_int32(&m->c->made, seq, m->batch);
  *(keys ? &m->packed_k : &m->packed_q) = packed;
  *(keys ? &m->total_k : &m->total_q) = total;
}

static int64_t seqlen_for_blocks(int packed, int64_t max_seqlen, int64_t total, int64_t len) {
  return !packed ? len : max_seqlen && max_seqlen < total ? max_seqlen : total;
}

void make_quantize_case(quantize_case *c, uint64_t seed, uint64_t index, int64_t rows_most) {
  static const int64_t dims[] = {64, 128, 96, 192, 256, 16, 32, 8, 4, 1, 40, 80, 100, 63, 512, 112};
  static const glint_dtype dtypes[] = {GLINT_BFLOAT16, GLINT_BFLOAT16, GLINT_FLOAT16, GLINT_FLOAT32};
  maker m = {.c = c, .random = seed + index * 1000003};
  memset(c, 0, sizeof *c);
  glint_quantization *q = &c->q;
  q->struct_size = sizeof *q;
  m.batch = 1 + below(&m, MOST_BATCH), m.heads_kv = 1 + below(&m, 3), m.heads_q = m.heads_kv * (1 + below(&m, 3));
  m.sq = below(&m, rows_most + 1), m.sk = below(&m, rows_most + 1), m.d = dims[below(&m, 16)], m.dv = dims[below(&m, 16)];
  m.dtype = dtypes[below(&m, 4)];
  int has = 1 + (int)below(&m, 10);
  has = has > 7 ? 7 : has; /* bits: q, k, v */
  int64_t cut;
  glint_dtype fp8 = below(&m, 4) ? GLINT_FLOAT8_E4M3 : GLINT_FLOAT8_E5M2;
  if (has & 1) {
    pick_lengths(&m, 0);
    int64_t rows = m.packed_q ? m.total_q : m.sq, batch = m.packed_q ? 1 : m.batch;
    q->q = input(&m, rows, m.heads_q, m.d, batch);
    q->q_fp8 = output(&m, fp8, 4, batch, rows, m.heads_q, m.d);
    cut = seqlen_for_blocks(m.packed_q, q->max_seqlen_q, m.total_q, m.sq);
    q->descale_q = factors(&m, m.heads_q, cut);
  }
  if (has & 6) pick_lengths(&m, 1);
  int64_t rows_k = m.packed_k ? m.total_k : m.sk, batch_k = m.packed_k ? 1 : m.batch;
  cut = seqlen_for_blocks(m.packed_k, q->max_seqlen_k, m.total_k, m.sk);
  if (has & 2) {
    q->k = input(&m, rows_k, m.heads_kv, m.d, batch_k);
    q->k_fp8 = output(&m, fp8, 4, batch_k, rows_k, m.heads_kv, m.d);
    q->descale_k = factors(&m, m.heads_kv, cut);
  }
  if (has & 4) {
    q->v = input(&m, rows_k, m.heads_kv, m.dv, batch_k);
    q->v_fp8 = output(&m, fp8, 4, batch_k, rows_k, m.heads_kv, m.dv);
    q->descale_v = factors(&m, m.heads_kv, cut);
  }
  q->rotate = (int32_t)below(&m, 2), q->rotation_seed = testkit_random(&m.random);
  q->smooth = has & 2 ? (int32_t)below(&m, 2) : 0;
  if (q->smooth && below(&m, 2)) q->k_mean = output(&m, GLINT_FLOAT32, 3, m.batch, m.heads_kv, m.d, 0);
  if (q->smooth && has & 1 && below(&m, 2)) q->lse_shift = output(&m, GLINT_FLOAT32, 3, q->q.shape[0], m.heads_q, q->q.shape[1], 0);
  snprintf(c->text, sizeof c->text,
           "GLINT_SEED=%llu case %llu: dtype %d to %d, has %d, batch %lld, heads %lld/%lld, d %lld/%lld, rows %lld/%lld, packed %d/%d, "
           "used %d/%d, factors %d[%lld] %d[%lld] %d[%lld], rotate %d, smooth %d",
           (unsigned long long)seed, (unsigned long long)index, (int)m.dtype, (int)fp8, has, (long long)m.batch, (long long)m.heads_q,
           (long long)m.heads_kv, (long long)m.d, (long long)m.dv, (long long)m.sq, (long long)m.sk, m.packed_q, m.packed_k,
           q->seqused_q.data != NULL, q->seqused_k.data != NULL, (int)q->descale_q.rank, (long long)q->descale_q.shape[2],
           (int)q->descale_k.rank, (long long)q->descale_k.shape[2], (int)q->descale_v.rank, (long long)q->descale_v.shape[2],
           (int)q->rotate, (int)q->smooth);
}

void free_quantize_case(quantize_case *c) { testkit_free_case(&c->made); }

glint_tensor *output_of(glint_quantization *q, int n) {
  glint_tensor *const outputs[CASE_OUTPUTS] = {&q->q_fp8,     &q->k_fp8,     &q->v_fp8,  &q->descale_q,
                                               &q->descale_k, &q->descale_v, &q->k_mean, &q->lse_shift};
  return outputs[n];
}

void make_outputs(quantize_outputs *o, const quantize_case *c) {
  o->q = c->q;
  for (int n = 0; n < CASE_OUTPUTS; n++) {
    glint_tensor *t = output_of(&o->q, n);
    o->block[n] = NULL, o->bytes[n] = t->data ? span_bytes(t) : 0;
    if (!t->data) continue;
    o->block[n] = malloc(o->bytes[n] + 2 * GUARD + 8);
    assert_non_null(o->block[n]);
    memset(o->block[n], FILL, o->bytes[n] + 2 * GUARD + 8);
    t->data = o->block[n] + GUARD;
  }
}

void free_outputs(quantize_outputs *o) {
  for (int n = 0; n < CASE_OUTPUTS; n++) free(o->block[n]);
}

int row_is_used(const glint_quantization *q, int keys, int64_t batch, int64_t row) {
  const int32_t *cu = (keys ? &q->cu_seqlens_k : &q->cu_seqlens_q)->data, *used = (keys ? &q->seqused_k : &q->seqused_q)->data;
  int64_t sequences = cu ? (keys ? &q->cu_seqlens_k : &q->cu_seqlens_q)->shape[0] - 1 : 0;
  if (!cu) return !used || row < used[batch];
  for (int64_t b = 0; b < sequences; b++)
    if (row >= cu[b] && row < cu[b + 1]) return !used || row - cu[b] < used[b];
  return 0;
}

static void check_bytes(const quantize_outputs *o, const quantize_case *c, int n) {
  glint_quantization q = o->q;
  const glint_tensor *t = output_of(&q, n);
  size_t size = glint_dtype_size(t->dtype), all = o->bytes[n] + 2 * GUARD;
  unsigned char *may = calloc(all, 1);
  int64_t at[4];
  assert_non_null(may);
  for (at[0] = 0; at[0] < t->shape[0]; at[0]++)
    for (at[1] = 0; at[1] < (t->rank > 1 ? t->shape[1] : 1); at[1]++)
      for (at[2] = 0; at[2] < (t->rank > 2 ? t->shape[2] : 1); at[2]++)
        for (at[3] = 0; at[3] < (t->rank > 3 ? t->shape[3] : 1); at[3]++)
          if (n > 2 || row_is_used(&q, n > 0, at[0], at[1])) memset(may + GUARD + (size_t)offset_of(t, at) * size, 1, size);
  for (size_t i = 0; i < all; i++)
    if (!may[i] && o->block[n][i] != FILL) fail_msg("output %d: byte %zu of %zu written\n%s", n, i, o->bytes[n], c->text);
  free(may);
}

void check_guards(const quantize_outputs *o, const quantize_case *c) {
  for (int n = 0; n < CASE_OUTPUTS; n++)
    if (o->block[n]) check_bytes(o, c, n);
}

void assert_same_outputs(const quantize_outputs *a, const quantize_outputs *b, const char *text) {
  for (int n = 0; n < CASE_OUTPUTS; n++)
    for (size_t i = 0; a->block[n] && i < a->bytes[n] + 2 * GUARD; i++)
      if (a->block[n][i] != b->block[n][i])
        fail_msg("output %d: byte %zu of %zu differs: %02x, %02x\n%s", n, i, a->bytes[n] + 2 * GUARD, a->block[n][i], b->block[n][i], text);
}

/* A copy of host memory; NULL for none. */
static void *lift(const testkit_memory *memory, const void *host, size_t bytes) {
  void *there = memory->alloc(memory->user, bytes + 256);
  assert_non_null(there);
  assert_true(memory->upload(memory->user, there, host, bytes));
  return there;
}

glint_status run_on_device(glint_context *context, const testkit_memory *memory, const quantize_outputs *o) {
  glint_quantization q = o->q;
  glint_tensor *const inputs[] = {&q.q, &q.k, &q.v, &q.cu_seqlens_q, &q.cu_seqlens_k, &q.seqused_q, &q.seqused_k};
  enum { INPUTS = sizeof inputs / sizeof inputs[0] };
  void *in[INPUTS] = {0}, *out[CASE_OUTPUTS] = {0};
  for (int n = 0; n < INPUTS; n++) {
    if (!inputs[n]->data) continue;
    size_t shift = (uintptr_t)inputs[n]->data % 256; /* a pointer as little aligned as the host's */
    in[n] = lift(memory, (char *)inputs[n]->data - shift, span_bytes(inputs[n]) + shift);
    inputs[n]->data = (char *)in[n] + shift;
  }
  for (int n = 0; n < CASE_OUTPUTS; n++) {
    if (!o->block[n]) continue;
    out[n] = lift(memory, o->block[n], o->bytes[n] + 2 * GUARD);
    output_of(&q, n)->data = (char *)out[n] + GUARD;
  }
  glint_status status = glint_quantize(context, &q);
  for (int n = 0; n < CASE_OUTPUTS; n++)
    if (out[n])
      assert_true(memory->download(memory->user, o->block[n], out[n], o->bytes[n] + 2 * GUARD)), memory->free(memory->user, out[n]);
  for (int n = 0; n < INPUTS; n++)
    if (in[n]) memory->free(memory->user, in[n]);
  return status;
}
