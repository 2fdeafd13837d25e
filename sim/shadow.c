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

access thread_access(sim_thread *t, sim_place *at, u32 flags) {
  return (access){.thread = t, .base = t->base, .place = at, .agent = (u16)t->id, .clock = t->own.thread, .flags = flags};
}

// What kind of agent a record belongs to decides how a collision with it is named.
static void report_collision(const access *a, const access_record *r, u32 address, int fence_only) {
  sim_block *b = a->thread->block;
  const char *now = a->flags & ACCESS_WRITE ? "write" : "read", *then = r->flags & ACCESS_WRITE ? "write" : "read";
  u32 offset = address - SMEM_BASE, first_dynamic = b->thread_count + b->warp_count + (b->thread_count + WARPGROUP - 1) / WARPGROUP;
  sim_place *other = place_of(r->place);
  if (fence_only) {
    hazard(a->thread, SIM_MISSING_PROXY_FENCE, a->place, other, r->thread,
           "%s through the asynchronous proxy at shared memory offset %u after an ordinary write by thread %u without fence_proxy_async between",
           now, offset, r->thread);
    return;
  }
  if (r->agent >= b->thread_count + b->warp_count && r->agent < first_dynamic) {
    hazard(a->thread, SIM_WGMMA_STILL_READS, a->place, other, r->thread,
           "%s at shared memory offset %u, which a wgmma of warpgroup %u may still read: nothing orders it after the wgmma's wait", now, offset,
           r->agent - b->thread_count - b->warp_count);
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
    hazard(a->thread, SIM_CP_ASYNC_NOT_WAITED, a->place, other, r->thread,
           waited ? "%s at shared memory offset %u of bytes that a cp.async of thread %u wrote: thread %u waited for it, but no barrier follows"
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

// Returns 1 if the record happened before the access.
static int collide(const access *a, const access_record *r, u32 address, int report) {
  int conflict = (a->flags | r->flags) & ACCESS_WRITE && !(a->flags & r->flags & ACCESS_ATOMIC);
  if (a->agent == r->agent && a->clock == r->clock) return 1; // the same asynchronous group or collective instruction, or program order
  int ordered = thread_knows(a->thread, a->base, r->agent, r->clock);
  if (!report || !conflict) return ordered;
  if (!ordered) report_collision(a, r, address, 0);
  else if (a->flags & ACCESS_ASYNC && r->flags & ACCESS_WRITE && !(r->flags & ACCESS_ASYNC) &&
           !thread_knows_fenced(a->thread, a->base, r->agent, r->clock))
    report_collision(a, r, address, 1);
  return ordered;
}

static void check_initialised(const access *a, const shadow_cell *c, u32 mask, u32 address) {
  if (a->flags & ACCESS_WRITE && !(a->flags & ACCESS_ATOMIC)) return;
  if ((c->initialised & mask) != mask)
    hazard(a->thread, SIM_UNINITIALISED, a->place, NULL, ~0u, "read at shared memory offset %u before anything was written there",
           address - SMEM_BASE);
}

static void check_cell(const access *a, shadow_cell *c, u32 mask, u32 address) {
  check_initialised(a, c, mask, address);
  access_record *r = records_of(c);
  for (u32 i = 0; i < c->count; i++)
    if (r[i].mask & mask) collide(a, &r[i], address, 1);
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

static void record_cell(const access *a, shadow_cell *c, u32 mask) {
  access_record *r = records_of(c);
  u32 kept = 0;
  for (u32 i = 0; i < c->count; i++) {
    // a write covers what it overwrites, ordered or not (reported once is enough); a read covers reads that happened before it
    if (r[i].mask & mask) {
      int covered = a->flags & ACCESS_WRITE || (!(r[i].flags & ACCESS_WRITE) && collide(a, &r[i], 0, 0));
      if (covered && (a->flags & ACCESS_ATOMIC || r[i].flags & ACCESS_ATOMIC)) covered = collide(a, &r[i], 0, 0);
      if (covered) r[i].mask = (u16)(r[i].mask & ~mask);
    }
    if (r[i].mask) r[kept++] = r[i];
  }
  c->count = (u16)kept;
  access_record n = {a->clock, place_id(a->place), a->agent, (u16)mask, (u16)a->thread->id, (u16)a->flags};
  for (u32 i = 0; i < kept; i++) // adjacent accesses of one instruction share a record
    if (r[i].clock == n.clock && r[i].place == n.place && r[i].agent == n.agent && r[i].flags == n.flags) {
      r[i].mask = (u16)(r[i].mask | mask);
      goto done;
    }
  cell_append(c, &n);
done:
  if (a->flags & ACCESS_WRITE) c->initialised = (u16)(c->initialised | mask);
}

#define FOR_CELLS(b, address, bytes, cell, mask, start)                                                                           \
  for (u32 start = (address), left_ = (bytes); left_;)                                                                            \
    for (u32 in_ = start % CELL, take_ = CELL - in_ < left_ ? CELL - in_ : left_, mask = (0xffffu >> (CELL - take_)) << in_, once_ = 1; once_; \
         once_ = 0, start += take_, left_ -= take_)                                                                               \
      for (shadow_cell *cell = &(b)->cells[(start - SMEM_BASE) / CELL]; cell; cell = NULL)

void shadow_check(const access *a, u32 address, u32 bytes) {
  if (a->thread->block->device->config.untracked) return;
  FOR_CELLS(a->thread->block, address, bytes, cell, mask, start) check_cell(a, cell, mask, start);
}
void shadow_record(const access *a, u32 address, u32 bytes) {
  if (a->thread->block->device->config.untracked) return;
  FOR_CELLS(a->thread->block, address, bytes, cell, mask, start) record_cell(a, cell, mask);
}
void shadow_access(const access *a, u32 address, u32 bytes) {
  if (a->thread->block->device->config.untracked) return;
  FOR_CELLS(a->thread->block, address, bytes, cell, mask, start) {
    if (cell->mbarrier && a->flags & ACCESS_WRITE && mask & (cell->mbarrier & 1 ? 0xffu : 0u | (cell->mbarrier & 2 ? 0xff00u : 0u)))
      hazard(a->thread, SIM_MBARRIER_MISUSE, a->place, NULL, ~0u, "write over a live mbarrier at shared memory offset %u", start - SMEM_BASE);
    check_cell(a, cell, mask, start);
    record_cell(a, cell, mask);
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
