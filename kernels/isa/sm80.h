// Instructions from Ampere (sm_80) on: asynchronous 16-byte copies, mbarriers, matrix loads from shared memory, and the warp's matrix product.
// PTX manual, sections cp.async, ldmatrix, mma.
#ifndef GLINT_ISA_SM80_H
#define GLINT_ISA_SM80_H

#include "common.h"

// ---- cp.async: global to shared memory without registers. A thread's copies since its last commit form a group; wait(n) leaves at
// most the n youngest groups (n constant) in flight. It covers the thread's own copies only: a barrier makes them visible to others.
// _zfill: the first src_bytes bytes are copied (0, 8 or 16...), the rest of the 16 is zero; with 0 the source is not read.
#ifdef __CUDACC__
FN void cp_async_16(u32 dst, const void *src) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory"); }
FN void cp_async_16_zfill(u32 dst, const void *src, u32 src_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(src_bytes) : "memory");
}
FN void cp_async_8(u32 dst, const void *src) { asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dst), "l"(src) : "memory"); }
FN void cp_async_4(u32 dst, const void *src) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory"); }
FN void cp_async_4_zfill(u32 dst, const void *src, u32 src_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(src_bytes) : "memory");
}
FN void cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define cp_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define cp_async_16(dst, src) sim_cp_async(SIM_HERE("cp.async 16"), dst, src, 16, 16)
#define cp_async_16_zfill(dst, src, src_bytes) sim_cp_async(SIM_HERE("cp.async 16"), dst, src, 16, src_bytes)
#define cp_async_8(dst, src) sim_cp_async(SIM_HERE("cp.async 8"), dst, src, 8, 8)
#define cp_async_4(dst, src) sim_cp_async(SIM_HERE("cp.async 4"), dst, src, 4, 4)
#define cp_async_4_zfill(dst, src, src_bytes) sim_cp_async(SIM_HERE("cp.async 4"), dst, src, 4, src_bytes)
#define cp_async_commit() sim_cp_async_commit(SIM_HERE("cp.async.commit_group"))
#define cp_async_wait(n) sim_cp_async_wait(SIM_HERE("cp.async.wait_group"), n)
#endif

// ---- mbarrier: 8 bytes of shared memory, 8-byte aligned. A phase completes when `count` arrivals have come; wait(parity) returns once the
// phase of that parity is complete (a fresh barrier counts as having completed parity 1). After init: a cta_sync.
#ifdef __CUDACC__
FN void mbarrier_init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
FN void mbarrier_inval(u32 bar) { asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(bar) : "memory"); }
FN void mbarrier_arrive(u32 bar) { asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(bar) : "memory"); }
FN void mbarrier_wait(u32 bar, u32 parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nW:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}\n" ::"r"(bar), "r"(parity)
               : "memory");
#else
  asm volatile("{\n.reg .pred p;\nW:\nmbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}\n" ::"r"(bar), "r"(parity) : "memory");
#endif
}
// 1 when the phase is complete, without blocking
FN int mbarrier_test_wait(u32 bar, u32 parity) {
  u32 done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
  return (int)done;
}
// One arrival when all earlier cp.async of this thread have landed; it counts against the barrier's count (noinc).
FN void cp_async_mbarrier_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory"); }
#else
#define mbarrier_init(bar, count) sim_mbarrier_init(SIM_HERE("mbarrier.init"), bar, count)
#define mbarrier_inval(bar) sim_mbarrier_inval(SIM_HERE("mbarrier.inval"), bar)
#define mbarrier_arrive(bar) sim_mbarrier_arrive(SIM_HERE("mbarrier.arrive"), bar, 1, 0)
#define mbarrier_wait(bar, parity) sim_mbarrier_wait(SIM_HERE("mbarrier.try_wait"), bar, parity)
#define mbarrier_test_wait(bar, parity) sim_mbarrier_test_wait(SIM_HERE("mbarrier.test_wait"), bar, parity)
#define cp_async_mbarrier_arrive(bar) sim_cp_async_mbarrier_arrive(SIM_HERE("cp.async.mbarrier.arrive.noinc"), bar)
#endif

// ---- ldmatrix: 8x8 matrices of 16-bit elements. Lane 8i + r gives the address of row r (16 bytes) of matrix i; register i of
// lane l receives row l / 4, elements 2 (l % 4) and the next; with trans, of the transposed matrix.
#ifdef __CUDACC__
FN void ldmatrix_x4(u32 r[4], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
FN void ldmatrix_x2(u32 r[2], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
}
FN void ldmatrix_x1(u32 r[1], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(a) : "memory");
}
FN void ldmatrix_x4_trans(u32 r[4], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
FN void ldmatrix_x2_trans(u32 r[2], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
}
FN void ldmatrix_x1_trans(u32 r[1], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(a) : "memory");
}
// Transposes one 8x8 matrix held by the warp, a register a lane.
FN u32 movmatrix_trans(u32 v) {
  u32 r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  return r;
}
#else
#define ldmatrix_x4(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x4"), r, a, 4, 0)
#define ldmatrix_x2(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x2"), r, a, 2, 0)
#define ldmatrix_x1(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x1"), r, a, 1, 0)
#define ldmatrix_x4_trans(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x4.trans"), r, a, 4, 1)
#define ldmatrix_x2_trans(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x2.trans"), r, a, 2, 1)
#define ldmatrix_x1_trans(r, a) sim_ldmatrix(SIM_HERE("ldmatrix.x1.trans"), r, a, 1, 1)
#define movmatrix_trans(v) sim_movmatrix(SIM_HERE("movmatrix.trans"), v)
#endif

// ---- mma: d (16x8, float32) += a (16x16) b (16x8). With g = lane / 4, t = lane % 4:
//   a[0] row g, k 2t..; a[1] row g + 8; a[2] row g, k 8 + 2t..; a[3] row g + 8, k 8 + 2t..   (two 16-bit elements each)
//   b[0] k 2t.., column g; b[1] k 8 + 2t..
//   d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8
#ifdef __CUDACC__
FN void mma_m16n8k16_bf16(float d[4], const u32 a[4], const u32 b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FN void mma_m16n8k16_f16(float d[4], const u32 a[4], const u32 b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
#define mma_m16n8k16_bf16(d, a, b) sim_mma_m16n8k16(SIM_HERE("mma.m16n8k16.bf16"), SIM_BF16, d, a, b)
#define mma_m16n8k16_f16(d, a, b) sim_mma_m16n8k16(SIM_HERE("mma.m16n8k16.f16"), SIM_F16, d, a, b)
#endif

// ---- two 16-bit floats at once; fma rounds once -------------------------------------------------------------------------------
#ifdef __CUDACC__
FN u32 exp2_approx_f16x2(u32 x) {
  u32 y;
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
FN u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
FN u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
#else
#define exp2_approx_f16x2(x) sim_exp2_f16x2(x)
#define fma_f16x2(a, b, c) sim_fma_f16x2(a, b, c)
#define fma_bf16x2(a, b, c) sim_fma_bf16x2(a, b, c)
#endif

#endif
