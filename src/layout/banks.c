/* The banks of shared memory and the sectors of global memory: what one warp-wide instruction costs, from its lanes' addresses.
 *
 * Shared memory has 32 banks of 4 bytes; in one wavefront each bank gives one word, to as many lanes as want it. An instruction of up to 4
 * bytes a lane is served in one phase of 32 lanes, 8 bytes in two of 16, 16 bytes in four of 8; ldmatrix and stmatrix in one phase a
 * matrix of 8 rows. A phase takes as many wavefronts as its busiest bank has distinct words. Lanes that want the same word share it. */
#include "tree.h"

#include <string.h>

enum { BANKS = 32, LANES = 32 };

/* The distinct words that the lanes of one phase touch: at most 32, since phases share 128 bytes out. */
static void count_phase(const uint64_t *address, uint32_t lanes, int32_t bytes, glint_bank_phase *phase) {
  uint64_t word[LANES] = {0};
  int32_t n = 0, words_per_lane = bytes > 4 ? bytes / 4 : 1;
  memset(phase, 0, sizeof *phase);
  phase->lanes = lanes;
  for (int32_t lane = 0; lane < LANES; lane++) {
    if (!(lanes >> lane & 1)) continue;
    for (int32_t k = 0; k < words_per_lane; k++) {
      uint64_t w = address[lane] / 4 + (uint64_t)k;
      int32_t seen = 0;
      while (seen < n && word[seen] != w) seen++;
      if (seen < n) continue;
      word[n++] = w;
      uint8_t degree = ++phase->words[w % BANKS];
      if (degree > phase->degree) phase->degree = degree;
    }
  }
}

static int32_t count_distinct(const uint64_t *address, uint32_t active, uint64_t granule) {
  uint64_t seen[LANES] = {0};
  int32_t n = 0;
  for (int32_t lane = 0; lane < LANES; lane++) {
    if (!(active >> lane & 1)) continue;
    uint64_t g = address[lane] / granule; /* aligned vectors of up to 16 bytes lie inside one granule */
    int32_t i = 0;
    while (i < n && seen[i] != g) i++;
    if (i == n) seen[n++] = g;
  }
  return n;
}

glint_status glint_bank_count(glint_access_kind kind, int32_t bytes, const uint64_t address[32], uint32_t active, glint_bank_report *report,
                              glint_layout_error *error) {
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "bytes is %d, expected 1, 2, 4, 8 or 16", bytes);
  if (kind == GLINT_ACCESS_LDMATRIX && bytes != 16)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "bytes is %d, expected 16 for a row of ldmatrix", bytes);
  for (int32_t lane = 0; lane < LANES; lane++)
    if ((active >> lane & 1) && address[lane] % (uint64_t)bytes != 0)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "lane %d: address %llu is not a multiple of %d bytes", lane,
                         (unsigned long long)address[lane], bytes);
  memset(report, 0, sizeof *report);
  if (kind == GLINT_ACCESS_GLOBAL) {
    report->sectors = count_distinct(address, active, 32);
    report->lines = count_distinct(address, active, 128);
    return GLINT_OK;
  }
  report->phase_count = bytes == 16 ? 4 : bytes == 8 ? 2 : 1;
  int32_t lanes = LANES / report->phase_count;
  for (int32_t p = 0; p < report->phase_count; p++) {
    uint32_t mask = lanes == LANES ? ~0u : ((1u << lanes) - 1) << (p * lanes);
    count_phase(address, active & mask, bytes, &report->phase[p]);
    report->wavefronts += report->phase[p].degree;
    report->ideal += report->phase[p].degree > 0;
  }
  return GLINT_OK;
}
