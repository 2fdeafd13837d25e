// cp.async: each thread's copies from global to shared memory, in groups. The bytes belong to the copy from its issue until the thread's
// wait; then to the thread; to others after a barrier.
#include "model.h"
#include <string.h>

static void copy(sim_thread *t, const cp_async_op *o) {
  unsigned char *to = smem_pointer(t->block, o->dst);
  memset(to, 0, o->bytes);
  if (o->src_bytes && gmem_range_ok(t, o->place, o->src, o->src_bytes, 1)) memcpy(to, o->src, o->src_bytes);
  t->block->device->progress++;
}

void sim_cp_async(sim_place *at, u32 dst, const void *src, u32 bytes, u32 src_bytes) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  if (!smem_range_ok(t, at, dst, bytes, bytes)) return;
  if (src_bytes > bytes) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u, "source size %u of a copy of %u bytes", src_bytes, bytes);
    return;
  }
  if (src_bytes && (uintptr_t)src % bytes) {
    hazard(t, SIM_MISALIGNED, at, NULL, ~0u, "global address %p is not a multiple of %u", src, bytes);
    return;
  }
  if (t->cp_agent == NO_AGENT) t->cp_agent = agent_new(b, t->id);
  if (!t->cp_sequence) t->cp_sequence = 1;
  count_access(t, at, SPACE_SMEM | (src_bytes ? SPACE_GMEM_READ : 0), bytes, dst, src_bytes ? src : NULL);
  b->device->report.cp_async += t->lane == 0;
  access a = agent_access(t, at, t->cp_agent, t->cp_sequence, ACCESS_WRITE);
  shadow_access(&a, dst, bytes);
  cp_async_op o = {dst, bytes, src_bytes, t->cp_sequence, src, at};
  if (!(b->device->config.modes & SIM_CP_ASYNC_LATE))
    copy(t, &o);
  else if (grow(&t->copies, &t->copy_capacity, t->copy_count + 1, sizeof o))
    t->copies[t->copy_count++] = o;
}

void cp_async_execute_until(sim_thread *t, u32 sequence) {
  u32 done = 0;
  while (done < t->copy_count && t->copies[done].sequence <= sequence) copy(t, &t->copies[done++]);
  if (!done) return;
  memmove(t->copies, t->copies + done, (t->copy_count - done) * sizeof *t->copies);
  t->copy_count -= done;
}

enum { GROUP_RING = 64 };
void sim_cp_async_commit(sim_place *at) {
  sim_thread *t = sim_self;
  (void)at;
  t->instructions++;
  if (!t->cp_sequence) t->cp_sequence = 1;
  t->cp_group_end[t->cp_groups++ % GROUP_RING] = t->cp_sequence++;
}

void sim_cp_async_wait(sim_place *at, u32 groups) {
  sim_thread *t = sim_self;
  if (synchronising(t, at) || t->cp_groups <= groups) return;
  if (groups >= GROUP_RING) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u, "the model keeps %d groups", GROUP_RING);
    return;
  }
  u32 end = t->cp_group_end[(t->cp_groups - groups - 1) % GROUP_RING];
  cp_async_execute_until(t, end);
  if (t->own.cp_async < end) t->own.cp_async = end;
}

void sim_cp_async_mbarrier_arrive(sim_place *at, u32 bar) {
  sim_thread *t = sim_self;
  t->instructions++;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) block_abort(t);
  if (!t->cp_sequence) t->cp_sequence = 1;
  async_op o = {.kind = CP_ASYNC_ARRIVE, .place = at, .thread = t, .bar = bar, .group = t->cp_sequence++};
  async_push(t->block, &o);
  if (!(t->block->device->config.modes & SIM_CP_ASYNC_LATE)) async_execute(t->block, t->block->async_count - 1);
}
