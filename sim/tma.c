// TMA: tensor copies (boxes with swizzle and out-of-bounds fill), bulk copies, reductions. Shared memory is checked and recorded when the
// copy is issued; the data moves then, or late. Loads complete on their mbarrier, stores in the issuing thread's bulk groups.
#include "model.h"
#include <string.h>

enum { TENSOR_MAP_MAGIC = 0x54, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9 };

// The 16-byte chunks of a row of the pattern are permuted by the row's number, both taken from the address.
static u32 swizzled(u32 address, u32 swizzle) {
  static const u32 mask[4] = {0, 0x10, 0x30, 0x70};
  return address ^ ((address >> 3) & mask[swizzle]);
}

// ---- geometry -------------------------------------------------------------------------------------------------------------------------------
typedef struct box_row {
  u32 smem;   // address of its first byte before swizzling
  u64 gmem;   // address of its first element; meaningless when !inside
  int inside; // by the outer coordinates
  i64 first;  // innermost coordinate
  u32 elements;
} box_row;

static u32 box_extent(const tensor_map_fields *m, int axis) {
  return (m->box[axis] + m->element_strides[axis] - 1u) / m->element_strides[axis];
}

static u32 box_rows(const tensor_map_fields *m) {
  u32 rows = 1;
  for (int i = 1; i < m->rank; i++) rows *= box_extent(m, i);
  return rows;
}
static u32 row_bytes(const tensor_map_fields *m) { return box_extent(m, 0) * m->element_bytes; }

static box_row row_of(const async_op *o, u32 row) {
  const tensor_map_fields *m = &o->map;
  box_row r = {.smem = o->smem + row * row_bytes(m), .inside = 1, .first = o->coordinates[0], .elements = box_extent(m, 0)};
  u64 offset = 0;
  for (int i = 1; i < m->rank; i++) {
    u32 extent = box_extent(m, i);
    i64 x = o->coordinates[i] + (i64)(row % extent) * m->element_strides[i];
    row /= extent;
    if (x < 0 || x > (i64)m->dims_less_1[i]) r.inside = 0;
    offset += (u64)x * m->strides[i - 1];
  }
  r.gmem = (u64)(uintptr_t)m->base + offset + (u64)(r.first * m->element_bytes);
  return r;
}

// ---- the data -------------------------------------------------------------------------------------------------------------------------------
// The NaN that the GPU fills in is 0x7ff7.
static void fill_element(const tensor_map_fields *m, unsigned char *to) {
  for (u32 i = 0; i < m->element_bytes; i++) to[i] = !m->nan_fill ? 0 : i % 2 ? 0x7f : 0xf7;
}

static void add_element(const tensor_map_fields *m, unsigned char *to, const unsigned char *from) {
  float f, g;
  u16 h, k;
  u32 u, v;
  switch (m->data_type) {
  case FLOAT32: // a NaN is always the same
    memcpy(&f, to, 4), memcpy(&g, from, 4), f += g, u = f != f ? 0x7fffffff : sim_bits(f), memcpy(to, &u, 4);
    break;
  case FLOAT16: memcpy(&h, to, 2), memcpy(&k, from, 2), h = f16_from_f32(sim_f16_to_f32(h) + sim_f16_to_f32(k)), memcpy(to, &h, 2); break;
  case BFLOAT16: memcpy(&h, to, 2), memcpy(&k, from, 2), h = bf16_from_f32(f32_from_bf16(h) + f32_from_bf16(k)), memcpy(to, &h, 2); break;
  default: memcpy(&u, to, 4), memcpy(&v, from, 4), u += v, memcpy(to, &u, 4);
  }
}

static void move_element(const async_op *o, unsigned char *smem, unsigned char *gmem, int inside) {
  const tensor_map_fields *m = &o->map;
  if (o->kind == TMA_LOAD) {
    if (inside)
      memcpy(smem, gmem, m->element_bytes);
    else
      fill_element(m, smem);
  } else if (inside) {
    if (o->kind == TMA_ADD)
      add_element(m, gmem, smem);
    else
      memcpy(gmem, smem, m->element_bytes);
  }
}

static void move_row(sim_block *b, const async_op *o, const box_row *r) {
  const tensor_map_fields *m = &o->map;
  u32 per_chunk = 16u / m->element_bytes, stride = m->element_strides[0];
  i64 limit = (i64)m->dims_less_1[0];
  i64 low = r->first < 0 ? -r->first : 0, high = (limit - r->first) / stride + 1; // element numbers inside: [low / stride.., high)
  low = (low + stride - 1) / stride;
  if (limit < r->first) high = 0;
  if (high > r->elements) high = r->elements;
  int usable = r->inside && low < high;
  if (usable) {
    u64 from = r->gmem + (u64)low * stride * m->element_bytes;
    u32 bytes = (u32)((high - low - 1) * stride + 1) * m->element_bytes;
    usable = gmem_range_ok(o->thread, o->place, (const void *)(uintptr_t)from, bytes, 1);
    if (usable) count_gmem_run(o->thread, o->place, from, bytes, o->kind != TMA_LOAD);
  }
  for (u32 e = 0; e < r->elements; e += per_chunk) {
    unsigned char *smem = smem_pointer(b, swizzled(r->smem + e * m->element_bytes, m->swizzle));
    unsigned char *gmem = (unsigned char *)(uintptr_t)(r->gmem + (u64)e * stride * m->element_bytes);
    if (usable && stride == 1 && e >= low && e + per_chunk <= high && o->kind != TMA_ADD) {
      if (o->kind == TMA_LOAD)
        memcpy(smem, gmem, 16);
      else
        memcpy(gmem, smem, 16);
      continue;
    }
    for (u32 i = 0; i < per_chunk && e + i < r->elements; i++)
      move_element(o, smem + i * m->element_bytes, gmem + (u64)i * stride * m->element_bytes, usable && e + i >= low && e + i < high);
  }
}

static void move_bulk(sim_block *b, const async_op *o) {
  unsigned char *smem = smem_pointer(b, o->smem), *gmem = (unsigned char *)(uintptr_t)o->gmem;
  if (!gmem_range_ok(o->thread, o->place, gmem, o->bytes, 16)) return;
  count_gmem_run(o->thread, o->place, o->gmem, o->bytes, o->kind != BULK_LOAD);
  if (o->kind == BULK_LOAD)
    memcpy(smem, gmem, o->bytes);
  else if (o->kind == BULK_STORE)
    memcpy(gmem, smem, o->bytes);
  else
    for (u32 i = 0; i < o->bytes; i += 4) {
      float f, g;
      memcpy(&f, gmem + i, 4), memcpy(&g, smem + i, 4);
      f += g;
      memcpy(gmem + i, &f, 4);
    }
}

static void execute(sim_block *b, const async_op *o) {
  b->device->progress++;
  switch (o->kind) {
  case CP_ASYNC_ARRIVE: {
    cp_async_execute_until(o->thread, o->group);
    u32 i = b->mbarrier_at[(o->bar - SMEM_BASE) / 8];
    if (i && !b->device->config.untracked) knowledge_learn(b, &b->mbarriers[i - 1].gathering, o->thread->cp_agent, o->group);
    mbarrier_async_arrive(b, o->thread, o->place, o->bar);
    return;
  }
  case BULK_LOAD:
  case BULK_STORE:
  case BULK_ADD_F32: move_bulk(b, o); break;
  default: {
    u32 rows = box_rows(&o->map);
    for (u32 i = 0; i < rows; i++) {
      box_row r = row_of(o, i);
      move_row(b, o, &r);
    }
  }
  }
  b->device->report.tma_bytes += o->bytes;
  if (o->kind == TMA_LOAD || o->kind == BULK_LOAD) mbarrier_complete_tx(b, o->thread, o->place, o->bar, o->bytes);
}

void async_push(sim_block *b, const async_op *op) {
  if (grow(&b->async, &b->async_capacity, b->async_count + 1, sizeof *op)) b->async[b->async_count++] = *op;
}

void async_execute(sim_block *b, u32 index) {
  async_op o = b->async[index];
  memmove(b->async + index, b->async + index + 1, (b->async_count - index - 1) * sizeof o);
  b->async_count--;
  execute(b, &o);
}

static void issue(sim_block *b, const async_op *o) {
  if (b->device->config.modes & SIM_TMA_LATE)
    async_push(b, o);
  else
    execute(b, o);
}

// ---- issue: operands, order ---------------------------------------------------------------------------------------------------------------------
static int map_ok(sim_thread *t, sim_place *at, int rank, const tensor_map *map, async_op *o) {
  memcpy(&o->map, map, sizeof o->map);
  const tensor_map_fields *m = &o->map;
  const char *wrong = NULL;
  if (m->magic != TENSOR_MAP_MAGIC)
    wrong = "the tensor map was not encoded";
  else if (m->rank != rank)
    wrong = "the tensor map has another rank than the instruction";
  else if (m->swizzle && row_bytes(m) != 16u << m->swizzle)
    wrong = "a box narrower than its swizzle is not modelled";
  if (wrong) hazard(t, SIM_BAD_TENSOR_MAP, at, NULL, ~0u, "%s", wrong);
  return !wrong;
}

static int box_ok(sim_thread *t, sim_place *at, const async_op *o) {
  u32 pattern = o->map.swizzle ? 128u << o->map.swizzle : 128;
  return smem_range_ok(t, at, o->smem, o->bytes, pattern);
}

// The GPU (an H200) raises an illegal instruction otherwise.
static int coordinates_ok(sim_thread *t, sim_place *at, const async_op *o) {
  const i64 bytes = (i64)o->coordinates[0] * o->map.element_bytes;
  if (bytes % 16) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u, "innermost coordinate %d is %lld bytes, no multiple of 16", o->coordinates[0],
           (long long)bytes);
    return 0;
  }
  for (int i = 0; i < o->map.rank && o->kind != TMA_LOAD; i++)
    if (o->coordinates[i] < 0) {
      hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u,
             "coordinate %d of a store is %d: a box that is stored may end outside of the tensor, not start "
             "before it",
             i, o->coordinates[i]);
      return 0;
    }
  return 1;
}

// A load's bytes are known to who has waited for the phase of its mbarrier that is now running.
static access load_access(sim_thread *t, sim_place *at, mbarrier *m) {
  if (!m->init_fenced)
    hazard(t, SIM_MISSING_INIT_FENCE, at, m->init_place, m->init_thread,
           "the mbarrier at shared memory offset %u was initialised without fence_mbarrier_init after it", m->address - SMEM_BASE);
  m->tma_phase = m->phase + 1;
  m->tma_place = at;
  return agent_access(t, at, m->agent, m->phase + 1, ACCESS_WRITE | ACCESS_ASYNC);
}

static access store_access(sim_thread *t, sim_place *at, async_op *o) {
  if (t->bulk_agent == NO_AGENT) t->bulk_agent = agent_new(t->block, t->id);
  o->group = t->bulk_groups + 1;
  t->bulk_open++;
  t->bulk_place = at;
  return agent_access(t, at, t->bulk_agent, o->group, ACCESS_READ | ACCESS_ASYNC);
}

static void box_access(access *a, const async_op *o) {
  if (!o->map.swizzle) { // rows are contiguous
    shadow_access(a, o->smem, o->bytes);
    return;
  }
  for (u32 i = 0; i < o->bytes; i += 16) shadow_access(a, swizzled(o->smem + i, o->map.swizzle), 16);
}

void sim_tma_load(sim_place *at, int rank, u32 dst, const tensor_map *map, u32 bar, const i32 *coordinates) {
  sim_thread *t = sim_self;
  async_op o = {.kind = TMA_LOAD, .place = at, .thread = t, .smem = dst, .bar = bar};
  t->instructions++;
  if (!require_arch(t, at, 90) || !map_ok(t, at, rank, map, &o)) return;
  memcpy(o.coordinates, coordinates, (size_t)rank * sizeof *coordinates);
  o.bytes = box_rows(&o.map) * row_bytes(&o.map);
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m || !box_ok(t, at, &o) || !coordinates_ok(t, at, &o)) return;
  line_of(t->block->device, at)->warp_instructions++;
  access a = load_access(t, at, m);
  box_access(&a, &o);
  issue(t->block, &o);
}

void sim_tma_store(sim_place *at, int rank, const tensor_map *map, u32 src, const i32 *coordinates, int add) {
  sim_thread *t = sim_self;
  async_op o = {.kind = add ? TMA_ADD : TMA_STORE, .place = at, .thread = t, .smem = src};
  t->instructions++;
  if (!require_arch(t, at, 90) || !map_ok(t, at, rank, map, &o)) return;
  memcpy(o.coordinates, coordinates, (size_t)rank * sizeof *coordinates);
  o.bytes = box_rows(&o.map) * row_bytes(&o.map);
  if (!box_ok(t, at, &o) || !coordinates_ok(t, at, &o)) return;
  line_of(t->block->device, at)->warp_instructions++;
  access a = store_access(t, at, &o);
  box_access(&a, &o);
  issue(t->block, &o);
}

static int bulk_ok(sim_thread *t, sim_place *at, u32 smem, const void *gmem, u32 bytes) {
  if (!require_arch(t, at, 90)) return 0;
  if (bytes % 16 || !bytes || (uintptr_t)gmem % 16) {
    hazard(t, SIM_MISALIGNED, at, NULL, ~0u, "bulk copy of %u bytes at global address %p; multiples of 16 are expected", bytes, gmem);
    return 0;
  }
  return smem_range_ok(t, at, smem, bytes, 16);
}

void sim_bulk_load(sim_place *at, u32 dst, const void *src, u32 bytes, u32 bar) {
  sim_thread *t = sim_self;
  async_op o = {.kind = BULK_LOAD, .place = at, .thread = t, .smem = dst, .bar = bar, .bytes = bytes, .gmem = (u64)(uintptr_t)src};
  t->instructions++;
  if (!bulk_ok(t, at, dst, src, bytes)) return;
  mbarrier *m = mbarrier_find(t, at, bar);
  if (!m) return;
  line_of(t->block->device, at)->warp_instructions++;
  access a = load_access(t, at, m);
  shadow_access(&a, dst, bytes);
  issue(t->block, &o);
}

void sim_bulk_store(sim_place *at, void *dst, u32 src, u32 bytes, int add_f32) {
  sim_thread *t = sim_self;
  async_op o = {
      .kind = add_f32 ? BULK_ADD_F32 : BULK_STORE, .place = at, .thread = t, .smem = src, .bytes = bytes, .gmem = (u64)(uintptr_t)dst};
  t->instructions++;
  if (!bulk_ok(t, at, src, dst, bytes)) return;
  line_of(t->block->device, at)->warp_instructions++;
  access a = store_access(t, at, &o);
  shadow_access(&a, src, bytes);
  issue(t->block, &o);
}

// ---- bulk groups -----------------------------------------------------------------------------------------------------------------------------------
void sim_tma_store_commit(sim_place *at) {
  sim_thread *t = sim_self;
  (void)at;
  t->instructions++;
  t->bulk_groups++;
  t->bulk_open = 0;
}

void sim_tma_store_wait(sim_place *at, u32 groups, int read_only) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  (void)read_only; // late stores write when they read
  if (synchronising(t, at) || t->bulk_groups <= groups) return;
  u32 end = t->bulk_groups - groups;
  for (u32 i = 0; i < b->async_count;) {
    const async_op *o = &b->async[i];
    if (o->thread == t && o->kind != TMA_LOAD && o->kind != BULK_LOAD && o->kind != CP_ASYNC_ARRIVE && o->group <= end)
      async_execute(b, i);
    else
      i++;
  }
  if (t->own.bulk < end) t->own.bulk = end;
}

void bulk_at_exit(sim_thread *t) {
  if (t->bulk_open || t->own.bulk < t->bulk_groups)
    hazard(t, SIM_TMA_STILL_READS, t->bulk_place, NULL, ~0u, "thread %u leaves the kernel while its TMA store may still read shared memory",
           t->id);
}
