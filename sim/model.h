// The simulator's own state: device, thread block, warp, thread, and what its parts call of one another. Private to sim/.
//
// A block runs on one host thread. Each CUDA thread is a fiber that runs until it has to wait; warps are picked at random. For
// ordering the model keeps vector clocks: every thread, every warp (for collective accesses), every warpgroup (its wgmma groups),
// every thread's cp.async and bulk-store sequence and every mbarrier's phases are an "agent" with a clock, and a thread's knowledge says up to
// which clock of each agent everything has happened before what the thread does next. See knowledge.c and shadow.c.
#ifndef GLINT_SIM_MODEL_H
#define GLINT_SIM_MODEL_H

#include "sim.h"
#include <stdint.h>

enum {
  WARP = 32,
  WARPGROUP = 128,
  MAX_THREADS = 1024,
  MAX_WARPS = MAX_THREADS / WARP,
  MAX_WARPGROUPS = MAX_THREADS / WARPGROUP,
  NAMED_BARRIERS = 16,
  SMEM_BASE = 1024, // address of the block's shared memory in the shared window: 0 stays invalid
  CELL = 16,        // bytes of shared memory that one shadow cell stands for
  NO_AGENT = 0xffff
};

typedef struct sim_thread sim_thread;
typedef struct sim_warp sim_warp;
typedef struct sim_block sim_block;

// ---- what happened before what --------------------------------------------------------------------------------------------------
// clock[a]: everything that agent a did up to that clock happened before. fenced[a]: and, as far as it was ordinary accesses, is
// visible to the asynchronous proxy too. Immutable once shared; counted.
typedef struct knowledge {
  u32 references, agents, capacity;
  u64 serial, last_joined; // of the base that was last joined into it
  u32 *clock, *fenced;
  struct knowledge *next_free;
} knowledge;

// What a thread knows beyond its base because it did it itself.
typedef struct own_clocks {
  u32 thread, thread_fenced;
  u32 warp, warp_fenced;         // the warp's collective accesses
  u32 cp_async, cp_async_fenced; // its own copies that it has waited for
  u32 wgmma;                     // its warpgroup's groups that it has waited for
  u32 bulk;                      // its bulk stores whose reading it has waited for
} own_clocks;

enum { MEMO_SETS = 32, MEMO_WAYS = 4 };
typedef struct memo_entry {
  knowledge *a, *b, *join;
} memo_entry;

// ---- shadow of shared memory ----------------------------------------------------------------------------------------------------
enum { ACCESS_READ = 0, ACCESS_WRITE = 1, ACCESS_ASYNC = 2, ACCESS_ATOMIC = 4 };
typedef struct access_record {
  u32 clock, place;
  u16 agent, mask; // bytes of the cell
  u16 thread;
  u16 flags;
} access_record;
enum { INLINE_RECORDS = 3 };
typedef struct shadow_cell {
  u16 initialised; // a bit a byte
  u16 count, capacity;
  u16 mbarrier;        // 1: its first 8 bytes hold a live mbarrier, 2: the last 8
  access_record *more; // instead of the inline ones when there are too many
  access_record inline_records[INLINE_RECORDS];
} shadow_cell;

// ---- counting of ordinary accesses: a warp's accesses at one place are put together again ----------------------------------------
enum { SPACE_SMEM = 1, SPACE_GMEM_READ = 2, SPACE_GMEM_WRITE = 4 };
typedef struct access_instance {
  u32 mask;
  u32 smem[WARP];
  u64 gmem[WARP];
} access_instance;
typedef struct access_log {
  sim_place *place;
  u32 bytes, space, used, capacity;
  u32 visits[WARP];
  access_instance *instances;
} access_log;

// ---- asynchronous work ----------------------------------------------------------------------------------------------------------
typedef struct cp_async_op {
  u32 dst, bytes, src_bytes, sequence;
  const void *src;
  sim_place *place;
} cp_async_op;

enum { TMA_LOAD, TMA_STORE, TMA_ADD, BULK_LOAD, BULK_STORE, BULK_ADD_F32, CP_ASYNC_ARRIVE };
typedef struct tensor_map_fields {
  unsigned char *base;
  u64 strides[4]; // bytes, of axes 1..
  u32 dims_less_1[5];
  u16 box[5];
  u8 element_strides[5];
  u8 rank, data_type, element_bytes, swizzle, nan_fill, magic;
} tensor_map_fields;
typedef struct async_op {
  int kind;
  sim_place *place;
  sim_thread *thread;
  tensor_map_fields map;
  i32 coordinates[5];
  u32 smem, bar, bytes, group; // group: of the issuing thread's bulk stores
  u64 gmem;
} async_op;

typedef struct mbarrier {
  u32 address, live, count, pending, init_clock;
  i64 tx;
  u32 phase;      // completed phases since the first init; never goes back
  u32 base_phase; // at the last init
  u16 agent, init_thread;
  u32 init_fenced;
  u32 awaited_phase; // newest phase that some thread has seen completed
  u32 last_thread;   // the last that arrived
  u32 tma_phase;     // newest phase into which a TMA load was issued
  sim_place *init_place, *tma_place, *last_arrival;
  knowledge *gathering, *complete;
} mbarrier;

typedef struct named_barrier {
  u32 arrived, expected;
  u32 lanes_arrived[MAX_WARPS];
  sim_place *place[MAX_WARPS];
  u32 waiting[MAX_WARPS];
  sim_place *first_place;
  knowledge *gathering;
  u32 last_expected, last_thread, last_clock; // of the phase before, and one of those who came to it
  sim_place *last_place;
} named_barrier;

typedef struct wgmma_chain { // consecutive products into the same accumulator registers
  u32 n, returned;
  u32 last_op;
  float *d[WARPGROUP];
  float *c; // 64 x n
  sim_place *place;
} wgmma_chain;
enum { MAX_VIEWS = 8 };
typedef struct wgmma_op {
  sim_place *place;
  int type, trans_a, trans_b, accumulate, from_registers, executed, checked;
  u32 n, issued, group;
  u64 desc_a, desc_b;
  wgmma_chain *chain;
  u32 (*a)[4]; // [128], when from_registers
  u32 views;
  knowledge *view[MAX_VIEWS]; // distinct bases of the threads that have issued it
} wgmma_op;
typedef struct wgmma_group {
  u32 end, waited, done; // ops before end; threads that have waited
} wgmma_group;

// ---- the machine ----------------------------------------------------------------------------------------------------------------
typedef struct fiber {
  void *sp;
  void *stack;
  void *extra; // ucontext or the sanitizer's record
} fiber;

typedef enum wait_kind { WAIT_NONE, WAIT_WARP, WAIT_BARRIER, WAIT_MBARRIER, WAIT_WGMMA, WAIT_REGISTERS, WAIT_SPIN } wait_kind;

struct sim_thread {
  fiber fiber;
  sim_block *block;
  sim_warp *warp;
  u32 id, lane, exited;
  wait_kind waiting;
  sim_place *at; // the instruction that it waits in
  u32 wait_object, wait_value;
  void *operands; // of the collective instruction it is in
  u32 instructions;
  knowledge *base;
  own_clocks own;
  u16 cp_agent, bulk_agent;
  u32 cp_sequence, cp_groups, cp_group_end[64]; // ring of sequence numbers at the last commits
  cp_async_op *copies;
  u32 copy_count, copy_capacity;
  u32 bulk_groups, bulk_open;
  sim_place *bulk_place;
  u32 wgmma_issued, wgmma_committed, wgmma_waited, wgmma_needs_fence;
  u32 registers;
};

struct sim_warp {
  u32 id, ready, exited, arrived, collective;
  sim_place *place;
  access_log *logs;
  u32 log_count, log_capacity, logs_active;
};

typedef struct warpgroup {
  wgmma_op *ops; // of sequence numbers first_op ..
  u32 first_op, op_count, op_capacity;
  wgmma_group *groups; // of numbers 1 ..
  u32 group_count, group_capacity;
  wgmma_chain **chains;
  u32 chain_count, chain_capacity;
} warpgroup;

struct sim_block {
  sim_device *device;
  const sim_kernel *kernel;
  const void *params;
  u32 index[3], thread_count, warp_count, smem_bytes;
  u32 ready_warps, exited, aborted, spins;
  u64 random, seen_progress;
  sim_thread *threads;
  sim_warp warps[MAX_WARPS];
  warpgroup warpgroups[MAX_WARPGROUPS];
  named_barrier barriers[NAMED_BARRIERS];
  unsigned char *smem;
  shadow_cell *cells;
  u32 cell_capacity;
  mbarrier *mbarriers;
  u32 mbarrier_count, mbarrier_capacity;
  u32 *mbarrier_at; // index + 1, by address / 8
  async_op *async;
  u32 async_count, async_capacity;
  u32 free_registers;
  u32 agents;
  u16 agent_thread[0x4000]; // which thread a numbered agent belongs to; 0xffff: an mbarrier
  knowledge *free_knowledge;
  u64 knowledge_serial;
  memo_entry memo[MEMO_SETS * MEMO_WAYS];
  u32 memo_turn;
  void *scheduler_sp, *scheduler_extra;
  sim_block *next;
};

// Counts stay with the name when its range is unregistered, and go on when another takes the name.
typedef struct tensor_counts {
  sim_tensor counts;
  char name[64];
} tensor_counts;
typedef struct memory_range {
  unsigned char *base;
  size_t bytes;
  u32 tensor; // index of its counts
} memory_range;

struct sim_device {
  sim_config config;
  u64 progress;         // grows with everything that can end a wait
  memory_range *ranges; // by address
  u32 range_count, range_capacity, last_range;
  tensor_counts *tensors; // in order of first registration
  u32 tensor_count, tensor_capacity;
  sim_hazard *hazards;
  sim_line *lines; // by place id
  u32 line_capacity;
  sim_report report;
  sim_line *report_lines;
  sim_tensor *report_tensors;
  sim_block *idle_blocks;
  char launch_error[256];
  const sim_place *skipped; // mutation testing
  u32 grid[3];
};

// ---- fiber.c
int fiber_create(fiber *f, size_t stack_bytes); // stack only
void fiber_destroy(fiber *f, size_t stack_bytes);
void fiber_start(fiber *f, size_t stack_bytes, void (*entry)(void));
void fiber_switch(fiber *from, fiber *to);
extern _Thread_local sim_thread *sim_self;

// ---- schedule.c
void thread_wait(sim_thread *t, wait_kind kind, sim_place *at, u32 object, u32 value); // returns when made ready
void thread_ready(sim_thread *t);
void thread_spin(sim_thread *t, sim_place *at); // lets others run
_Noreturn void block_abort(sim_thread *t);      // after a hazard that leaves no way on
u32 block_random(sim_block *b, u32 bound);
// Gathers the warp at a collective instruction. True in the lane that executes it for all (with every lane's operands in place),
// which then calls warp_release; the others return false when that is done.
int warp_gather(sim_thread *t, sim_place *at, void *operands);
void warp_release(sim_thread *t);
sim_thread *lane_thread(sim_thread *t, u32 lane);

// ---- hazard.c
u32 place_id(sim_place *at);
sim_place *place_of(u32 id);
__attribute__((format(printf, 6, 7))) void hazard(sim_thread *t, sim_hazard_kind kind, const sim_place *at, const sim_place *other,
                                                  u32 other_thread, const char *format, ...);
int require_arch(sim_thread *t, sim_place *at, u32 arch);
// Notes the execution of a synchronising instruction in its line's count (once a warp); true if mutation testing leaves it out.
int synchronising(sim_thread *t, sim_place *at);

// ---- knowledge.c
u16 agent_new(sim_block *b, u32 thread);
u16 agent_of_warp(const sim_block *b, u32 warp);
u16 agent_of_warpgroup(const sim_block *b, u32 warpgroup);
knowledge *knowledge_new(sim_block *b);
knowledge *knowledge_retain(knowledge *k);
void knowledge_release(sim_block *b, knowledge *k);
int knowledge_contains(const knowledge *a, const knowledge *b);
void knowledge_learn(sim_block *b, knowledge **gathering, u16 agent, u32 clock); // gathering may be NULL: made
void thread_publish(sim_thread *t, knowledge **gathering);                       // a release: what t knows goes in, its clock ticks
void thread_acquire(sim_thread *t, knowledge *k);                                // joins k to its base
void thread_adopt(sim_thread *t, knowledge *k);                                  // the same when k contains its base
void thread_fence(sim_thread *t);
int thread_knows(const sim_thread *t, const knowledge *base, u16 agent, u32 clock);
int thread_knows_fenced(const sim_thread *t, const knowledge *base, u16 agent, u32 clock);
void knowledge_reset(sim_block *b);

// ---- shadow.c
// Checks an access of `bytes` bytes (within one or more cells) against the recorded ones and records it. knowledge: the accessing
// thread's, as of its issue. agent and clock: under which others have to know it.
enum { ACCESS_MEMO = 4 };
typedef struct access {
  sim_thread *thread;
  const knowledge *base;
  sim_place *place;
  u32 clock, flags, place_id;
  u16 agent, memo_agent[ACCESS_MEMO];
  u8 memo_valid[ACCESS_MEMO], memo_answer[ACCESS_MEMO];
  u32 memo_clock[ACCESS_MEMO];
} access;
access thread_access(sim_thread *t, sim_place *at, u32 flags); // by the thread itself, now
access agent_access(sim_thread *t, sim_place *at, u16 agent, u32 clock, u32 flags);
int smem_range_ok(sim_thread *t, sim_place *at, u32 address, u32 bytes, u32 alignment); // reports
void shadow_check(access *a, u32 address, u32 bytes);
void shadow_access(access *a, u32 address, u32 bytes); // checks and records
void shadow_reset(sim_block *b);
static inline unsigned char *smem_pointer(sim_block *b, u32 address) { return b->smem + (address - SMEM_BASE); }

// ---- counts.c
sim_line *line_of(sim_device *d, sim_place *at);
void count_access(sim_thread *t, sim_place *at, u32 space, u32 bytes, u32 smem, const void *gmem);
void count_matrix_rows(sim_thread *t, sim_place *at, const u32 *addresses, u32 matrices); // ldmatrix and stmatrix
void count_gmem_run(sim_thread *t, sim_place *at, u64 address, u32 bytes, int write);     // a contiguous run moved by TMA
void warp_flush_counts(sim_block *b, sim_warp *w);

// ---- gmem.c
memory_range *gmem_range(sim_device *d, const void *p, size_t bytes); // NULL: not inside one
int gmem_range_ok(sim_thread *t, sim_place *at, const void *p, u32 bytes, u32 alignment);

// ---- cp_async.c, tma.c, mbarrier.c, barrier.c, wgmma.c
void cp_async_execute_until(sim_thread *t, u32 sequence);
void async_execute(sim_block *b, u32 index); // takes it off the list
void async_push(sim_block *b, const async_op *op);
mbarrier *mbarrier_find(sim_thread *t, sim_place *at, u32 bar); // NULL after a hazard
void mbarrier_complete_tx(sim_block *b, sim_thread *issuer, sim_place *at, u32 bar, u32 bytes);
void mbarrier_async_arrive(sim_block *b, sim_thread *issuer, sim_place *at, u32 bar);
void mbarrier_describe(const sim_block *b, u32 bar, char *text, size_t size);
void mbarriers_at_end(sim_block *b);
void barrier_describe(const sim_block *b, u32 id, char *text, size_t size);
void bulk_at_exit(sim_thread *t);
void wgmma_at_exit(sim_thread *t);
void wgmma_reset(sim_block *b);
void registers_describe(const sim_block *b, char *text, size_t size);
int is_wgmma_poison(u32 bits);
void check_poison(sim_thread *t, sim_place *at, const void *values, u32 words); // a wgmma result used before its wait

// ---- numbers.c
u16 bf16_from_f32(float f);
u16 f16_from_f32(float f);
float f32_from_e4m3(u8 v);
void decode_elements(float *out, const void *in, int type, u32 count);
static inline float f32_from_bf16(u16 h) { return sim_f32((u32)h << 16); }
void *grow(void *array, u32 *capacity, u32 needed, size_t element); // realloc; NULL-safe; aborts the process never: returns NULL

#endif
