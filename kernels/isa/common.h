// What every kernel starts from: the dialect's few macros, the thread's place in the grid, and the instructions that all machines
// have. Each function is one machine instruction (or the one expression that nvcc turns into it) with two bodies: PTX for the
// GPU, and for gcc a call of the simulator, which also gets the place of the call (file and line) for its reports.
//
// The dialect: C that nvcc accepts as CUDA C and gcc accepts as C. A kernel is
//     KERNEL(forward, 128, forward_params) { ... p.seqlen ... }
// where p is its only parameter, a struct passed by value. Functions are FN. Kernels touch memory only through the gmem_*, smem_*
// and instruction functions (a plain dereference would be invisible to the simulator); local arrays indexed by constants after
// UNROLL are registers. Operands come in PTX order: destination first.
#ifndef GLINT_ISA_COMMON_H
#define GLINT_ISA_COMMON_H

#include "types.h"

#ifdef __CUDACC__ // ---- the GPU -----------------------------------------------------------------------------------------------

#ifdef __CUDACC_RTC__
#define INFINITY __int_as_float(0x7f800000)
#else
#include <math.h>
#endif

#define FN static __device__ __forceinline__
// KERNEL: as many registers as one block of that many threads can have; KERNEL_OCCUPANCY: so few that `blocks` fit on an SM.
#define KERNEL_OCCUPANCY(name, threads, blocks, params_type)                                                                      \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ params_type p)
#define KERNEL(name, threads, params_type) KERNEL_OCCUPANCY(name, threads, 1, params_type)
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

FN u32 tid(void) { return threadIdx.x; } // blocks are one-dimensional
// The same, read once: ptxas, short of registers, would read tid() anew at each use, and that waits behind the memory instructions.
FN u32 tid_in_register(void) {
  u32 v;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
  return v;
}
FN u32 block_threads(void) { return blockDim.x; }
FN u32 block_id_x(void) { return blockIdx.x; }
FN u32 block_id_y(void) { return blockIdx.y; }
FN u32 block_id_z(void) { return blockIdx.z; }
FN u32 grid_size_x(void) { return gridDim.x; }
FN u32 grid_size_y(void) { return gridDim.y; }
FN u32 grid_size_z(void) { return gridDim.z; }
// Address (in the shared window) of the block's dynamic shared memory, 1024-byte aligned.
FN u32 smem_base(void) {
  extern __shared__ __align__(1024) unsigned char glint_smem[];
  return (u32)__cvta_generic_to_shared(glint_smem);
}

// ---- shared memory: addresses in the shared window, aligned to the access ---------------------------------------------------
FN void smem_load_16(u32 r[4], u32 a) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
FN void smem_load_8(u32 r[2], u32 a) { asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory"); }
FN u32 smem_load_4(u32 a) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
  return v;
}
FN u16 smem_load_2(u32 a) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(a) : "memory");
  return v;
}
FN float smem_load_f32(u32 a) { return __uint_as_float(smem_load_4(a)); }
FN void smem_store_16(u32 a, const u32 r[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
FN void smem_store_8(u32 a, const u32 r[2]) { asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(a), "r"(r[0]), "r"(r[1]) : "memory"); }
FN void smem_store_4(u32 a, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }
FN void smem_store_2(u32 a, u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "h"(v) : "memory"); }
FN void smem_store_f32(u32 a, float v) { smem_store_4(a, __float_as_uint(v)); }
FN void smem_red_add_f32(u32 a, float v) { asm volatile("red.shared.add.f32 [%0], %1;" ::"r"(a), "f"(v) : "memory"); }
FN u32 smem_atomic_add_u32(u32 a, u32 v) {
  u32 old;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(a), "r"(v) : "memory");
  return old;
}

// ---- global memory, aligned to the access. _nc: through the read-only path, for data that no one writes during the kernel;
// _stream: read or written once, evicted first ---------------------------------------------------------------------------------
FN void gmem_load_16(u32 r[4], const void *s) {
  uint4 v = *(const uint4 *)s;
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
FN void gmem_load_8(u32 r[2], const void *s) {
  uint2 v = *(const uint2 *)s;
  r[0] = v.x, r[1] = v.y;
}
FN u32 gmem_load_4(const void *s) { return *(const u32 *)s; }
FN u16 gmem_load_2(const void *s) { return *(const u16 *)s; }
FN u8 gmem_load_1(const void *s) { return *(const u8 *)s; }
FN float gmem_load_f32(const void *s) { return *(const float *)s; }
FN void gmem_load_16_nc(u32 r[4], const void *s) {
  uint4 v = __ldg((const uint4 *)s);
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
FN void gmem_load_8_nc(u32 r[2], const void *s) {
  uint2 v = __ldg((const uint2 *)s);
  r[0] = v.x, r[1] = v.y;
}
FN u32 gmem_load_4_nc(const void *s) { return __ldg((const u32 *)s); }
FN u16 gmem_load_2_nc(const void *s) { return __ldg((const u16 *)s); }
FN float gmem_load_f32_nc(const void *s) { return __ldg((const float *)s); }
FN void gmem_load_16_stream(u32 r[4], const void *s) {
  uint4 v = __ldcs((const uint4 *)s);
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
// Through L2 alone: for what other blocks changed in L2 (atomics) since this multiprocessor may have read it.
FN void gmem_load_16_l2(u32 r[4], const void *s) {
  uint4 v = __ldcg((const uint4 *)s);
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
FN void gmem_store_16(void *d, const u32 r[4]) { *(uint4 *)d = make_uint4(r[0], r[1], r[2], r[3]); }
FN void gmem_store_8(void *d, const u32 r[2]) { *(uint2 *)d = make_uint2(r[0], r[1]); }
FN void gmem_store_4(void *d, u32 v) { *(u32 *)d = v; }
FN void gmem_store_2(void *d, u16 v) { *(u16 *)d = v; }
FN void gmem_store_f32(void *d, float v) { *(float *)d = v; }
FN void gmem_store_16_stream(void *d, const u32 r[4]) { __stcs((uint4 *)d, make_uint4(r[0], r[1], r[2], r[3])); }

// Read-modify-write in L2, relaxed at GPU scope. red_*: without the old value.
FN u32 atomic_add_u32(u32 *d, u32 v) { return atomicAdd(d, v); }
FN i32 atomic_add_i32(i32 *d, i32 v) { return atomicAdd(d, v); }
FN u32 atomic_exch_u32(u32 *d, u32 v) { return atomicExch(d, v); }
FN u32 atomic_cas_u32(u32 *d, u32 expected, u32 v) { return atomicCAS(d, expected, v); }
FN i32 atomic_max_i32(i32 *d, i32 v) { return atomicMax(d, v); }
FN void red_add_f32(float *d, float v) { asm volatile("red.global.add.f32 [%0], %1;" ::"l"(d), "f"(v) : "memory"); }
// Flags between blocks: what the releasing thread (or, after a cta_sync, its block) wrote before is visible to who acquires.
FN u32 gmem_load_acquire_u32(const u32 *s) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(s) : "memory");
  return v;
}
FN void gmem_store_release_u32(u32 *d, u32 v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(d), "r"(v) : "memory"); }
FN u32 atomic_add_acq_rel_u32(u32 *d, u32 v) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(d), "r"(v) : "memory");
  return old;
}
// What the thread, and those it has synchronised with, wrote before is visible to whoever acquires the new value.
FN u32 atomic_add_release_u32(u32 *d, u32 v) {
  u32 old;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(d), "r"(v) : "memory");
  return old;
}
FN void nanosleep(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }
FN void fence_gpu(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ---- barriers. cta_sync is barrier 0 with all threads; n counts threads, a multiple of 32 -------------------------------------
FN void cta_sync(void) { __syncthreads(); }
FN void bar_sync(u32 id, u32 n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
FN void bar_arrive(u32 id, u32 n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }
FN void warp_sync(void) { __syncwarp(); }

// ---- exchange between the 32 lanes of a warp, all of which must come ---------------------------------------------------------
FN u32 shfl_xor_u32(u32 v, u32 mask) { return __shfl_xor_sync(~0u, v, (int)mask); }
FN float shfl_xor_f32(float v, u32 mask) { return __shfl_xor_sync(~0u, v, (int)mask); }
FN u32 shfl_idx_u32(u32 v, u32 lane) { return __shfl_sync(~0u, v, (int)lane); }
FN float shfl_idx_f32(float v, u32 lane) { return __shfl_sync(~0u, v, (int)lane); }
FN u32 shfl_up_u32(u32 v, u32 delta) { return __shfl_up_sync(~0u, v, delta); }
FN float shfl_up_f32(float v, u32 delta) { return __shfl_up_sync(~0u, v, delta); }
FN u32 shfl_down_u32(u32 v, u32 delta) { return __shfl_down_sync(~0u, v, delta); }
FN float shfl_down_f32(float v, u32 delta) { return __shfl_down_sync(~0u, v, delta); }
FN int all_lanes(int predicate) { return __all_sync(~0u, predicate); }
FN int any_lane(int predicate) { return __any_sync(~0u, predicate); }
FN u32 ballot_lanes(int predicate) { return __ballot_sync(~0u, predicate); }

// ---- arithmetic ---------------------------------------------------------------------------------------------------------------
FN float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FN float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FN float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FN float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FN float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FN float max_f32(float a, float b) { return fmaxf(a, b); } // of a NaN and a number: the number
FN float min_f32(float a, float b) { return fminf(a, b); }
FN float f32_from_bits(u32 u) { return __uint_as_float(u); }
FN u32 bits_from_f32(float f) { return __float_as_uint(f); }
// Two 16-bit floats in a word, lo in the low half; round to nearest even.
FN u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
FN u32 pack_f16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
FN float unpack_bf16_lo(u32 r) { return __uint_as_float(r << 16); }
FN float unpack_bf16_hi(u32 r) { return __uint_as_float(r & 0xffff0000u); }
FN float unpack_f16_lo(u32 r) {
  float f;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(f) : "r"(r));
  return f;
}
FN float unpack_f16_hi(u32 r) {
  float f;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(f) : "r"(r));
  return f;
}
// Byte i of the result is byte (s >> 4i) & 7 of the eight bytes a (0..3), b (4..7).
FN u32 byte_perm(u32 a, u32 b, u32 s) { return __byte_perm(a, b, s); }
FN u32 mul_hi_u32(u32 a, u32 b) { return __umulhi(a, b); }
FN u32 count_ones(u32 v) { return (u32)__popc(v); }
FN u32 count_leading_zeros(u32 v) { return (u32)__clz((int)v); }

FN u32 clock_cycles(void) {
  u32 v;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(v)::"memory");
  return v;
}
FN u64 global_timer_ns(void) {
  u64 v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}
FN u32 sm_id(void) {
  u32 v;
  asm("mov.u32 %0, %%smid;" : "=r"(v));
  return v;
}
// Keeps ptxas from sinking the computation of x below the next wait: a trap that never fires (x is never negative) depends on it.
FN void compute_before(float x) { asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p trap;\n}" ::"f"(x)); }
FN void compute_before_u32(u32 x) { asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %0, 1;\n@p trap;\n}" ::"r"(x)); } // the same; x is never 1

#else // ---- the simulator ------------------------------------------------------------------------------------------------------

#include "sim_isa.h"
#include <math.h>

#define FN static inline __attribute__((unused))
#define KERNEL_OCCUPANCY(name, threads, blocks, params_type) SIM_KERNEL(name, threads, blocks, params_type)
#define KERNEL(name, threads, params_type) SIM_KERNEL(name, threads, 1, params_type)
#define UNROLL
#define NO_UNROLL

#define tid() sim_tid()
#define tid_in_register() sim_tid()
#define block_threads() sim_block_threads()
#define block_id_x() sim_block_id(0)
#define block_id_y() sim_block_id(1)
#define block_id_z() sim_block_id(2)
#define grid_size_x() sim_grid_size(0)
#define grid_size_y() sim_grid_size(1)
#define grid_size_z() sim_grid_size(2)
#define smem_base() sim_smem_base()

#define smem_load_16(r, a) sim_smem_load(SIM_HERE("ld.shared.v4"), r, a, 16)
#define smem_load_8(r, a) sim_smem_load(SIM_HERE("ld.shared.v2"), r, a, 8)
#define smem_load_4(a) sim_smem_load_u32(SIM_HERE("ld.shared.u32"), a)
#define smem_load_2(a) sim_smem_load_u16(SIM_HERE("ld.shared.u16"), a)
#define smem_load_f32(a) sim_f32(sim_smem_load_u32(SIM_HERE("ld.shared.f32"), a))
#define smem_store_16(a, r) sim_smem_store(SIM_HERE("st.shared.v4"), a, r, 16)
#define smem_store_8(a, r) sim_smem_store(SIM_HERE("st.shared.v2"), a, r, 8)
#define smem_store_4(a, v) sim_smem_store_u32(SIM_HERE("st.shared.u32"), a, v)
#define smem_store_2(a, v) sim_smem_store_u16(SIM_HERE("st.shared.u16"), a, v)
#define smem_store_f32(a, v) sim_smem_store_u32(SIM_HERE("st.shared.f32"), a, sim_bits(v))
#define smem_red_add_f32(a, v) sim_smem_red_add_f32(SIM_HERE("red.shared.add.f32"), a, v)
#define smem_atomic_add_u32(a, v) sim_smem_atomic_add_u32(SIM_HERE("atom.shared.add.u32"), a, v)

#define gmem_load_16(r, s) sim_gmem_load(SIM_HERE("ld.global.v4"), r, s, 16)
#define gmem_load_8(r, s) sim_gmem_load(SIM_HERE("ld.global.v2"), r, s, 8)
#define gmem_load_4(s) sim_gmem_load_u32(SIM_HERE("ld.global.u32"), s)
#define gmem_load_2(s) sim_gmem_load_u16(SIM_HERE("ld.global.u16"), s)
#define gmem_load_1(s) sim_gmem_load_u8(SIM_HERE("ld.global.u8"), s)
#define gmem_load_f32(s) sim_f32(sim_gmem_load_u32(SIM_HERE("ld.global.f32"), s))
#define gmem_load_16_nc(r, s) sim_gmem_load(SIM_HERE("ld.global.nc.v4"), r, s, 16)
#define gmem_load_8_nc(r, s) sim_gmem_load(SIM_HERE("ld.global.nc.v2"), r, s, 8)
#define gmem_load_4_nc(s) sim_gmem_load_u32(SIM_HERE("ld.global.nc.u32"), s)
#define gmem_load_2_nc(s) sim_gmem_load_u16(SIM_HERE("ld.global.nc.u16"), s)
#define gmem_load_f32_nc(s) sim_f32(sim_gmem_load_u32(SIM_HERE("ld.global.nc.f32"), s))
#define gmem_load_16_stream(r, s) sim_gmem_load(SIM_HERE("ld.global.cs.v4"), r, s, 16)
#define gmem_load_16_l2(r, s) sim_gmem_load(SIM_HERE("ld.global.cg.v4"), r, s, 16)
#define gmem_store_16(d, r) sim_gmem_store(SIM_HERE("st.global.v4"), d, r, 16)
#define gmem_store_8(d, r) sim_gmem_store(SIM_HERE("st.global.v2"), d, r, 8)
#define gmem_store_4(d, v) sim_gmem_store_u32(SIM_HERE("st.global.u32"), d, v)
#define gmem_store_2(d, v) sim_gmem_store_u16(SIM_HERE("st.global.u16"), d, v)
#define gmem_store_f32(d, v) sim_gmem_store_u32(SIM_HERE("st.global.f32"), d, sim_bits(v))
#define gmem_store_16_stream(d, r) sim_gmem_store(SIM_HERE("st.global.cs.v4"), d, r, 16)

#define atomic_add_u32(d, v) sim_atomic_u32(SIM_HERE("atom.global.add.u32"), SIM_ATOMIC_ADD, d, v, 0)
#define atomic_add_i32(d, v) (i32) sim_atomic_u32(SIM_HERE("atom.global.add.u32"), SIM_ATOMIC_ADD, d, (u32)(v), 0)
#define atomic_exch_u32(d, v) sim_atomic_u32(SIM_HERE("atom.global.exch.b32"), SIM_ATOMIC_EXCH, d, v, 0)
#define atomic_cas_u32(d, expected, v) sim_atomic_u32(SIM_HERE("atom.global.cas.b32"), SIM_ATOMIC_CAS, d, v, expected)
#define atomic_max_i32(d, v) (i32) sim_atomic_u32(SIM_HERE("atom.global.max.s32"), SIM_ATOMIC_MAX_I32, d, (u32)(v), 0)
#define red_add_f32(d, v) sim_red_add_f32(SIM_HERE("red.global.add.f32"), d, &(const float){v}, 1)
#define gmem_load_acquire_u32(s) sim_gmem_load_acquire(SIM_HERE("ld.acquire.gpu.u32"), s)
#define gmem_store_release_u32(d, v) sim_gmem_store_release(SIM_HERE("st.release.gpu.u32"), d, v)
#define atomic_add_acq_rel_u32(d, v) sim_atomic_u32(SIM_HERE("atom.acq_rel.gpu.add.u32"), SIM_ATOMIC_ADD_ACQ_REL, d, v, 0)
#define atomic_add_release_u32(d, v) sim_atomic_u32(SIM_HERE("atom.release.gpu.add.u32"), SIM_ATOMIC_ADD_ACQ_REL, d, v, 0)
#define nanosleep(ns) ((void)(ns))
#define fence_gpu() sim_fence_gpu()

#define cta_sync() sim_bar_sync(SIM_HERE("bar.sync 0"), 0, sim_block_threads())
#define bar_sync(id, n) sim_bar_sync(SIM_HERE("bar.sync"), id, n)
#define bar_arrive(id, n) sim_bar_arrive(SIM_HERE("bar.arrive"), id, n)
#define warp_sync() sim_warp_sync(SIM_HERE("bar.warp.sync"))

#define shfl_xor_u32(v, m) sim_shuffle(SIM_HERE("shfl.bfly"), SIM_SHFL_XOR, v, m)
#define shfl_xor_f32(v, m) sim_f32(sim_shuffle(SIM_HERE("shfl.bfly"), SIM_SHFL_XOR, sim_bits(v), m))
#define shfl_idx_u32(v, l) sim_shuffle(SIM_HERE("shfl.idx"), SIM_SHFL_IDX, v, l)
#define shfl_idx_f32(v, l) sim_f32(sim_shuffle(SIM_HERE("shfl.idx"), SIM_SHFL_IDX, sim_bits(v), l))
#define shfl_up_u32(v, n) sim_shuffle(SIM_HERE("shfl.up"), SIM_SHFL_UP, v, n)
#define shfl_up_f32(v, n) sim_f32(sim_shuffle(SIM_HERE("shfl.up"), SIM_SHFL_UP, sim_bits(v), n))
#define shfl_down_u32(v, n) sim_shuffle(SIM_HERE("shfl.down"), SIM_SHFL_DOWN, v, n)
#define shfl_down_f32(v, n) sim_f32(sim_shuffle(SIM_HERE("shfl.down"), SIM_SHFL_DOWN, sim_bits(v), n))
#define all_lanes(c) (sim_ballot(SIM_HERE("vote.all"), c) == 0xffffffffu)
#define any_lane(c) (sim_ballot(SIM_HERE("vote.any"), c) != 0)
#define ballot_lanes(c) sim_ballot(SIM_HERE("vote.ballot"), c)

#define exp2_approx(x) sim_exp2(SIM_HERE("ex2.approx"), x)
#define log2_approx(x) sim_log2(x)
#define tanh_approx(x) sim_tanh(x)
#define rcp_approx(x) sim_rcp(x)
FN float fma_f32(float a, float b, float c) { return fmaf(a, b, c); }
FN float max_f32(float a, float b) { return b != b || a > b ? a : b; }
FN float min_f32(float a, float b) { return b != b || a < b ? a : b; }
FN float f32_from_bits(u32 u) { return sim_f32(u); }
FN u32 bits_from_f32(float f) { return sim_bits(f); }
#define pack_bf16(lo, hi) sim_cvt_bf16x2(SIM_HERE("cvt.rn.bf16x2"), lo, hi)
#define pack_f16(lo, hi) sim_cvt_f16x2(SIM_HERE("cvt.rn.f16x2"), lo, hi)
FN float unpack_bf16_lo(u32 r) { return sim_f32(r << 16); }
FN float unpack_bf16_hi(u32 r) { return sim_f32(r & 0xffff0000u); }
FN float unpack_f16_lo(u32 r) { return sim_f16_to_f32((u16)r); }
FN float unpack_f16_hi(u32 r) { return sim_f16_to_f32((u16)(r >> 16)); }
FN u32 byte_perm(u32 a, u32 b, u32 s) {
  u64 bytes = (u64)b << 32 | a;
  u32 r = 0;
  for (u32 i = 0; i < 4; i++) r |= (u32)((bytes >> (8 * (s >> (4 * i) & 7))) & 255) << (8 * i);
  return r;
}
FN u32 mul_hi_u32(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
FN u32 count_ones(u32 v) { return (u32)__builtin_popcount(v); }
FN u32 count_leading_zeros(u32 v) { return v ? (u32)__builtin_clz(v) : 32; }
#define clock_cycles() sim_clock()
#define global_timer_ns() ((u64)sim_clock())
#define sm_id() 0u
#define compute_before(x) ((void)(x))
#define compute_before_u32(x) ((void)(x))

#endif
#endif
