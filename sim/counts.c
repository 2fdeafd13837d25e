// Counts by line: bank conflicts, coalescing, matrix work. Ordinary loads and stores are executed lane by lane; the lanes' n-th accesses
// at one place since the warp last met are put together and counted as the one warp instruction that they are.
#include "model.h"
#include <stdlib.h>
#include <string.h>

sim_line *line_of(sim_device *d, sim_place *at) {
  static _Thread_local sim_line lost;
  u32 id = place_id(at), had = d->line_capacity;
  if (id >= had) {
    if (!grow(&d->lines, &d->line_capacity, id + 1, sizeof *d->lines)) return &lost;
    memset(d->lines + had, 0, (d->line_capacity - had) * sizeof *d->lines);
  }
  d->lines[id].place = at;
  return &d->lines[id];
}

int synchronising(sim_thread *t, sim_place *at) {
  t->instructions++;
  line_of(t->block->device, at)->warp_instructions += t->lane == 0;
  return t->block->device->skipped == at;
}

// ---- bank conflicts: 32 banks of 4 bytes. A pass serves 128 bytes: 16-byte accesses go by quarter warps, 8-byte ones by halves --------
typedef struct bank_pass {
  u8 ways[32];
  u32 words[32][32];
} bank_pass;

static u32 pass_add(bank_pass *p, u32 address, u32 bytes, u32 worst) {
  for (u32 word = address / 4; word <= (address + bytes - 1) / 4; word++) {
    u32 bank = word % 32, i = 0;
    while (i < p->ways[bank] && p->words[bank][i] != word) i++;
    if (i < p->ways[bank]) continue;
    p->words[bank][i] = word;
    p->ways[bank]++;
    if (p->ways[bank] > worst) worst = p->ways[bank];
  }
  return worst;
}

static void count_pass(sim_line *l, u32 ways) {
  l->smem_wavefronts += ways;
  l->smem_ideal++;
  if (ways > l->worst_ways) l->worst_ways = ways;
}

static void count_banks(sim_line *l, const access_instance *a, u32 bytes) {
  u32 lanes = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
  bank_pass p;
  for (u32 first = 0; first < WARP; first += lanes) {
    u32 worst = 0;
    memset(p.ways, 0, sizeof p.ways);
    for (u32 lane = first; lane < first + lanes; lane++)
      if (a->mask >> lane & 1) worst = pass_add(&p, a->smem[lane], bytes, worst);
    if (worst) count_pass(l, worst);
  }
}

void count_matrix_rows(sim_thread *t, sim_place *at, const u32 *addresses, u32 matrices) {
  sim_line *l = line_of(t->block->device, at);
  l->warp_instructions++;
  bank_pass p;
  for (u32 m = 0; m < matrices; m++) {
    u32 worst = 0;
    memset(p.ways, 0, sizeof p.ways);
    for (u32 row = 0; row < 8; row++) worst = pass_add(&p, addresses[8 * m + row], 16, worst);
    count_pass(l, worst);
  }
}

// ---- coalescing: distinct 32-byte sectors and 128-byte lines of a warp instruction ----------------------------------------------------
static u32 add_distinct(u64 *list, u32 count, u64 value) {
  for (u32 i = count; i-- > 0;)
    if (list[i] == value) return count;
  list[count] = value;
  return count + 1;
}

static void count_sectors(sim_device *d, sim_line *l, const access_instance *a, u32 bytes, int write) {
  u64 sectors[2 * WARP], lines[2 * WARP];
  u32 sector_count = 0, line_count = 0;
  for (u32 lane = 0; lane < WARP; lane++) {
    if (!(a->mask >> lane & 1) || !a->gmem[lane]) continue;
    u64 first = a->gmem[lane], last = first + bytes - 1;
    l->gmem_bytes += bytes;
    memory_range *r = gmem_range(d, (const void *)(uintptr_t)first, bytes);
    for (u64 s = first / 32; s <= last / 32; s++) {
      u32 n = add_distinct(sectors, sector_count, s);
      if (n != sector_count && r)
        *(write ? &d->tensors[r->tensor].counts.sectors_written : &d->tensors[r->tensor].counts.sectors_read) += 1;
      sector_count = n;
      line_count = add_distinct(lines, line_count, s / 4);
    }
    if (r) *(write ? &d->tensors[r->tensor].counts.bytes_written : &d->tensors[r->tensor].counts.bytes_read) += bytes;
  }
  l->gmem_sectors += sector_count;
  l->gmem_transactions += line_count;
}

void count_gmem_run(sim_thread *t, sim_place *at, u64 address, u32 bytes, int write) {
  sim_device *d = t->block->device;
  sim_line *l = line_of(d, at);
  u64 sectors = (address + bytes - 1) / 32 - address / 32 + 1;
  l->gmem_bytes += bytes;
  l->gmem_sectors += sectors;
  l->gmem_transactions += (address + bytes - 1) / 128 - address / 128 + 1;
  memory_range *r = gmem_range(d, (const void *)(uintptr_t)address, bytes);
  if (!r) return;
  sim_tensor *c = &d->tensors[r->tensor].counts;
  if (write)
    c->bytes_written += bytes, c->sectors_written += sectors;
  else
    c->bytes_read += bytes, c->sectors_read += sectors;
}

// ---- putting a warp's accesses together -------------------------------------------------------------------------------------------------
enum { MOST_INSTANCES = 1024 };

static access_log *log_of(sim_warp *w, sim_place *at) {
  for (u32 i = 0; i < w->log_count; i++)
    if (w->logs[i].place == at) return &w->logs[i];
  u32 had = w->log_capacity;
  if (!grow(&w->logs, &w->log_capacity, w->log_count + 1, sizeof *w->logs)) return NULL;
  memset(w->logs + had, 0, (w->log_capacity - had) * sizeof *w->logs);
  access_log *l = &w->logs[w->log_count++];
  l->place = at;
  return l;
}

static void flush_log(sim_device *d, access_log *g) {
  if (!g->used) return;
  sim_line *l = line_of(d, g->place);
  for (u32 i = 0; i < g->used; i++) {
    l->warp_instructions++;
    if (g->space & SPACE_SMEM) count_banks(l, &g->instances[i], g->bytes);
    if (g->space & (SPACE_GMEM_READ | SPACE_GMEM_WRITE)) count_sectors(d, l, &g->instances[i], g->bytes, g->space & SPACE_GMEM_WRITE);
  }
  g->used = 0;
  g->space = 0;
  memset(g->visits, 0, sizeof g->visits);
}

void warp_flush_counts(sim_block *b, sim_warp *w) {
  if (!w->logs_active) return;
  for (u32 i = 0; i < w->log_count; i++) flush_log(b->device, &w->logs[i]);
  w->logs_active = 0;
}

void count_access(sim_thread *t, sim_place *at, u32 space, u32 bytes, u32 smem, const void *gmem) {
  sim_warp *w = t->warp;
  t->instructions++;
  access_log *g = log_of(w, at);
  if (!g) return;
  if (g->visits[t->lane] == MOST_INSTANCES) flush_log(t->block->device, g);
  g->bytes = bytes;
  g->space |= space; /* a lane that only fills with zeros reads nothing, its neighbours may */
  u32 i = g->visits[t->lane]++;
  if (i >= g->used) {
    if (!grow(&g->instances, &g->capacity, i + 1, sizeof *g->instances)) return;
    g->instances[i].mask = 0;
    g->used = i + 1;
  }
  g->instances[i].mask |= 1u << t->lane;
  g->instances[i].smem[t->lane] = smem;
  g->instances[i].gmem[t->lane] = (u64)(uintptr_t)gmem;
  w->logs_active = 1;
}
