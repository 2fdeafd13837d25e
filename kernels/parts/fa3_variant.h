// What the macros of a variant of forward_fa3.c mean, what follows from them, and the map of its shared memory.
//
//   TILE_Q        query rows of a tile, 64 for each consumer warpgroup
//   TILE_K        keys of a tile, a multiple of 16
//   STAGES        buffers for K, and as many for V
//   MIN_BLOCKS    blocks that share a multiprocessor
//   O_SHARED      O leaves through a stage in shared memory, while the next tile is computed. 0: each consumer has one of its own. 1: they
//                 share one, where there is no room for more; they come to it one after the other anyway
//   PINGPONG      1: consumers take turns in issuing products, so that one multiplies while another exponentiates
//   OVERLAP       1 (default): P V of a block and Q K^T of the next run together; 0: one after the other
//   STATIC_TILES  0 (default): a block takes the next tile from a counter; 1: every so many blocks
#ifndef GLINT_PARTS_FA3_VARIANT_H
#define GLINT_PARTS_FA3_VARIANT_H

#ifndef TRACE
#define TRACE 0 // 1: an instrumented variant (fa3_trace.h)
#endif
#ifndef OVERLAP
#define OVERLAP 1
#endif

#ifndef STATIC_TILES
#define STATIC_TILES 0
#endif

#define CONSUMERS (TILE_Q / 64)
#define HALF_K    (TILE_K / 16 * 8) // half a block of keys, in whole steps of 8
#if THREADS != CONSUMERS * 128 + 128
#error "THREADS: 128 for each consumer warpgroup and the producer"
#endif

// What setmaxnreg deals out: each warpgroup starts with an even share of the multiprocessor's 65536 registers, in steps of 8 a thread
#if CONSUMERS == 2 && MIN_BLOCKS == 1 // 3 x 168
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232
#elif CONSUMERS == 1 && MIN_BLOCKS == 1 // 2 x 248: enough as it is
#define PRODUCER_REGISTERS 0
#define CONSUMER_REGISTERS 0
#elif CONSUMERS == 1 && MIN_BLOCKS == 2 // 2 x 128
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 216
#elif CONSUMERS == 2 && MIN_BLOCKS == 2 // 3 x 80
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 104
#elif CONSUMERS == 3 && MIN_BLOCKS == 1 // 4 x 128
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 160
#elif CONSUMERS == 4 && MIN_BLOCKS == 1 // 5 x 96
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 112
#else
#error "TILE_Q and MIN_BLOCKS: 64 or 128 and 1 or 2, 192 or 256 and 1"
#endif

#define MASKED  ((FEATURES & FEATURE_MASK) != 0)
#define PACKED  ((FEATURES & FEATURE_VARLEN) != 0)
#define BIASED  ((FEATURES & (FEATURE_SOFTCAP | FEATURE_ALIBI)) != 0)
#define SINKS   ((FEATURES & FEATURE_SINKS) != 0)
#define GROUPED ((FEATURES & FEATURE_GROUPED) != 0)
#define SPLIT   ((FEATURES & FEATURE_SPLIT) != 0)
#define PAGED   ((FEATURES & FEATURE_PAGED) != 0)

// Rows of o that a box of TMA would write may belong to the next packed sequence: then warps copy them. A grouped variant takes no packed q.
#define COPY_O (PACKED && !GROUPED)

// Tiles lie in shared memory as [columns / 64][rows][64] 16-bit values with the 128-byte swizzle: 16-byte chunk c of row r at c ^ (r % 8)
#define BOXES_QK          ((HEAD_DIM + 63) / 64)
#define BOXES_V           ((HEAD_DIM_V + 63) / 64)
#define ROW_BYTES         128
#define WARPGROUP_Q_BYTES (64 * ROW_BYTES * BOXES_QK)
#define Q_BYTES           (CONSUMERS * WARPGROUP_Q_BYTES)
#define K_BYTES           (TILE_K * ROW_BYTES * BOXES_QK)
#define V_BYTES           (TILE_K * ROW_BYTES * BOXES_V)
#define WARPGROUP_O_BYTES (64 * ROW_BYTES * BOXES_V)

#define SMEM_Q          0
#define SMEM_K          (SMEM_Q + Q_BYTES)
#define SMEM_V          (SMEM_K + STAGES * K_BYTES)
#define SMEM_O          (SMEM_V + STAGES * V_BYTES)
#define SMEM_BARRIERS   (SMEM_O + (O_SHARED ? 1 : CONSUMERS) * WARPGROUP_O_BYTES)
#define SMEM_TILES      (SMEM_BARRIERS + 384)
#define SMEM_BYTES      (SMEM_TILES + 2 * TILE_SLOT_BYTES)
#define TILE_SLOT_BYTES 64
#if O_SHARED && CONSUMERS != 2
#error "O_SHARED: for two consumers"
#endif
#if SMEM_BYTES != SHARED
#error "SHARED is not what the variant needs"
#endif

// mbarriers, 8 bytes each, in rows of 32 bytes
FN u32 barrier_at(u32 smem, u32 row, u32 i) { return smem + SMEM_BARRIERS + 32 * row + 8 * i; }
FN u32 q_full(u32 smem, u32 consumer) { return barrier_at(smem, 0, consumer); }
FN u32 q_empty(u32 smem, u32 consumer) { return barrier_at(smem, 1, consumer); }
FN u32 k_full(u32 smem, u32 stage) { return barrier_at(smem, 2, stage); }
FN u32 k_empty(u32 smem, u32 stage) { return barrier_at(smem, 3, stage); }
FN u32 v_full(u32 smem, u32 stage) { return barrier_at(smem, 4, stage); }
FN u32 v_empty(u32 smem, u32 stage) { return barrier_at(smem, 5, stage); }
// A consumer's stage is full, and free for it to fill (where both share one: emptied of what the other put there)
FN u32 o_full(u32 smem, u32 consumer) { return barrier_at(smem, 6, consumer); }
FN u32 o_empty(u32 smem, u32 consumer) { return barrier_at(smem, 7, consumer); }
FN u32 tile_full(u32 smem, u32 slot) { return barrier_at(smem, 8, slot); }
FN u32 tile_empty(u32 smem, u32 slot) { return barrier_at(smem, 8, 2 + slot); }
FN u32 v_landed(u32 smem) { return barrier_at(smem, 9, 0); } // a last block of V whose tail must be cleared
FN u32 tile_slot(u32 smem, u32 slot) { return smem + SMEM_TILES + TILE_SLOT_BYTES * slot; }

FN u32 o_stage(u32 smem, u32 consumer) { return smem + SMEM_O + (O_SHARED ? 0 : consumer) * WARPGROUP_O_BYTES; }
FN u32 q_tile(u32 smem, u32 consumer) { return smem + SMEM_Q + consumer * WARPGROUP_Q_BYTES; }
FN u32 k_tile(u32 smem, u32 stage) { return smem + SMEM_K + stage * K_BYTES; }
FN u32 v_tile(u32 smem, u32 stage) { return smem + SMEM_V + stage * V_BYTES; }

// Position in a ring of buffers: which one, and which parity of its barrier to wait for
FN u32 ring_index(u32 n, u32 size) { return n % size; }
FN u32 ring_parity(u32 n, u32 size) { return (n / size) & 1; }

// Who may fill the stage after this consumer's rows have left it
FN u32 o_next(u32 consumer) { return O_SHARED ? consumer ^ 1 : consumer; }

// Named barriers (0 is cta_sync): a turn for each consumer, and one for its warps among themselves
enum { BARRIER_TURN = 1, BARRIER_CONSUMER = 5 };

// Warps of the producer warpgroup, one thread of each, so that none waits for buffers which are not its own
enum { ROLE_K, ROLE_V, ROLE_Q, ROLE_O };

FN void barriers_init(u32 smem) {
  for (u32 c = 0; c < CONSUMERS; c++) {
    mbarrier_init(q_full(smem, c), 1);
    mbarrier_init(q_empty(smem, c), 1);
  }
  for (u32 i = 0; i < STAGES; i++) {
    mbarrier_init(k_full(smem, i), 1);
    mbarrier_init(k_empty(smem, i), CONSUMERS);
    mbarrier_init(v_full(smem, i), 1);
    mbarrier_init(v_empty(smem, i), CONSUMERS);
  }
  if (PACKED) mbarrier_init(v_landed(smem), 1);
  for (u32 i = 0; i < CONSUMERS; i++) {
    mbarrier_init(o_full(smem, i), 4);
    mbarrier_init(o_empty(smem, i), COPY_O ? 4 : 1); // warps that have copied it, or the thread that stores by TMA
  }
  for (u32 i = 0; i < 2; i++) {
    mbarrier_init(tile_full(smem, i), 1);
    mbarrier_init(tile_empty(smem, i), CONSUMERS * 4 + (COPY_O ? 2 : 3)); // warps of consumers; who loads V and Q and stores O
  }
  fence_mbarrier_init();
}

#endif
