/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), for the dropout mask of glint.h. */
#ifndef GLINT_PARTS_PHILOX_H
#define GLINT_PARTS_PHILOX_H
#include "isa/common.h"

/* counter becomes the four random words. */
FN void philox_4x32(u32 counter[4], u32 key0, u32 key1) {
  NO_UNROLL for (i32 round = 0; round < 10; round++) {
    u32 low0 = 0xD2511F53u * counter[0], high0 = mul_hi_u32(0xD2511F53u, counter[0]);
    u32 low2 = 0xCD9E8D57u * counter[2], high2 = mul_hi_u32(0xCD9E8D57u, counter[2]);
    counter[0] = high2 ^ counter[1] ^ key0;
    counter[1] = low2;
    counter[2] = high0 ^ counter[3] ^ key1;
    counter[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

#endif
