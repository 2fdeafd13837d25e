/* Quantization on the CPU. Rows are handled in pieces: a piece is one block of a tensor whose blocks have factors of their own (one pass), and
 * otherwise PIECE_ROWS rows of one head, whose maxima wait in the workspace until the factor that they share is known (two passes).
 * Every operation on a value is the one that kernels/quantize.c does, in its order: the engines agree bit for bit. */
#include "quantize.h"

#include "../api/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { PIECE_ROWS = 64, COLUMNS_MAX = 512 };

typedef struct quantize_run {
  const glint_quantize_work *w;
  const glint_quantize_tensor *t;
  int64_t heads, columns, pieces, piece_rows; /* pieces of the longest sequence */
  int smooth;
  const float *means; /* [batch, heads_kv, columns]; NULL: k_mean has them */
  float factor, largest;
  uint32_t signs[16];
} quantize_run;

static int64_t pieces_of(const glint_quantize_tensor *t, int64_t *rows) {
  *rows = t->block_rows ? t->block_rows : PIECE_ROWS;
  return t->block_rows ? t->descale.shape[2] : (t->seqlen + PIECE_ROWS - 1) / PIECE_ROWS;
}

static int64_t maxima_of(const glint_quantize_work *w, const glint_quantize_tensor *t) {
  int64_t rows;
  return t->in.rank && !t->block_rows ? w->lengths.batch * t->in.shape[2] * pieces_of(t, &rows) : 0;
}

static int64_t means_of(const glint_quantize_work *w) {
  return w->smooth == 1 ? w->lengths.batch * w->lengths.heads_kv * w->lengths.head_dim : 0;
}

size_t glint_cpu_quantize_workspace(const glint_quantize_work *w) {
  int64_t most = 0;
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++) {
    int64_t maxima = maxima_of(w, &w->tensor[n]);
    if (maxima > most) most = maxima;
  }
  return (size_t)(most + means_of(w)) * sizeof(float);
}

/* ---- rounding: exact, ties to even, saturating; as glint_e4m3_from_float and glint_e5m2_from_float, but without branches ---- */

static inline uint32_t quantize_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* mantissa: stored bits. Normal results: rounding by addition to the float's own bits. Subnormal ones: their quantum is that of the float
 * `anchor`, so that adding it rounds to it. */
static inline uint8_t round_fp8(float x, int mantissa, int bias, float largest, float smallest_normal, float anchor) {
  uint32_t bits = quantize_bits(x);
  float a = fabsf(x);
  a = a < largest ? a : largest;
  uint32_t m = quantize_bits(a), shift = 23 - (uint32_t)mantissa;
  uint32_t normal = ((m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift) - ((127u - (uint32_t)bias) << mantissa);
  uint32_t small = quantize_bits(a + anchor) - quantize_bits(anchor);
  uint32_t magnitude = a < smallest_normal ? small : normal;
  return (uint8_t)(x != x ? 0x7F : (bits >> 24 & 0x80) | magnitude);
}

static void store_fp8(uint8_t *to, const float *x, int64_t n, float multiplier, glint_dtype dtype) {
  if (dtype == GLINT_FLOAT8_E4M3)
    for (int64_t c = 0; c < n; c++) to[c] = round_fp8(x[c] * multiplier, 3, 7, 448.0f, 0x1p-6f, 0x1p14f);
  else
    for (int64_t c = 0; c < n; c++) to[c] = round_fp8(x[c] * multiplier, 2, 15, 57344.0f, 0x1p-14f, 0x1p7f);
}

/* ---- rows ---- */

static void load_values(const glint_view *in, int64_t at, int64_t n, float *x) {
  if (in->dtype == GLINT_FLOAT32)
    memcpy(x, (const float *)in->data + at, (size_t)n * sizeof *x);
  else if (in->dtype == GLINT_BFLOAT16)
    for (int64_t c = 0; c < n; c++) x[c] = glint_float_from_bf16(((const uint16_t *)in->data)[at + c]);
  else
    for (int64_t c = 0; c < n; c++) x[c] = glint_float_from_f16(((const uint16_t *)in->data)[at + c]);
}

static int64_t quantize_row_at(const glint_view *view, const glint_quantize_rows *s, int64_t head, int64_t i) {
  return s->batch * view->stride[0] + (s->first + i) * view->stride[1] + head * view->stride[2];
}

/* Means in rows of head_dim, wherever they come from. */
static const float *mean_row(const glint_quantize_work *w, const float *means, int64_t b, int64_t head) {
  if (means) return means + (b * w->lengths.heads_kv + head) * w->lengths.head_dim;
  return (const float *)w->k_mean.data + b * w->k_mean.stride[0] + head * w->k_mean.stride[1];
}

/* Row i as it will be scaled and rounded. */
static void load_ready(const quantize_run *r, const glint_quantize_rows *s, int64_t b, int64_t head, int64_t i, float *x) {
  load_values(&r->t->in, quantize_row_at(&r->t->in, s, head, i), r->columns, x);
  if (r->t->rotate) glint_rotation_flip(x, r->columns, r->signs);
  if (r->smooth) { /* the signs first, so that zeros have the signs that the GPU's have */
    float mean[COLUMNS_MAX];
    memcpy(mean, mean_row(r->w, r->means, b, head), (size_t)r->columns * sizeof *mean);
    if (r->t->rotate) glint_rotation_flip(mean, r->columns, r->signs);
    for (int64_t c = 0; c < r->columns; c++) x[c] -= mean[c];
  }
  if (r->t->rotate) glint_rotation_mix(x, r->columns);
}

/* The largest finite |x|. */
static float largest_of(const float *x, int64_t n, float largest) {
  for (int64_t c = 0; c < n; c++) {
    float a = fabsf(x[c]);
    largest = a <= FLT_MAX && a > largest ? a : largest;
  }
  return largest;
}

typedef struct quantize_piece {
  int64_t b, head, first, end; /* rows of the sequence; none when end <= first */
  glint_quantize_rows s;
} quantize_piece;

static quantize_piece piece_at(const quantize_run *r, int64_t n) {
  int64_t row = n % r->pieces * r->piece_rows, b = n / r->pieces / r->heads;
  quantize_piece p = {b, n / r->pieces % r->heads, row, row + r->piece_rows, glint_quantize_rows_of(r->w, r->t, b)};
  if (p.end > p.s.used) p.end = p.s.used;
  return p;
}

static float piece_maximum(const quantize_run *r, const quantize_piece *p) {
  float x[COLUMNS_MAX], largest = 0;
  for (int64_t i = p->first; i < p->end; i++) {
    load_ready(r, &p->s, p->b, p->head, i, x);
    largest = largest_of(x, r->columns, largest);
  }
  return largest;
}

static void convert_piece(const quantize_run *r, const quantize_piece *p, float multiplier) {
  float x[COLUMNS_MAX];
  for (int64_t i = p->first; i < p->end; i++) {
    load_ready(r, &p->s, p->b, p->head, i, x);
    store_fp8((uint8_t *)r->t->out.data + quantize_row_at(&r->t->out, &p->s, p->head, i), x, r->columns, multiplier, r->t->out.dtype);
  }
}

/* ---- one tensor ---- */

static float *factor_at(const quantize_run *r, const quantize_piece *p) {
  const glint_view *d = &r->t->descale;
  int64_t block = r->t->block_rows ? p->first / r->t->block_rows : 0;
  return (float *)d->data + p->b * d->stride[0] + p->head / r->t->heads_a_scale * d->stride[1] + block * d->stride[2];
}

/* The factor that pieces first to first + n - 1 share. Their maxima become its multiplier, which is not 1 / descale to the last bit. */
static void set_shared_factor(const quantize_run *r, int64_t first, int64_t n, float *maxima) {
  float largest = 0;
  for (int64_t k = first; k < first + n; k++) largest = maxima[k] > largest ? maxima[k] : largest;
  glint_quantize_factors f = glint_quantize_factors_of(largest, r->largest, r->factor);
  for (int64_t k = first; k < first + n; k++) maxima[k] = f.multiplier;
  quantize_piece p = {.b = first / r->pieces / r->heads, .head = first / r->pieces % r->heads};
  *factor_at(r, &p) = f.descale;
}

/* Sequences without rows have factors too. */
static void set_empty_factors(const quantize_run *r) {
  for (int64_t b = 0; b < r->w->lengths.batch; b++)
    for (int64_t head = 0; head < r->heads; head++) {
      quantize_piece p = {.b = b, .head = head};
      *factor_at(r, &p) = 1;
    }
}

static void quantize_blocks(const quantize_run *r, int64_t all, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < all; n++) {
    quantize_piece p = piece_at(r, n);
    glint_quantize_factors f = glint_quantize_factors_of(piece_maximum(r, &p), r->largest, r->factor);
    *factor_at(r, &p) = f.descale;
    convert_piece(r, &p, f.multiplier);
  }
}

static void quantize_given(const quantize_run *r, int64_t all, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < all; n++) {
    quantize_piece p = piece_at(r, n);
    convert_piece(r, &p, r->factor / *factor_at(r, &p));
  }
}

static void quantize_in_two_passes(const quantize_run *r, int64_t all, float *maxima, int threads) {
  int64_t groups = r->t->shared ? 1 : r->w->lengths.batch * (r->heads / r->t->heads_a_scale);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < all; n++) {
    quantize_piece p = piece_at(r, n);
    maxima[n] = piece_maximum(r, &p);
  }
  for (int64_t g = 0; all && g < groups; g++) set_shared_factor(r, g * (all / groups), all / groups, maxima);
  if (!all) set_empty_factors(r);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < all; n++) {
    quantize_piece p = piece_at(r, n);
    convert_piece(r, &p, maxima[n]);
  }
}

static void quantize_tensor(const glint_quantize_work *w, int n, const float *means, float *maxima, int threads) {
  const glint_quantize_tensor *t = &w->tensor[n];
  quantize_run r = {.w = w, .t = t, .heads = t->in.shape[2], .columns = t->in.shape[3], .means = means, .factor = 1};
  r.smooth = w->smooth && n == GLINT_QUANTIZE_K;
  r.pieces = pieces_of(t, &r.piece_rows);
  r.largest = glint_fp8_largest(w->dtype);
  if (t->rotate) {
    r.factor = glint_rotation_factor(r.columns);
    glint_rotation_signs(w->rotation_seed, r.signs);
  }
  int64_t all = w->lengths.batch * r.heads * r.pieces;
  if (w->descale_given)
    quantize_given(&r, all, threads);
  else if (t->block_rows)
    quantize_blocks(&r, all, threads);
  else
    quantize_in_two_passes(&r, all, maxima, threads);
}

/* ---- smoothing ---- */

static void mean_of_head(const glint_quantize_work *w, int64_t b, int64_t head, float *mean) {
  const glint_quantize_tensor *k = &w->tensor[GLINT_QUANTIZE_K];
  glint_quantize_rows s = glint_quantize_rows_of(w, k, b);
  int64_t columns = k->in.shape[3];
  float sums[GLINT_MEAN_SUMS][COLUMNS_MAX], chunk[COLUMNS_MAX], x[COLUMNS_MAX];
  memset(sums, 0, sizeof sums);
  for (int64_t first = 0; first < s.used; first += GLINT_MEAN_CHUNK) {
    memset(chunk, 0, sizeof chunk);
    for (int64_t i = first; i < s.used && i < first + GLINT_MEAN_CHUNK; i++) {
      load_values(&k->in, quantize_row_at(&k->in, &s, head, i), columns, x);
      for (int64_t c = 0; c < columns; c++) chunk[c] += x[c];
    }
    float *sum = sums[first / GLINT_MEAN_CHUNK % GLINT_MEAN_SUMS];
    for (int64_t c = 0; c < columns; c++) sum[c] += chunk[c];
  }
  for (int64_t c = 0; c < columns; c++) {
    float low = (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]), high = (sums[4][c] + sums[5][c]) + (sums[6][c] + sums[7][c]);
    mean[c] = s.used ? (low + high) / (float)s.used : 0;
  }
}

static void find_means(const glint_quantize_work *w, float *means, int threads) {
  int64_t heads = w->lengths.heads_kv, columns = w->lengths.head_dim;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < w->lengths.batch * heads; n++) mean_of_head(w, n / heads, n % heads, means + n * columns);
  for (int64_t n = 0; w->k_mean.data && n < w->lengths.batch * heads; n++)
    memcpy((float *)w->k_mean.data + n / heads * w->k_mean.stride[0] + n % heads * w->k_mean.stride[1], means + n * columns,
           (size_t)columns * sizeof *means);
}

static void write_lse_shift(const glint_quantize_work *w, const float *means, int threads) {
  const glint_quantize_tensor *q = &w->tensor[GLINT_QUANTIZE_Q];
  int64_t heads = w->lengths.heads_q, group = heads / (means ? w->lengths.heads_kv : w->k_mean.shape[1]), columns = w->lengths.head_dim;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t n = 0; n < w->lengths.batch * heads; n++) {
    int64_t b = n / heads, head = n % heads;
    glint_quantize_rows s = glint_quantize_rows_of(w, q, b);
    const float *mean = mean_row(w, means, b, head / group);
    for (int64_t i = 0; i < s.len; i++) {
      float x[COLUMNS_MAX];
      double sum = 0;
      if (i < s.used) load_values(&q->in, quantize_row_at(&q->in, &s, head, i), columns, x);
      for (int64_t c = 0; i < s.used && c < columns; c++) sum += (double)x[c] * (double)mean[c];
      ((float *)
           w->lse_shift.data)[s.batch * w->lse_shift.stride[0] + head * w->lse_shift.stride[1] + (s.first + i) * w->lse_shift.stride[2]] =
          (float)(sum * (double)w->scale);
    }
  }
}

void glint_cpu_quantize(const glint_quantize_work *w, int threads, void *workspace) {
  float *means = w->smooth == 1 ? workspace : NULL, *maxima = workspace;
  if (maxima) maxima += means_of(w);
  if (means) find_means(w, means, threads);
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++)
    if (w->tensor[n].in.rank) quantize_tensor(w, n, means, maxima, threads);
  if (w->lse_shift.data) write_lse_shift(w, means, threads);
}
