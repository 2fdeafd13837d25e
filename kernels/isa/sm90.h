// Instructions of Hopper (sm_90a): mbarriers that count bytes, the tensor memory accelerator (TMA), the warpgroup's asynchronous matrix product,
// register reallocation. Everything of sm80.h besides. PTX manual, sections mbarrier, cp.async.bulk, wgmma, setmaxnreg.
#ifndef GLINT_ISA_SM90_H
#define GLINT_ISA_SM90_H

#include "sm80.h"

// ---- mbarriers (sm80.h) that also count bytes: a phase completes when all arrivals have come and every expected byte has landed. After
// mbarrier_init: fence_mbarrier_init by the same thread, then a cta_sync.
#ifdef __CUDACC__
FN void fence_mbarrier_init(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FN void mbarrier_arrive_expect_tx(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
FN void mbarrier_expect_tx(u32 bar, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
#else
#define fence_mbarrier_init() sim_fence_mbarrier_init(SIM_HERE("fence.mbarrier_init"))
#define mbarrier_arrive_expect_tx(bar, bytes) sim_mbarrier_arrive(SIM_HERE("mbarrier.arrive.expect_tx"), bar, 1, bytes)
#define mbarrier_expect_tx(bar, bytes) sim_mbarrier_arrive(SIM_HERE("mbarrier.expect_tx"), bar, 0, bytes)
#endif

// ---- proxies: ordinary accesses and those of TMA and wgmma are ordered only by this fence, executed by the thread whose ordinary
// accesses are meant, before the barrier that hands the data on. fence_proxy_async: shared memory; _global: global memory.
#ifdef __CUDACC__
FN void fence_proxy_async(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
FN void fence_proxy_async_global(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }
#else
#define fence_proxy_async() sim_fence_proxy_async(SIM_HERE("fence.proxy.async.shared"), 0)
#define fence_proxy_async_global() sim_fence_proxy_async(SIM_HERE("fence.proxy.async.global"), 1)
#endif

// ---- TMA. Tensor copies move one box at the given element coordinates, innermost first; elements outside the tensor are filled on
// load (counted as landed bytes) and skipped on store. Destination 128-byte aligned, 1024 with the 128-byte swizzle. _hint: with an
// L2 cache policy. Stores and reductions are grouped by commit; wait_read(n): all but the n youngest groups have read their shared
// memory; wait(n): they have also written. Issued by one thread. Bulk copies (_1d) move bytes, all operands multiples of 16.
#ifdef __CUDACC__
#define ISA_TMA_LOAD(rank, coordinates)                                                                                           \
  "cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates "}], [%2];"
#define ISA_TMA_LOAD_HINT(rank, coordinates, policy)                                                                              \
  "cp.async.bulk.tensor." rank                                                                                                    \
  ".shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {" coordinates "}], [%2], " policy ";"
#define ISA_TMA_STORE(rank, coordinates) "cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [%0, {" coordinates "}], [%1];"
#define ISA_TMA_ADD(rank, coordinates) "cp.reduce.async.bulk.tensor." rank ".global.shared::cta.add.bulk_group [%0, {" coordinates "}], [%1];"
FN void tma_load_2d(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1) {
  asm volatile(ISA_TMA_LOAD("2d", "%3,%4")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1) : "memory");
}
FN void tma_load_3d(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1, i32 c2) {
  asm volatile(ISA_TMA_LOAD("3d", "%3,%4,%5")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
FN void tma_load_4d(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3) {
  asm volatile(ISA_TMA_LOAD("4d", "%3,%4,%5,%6")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
FN void tma_load_5d(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  asm volatile(ISA_TMA_LOAD("5d", "%3,%4,%5,%6,%7")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
FN void tma_load_4d_hint(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3, u64 policy) {
  asm volatile(ISA_TMA_LOAD_HINT("4d", "%3,%4,%5,%6", "%7")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
               : "memory");
}
FN void tma_load_5d_hint(u32 dst, const tensor_map *m, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4, u64 policy) {
  asm volatile(ISA_TMA_LOAD_HINT("5d", "%3,%4,%5,%6,%7", "%8")::"r"(dst), "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
               "l"(policy)
               : "memory");
}
FN void tma_store_2d(const tensor_map *m, u32 src, i32 c0, i32 c1) {
  asm volatile(ISA_TMA_STORE("2d", "%2,%3")::"l"(m), "r"(src), "r"(c0), "r"(c1) : "memory");
}
FN void tma_store_3d(const tensor_map *m, u32 src, i32 c0, i32 c1, i32 c2) {
  asm volatile(ISA_TMA_STORE("3d", "%2,%3,%4")::"l"(m), "r"(src), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
FN void tma_store_4d(const tensor_map *m, u32 src, i32 c0, i32 c1, i32 c2, i32 c3) {
  asm volatile(ISA_TMA_STORE("4d", "%2,%3,%4,%5")::"l"(m), "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
FN void tma_store_5d(const tensor_map *m, u32 src, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  asm volatile(ISA_TMA_STORE("5d", "%2,%3,%4,%5,%6")::"l"(m), "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
FN void tma_reduce_add_4d(const tensor_map *m, u32 src, i32 c0, i32 c1, i32 c2, i32 c3) {
  asm volatile(ISA_TMA_ADD("4d", "%2,%3,%4,%5")::"l"(m), "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
FN void tma_load_1d(u32 dst, const void *src, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src), "r"(bytes),
               "r"(bar)
               : "memory");
}
FN void tma_store_1d(void *dst, u32 src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
// float32 sums into global memory; the order of additions of different blocks is not fixed
FN void tma_reduce_add_1d_f32(float *dst, u32 src, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
FN void tma_store_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
#define tma_store_wait_read(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
#define tma_store_wait(n) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(n) : "memory")
FN void tma_prefetch_map(const tensor_map *m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }
FN u64 cache_policy_evict_first(void) {
  u64 v;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(v));
  return v;
}
FN u64 cache_policy_evict_last(void) {
  u64 v;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(v));
  return v;
}
#else
#define SIM_COORDINATES(...) ((const i32[5]){__VA_ARGS__})
#define tma_load_2d(dst, m, bar, c0, c1) sim_tma_load(SIM_HERE("tma_load_2d"), 2, dst, m, bar, SIM_COORDINATES(c0, c1))
#define tma_load_3d(dst, m, bar, c0, c1, c2) sim_tma_load(SIM_HERE("tma_load_3d"), 3, dst, m, bar, SIM_COORDINATES(c0, c1, c2))
#define tma_load_4d(dst, m, bar, c0, c1, c2, c3) sim_tma_load(SIM_HERE("tma_load_4d"), 4, dst, m, bar, SIM_COORDINATES(c0, c1, c2, c3))
#define tma_load_5d(dst, m, bar, c0, c1, c2, c3, c4)                                                                              \
  sim_tma_load(SIM_HERE("tma_load_5d"), 5, dst, m, bar, SIM_COORDINATES(c0, c1, c2, c3, c4))
#define tma_load_4d_hint(dst, m, bar, c0, c1, c2, c3, policy) ((void)(policy), tma_load_4d(dst, m, bar, c0, c1, c2, c3))
#define tma_load_5d_hint(dst, m, bar, c0, c1, c2, c3, c4, policy) ((void)(policy), tma_load_5d(dst, m, bar, c0, c1, c2, c3, c4))
#define tma_store_2d(m, src, c0, c1) sim_tma_store(SIM_HERE("tma_store_2d"), 2, m, src, SIM_COORDINATES(c0, c1), 0)
#define tma_store_3d(m, src, c0, c1, c2) sim_tma_store(SIM_HERE("tma_store_3d"), 3, m, src, SIM_COORDINATES(c0, c1, c2), 0)
#define tma_store_4d(m, src, c0, c1, c2, c3) sim_tma_store(SIM_HERE("tma_store_4d"), 4, m, src, SIM_COORDINATES(c0, c1, c2, c3), 0)
#define tma_store_5d(m, src, c0, c1, c2, c3, c4) sim_tma_store(SIM_HERE("tma_store_5d"), 5, m, src, SIM_COORDINATES(c0, c1, c2, c3, c4), 0)
#define tma_reduce_add_4d(m, src, c0, c1, c2, c3)                                                                                 \
  sim_tma_store(SIM_HERE("tma_reduce_add_4d"), 4, m, src, SIM_COORDINATES(c0, c1, c2, c3), 1)
#define tma_load_1d(dst, src, bytes, bar) sim_bulk_load(SIM_HERE("tma_load_1d"), dst, src, bytes, bar)
#define tma_store_1d(dst, src, bytes) sim_bulk_store(SIM_HERE("tma_store_1d"), dst, src, bytes, 0)
#define tma_reduce_add_1d_f32(dst, src, bytes) sim_bulk_store(SIM_HERE("tma_reduce_add_1d"), dst, src, bytes, 1)
#define tma_store_commit() sim_tma_store_commit(SIM_HERE("cp.async.bulk.commit_group"))
#define tma_store_wait_read(n) sim_tma_store_wait(SIM_HERE("cp.async.bulk.wait_group.read"), n, 1)
#define tma_store_wait(n) sim_tma_store_wait(SIM_HERE("cp.async.bulk.wait_group"), n, 0)
#define tma_prefetch_map(m) ((void)(m))
#define cache_policy_evict_first() ((u64)1)
#define cache_policy_evict_last() ((u64)2)
#endif

// ---- stmatrix: the inverse of ldmatrix ---------------------------------------------------------------------------------------
#ifdef __CUDACC__
FN void stmatrix_x4(u32 a, const u32 r[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
FN void stmatrix_x2(u32 a, const u32 r[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(a), "r"(r[0]), "r"(r[1]) : "memory");
}
FN void stmatrix_x4_trans(u32 a, const u32 r[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
FN void stmatrix_x2_trans(u32 a, const u32 r[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(a), "r"(r[0]), "r"(r[1]) : "memory");
}
#else
#define stmatrix_x4(a, r) sim_stmatrix(SIM_HERE("stmatrix.x4"), a, r, 4, 0)
#define stmatrix_x2(a, r) sim_stmatrix(SIM_HERE("stmatrix.x2"), a, r, 2, 0)
#define stmatrix_x4_trans(a, r) sim_stmatrix(SIM_HERE("stmatrix.x4.trans"), a, r, 4, 1)
#define stmatrix_x2_trans(a, r) sim_stmatrix(SIM_HERE("stmatrix.x2.trans"), a, r, 2, 1)
#endif

// ---- wgmma: d (64 x N, float32, N a multiple of 8 up to 256; N may be a macro) (+)= a b, by the 128 threads of a warpgroup,
// asynchronously: wgmma_fence before the first (registers), commit after the last, and d, register a, and the shared memory operands
// belong to the hardware until wait(n) has left at most n younger groups. accumulate 0: d = a b.
//   _ss: a and b in shared memory, given by descriptors; _rs: a in four registers, laid out as for mma_m16n8k16, warp w rows 16w...
//   Operands are K-major (the contracted index contiguous); _ta, _tb, _tatb: a, b, both MN-major.
// Warp w owns rows 16w..: d[4j + {0,1}] is row lane / 4, columns 8j + 2 (lane % 4) + {0,1}; d[4j + {2,3}] the same, row + 8.
// Keep d in plain registers between issue and wait, and issue, commit, wait in one straight line: ptxas serialises otherwise.
#ifdef __CUDACC__
#include "wgmma_operands.h"
#pragma nv_diag_suppress 549 // an accumulator is first written by a product that does not accumulate: "used before set" is no fault
#define ISA_WGMMA_SS_(n, shape, type, tail, d, desc_a, desc_b, accumulate)                                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " WGMMA_P_##n##_2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n shape             \
               ".f32." type "." type " " WGMMA_D_##n ", " WGMMA_P_##n##_0 ", " WGMMA_P_##n##_1 ", p, 1, 1" tail ";\n}"             \
               : WGMMA_OUT_##n(d)                                                                                                 \
               : "l"(desc_a), "l"(desc_b), "r"((int)(accumulate)))
#define ISA_WGMMA_RS_(n, shape, type, tail, d, a, desc_b, accumulate)                                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " WGMMA_P_##n##_5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n shape             \
               ".f32." type "." type " " WGMMA_D_##n ", {" WGMMA_P_##n##_0 "," WGMMA_P_##n##_1 "," WGMMA_P_##n##_2                  \
               "," WGMMA_P_##n##_3 "}, " WGMMA_P_##n##_4 ", p, 1, 1" tail ";\n}"                                                  \
               : WGMMA_OUT_##n(d)                                                                                                 \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(desc_b), "r"((int)(accumulate)))
#define ISA_WGMMA_SS(n, shape, type, tail, d, desc_a, desc_b, accumulate)                                                         \
  ISA_WGMMA_SS_(n, shape, type, tail, d, desc_a, desc_b, accumulate)
#define ISA_WGMMA_RS(n, shape, type, tail, d, a, desc_b, accumulate) ISA_WGMMA_RS_(n, shape, type, tail, d, a, desc_b, accumulate)
#define wgmma_m64nNk16_bf16_ss(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "bf16", ", 0, 0", d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_ta(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "bf16", ", 1, 0", d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_tb(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "bf16", ", 0, 1", d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_tatb(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "bf16", ", 1, 1", d, da, db, acc)
#define wgmma_m64nNk16_bf16_rs(n, d, a, db, acc) ISA_WGMMA_RS(n, "k16", "bf16", ", 0", d, a, db, acc)
#define wgmma_m64nNk16_bf16_rs_tb(n, d, a, db, acc) ISA_WGMMA_RS(n, "k16", "bf16", ", 1", d, a, db, acc)
#define wgmma_m64nNk16_f16_ss(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "f16", ", 0, 0", d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_ta(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "f16", ", 1, 0", d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_tb(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "f16", ", 0, 1", d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_tatb(n, d, da, db, acc) ISA_WGMMA_SS(n, "k16", "f16", ", 1, 1", d, da, db, acc)
#define wgmma_m64nNk16_f16_rs(n, d, a, db, acc) ISA_WGMMA_RS(n, "k16", "f16", ", 0", d, a, db, acc)
#define wgmma_m64nNk16_f16_rs_tb(n, d, a, db, acc) ISA_WGMMA_RS(n, "k16", "f16", ", 1", d, a, db, acc)
#define wgmma_m64nNk32_e4m3_ss(n, d, da, db, acc) ISA_WGMMA_SS(n, "k32", "e4m3", "", d, da, db, acc)
#define wgmma_m64nNk32_e4m3_rs(n, d, a, db, acc) ISA_WGMMA_RS(n, "k32", "e4m3", "", d, a, db, acc)
FN void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FN void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
#else
#define SIM_WGMMA_SS(name, type, n, ta, tb, d, da, db, acc) sim_wgmma(SIM_HERE(name), type, n, d, 0, da, db, ta, tb, acc)
#define SIM_WGMMA_RS(name, type, n, tb, d, a, db, acc) sim_wgmma(SIM_HERE(name), type, n, d, a, 0, db, 0, tb, acc)
#define wgmma_m64nNk16_bf16_ss(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.bf16 ss", SIM_BF16, n, 0, 0, d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_ta(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.bf16 ss ta", SIM_BF16, n, 1, 0, d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_tb(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.bf16 ss tb", SIM_BF16, n, 0, 1, d, da, db, acc)
#define wgmma_m64nNk16_bf16_ss_tatb(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.bf16 ss tatb", SIM_BF16, n, 1, 1, d, da, db, acc)
#define wgmma_m64nNk16_bf16_rs(n, d, a, db, acc) SIM_WGMMA_RS("wgmma.bf16 rs", SIM_BF16, n, 0, d, a, db, acc)
#define wgmma_m64nNk16_bf16_rs_tb(n, d, a, db, acc) SIM_WGMMA_RS("wgmma.bf16 rs tb", SIM_BF16, n, 1, d, a, db, acc)
#define wgmma_m64nNk16_f16_ss(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.f16 ss", SIM_F16, n, 0, 0, d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_ta(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.f16 ss ta", SIM_F16, n, 1, 0, d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_tb(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.f16 ss tb", SIM_F16, n, 0, 1, d, da, db, acc)
#define wgmma_m64nNk16_f16_ss_tatb(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.f16 ss tatb", SIM_F16, n, 1, 1, d, da, db, acc)
#define wgmma_m64nNk16_f16_rs(n, d, a, db, acc) SIM_WGMMA_RS("wgmma.f16 rs", SIM_F16, n, 0, d, a, db, acc)
#define wgmma_m64nNk16_f16_rs_tb(n, d, a, db, acc) SIM_WGMMA_RS("wgmma.f16 rs tb", SIM_F16, n, 1, d, a, db, acc)
#define wgmma_m64nNk32_e4m3_ss(n, d, da, db, acc) SIM_WGMMA_SS("wgmma.e4m3 ss", SIM_E4M3, n, 0, 0, d, da, db, acc)
#define wgmma_m64nNk32_e4m3_rs(n, d, a, db, acc) SIM_WGMMA_RS("wgmma.e4m3 rs", SIM_E4M3, n, 0, d, a, db, acc)
#define wgmma_fence() sim_wgmma_fence(SIM_HERE("wgmma.fence"))
#define wgmma_commit() sim_wgmma_commit(SIM_HERE("wgmma.commit_group"))
#define wgmma_wait(n) sim_wgmma_wait(SIM_HERE("wgmma.wait_group"), n)
#endif

// Descriptor of a wgmma operand in shared memory (PTX manual, "matrix descriptor"): start address; leading and stride byte offsets
// between core matrices; swizzle 0 none, 1 128-byte, 2 64-byte, 3 32-byte. All in units of 16 bytes.
//   K-major, swizzled: stride offset = 8 rows; the leading one is unused. MN-major, swizzled: stride offset = 8 rows of k, leading
//   offset = the next swizzle-wide box along MN.
FN u64 wgmma_descriptor(u32 address, u32 leading_bytes, u32 stride_bytes, u32 swizzle) {
  return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading_bytes >> 4 & 0x3FFF) << 16 | (u64)(stride_bytes >> 4 & 0x3FFF) << 32 | (u64)swizzle << 62;
}

// ---- registers: after the block has been launched with its even share, a warpgroup gives some up or takes more (a multiple of 8,
// 24..256); all four warps execute it. elect_one: true in one lane of the (converged) warp.
#ifdef __CUDACC__
#define setmaxnreg_dec(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define setmaxnreg_inc(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
FN int elect_one(void) {
  u32 elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return (int)elected;
}
#else
#define setmaxnreg_dec(n) sim_setmaxnreg(SIM_HERE("setmaxnreg.dec"), n, 0)
#define setmaxnreg_inc(n) sim_setmaxnreg(SIM_HERE("setmaxnreg.inc"), n, 1)
#define elect_one() sim_elect_one(SIM_HERE("elect.sync"))
#endif

// ---- the rest: vector reduction, programmatic dependent launch, e4m3 (two or four bytes to a word, the first lowest; saturating) --
#ifdef __CUDACC__
FN void red_add_v4_f32(float *d, float v0, float v1, float v2, float v3) { // d 16-byte aligned
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(d), "f"(v0), "f"(v1), "f"(v2), "f"(v3) : "memory");
}
FN void grid_dependency_wait(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
FN void grid_dependency_launch(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
FN u32 pack_e4m3(float x0, float x1, float x2, float x3) {
  u32 r;
  asm("{\n.reg .b16 l, h;\ncvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\nmov.b32 %0, {l, h};\n}"
      : "=r"(r)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return r;
}
FN u32 unpack_e4m3_f16x2(u16 v) {
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(v));
  return r;
}
FN u32 exp2_approx_bf16x2(u32 x) {
  u32 y;
  asm("ex2.approx.ftz.bf16x2 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
#else
#define red_add_v4_f32(d, v0, v1, v2, v3) sim_red_add_f32(SIM_HERE("red.global.add.v4.f32"), d, ((const float[4]){v0, v1, v2, v3}), 4)
#define grid_dependency_wait() ((void)0)
#define grid_dependency_launch() ((void)0)
#define pack_e4m3(x0, x1, x2, x3) sim_pack_e4m3(x0, x1, x2, x3)
#define unpack_e4m3_f16x2(v) sim_e4m3x2_to_f16x2(v)
#define exp2_approx_bf16x2(x) sim_exp2_bf16x2(x)
#endif

#endif
