// What every Hopper backward kernel has in shared memory: operands, barriers, and how tiles are announced in it.
//
// Beside the keys of the variants table: KV_BUFFERS (1 or 2: the next tile's K and V arrive while this one is worked on), DS_BUFFERS,
// P_BYTES (shared memory for probabilities, 0 where they stay in registers), PIECES (1 or 2: buffers through which finished accumulators go),
// DQ_STAGED (1: parts of dq go through shared memory and are added by TMA, in order).
#ifndef GLINT_BACKWARD_SHARED_H
#define GLINT_BACKWARD_SHARED_H

#ifndef DQ_STAGED
#define DQ_STAGED 0
#endif

#include "../backward_params.h"
#include "../isa/sm90.h"

#if DTYPE == DTYPE_BF16
#define PACK          pack_bf16
#define UNPACK_LO     unpack_bf16_lo
#define UNPACK_HI     unpack_bf16_hi
#define WGMMA_SS      wgmma_m64nNk16_bf16_ss
#define WGMMA_SS_TATB wgmma_m64nNk16_bf16_ss_tatb
#define WGMMA_RS_TB   wgmma_m64nNk16_bf16_rs_tb
#else
#define PACK          pack_f16
#define UNPACK_LO     unpack_f16_lo
#define UNPACK_HI     unpack_f16_hi
#define WGMMA_SS      wgmma_m64nNk16_f16_ss
#define WGMMA_SS_TATB wgmma_m64nNk16_f16_ss_tatb
#define WGMMA_RS_TB   wgmma_m64nNk16_f16_rs_tb
#endif
// A multiplying warpgroup's share of dQ: with 128 rows half of the rows; with 64 half of the columns, in whole boxes of 64 from head_dim 128
// on (an operand cannot begin inside a box and go on in the next), so 128 and 64 of 192.
#if TILE_Q == 128
#define DQ_COLUMNS HEAD_DIM
#define DQ_N       HEAD_DIM
#elif HEAD_DIM == 64
#define DQ_COLUMNS 32
#define DQ_N       32
#elif HEAD_DIM == 128
#define DQ_COLUMNS 64
#define DQ_N       64
#else
#define DQ_COLUMNS 128
#define DQ_N       128
#endif
#define DQ_FIRST_COLUMN(warpgroup)   (TILE_Q == 128 ? 0 : (warpgroup)*DQ_COLUMNS)
#define DQ_OWN_COLUMNS(warpgroup)    (HEAD_DIM == 192 && (warpgroup) == 1 ? 64 : DQ_COLUMNS)
// accumulators before the warpgroup's, in fragments of 512 numbers
#define DQ_FIRST_FRAGMENT(warpgroup) ((warpgroup) * (DQ_COLUMNS / 8))
#include "backward_tiles.h"

// ---- shared memory, bytes: every operand as [columns / 64][rows][64] 16-bit numbers under the 128-byte swizzle ----------------------
#define KV_BYTES      (TILE_K * HEAD_DIM * 2)
#define Q_BYTES       (TILE_Q * HEAD_DIM * 2)
#define DS_BYTES      (TILE_K * TILE_Q * 2)
#define PIECE_BYTES   8192 // of dq's accumulators: four fragments of 128 threads
#define SMEM_K        0
#define SMEM_V        (SMEM_K + KV_BUFFERS * KV_BYTES)
#define SMEM_Q        (SMEM_V + KV_BUFFERS * KV_BYTES)
#define SMEM_DO       (SMEM_Q + STAGES * Q_BYTES)
#define SMEM_DS       (SMEM_DO + STAGES * Q_BYTES)
#define SMEM_P        (SMEM_DS + DS_BUFFERS * DS_BYTES)
#define SMEM_PIECES   (SMEM_P + P_BYTES)
#define DQ_BYTES      (TILE_Q * HEAD_DIM * 4)
#define SMEM_DQ       (SMEM_PIECES + PIECES * PIECE_BYTES)
#define SMEM_LSE      (SMEM_DQ + DQ_STAGED * DQ_BYTES)
#define SMEM_DELTA    (SMEM_LSE + STAGES * TILE_Q * 4)
#define SMEM_BARRIERS (SMEM_DELTA + STAGES * TILE_Q * 4)
#define SMEM_BYTES    (SMEM_BARRIERS + 512)
#if SMEM_BYTES > SHARED
#error "SHARED is smaller than what the kernel lays out"
#endif

// mbarriers
#define DQ_RING (DQ_STAGED ? 1 : 8)
FN u32 barrier(u32 smem, u32 i) { return smem + SMEM_BARRIERS + 8 * i; }
FN u32 kv_full(u32 smem, u32 i) { return barrier(smem, i); }
FN u32 kv_empty(u32 smem, u32 i) { return barrier(smem, 2 + i); }
FN u32 tile_full(u32 smem, u32 i) { return barrier(smem, 4 + i); }
FN u32 tile_empty(u32 smem, u32 i) { return barrier(smem, 6 + i); }
FN u32 q_full(u32 smem, u32 i) { return barrier(smem, 8 + i); }
FN u32 q_empty(u32 smem, u32 i) { return barrier(smem, 8 + STAGES + i); }
FN u32 do_full(u32 smem, u32 i) { return barrier(smem, 8 + 2 * STAGES + i); }
FN u32 do_empty(u32 smem, u32 i) { return barrier(smem, 8 + 3 * STAGES + i); }
FN u32 dq_full(u32 smem, u32 i) { return barrier(smem, 8 + 4 * STAGES + i); }
FN u32 dq_empty(u32 smem, u32 i) { return barrier(smem, 8 + 4 * STAGES + DQ_RING + i); }
FN u32 piece_full(u32 smem, u32 i) { return barrier(smem, 8 + 4 * STAGES + 2 * DQ_RING + i); }
// words through which the loader announces tiles, and what is to be converted
FN u32 tile_word(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 400 + 8 * slot; }

FN u32 job_word(u32 smem) { return smem + SMEM_BARRIERS + 416; }

FN tile_id read_tile(u32 smem, u32 slot) {
  tile_id id = {(i32)smem_load_4(tile_word(smem, slot)), (i32)smem_load_4(tile_word(smem, slot) + 4)};
  return id;
}

FN u32 ring_index(u32 n, u32 size) { return n % size; }
FN u32 ring_parity(u32 n, u32 size) { return (n / size) & 1; }

#define MULTIPLIERS   2 // warpgroups
#define BAR_BOTH      1 // named barriers: both multiplying warpgroups; each one (2, 3); the converting warps
#define BAR_WARPGROUP 2
#define BAR_DQ        4
#define BAR_DS_FREE   6 // and 7: the other warpgroup has read the dS buffer that this one writes next

FN void barriers_init(u32 smem) {
  for (u32 i = 0; i < KV_BUFFERS; i++) {
    mbarrier_init(kv_full(smem, i), 1);
    mbarrier_init(kv_empty(smem, i), MULTIPLIERS);
  }
  for (u32 i = 0; i < 2; i++) {
    mbarrier_init(tile_full(smem, i), 1);
    mbarrier_init(tile_empty(smem, i), MULTIPLIERS + 1); // and the counting thread
  }
  for (u32 i = 0; i < STAGES; i++) {
    mbarrier_init(q_full(smem, i), 1);
    mbarrier_init(q_empty(smem, i), MULTIPLIERS);
    mbarrier_init(do_full(smem, i), 1);
    mbarrier_init(do_empty(smem, i), MULTIPLIERS);
  }
  for (u32 i = 0; i < DQ_RING; i++) {
    mbarrier_init(dq_full(smem, i), MULTIPLIERS * 4);
    mbarrier_init(dq_empty(smem, i), 1);
  }
  for (u32 i = 0; i < PIECES; i++) mbarrier_init(piece_full(smem, i), 1);
  fence_mbarrier_init();
}

#endif
