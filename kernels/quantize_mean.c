/* The mean of k over each sequence, and what its subtraction takes from lse. The order of additions is that of src/cpu/quantize.c: chunks of
 * QUANTIZE_CHUNK rows one row after the other, chunk n into sum n % QUANTIZE_SUMS, then the sums in pairs. */
#include "isa/sm90_bytes.h"
#include "quantize_params.h"

#if DTYPE == DTYPE_FLOAT32
#define ELEMENT 4
#else
#define ELEMENT 2
#endif

FN float load_element(const char *at) {
#if DTYPE == DTYPE_FLOAT32
  return gmem_load_f32_nc(at);
#elif DTYPE == DTYPE_BF16
  return unpack_bf16_lo(gmem_load_2_nc(at));
#else
  return unpack_f16_lo(gmem_load_2_nc(at));
#endif
}

/* Rows of a sequence that are used, and the first one's place. */
typedef struct sequence_rows {
  i64 first;
  i32 used, len;
} sequence_rows;

FN sequence_rows rows_of(const i32 *cu_seqlens, const i32 *seqused, i32 seqlen, i32 batch) {
  sequence_rows s = {0, seqlen, seqlen};
  if (cu_seqlens) {
    s.first = (i32)gmem_load_4_nc(cu_seqlens + batch);
    s.len = s.used = (i32)gmem_load_4_nc(cu_seqlens + batch + 1) - (i32)s.first;
  }
  if (seqused) s.used = (i32)gmem_load_4_nc(seqused + batch);
  return s;
}

#if STEP == STEP_SUMS
#define C     8 /* columns of a lane */
#define WORDS (C * ELEMENT / 4)
#define ROWS  4 /* in flight */

FN void load_row(const glint_quantize_mean_params *p, const char *at, i32 column, float x[C]) {
  u32 w[WORDS];
  if (!p->k_aligned) {
    UNROLL for (i32 i = 0; i < C; i++) x[i] = column + i < p->columns ? load_element(at + i * ELEMENT) : 0.f;
    return;
  }
  UNROLL for (i32 i = 0; i < WORDS / 4; i++) gmem_load_16_nc(w + 4 * i, at + 16 * i);
#if DTYPE == DTYPE_FLOAT32
  UNROLL for (i32 i = 0; i < C; i++) x[i] = f32_from_bits(w[i]);
#elif DTYPE == DTYPE_BF16
  UNROLL for (i32 i = 0; i < C; i++) x[i] = i % 2 ? unpack_bf16_hi(w[i / 2]) : unpack_bf16_lo(w[i / 2]);
#else
  UNROLL for (i32 i = 0; i < C; i++) x[i] = i % 2 ? unpack_f16_hi(w[i / 2]) : unpack_f16_lo(w[i / 2]);
#endif
}

/* A lane adds up C columns of a chunk; neighbours have neighbouring columns, then neighbouring heads. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_mean_params) {
  i64 n = (i64)block_id_x() * THREADS + tid(), vectors = (p.columns + C - 1) / C, each = vectors * p.heads_kv;
  i32 column = (i32)(n % vectors) * C, head = (i32)(n / vectors % p.heads_kv), chunk = (i32)(n / each % p.chunks),
      batch = (i32)(n / each / p.chunks);
  if (batch >= p.batch) return;
  sequence_rows s = rows_of(p.cu_seqlens_k, p.seqused_k, p.seqlen_k, batch);
  i32 first = chunk * QUANTIZE_CHUNK, count = s.used - first;
  const char *k =
      (const char *)p.k + (batch * p.k_stride.batch + (s.first + first) * p.k_stride.row + head * p.k_stride.head + column) * ELEMENT;
  float sum[C], x[ROWS][C];
  UNROLL for (i32 i = 0; i < C; i++) sum[i] = 0.f;
  NO_UNROLL for (i32 row = 0; row < QUANTIZE_CHUNK && row < count; row += ROWS) {
    UNROLL for (i32 r = 0; r < ROWS; r++) if (row + r < count) load_row(&p, k + (row + r) * p.k_stride.row * ELEMENT, column, x[r]);
    UNROLL for (i32 r = 0; r < ROWS; r++) {
      if (row + r >= count) continue;
      UNROLL for (i32 i = 0; i < C; i++) sum[i] += x[r][i];
    }
  }
  float *to = p.sums + (((i64)batch * p.heads_kv + head) * p.chunks + chunk) * p.columns + column;
  UNROLL for (i32 i = 0; i < C; i++) if (column + i < p.columns) gmem_store_f32(to + i, sum[i]);
}

#elif STEP == STEP_MEANS
#define MEAN_COLUMNS (THREADS / QUANTIZE_SUMS)
/* A block has MEAN_COLUMNS columns of one head, each thread one of a column's sums. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_mean_params) {
  i32 parts = (p.columns + MEAN_COLUMNS - 1) / MEAN_COLUMNS, pair = (i32)block_id_x() / parts, batch = pair / p.heads_kv,
      head = pair % p.heads_kv;
  i32 local = (i32)tid() % MEAN_COLUMNS, column = (i32)block_id_x() % parts * MEAN_COLUMNS + local, n = (i32)tid() / MEAN_COLUMNS;
  sequence_rows s = rows_of(p.cu_seqlens_k, p.seqused_k, p.seqlen_k, batch);
  i32 chunks = (s.used + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK;
  float sum = 0.f;
  if (column < p.columns)
    for (i32 chunk = n; chunk < chunks; chunk += QUANTIZE_SUMS)
      sum += gmem_load_f32_nc(p.sums + ((i64)pair * p.chunks + chunk) * p.columns + column);
  smem_store_f32(smem_base() + 4 * tid(), sum);
  cta_sync();
  if (n != 0 || column >= p.columns) return;
  float part[QUANTIZE_SUMS];
  UNROLL for (i32 i = 0; i < QUANTIZE_SUMS; i++) part[i] = smem_load_f32(smem_base() + 4 * (u32)(i * MEAN_COLUMNS + local));
  float low = (part[0] + part[1]) + (part[2] + part[3]), high = (part[4] + part[5]) + (part[6] + part[7]);
  float mean = s.used ? (low + high) / (float)s.used : 0.f;
  gmem_store_f32(p.mean + batch * p.mean_batch + head * p.mean_head + column, mean);
  if (p.mean_copy) gmem_store_f32(p.mean_copy + batch * p.copy_batch + head * p.copy_head + column, mean);
}

#else
/* A warp has a row of q. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_mean_params) {
  i64 n = (i64)block_id_x() * (THREADS / 32) + tid() / 32;
  i32 head = (i32)(n % p.heads_q), row = (i32)(n / p.heads_q % p.seqlen_q), batch = (i32)(n / p.heads_q / p.seqlen_q);
  if (batch >= p.batch) return;
  sequence_rows s = rows_of(p.cu_seqlens_q, p.seqused_q, p.seqlen_q, batch);
  if (row >= s.len) return;
  float sum = 0.f;
  if (row < s.used) {
    const char *q = (const char *)p.q + (batch * p.q_stride.batch + (s.first + row) * p.q_stride.row + head * p.q_stride.head) * ELEMENT;
    const float *mean = p.mean + batch * p.mean_batch + head / p.group * p.mean_head;
    for (i32 c = (i32)(tid() % 32); c < p.columns; c += 32)
      sum = fma_f32(load_element(q + (i64)c * ELEMENT), gmem_load_f32_nc(mean + c), sum);
    UNROLL for (u32 m = 16; m; m /= 2) sum += shfl_xor_f32(sum, m);
  }
  if (tid() % 32 == 0) gmem_store_f32(p.shift + batch * p.shift_batch + head * p.shift_head + (s.first + row) * p.shift_row, sum * p.scale);
}
#endif
