// What the macros of a variant of forward_fp8.c mean, what follows from them, and the map of its shared memory.
//
//   TILE_Q         query rows of a tile, 64 for each consumer warpgroup
//   TILE_K         keys of a tile, a multiple of 32
//   STAGES         buffers for K, and as many for the transposed V
//   V_STAGES       buffers for V as it comes from memory
//   PINGPONG       1: consumers take turns in issuing products, so that one multiplies while another exponentiates
//   EARLY_COLUMNS  how many of the next block's exponentials are computed before the wait for P V, which frees the registers of P: a multiple
//                  of 32, default TILE_K. Fewer need fewer registers
//   PIN_SOFTMAX    1 (default): those exponentials may not sink below the wait (see compute_before)
//   ONES           1: P V sums P as it was rounded, too, and o is divided by that (fp8_epilogue.h)
//   PROMOTE        with FEATURE_FP32_ACCUMULATE: so many blocks' P V are summed by the tensor core before they are added to O in fp32; default 2
//   O_BOXES        boxes of 64 columns in a warp's stage for O; fewer than O has: it leaves in several passes
//
// FEATURE_BLOCK_SCALES: K and V have a factor for each block of a multiple of 16 rows. Without it, one for each head.
#ifndef GLINT_PARTS_FP8_VARIANT_H
#define GLINT_PARTS_FP8_VARIANT_H

#ifndef TRACE
#define TRACE 0
#endif
#ifndef V_STAGES
#define V_STAGES 2
#endif
#ifndef EARLY_COLUMNS
#define EARLY_COLUMNS TILE_K
#endif
#ifndef PIN_SOFTMAX
#define PIN_SOFTMAX 1
#endif
#ifndef PROMOTE
#define PROMOTE 2
#endif
#ifndef ONES
#define ONES 1
#endif
#ifndef O_BOXES
#define O_BOXES BOXES_O
#endif

#define CONSUMERS (TILE_Q / 64)
#if THREADS != CONSUMERS * 128 + 128
#error "THREADS: 128 for each consumer warpgroup and the producer"
#endif
#if TILE_K % 32 || EARLY_COLUMNS % 32
#error "TILE_K and EARLY_COLUMNS: multiples of 32, the depth of an 8-bit product"
#endif

// What setmaxnreg deals out: each warpgroup starts with an even share of the multiprocessor's 65536 registers, in steps of 8 a thread
#if CONSUMERS == 2 && FEATURES & FEATURE_VARLEN // 3 x 168; packed lengths ask more of the producer
#define PRODUCER_REGISTERS 56
#define CONSUMER_REGISTERS 224
#elif CONSUMERS == 2
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232
#elif CONSUMERS == 3 // 4 x 128
#define PRODUCER_REGISTERS 56
#define CONSUMER_REGISTERS 152
#else
#error "TILE_Q: 128 or 192"
#endif

#define MASKED       ((FEATURES & FEATURE_MASK) != 0)
#define PACKED       ((FEATURES & FEATURE_VARLEN) != 0)
#define GROUPED      0 // tiles are those of fa3_tile.h
#define SPLIT        0
#define BIASED       ((FEATURES & (FEATURE_SOFTCAP | FEATURE_ALIBI)) != 0)
#define SINKS        ((FEATURES & FEATURE_SINKS) != 0)
#define BLOCK_SCALES ((FEATURES & FEATURE_BLOCK_SCALES) != 0)
#define FLOAT_O      ((FEATURES & FEATURE_O_FLOAT) != 0)
#define PROMOTES     ((FEATURES & FEATURE_FP32_ACCUMULATE) != 0)

// Q, K and V lie in shared memory as [columns / 128][rows][128] bytes, V transposed as [keys / 128][columns][128], O as [columns / 64][rows][64]
// 16-bit values; all with the 128-byte swizzle: 16-byte chunk c of row r at c ^ (r % 8)
#define ROW_BYTES         128
#define BOXES_QK          ((HEAD_DIM + 127) / 128)
#define BOXES_V           ((HEAD_DIM_V + 127) / 128)
#define BOXES_O           ((HEAD_DIM_V + 63) / 64)
#define WARPGROUP_Q_BYTES (64 * ROW_BYTES * BOXES_QK)
#define Q_BYTES           (CONSUMERS * WARPGROUP_Q_BYTES)
#define K_BYTES           (TILE_K * ROW_BYTES * BOXES_QK)
#define V_BYTES           (TILE_K * ROW_BYTES * BOXES_V)
#define VT_BOX_BYTES      (HEAD_DIM_V * 128)
#define VT_BYTES          ((TILE_K + 127) / 128 * VT_BOX_BYTES)
#define WARP_O_BYTES      (16 * ROW_BYTES * O_BOXES)
#define GROUP_KEYS        16 // keys that share their factors
#define GROUPS            (TILE_K / GROUP_KEYS)
#define FACTORS_BYTES     (BLOCK_SCALES ? GROUPS * 16 : 0)

#define SMEM_Q          0
#define SMEM_K          (SMEM_Q + Q_BYTES)
#define SMEM_V          (SMEM_K + STAGES * K_BYTES)
#define SMEM_VT         (SMEM_V + V_STAGES * V_BYTES)
#define SMEM_O          (SMEM_VT + STAGES * VT_BYTES)
#define SMEM_ONES       (SMEM_O + CONSUMERS * 4 * WARP_O_BYTES)
#define SMEM_FACTORS    (SMEM_ONES + ONES * 1024)
#define SMEM_BARRIERS   (SMEM_FACTORS + STAGES * FACTORS_BYTES)
#define SMEM_TILES      (SMEM_BARRIERS + 256)
#define SMEM_BYTES      (SMEM_TILES + 2 * TILE_SLOT_BYTES)
#define TILE_SLOT_BYTES 64
#if SMEM_BYTES != SHARED
#error "SHARED is not what the variant needs"
#endif

// mbarriers, 8 bytes each. v_full, v_empty: the transposed V; raw_full: V as it comes
FN u32 q_full(u32 smem) { return smem + SMEM_BARRIERS; }
FN u32 q_empty(u32 smem) { return smem + SMEM_BARRIERS + 8; }
FN u32 tile_full(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 16 + 8 * slot; }
FN u32 tile_empty(u32 smem, u32 slot) { return smem + SMEM_BARRIERS + 32 + 8 * slot; }
FN u32 k_full(u32 smem, u32 stage) { return smem + SMEM_BARRIERS + 48 + 8 * stage; }
FN u32 k_empty(u32 smem, u32 stage) { return smem + SMEM_BARRIERS + 48 + 8 * (STAGES + stage); }
FN u32 v_full(u32 smem, u32 stage) { return smem + SMEM_BARRIERS + 48 + 8 * (2 * STAGES + stage); }
FN u32 v_empty(u32 smem, u32 stage) { return smem + SMEM_BARRIERS + 48 + 8 * (3 * STAGES + stage); }
FN u32 raw_full(u32 smem, u32 stage) { return smem + SMEM_BARRIERS + 48 + 8 * (4 * STAGES + stage); }
FN u32 tile_slot(u32 smem, u32 slot) { return smem + SMEM_TILES + TILE_SLOT_BYTES * slot; }

FN u32 q_tile(u32 smem, u32 consumer) { return smem + SMEM_Q + consumer * WARPGROUP_Q_BYTES; }
FN u32 k_tile(u32 smem, u32 stage) { return smem + SMEM_K + stage * K_BYTES; }
FN u32 raw_tile(u32 smem, u32 stage) { return smem + SMEM_V + stage * V_BYTES; }
FN u32 v_tile(u32 smem, u32 stage) { return smem + SMEM_VT + stage * VT_BYTES; }
FN u32 k_factors(u32 smem, u32 stage) { return smem + SMEM_FACTORS + stage * FACTORS_BYTES; }
FN u32 ones_tile(u32 smem) { return smem + SMEM_ONES; }
FN u32 o_stage(u32 smem, u32 consumer_warp) { return smem + SMEM_O + consumer_warp * WARP_O_BYTES; }

// Position in a ring of buffers: which one, and which parity of its barrier to wait for
FN u32 ring_index(u32 n, u32 size) { return n % size; }
FN u32 ring_parity(u32 n, u32 size) { return (n / size) & 1; }

// Named barriers (0 is cta_sync): a turn for each consumer, one for its warps among themselves, one for the warps that transpose
enum { BARRIER_TURN = 1, BARRIER_CONSUMER = 5, BARRIER_TRANSPOSE = 9 };

// The producer's warps: the first fetches tiles and loads Q and K, the others load V and transpose it.
#define TRANSPOSERS 3
#if TILE_K % 128 == 0
#define TRANSPOSE_BATCH 4
#elif TILE_K % 96 == 0
#define TRANSPOSE_BATCH 3
#elif TILE_K % 64 == 0
#define TRANSPOSE_BATCH 2
#else
#define TRANSPOSE_BATCH (TILE_K / 32)
#endif

FN void barriers_init(u32 smem) {
  mbarrier_init(q_full(smem), 1);
  mbarrier_init(q_empty(smem), CONSUMERS);
  for (u32 i = 0; i < STAGES; i++) {
    mbarrier_init(k_full(smem, i), 1);
    mbarrier_init(k_empty(smem, i), BLOCK_SCALES ? CONSUMERS * 4 : CONSUMERS); // each warp reads the factors
    mbarrier_init(v_full(smem, i), TRANSPOSERS);
    mbarrier_init(v_empty(smem, i), CONSUMERS);
  }
  for (u32 i = 0; i < V_STAGES; i++) mbarrier_init(raw_full(smem, i), 1);
  for (u32 i = 0; i < 2; i++) {
    mbarrier_init(tile_full(smem, i), 1);
    mbarrier_init(tile_empty(smem, i), CONSUMERS * 4 + TRANSPOSERS);
  }
  fence_mbarrier_init();
}

#endif
