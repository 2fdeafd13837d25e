/* q, k and v to FP8 with their factors: rotation, maximum, rounding. Bound by memory: with STEP_BLOCKS every element is read once.
 *
 * A lane owns QUANTIZE_COLUMNS neighbouring columns of a row. Rows are padded to whole lanes and laid end to end, so that the lanes of one
 * Hadamard matrix (a power of two) are neighbours that start at a multiple of their number: four butterflies are the lane's own, the
 * rest, up to 512 columns, exchanges with lane ^ 1, 2, 4, 8, 16. A block of threads has one tile at a time, each thread KEEP lanes of it.
 *
 * Blocks are persistent: while a tile is computed the next one is on its way into shared memory, or the memory would idle. A thread copies
 * and reads its own words only, so no barrier guards them.
 *
 * All arithmetic on values is that of src/cpu/quantize.c, in its order: the engines agree bit for bit. */
#include "isa/sm80.h"
#include "isa/sm90_bytes.h"
#include "quantize_params.h"

#define C QUANTIZE_COLUMNS
#if DTYPE == DTYPE_FLOAT32
#define WORDS C
#else
#define WORDS (C / 2)
#endif
#define ELEMENT (4 * WORDS / C)

/* Shared memory: two sets of maxima, one a warp; sign bits of the 32 vectors of 512 columns, where they stand in a lane's words; two tiles. */
#define AT_MAXIMA 0u
#define AT_SIGNS  256u
#define AT_TILES  QUANTIZE_SHARED

typedef struct tile_place {
  i32 batch, head, tile;
  i32 first_row, rows; /* of the sequence; rows in use, 0 or fewer: none */
  i64 first;           /* row of the packed tensor where the sequence starts; 0 when dense */
} tile_place;

FN const glint_quantize_operand *operand_of(const glint_quantize_params *p, i32 block) {
  i32 n = 0;
  while (n + 1 < p->operands && block >= p->operand[n + 1].first_block) n++;
  return &p->operand[n];
}

FN tile_place place_of(const glint_quantize_operand *t, i32 n) {
  tile_place at = {n / t->heads / t->tiles, n % t->heads, n / t->heads % t->tiles, 0, t->seqlen, 0};
  if (t->cu_seqlens) {
    at.first = (i32)gmem_load_4_nc(t->cu_seqlens + at.batch);
    at.rows = (i32)gmem_load_4_nc(t->cu_seqlens + at.batch + 1) - (i32)at.first;
  }
  if (t->seqused) at.rows = (i32)gmem_load_4_nc(t->seqused + at.batch);
  at.first_row = at.tile * t->rows;
  at.rows -= at.first_row;
  if (at.rows > t->rows) at.rows = t->rows;
  return at;
}

/* Where the slot of a tile keeps its factor, and its number. */
FN i32 slot_of(const glint_quantize_operand *t, const tile_place *at) {
  i32 block = t->block_tiles ? at->tile / t->block_tiles : 0;
  return t->shared ? 0 : (at->batch * (t->heads / t->heads_a_scale) + at->head / t->heads_a_scale) * t->blocks + block;
}
FN float *descale_of(const glint_quantize_operand *t, i32 slot) {
  i32 groups = t->heads / t->heads_a_scale, pair = slot / t->blocks;
  return t->descale + pair / groups * t->descale_batch + pair % groups * t->descale_head + slot % t->blocks * t->descale_block;
}

FN const char *in_at(const glint_quantize_operand *t, const tile_place *at, i32 row, i32 column) {
  return (const char *)t->in +
         (at->batch * t->in_stride.batch + (at->first + at->first_row + row) * t->in_stride.row + at->head * t->in_stride.head + column) *
             ELEMENT;
}

/* Four words of a lane in one of the two buffers: neighbouring threads are neighbours. */
FN u32 slot_at(u32 buffer, i32 i, i32 quarter) {
  return smem_base() + AT_TILES + (((buffer * KEEP + (u32)i) * (WORDS / 4) + (u32)quarter) * block_threads() + tid()) * 16;
}

/* Where the thread's lane number i of a tile lies. */
FN i32 lane_of(const glint_quantize_operand *t, i32 i, i32 *vector) {
  u32 n = tid() + (u32)i * block_threads();
  i32 row = (i32)(t->vectors == 1 ? n : mul_hi_u32(n, t->vectors_magic));
  *vector = (i32)n - row * t->vectors;
  return row;
}

FN void fetch_tile(const glint_quantize_operand *t, const tile_place *at, u32 buffer) {
  if (!t->aligned) return; /* such rows are read where they lie */
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    i32 vector, row = lane_of(t, i, &vector);
    if (row >= at->rows) continue;
    const char *from = in_at(t, at, row, vector * C);
    UNROLL for (i32 k = 0; k < WORDS / 4; k++) cp_async_16(slot_at(buffer, i, k), from + 16 * k);
  }
}

/* A lane's columns; zeros beyond the row's end. */
FN void load_words(const glint_quantize_operand *t, const tile_place *at, u32 buffer, i32 i, i32 row, i32 vector, u32 w[WORDS]) {
  UNROLL for (i32 k = 0; k < WORDS; k++) w[k] = 0;
  if (row >= at->rows) return;
  if (t->aligned) {
    UNROLL for (i32 k = 0; k < WORDS / 4; k++) smem_load_16(w + 4 * k, slot_at(buffer, i, k));
    return;
  }
  const char *from = in_at(t, at, row, vector * C);
  UNROLL for (i32 k = 0; k < C; k++) {
    if (vector * C + k >= t->columns) continue;
#if DTYPE == DTYPE_FLOAT32
    w[k] = gmem_load_4_nc(from + 4 * k);
#else
    w[k / 2] |= (u32)gmem_load_2_nc(from + 2 * k) << (k % 2 * 16);
#endif
  }
}

FN void unpack(const u32 w[WORDS], float x[C]) {
#if DTYPE == DTYPE_FLOAT32
  UNROLL for (i32 i = 0; i < C; i++) x[i] = f32_from_bits(w[i]);
#elif DTYPE == DTYPE_BF16
  UNROLL for (i32 i = 0; i < WORDS; i++) x[2 * i] = unpack_bf16_lo(w[i]), x[2 * i + 1] = unpack_bf16_hi(w[i]);
#else
  UNROLL for (i32 i = 0; i < WORDS; i++) x[2 * i] = unpack_f16_lo(w[i]), x[2 * i + 1] = unpack_f16_hi(w[i]);
#endif
}

FN void make_signs(const glint_quantize_params *p) {
  for (u32 n = tid(); n < 32 * WORDS; n += block_threads()) {
    u32 first = n * C / WORDS, bits = p->signs[first / 32] >> (first % 32);
    smem_store_4(smem_base() + AT_SIGNS + 4 * n, WORDS == C ? bits << 31 : (bits & 1) << 15 | (bits & 2) << 30);
  }
  cta_sync();
}

FN void load_signs(i32 vector, u32 signs[WORDS]) {
  UNROLL for (i32 k = 0; k < WORDS / 4; k++) smem_load_16(signs + 4 * k, smem_base() + AT_SIGNS + (u32)(vector * WORDS + 4 * k) * 4);
}

/* The mean gets the signs that x has already: S x - S m = S (x - m), zeros aside. */
FN void subtract_mean(const glint_quantize_operand *t, const tile_place *at, i32 vector, const u32 signs[WORDS], float x[C]) {
  const float *mean = t->mean + at->batch * t->mean_batch + at->head * t->mean_head + vector * C;
  u32 m[C];
  UNROLL for (i32 i = 0; i < C; i += 4) {
    if (t->mean_aligned) {
      gmem_load_16_nc(m + i, mean + i);
      continue;
    }
    UNROLL for (i32 k = 0; k < 4; k++) m[i + k] = vector * C + i + k < t->columns ? gmem_load_4_nc(mean + i + k) : 0;
  }
  UNROLL for (i32 i = 0; i < C; i++) {
    u32 sign = WORDS == C ? signs[i] : i % 2 ? signs[i / 2] & 0x80000000u : signs[i / 2] << 16;
    x[i] -= f32_from_bits(m[i] ^ (sign & 0x80000000u));
  }
}

/* x = H x, neighbours first. All lanes of the warp take part. */
FN void butterflies(i32 columns, float x[C]) {
  UNROLL for (i32 half = 1; half < C; half *= 2) {
    if (half >= columns) continue;
    UNROLL for (i32 i = 0; i < C; i++) {
      if (i & half) continue;
      float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  UNROLL for (u32 lanes = 1; lanes < 32; lanes *= 2) {
    if ((i32)lanes * C >= columns) continue;
    float mine = tid() & lanes ? -1.f : 1.f;
    UNROLL for (i32 i = 0; i < C; i++) {
      float other = shfl_xor_f32(x[i], lanes);
      x[i] = fma_f32(mine, x[i], other);
    }
  }
}

/* The thread's lane i, ready to be scaled and rounded. */
FN void prepare(const glint_quantize_operand *t, const tile_place *at, u32 buffer, i32 i, float x[C]) {
  i32 vector, row = lane_of(t, i, &vector);
  u32 w[WORDS], signs[WORDS];
  load_words(t, at, buffer, i, row, vector, w);
  UNROLL for (i32 k = 0; k < WORDS; k++) signs[k] = 0;
  if (t->rotate) {
    load_signs(vector, signs);
    UNROLL for (i32 k = 0; k < WORDS; k++) w[k] ^= signs[k];
  }
  unpack(w, x);
  if (t->mean && row < at->rows) subtract_mean(t, at, vector, signs, x);
  if (t->rotate) butterflies(t->rotate, x);
}

/* The largest finite |x|: max_f32 passes over NaN; an infinity is rare enough to look again. */
FN float largest_of(const float x[C], float largest) {
  float max = largest;
  UNROLL for (i32 i = 0; i < C; i++) max = max_f32(max, abs_f32(x[i]));
  if (max != INFINITY) return max;
  max = largest;
  UNROLL for (i32 i = 0; i < C; i++) max = abs_f32(x[i]) == INFINITY ? max : max_f32(max, abs_f32(x[i]));
  return max;
}

/* Over the block; every thread gets it. Calls take turns between two sets of slots: nobody writes what a slow warp still reads. */
FN float block_max(float x, u32 turn) {
  u32 slots = smem_base() + AT_MAXIMA + turn % 2 * 64;
  UNROLL for (u32 m = 16; m; m /= 2) x = max_f32(x, shfl_xor_f32(x, m));
  if (tid() % 32 == 0) smem_store_f32(slots + tid() / 32 * 4, x);
  cta_sync();
  float all = tid() % 32 < block_threads() / 32 ? smem_load_f32(slots + tid() % 32 * 4) : 0.f;
  UNROLL for (u32 m = 8; m; m /= 2) all = max_f32(all, shfl_xor_f32(all, m));
  return shfl_idx_f32(all, 0);
}

FN void store(const glint_quantize_params *p, const glint_quantize_operand *t, const tile_place *at, i32 lane, const float x[C],
              float multiplier) {
  i32 vector, row = lane_of(t, lane, &vector);
  u32 r[C / 4];
  if (row >= at->rows) return;
  if (p->e5m2) {
    UNROLL for (i32 i = 0; i < C / 4; i++) r[i] =
        pack_e5m2(x[4 * i] * multiplier, x[4 * i + 1] * multiplier, x[4 * i + 2] * multiplier, x[4 * i + 3] * multiplier);
  } else {
    UNROLL for (i32 i = 0; i < C / 4; i++) r[i] =
        pack_e4m3(x[4 * i] * multiplier, x[4 * i + 1] * multiplier, x[4 * i + 2] * multiplier, x[4 * i + 3] * multiplier);
  }
  u8 *to = t->out + at->batch * t->out_stride.batch + (at->first + at->first_row + row) * t->out_stride.row +
           at->head * t->out_stride.head + vector * C;
  if (t->aligned) {
    gmem_store_16(to, r);
    return;
  }
  UNROLL for (i32 i = 0; i < C; i++) if (vector * C + i < t->columns) gmem_store_1(to + i, (u8)(r[i / 4] >> (i % 4 * 8)));
}

/* glint_quantize_factors_of. */
FN float multiplier_of(const glint_quantize_params *p, const glint_quantize_operand *t, float largest, float *descale) {
  *descale = 1.f;
  if (largest < 0x1p-100f) return t->factor;
  float unrotated = largest / p->largest;
  *descale = unrotated * t->factor;
  return p->largest / largest;
}

#if STEP == STEP_FACTORS
/* One slot a block. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_params) {
  const glint_quantize_operand *t = operand_of(&p, (i32)block_id_x());
  i32 slot = (i32)block_id_x() - t->first_block;
  float largest = 0.f, descale, multiplier;
  if (p.given) {
    if (tid() == 0) gmem_store_f32(t->multipliers + slot, t->factor / gmem_load_f32_nc(descale_of(t, slot)));
    return;
  }
  for (i32 n = (i32)tid(); n < t->slot_tiles; n += THREADS)
    largest = max_f32(largest, gmem_load_f32_nc(t->maxima + (i64)slot * t->slot_tiles + n));
  largest = block_max(largest, 0);
  multiplier = multiplier_of(&p, t, largest, &descale);
  if (tid() == 0) {
    gmem_store_f32(t->multipliers + slot, multiplier);
    gmem_store_f32(descale_of(t, slot), descale);
  }
}
#else
FN void compute_tile(const glint_quantize_params *p, const glint_quantize_operand *t, const tile_place *at, u32 buffer) {
  float multiplier = 0.f, largest = 0.f;
#if STEP == STEP_BLOCKS
  float x[KEEP][C], descale;
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    prepare(t, at, buffer, i, x[i]);
    largest = largest_of(x[i], largest);
  }
  multiplier = multiplier_of(p, t, block_max(largest, buffer), &descale);
  if (tid() == 0) gmem_store_f32(descale_of(t, slot_of(t, at)), descale);
  UNROLL for (i32 i = 0; i < KEEP; i++) store(p, t, at, i, x[i], multiplier);
#else
  float x[C];
  if (STEP == STEP_CONVERT) multiplier = gmem_load_f32_nc(t->multipliers + slot_of(t, at));
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    prepare(t, at, buffer, i, x);
    if (STEP == STEP_MAXIMA)
      largest = largest_of(x, largest);
    else
      store(p, t, at, i, x, multiplier);
  }
  if (STEP == STEP_MAXIMA) {
    largest = block_max(largest, buffer);
    if (tid() == 0) gmem_store_f32(t->maxima + ((i64)at->batch * t->heads + at->head) * t->tiles + at->tile, largest);
  }
#endif
}

/* Tiles block_id, block_id + grid, ... The conversion goes through them backwards: the last ones that STEP_MAXIMA read may still lie in L2. */
FN const glint_quantize_operand *begin_tile(const glint_quantize_params *p, i32 n, tile_place *at, u32 buffer) {
  i32 tile = STEP == STEP_CONVERT ? p->blocks - 1 - n : n;
  const glint_quantize_operand *t = operand_of(p, tile);
  *at = place_of(t, tile - t->first_block);
  fetch_tile(t, at, buffer);
  return t;
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_params) {
  tile_place at, next_at;
  i32 n = (i32)block_id_x(), grid = (i32)grid_size_x();
  u32 buffer = 0;
  make_signs(&p);
  const glint_quantize_operand *t = begin_tile(&p, n, &at, 0), *next = t;
  cp_async_commit();
  next_at = at;
  NO_UNROLL for (; n < p.blocks; n += grid) {
    if (n + grid < p.blocks) next = begin_tile(&p, n + grid, &next_at, buffer ^ 1);
    cp_async_commit();
    cp_async_wait(1);
    compute_tile(&p, t, &at, buffer);
    t = next;
    at = next_at;
    buffer ^= 1;
  }
}
#endif
