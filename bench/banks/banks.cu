// One kernel a pattern of patterns.h: one warp repeats the access. Run plainly it prints the clocks an instruction takes; under ncu the counters
// say how many wavefronts it took. Device code and this main only; no part of the library is needed.
#include <cstdio>
#include <cstdlib>

#define REPEATS 64
typedef unsigned int u32;

__device__ u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char memory[];
  return (u32)__cvta_generic_to_shared(memory);
}
__device__ void LD16(u32 a, u32 *r) {
  unsigned short h;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(h) : "r"(a));
  r[0] ^= h;
}
__device__ void LD32(u32 a, u32 *r) {
  u32 x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(a));
  r[0] ^= x;
}
__device__ void LD64(u32 a, u32 *r) {
  u32 x, y;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(x), "=r"(y) : "r"(a));
  r[0] ^= x ^ y;
}
__device__ void LD128(u32 a, u32 *r) {
  u32 x, y, z, w;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(a));
  r[0] ^= x ^ y ^ z ^ w;
}
__device__ void LDSM4(u32 a, u32 *r) {
  u32 x, y, z, w;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(a));
  r[0] ^= x ^ y ^ z ^ w;
}
__device__ void ST32(u32 a, u32 *r) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(r[0]) : "memory"); }
__device__ void ST128(u32 a, u32 *r) { asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(a), "r"(r[0]) : "memory"); }
__device__ void STSM4(u32 a, u32 *r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%1,%1,%1};" ::"r"(a), "r"(r[0]) : "memory");
}

// Each repetition is 128 bytes further on: the same banks, but an address of its own, so that the compiler keeps every access. Shared memory is
// not initialised: the values do not matter, and the stores would be counted.
#define PATTERN(name, instruction, access, bytes, lanes, bits, address, layout, tv)                                                        \
  extern "C" __global__ void name(u32 *out, long long *clocks) {                                                                           \
    u32 l = threadIdx.x, a = shared_base() + (address), r[1] = {l};                                                                        \
    long long start = clock64();                                                                                                           \
    _Pragma("unroll") for (int i = 0; i < REPEATS; i++) instruction(a + 128 * i, r);                                                            \
    long long end = clock64();                                                                                                             \
    out[l] = r[0];                                                                                                                         \
    if (l == 0) *clocks = end - start;                                                                                                     \
  }
#include "patterns.h"
#undef PATTERN

static void check(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  exit(1);
}

int main(void) {
  u32 *out;
  long long *clocks, host;
  check(cudaMalloc(&out, 32 * sizeof *out), "cudaMalloc");
  check(cudaMalloc(&clocks, sizeof *clocks), "cudaMalloc");
  printf("pattern,clocks\n");
  // twice: the first launch of a kernel fetches its code
#define PATTERN(name, instruction, access, bytes, lanes, bits, address, layout, tv)                                                        \
  for (int i = 0; i < 2; i++) {                                                                                                            \
    name<<<1, 32, 16384>>>(out, clocks);                                                                                                    \
    check(cudaDeviceSynchronize(), #name);                                                                                                 \
  }                                                                                                                                        \
  check(cudaMemcpy(&host, clocks, sizeof host, cudaMemcpyDeviceToHost), #name);                                                            \
  printf("%s,%.2f\n", #name, (double)host / REPEATS);
#include "patterns.h"
#undef PATTERN
  return 0;
}
