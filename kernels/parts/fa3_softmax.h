// Masks and the online softmax on the accumulators of Q K^T.
//
// A thread holds, of its rows r and r + 8, the columns 8j + {0, 1} counted from its first one: s[4j + {0, 1}] and s[4j + {2, 3}].
//
// The exponentials of a row are taken relative to a shift that follows its maximum lazily (Dao 2024 credits the idea to FlashAttention-4), and no
// maximum is computed to find out whether it must move: the exponentials are summed anyway, and as long as a thread's share of a row adds
// up to no more than 2^10 none of them can have passed the shift by more than that. Only a sum beyond it, or a row that has seen no key
// yet, makes the warp look for maxima and exponentiate again. Exact, since the row's sum uses the same shift. Whether a row's shift moves
// depends on that row alone, so that results do not depend on neighbours; whether O is multiplied at all is decided once for the warp.
#ifndef GLINT_PARTS_FA3_SOFTMAX_H
#define GLINT_PARTS_FA3_SOFTMAX_H

#define SUM_ROOM 1024.f // small enough for P in fp16, large enough that a shift hardly ever moves
#define LN2      0.69314718f
#define LOG2E    1.44269504f

typedef struct fa3_rows {
  float shift[2]; // in log2 units; 0 before the first visible score
  float room[2];  // the largest sum of a block's exponentials that leaves the shift alone; -1 before the first visible score
  float sum[2];   // of the thread's exponentials
} fa3_rows;

FN void rows_reset(fa3_rows *r) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    r->shift[i] = r->sum[i] = 0.f;
    r->room[i] = -1.f;
  }
}

// Bit e: whether the thread's element e of a row (up to 32 of them), column 8 (e / 2) + e % 2 from its first one, is at most `last`. All bits at once, since
// ptxas tests bits of a word eight at a time (R2P), and comparisons one by one.
FN u32 visible_to(i32 last) {
  i32 count = last < 0 ? 0 : (last / 8) * 2 + 1 + ((last & 7) != 0);
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Scores outside [first, last] of their row become -inf; both count from the thread's first column.
FN void mask_scores(float *s, const i32 *first, const i32 *last) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    u32 visible[2] = {visible_to(last[i]) & ~visible_to(first[i] - 1), 0};
    if (TILE_K > 128) visible[1] = visible_to(last[i] - 128) & ~visible_to(first[i] - 129);
    UNROLL
    for (int e = 0; e < TILE_K / 4; e++)
      if (!(visible[e / 32] & 1u << e % 32)) s[e / 2 * 4 + 2 * i + e % 2] = -INFINITY;
  }
}

// scale * q k^T with softcap and ALiBi, in log2 units. distance[]: of the thread's rows from its first column's key.
FN void bias_scores(float *s, float scale_log2, float softcap_in, float softcap_log2, const float *slope_log2, const i32 *distance) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float d = (float)distance[i];
    UNROLL
    for (int e = 0; e < TILE_K / 4; e++) {
      float *x = &s[e / 2 * 4 + 2 * i + e % 2];
      // tanh x = 1 - 2 / (exp(2x) + 1): as exact as the softmax; tanh.approx is not
      *x = softcap_in > 0.f ? softcap_log2 - 2.f * softcap_log2 * rcp_approx(exp2_approx(*x * softcap_in * (2.f * LOG2E)) + 1.f)
                            : *x * scale_log2;
      *x -= slope_log2[i] * fabsf(d - (float)(e / 2 * 8 + e % 2));
    }
  }
}

// The accumulator layout of the exponentials, packed in order, is the A operand of P V.
FN u32 pack_16(float lo, float hi) { return DTYPE == DTYPE_BF16 ? pack_bf16(lo, hi) : pack_f16(lo, hi); }

// Exponentials of the columns 8j of [from, to), packed into pr[2 from ...]; their sums are added to sum[].
FN void exponentials(const float *s, u32 *pr, const fa3_rows *r, float *sum, float scale_log2, int from, int to) {
  UNROLL
  for (int j = from; j < to; j++) {
    float e[4];
    UNROLL
    for (int i = 0; i < 4; i++) e[i] = exp2_approx(fma_f32(s[4 * j + i], scale_log2, -r->shift[i / 2]));
    sum[0] += e[0] + e[1];
    sum[1] += e[2] + e[3];
    pr[2 * j] = pack_16(e[0], e[1]);
    pr[2 * j + 1] = pack_16(e[2], e[3]);
  }
}

// Moves the shifts of rows with a thread whose sum has passed its room to the row's maximum, and gives the factors that O and the sums owe
// for it. Rows that see nothing yet keep shift 0, so that their scores -inf give exponentials 0, never NaN.
FN void rows_move(const float *s, fa3_rows *r, const float *sum, float *factor, float scale_log2) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float m = s[2 * i], excess = sum[i] - r->room[i];
    UNROLL
    for (int j = 0; j < TILE_K / 8; j++) m = max_f32(m, max_f32(s[4 * j + 2 * i], s[4 * j + 2 * i + 1]));
    m = max_f32(m, shfl_xor_f32(m, 1));
    m = max_f32(m, shfl_xor_f32(m, 2));
    excess = max_f32(excess, shfl_xor_f32(excess, 1));
    excess = max_f32(excess, shfl_xor_f32(excess, 2));
    factor[i] = 1.f;
    if (excess > 0.f && m > -INFINITY) {
      float shift = m * scale_log2;
      factor[i] = r->room[i] < 0.f ? 0.f : exp2_approx(r->shift[i] - shift);
      r->shift[i] = shift;
      r->room[i] = SUM_ROOM;
      r->sum[i] *= factor[i];
    }
  }
}

FN int rows_must_move(const fa3_rows *r, const float *sum) { return any_lane(sum[0] > r->room[0] || sum[1] > r->room[1]); }

FN void scale_rows(float *o, const float *factor) {
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] *= factor[i / 2 % 2];
}

#endif
