// Vector clocks. A thread's knowledge is a shared, immutable base (what it learnt at barriers; all threads that met at one barrier
// share the object) and its own clocks. A release adds both to the barrier's gathering object; an acquire joins the barrier's object to
// the base. Joins are remembered, because the threads of a warpgroup ask for the same one in turn.
#include "model.h"
#include <stdlib.h>
#include <string.h>

u16 agent_of_warp(const sim_block *b, u32 warp) { return (u16)(b->thread_count + warp); }
u16 agent_of_warpgroup(const sim_block *b, u32 group) { return (u16)(b->thread_count + b->warp_count + group); }

u16 agent_new(sim_block *b, u32 thread) {
  if (b->agents >= sizeof b->agent_thread / sizeof b->agent_thread[0]) return NO_AGENT;
  b->agent_thread[b->agents] = (u16)thread;
  return (u16)b->agents++;
}

static knowledge *knowledge_make(sim_block *b) {
  u32 capacity = (b->agents + 63) & ~63u;
  knowledge *k = b->free_knowledge;
  if (k && k->capacity >= b->agents) {
    b->free_knowledge = k->next_free;
  } else {
    k = malloc(sizeof *k + 2 * (size_t)capacity * sizeof(u32));
    if (!k) return NULL;
    k->capacity = capacity;
    k->clock = (u32 *)(k + 1);
    k->fenced = k->clock + capacity;
  }
  k->references = 1;
  k->serial = ++b->knowledge_serial;
  k->last_joined = 0;
  k->agents = b->agents;
  return k;
}

knowledge *knowledge_new(sim_block *b) {
  knowledge *k = knowledge_make(b);
  if (!k) return NULL;
  memset(k->clock, 0, k->agents * sizeof(u32));
  memset(k->fenced, 0, k->agents * sizeof(u32));
  return k;
}

knowledge *knowledge_retain(knowledge *k) {
  if (k) k->references++;
  return k;
}

void knowledge_release(sim_block *b, knowledge *k) {
  if (!k || --k->references) return;
  if (k->capacity < b->agents) { // too small for reuse
    free(k);
    return;
  }
  k->next_free = b->free_knowledge;
  b->free_knowledge = k;
}

static knowledge *knowledge_copy(sim_block *b, const knowledge *k) {
  knowledge *n = knowledge_make(b);
  if (!n) return NULL;
  memcpy(n->clock, k->clock, k->agents * sizeof(u32));
  memcpy(n->fenced, k->fenced, k->agents * sizeof(u32));
  memset(n->clock + k->agents, 0, (n->agents - k->agents) * sizeof(u32));
  memset(n->fenced + k->agents, 0, (n->agents - k->agents) * sizeof(u32));
  return n;
}

static void max_into(u32 *restrict a, const u32 *restrict b, u32 count) {
  for (u32 i = 0; i < count; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
}

int knowledge_contains(const knowledge *a, const knowledge *b) {
  if (a == b) return 1;
  u32 shared = a->agents < b->agents ? a->agents : b->agents, missing = 0;
  for (u32 i = 0; i < shared; i++) missing |= (u32)(a->clock[i] < b->clock[i]) | (u32)(a->fenced[i] < b->fenced[i]);
  for (u32 i = shared; i < b->agents; i++) missing |= b->clock[i];
  return !missing;
}

// Makes *gathering an unshared object with room for all agents of now.
static knowledge *gathering_open(sim_block *b, knowledge **gathering) {
  knowledge *k = *gathering;
  if (!k) return *gathering = knowledge_new(b);
  if (k->agents < b->agents || k->references > 1) {
    knowledge *n = knowledge_copy(b, k);
    if (!n) return NULL;
    knowledge_release(b, k);
    *gathering = n;
  }
  return *gathering;
}

void knowledge_learn(sim_block *b, knowledge **gathering, u16 agent, u32 clock) {
  knowledge *k = gathering_open(b, gathering);
  if (k && agent != NO_AGENT && k->clock[agent] < clock) k->clock[agent] = clock;
}

static void learn_own(knowledge *k, u16 agent, u32 clock, u32 fenced) {
  if (agent == NO_AGENT) return;
  if (k->clock[agent] < clock) k->clock[agent] = clock;
  if (k->fenced[agent] < fenced) k->fenced[agent] = fenced;
}

void thread_publish(sim_thread *t, knowledge **gathering) {
  sim_block *b = t->block;
  if (b->device->config.untracked) return;
  knowledge *k = gathering_open(b, gathering);
  if (!k) return;
  if (k->last_joined != t->base->serial) {
    max_into(k->clock, t->base->clock, t->base->agents);
    max_into(k->fenced, t->base->fenced, t->base->agents);
    k->last_joined = t->base->serial;
  }
  learn_own(k, (u16)t->id, t->own.thread, t->own.thread_fenced);
  learn_own(k, agent_of_warp(b, t->warp->id), t->own.warp, t->own.warp_fenced);
  learn_own(k, t->cp_agent, t->own.cp_async, t->own.cp_async_fenced);
  if (t->own.wgmma) learn_own(k, agent_of_warpgroup(b, t->id / WARPGROUP), t->own.wgmma, 0);
  learn_own(k, t->bulk_agent, t->own.bulk, 0);
  t->own.thread++; // what it does from here on is not part of this release
}

void thread_adopt(sim_thread *t, knowledge *k) {
  if (!k || t->base == k) return;
  knowledge_retain(k);
  knowledge_release(t->block, t->base);
  t->base = k;
}

// The remembered answer for (a, b), or the entry of its set to put one in, emptied. Lanes ask in turn for the same few.
static memo_entry *memo_find(sim_block *b, knowledge *x, knowledge *y) {
  memo_entry *set = &b->memo[(((uintptr_t)x >> 6) * 31 + ((uintptr_t)y >> 6)) % MEMO_SETS * MEMO_WAYS];
  for (u32 i = 0; i < MEMO_WAYS; i++)
    if (set[i].a == x && set[i].b == y) return &set[i];
  memo_entry *oldest = &set[b->memo_turn++ % MEMO_WAYS];
  knowledge_release(b, oldest->a);
  knowledge_release(b, oldest->b);
  knowledge_release(b, oldest->join);
  *oldest = (memo_entry){knowledge_retain(x), knowledge_retain(y), NULL};
  return oldest;
}

void thread_acquire(sim_thread *t, knowledge *k) {
  sim_block *b = t->block;
  if (!k || b->device->config.untracked || t->base == k) return;
  memo_entry *m = memo_find(b, t->base, k);
  if (!m->join) {
    if (knowledge_contains(t->base, k))
      m->join = knowledge_retain(t->base);
    else if (knowledge_contains(k, t->base))
      m->join = knowledge_retain(k);
    else if ((m->join = knowledge_copy(b, t->base))) {
      max_into(m->join->clock, k->clock, k->agents);
      max_into(m->join->fenced, k->fenced, k->agents);
    }
  }
  thread_adopt(t, m->join);
}

// fence.proxy.async: all that the thread knows of becomes visible to the asynchronous proxy.
void thread_fence(sim_thread *t) {
  sim_block *b = t->block;
  own_clocks *o = &t->own;
  if (b->device->config.untracked) return;
  o->thread_fenced = o->thread++;
  o->warp_fenced = o->warp;
  o->cp_async_fenced = o->cp_async;
  memo_entry *m = memo_find(b, t->base, t->base); // no join has this key
  if (!m->join && (m->join = knowledge_copy(b, t->base))) max_into(m->join->fenced, m->join->clock, m->join->agents);
  thread_adopt(t, m->join);
}

static u32 own_clock(const sim_thread *t, u16 agent, int fenced) {
  const sim_block *b = t->block;
  if (agent == t->id) return fenced ? t->own.thread_fenced : t->own.thread;
  if (agent == agent_of_warp(b, t->warp->id)) return fenced ? t->own.warp_fenced : t->own.warp;
  if (agent == t->cp_agent) return fenced ? t->own.cp_async_fenced : t->own.cp_async;
  if (agent == t->bulk_agent) return t->own.bulk;
  if (agent == agent_of_warpgroup(b, t->id / WARPGROUP)) return t->own.wgmma;
  return 0;
}

int thread_knows(const sim_thread *t, const knowledge *base, u16 agent, u32 clock) {
  if (agent < base->agents && base->clock[agent] >= clock) return 1;
  return own_clock(t, agent, 0) >= clock;
}
int thread_knows_fenced(const sim_thread *t, const knowledge *base, u16 agent, u32 clock) {
  if (agent < base->agents && base->fenced[agent] >= clock) return 1;
  return own_clock(t, agent, 1) >= clock;
}

// After a block: everything back, sizes start anew.
void knowledge_reset(sim_block *b) {
  for (u32 i = 0; i < MEMO_SETS * MEMO_WAYS; i++) {
    knowledge_release(b, b->memo[i].a);
    knowledge_release(b, b->memo[i].b);
    knowledge_release(b, b->memo[i].join);
    b->memo[i] = (memo_entry){0};
  }
  for (knowledge *k = b->free_knowledge, *next; k; k = next) {
    next = k->next_free;
    free(k);
  }
  b->free_knowledge = NULL;
}
