// What kernels compiled for the simulator see: the model's side of kernels/isa. Each call carries its place in the source, so that
// reports name it and counts are kept by line.
#ifndef GLINT_SIM_ISA_H
#define GLINT_SIM_ISA_H

#include "types.h"
#include <stddef.h>

// A place where a kernel calls an instruction; id is given at its first use in the process.
typedef struct sim_place {
  const char *file, *instruction;
  int line;
  _Atomic int id;
} sim_place;
#define SIM_HERE(name)                                                                                                                     \
  __extension__({                                                                                                                          \
    static sim_place sim_here_ = {__FILE__, name, __LINE__, 0};                                                                            \
    &sim_here_;                                                                                                                            \
  })

// A kernel as the simulator knows it; found by name (sim_find_kernel) or as the object sim_kernel_NAME.
typedef struct sim_kernel {
  const char *name;
  u32 threads;  // of a block
  u32 resident; // blocks that must fit on a multiprocessor together
  size_t params_size;
  void (*entry)(const void *params); // what each thread runs
  struct sim_kernel *next;
} sim_kernel;
void sim_register_kernel(sim_kernel *kernel);

#define SIM_KERNEL_(name, block, resident, params_type)                                                                                    \
  static void sim_body_##name(const params_type p);                                                                                        \
  static void sim_entry_##name(const void *sim_params) { sim_body_##name(*(const params_type *)sim_params); }                              \
  extern sim_kernel sim_kernel_##name;                                                                                                     \
  sim_kernel sim_kernel_##name = {#name, block, resident, sizeof(params_type), sim_entry_##name, 0};                                       \
  __attribute__((constructor)) static void sim_register_##name(void) { sim_register_kernel(&sim_kernel_##name); }                          \
  static void sim_body_##name(const params_type p)
#define SIM_KERNEL(name, block, resident, params_type) SIM_KERNEL_(name, block, resident, params_type)

enum { SIM_BF16, SIM_F16, SIM_E4M3 };
enum { SIM_SHFL_XOR, SIM_SHFL_IDX, SIM_SHFL_UP, SIM_SHFL_DOWN };
enum { SIM_ATOMIC_ADD, SIM_ATOMIC_EXCH, SIM_ATOMIC_CAS, SIM_ATOMIC_MAX_I32, SIM_ATOMIC_ADD_ACQ_REL };

u32 sim_tid(void);
u32 sim_block_threads(void);
u32 sim_block_id(int axis);
u32 sim_grid_size(int axis);
u32 sim_smem_base(void);
u32 sim_clock(void); // instructions that this thread has executed in the model: an order, not a time

void sim_smem_load(sim_place *at, void *r, u32 address, u32 bytes);
u16 sim_smem_load_u16(sim_place *at, u32 address);
u32 sim_smem_load_u32(sim_place *at, u32 address);
void sim_smem_store(sim_place *at, u32 address, const void *r, u32 bytes);
void sim_smem_store_u16(sim_place *at, u32 address, u16 v);
void sim_smem_store_u32(sim_place *at, u32 address, u32 v);
void sim_smem_red_add_f32(sim_place *at, u32 address, float v);
u32 sim_smem_atomic_add_u32(sim_place *at, u32 address, u32 v);
void sim_gmem_load(sim_place *at, void *r, const void *s, u32 bytes);
u8 sim_gmem_load_u8(sim_place *at, const void *s);
u16 sim_gmem_load_u16(sim_place *at, const void *s);
u32 sim_gmem_load_u32(sim_place *at, const void *s);
void sim_gmem_store(sim_place *at, void *d, const void *r, u32 bytes);
void sim_gmem_store_u16(sim_place *at, void *d, u16 v);
void sim_gmem_store_u8(sim_place *at, void *d, u8 v);
void sim_gmem_store_u32(sim_place *at, void *d, u32 v);
u32 sim_atomic_u32(sim_place *at, int operation, void *d, u32 v, u32 expected);
void sim_red_add_f32(sim_place *at, float *d, const float *v, u32 count);
u32 sim_gmem_load_acquire(sim_place *at, const u32 *s);
void sim_gmem_store_release(sim_place *at, u32 *d, u32 v);
void sim_fence_gpu(void);

void sim_bar_sync(sim_place *at, u32 id, u32 threads);
void sim_bar_arrive(sim_place *at, u32 id, u32 threads);
void sim_warp_sync(sim_place *at);
u32 sim_shuffle(sim_place *at, int kind, u32 v, u32 operand);
u32 sim_ballot(sim_place *at, int predicate);
int sim_elect_one(sim_place *at);

void sim_cp_async(sim_place *at, u32 dst, const void *src, u32 bytes, u32 src_bytes);
void sim_cp_async_commit(sim_place *at);
void sim_cp_async_wait(sim_place *at, u32 groups);
void sim_cp_async_mbarrier_arrive(sim_place *at, u32 bar);
void sim_ldmatrix(sim_place *at, u32 *r, u32 address, u32 count, int trans);
void sim_stmatrix(sim_place *at, u32 address, const u32 *r, u32 count, int trans);
u32 sim_movmatrix(sim_place *at, u32 v);
void sim_mma_m16n8k16(sim_place *at, int type, float *d, const u32 *a, const u32 *b);

void sim_mbarrier_init(sim_place *at, u32 bar, u32 count);
void sim_mbarrier_inval(sim_place *at, u32 bar);
void sim_fence_mbarrier_init(sim_place *at);
void sim_mbarrier_arrive(sim_place *at, u32 bar, u32 arrivals, u32 tx_bytes);
void sim_mbarrier_wait(sim_place *at, u32 bar, u32 parity);
int sim_mbarrier_test_wait(sim_place *at, u32 bar, u32 parity);
void sim_fence_proxy_async(sim_place *at, int global);
void sim_tma_load(sim_place *at, int rank, u32 dst, const tensor_map *map, u32 bar, const i32 *coordinates);
void sim_tma_store(sim_place *at, int rank, const tensor_map *map, u32 src, const i32 *coordinates, int add);
void sim_bulk_load(sim_place *at, u32 dst, const void *src, u32 bytes, u32 bar);
void sim_bulk_store(sim_place *at, void *dst, u32 src, u32 bytes, int add_f32);
void sim_tma_store_commit(sim_place *at);
void sim_tma_store_wait(sim_place *at, u32 groups, int read_only);
void sim_wgmma(sim_place *at, int type, u32 n, float *d, const u32 *a, u64 desc_a, u64 desc_b, int trans_a, int trans_b, int accumulate);
void sim_wgmma_fence(sim_place *at);
void sim_wgmma_commit(sim_place *at);
void sim_wgmma_wait(sim_place *at, u32 groups);
void sim_setmaxnreg(sim_place *at, u32 registers, int increase);

// Arithmetic, bit for bit where the hardware is exact; exp2, log2, tanh and rcp are correctly rounded, the hardware's within 2 ulp
// (tanh 2^-11). Subnormal results of the ftz forms are flushed.
float sim_exp2(sim_place *at, float x);
float sim_log2(float x);
float sim_tanh(float x);
float sim_rcp(float x);
u32 sim_cvt_bf16x2(sim_place *at, float lo, float hi); // an instruction of a kernel; the two below are for the host
u32 sim_cvt_f16x2(sim_place *at, float lo, float hi);
u32 sim_pack_bf16(float lo, float hi);
u32 sim_pack_f16(float lo, float hi);
float sim_f16_to_f32(u16 h);
u32 sim_pack_e4m3(float x0, float x1, float x2, float x3);
u32 sim_pack_e5m2(float x0, float x1, float x2, float x3);
u32 sim_e4m3x2_to_f16x2(u16 v);
u32 sim_exp2_f16x2(u32 x);
u32 sim_exp2_bf16x2(u32 x);
u32 sim_fma_f16x2(u32 a, u32 b, u32 c);
u32 sim_fma_bf16x2(u32 a, u32 b, u32 c);

static inline float sim_f32(u32 u) {
  union {
    u32 u;
    float f;
  } v = {u};
  return v.f;
}
static inline u32 sim_bits(float f) {
  union {
    float f;
    u32 u;
  } v = {f};
  return v.u;
}

#endif
