/* What all engines share of quantization: the rotation, and the factors of a block. */
#include "philox.h"
#include "quantization.h"

#include <math.h>

int64_t glint_rotation_block(int64_t head_dim) { return head_dim & -head_dim; }

void glint_rotation_signs(uint64_t seed, uint32_t signs[16]) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (uint32_t n = 0; n < 4; n++) {
    const uint32_t counter[4] = {n, 0, 0, 0};
    glint_philox(counter, key, signs + 4 * n);
  }
}

void glint_rotation_flip(float *x, int64_t head_dim, const uint32_t signs[16]) {
  for (int64_t c = 0; c < head_dim; c++) x[c] = signs[c / 32] >> (c % 32) & 1 ? -x[c] : x[c];
}

void glint_rotation_mix(float *x, int64_t head_dim) {
  int64_t block = glint_rotation_block(head_dim);
  for (int64_t half = 1; half < block; half *= 2)
    for (int64_t start = 0; start < head_dim; start += 2 * half)
      for (int64_t c = start; c < start + half; c++) {
        float a = x[c], b = x[c + half];
        x[c] = a + b;
        x[c + half] = a - b;
      }
}

float glint_rotation_factor(int64_t head_dim) { return (float)(1 / sqrt((double)glint_rotation_block(head_dim))); }

float glint_fp8_largest(glint_dtype dtype) { return dtype == GLINT_FLOAT8_E4M3 ? 448.0f : 57344.0f; }

glint_quantize_factors glint_quantize_factors_of(float amax, float largest, float factor) {
  glint_quantize_factors f = {1, factor};
  if (amax < 0x1p-100f) return f; /* so small that 1 / descale could overflow */
  float unrotated = amax / largest;
  f.descale = unrotated * factor;
  f.multiplier = largest / amax;
  return f;
}

glint_quantize_rows glint_quantize_rows_of(const glint_quantize_work *w, const glint_quantize_tensor *t, int64_t b) {
  glint_sequence s = glint_sequence_of(&w->lengths, b);
  if (t->of_keys) {
    const int32_t *cu = w->lengths.cu_seqlens_k.data;
    return (glint_quantize_rows){s.batch_k, s.row_k, cu ? (int64_t)cu[b + 1] - cu[b] : t->seqlen, s.len_k};
  }
  return (glint_quantize_rows){s.batch_q, s.row_q, s.len_q, s.used_q};
}
