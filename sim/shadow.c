// The shadow of shared memory: for each 16 bytes the accesses that a later one may still collide with. An access is checked against
// them by what the accessing thread knows (knowledge.c), so that two unordered accesses are found in whichever order this run
// made them. An access replaces the recorded ones that happened before it.
#include "model.h"
#include <stdlib.h>
#include <string.h>

static access_record *records_of(shadow_cell *c) { return c->more ? c->more : c->inline_records; }

int smem_range_ok(sim_thread *t, sim_place *at, u32 address, u32 bytes, u32 alignment) {
  sim_block *b = t->block;
  if (address < SMEM_BASE || (u64)address + bytes > (u64)SMEM_BASE + b->smem_bytes) {
    hazard(t, SIM_SMEM_OUT_OF_BOUNDS, at, NULL, ~0u, "%u bytes at shared memory offset %lld; the block has %u bytes", bytes,
           (long long)address - SMEM_BASE, b->smem_bytes);
    return 0;
  }
  if (address % alignment) {
    hazard(t, SIM_MISALIGNED, at, NULL, ~0u, "shared memory offset %u is not a multiple of %u", address - SMEM_BASE, alignment);
    return 0;
  }
  return 1;
}

access thread_access(sim_thread *t, sim_place *at, u32 flags) { return agent_access(t, at, (u16)t->id, t->own.thread, flags); }

access agent_access(sim_thread *t, sim_place *at, u16 agent, u32 clock, u32 flags) {
  access a;
  a.thread = t, a.base = t->base, a.place = at, a.place_id = place_id(at), a.agent = agent, a.clock = clock, a.flags = flags;
  memset(a.memo_valid, 0, sizeof a.memo_valid);
  return a;
}

// What kind of agent a record belongs to decides how a collision with it is named.
static void report_collision(const access *a, const access_record *r, u32 address, int fence_only) {
  sim_block *b = a->thread->block;
  const char *now = a->flags & ACCESS_WRITE ? "write" : "read", *then = r->flags & ACCESS_WRITE ? "write" : "read";
  u32 offset = address - SMEM_BASE, first_dynamic = b->thread_count + b->warp_count + (b->thread_count + WARPGROUP - 1) / WARPGROUP;
  sim_place *other = place_of(r->place);
  if (fence_only) {
    hazard(a->thread, SIM_MISSING_PROXY_FENCE, a->place, other, r->thread,
           "%s through the asynchronous proxy at shared memory offset %u after an ordinary write by thread %u without fence_proxy_async "
           "between",
           now, offset, r->thread);
    return;
  }
  if (r->agent >= b->thread_count + b->warp_count && r->agent < first_dynamic) {
    hazard(a->thread, SIM_WGMMA_STILL_READS, a->place, other, r->thread,
           "%s at shared memory offset %u, which a wgmma of warpgroup %u may still read: nothing orders it after the wgmma's wait", now,
           offset, r->agent - b->thread_count - b->warp_count);
  } else if (r->agent >= first_dynamic && b->agent_thread[r->agent] == NO_AGENT) {
    hazard(a->thread, SIM_TMA_NOT_WAITED, a->place, other, r->thread,
           "%s at shared memory offset %u, which a TMA load may still write: its mbarrier phase was not waited for", now, offset);
  } else if (r->agent >= first_dynamic && !(r->flags & ACCESS_WRITE)) {
    hazard(a->thread, SIM_TMA_STILL_READS, a->place, other, r->thread,
           "%s at shared memory offset %u, which a TMA store of thread %u may still read: no tma_store_wait_read orders it", now, offset,
           r->thread);
  } else if (r->agent >= first_dynamic) {
    sim_thread *owner = &b->threads[r->thread];
    int waited = owner->own.cp_async >= r->clock;
    hazard(
        a->thread, SIM_CP_ASYNC_NOT_WAITED, a->place, other, r->thread,
        waited
            ? "%s at shared memory offset %u of bytes that a cp.async of thread %u wrote: thread %u waited for it, but no barrier follows"
            : "%s at shared memory offset %u of bytes that a cp.async of thread %u may still write: thread %u has not waited for it",
        now, offset, r->thread, r->thread);
  } else if (a->flags & ACCESS_ASYNC && !(a->flags & ACCESS_WRITE && r->flags & ACCESS_WRITE)) {
    hazard(a->thread, SIM_RACE, a->place, other, r->thread,
           "asynchronous %s at shared memory offset %u is not ordered against an ordinary %s by thread %u", now, offset, then, r->thread);
  } else {
    hazard(a->thread, SIM_RACE, a->place, other, r->thread, "%s at shared memory offset %u and %s by thread %u: nothing orders them", now,
           offset, then, r->thread);
  }
}

// Whether the record happened before the access. The cells of a tile tend to hold the same records: answers are remembered.
static int happened_before(access *a, const access_record *r) {
  if (a->agent == r->agent && a->clock == r->clock) return 1; // the same asynchronous group or collective instruction, or program order
  u32 slot = r->agent % ACCESS_MEMO;
  if (a->memo_agent[slot] != r->agent || a->memo_clock[slot] != r->clock || !a->memo_valid[slot]) {
    a->memo_agent[slot] = r->agent, a->memo_clock[slot] = r->clock, a->memo_valid[slot] = 1;
    a->memo_answer[slot] = (u8)thread_knows(a->thread, a->base, r->agent, r->clock);
  }
  return a->memo_answer[slot];
}

static void check_record(access *a, const access_record *r, u32 address, int before) {
  if (!((a->flags | r->flags) & ACCESS_WRITE) || a->flags & r->flags & ACCESS_ATOMIC) return;
  if (!before)
    report_collision(a, r, address, 0);
  else if (a->flags & ACCESS_ASYNC && r->flags & ACCESS_WRITE && !(r->flags & ACCESS_ASYNC) &&
           !thread_knows_fenced(a->thread, a->base, r->agent, r->clock))
    report_collision(a, r, address, 1);
}

static void check_initialised(const access *a, const shadow_cell *c, u32 mask, u32 address) {
  if (a->flags & ACCESS_WRITE && !(a->flags & ACCESS_ATOMIC)) return;
  if ((c->initialised & mask) != mask)
    hazard(a->thread, SIM_UNINITIALISED, a->place, NULL, ~0u, "read at shared memory offset %u before anything was written there",
           address - SMEM_BASE);
}

static void cell_append(shadow_cell *c, const access_record *r) {
  u32 room = c->more ? c->capacity : INLINE_RECORDS;
  if (c->count == room) {
    u32 capacity = 4 * room;
    access_record *more = malloc(capacity * sizeof *more);
    if (!more) return;
    memcpy(more, records_of(c), c->count * sizeof *more);
    free(c->more);
    c->more = more;
    c->capacity = (u16)capacity;
  }
  records_of(c)[c->count++] = *r;
}

// A write covers the records that it overwrites, ordered or not (reported once is enough), but atomics only what came before them; a read
// covers reads that happened before it.
static int covers(const access *a, const access_record *r, int before) {
  if (a->flags & ACCESS_WRITE) return before || !((a->flags | r->flags) & ACCESS_ATOMIC);
  return before && !(r->flags & ACCESS_WRITE);
}

enum { CHECK = 1, RECORD = 2 };
static void access_cell(access *a, shadow_cell *c, u32 mask, u32 address, int what) {
  if (what & CHECK) check_initialised(a, c, mask, address);
  access_record *r = records_of(c);
  u32 kept = 0, count = c->count;
  int joined = 0;
  for (u32 i = 0; i < count; i++) {
    if (r[i].mask & mask) {
      int before = happened_before(a, &r[i]);
      if (what & CHECK) check_record(a, &r[i], address, before);
      if (what & RECORD && covers(a, &r[i], before)) r[i].mask = (u16)(r[i].mask & ~mask);
    }
    if (!(what & RECORD)) continue;
    // adjacent accesses of one instruction share a record
    if (!joined && r[i].clock == a->clock && r[i].agent == a->agent && r[i].place == a->place_id && r[i].flags == a->flags) {
      r[i].mask = (u16)(r[i].mask | mask);
      joined = 1;
    }
    if (r[i].mask) {
      if (kept != i) r[kept] = r[i];
      kept++;
    }
  }
  if (!(what & RECORD)) return;
  c->count = (u16)kept;
  access_record n = {a->clock, a->place_id, a->agent, (u16)mask, (u16)a->thread->id, (u16)a->flags};
  if (!joined) cell_append(c, &n);
  if (a->flags & ACCESS_WRITE) c->initialised = (u16)(c->initialised | mask);
}

#define FOR_CELLS(b, address, bytes, cell, mask, start)                                                                                    \
  for (u32 start = (address), left_ = (bytes); left_;)                                                                                     \
    for (u32 in_ = start % CELL, take_ = CELL - in_ < left_ ? CELL - in_ : left_, mask = (0xffffu >> (CELL - take_)) << in_, once_ = 1;    \
         once_; once_ = 0, start += take_, left_ -= take_)                                                                                 \
      for (shadow_cell *cell = &(b)->cells[(start - SMEM_BASE) / CELL]; cell; cell = NULL)

void shadow_check(access *a, u32 address, u32 bytes) {
  if (a->thread->block->device->config.untracked) return;
  FOR_CELLS(a->thread->block, address, bytes, cell, mask, start) access_cell(a, cell, mask, start, CHECK);
}

void shadow_access(access *a, u32 address, u32 bytes) {
  if (a->thread->block->device->config.untracked) return;
  FOR_CELLS(a->thread->block, address, bytes, cell, mask, start) {
    if (cell->mbarrier && a->flags & ACCESS_WRITE && mask & ((cell->mbarrier & 1 ? 0xffu : 0u) | (cell->mbarrier & 2 ? 0xff00u : 0u)))
      hazard(a->thread, SIM_MBARRIER_MISUSE, a->place, NULL, ~0u, "write over a live mbarrier at shared memory offset %u",
             start - SMEM_BASE);
    access_cell(a, cell, mask, start, CHECK | RECORD);
  }
}

void shadow_reset(sim_block *b) {
  u32 cells = (b->smem_bytes + CELL - 1) / CELL;
  for (u32 i = 0; i < cells; i++) {
    free(b->cells[i].more);
    b->cells[i].more = NULL;
    b->cells[i].initialised = b->cells[i].count = b->cells[i].mbarrier = 0;
  }
}
