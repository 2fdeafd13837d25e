/* Online softmax on the accumulators of a warp's matrix product: s[m][j][4] holds, of 16-row tile m, rows lane / 4 (elements 0, 1) and
 * lane / 4 + 8 (elements 2, 3), columns 8j + 2 (lane % 4) + {0, 1}: a row lies in four neighbouring lanes.
 *
 * A row's exponentials are taken against a reference, and any reference gives the same quotient o / sum. It
 * follows the row's maximum lazily: it stays while no score exceeds it by more than 2^8, which float32 sums and 16-bit probabilities hold
 * easily (the idea of FlashAttention-4's rescaling threshold). As long as it stays, a block needs neither the maximum over the four lanes nor
 * a multiplication of o. Each row decides by itself, so that its bits do not depend on the rows beside it; only the branch is taken per warp. */
#ifndef GLINT_PARTS_SOFTMAX_H
#define GLINT_PARTS_SOFTMAX_H
#include "isa/common.h"

#ifndef SCORE_FEATURES
#define SCORE_FEATURES 0 /* s holds products: scores are s * scale */
#endif
#define LN2       0.69314718f
#define LOG2E     1.44269504f
#define SLACK     8.f /* in log2 units */
#define FLOAT_MAX 3.402823466e38f

/* Units of the reference, and how an exponent comes from a score. Products: log2 units, so that one fused multiply-add serves; no key yet is
 * the lowest finite number, with which -inf - reference stays -inf. Scores that a bias may have pushed to the lowest finite number:
 * natural units, because log2 units would overflow, and no key yet is -inf. */
#if SCORE_FEATURES
#define REFERENCE_NONE (-INFINITY)
#define REFERENCE_LOG2 LOG2E /* log2 units in a unit of the reference */
FN float to_reference(float top, float scale) { return (void)scale, top; }
FN float exponent(float s, float scale, float reference) { return (void)scale, (s - (reference == -INFINITY ? 0.f : reference)) * LOG2E; }
#else
#define REFERENCE_NONE (-FLOAT_MAX)
#define REFERENCE_LOG2 1.f
FN float to_reference(float top, float scale) { return top * scale; }
FN float exponent(float s, float scale, float reference) { return fma_f32(s, scale, -reference); }
#endif

typedef struct row_stats {
  float reference[M_TILES][2];
  float sum[M_TILES][2]; /* this lane's share of the row's sum of exp2(exponent) */
} row_stats;

FN void clear_stats(row_stats *r) {
  UNROLL for (int m = 0; m < M_TILES; m++) UNROLL for (int h = 0; h < 2; h++) {
    r->reference[m][h] = REFERENCE_NONE;
    r->sum[m][h] = 0.f;
  }
}

/* Over the four lanes that hold a row. */
FN float row_max(float v) {
  v = max_f32(v, shfl_xor_f32(v, 1));
  return max_f32(v, shfl_xor_f32(v, 2));
}
FN float row_sum(float v) {
  v += shfl_xor_f32(v, 1);
  return v + shfl_xor_f32(v, 2);
}

/* Is no score of this row above what its reference allows? False for NaN. */
FN int reference_holds(float max, float scale, float reference) {
  return SCORE_FEATURES ? max == -INFINITY || (max - reference) * LOG2E <= SLACK : fma_f32(max, scale, -reference) <= SLACK;
}

/* Brings the references up to the block of scores s, and o and the sums with them. Comes before the block's exponentials. */
FN void raise_references(row_stats *r, const float s[M_TILES][N_TILES][4], float o[M_TILES][V_TILES][4], float scale) {
  float max[M_TILES][2];
  int holds = 1;
  UNROLL for (int m = 0; m < M_TILES; m++) UNROLL for (int h = 0; h < 2; h++) {
    max[m][h] = max_f32(s[m][0][2 * h], s[m][0][2 * h + 1]);
    UNROLL for (int j = 1; j < N_TILES; j++) max[m][h] = max_f32(max[m][h], max_f32(s[m][j][2 * h], s[m][j][2 * h + 1]));
    holds = holds && reference_holds(max[m][h], scale, r->reference[m][h]);
  }
  if (all_lanes(holds)) return;
  UNROLL for (int m = 0; m < M_TILES; m++) UNROLL for (int h = 0; h < 2; h++) {
    float top = row_max(max[m][h]);
    float factor = 1.f;
    if (!reference_holds(top, scale, r->reference[m][h])) {
      float reference = to_reference(top, scale);
      factor = exp2_approx((r->reference[m][h] - reference) * REFERENCE_LOG2);
      r->reference[m][h] = reference;
    }
    r->sum[m][h] *= factor;
    UNROLL for (int n = 0; n < V_TILES; n++) o[m][n][2 * h] *= factor, o[m][n][2 * h + 1] *= factor;
  }
}

/* Scores of keys 16c to 16c + 15 become exponentials, added to the sums. */
FN void exponentials(row_stats *r, float s[M_TILES][N_TILES][4], int c, float scale) {
  UNROLL for (int m = 0; m < M_TILES; m++) UNROLL for (int j = 2 * c; j < 2 * c + 2; j++) {
    UNROLL for (int i = 0; i < 4; i++) s[m][j][i] = exp2_approx(exponent(s[m][j][i], scale, r->reference[m][i / 2]));
    r->sum[m][0] += s[m][j][0] + s[m][j][1];
    r->sum[m][1] += s[m][j][2] + s[m][j][3];
  }
}
#endif
