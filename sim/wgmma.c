// wgmma: a warpgroup's asynchronous products. Threads only note their part of a product and go on; it is complete as an instruction when all
// 128 have issued it, and executes then or, late, at the wait. From issue to wait the accumulator registers hold a NaN by which a use
// before the wait is recognised. PTX manual, section wgmma: descriptors, canonical layouts.
#include "lane_maps.h"
#include "model.h"
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x7fa5cafe, QUIET = 0x400000 };
int is_wgmma_poison(u32 bits) { return ((bits & 0x7fffffff) | QUIET) == (POISON | QUIET); }

static warpgroup *group_of(sim_thread *t) { return &t->block->warpgroups[t->id / WARPGROUP]; }

void check_poison(sim_thread *t, sim_place *at, const void *values, u32 words) {
  const unsigned char *bytes = values;
  for (u32 i = 0; i < words; i++) {
    u32 v;
    memcpy(&v, bytes + 4 * i, 4);
    if (!is_wgmma_poison(v)) continue;
    const warpgroup *g = group_of(t);
    hazard(t, SIM_WGMMA_NOT_WAITED, at, g->op_count ? g->ops[g->op_count - 1].place : NULL, ~0u,
           "%s uses an accumulator of a wgmma before its wait", at->instruction);
    return;
  }
}

// ---- operands in shared memory: their 16-byte chunks ----------------------------------------------------------------------------------------------
typedef struct operand {
  u32 start, leading, stride, span; // bytes; span of the swizzle, 16 without
  u32 extent;                       // rows of M or N
  int trans;
} operand;

static int decode_descriptor(sim_thread *t, sim_place *at, u64 d, u32 extent, int trans, operand *o) {
  static const u32 span[4] = {16, 128, 64, 32};
  *o = (operand){(u32)(d & 0x3fff) << 4, (u32)(d >> 16 & 0x3fff) << 4, (u32)(d >> 32 & 0x3fff) << 4, span[d >> 62], extent, trans};
  if (d >> 49 & 7) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u, "wgmma descriptor %#llx: base offset %llu is not modelled", d, d >> 49 & 7);
    return 0;
  }
  return 1;
}

// K-major: chunk (row, half of the 32 bytes of k). MN-major: chunk (8 elements along MN, k).
static u32 chunk_count(const operand *o) { return o->trans ? o->extent / 8 * 16 : o->extent * 2; }
static u32 chunk_address(const operand *o, u32 chunk) {
  u32 a = o->start;
  if (o->trans) {
    u32 k = chunk % 16, j = chunk / 16, per = o->span / 16;
    if (o->span == 16) return a + j * o->stride + k % 8 * 16 + k / 8 * o->leading;
    a += j % per * 16 + j / per * o->leading + k % 8 * o->span + k / 8 * o->stride;
  } else {
    u32 half = chunk % 2, r = chunk / 2;
    if (o->span == 16) return a + r / 8 * o->stride + r % 8 * 16 + half * o->leading;
    a += r / 8 * o->stride + r % 8 * o->span + half * 16;
  }
  return a ^ ((a >> 3) & (o->span - 16)); // swizzle
}

static int operand_in_bounds(sim_thread *t, sim_place *at, const operand *o) {
  for (u32 i = 0, n = chunk_count(o); i < n; i++)
    if (!smem_range_ok(t, at, chunk_address(o, i), 16, 16)) return 0;
  return 1;
}

// out[row * pitch + k] (or [k * pitch + row] when `by_k`)
static void load_operand(const sim_block *b, const operand *o, int type, float *out, u32 pitch, int by_k) {
  u32 per_chunk = type == SIM_E4M3 ? 16 : 8;
  float e[16];
  for (u32 i = 0, n = chunk_count(o); i < n; i++) {
    decode_elements(e, b->smem + (chunk_address(o, i) - SMEM_BASE), type, per_chunk);
    if (o->trans) {
      u32 k = i % 16, row = i / 16 * 8;
      for (u32 j = 0; j < 8; j++) out[by_k ? k * pitch + row + j : (row + j) * pitch + k] = e[j];
    } else {
      u32 row = i / 2, k = i % 2 * per_chunk;
      for (u32 j = 0; j < per_chunk; j++) out[by_k ? (k + j) * pitch + row : row * pitch + k + j] = e[j];
    }
  }
}

// ---- the product -----------------------------------------------------------------------------------------------------------------------------------
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define VECTOR_CLONES
#endif

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

// c (64 x n) += a (64 x k, rows of 32) b (k x n), sums in float32, k ascending. Products are exact, so that fused or not gives the same bits.
VECTOR_CLONES static void multiply(float *restrict c, const float *restrict a, const float *restrict b, u32 n, u32 k) {
  for (u32 j = 0; j < n; j += 8)
    for (u32 r = 0; r < 64; r += 8) { // eight rows at a time: independent sums
      eight s0, s1, s2, s3, s4, s5, s6, s7;
      float *d = c + r * n + j;
      const float *x = a + r * 32, *y = b + j;
      s0 = *(eight *)d, s1 = *(eight *)(d + n), s2 = *(eight *)(d + 2 * n), s3 = *(eight *)(d + 3 * n);
      s4 = *(eight *)(d + 4 * n), s5 = *(eight *)(d + 5 * n), s6 = *(eight *)(d + 6 * n), s7 = *(eight *)(d + 7 * n);
      for (u32 i = 0; i < k; i++, x++, y += n) {
        const eight v = *(const eight *)y;
        s0 += x[0] * v, s1 += x[32] * v, s2 += x[64] * v, s3 += x[96] * v;
        s4 += x[128] * v, s5 += x[160] * v, s6 += x[192] * v, s7 += x[224] * v;
      }
      *(eight *)d = s0, *(eight *)(d + n) = s1, *(eight *)(d + 2 * n) = s2, *(eight *)(d + 3 * n) = s3;
      *(eight *)(d + 4 * n) = s4, *(eight *)(d + 5 * n) = s5, *(eight *)(d + 6 * n) = s6, *(eight *)(d + 7 * n) = s7;
    }
}

static void a_from_registers(const wgmma_op *o, float *a) {
  const lane_map *m = o->type == SIM_E4M3 ? &lane_map_wgmma_a8 : &lane_map_wgmma_a16;
  u32 values = o->type == SIM_E4M3 ? 16 : 8;
  float e[16];
  for (u32 lane = 0; lane < WARPGROUP; lane++) {
    decode_elements(e, o->a[lane], o->type, values);
    for (u32 v = 0; v < values; v++) {
      unsigned row, k;
      lane_map_at(m, lane, v, &row, &k);
      a[row * 32 + k] = e[v];
    }
  }
}

static void execute(sim_block *b, sim_thread *t, wgmma_op *o) {
  static _Thread_local float a[64 * 32], bm[32 * 256];
  operand x;
  u32 k = o->type == SIM_E4M3 ? 32 : 16;
  o->executed = 1;
  if (!o->checked) return; // bad operands, reported
  if (o->from_registers)
    a_from_registers(o, a);
  else {
    decode_descriptor(t, o->place, o->desc_a, 64, o->trans_a, &x);
    load_operand(b, &x, o->type, a, 32, 0);
  }
  decode_descriptor(t, o->place, o->desc_b, o->n, o->trans_b, &x);
  load_operand(b, &x, o->type, bm, o->n, 1);
  if (!o->accumulate) memset(o->chain->c, 0, 64 * o->n * sizeof(float));
  multiply(o->chain->c, a, bm, o->n, k);
  b->device->progress++;
}

static void execute_until(sim_thread *t, u32 end) {
  warpgroup *g = group_of(t);
  for (u32 i = 0; i < g->op_count && i < end; i++)
    if (!g->ops[i].executed) execute(t->block, t, &g->ops[i]);
}

// ---- checks at the issue ---------------------------------------------------------------------------------------------------------------------
// Every warp must know that the operand is there: it is checked by what each distinct base among the threads knows, and recorded once,
// under the group that the next commit will close.
static void check_operand(sim_thread *t, wgmma_op *o, u64 descriptor, u32 extent, int trans) {
  sim_block *b = t->block;
  operand x;
  if (!decode_descriptor(t, o->place, descriptor, extent, trans, &x) || !operand_in_bounds(t, o->place, &x)) {
    o->checked = 0;
    return;
  }
  access a = agent_access(t, o->place, agent_of_warpgroup(b, t->id / WARPGROUP), t->wgmma_committed + 1, ACCESS_READ | ACCESS_ASYNC);
  for (u32 i = 0, n = chunk_count(&x); i < n; i++) {
    u32 address = chunk_address(&x, i);
    if (o->views == 1)
      shadow_access(&a, address, 16);
    else
      shadow_check(&a, address, 16);
  }
}

static void check_view(sim_thread *t, wgmma_op *o) {
  for (u32 i = 0; i < o->views; i++) // who knows more than one that was checked need not be
    if (knowledge_contains(t->base, o->view[i])) return;
  if (o->issued && !o->checked) return;
  if (o->views < MAX_VIEWS) o->view[o->views++] = knowledge_retain(t->base);
  if (!o->issued) o->checked = 1;
  if (!o->from_registers) check_operand(t, o, o->desc_a, 64, o->trans_a);
  check_operand(t, o, o->desc_b, o->n, o->trans_b);
}

static void complete(sim_thread *t, wgmma_op *o) {
  for (u32 v = 0; v < o->views; v++) knowledge_release(t->block, o->view[v]);
  o->views = 0;
  sim_line *l = line_of(t->block->device, o->place);
  l->warp_instructions++;
  l->mma_flops += 2ull * 64 * o->n * (o->type == SIM_E4M3 ? 32 : 16);
  t->block->device->report.wgmma++;
}

// ---- accumulators ----------------------------------------------------------------------------------------------------------------------------------------
static void fragment_in(float *c, const float *d, u32 n, u32 lane) {
  for (u32 v = 0; v < n / 2; v++) {
    unsigned row, column;
    lane_map_at(&lane_map_wgmma_d, lane, v, &row, &column);
    c[row * n + column] = d[v];
  }
}
static void fragment_out(const float *c, float *d, u32 n, u32 lane) {
  for (u32 v = 0; v < n / 2; v++) {
    unsigned row, column;
    lane_map_at(&lane_map_wgmma_d, lane, v, &row, &column);
    d[v] = c[row * n + column];
  }
}

// The thread's accumulators go into the chain's matrix; what it sees of them until the wait is poison.
static void join_chain(sim_thread *t, wgmma_chain *c, float *d, int accumulate) {
  u32 lane = t->id % WARPGROUP;
  if (c->d[lane] == d) return;
  c->d[lane] = d;
  if (accumulate) {
    check_poison(t, c->place, d, c->n / 2);
    fragment_in(c->c, d, c->n, lane);
  }
  u32 poison = POISON;
  for (u32 i = 0; i < c->n / 2; i++) memcpy(d + i, &poison, sizeof poison);
}

static wgmma_chain *find_chain(sim_thread *t, sim_place *at, float *d, u32 n) {
  warpgroup *g = group_of(t);
  u32 lane = t->id % WARPGROUP;
  for (u32 i = 0; i < g->chain_count; i++) {
    wgmma_chain *c = g->chains[i];
    if (!c->d[lane]) continue;
    if (c->d[lane] == d && c->n == n) return c;
    if (d < c->d[lane] + c->n / 2 && c->d[lane] < d + n / 2)
      hazard(t, SIM_WGMMA_NOT_WAITED, at, c->place, ~0u, "accumulators overlap those of a wgmma of another shape in flight");
  }
  wgmma_chain *c = calloc(1, sizeof *c);
  if (c) c->c = calloc(64 * n, sizeof *c->c);
  if (!c || !c->c || !grow(&g->chains, &g->chain_capacity, g->chain_count + 1, sizeof c)) {
    free(c);
    return NULL;
  }
  c->n = n, c->place = at;
  g->chains[g->chain_count++] = c;
  return c;
}

static void return_chains(sim_thread *t, u32 end) {
  warpgroup *g = group_of(t);
  u32 lane = t->id % WARPGROUP;
  for (u32 i = 0; i < g->chain_count; i++) {
    wgmma_chain *c = g->chains[i];
    if (!c->d[lane] || c->last_op >= end) continue;
    for (u32 v = 0; v < c->n / 2; v++) {
      u32 bits;
      memcpy(&bits, &c->d[lane][v], sizeof bits);
      if (bits == POISON) continue;
      hazard(t, SIM_WGMMA_NOT_WAITED, c->place, NULL, ~0u, "accumulator register %u of thread %u was written between wgmma and its wait", v,
             t->id);
      break;
    }
    fragment_out(c->c, c->d[lane], c->n, lane);
    c->d[lane] = NULL;
    if (++c->returned < WARPGROUP) continue;
    free(c->c), free(c);
    g->chains[i--] = g->chains[--g->chain_count];
  }
}

// ---- instructions --------------------------------------------------------------------------------------------------------------------------------------------
static void different(sim_thread *t, sim_place *at, sim_place *other, const char *what) {
  hazard(t, SIM_DIVERGENT, at, other, ~0u, "thread %u of warpgroup %u comes with another %s than the threads before it", t->id,
         t->id / WARPGROUP, what);
  block_abort(t);
}

static wgmma_op *op_open(sim_thread *t) {
  warpgroup *g = group_of(t);
  if (t->wgmma_issued == g->op_count) {
    u32 had = g->op_capacity;
    if (!grow(&g->ops, &g->op_capacity, g->op_count + 1, sizeof *g->ops)) return NULL;
    if (g->op_capacity > had) memset(g->ops + had, 0, (g->op_capacity - had) * sizeof *g->ops);
    u32(*a)[4] = g->ops[g->op_count].a;
    g->ops[g->op_count] = (wgmma_op){.a = a};
    g->op_count++;
  }
  return &g->ops[t->wgmma_issued];
}

void sim_wgmma(sim_place *at, int type, u32 n, float *d, const u32 *a, u64 desc_a, u64 desc_b, int trans_a, int trans_b, int accumulate) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  u32 lane = t->id % WARPGROUP;
  t->instructions++;
  if (!require_arch(t, at, 90)) return;
  if (b->thread_count % WARPGROUP || n % 8 || !n || n > 256 || (type == SIM_E4M3 && (trans_a || trans_b))) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u,
           "wgmma n %u, block of %u threads, 8-bit operands %s; n a multiple of 8 up to 256 and whole warpgroups are expected", n,
           b->thread_count, type == SIM_E4M3 && (trans_a || trans_b) ? "MN-major" : "K-major");
    block_abort(t);
  }
  if (t->wgmma_needs_fence)
    hazard(t, SIM_MISSING_WGMMA_FENCE, at, NULL, ~0u,
           "no wgmma_fence since the registers may have been touched (the kernel's start, or the last wait)");
  t->wgmma_needs_fence = 0;
  wgmma_op *o = op_open(t);
  if (!o) block_abort(t);
  if (!o->issued) {
    o->place = at, o->type = type, o->n = n, o->desc_a = desc_a, o->desc_b = desc_b;
    o->trans_a = trans_a, o->trans_b = trans_b, o->accumulate = accumulate != 0, o->from_registers = a != NULL;
    o->chain = find_chain(t, at, d, n);
    if (!o->chain) block_abort(t);
    o->chain->last_op = t->wgmma_issued;
  }
  if (o->place != at) different(t, at, o->place, "wgmma");
  if (o->n != n || o->desc_b != desc_b || (!a && o->desc_a != desc_a) || o->accumulate != (accumulate != 0))
    different(t, at, NULL, "operand");
  if (o->chain->d[lane] && o->chain->d[lane] != d) different(t, at, NULL, "accumulator");
  if (a) {
    check_poison(t, at, a, 4);
    if (!o->a && !(o->a = malloc(WARPGROUP * sizeof *o->a))) block_abort(t);
    memcpy(o->a[lane], a, sizeof o->a[lane]);
  }
  join_chain(t, o->chain, d, accumulate);
  check_view(t, o);
  t->wgmma_issued++;
  if (++o->issued < WARPGROUP) return;
  complete(t, o);
  if (!(b->device->config.modes & SIM_WGMMA_LATE)) execute_until(t, t->wgmma_issued);
}

void sim_wgmma_fence(sim_place *at) {
  sim_thread *t = sim_self;
  if (!synchronising(t, at) && require_arch(t, at, 90)) t->wgmma_needs_fence = 0;
}

void sim_wgmma_commit(sim_place *at) {
  sim_thread *t = sim_self;
  warpgroup *g = group_of(t);
  t->instructions++;
  if (t->wgmma_committed == g->group_count) {
    if (!grow(&g->groups, &g->group_capacity, g->group_count + 1, sizeof *g->groups)) block_abort(t);
    g->groups[g->group_count++] = (wgmma_group){.end = t->wgmma_issued};
  }
  if (g->groups[t->wgmma_committed].end != t->wgmma_issued) different(t, at, NULL, "number of wgmmas in a group");
  t->wgmma_committed++;
}

void sim_wgmma_wait(sim_place *at, u32 groups) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  warpgroup *g = group_of(t);
  if (synchronising(t, at)) return;
  t->wgmma_needs_fence = 1;
  if (t->wgmma_committed <= groups) return;
  u32 target = t->wgmma_committed - groups;
  if (target == t->wgmma_waited) return;
  int last = 0;
  while (t->wgmma_waited < target) last = ++g->groups[t->wgmma_waited++].waited == WARPGROUP;
  if (last) {
    execute_until(t, g->groups[target - 1].end);
    g->groups[target - 1].done = 1;
    sim_thread *first = &b->threads[t->id / WARPGROUP * WARPGROUP];
    for (u32 i = 0; i < WARPGROUP; i += WARP) warp_flush_counts(b, first[i].warp);
    for (u32 i = 0; i < WARPGROUP; i++)
      if (first[i].waiting == WAIT_WGMMA && first[i].wait_value <= target) thread_ready(&first[i]);
  } else if (!g->groups[target - 1].done)
    thread_wait(t, WAIT_WGMMA, at, 0, target);
  return_chains(t, g->groups[target - 1].end);
  t->own.wgmma = target;
}

void wgmma_at_exit(sim_thread *t) {
  const warpgroup *g = group_of(t);
  if (t->wgmma_issued && (!t->wgmma_waited || g->groups[t->wgmma_waited - 1].end < t->wgmma_issued))
    hazard(t, SIM_WGMMA_NOT_WAITED, g->ops[t->wgmma_issued - 1].place, NULL, ~0u, "thread %u leaves the kernel with a wgmma in flight",
           t->id);
}

void wgmma_reset(sim_block *b) {
  for (u32 i = 0; i < MAX_WARPGROUPS; i++) {
    warpgroup *g = &b->warpgroups[i];
    for (u32 j = 0; j < g->op_count; j++) {
      for (u32 v = 0; v < g->ops[j].views; v++) knowledge_release(b, g->ops[j].view[v]);
      free(g->ops[j].a);
    }
    for (u32 j = 0; j < g->chain_count; j++) free(g->chains[j]->c), free(g->chains[j]);
    g->op_count = g->group_count = g->chain_count = 0;
    if (g->ops) memset(g->ops, 0, g->op_capacity * sizeof *g->ops);
  }
}

// ---- register reallocation ----------------------------------------------------------------------------------------------------------------------------------------
void sim_setmaxnreg(sim_place *at, u32 registers, int increase) {
  sim_thread *t = sim_self;
  sim_block *b = t->block;
  t->instructions++;
  if (!require_arch(t, at, 90)) return;
  if (registers % 8 || registers < 24 || registers > 256 || (increase ? registers < t->registers : registers > t->registers)) {
    hazard(t, SIM_BAD_OPERAND, at, NULL, ~0u, "%s to %u registers from %u; a multiple of 8 in 24..256 is expected",
           increase ? "up" : "down", registers, t->registers);
    return;
  }
  if (!increase) {
    b->free_registers += t->registers - registers;
    t->registers = registers;
    for (u32 i = 0; i < b->thread_count; i++)
      if (b->threads[i].waiting == WAIT_REGISTERS) thread_ready(&b->threads[i]);
    return;
  }
  while (b->free_registers < registers - t->registers) thread_wait(t, WAIT_REGISTERS, at, 0, registers - t->registers);
  b->free_registers -= registers - t->registers;
  t->registers = registers;
}
