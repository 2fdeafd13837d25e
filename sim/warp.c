// What the lanes of a warp do together in registers: shuffles, votes, the matrix product.
#include "lane_maps.h"
#include "model.h"
#include <string.h>

// ---- shuffles and votes -----------------------------------------------------------------------------------------------------------------
typedef struct shuffle_operands {
  u32 value, operand, result;
} shuffle_operands;

static u32 shuffle_source(int kind, u32 lane, u32 operand) {
  switch (kind) {
  case SIM_SHFL_XOR: return lane ^ operand;
  case SIM_SHFL_IDX: return operand % WARP;
  case SIM_SHFL_UP: return lane - operand;
  default: return lane + operand;
  }
}

u32 sim_shuffle(sim_place *at, int kind, u32 v, u32 operand) {
  sim_thread *t = sim_self;
  check_poison(t, at, &v, 1);
  shuffle_operands o = {v, operand, 0};
  if (!warp_gather(t, at, &o)) return o.result;
  for (u32 lane = 0; lane < WARP; lane++) {
    shuffle_operands *mine = lane_thread(t, lane)->operands;
    u32 source = shuffle_source(kind, lane, mine->operand);
    // out of the warp: up, down and xor leave the lane its own value
    mine->result = source < WARP ? ((shuffle_operands *)lane_thread(t, source)->operands)->value : mine->value;
  }
  line_of(t->block->device, at)->warp_instructions++;
  warp_release(t);
  return o.result;
}

u32 sim_ballot(sim_place *at, int predicate) {
  sim_thread *t = sim_self;
  u32 vote[2] = {predicate != 0, 0};
  if (!warp_gather(t, at, vote)) return vote[1];
  u32 all = 0;
  for (u32 lane = 0; lane < WARP; lane++) all |= ((u32 *)lane_thread(t, lane)->operands)[0] << lane;
  for (u32 lane = 0; lane < WARP; lane++) ((u32 *)lane_thread(t, lane)->operands)[1] = all;
  line_of(t->block->device, at)->warp_instructions++;
  warp_release(t);
  return all;
}

int sim_elect_one(sim_place *at) {
  sim_thread *t = sim_self;
  if (!require_arch(t, at, 90)) return t->lane == 0;
  if (warp_gather(t, at, NULL)) warp_release(t);
  return t->lane == 0;
}

void sim_warp_sync(sim_place *at) {
  sim_thread *t = sim_self;
  if (synchronising(t, at) || !warp_gather(t, at, NULL)) return;
  knowledge *all = NULL;
  for (u32 lane = 0; lane < WARP; lane++) thread_publish(lane_thread(t, lane), &all);
  for (u32 lane = 0; lane < WARP; lane++) thread_adopt(lane_thread(t, lane), all);
  knowledge_release(t->block, all);
  warp_release(t);
}

// ---- mma.m16n8k16: products of 16-bit floats are exact in float32; sums in float32, k ascending --------------------------------------------
typedef struct mma_operands {
  float *d;
  const u32 *a, *b;
} mma_operands;

typedef struct mma_maps {
  u8 a_row[WARP][8], a_k[WARP][8], b_k[WARP][4], b_column[WARP][4], c_row[WARP][4], c_column[WARP][4];
} mma_maps;

static void fill_map(const lane_map *m, u32 values, u8 *row, u8 *column) {
  for (u32 lane = 0; lane < WARP; lane++)
    for (u32 v = 0; v < values; v++) {
      unsigned r, c;
      lane_map_at(m, lane, v, &r, &c);
      row[lane * values + v] = (u8)r;
      column[lane * values + v] = (u8)c;
    }
}

static const mma_maps *maps(void) {
  static _Thread_local mma_maps m;
  static _Thread_local int filled;
  if (!filled) {
    fill_map(&lane_map_mma_a, 8, m.a_row[0], m.a_k[0]);
    fill_map(&lane_map_mma_b, 4, m.b_k[0], m.b_column[0]);
    fill_map(&lane_map_mma_c, 4, m.c_row[0], m.c_column[0]);
    filled = 1;
  }
  return &m;
}

void sim_mma_m16n8k16(sim_place *at, int type, float *d, const u32 *a, const u32 *b) {
  sim_thread *t = sim_self;
  mma_operands o = {d, a, b};
  if (!warp_gather(t, at, &o)) return;
  const mma_maps *m = maps();
  float A[16][16], B[16][8], C[16][8] = {{0}}, e[8];
  for (u32 lane = 0; lane < WARP; lane++) {
    const mma_operands *l = lane_thread(t, lane)->operands;
    decode_elements(e, l->a, type, 8);
    for (u32 v = 0; v < 8; v++) A[m->a_row[lane][v]][m->a_k[lane][v]] = e[v];
    decode_elements(e, l->b, type, 4);
    for (u32 v = 0; v < 4; v++) B[m->b_k[lane][v]][m->b_column[lane][v]] = e[v];
    for (u32 v = 0; v < 4; v++) C[m->c_row[lane][v]][m->c_column[lane][v]] = l->d[v];
  }
  for (u32 i = 0; i < 16; i++)
    for (u32 k = 0; k < 16; k++)
      for (u32 j = 0; j < 8; j++) C[i][j] += A[i][k] * B[k][j];
  for (u32 lane = 0; lane < WARP; lane++) {
    const mma_operands *l = lane_thread(t, lane)->operands;
    for (u32 v = 0; v < 4; v++) l->d[v] = C[m->c_row[lane][v]][m->c_column[lane][v]];
  }
  sim_line *line = line_of(t->block->device, at);
  line->warp_instructions++;
  line->mma_flops += 2 * 16 * 8 * 16;
  t->block->device->report.mma++;
  warp_release(t);
}
