// Masks and the online softmax on the accumulators of Q K^T.
//
// A thread holds, of its rows r and r + 8, the columns 8j + {0, 1} counted from its first one: s[4j + {0, 1}] and s[4j + {2, 3}].
//
// The exponentials of a row are taken relative to a shift that follows its maximum lazily: as long as no score exceeds the shift by more
// than 2^8, it stays, and O needs no rescaling (Dao 2024 credits the idea to FlashAttention-4). Exact, since the row's sum uses the same
// shift. Whether a row's shift moves depends on that row alone, so that results do not depend on neighbours; whether O is multiplied at
// all is decided once for the warp.
#ifndef GLINT_PARTS_FA3_SOFTMAX_H
#define GLINT_PARTS_FA3_SOFTMAX_H

#define LAZY_LOG2 8.f
#define LN2       0.69314718f
#define LOG2E     1.44269504f

typedef struct fa3_rows {
  float shift[2]; // in log2 units; 0 before the first visible score
  float limit[2]; // the largest raw score that leaves the shift alone; -inf before the first visible score
  float sum[2];   // of the thread's exponentials
} fa3_rows;

FN void rows_reset(fa3_rows *r) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    r->shift[i] = r->sum[i] = 0.f;
    r->limit[i] = -INFINITY;
  }
}

// Bit e: whether the thread's element e of a row, column 8 (e / 2) + e % 2 from its first one, is at most `last`. All bits at once, since
// ptxas tests bits of a word eight at a time (R2P), and comparisons one by one.
FN u32 visible_to(i32 last) {
  i32 count = last < 0 ? 0 : (last / 8) * 2 + 1 + ((last & 7) != 0);
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Scores outside [first, last] of their row become -inf; both count from the thread's first column.
FN void mask_scores(float *s, const i32 *first, const i32 *last, int columns) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    u32 visible = visible_to(last[i]) & ~visible_to(first[i] - 1);
    UNROLL
    for (int e = 0; e < columns / 4; e++)
      if (!(visible & 1u << e)) s[e / 2 * 4 + 2 * i + e % 2] = -INFINITY;
  }
}

// scale * q k^T with softcap and ALiBi, in log2 units. distance[]: of the thread's rows from its first column's key.
FN void bias_scores(float *s, float scale_log2, float softcap_in, float softcap_log2, float slope_log2, const i32 *distance, int columns) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float d = (float)distance[i];
    UNROLL
    for (int e = 0; e < columns / 4; e++) {
      float *x = &s[e / 2 * 4 + 2 * i + e % 2];
      // tanh x = 1 - 2 / (exp(2x) + 1): as exact as the softmax; tanh.approx is not
      *x = softcap_in > 0.f ? softcap_log2 - 2.f * softcap_log2 * rcp_approx(exp2_approx(*x * softcap_in * (2.f * LOG2E)) + 1.f)
                            : *x * scale_log2;
      *x -= slope_log2 * fabsf(d - (float)(e / 2 * 8 + e % 2));
    }
  }
}

// Moves the shifts of rows whose maximum (over the row's four threads) has passed the limit, and gives the factors that O and the sums
// owe for it. Rows that see nothing yet keep limit -inf and shift 0, so that their scores -inf give exponentials 0, never NaN.
FN void rows_move(fa3_rows *r, float *m, float *factor, float scale_log2) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    m[i] = max_f32(m[i], shfl_xor_f32(m[i], 1));
    m[i] = max_f32(m[i], shfl_xor_f32(m[i], 2));
    factor[i] = 1.f;
    if (m[i] > r->limit[i]) {
      float shift = m[i] * scale_log2;
      factor[i] = r->limit[i] == -INFINITY ? 0.f : exp2_approx(r->shift[i] - shift);
      r->shift[i] = shift;
      r->limit[i] = m[i] + LAZY_LOG2 * rcp_approx(scale_log2);
      r->sum[i] *= factor[i];
    }
  }
}

// Scores become exponentials; sums are updated. Returns 1 when O must be multiplied by factor[].
FN int softmax(float *s, fa3_rows *r, float *factor, float scale_log2, int columns) {
  float m[2] = {s[0], s[2]};
  UNROLL
  for (int j = 0; j < columns / 8; j++) {
    m[0] = max_f32(m[0], max_f32(s[4 * j], s[4 * j + 1]));
    m[1] = max_f32(m[1], max_f32(s[4 * j + 2], s[4 * j + 3]));
  }
  int move = any_lane(m[0] > r->limit[0] || m[1] > r->limit[1]);
  if (move) rows_move(r, m, factor, scale_log2);
  UNROLL
  for (int j = 0; j < columns / 8; j++) {
    UNROLL
    for (int i = 0; i < 4; i++) s[4 * j + i] = exp2_approx(fma_f32(s[4 * j + i], scale_log2, -r->shift[i / 2]));
    r->sum[0] += s[4 * j] + s[4 * j + 1];
    r->sum[1] += s[4 * j + 2] + s[4 * j + 3];
  }
  return move;
}

// The accumulator layout of the exponentials, packed in order, is the A operand of P V.
FN u32 pack_16(float lo, float hi) { return DTYPE == DTYPE_BF16 ? pack_bf16(lo, hi) : pack_f16(lo, hi); }
FN void pack_p(u32 *p, const float *s, int columns) {
  UNROLL
  for (int i = 0; i < columns / 4; i++) p[i] = pack_16(s[2 * i], s[2 * i + 1]);
}

FN void scale_rows(float *o, const float *factor) {
  UNROLL
  for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] *= factor[i / 2 % 2];
}

#endif
