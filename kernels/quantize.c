/* q, k and v to FP8 with their factors: rotation, maximum, rounding. Bound by memory: with STEP_BLOCKS every element is read once.
 *
 * A lane owns QUANTIZE_COLUMNS neighbouring columns of a row. Rows are padded to whole lanes and laid end to end, so that the lanes of one
 * Hadamard matrix (a power of two) are neighbours that start at a multiple of their number: four butterflies are the lane's own, the
 * rest, up to 512 columns, exchanges with lane ^ 1, 2, 4, 8, 16. A block of threads has one tile, each thread the same columns of KEEP rows,
 * whose loads are all on their way before the first is used: how many bytes are in flight decides the speed.
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

/* The thread's columns, and its rows: first, first + step, ... of the tile. Threads beyond the last whole row have none. */
typedef struct lane_place {
  i32 column, row, step;
  u32 signs[WORDS]; /* sign bits of the rotation where they stand in a lane's words */
} lane_place;

FN lane_place lane_of(const glint_quantize_params *p, const glint_quantize_operand *t, const tile_place *at) {
  i32 rows = t->step, row = (i32)(tid() * t->vectors_magic >> 16), vector = (i32)tid() - row * t->vectors;
  lane_place l = {vector * C, row < rows ? row : at->rows, rows, {0}};
  u32 bits = ROTATE && t->rotate ? p->signs[vector / 2] >> (vector % 2 * C) : 0;
  UNROLL for (i32 i = 0; i < WORDS; i++) l.signs[i] =
      WORDS == C ? bits >> i << 31 : (bits >> (2 * i) & 1) << 15 | (bits >> (2 * i + 1)) << 31;
  return l;
}

/* The thread's first row of the tile in a tensor; element offset. */
FN i64 offset_of(const glint_stride *stride, const tile_place *at, const lane_place *l) {
  return at->batch * stride->batch + (at->first + at->first_row + l->row) * stride->row + at->head * stride->head + l->column;
}

/* A lane as it lies in memory; zeros beyond the row's end. */
FN void load_words(const glint_quantize_operand *t, const char *from, i32 column, u32 w[WORDS]) {
  if (t->aligned) {
    UNROLL for (i32 k = 0; k < WORDS / 4; k++) gmem_load_16_nc(w + 4 * k, from + 16 * k);
    return;
  }
  UNROLL for (i32 k = 0; k < WORDS; k++) w[k] = 0;
  UNROLL for (i32 k = 0; k < C; k++) {
    if (column + k >= t->columns) continue;
#if DTYPE == DTYPE_FLOAT32
    w[k] = gmem_load_4_nc(from + 4 * k);
#else
    w[k / 2] |= (u32)gmem_load_2_nc(from + 2 * k) << (k % 2 * 16);
#endif
  }
}

FN void load_rows(const glint_quantize_operand *t, const tile_place *at, const lane_place *l, u32 w[KEEP][WORDS]) {
  const char *from = (const char *)t->in + offset_of(&t->in_stride, at, l) * ELEMENT;
  i64 step = l->step * t->in_stride.row * ELEMENT;
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    UNROLL for (i32 k = 0; k < WORDS; k++) w[i][k] = 0;
    if (l->row + i * l->step < at->rows) load_words(t, from, l->column, w[i]);
    from += step;
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

/* The mean gets the signs that x has already: S x - S m = S (x - m), zeros aside. */
FN void subtract_mean(const glint_quantize_operand *t, const tile_place *at, const lane_place *l, float x[C]) {
  const float *mean = t->mean + at->batch * t->mean_batch + at->head * t->mean_head + l->column;
  u32 m[C];
  UNROLL for (i32 i = 0; i < C; i += 4) {
    if (t->mean_aligned) {
      gmem_load_16_nc(m + i, mean + i);
      continue;
    }
    UNROLL for (i32 k = 0; k < 4; k++) m[i + k] = l->column + i + k < t->columns ? gmem_load_4_nc(mean + i + k) : 0;
  }
  UNROLL for (i32 i = 0; i < C; i++) {
    u32 sign = WORDS == C ? l->signs[i] : i % 2 ? l->signs[i / 2] & 0x80000000u : l->signs[i / 2] << 16;
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

/* A row's lane, ready to be scaled and rounded. */
FN void prepare(const glint_quantize_operand *t, const tile_place *at, const lane_place *l, i32 row, const u32 words[WORDS], float x[C]) {
  u32 w[WORDS];
  UNROLL for (i32 k = 0; k < WORDS; k++) w[k] = ROTATE ? words[k] ^ l->signs[k] : words[k];
  unpack(w, x);
  if (t->mean && row < at->rows) subtract_mean(t, at, l, x);
  if (ROTATE && t->rotate) butterflies(t->rotate, x);
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

FN void store(const glint_quantize_params *p, const glint_quantize_operand *t, u8 *to, i32 column, const float x[C], float m) {
  u32 r[C / 4];
  if (p->e5m2) {
    UNROLL for (i32 i = 0; i < C; i += 4) r[i / 4] = pack_e5m2(x[i] * m, x[i + 1] * m, x[i + 2] * m, x[i + 3] * m);
  } else {
    UNROLL for (i32 i = 0; i < C; i += 4) r[i / 4] = pack_e4m3(x[i] * m, x[i + 1] * m, x[i + 2] * m, x[i + 3] * m);
  }
  if (t->aligned) {
    gmem_store_16(to, r);
    return;
  }
  UNROLL for (i32 i = 0; i < C; i++) if (column + i < t->columns) gmem_store_1(to + i, (u8)(r[i / 4] >> (i % 4 * 8)));
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
/* One tile a block. The conversion goes through them backwards: the last ones that STEP_MAXIMA read may still lie in L2. */
KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_quantize_params) {
  i32 tile = STEP == STEP_CONVERT ? p.blocks - 1 - (i32)block_id_x() : (i32)block_id_x();
  const glint_quantize_operand *t = operand_of(&p, tile);
  tile_place at = place_of(t, tile - t->first_block);
  lane_place l = lane_of(&p, t, &at);
  u32 words[KEEP][WORDS];
  float multiplier = 0.f, largest = 0.f, x[STEP == STEP_BLOCKS && ROTATE ? KEEP : 1][C];
  load_rows(t, &at, &l, words);
  if (STEP == STEP_CONVERT) multiplier = gmem_load_f32_nc(t->multipliers + slot_of(t, &at));
  if (STEP != STEP_CONVERT) {
    UNROLL for (i32 i = 0; i < KEEP; i++) {
      float *mine = x[STEP == STEP_BLOCKS && ROTATE ? i : 0];
      prepare(t, &at, &l, l.row + i * l.step, words[i], mine);
      largest = largest_of(mine, largest);
    }
    largest = block_max(largest);
  }
  if (STEP == STEP_MAXIMA) {
    if (tid() == 0) gmem_store_f32(t->maxima + ((i64)at.batch * t->heads + at.head) * t->tiles + at.tile, largest);
    return;
  }
  if (STEP == STEP_BLOCKS) {
    float descale;
    multiplier = multiplier_of(&p, t, largest, &descale);
    if (tid() == 0) gmem_store_f32(descale_of(t, slot_of(t, &at)), descale);
  }
  u8 *to = t->out + offset_of(&t->out_stride, &at, &l);
  i64 step = l.step * t->out_stride.row;
  UNROLL for (i32 i = 0; i < KEEP; i++) {
    float *mine = x[STEP == STEP_BLOCKS && ROTATE ? i : 0];
    if (STEP == STEP_CONVERT || !ROTATE) prepare(t, &at, &l, l.row + i * l.step, words[i], mine);
    if (l.row + i * l.step < at.rows) store(&p, t, to, l.column, mine, multiplier);
    to += step;
  }
}
#endif
