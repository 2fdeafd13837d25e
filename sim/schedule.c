// The scheduler: picks a warp at random and runs its lanes until all of them wait; completes asynchronous work when nothing else can
// run; starts and ends blocks; names a deadlock. Blocks run one after another; when one only spins on global memory, the next ones
// join in, up to the number that the machine holds.
#include "model.h"
#include <stdlib.h>
#include <string.h>

enum { SM_COUNT = 132 };
u32 sim_sm_count(void) { return SM_COUNT; }

u32 block_random(sim_block *b, u32 bound) {
  b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(((b->random >> 32) * bound) >> 32);
}

// ---- leaving and entering fibers ------------------------------------------------------------------------------------------------
static _Thread_local fiber scheduler_fiber;

// Leaves the running thread for another ready lane of its warp, or for the scheduler.
static void leave(sim_thread *t, int to_scheduler) {
  sim_warp *w = t->warp;
  fiber *to = &scheduler_fiber;
  if (!to_scheduler && w->ready) {
    u32 above = w->ready & (0xfffffffeu << t->lane), lane = (u32)__builtin_ctz(above ? above : w->ready);
    sim_self = &t->block->threads[w->id * WARP + lane];
    to = &sim_self->fiber;
    if (sim_self == t) return; // made ready by what it did itself
  }
  fiber_switch(&t->fiber, to);
}

void thread_wait(sim_thread *t, wait_kind kind, sim_place *at, u32 object, u32 value) {
  t->waiting = kind, t->at = at, t->wait_object = object, t->wait_value = value;
  t->warp->ready &= ~(1u << t->lane);
  leave(t, 0);
}

void thread_ready(sim_thread *t) {
  t->waiting = WAIT_NONE;
  t->warp->ready |= 1u << t->lane;
  t->block->ready_warps |= 1u << t->warp->id;
  t->block->device->progress++;
}

void thread_spin(sim_thread *t, sim_place *at) {
  sim_block *b = t->block;
  if (b->seen_progress != b->device->progress) b->seen_progress = b->device->progress, b->spins = 0;
  b->spins++;
  t->waiting = WAIT_SPIN, t->at = at;
  leave(t, 1);
  t->waiting = WAIT_NONE;
}

void block_abort(sim_thread *t) {
  t->block->aborted = 1;
  fiber_switch(&t->fiber, &scheduler_fiber);
  __builtin_unreachable();
}

static void thread_main(void) {
  sim_thread *t = sim_self;
#ifdef __SANITIZE_ADDRESS__
  void sim_fiber_entered(void *);
  sim_fiber_entered(NULL);
#endif
  t->block->kernel->entry(t->block->params);
  t = sim_self;
  bulk_at_exit(t);
  wgmma_at_exit(t);
  t->exited = 1;
  t->warp->exited |= 1u << t->lane;
  t->warp->ready &= ~(1u << t->lane);
  t->block->exited++;
  t->block->device->progress++;
  for (;;) leave(t, 0);
}

// ---- warp collectives -------------------------------------------------------------------------------------------------------------
sim_thread *lane_thread(sim_thread *t, u32 lane) { return &t->block->threads[t->warp->id * WARP + lane]; }

int warp_gather(sim_thread *t, sim_place *at, void *operands) {
  sim_warp *w = t->warp;
  t->operands = operands;
  t->instructions++;
  if (w->arrived && w->place != at) {
    u32 there = (u32)__builtin_ctz(w->arrived);
    char text[160];
    hazard(t, SIM_DIVERGENT, at, w->place, w->id * WARP + there, "lane %u of warp %u comes here while lane %u waits at %s", t->lane, w->id,
           there, sim_place_text(w->place, text, sizeof text));
    block_abort(t);
  }
  if (w->exited) {
    hazard(t, SIM_DIVERGENT, at, NULL, ~0u, "warp %u comes here without lane %u, which has left the kernel", w->id,
           (u32)__builtin_ctz(w->exited));
    block_abort(t);
  }
  w->place = at;
  w->arrived |= 1u << t->lane;
  if (w->arrived == 0xffffffffu) return 1;
  thread_wait(t, WAIT_WARP, at, 0, 0);
  return 0;
}

void warp_release(sim_thread *t) {
  sim_block *b = t->block;
  sim_warp *w = t->warp;
  w->arrived = 0;
  warp_flush_counts(b, w);
  for (u32 lane = 0; lane < WARP; lane++) lane_thread(t, lane)->waiting = WAIT_NONE;
  w->ready = 0xffffffffu;
  b->ready_warps |= 1u << w->id;
  b->device->progress++;
  if (block_random(b, 32) == 0) leave(t, 1); // now and then another warp gets its turn
}

// ---- who waits where --------------------------------------------------------------------------------------------------------------
static void describe_wait(const sim_block *b, const sim_thread *t, char *text, size_t size) {
  switch (t->waiting) {
  case WAIT_WARP:
    snprintf(text, size, "for the other lanes of warp %u (%d of 32 are there)", t->warp->id, __builtin_popcount(t->warp->arrived));
    break;
  case WAIT_BARRIER: barrier_describe(b, t->wait_object, text, size); break;
  case WAIT_MBARRIER: mbarrier_describe(b, t->wait_object, text, size); break;
  case WAIT_WGMMA: snprintf(text, size, "for wgmma group %u: not all of the warpgroup has come", t->wait_value); break;
  case WAIT_REGISTERS: snprintf(text, size, "for %u registers: %u are free", t->wait_value, b->free_registers); break;
  case WAIT_SPIN: snprintf(text, size, "spinning"); break;
  case WAIT_NONE: snprintf(text, size, "running"); break;
  }
}

static void report_deadlock(sim_block *b) {
  char text[640], why[160], place[160];
  size_t used = 0;
  sim_thread *first = NULL, *second = NULL;
  int divergent = 0;
  for (u32 i = 0; i < b->thread_count && used + 8 < sizeof text; i++) {
    sim_thread *t = &b->threads[i];
    if (t->exited) continue;
    if (t->waiting == WAIT_WARP) divergent = 1;
    if (t->waiting == WAIT_BARRIER && t->warp->exited) divergent = 1;
    if (!first)
      first = t;
    else if (!second && t->at != first->at)
      second = t;
    const sim_thread *previous = i ? &b->threads[i - 1] : NULL;
    if (previous && !previous->exited && previous->at == t->at && previous->wait_object == t->wait_object) continue;
    if (previous && !previous->exited && previous->warp == t->warp)
      divergent |= t->waiting == WAIT_BARRIER && previous->waiting == WAIT_BARRIER;
    u32 last = i;
    while (last + 1 < b->thread_count && !b->threads[last + 1].exited && b->threads[last + 1].at == t->at &&
           b->threads[last + 1].wait_object == t->wait_object)
      last++;
    describe_wait(b, t, why, sizeof why);
    int n = snprintf(text + used, sizeof text - used, "%sthread%s %u", used ? "; " : "", last > i ? "s" : "", i);
    used += (size_t)n;
    if (last > i && used < sizeof text) used += (size_t)snprintf(text + used, sizeof text - used, "-%u", last);
    if (used < sizeof text)
      used += (size_t)snprintf(text + used, sizeof text - used, " at %s %s", sim_place_text(t->at, place, sizeof place), why);
  }
  if (b->exited && used < sizeof text) snprintf(text + used, sizeof text - used, "; %u threads have left", b->exited);
  if (!first) return;
  hazard(first, divergent ? SIM_DIVERGENT : SIM_DEADLOCK, first->at, second ? second->at : NULL, second ? second->id : ~0u, "%s", text);
}

// ---- a block --------------------------------------------------------------------------------------------------------------------
typedef enum block_state { BLOCK_FINISHED, BLOCK_SPINNING, BLOCK_ABORTED } block_state;

static block_state block_run(sim_block *b) {
  b->spins = 0;
  b->seen_progress = b->device->progress;
  for (;;) {
    if (b->aborted) return BLOCK_ABORTED;
    if (b->exited == b->thread_count) return BLOCK_FINISHED;
    u32 runnable = b->ready_warps;
    if (runnable && b->spins > 16 * b->thread_count + 1000) { // everyone who runs only looks
      if (b->async_count) {
        async_execute(b, block_random(b, b->async_count));
        b->spins = 0;
        continue;
      }
      return BLOCK_SPINNING;
    }
    if (!runnable) {
      if (b->async_count) {
        async_execute(b, block_random(b, b->async_count));
        continue;
      }
      report_deadlock(b);
      return BLOCK_ABORTED;
    }
    u32 pick = block_random(b, (u32)__builtin_popcount(runnable));
    while (pick--) runnable &= runnable - 1;
    sim_warp *w = &b->warps[__builtin_ctz(runnable)];
    u32 turn = block_random(b, WARP), from = w->ready & (0xffffffffu << turn);
    sim_self = &b->threads[w->id * WARP + (u32)__builtin_ctz(from ? from : w->ready)];
    fiber_switch(&scheduler_fiber, &sim_self->fiber);
    for (u32 m = b->ready_warps; m; m &= m - 1)
      if (!b->warps[__builtin_ctz(m)].ready) b->ready_warps &= ~(1u << __builtin_ctz(m));
  }
}

static size_t stack_bytes(const sim_device *d) { return (d->config.stack_bytes + 4095) & ~4095u; }

static void block_free(sim_block *b) {
  if (!b) return;
  for (u32 i = 0; b->threads && i < MAX_THREADS; i++) {
    fiber_destroy(&b->threads[i].fiber, stack_bytes(b->device));
    free(b->threads[i].copies);
  }
  for (u32 i = 0; i < MAX_WARPS; i++) {
    for (u32 j = 0; j < b->warps[i].log_capacity; j++) free(b->warps[i].logs[j].instances);
    free(b->warps[i].logs);
  }
  for (u32 i = 0; i < MAX_WARPGROUPS; i++) {
    free(b->warpgroups[i].ops);
    free(b->warpgroups[i].groups);
    free(b->warpgroups[i].chains);
  }
  free(b->threads), free(b->smem), free(b->cells), free(b->mbarriers), free(b->mbarrier_at), free(b->async);
  free(b);
}

static sim_block *block_get(sim_device *d) {
  sim_block *b = d->idle_blocks;
  if (b) {
    d->idle_blocks = b->next;
    return b;
  }
  b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->device = d;
  b->threads = calloc(MAX_THREADS, sizeof *b->threads);
  if (!b->threads) {
    free(b);
    return NULL;
  }
  return b;
}

static int block_prepare_memory(sim_block *b, u32 smem_bytes) {
  u32 bytes = (smem_bytes + CELL - 1) / CELL * CELL;
  if (bytes > b->cell_capacity * CELL || !b->smem) {
    free(b->smem), free(b->cells), free(b->mbarrier_at);
    b->cell_capacity = bytes / CELL;
    b->smem = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    b->cells = calloc(b->cell_capacity + 1, sizeof *b->cells);
    b->mbarrier_at = calloc(bytes / 8 + 1, sizeof *b->mbarrier_at);
    if (!b->smem || !b->cells || !b->mbarrier_at) return -1;
  }
  memset(b->smem, 0xff, bytes); // NaN in every format
  memset(b->mbarrier_at, 0, (bytes / 8 + 1) * sizeof *b->mbarrier_at);
  b->smem_bytes = smem_bytes;
  return 0;
}

static void thread_prepare(sim_block *b, sim_thread *t, u32 id, knowledge *nothing) {
  fiber f = t->fiber;
  cp_async_op *copies = t->copies;
  u32 copy_capacity = t->copy_capacity;
  memset(t, 0, sizeof *t);
  t->fiber = f, t->copies = copies, t->copy_capacity = copy_capacity;
  t->block = b, t->warp = &b->warps[id / WARP], t->id = id, t->lane = id % WARP;
  t->base = knowledge_retain(nothing);
  t->own.thread = 1;
  t->cp_agent = t->bulk_agent = NO_AGENT;
  t->wgmma_needs_fence = 1;
  u32 registers = 65536 / b->kernel->resident / b->thread_count / 8 * 8;
  t->registers = registers > 248 ? 248 : registers; // as many as the launch bounds allow
}

static int block_start(sim_block *b, const sim_kernel *kernel, const u32 index[3], u32 threads, u32 smem_bytes, const void *params) {
  sim_device *d = b->device;
  b->kernel = kernel, b->params = params;
  memcpy(b->index, index, sizeof b->index);
  b->thread_count = threads, b->warp_count = threads / WARP;
  b->ready_warps = b->warp_count == 32 ? 0xffffffffu : (1u << b->warp_count) - 1;
  b->exited = b->aborted = b->spins = 0;
  b->random = d->config.seed * 0x9E3779B97F4A7C15ull + index[0] + ((u64)index[1] << 20) + ((u64)index[2] << 40);
  block_random(b, 2), block_random(b, 2);
  b->agents = threads + b->warp_count + (threads + WARPGROUP - 1) / WARPGROUP;
  b->mbarrier_count = b->async_count = 0;
  b->free_registers = 0;
  memset(b->barriers, 0, sizeof b->barriers);
  if (block_prepare_memory(b, smem_bytes)) return -1;
  knowledge *nothing = knowledge_new(b);
  if (!nothing) return -1;
  for (u32 i = 0; i < threads; i++) {
    sim_thread *t = &b->threads[i];
    if (!t->fiber.stack && fiber_create(&t->fiber, stack_bytes(d))) return -1;
    thread_prepare(b, t, i, nothing);
    t->fiber.extra = (void *)(uintptr_t)stack_bytes(d);
    fiber_start(&t->fiber, stack_bytes(d), thread_main);
  }
  knowledge_release(b, nothing);
  for (u32 i = 0; i < b->warp_count; i++) {
    sim_warp *w = &b->warps[i];
    w->id = i, w->ready = 0xffffffffu, w->exited = w->arrived = w->collective = 0;
  }
  return 0;
}

static void block_finish(sim_block *b) {
  sim_device *d = b->device;
  while (!b->aborted && b->async_count) async_execute(b, b->async_count - 1);
  if (!b->aborted) mbarriers_at_end(b);
  for (u32 i = 0; i < b->warp_count; i++) {
    b->warps[i].arrived = 0;
    warp_flush_counts(b, &b->warps[i]);
  }
  for (u32 i = 0; i < b->mbarrier_count; i++) {
    knowledge_release(b, b->mbarriers[i].gathering);
    knowledge_release(b, b->mbarriers[i].complete);
  }
  for (u32 i = 0; i < NAMED_BARRIERS; i++) knowledge_release(b, b->barriers[i].gathering);
  for (u32 i = 0; i < b->thread_count; i++) knowledge_release(b, b->threads[i].base);
  wgmma_reset(b);
  shadow_reset(b);
  knowledge_reset(b);
  b->next = d->idle_blocks;
  d->idle_blocks = b;
}

// ---- launch -----------------------------------------------------------------------------------------------------------------------
u32 sim_smem_limit(u32 arch) { return arch >= 90 ? 227u << 10 : arch == 80 || arch == 87 ? 163u << 10 : 99u << 10; }

const char *sim_launch_error(const sim_device *d) { return d->launch_error; }

static int launch_refused(sim_device *d, const sim_kernel *kernel, const u32 grid[3], u32 threads, u32 smem_bytes) {
  char *e = d->launch_error;
  size_t n = sizeof d->launch_error;
  e[0] = 0;
  if (!kernel)
    snprintf(e, n, "kernel is NULL");
  else if (threads > kernel->threads)
    snprintf(e, n, "block of %u threads; kernel %s is compiled for at most %u", threads, kernel->name, kernel->threads);
  else if (threads == 0 || threads > MAX_THREADS || threads % WARP)
    snprintf(e, n, "block of %u threads; a multiple of 32 up to 1024 is expected", threads);
  else if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535)
    snprintf(e, n, "grid %u x %u x %u; 1..2147483647 x 1..65535 x 1..65535 are expected", grid[0], grid[1], grid[2]);
  else if (smem_bytes > sim_smem_limit(d->config.arch))
    snprintf(e, n, "%u bytes of shared memory; sm_%u has %u", smem_bytes, d->config.arch, sim_smem_limit(d->config.arch));
  return e[0] != 0;
}

typedef struct launch {
  sim_device *device;
  const sim_kernel *kernel;
  const u32 *grid;
  u32 threads, smem_bytes;
  const void *params;
  u64 next, count;
} launch;

static sim_block *launch_next(launch *l) {
  sim_block *b = block_get(l->device);
  if (!b) return NULL;
  u32 index[3] = {(u32)(l->next % l->grid[0]), (u32)(l->next / l->grid[0] % l->grid[1]), (u32)(l->next / l->grid[0] / l->grid[1])};
  if (block_start(b, l->kernel, index, l->threads, l->smem_bytes, l->params)) {
    b->next = l->device->idle_blocks;
    l->device->idle_blocks = b;
    return NULL;
  }
  l->next++;
  l->device->report.blocks++;
  l->device->report.threads += l->threads;
  return b;
}

static int launch_all(launch *l) {
  sim_block *resident[SM_COUNT] = {0};
  u32 count = 0, aborted = 0, starved = 0;
  while (!aborted && (count || l->next < l->count)) {
    if (!count || (starved && l->next < l->count && count < SM_COUNT)) {
      sim_block *b = launch_next(l);
      if (!b) {
        snprintf(l->device->launch_error, sizeof l->device->launch_error, "out of memory");
        aborted = 1;
        break;
      }
      resident[count++] = b;
    }
    u64 before = l->device->progress;
    for (u32 i = 0; i < count && !aborted;) {
      block_state s = block_run(resident[i]);
      aborted = s == BLOCK_ABORTED;
      if (s == BLOCK_FINISHED) {
        block_finish(resident[i]);
        resident[i] = resident[--count];
      } else
        i++;
    }
    starved = l->device->progress == before;
    if (!aborted && starved && count && (l->next == l->count || count == SM_COUNT)) {
      report_deadlock(resident[0]);
      aborted = 1;
    }
    if (count) starved = 1;
  }
  for (u32 i = 0; i < count; i++) {
    resident[i]->aborted = 1;
    block_finish(resident[i]);
  }
  return (int)aborted;
}

sim_status sim_launch(sim_device *d, const sim_kernel *kernel, const u32 grid[3], u32 threads, u32 smem_bytes, const void *params) {
  if (launch_refused(d, kernel, grid, threads, smem_bytes)) return SIM_BAD_LAUNCH;
  memcpy(d->grid, grid, sizeof d->grid);
  u64 found = d->report.hazards_dropped, kinds = d->report.hazard_count, seen = 0;
  for (u32 i = 0; i < d->report.hazard_count; i++) seen += d->hazards[i].count;
  sim_thread *outer = sim_self;
  launch l = {d, kernel, grid, threads, smem_bytes, params, 0, (u64)grid[0] * grid[1] * grid[2]};
  int aborted = launch_all(&l);
  sim_self = outer;
  d->report.launches++;
  if (aborted) return d->launch_error[0] ? SIM_BAD_LAUNCH : SIM_ABORTED;
  for (u32 i = 0; i < d->report.hazard_count; i++) seen -= d->hazards[i].count;
  return seen || found != d->report.hazards_dropped || kinds != d->report.hazard_count ? SIM_HAZARDS : SIM_OK;
}

// ---- device -----------------------------------------------------------------------------------------------------------------------
sim_device *sim_open(const sim_config *config) {
  sim_config c = *config;
  if (!c.arch) c.arch = 90;
  if (c.arch != 80 && c.arch != 86 && c.arch != 87 && c.arch != 89 && c.arch != 90) return NULL;
  if (!c.max_hazards) c.max_hazards = 64;
#ifdef __SANITIZE_ADDRESS__
  if (!c.stack_bytes) c.stack_bytes = 256 << 10;
#else
  if (!c.stack_bytes) c.stack_bytes = 128 << 10;
#endif
  sim_device *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  d->config = c;
  d->hazards = calloc(c.max_hazards, sizeof *d->hazards);
  if (!d->hazards) {
    free(d);
    return NULL;
  }
  d->report.hazards = d->hazards;
  return d;
}

void sim_set_modes(sim_device *d, u32 modes, u64 seed) { d->config.modes = modes, d->config.seed = seed; }

void sim_skip(sim_device *d, const sim_place *place) { d->skipped = place; }

void sim_close(sim_device *d) {
  if (!d) return;
  for (sim_block *b = d->idle_blocks, *next; b; b = next) {
    next = b->next;
    block_free(b);
  }
  free(d->ranges), free(d->tensors), free(d->hazards), free(d->lines), free(d->report_lines), free(d->report_tensors);
  free(d);
}

// ---- kernels ----------------------------------------------------------------------------------------------------------------------
static sim_kernel *kernels;
void sim_register_kernel(sim_kernel *kernel) { // from constructors, before any thread
  kernel->next = kernels;
  kernels = kernel;
}
sim_kernel *sim_next_kernel(sim_kernel *kernel) { return kernel ? kernel->next : kernels; }
sim_kernel *sim_find_kernel(const char *name) {
  for (sim_kernel *k = kernels; k; k = k->next)
    if (!strcmp(k->name, name)) return k;
  return NULL;
}

// ---- the thread's place in the grid -----------------------------------------------------------------------------------------------
u32 sim_tid(void) { return sim_self->id; }
u32 sim_block_threads(void) { return sim_self->block->thread_count; }
u32 sim_block_id(int axis) { return sim_self->block->index[axis]; }
u32 sim_grid_size(int axis) { return sim_self->block->device->grid[axis]; }
u32 sim_smem_base(void) { return SMEM_BASE; }
u32 sim_clock(void) { return sim_self->instructions; }
