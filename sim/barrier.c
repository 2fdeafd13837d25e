// Named barriers (bar.sync, bar.arrive; cta_sync is barrier 0): counts of threads, whole warps at one place, and what the arriving threads
// know handed to the waiting ones.
#include "model.h"
#include <string.h>

static int operands_ok(sim_thread *t, sim_place *at, u32 id, u32 threads) {
  if (id < NAMED_BARRIERS && threads && threads % WARP == 0 && threads <= t->block->thread_count) return 1;
  hazard(t, SIM_BARRIER_MISUSE, at, NULL, ~0u,
         "barrier %u with %u threads; an id below 16 and a multiple of 32 up to the block's %u are expected", id, threads,
         t->block->thread_count);
  block_abort(t);
}

// Whole warps take part, each at one place: what .aligned demands.
static void check_warps(sim_thread *t, const named_barrier *n, u32 id) {
  for (u32 w = 0; w < t->block->warp_count; w++) {
    u32 lanes = n->lanes_arrived[w];
    if (!lanes || lanes == 0xffffffffu) continue;
    hazard(t, SIM_DIVERGENT, n->place[w], NULL, ~0u, "barrier %u completes with %d of 32 lanes of warp %u", id, __builtin_popcount(lanes),
           w);
  }
}

static void complete(sim_thread *t, named_barrier *n, u32 id) {
  sim_block *b = t->block;
  check_warps(t, n, id);
  for (u32 w = 0; w < b->warp_count; w++) {
    if (n->lanes_arrived[w] == 0xffffffffu) warp_flush_counts(b, &b->warps[w]);
    for (u32 waiting = n->waiting[w]; waiting; waiting &= waiting - 1) {
      sim_thread *other = &b->threads[w * WARP + (u32)__builtin_ctz(waiting)];
      if (n->gathering) thread_adopt(other, n->gathering); // it contributed, so that this contains what it knew
      thread_ready(other);
    }
  }
  knowledge_release(b, n->gathering);
  *n = (named_barrier){.last_expected = n->expected, .last_thread = t->id, .last_clock = t->own.thread - 1, .last_place = n->first_place};
  b->device->report.barriers++;
  b->device->progress++;
}

static void arrive(sim_place *at, u32 id, u32 threads, int wait) {
  sim_thread *t = sim_self;
  if (synchronising(t, at) || !operands_ok(t, at, id, threads)) return;
  sim_block *b = t->block;
  named_barrier *n = &b->barriers[id];
  u32 w = t->warp->id;
  if (!n->arrived) n->expected = threads, n->first_place = at;
  if (n->expected != threads) {
    hazard(t, SIM_BARRIER_MISUSE, at, n->first_place, ~0u, "barrier %u is entered for %u threads here and for %u there", id, threads,
           n->expected);
    block_abort(t);
  }
  // phases of different sizes have to be kept apart by something else
  if (n->last_expected && n->last_expected != threads && !b->device->config.untracked &&
      !thread_knows(t, t->base, (u16)n->last_thread, n->last_clock))
    hazard(t, SIM_BARRIER_MISUSE, at, n->last_place, n->last_thread,
           "barrier %u is entered for %u threads here and for %u there, and nothing orders the two", id, threads, n->last_expected);
  // a warp may arrive and then wait at the same barrier (both count): places are compared for its first coming
  if (!(n->lanes_arrived[w] >> t->lane & 1)) {
    if (n->lanes_arrived[w] && n->place[w] != at)
      hazard(t, SIM_DIVERGENT, at, n->place[w], w * WARP + (u32)__builtin_ctz(n->lanes_arrived[w]),
             "lanes of warp %u enter barrier %u at different places", w, id);
    n->place[w] = at;
    n->lanes_arrived[w] |= 1u << t->lane;
  }
  thread_publish(t, &n->gathering);
  if (++n->arrived == n->expected) {
    if (wait && n->gathering) thread_adopt(t, n->gathering);
    complete(t, n, id);
    return;
  }
  b->device->progress++;
  if (!wait) return;
  n->waiting[w] |= 1u << t->lane;
  thread_wait(t, WAIT_BARRIER, at, id, 0);
}

void sim_bar_sync(sim_place *at, u32 id, u32 threads) { arrive(at, id, threads, 1); }
void sim_bar_arrive(sim_place *at, u32 id, u32 threads) { arrive(at, id, threads, 0); }

void barrier_describe(const sim_block *b, u32 id, char *text, size_t size) {
  snprintf(text, size, "for barrier %u (%u of %u threads are there)", id, b->barriers[id].arrived, b->barriers[id].expected);
}
