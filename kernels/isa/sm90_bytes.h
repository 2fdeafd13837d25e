// What quantization needs beyond sm90.h: stores of single bytes, e5m2, absolute values. A header of its own because few kernels want it.
#ifndef GLINT_ISA_SM90_BYTES_H
#define GLINT_ISA_SM90_BYTES_H
#include "sm90.h"

FN float abs_f32(float x) { return fabsf(x); }
#ifdef __CUDACC__
FN void gmem_store_1(void *d, u8 v) { *(u8 *)d = v; }
// Four bytes to a word, the first lowest; saturating, ties to even.
FN u32 pack_e5m2(float x0, float x1, float x2, float x3) {
  u32 r;
  asm("{\n.reg .b16 l, h;\ncvt.rn.satfinite.e5m2x2.f32 l, %2, %1;\ncvt.rn.satfinite.e5m2x2.f32 h, %4, %3;\nmov.b32 %0, {l, h};\n}"
      : "=r"(r)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return r;
}
#else
#define gmem_store_1(d, v) sim_gmem_store_u8(SIM_HERE("st.global.u8"), d, v)
#define pack_e5m2(x0, x1, x2, x3) sim_pack_e5m2(x0, x1, x2, x3)
#endif
#endif
