// Global memory: the registered ranges, ordinary accesses, atomics. Accesses outside every range are reported and not made. Blocks may
// run on several host threads of several devices over the same memory, so atomics are atomic.
#include "model.h"
#include <stdlib.h>
#include <string.h>

// ---- ranges -----------------------------------------------------------------------------------------------------------------------
static u32 range_position(const sim_device *d, const void *p) { // of the first range that starts beyond p
  u32 low = 0, high = d->range_count;
  while (low < high) {
    u32 middle = (low + high) / 2;
    if ((uintptr_t)d->ranges[middle].base <= (uintptr_t)p)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int tensor_named(sim_device *d, const char *name, u32 *index) {
  for (*index = 0; *index < d->tensor_count; ++*index)
    if (!strncmp(d->tensors[*index].name, name, sizeof d->tensors->name - 1)) return 0;
  if (!grow(&d->tensors, &d->tensor_capacity, d->tensor_count + 1, sizeof *d->tensors)) return -1;
  tensor_counts *t = &d->tensors[d->tensor_count++];
  *t = (tensor_counts){0};
  snprintf(t->name, sizeof t->name, "%s", name);
  return 0;
}

int sim_memory_register(sim_device *d, const char *name, void *base, size_t bytes) {
  u32 at = range_position(d, base), tensor;
  uintptr_t start = (uintptr_t)base;
  if (!bytes || (at && start < (uintptr_t)d->ranges[at - 1].base + d->ranges[at - 1].bytes)) return -1;
  if (at < d->range_count && start + bytes > (uintptr_t)d->ranges[at].base) return -1;
  if (!grow(&d->ranges, &d->range_capacity, d->range_count + 1, sizeof *d->ranges) || tensor_named(d, name, &tensor)) return -1;
  memmove(d->ranges + at + 1, d->ranges + at, (d->range_count - at) * sizeof *d->ranges);
  d->ranges[at] = (memory_range){.base = base, .bytes = bytes, .tensor = tensor};
  d->range_count++;
  return 0;
}

static memory_range *range_starting(sim_device *d, const void *base) {
  u32 at = range_position(d, base);
  return at && d->ranges[at - 1].base == base ? &d->ranges[at - 1] : NULL;
}

int sim_memory_unregister(sim_device *d, void *base) {
  memory_range *r = range_starting(d, base);
  if (!r) return -1;
  u32 at = (u32)(r - d->ranges);
  memmove(r, r + 1, (d->range_count - at - 1) * sizeof *r);
  d->range_count--;
  d->last_range = 0;
  return 0;
}

int sim_memory_rename(sim_device *d, void *base, const char *name) {
  memory_range *r = range_starting(d, base);
  if (!r) return -1;
  return tensor_named(d, name, &r->tensor);
}

/* Without a sum that could wrap: wild pointers come here. */
static int inside(const memory_range *r, const void *p, size_t bytes) {
  const uintptr_t offset = (uintptr_t)p - (uintptr_t)r->base;
  return (uintptr_t)p >= (uintptr_t)r->base && bytes <= r->bytes && offset <= r->bytes - bytes;
}

memory_range *gmem_range(sim_device *d, const void *p, size_t bytes) {
  if (d->last_range < d->range_count) {
    memory_range *r = &d->ranges[d->last_range];
    if (inside(r, p, bytes)) return r;
  }
  u32 at = range_position(d, p);
  if (!at) return NULL;
  memory_range *r = &d->ranges[at - 1];
  if (!inside(r, p, bytes)) return NULL;
  d->last_range = at - 1;
  return r;
}

int gmem_range_ok(sim_thread *t, sim_place *at, const void *p, u32 bytes, u32 alignment) {
  sim_device *d = t->block->device;
  if (!gmem_range(d, p, bytes)) {
    u32 next = range_position(d, p);
    const memory_range *r = next ? &d->ranges[next - 1] : NULL;
    if (r)
      hazard(t, SIM_GMEM_OUT_OF_BOUNDS, at, NULL, ~0u, "%u bytes at %p: offset %lld of %s, which has %zu bytes", bytes, p,
             (long long)((uintptr_t)p - (uintptr_t)r->base), d->tensors[r->tensor].name, r->bytes);
    else
      hazard(t, SIM_GMEM_OUT_OF_BOUNDS, at, NULL, ~0u, "%u bytes at %p: below every registered tensor", bytes, p);
    return 0;
  }
  if ((uintptr_t)p % alignment) {
    hazard(t, SIM_MISALIGNED, at, NULL, ~0u, "global address %p is not a multiple of %u", p, alignment);
    return 0;
  }
  return 1;
}

// ---- loads and stores -----------------------------------------------------------------------------------------------------------------
void sim_gmem_load(sim_place *at, void *r, const void *s, u32 bytes) {
  sim_thread *t = sim_self;
  count_access(t, at, SPACE_GMEM_READ, bytes, 0, s);
  if (gmem_range_ok(t, at, s, bytes, bytes))
    memcpy(r, s, bytes);
  else
    memset(r, 0, bytes);
}
u8 sim_gmem_load_u8(sim_place *at, const void *s) {
  u8 v;
  sim_gmem_load(at, &v, s, 1);
  return v;
}
u16 sim_gmem_load_u16(sim_place *at, const void *s) {
  u16 v;
  sim_gmem_load(at, &v, s, 2);
  return v;
}
u32 sim_gmem_load_u32(sim_place *at, const void *s) {
  u32 v;
  sim_gmem_load(at, &v, s, 4);
  return v;
}
void sim_gmem_store(sim_place *at, void *d, const void *r, u32 bytes) {
  sim_thread *t = sim_self;
  count_access(t, at, SPACE_GMEM_WRITE, bytes, 0, d);
  check_poison(t, at, r, bytes / 4);
  if (!gmem_range_ok(t, at, d, bytes, bytes)) return;
  memcpy(d, r, bytes);
  t->block->device->progress++;
}
void sim_gmem_store_u16(sim_place *at, void *d, u16 v) { sim_gmem_store(at, d, &v, 2); }
void sim_gmem_store_u8(sim_place *at, void *d, u8 v) { sim_gmem_store(at, d, &v, 1); }
void sim_gmem_store_u32(sim_place *at, void *d, u32 v) { sim_gmem_store(at, d, &v, 4); }

// ---- atomics and flags ------------------------------------------------------------------------------------------------------------------
u32 sim_atomic_u32(sim_place *at, int operation, void *d, u32 v, u32 expected) {
  sim_thread *t = sim_self;
  count_access(t, at, SPACE_GMEM_WRITE, 4, 0, d);
  if (!gmem_range_ok(t, at, d, 4, 4)) return 0;
  u32 *p = d, old = 0;
  t->block->device->progress++;
  switch (operation) {
  case SIM_ATOMIC_ADD:
  case SIM_ATOMIC_ADD_ACQ_REL: return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
  case SIM_ATOMIC_EXCH: return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
  case SIM_ATOMIC_CAS:
    old = expected;
    __atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
  case SIM_ATOMIC_MAX_I32:
    old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while ((i32)old < (i32)v && !__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    return old;
  }
  return old;
}

static void atomic_add_f32(float *p, float v) {
  u32 *bits = (u32 *)(void *)p, old = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(bits, &old, sim_bits(sim_f32(old) + v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
}

void sim_red_add_f32(sim_place *at, float *d, const float *v, u32 count) {
  sim_thread *t = sim_self;
  if (count > 1 && !require_arch(t, at, 90)) return;
  count_access(t, at, SPACE_GMEM_WRITE, 4 * count, 0, d);
  check_poison(t, at, v, count);
  if (!gmem_range_ok(t, at, d, 4 * count, 4 * count)) return;
  for (u32 i = 0; i < count; i++) atomic_add_f32(d + i, v[i]);
  t->block->device->progress++;
}

u32 sim_gmem_load_acquire(sim_place *at, const u32 *s) {
  sim_thread *t = sim_self;
  count_access(t, at, SPACE_GMEM_READ, 4, 0, s);
  if (!gmem_range_ok(t, at, s, 4, 4)) return 0;
  thread_spin(t, at); // who polls lets the others run
  return __atomic_load_n(s, __ATOMIC_SEQ_CST);
}
void sim_gmem_store_release(sim_place *at, u32 *d, u32 v) {
  sim_thread *t = sim_self;
  count_access(t, at, SPACE_GMEM_WRITE, 4, 0, d);
  if (!gmem_range_ok(t, at, d, 4, 4)) return;
  __atomic_store_n(d, v, __ATOMIC_SEQ_CST);
  t->block->device->progress++;
}
void sim_fence_gpu(void) {}
