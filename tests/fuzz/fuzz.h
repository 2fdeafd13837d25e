/* What the fuzz targets share. */
#ifndef GLINT_FUZZ_H
#define GLINT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Fails the run where a property does not hold. */
#define FUZZ_REQUIRE(condition)                                                                                                            \
  do {                                                                                                                                     \
    if (!(condition)) __builtin_trap();                                                                                                    \
  } while (0)

/* Reads every byte, so that a sanitizer sees one that is not there. */
static inline void fuzz_touch(const void *data, size_t size) {
  volatile uint8_t sum = 0;
  for (size_t i = 0; i < size; i++) sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
}

#endif
