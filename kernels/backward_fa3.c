// FlashAttention's backward pass on Hopper: dQ, dK, dV by TMA and wgmma, for head_dim 64 and 128.
//
// A tile is TILE_K keys of one key/value head. Its block keeps K and V in shared memory, dK and dV in registers, and walks the query
// rows that see those keys, for every query head of the group: S^T = K Q^T and dP^T = V dO^T come out transposed, so that P^T and
// dS^T are, as they lie in registers, the A operands of dV += P^T dO and dK += dS^T Q. Only dS goes through shared memory, for dQ = dS K.
//
// Warpgroup 0: one thread loads by TMA; one counts the parts of dQ, two warps convert what is complete. Warpgroups 1 and 2
// multiply; each owns 64 keys. Blocks stay: they draw tiles from a counter, and the next tile's K and V arrive while this one ends.
#define P_BYTES 0
#define PIECES  2
#include "parts/backward_dq.h"
#include "parts/backward_loader.h"
#include "parts/backward_products.h"

// K and V of the tile before have left by TMA: their buffers are free.
FN void release_keys(u32 smem, u32 kv) {
  tma_store_wait_read(0);
  mbarrier_arrive(kv_empty(smem, kv));
}

FN void multiply(const glint_backward_params *p, u32 smem, u32 warpgroup) {
  u32 thread = tid_in_register() % 128, leader = thread == 0, step = 0, chunks = 0, pending = 0;
  float dk[HEAD_DIM / 2], dv[HEAD_DIM / 2];
  if (DS_BUFFERS == 1) bar_arrive(BAR_DS_FREE + (warpgroup ^ 1), MULTIPLIERS * 128);
  NO_UNROLL
  for (u32 n = 0;; n++) {
    u32 slot = ring_index(n, 2), kv = ring_index(n, KV_BUFFERS);
    mbarrier_wait(tile_full(smem, slot), ring_parity(n, 2));
    tile_id id = read_tile(smem, slot);
    if (id.pair < 0) break;
    tile t = locate_tile(p, id);
    tile_blocks blocks = blocks_of(p, &t);
    u32 k = smem + SMEM_K + kv * KV_BYTES, v = smem + SMEM_V + kv * KV_BYTES;
    UNROLL
    for (u32 i = 0; i < HEAD_DIM / 2; i++) dk[i] = dv[i] = 0.f;
    mbarrier_wait(kv_full(smem, kv), ring_parity(n, KV_BUFFERS));
    clear_tail_of_keys(&t, k, v);
    NO_UNROLL
    for (i32 g = 0; g < p->group; g++) {
      i32 dq_slot = (id.pair * p->group + g) % p->dq_slots;
      NO_UNROLL
      for (i32 m = blocks.first; m < blocks.end; m++, step++) {
        float s[TILE_Q / 2], dp[TILE_Q / 2], dq[DQ_COLUMNS / 2]; // declared here, dead between steps
        u32 pt[TILE_Q / 4], ds[TILE_Q / 4];
        u32 stage = ring_index(step, STAGES), parity = ring_parity(step, STAGES);
        u32 q = smem + SMEM_Q + stage * Q_BYTES, d_o = smem + SMEM_DO + stage * Q_BYTES,
            ds_smem = smem + SMEM_DS + step % DS_BUFFERS * DS_BYTES;
        mbarrier_wait(q_full(smem, stage), parity);
        if (m >= blocks.tail_first) {
          mbarrier_wait(do_full(smem, stage), parity);
          clear_tail_of_rows(p, smem, slot, m, q, d_o);
        }
        wgmma_fence();
        issue_keys_by_rows(s, k + warpgroup * 64 * 128, q);
        mbarrier_wait(do_full(smem, stage), parity);
        wgmma_fence();
        issue_keys_by_rows(dp, v + warpgroup * 64 * 128, d_o);
        wgmma_wait(1);
        if (m < blocks.visible_first || m >= blocks.visible_end) mask_block(p, smem, slot, s, warpgroup * 64, m, thread);
        probabilities(p, s, smem + SMEM_LSE + stage * TILE_Q * 4, thread);
        pack_operand(pt, s);
        wgmma_wait(0);
        score_gradients(dp, s, smem + SMEM_DELTA + stage * TILE_Q * 4, thread);
        pack_operand(ds, dp);
        wgmma_fence();
        issue_gradient_of_keys(dv, pt, d_o); // runs while dS goes to the other warpgroup
        if (DS_BUFFERS == 1) bar_sync(BAR_DS_FREE + warpgroup, MULTIPLIERS * 128);
        store_ds(ds_smem, ds, warpgroup, thread);
        fence_proxy_async();
        bar_sync(BAR_BOTH, MULTIPLIERS * 128);
        wgmma_fence();
        issue_dq(dq, ds_smem, k, warpgroup);
        issue_gradient_of_keys(dk, ds, q);
        wgmma_wait(1); // dv and dq
        if (DS_BUFFERS == 1) bar_arrive(BAR_DS_FREE + (warpgroup ^ 1), MULTIPLIERS * 128);
        if (leader) mbarrier_arrive(do_empty(smem, stage));
        if (DQ_STAGED) {
          stage_dq(smem, step, dq, warpgroup, thread);
        } else {
          if (p->dq) add_dq(p, smem, slot, (u32)(dq_slot * p->q_blocks + m), m, dq, warpgroup, thread);
          if (ends_chunk(p, m, blocks.end)) announce_dq(smem, chunks++, thread);
        }
        wgmma_wait(0);
        if (leader) mbarrier_arrive(q_empty(smem, stage));
        if (leader && pending) release_keys(smem, kv ^ 1);
        pending = 0;
      }
    }
    if (leader && pending) release_keys(smem, kv ^ 1);
    tile done = locate_tile(p, read_tile(smem, slot)); // anew: its place need not stay in registers through the loop
    bar_sync(BAR_BOTH, MULTIPLIERS * 128);             // both have read K for the last time
    key_gradient of_k = gradient_k(p), of_v = gradient_v(p);
    store_keys(p, &done, &of_k, k, dk, warpgroup * 64, BAR_WARPGROUP + warpgroup, thread);
    store_keys(p, &done, &of_v, v, dv, warpgroup * 64, BAR_WARPGROUP + warpgroup, thread);
    if (leader) mbarrier_arrive(tile_empty(smem, slot));
    pending = KV_BUFFERS == 2;
    if (leader && KV_BUFFERS == 1) release_keys(smem, 0);
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
    multiply(&p, smem, warpgroup - 1);
  }
}
