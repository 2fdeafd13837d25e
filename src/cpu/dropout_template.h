/* Dropout's decisions for a panel, one row a lane (Philox4x32-10 as in philox.h; glint.h says which number belongs to which key). Parameters:
 * those of panel_template.h, behind which this is included. In the compiler's own vector types. */

typedef uint32_t FN(words) __attribute__((vector_size(VL * 4)));
typedef uint64_t FN(wide) __attribute__((vector_size(VL * 4)));

/* The halves of the products of all words with m, as two products of every other word. */
static TARGET inline __attribute__((always_inline)) void FN(multiply)(FN(words) x, uint64_t m, FN(words) * high, FN(words) * low) {
  const uint64_t half = 0xFFFFFFFF;
  FN(wide) even = ((FN(wide))x & half) * m, odd = ((FN(wide))x >> 32) * m;
  *high = (FN(words))(even >> 32 | (odd & ~half));
  *low = (FN(words))((even & half) | odd << 32);
}

/* The eight 16-bit numbers of each of VL rows from n on: x[w] holds those of keys 2 w (low half) and 2 w + 1. */
static TARGET inline __attribute__((always_inline)) void FN(dropout_numbers)(const glint_cpu_dropout *d, uint32_t block, int n,
                                                                             FN(words) x[4]) {
  uint32_t k0 = d->key[0], k1 = d->key[1];
  x[0] = (FN(words)){0} + block, x[3] = (FN(words)){0} + d->offset;
  memcpy(&x[1], d->row + n, sizeof x[1]);
  memcpy(&x[2], d->batch_head + n, sizeof x[2]);
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    FN(words) high0, low0, high1, low1;
    FN(multiply)(x[0], 0xD2511F53u, &high0, &low0);
    FN(multiply)(x[2], 0xCD9E8D57u, &high1, &low1);
    x[0] = high1 ^ x[1] ^ k0, x[1] = low1, x[2] = high0 ^ x[3] ^ k1, x[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* All bits where the number of key t is at least threshold. */
#define KEPT(t, threshold) ((FN(words))((x[(t) / 2] >> 16 * ((t) % 2) & 0xFFFF) >= (threshold)))

static TARGET void FN(keep)(float *keep, uint32_t block, int first, int end, const glint_cpu_dropout *d) {
  uint32_t factor;
  memcpy(&factor, &d->factor, sizeof factor);
  for (int n = 0; n < NR; n += VL) {
    FN(words) x[4], bits;
    FN(dropout_numbers)(d, block, n, x);
    for (int t = first; t < end; t++) {
      bits = KEPT(t, d->threshold) & factor;
      memcpy(keep + (ptrdiff_t)(t - first) * NR + n, &bits, sizeof bits);
    }
  }
}

/* Of bfloat16 both halves of a word belong to the numbers of one x. */
static TARGET void FN(drop)(float *p, uint32_t block, int first, int end, const glint_cpu_dropout *d) {
  for (int n = 0; n < NR; n += VL) {
    FN(words) x[4], bits;
    FN(dropout_numbers)(d, block, n, x);
    for (int t = first; t < end; t += 1 + BF16) {
      float *at = p + (ptrdiff_t)((t - first) >> BF16) * NR + n;
      memcpy(&bits, at, sizeof bits);
#if BF16
      bits &= (KEPT(t, d->threshold) & 0xFFFF) | KEPT(t + 1, d->threshold) << 16;
#else
      bits &= KEPT(t, d->threshold);
#endif
      memcpy(at, &bits, sizeof bits);
    }
  }
}
#undef KEPT
