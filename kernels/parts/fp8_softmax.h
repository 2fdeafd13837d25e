// The online softmax on the accumulators of Q K^T, and P as the e4m3 operand of P V.
//
// A thread holds, of its rows r and r + 8, the columns 8j + {0, 1} counted from its first one: s[4j + {0, 1}] and s[4j + {2, 3}].
//
// A row's exponentials are relative to a shift: P = 2^(score - shift), scores in log2 units. e4m3 ends at 448, so a shift is chosen that
// puts the largest score so far at P = 2^TOP_LOG2 (FlashAttention-3 scales by 2^8; here there is room above, too), and stays as long as no
// P reaches 248. No maximum is computed to find that out: a byte of P that is 0x78 (256) or more says so. Only then, or before a row's first
// visible score, whose shift of -inf makes all P infinite, does the warp look for maxima and exponentiate again. Exact, since the row's sum
// uses the same shift. Whether a row's shift moves depends on that row alone; whether O is multiplied is decided once for the warp.
//
// Factors of K's blocks multiply scores where the exponent is formed anyway. Those of V's go into P: with the logarithm of V's factor added to
// the score, P uses e4m3's range for the products p v that count, and the row's sum takes P over the factor.
#ifndef GLINT_PARTS_FP8_SOFTMAX_H
#define GLINT_PARTS_FP8_SOFTMAX_H

#define TOP_LOG2  4.f // P of a fresh maximum
#define MOVE_LOG2 8.f // P from here on moves the shift
#define LN2       0.69314718f
#define LOG2E     1.44269504f

typedef struct fp8_rows {
  float shift[2];   // in log2 units; -inf before the first visible score
  float sum[2];     // of the thread's exponentials
  float p_sum[2];   // of its P before rounding: the same unless V has factors
  float rounded[2]; // of the row's P after rounding
} fp8_rows;

FN void rows_reset(fp8_rows *r) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    r->shift[i] = -INFINITY;
    r->sum[i] = r->p_sum[i] = r->rounded[i] = 0.f;
  }
}

// What a group of 16 keys brings: the factor of its scores to log2 units, V's factor as a logarithm, and its reciprocal.
typedef struct fp8_factors {
  float scale, log2_v, rcp_v;
} fp8_factors;

// The factors of a block of keys: in most, all groups have the same.
typedef struct fp8_block {
  u32 table;   // in shared memory
  int uniform; // `all` holds for all groups, and the table is not read any more
  int scaled;  // scores are in log2 units already
  fp8_factors all;
} fp8_block;

FN fp8_factors entry_factors(const fp8_block *b, int group, float scale, u32 *uniform) {
  u32 entry[4];
  smem_load_16(entry, b->table + (u32)group * 16);
  fp8_factors f = {b->scaled ? 1.f : scale * f32_from_bits(entry[0]), f32_from_bits(entry[1]), f32_from_bits(entry[2])};
  *uniform = entry[3];
  return f;
}

FN fp8_block block_open(u32 table, float scale, int scaled) {
  fp8_block b = {table, 1, scaled, {scale, 0.f, 1.f}};
  u32 uniform = 1;
  if (BLOCK_SCALES) b.all = entry_factors(&b, 0, scale, &uniform);
  b.uniform = uniform != 0;
  return b;
}

FN fp8_factors group_factors(const fp8_block *b, int group, float scale) {
  u32 ignored;
  return BLOCK_SCALES && !b->uniform ? entry_factors(b, group, scale, &ignored) : b->all;
}

// P of the eight scores of group g; returns a word with the highest bit of some byte set where some P is 248 or more, or NaN.
FN u32 exponentials_of_group(const float *s, u32 *pr, int g, float scale, const float *less, float *sum) {
  float e[8];
  UNROLL
  for (int i = 0; i < 8; i++) e[i] = exp2_approx(fma_f32(s[8 * g + i], scale, less[i / 2 % 2]));
  sum[0] += (e[0] + e[1]) + (e[4] + e[5]);
  sum[1] += (e[2] + e[3]) + (e[6] + e[7]);
  pr[2 * g] = pack_e4m3(e[0], e[1], e[4], e[5]);
  pr[2 * g + 1] = pack_e4m3(e[2], e[3], e[6], e[7]);
  return (pr[2 * g] + 0x08080808u) | (pr[2 * g + 1] + 0x08080808u);
}

// P of the columns of groups [from, to), packed into pr[4 from / 2 ...]; the sums are added to sum[] and p_sum[].
FN u32 exponentials(const float *s, u32 *pr, const float *shift, float *sum, float *p_sum, const fp8_block *b, float scale, int from,
                    int to) {
  u32 high = 0;
  if (!BLOCK_SCALES || b->uniform) {
    float less[2] = {b->all.log2_v - shift[0], b->all.log2_v - shift[1]}, of_all[2] = {0.f, 0.f};
    UNROLL
    for (int g = from; g < to; g++) high |= exponentials_of_group(s, pr, g, b->all.scale, less, of_all);
    UNROLL
    for (int i = 0; i < 2; i++) {
      sum[i] = BLOCK_SCALES ? fma_f32(of_all[i], b->all.rcp_v, sum[i]) : sum[i] + of_all[i];
      if (BLOCK_SCALES) p_sum[i] += of_all[i];
    }
  } else {
    UNROLL
    for (int g = from; g < to; g++) {
      fp8_factors f = group_factors(b, g, scale);
      float less[2] = {f.log2_v - shift[0], f.log2_v - shift[1]}, of_group[2] = {0.f, 0.f};
      high |= exponentials_of_group(s, pr, g, f.scale, less, of_group);
      UNROLL
      for (int i = 0; i < 2; i++) {
        sum[i] = fma_f32(of_group[i], f.rcp_v, sum[i]);
        p_sum[i] += of_group[i];
      }
    }
  }
  return high & 0x80808080u;
}

// Moves the shifts of rows with a P beyond 2^MOVE_LOG2 to the row's maximum, gives the factors that O and the sums owe for it, and computes
// the exponentials anew. Rows that see nothing yet keep their shift of -inf; their scores -inf give exponentials 0, never NaN.
FN void exponentials_again(const float *s, u32 *pr, fp8_rows *r, float *sum, float *p_sum, float *factor, const fp8_block *b, float scale) {
  float shift[2];
  UNROLL
  for (int i = 0; i < 2; i++) {
    float m = -INFINITY;
    UNROLL
    for (int g = 0; g < GROUPS; g++) {
      fp8_factors f = group_factors(b, g, scale);
      const float *x = s + 8 * g + 2 * i;
      float of_group = max_f32(max_f32(x[0], x[1]), max_f32(x[4], x[5]));
      m = max_f32(m, fma_f32(of_group, f.scale, f.log2_v));
    }
    m = max_f32(m, shfl_xor_f32(m, 1));
    m = max_f32(m, shfl_xor_f32(m, 2));
    factor[i] = 1.f;
    if (m - r->shift[i] > MOVE_LOG2) {
      factor[i] = exp2_approx(r->shift[i] - (m - TOP_LOG2));
      r->shift[i] = m - TOP_LOG2;
    }
    shift[i] = r->shift[i] == -INFINITY ? 0.f : r->shift[i];
    r->sum[i] *= factor[i];
    r->p_sum[i] *= factor[i];
    r->rounded[i] *= factor[i];
    sum[i] = p_sum[i] = 0.f;
  }
  exponentials(s, pr, shift, sum, p_sum, b, scale, 0, GROUPS);
}

FN void scale_rows(float *o, const float *factor) {
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] *= factor[i / 2 % 2];
}

#endif
