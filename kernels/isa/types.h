// The plain types that kernels and the host code which fills their parameters share. C and CUDA C; needs no other header, so
// that NVRTC takes it too.
#ifndef GLINT_ISA_TYPES_H
#define GLINT_ISA_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// A TMA descriptor: the 128 opaque bytes of CUtensorMap. A member of a kernel's parameter struct; the driver (or the simulator's
// sim_tensor_map_encode) fills it.
#if defined(__CUDACC__) || defined(__GNUC__)
typedef struct __attribute__((aligned(64))) tensor_map {
  u64 opaque[16];
} tensor_map;
#else
typedef struct tensor_map {
  _Alignas(64) u64 opaque[16];
} tensor_map;
#endif

#endif
