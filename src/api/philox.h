/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the dropout decision of glint.h. Header only:
 * the CPU kernels inline it. */
#ifndef GLINT_PHILOX_H
#define GLINT_PHILOX_H
#include <stdint.h>

static inline void glint_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The eight 16-bit numbers of row i, keys 8 * block to 8 * block + 7. */
static inline void glint_dropout_block(uint64_t seed, uint64_t offset, uint32_t batch_head, uint32_t row, uint32_t block, uint16_t u[8]) {
  uint32_t counter[4] = {block, row, batch_head, (uint32_t)offset};
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(offset >> 32)}, x[4];
  glint_philox(counter, key, x);
  for (int w = 0; w < 4; w++) u[2 * w] = (uint16_t)x[w], u[2 * w + 1] = (uint16_t)(x[w] >> 16);
}
#endif
