// mbarriers: arrivals, expected bytes, phases. A phase's completion hands what the arriving threads knew, and the bytes that landed, to who
// waits for it. PTX manual, section mbarrier.
#include "model.h"
#include <string.h>

enum { MOST_TX = (1 << 20) - 1 };

mbarrier *mbarrier_find(sim_thread *t, sim_place *at, u32 bar) {
  sim_block *b = t->block;
  if (!smem_range_ok(t, at, bar, 8, 8)) return NULL;
  u32 i = b->mbarrier_at[(bar - SMEM_BASE) / 8];
  mbarrier *m = i ? &b->mbarriers[i - 1] : NULL;
  if (!m || !m->live) {
    hazard(t, SIM_MBARRIER_MISUSE, at, NULL, ~0u, "no mbarrier was initialised at shared memory offset %u", bar - SMEM_BASE);
    return NULL;
  }
  if (!b->device->config.untracked && !thread_knows(t, t->base, m->init_thread, m->init_clock))
    hazard(t, SIM_MBARRIER_MISUSE, at, m->init_place, m->init_thread,
           "mbarrier at shared memory offset %u is used without a barrier after its initialisation by thread %u", bar - SMEM_BASE,
           m->init_thread);
  return m;
}

static mbarrier *mbarrier_make(sim_block *b, u32 bar) {
  u32 *slot = &b->mbarrier_at[(bar - SMEM_BASE) / 8];
  if (!*slot) {
    if (!grow(&b->mbarriers, &b->mbarrier_capacity, b->mbarrier_count + 1, sizeof *b->mbarriers)) return NULL;
    b->mbarriers[b->mbarrier_count++] = (mbarrier){.address = bar, .agent = agent_new(b, NO_AGENT)};
    *slot = b->mbarrier_count;
  }
  return &b->mbarriers[*slot - 1];
}

static shadow_cell *cell_of(sim_block *b, u32 bar) { return &b->cells[(bar - SMEM_BASE) / CELL]; }

void sim_mbarrier_init(sim_place *at, u32 bar, u32 count) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  t->instructions++;
  if (!require_arch(t, at, 80) || !smem_range_ok(t, at, bar, 8, 8)) return;
  mbarrier *m = mbarrier_make(b, bar);
  if (!m || m->agent == NO_AGENT) return;
  if (m->live)
    hazard(t, SIM_MBARRIER_MISUSE, at, m->init_place, ~0u, "mbarrier at shared memory offset %u is live already", bar - SMEM_BASE);
  if (!count || count > MOST_TX) hazard(t, SIM_MBARRIER_MISUSE, at, NULL, ~0u, "mbarrier count %u; 1..%u is expected", count, MOST_TX);
  access a = thread_access(t, at, ACCESS_WRITE);
  shadow_access(&a, bar, 8);
  cell_of(b, bar)->mbarrier |= bar % CELL ? 2 : 1;
  m->live = 1, m->count = m->pending = count, m->tx = 0, m->base_phase = m->phase;
  m->init_thread = (u16)t->id, m->init_clock = t->own.thread, m->init_fenced = 0, m->init_place = at;
}

void sim_mbarrier_inval(sim_place *at, u32 bar) {
  sim_thread *t = sim_self;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) return;
  m->live = 0;
  cell_of(t->block, bar)->mbarrier &= (u16) ~(bar % CELL ? 2 : 1);
}

static void mark_fenced(sim_thread *t) {
  for (u32 i = 0; i < t->block->mbarrier_count; i++)
    if (t->block->mbarriers[i].init_thread == t->id) t->block->mbarriers[i].init_fenced = 1;
}

void sim_fence_mbarrier_init(sim_place *at) {
  sim_thread *t = sim_self;
  if (!synchronising(t, at) && require_arch(t, at, 90)) mark_fenced(t);
}

void sim_fence_proxy_async(sim_place *at, int global) {
  sim_thread *t = sim_self;
  if (synchronising(t, at) || !require_arch(t, at, 90) || global) return;
  mark_fenced(t); // the stronger fence covers it
  thread_fence(t);
}

static void try_complete(sim_block *b, sim_thread *t, sim_place *at, mbarrier *m) {
  if (m->pending || m->tx > 0) return;
  if (m->tx < 0) {
    hazard(t, SIM_MBARRIER_MISUSE, at, m->last_arrival, ~0u,
           "%lld bytes more than expected landed on the mbarrier at shared memory offset %u", -(long long)m->tx, m->address - SMEM_BASE);
    return;
  }
  m->phase++;
  m->pending = m->count;
  if (!b->device->config.untracked) {
    knowledge_learn(b, &m->gathering, m->agent, m->phase);
    knowledge_release(b, m->complete);
    m->complete = m->gathering;
    m->gathering = NULL;
  }
  b->device->progress++;
  for (u32 i = 0; i < b->thread_count; i++) {
    sim_thread *w = &b->threads[i];
    if (w->waiting != WAIT_MBARRIER || w->wait_object != m->address || ((m->phase - m->base_phase) & 1) == w->wait_value) continue;
    thread_acquire(w, m->complete);
    thread_ready(w);
    m->awaited_phase = m->phase;
  }
}

// An arrival has to come after the phase before: else, in another order, it counts in that phase. (A thread that arrives alone knows that its
// last arrival completed the phase.)
static void check_phase_order(sim_thread *t, sim_place *at, const mbarrier *m) {
  if (m->phase == m->base_phase || t->block->device->config.untracked || thread_knows(t, t->base, m->agent, m->phase)) return;
  if (m->count == 1 && m->last_thread == t->id && m->tma_phase < m->phase) return;
  hazard(t, SIM_MBARRIER_MISUSE, at, m->last_arrival, m->last_thread,
         "arrival on the mbarrier at shared memory offset %u: nothing orders it after phase %u, in which it may be one too many",
         m->address - SMEM_BASE, m->phase - 1 - m->base_phase);
}

void sim_mbarrier_arrive(sim_place *at, u32 bar, u32 arrivals, u32 tx_bytes) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  line_of(b->device, at)->warp_instructions += t->lane != 0; // one thread's instruction, not a warp's
  if (synchronising(t, at) || !require_arch(t, at, tx_bytes ? 90 : 80)) return;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) block_abort(t);
  m->tx += tx_bytes;
  if (m->tx > MOST_TX)
    hazard(t, SIM_MBARRIER_MISUSE, at, NULL, ~0u, "%lld bytes are expected on one mbarrier; the limit is %d", (long long)m->tx, MOST_TX);
  if (arrivals > m->pending) {
    hazard(t, SIM_MBARRIER_MISUSE, at, m->last_arrival, ~0u,
           "too many arrivals on the mbarrier at shared memory offset %u: all %u of this phase have come%s", bar - SMEM_BASE, m->count,
           m->tx ? ", bytes are still expected" : "");
    block_abort(t);
  }
  if (arrivals) check_phase_order(t, at, m);
  m->last_arrival = at, m->last_thread = t->id;
  if (arrivals) thread_publish(t, &m->gathering);
  m->pending -= arrivals;
  b->device->progress++;
  try_complete(b, t, at, m);
}

void sim_mbarrier_wait(sim_place *at, u32 bar, u32 parity) {
  sim_thread *t = sim_self;
  if (synchronising(t, at)) return;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) block_abort(t);
  if (((m->phase - m->base_phase) & 1) != (parity & 1)) {
    thread_acquire(t, m->complete);
    m->awaited_phase = m->phase;
    return;
  }
  thread_wait(t, WAIT_MBARRIER, at, bar, parity & 1);
}

int sim_mbarrier_test_wait(sim_place *at, u32 bar, u32 parity) {
  sim_thread *t = sim_self;
  if (synchronising(t, at)) return 1;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) block_abort(t);
  if (((m->phase - m->base_phase) & 1) == (parity & 1)) {
    thread_spin(t, at);
    return 0;
  }
  thread_acquire(t, m->complete);
  m->awaited_phase = m->phase;
  return 1;
}

void mbarrier_complete_tx(sim_block *b, sim_thread *issuer, sim_place *at, u32 bar, u32 bytes) {
  u32 i = b->mbarrier_at[(bar - SMEM_BASE) / 8];
  if (!i || !b->mbarriers[i - 1].live) return;
  mbarrier *m = &b->mbarriers[i - 1];
  m->tx -= bytes;
  b->device->progress++;
  try_complete(b, issuer, at, m);
}

void mbarrier_async_arrive(sim_block *b, sim_thread *issuer, sim_place *at, u32 bar) {
  u32 i = b->mbarrier_at[(bar - SMEM_BASE) / 8];
  if (!i || !b->mbarriers[i - 1].live) return;
  mbarrier *m = &b->mbarriers[i - 1];
  if (!m->pending) {
    hazard(issuer, SIM_MBARRIER_MISUSE, at, m->last_arrival, ~0u, "too many arrivals on the mbarrier at shared memory offset %u",
           bar - SMEM_BASE);
    return;
  }
  m->last_arrival = at;
  m->pending--;
  b->device->progress++;
  try_complete(b, issuer, at, m);
}

void mbarrier_describe(const sim_block *b, u32 bar, char *text, size_t size) {
  u32 i = b->mbarrier_at[(bar - SMEM_BASE) / 8];
  if (!i) {
    snprintf(text, size, "for no mbarrier");
    return;
  }
  const mbarrier *m = &b->mbarriers[i - 1];
  snprintf(text, size, "for phase %u of the mbarrier at offset %u (%u of %u arrivals missing, %lld bytes expected)",
           m->phase - m->base_phase, bar - SMEM_BASE, m->pending, m->count, (long long)m->tx);
}

// What must not be left when the block ends: bytes under way, or landed and never waited for (they would land in the next block's memory).
void mbarriers_at_end(sim_block *b) {
  for (u32 i = 0; i < b->mbarrier_count; i++) {
    const mbarrier *m = &b->mbarriers[i];
    if (!m->live) continue;
    if (m->tx)
      hazard(&b->threads[m->init_thread], SIM_MBARRIER_MISUSE, m->tma_place ? m->tma_place : m->init_place, m->init_place, ~0u,
             "the block ends while the mbarrier at shared memory offset %u expects %lld bytes", m->address - SMEM_BASE, (long long)m->tx);
    else if (m->tma_phase > m->awaited_phase)
      hazard(&b->threads[m->init_thread], SIM_TMA_NOT_WAITED, m->tma_place, m->init_place, ~0u,
             "the block ends with a TMA load that no thread waited for, on the mbarrier at shared memory offset %u",
             m->address - SMEM_BASE);
  }
}
