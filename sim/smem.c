// Shared memory: ordinary accesses, atomics, and the warp's matrix loads and stores.
#include "lane_maps.h"
#include "model.h"
#include <string.h>

// ---- one thread's accesses ------------------------------------------------------------------------------------------------------------
void sim_smem_load(sim_place *at, void *r, u32 address, u32 bytes) {
  sim_thread *t = sim_self;
  memset(r, 0xff, bytes);
  if (!smem_range_ok(t, at, address, bytes, bytes)) return;
  count_access(t, at, SPACE_SMEM, bytes, address, NULL);
  access a = thread_access(t, at, ACCESS_READ);
  shadow_access(&a, address, bytes);
  memcpy(r, smem_pointer(t->block, address), bytes);
}
u16 sim_smem_load_u16(sim_place *at, u32 address) {
  u16 v;
  sim_smem_load(at, &v, address, 2);
  return v;
}
u32 sim_smem_load_u32(sim_place *at, u32 address) {
  u32 v;
  sim_smem_load(at, &v, address, 4);
  return v;
}

void sim_smem_store(sim_place *at, u32 address, const void *r, u32 bytes) {
  sim_thread *t = sim_self;
  if (!smem_range_ok(t, at, address, bytes, bytes)) return;
  count_access(t, at, SPACE_SMEM, bytes, address, NULL);
  check_poison(t, at, r, bytes / 4);
  access a = thread_access(t, at, ACCESS_WRITE);
  shadow_access(&a, address, bytes);
  memcpy(smem_pointer(t->block, address), r, bytes);
  t->block->device->progress++;
}
void sim_smem_store_u16(sim_place *at, u32 address, u16 v) { sim_smem_store(at, address, &v, 2); }
void sim_smem_store_u32(sim_place *at, u32 address, u32 v) { sim_smem_store(at, address, &v, 4); }

static u32 *atomic_word(sim_place *at, u32 address) {
  sim_thread *t = sim_self;
  if (!smem_range_ok(t, at, address, 4, 4)) return NULL;
  count_access(t, at, SPACE_SMEM, 4, address, NULL);
  access a = thread_access(t, at, ACCESS_WRITE | ACCESS_ATOMIC);
  shadow_access(&a, address, 4);
  t->block->device->progress++;
  return (u32 *)(void *)smem_pointer(t->block, address);
}
void sim_smem_red_add_f32(sim_place *at, u32 address, float v) {
  u32 *word = atomic_word(at, address);
  if (word) *word = sim_bits(sim_f32(*word) + v);
}
u32 sim_smem_atomic_add_u32(sim_place *at, u32 address, u32 v) {
  u32 *word = atomic_word(at, address), old = word ? *word : 0;
  if (word) *word = old + v;
  return old;
}

// ---- ldmatrix, stmatrix, movmatrix: the lane map of an 8x8 matrix, by register halves ------------------------------------------------------
typedef struct matrix_operands {
  u32 *r;
  u32 address, count;
  int trans;
} matrix_operands;

// Row addresses of all matrices; 0 if one is out of bounds or misaligned (reported).
static int matrix_rows(sim_thread *t, sim_place *at, u32 count, u32 addresses[WARP]) {
  int good = 1;
  for (u32 i = 0; i < 8 * count; i++) {
    sim_thread *lane = lane_thread(t, i);
    addresses[i] = ((matrix_operands *)lane->operands)->address;
    good &= smem_range_ok(lane, at, addresses[i], 16, 16);
  }
  return good;
}

// The whole warp makes the access: it is recorded under the warp's own clock, which every lane then knows.
static void matrix_access(sim_thread *t, sim_place *at, const u32 *addresses, u32 count, u32 flags) {
  sim_block *b = t->block;
  sim_warp *w = t->warp;
  w->collective++;
  for (u32 i = 0; i < 8 * count; i++) {
    sim_thread *lane = lane_thread(t, i);
    access a = agent_access(lane, at, agent_of_warp(b, w->id), w->collective, flags);
    shadow_access(&a, addresses[i], 16);
  }
  for (u32 i = 0; i < WARP; i++) lane_thread(t, i)->own.warp = w->collective;
  count_matrix_rows(t, at, addresses, count);
}

static void matrix_element(u32 lane, u32 half, int trans, u32 *row, u32 *column) {
  if (trans)
    lane_map_at(&lane_map_matrix, lane, half, column, row);
  else
    lane_map_at(&lane_map_matrix, lane, half, row, column);
}

void sim_ldmatrix(sim_place *at, u32 *r, u32 address, u32 count, int trans) {
  sim_thread *t = sim_self;
  matrix_operands o = {r, address, count, trans};
  if (!warp_gather(t, at, &o)) return;
  u32 rows[WARP];
  if (matrix_rows(t, at, count, rows)) {
    matrix_access(t, at, rows, count, ACCESS_READ);
    for (u32 lane = 0; lane < WARP; lane++) {
      u32 *out = ((matrix_operands *)lane_thread(t, lane)->operands)->r;
      for (u32 m = 0; m < count; m++) {
        u16 halves[2];
        for (u32 half = 0; half < 2; half++) {
          u32 row, column;
          matrix_element(lane, half, trans, &row, &column);
          memcpy(&halves[half], smem_pointer(t->block, rows[8 * m + row]) + 2 * column, 2);
        }
        out[m] = halves[0] | (u32)halves[1] << 16;
      }
    }
  }
  warp_release(t);
}

void sim_stmatrix(sim_place *at, u32 address, const u32 *r, u32 count, int trans) {
  sim_thread *t = sim_self;
  if (!require_arch(t, at, 90)) return;
  u32 values[4];
  memcpy(values, r, count * sizeof *values);
  check_poison(t, at, values, count);
  matrix_operands o = {values, address, count, trans};
  if (!warp_gather(t, at, &o)) return;
  u32 rows[WARP];
  if (matrix_rows(t, at, count, rows)) {
    matrix_access(t, at, rows, count, ACCESS_WRITE);
    for (u32 lane = 0; lane < WARP; lane++) {
      const u32 *in = ((matrix_operands *)lane_thread(t, lane)->operands)->r;
      for (u32 m = 0; m < count; m++)
        for (u32 half = 0; half < 2; half++) {
          u32 row, column;
          u16 v = (u16)(in[m] >> (16 * half));
          matrix_element(lane, half, trans, &row, &column);
          memcpy(smem_pointer(t->block, rows[8 * m + row]) + 2 * column, &v, 2);
        }
    }
  }
  warp_release(t);
}

u32 sim_movmatrix(sim_place *at, u32 v) {
  sim_thread *t = sim_self;
  u32 value[2] = {v, 0};
  if (!warp_gather(t, at, value)) return value[1];
  u16 matrix[8][8];
  u32 row, column;
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 half = 0; half < 2; half++) {
      matrix_element(lane, half, 0, &row, &column);
      matrix[row][column] = (u16)(((u32 *)lane_thread(t, lane)->operands)[0] >> (16 * half));
    }
  for (u32 lane = 0; lane < WARP; lane++) {
    u32 out = 0;
    for (u32 half = 0; half < 2; half++) {
      matrix_element(lane, half, 1, &row, &column);
      out |= (u32)matrix[row][column] << (16 * half);
    }
    ((u32 *)lane_thread(t, lane)->operands)[1] = out;
  }
  line_of(t->block->device, at)->warp_instructions++;
  warp_release(t);
  return value[1];
}
