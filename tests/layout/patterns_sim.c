// The patterns of bench/banks/patterns.h as kernels for the simulator: fill shared memory, then one access.
#include "sim_params.h"
#include "sm90.h"

#define LD16(a)  sum = smem_load_2(a)
#define LD32(a)  sum = smem_load_4(a)
#define LD64(a)  smem_load_8(r, a)
#define LD128(a) smem_load_16(r, a)
#define LDSM4(a) ldmatrix_x4(r, a)
#define ST32(a)  smem_store_4(a, l)
#define ST128(a) smem_store_16(a, r)
#define STSM4(a) stmatrix_x4(a, r)

// The fill has an instruction of its own, so that the report tells it from the access.
#define PATTERN(name, instruction, access, bytes, lanes, bits, address, layout, tv)                                                        \
  KERNEL(pattern_##name, 32, test_params) {                                                                                                \
    u32 s = smem_base(), l = tid(), sum = 0, r[4] = {0, 0, 0, 0};                                                                          \
    for (u32 i = 4 * l; i < 8192; i += 128) smem_store_f32(s + i, 0.f);                                                                    \
    cta_sync();                                                                                                                            \
    instruction(s + (address));                                                                                                            \
    gmem_store_4(p.out + l, sum + r[0]);                                                                                                   \
  }
#include "../../bench/banks/patterns.h"
#undef PATTERN
