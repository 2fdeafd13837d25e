// FlashAttention's backward pass on Hopper for head_dim 192 and 256, where dK and dV of 64 keys fill the registers of a warpgroup each.
//
// A tile is TILE_K keys of one key/value head. Its block keeps K and V in shared memory, dK and dV in registers, and walks the query
// rows that see those keys, for every query head of the group: S^T = K Q^T and dP^T = V dO^T come out transposed, so that P^T and
// dS^T are, as they lie in registers, the A operands of dV += P^T dO and dK += dS^T Q. Only dS goes through shared memory, for dQ = dS K.
//
// The two multiplying warpgroups share one set of 64 keys by role: the first computes S^T and P^T and owns dV, the second computes dP^T and
// dS^T and owns dK; P passes between them through shared memory in fragment order, each thread reading what its twin wrote. Each takes
// half of dQ's columns. The loader and the dQ warps are those of backward_fa3.c.
#define KV_BUFFERS 1
#define DS_BUFFERS 1
#define P_BYTES    (TILE_K * TILE_Q * 4)
#define PIECES     1
#include "parts/backward_dq.h"
#include "parts/backward_loader.h"
#include "parts/backward_products.h"

#if TILE_Q != 64 || TILE_K != 64
#error "this kernel's tile is 64 x 64"
#endif

#define BAR_P 5 // P is in shared memory. That it has been read is implied by BAR_BOTH, which comes after dS

FN u32 p_fragment(u32 smem, u32 i, u32 thread) { return smem + SMEM_P + i * 2048 + thread * 16; }

FN void send_probabilities(u32 smem, const float *s, u32 thread) {
  UNROLL
  for (u32 i = 0; i < TILE_Q / 8; i++) {
    const u32 bits[4] = {bits_from_f32(s[4 * i]), bits_from_f32(s[4 * i + 1]), bits_from_f32(s[4 * i + 2]), bits_from_f32(s[4 * i + 3])};
    smem_store_16(p_fragment(smem, i, thread), bits);
  }
  bar_arrive(BAR_P, MULTIPLIERS * 128);
}

FN void receive_probabilities(u32 smem, float *s, u32 thread) {
  bar_sync(BAR_P, MULTIPLIERS * 128);
  UNROLL
  for (u32 i = 0; i < TILE_Q / 8; i++) {
    u32 bits[4];
    smem_load_16(bits, p_fragment(smem, i, thread));
    UNROLL
    for (u32 j = 0; j < 4; j++) s[4 * i + j] = f32_from_bits(bits[j]);
  }
}

FN void release_rows(u32 smem, u32 stage, u32 thread) {
  if (thread != 0) return;
  mbarrier_arrive(q_empty(smem, stage));
  mbarrier_arrive(do_empty(smem, stage));
}

// One step of the first warpgroup: S, P, dV, and its half of dQ.
FN void step_of_values(const glint_backward_params *p, u32 smem, u32 slot, u32 stage, i32 m, int masked, u32 dq_block, float *dv,
                       u32 thread) {
  float s[TILE_Q / 2];
  u32 pt[TILE_Q / 4];
  wgmma_fence();
  issue_keys_by_rows(s, smem + SMEM_K, smem + SMEM_Q + stage * Q_BYTES);
  wgmma_wait(0);
  if (masked) mask_block(p, smem, slot, s, 0, m, thread);
  probabilities(p, s, smem + SMEM_LSE + stage * TILE_Q * 4, thread);
  send_probabilities(smem, s, thread);
  pack_operand(pt, s);
  wgmma_fence();
  issue_gradient_of_keys(dv, pt, smem + SMEM_DO + stage * Q_BYTES);
  bar_sync(BAR_BOTH, MULTIPLIERS * 128); // dS is there
  wgmma_wait(0); // dV first: with P still in registers dQ does not fit beside it. The other warpgroup keeps the tensor cores busy
  float dq[DQ_COLUMNS / 2];
  wgmma_fence();
  issue_dq(dq, smem + SMEM_DS, smem + SMEM_K, 0);
  wgmma_wait(0);
  release_rows(smem, stage, thread);
  if (p->dq) add_dq(p, smem, slot, dq_block, m, dq, 0, thread);
}

// One step of the second: dP, dS, dK, and its half of dQ.
FN void step_of_keys(const glint_backward_params *p, u32 smem, u32 slot, u32 stage, i32 m, u32 dq_block, float *dk, u32 thread) {
  float dp[TILE_Q / 2], s[TILE_Q / 2];
  u32 ds[TILE_Q / 4];
  wgmma_fence();
  issue_keys_by_rows(dp, smem + SMEM_V, smem + SMEM_DO + stage * Q_BYTES);
  wgmma_wait(0);
  receive_probabilities(smem, s, thread);
  score_gradients(dp, s, smem + SMEM_DELTA + stage * TILE_Q * 4, thread);
  pack_operand(ds, dp);
  store_ds(smem + SMEM_DS, ds, 0, thread);
  fence_proxy_async();
  bar_sync(BAR_BOTH, MULTIPLIERS * 128);
  wgmma_fence();
  issue_gradient_of_keys(dk, ds, smem + SMEM_Q + stage * Q_BYTES);
  wgmma_wait(0);
  float dq[DQ_COLUMNS / 2];
  wgmma_fence();
  issue_dq(dq, smem + SMEM_DS, smem + SMEM_K, 1);
  wgmma_wait(0);
  release_rows(smem, stage, thread);
  if (p->dq) add_dq(p, smem, slot, dq_block, m, dq, 1, thread);
}

// warpgroup is a constant in each of its two calls, so that every role is compiled on its own.
FN void multiply(const glint_backward_params *p, u32 smem, u32 warpgroup) {
  u32 thread = tid_in_register() % 128, leader = thread == 0, step = 0, chunks = 0;
  float gradient[HEAD_DIM / 2];
  u32 k = smem + SMEM_K, v = smem + SMEM_V;
  NO_UNROLL
  for (u32 n = 0;; n++) {
    u32 slot = ring_index(n, 2);
    mbarrier_wait(tile_full(smem, slot), ring_parity(n, 2));
    tile_id id = read_tile(smem, slot);
    if (id.pair < 0) break;
    tile t = locate_tile(p, id);
    tile_blocks blocks = blocks_of(p, &t);
    UNROLL
    for (u32 i = 0; i < HEAD_DIM / 2; i++) gradient[i] = 0.f;
    mbarrier_wait(kv_full(smem, 0), n & 1);
    clear_tail_of_keys(&t, k, v);
    NO_UNROLL
    for (i32 g = 0; g < p->group; g++) {
      i32 dq_slot = (id.pair * p->group + g) % p->dq_slots;
      NO_UNROLL
      for (i32 m = blocks.first; m < blocks.end; m++, step++) {
        u32 dq_block = (u32)(dq_slot * p->q_blocks + m);
        u32 stage = ring_index(step, STAGES), parity = ring_parity(step, STAGES);
        mbarrier_wait(q_full(smem, stage), parity);
        mbarrier_wait(do_full(smem, stage), parity);
        if (m >= blocks.tail_first) clear_tail_of_rows(p, smem, slot, m, smem + SMEM_Q + stage * Q_BYTES, smem + SMEM_DO + stage * Q_BYTES);
        if (warpgroup == 0)
          step_of_values(p, smem, slot, stage, m, m < blocks.visible_first || m >= blocks.visible_end, dq_block, gradient, thread);
        else
          step_of_keys(p, smem, slot, stage, m, dq_block, gradient, thread);
        if (ends_chunk(p, m, blocks.end)) announce_dq(smem, chunks++, thread);
      }
    }
    tile done = locate_tile(p, read_tile(smem, slot));
    bar_sync(BAR_BOTH, MULTIPLIERS * 128); // both have read K and V for the last time
    key_gradient of = warpgroup == 0 ? gradient_v(p) : gradient_k(p);
    store_keys(p, &done, &of, warpgroup == 0 ? v : k, gradient, 0, BAR_WARPGROUP + warpgroup, thread);
    if (leader) {
      mbarrier_arrive(tile_empty(smem, slot));
      tma_store_wait_read(0);
      mbarrier_arrive(kv_empty(smem, 0));
    }
  }
  if (leader) tma_store_wait(0);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) {
  u32 smem = smem_base(), warpgroup = shfl_idx_u32(tid() / 128, 0); // the same in the warp, and known to be
  if (tid() == 0) barriers_init(smem);
  cta_sync();
  if (warpgroup == 0) {
    setmaxnreg_dec(LOADER_REGISTERS);
    if (tid() == 0) load(&p, smem);
    if (tid() == 32) count(&p, smem);
    if (tid() >= FIRST_CONVERTER) convert(&p, smem);
  } else {
    setmaxnreg_inc(MULTIPLIER_REGISTERS);
    if (warpgroup == 1)
      multiply(&p, smem, 0);
    else
      multiply(&p, smem, 1);
  }
}
