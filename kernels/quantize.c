/* q, k and v to FP8 with their factors: rotation, maximum, rounding. Bound by memory: with STEP_BLOCKS every element is read once, from then on
 * it stays in registers.
 *
 * A lane owns QUANTIZE_COLUMNS neighbouring columns of a row. Rows are padded to whole lanes and laid end to end, so that the lanes of one
 * Hadamard matrix (a power of two) are neighbours that start at a multiple of their number: four butterflies are the lane's own, the
 * rest, up to 512 columns, exchanges with lane ^ 1, 2, 4, 8, 16. Each block of threads has one tile, each thread KEEP lanes of it.
 *
 * All arithmetic on values is that of src/cpu/quantize.c, in its order: the engines agree bit for bit. */
#include "isa/sm90_bytes.h"
#include "quantize_params.h"

#define C QUANTIZE_COLUMNS
#if DTYPE == DTYPE_FLOAT32
#define WORDS C
#else
#define WORDS (C / 2)
#endif
#define ELEMENT (4 * WORDS / C)

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

/* Lane number n of a tile: its row and its vector of columns. */
FN i32 row_of(const glint_quantize_operand *t, u32 n) { return (i32)(t->vectors == 1 ? n : mul_hi_u32(n, t->vectors_magic)); }

FN const char *in_at(const glint_quantize_operand *t, const tile_place *at, i32 row, i32 column) {
  return (const char *)t->in +
         (at->batch * t->in_stride.batch + (at->first + at->first_row + row) * t->in_stride.row + at->head * t->in_stride.head + column) *
             ELEMENT;
}

/* Columns of a lane as they lie in memory; zeros beyond the row's end. */
FN void load_words(const glint_quantize_operand *t, const tile_place *at, i32 row, i32 vector, u32 w[WORDS]) {
  UNROLL for (i32 i = 0; i < WORDS; i++) w[i] = 0;
  if (row >= at->rows) return;
  const char *from = in_at(t, at, row, vector * C);
  if (t->aligned) {
    UNROLL for (i32 i = 0; i < WORDS / 4; i++) gmem_load_16_nc(w + 4 * i, from + 16 * i);
    return;
  }
  UNROLL for (i32 i = 0; i < C; i++) {
    if (vector * C + i >= t->columns) continue;
#if DTYPE == DTYPE_FLOAT32
    w[i] = gmem_load_4_nc(from + 4 * i);
#else
    w[i / 2] |= (u32)gmem_load_2_nc(from + 2 * i) << (i % 2 * 16);
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

FN void subtract_mean(const glint_quantize_operand *t, const tile_place *at, i32 row, i32 vector, float x[C]) {
  if (row >= at->rows) return;
  const float *mean = t->mean + at->batch * t->mean_batch + at->head * t->mean_head + vector * C;
  UNROLL for (i32 i = 0; i < C; i++) if (vector * C + i < t->columns) x[i] -= gmem_load_f32_nc(mean + i);
}

/* x = H S x, neighbours first. All lanes of the warp take part. */
FN void rotate(const glint_quantize_params *p, const glint_quantize_operand *t, i32 vector, float x[C]) {
  u32 signs = p->signs[vector / 2] >> (vector % 2 * C);
  UNROLL for (i32 i = 0; i < C; i++) x[i] = f32_from_bits(bits_from_f32(x[i]) ^ (signs << (31 - i) & 0x80000000u));
  UNROLL for (i32 half = 1; half < C; half *= 2) {
    if (half >= t->rotate) continue;
    UNROLL for (i32 i = 0; i < C; i++) {
      if (i & half) continue;
      float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  UNROLL for (u32 lanes = 1; lanes < 32; lanes *= 2) {
    if ((i32)lanes * C >= t->rotate) continue;
    float mine = tid() & lanes ? -1.f : 1.f;
    UNROLL for (i32 i = 0; i < C; i++) {
      float other = shfl_xor_f32(x[i], lanes);
      x[i] = fma_f32(mine, x[i], other);
    }
  }
}

FN void prepare(const glint_quantize_params *p, const glint_quantize_operand *t, const tile_place *at, i32 row, i32 vector,
                const u32 w[WORDS], float x[C]) {
  unpack(w, x);
  if (t->mean) subtract_mean(t, at, row, vector, x);
  if (t->rotate) rotate(p, t, vector, x);
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

/* Over the block; every thread gets it. */
FN float block_max(float x) {
  UNROLL for (u32 m = 16; m; m /= 2) x = max_f32(x, shfl_xor_f32(x, m));
  if (tid() % 32 == 0) smem_store_f32(smem_base() + tid() / 32 * 4, x);
  cta_sync();
  float all = tid() % 32 < block_threads() / 32 ? smem_load_f32(smem_base() + tid() % 32 * 4) : 0.f;
  UNROLL for (u32 m = 16; m; m /= 2) all = max_f32(all, shfl_xor_f32(all, m));
  return all;
}

FN void store(const glint_quantize_params *p, const glint_quantize_operand *t, const tile_place *at, i32 row, i32 vector, const float x[C],
              float multiplier) {
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
  largest = block_max(largest);
  multiplier = multiplier_of(&p, t, largest, &descale);
  if (tid() == 0) {
    gmem_store_f32(t->multipliers + slot, multiplier);
    gmem_store_f32(descale_of(t, slot), descale);
  }
}
#else
/* One tile a block. The conversion goes through the tiles backwards: the last ones that STEP_MAXIMA read may still lie in L2. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_params) {
  i32 block = STEP == STEP_CONVERT ? p.blocks - 1 - (i32)block_id_x() : (i32)block_id_x();
  const glint_quantize_operand *t = operand_of(&p, block);
  tile_place at = place_of(t, block - t->first_block);
  i32 slot = slot_of(t, &at);
  u32 words[KEEP][WORDS], lanes = block_threads();
  i32 row[KEEP], vector[KEEP];
  float multiplier = 0.f, largest = 0.f;
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    u32 n = tid() + (u32)i * lanes;
    row[i] = row_of(t, n);
    vector[i] = (i32)n - row[i] * t->vectors;
    load_words(t, &at, row[i], vector[i], words[i]);
  }
#if STEP == STEP_BLOCKS
  float x[KEEP][C], descale;
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    prepare(&p, t, &at, row[i], vector[i], words[i], x[i]);
    largest = largest_of(x[i], largest);
  }
  multiplier = multiplier_of(&p, t, block_max(largest), &descale);
  if (tid() == 0) gmem_store_f32(descale_of(t, slot), descale);
  UNROLL for (i32 i = 0; i < KEEP; i++) store(&p, t, &at, row[i], vector[i], x[i], multiplier);
#else
  float x[C];
  if (STEP == STEP_CONVERT) multiplier = gmem_load_f32_nc(t->multipliers + slot);
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    prepare(&p, t, &at, row[i], vector[i], words[i], x);
    if (STEP == STEP_MAXIMA)
      largest = largest_of(x, largest);
    else
      store(&p, t, &at, row[i], vector[i], x, multiplier);
  }
  if (STEP == STEP_MAXIMA) {
    largest = block_max(largest);
    if (tid() == 0) gmem_store_f32(t->maxima + ((i64)at.batch * t->heads + at.head) * t->tiles + at.tile, largest);
  }
#endif
}
#endif
