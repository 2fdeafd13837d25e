/* Random numbers, the same on every machine: splitmix64 (Steele, Lea and Flood, 2014). */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H
#include <math.h>
#include <stdint.h>

static inline uint64_t random_bits(uint64_t *state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* 0 <= x < 1 */
static inline double random_uniform(uint64_t *state) { return (double)(random_bits(state) >> 11) * 0x1p-53; }

/* Mean 0, deviation 1 (Box and Muller, 1958). */
static inline double random_normal(uint64_t *state) {
  double radius = sqrt(-2 * log(1 - random_uniform(state)));
  return radius * cos(6.283185307179586 * random_uniform(state));
}
#endif
