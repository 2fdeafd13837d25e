// The GPU simulator's interface for host code: run a kernel (compiled from kernels/ by gcc) on a functional model of the machine and
// get a report of hazards and counts. What is modelled and how a hazard looks: docs/simulator.md.
//
//   sim_config config = {.arch = 90, .modes = SIM_WGMMA_LATE, .seed = 1};
//   sim_device *device = sim_open(&config);
//   sim_memory_register(device, "q", q, q_bytes);              // every tensor that the kernel may touch
//   sim_launch(device, sim_find_kernel("name"), grid, 384, smem_bytes, &params);
//   sim_report_print(sim_get_report(device), stdout);
//   sim_close(device);
//
// A device serves one host thread at a time; different devices are independent.
#ifndef GLINT_SIM_H
#define GLINT_SIM_H

#include "sim_isa.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// When asynchronous work completes: without its bit at once, with it as late as the program allows (cp.async and wgmma at their wait,
// TMA when nothing else can run). Hazards are found in every mode; the modes show what a hazard does to the result.
enum {
  SIM_CP_ASYNC_LATE = 1,
  SIM_WGMMA_LATE = 2,
  SIM_TMA_LATE = 4,
  SIM_ALL_MODES = 8 // number of combinations
};

typedef struct sim_config {
  u32 arch;        // 80, 86, 89 or 90: limits, and which instructions exist; 0: 90
  u32 modes;       // of the bits above
  u64 seed;        // order in which warps and late copies run; equal seeds give equal runs
  u32 untracked;   // 1: no happens-before tracking, no initialisation checks (faster)
  u32 max_hazards; // distinct ones kept; 0: 64
  u32 stack_bytes; // of each CUDA thread; 0: 128 KiB (256 KiB under sanitizers)
} sim_config;

typedef struct sim_device sim_device;
sim_device *sim_open(const sim_config *config); // NULL: out of memory or unknown arch
void sim_close(sim_device *device);
void sim_set_modes(sim_device *device, u32 modes, u64 seed);

// Kernels that are linked in, by name; first call with NULL starts the list.
sim_kernel *sim_find_kernel(const char *name);
sim_kernel *sim_next_kernel(sim_kernel *kernel);

// Global memory: kernels may touch registered ranges only. The name (copied, 63 characters) appears in reports, and counts stay with it until the
// report is reset, also when its range is gone; ranges must not overlap. All return 0, or -1 (overlap, not found, no memory).
int sim_memory_register(sim_device *device, const char *name, void *base, size_t bytes);
int sim_memory_unregister(sim_device *device, void *base);
int sim_memory_rename(sim_device *device, void *base, const char *name);

typedef enum sim_status {
  SIM_OK,        // ran to its end without a hazard
  SIM_HAZARDS,   // ran to its end; the report has hazards
  SIM_ABORTED,   // stopped at a hazard that leaves no way on (deadlock, ...)
  SIM_BAD_LAUNCH // refused: block size, grid, shared memory beyond the arch's limit; sim_launch_error says why
} sim_status;
sim_status sim_launch(sim_device *device, const sim_kernel *kernel, const u32 grid[3], u32 threads, u32 smem_bytes, const void *params);
const char *sim_launch_error(const sim_device *device);
u32 sim_smem_limit(u32 arch); // bytes of dynamic shared memory a block may have
u32 sim_sm_count(void);       // blocks resident at once, as the model reports it to a persistent kernel's host

// Mutation testing: from now on no thread executes the instruction at this place (of a report); NULL: all do again. For instructions that
// synchronise: waits, barriers, fences, arrivals.
void sim_skip(sim_device *device, const sim_place *place);

// CUtensorMap: the arguments of cuTensorMapEncodeTiled with its enumerators' values. Returns NULL or what is wrong with them.
const char *sim_tensor_map_encode(tensor_map *map, int data_type, u32 rank, void *base, const u64 *dims, const u64 *strides_bytes,
                                  const u32 *box, const u32 *element_strides, int interleave, int swizzle, int l2_promotion, int oob_fill);

// "file.c:12 (instruction)"; returns text.
const char *sim_place_text(const sim_place *at, char *text, size_t size);

// ---- report -------------------------------------------------------------------------------------------------------------------
typedef enum sim_hazard_kind {
  SIM_SMEM_OUT_OF_BOUNDS,
  SIM_GMEM_OUT_OF_BOUNDS,
  SIM_MISALIGNED,
  SIM_UNINITIALISED,       // shared memory read before anything was written there
  SIM_RACE,                // two ordinary accesses to shared memory, one a write, without order
  SIM_CP_ASYNC_NOT_WAITED, // access to bytes that a cp.async may still write
  SIM_TMA_NOT_WAITED,      // access to bytes that a TMA load may still write
  SIM_WGMMA_NOT_WAITED,    // accumulator or A registers touched before wgmma's wait
  SIM_WGMMA_STILL_READS,   // shared memory handed on or overwritten while a wgmma may still read it
  SIM_TMA_STILL_READS,     // shared memory overwritten while a TMA store may still read it
  SIM_MISSING_PROXY_FENCE, // ordinary write, then TMA or wgmma access, ordered but without fence.proxy.async
  SIM_MISSING_WGMMA_FENCE,
  SIM_MISSING_INIT_FENCE, // mbarrier used by TMA without fence.mbarrier_init
  SIM_DIVERGENT,          // lanes of a warp (or warps of a warpgroup) at different collective instructions
  SIM_BARRIER_MISUSE,     // named barrier: count wrong, differing counts
  SIM_MBARRIER_MISUSE,    // not initialised, too many arrivals, transaction bytes that do not add up
  SIM_BAD_OPERAND,        // an instruction's operand that the hardware refuses or the model does not know
  SIM_BAD_TENSOR_MAP,
  SIM_DEADLOCK,
  SIM_NOT_ON_ARCH, // instruction that this arch does not have
  SIM_HAZARD_KINDS
} sim_hazard_kind;
const char *sim_hazard_name(sim_hazard_kind kind); // e.g. "race"

typedef struct sim_hazard {
  sim_hazard_kind kind;
  const sim_place *place;             // the access that was found at fault
  const sim_place *other;             // what it collides with, or NULL
  u32 block[3], thread, other_thread; // thread ids of the first occurrence; other_thread ~0u if unknown
  u64 count;                          // occurrences
  char text[768];                     // a sentence: addresses, tensor, who waits where
} sim_hazard;

// Counts of one place (line and instruction), over all launches since the last reset.
typedef struct sim_line {
  const sim_place *place;
  u64 warp_instructions;                           // executions, a warp's (for wgmma a warpgroup's, for TMA a thread's) counted once
  u64 smem_wavefronts, smem_ideal;                 // passes over the 32 banks, and their least number; the difference are bank conflicts
  u64 worst_ways;                                  // most accesses to one bank in one pass
  u64 gmem_bytes, gmem_sectors, gmem_transactions; // requested bytes, 32-byte sectors, 128-byte lines
  u64 mma_flops;                                   // 2 m n k of the matrix instructions
} sim_line;

typedef struct sim_tensor {
  const char *name;
  u64 bytes_read, bytes_written; // requested by the kernel; repeated reads count again
  u64 sectors_read, sectors_written;
} sim_tensor;

typedef struct sim_report {
  u32 hazard_count, line_count, tensor_count;
  const sim_hazard *hazards;
  const sim_line *lines;     // by file and line
  const sim_tensor *tensors; // in order of their first registration
  u64 hazards_dropped;       // distinct ones beyond max_hazards
  u64 launches, blocks, threads;
  u64 mma, wgmma, tma_bytes, cp_async, barriers; // instructions (warp, warpgroup), bytes moved by TMA, warp instructions, cta-wide
  u64 bank_conflicts;                            // sum over lines of smem_wavefronts - smem_ideal
} sim_report;
const sim_report *sim_get_report(sim_device *device); // valid until the next call with this device
void sim_reset_report(sim_device *device);
// These and sim_hazard_name, sim_place_text are in print.c, which needs nothing else of the simulator.
void sim_report_print(const sim_report *report, FILE *out);      // for people
void sim_report_print_json(const sim_report *report, FILE *out); // one object

#ifdef __cplusplus
}
#endif
#endif
