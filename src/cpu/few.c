/* An item with few query rows (decode), by the kernels of rows.h: keys block by block, up to 4 rows at a time. */
#include "forward.h"
#include "rows.h"

#include <string.h>

/* The block of keys at hand and the one after it. */
typedef struct few_block {
  int64_t first, end;
  const void *keys[GLINT_CPU_ROWS_BLOCK + GLINT_CPU_ROWS_PAD], *values[GLINT_CPU_ROWS_BLOCK + GLINT_CPU_ROWS_PAD];
} few_block;

static void find_block(const glint_cpu_run *run, int64_t first, few_block *block) {
  block->first = first;
  block->end = first + GLINT_CPU_ROWS_BLOCK < run->item.end ? first + GLINT_CPU_ROWS_BLOCK : run->item.end;
  if (block->end <= block->first) {
    block->end = block->first;
    return;
  }
  glint_cpu_key_rows(run, block->first, block->end, block->keys, block->values, NULL, NULL);
  int64_t count = block->end - block->first;
  for (int64_t n = count; n < count + GLINT_CPU_ROWS_PAD; n++)
    block->keys[n] = block->keys[count - 1], block->values[n] = block->values[count - 1];
}

/* Rows [row, row + rows) against keys [first, end) of the block, all visible. */
static void visit_same(const glint_cpu_run *run, const few_block *block, const few_block *next, int64_t row, int rows, int64_t first,
                       int64_t end) {
  const glint_work *w = run->w;
  const glint_cpu_rows *kernels = run->plan->kernels->rows;
  glint_cpu_arena *arena = run->arena;
  int64_t ld_q = w->head_dim, ld_o = run->plan->columns, offset = first - block->first;
  float alpha[GLINT_CPU_ROWS_MAX], slope[GLINT_CPU_ROWS_MAX], position[GLINT_CPU_ROWS_MAX];
  glint_cpu_rows_change change = {.cap = w->softcap};
  int64_t element = (int64_t)glint_dtype_size(w->k.dtype);
  /* while keys are read, this block's values are asked for, and with those the next block's keys */
  glint_cpu_soon values = {block->values + offset, row == 0 ? (int)(end - first) : 0, w->head_dim_v * element};
  glint_cpu_soon keys = {next->keys, row == 0 ? (int)(next->end - next->first) : 0, w->head_dim * element};
  if (w->alibi_slopes.data) {
    const glint_sequence *s = &run->share->s;
    for (int r = 0; r < rows; r++) {
      int64_t at = run->item.b * w->alibi_slopes.stride[0] + glint_cpu_head(run, row + r) * w->alibi_slopes.stride[1];
      slope[r] = ((const float *)w->alibi_slopes.data)[at];
      position[r] = (float)(glint_cpu_position(run, row + r) + s->len_k - s->used_q - first);
    }
    change.slope = slope, change.position = position;
  }
  int count = (int)(end - first);
  kernels->scores(rows, arena->q + row * ld_q, ld_q, block->keys + offset, count, w->k.dtype, (int)w->head_dim, arena->s, &values);
  kernels->softmax(rows, arena->s, count, &change, run->units.log2_unit, arena->m + row, arena->l + row, alpha);
  kernels->accumulate(rows, arena->s, block->values + offset, count, w->v.dtype, (int)w->head_dim_v, arena->o + row * ld_o, ld_o, alpha,
                      &keys);
}

/* Rows [row, row + rows) see the same keys: together; otherwise one by one, each with its own keys, so that nothing is masked. */
static void visit_rows(const glint_cpu_run *run, const few_block *block, const few_block *next, int64_t row, int rows) {
  const glint_cpu_arena *arena = run->arena;
  int64_t low[GLINT_CPU_ROWS_MAX] = {0}, high[GLINT_CPU_ROWS_MAX] = {0};
  int same = 1;
  for (int r = 0; r < rows; r++) {
    low[r] = arena->low[row + r] > block->first ? arena->low[row + r] : block->first;
    high[r] = arena->high[row + r] < block->end ? arena->high[row + r] : block->end;
    same &= low[r] == low[0] && high[r] == high[0];
  }
  if (same && low[0] < high[0]) visit_same(run, block, next, row, rows, low[0], high[0]);
  for (int r = 0; !same && r < rows; r++)
    if (low[r] < high[r]) visit_same(run, block, next, row + r, 1, low[r], high[r]);
}

void glint_cpu_few_item(const glint_cpu_run *run) {
  const glint_work *w = run->w;
  glint_cpu_arena *arena = run->arena;
  int64_t rows = run->item.rows, first = run->item.end, end = run->item.first, ld_o = run->plan->columns;
  for (int64_t r = 0; r < rows; r++) {
    glint_cpu_query_row(run, r, run->units.q_factor, arena->q + r * w->head_dim);
    glint_visible_keys(w, &run->share->s, glint_cpu_position(run, r), &arena->low[r], &arena->high[r]);
    arena->m[r] = -__builtin_inff(), arena->l[r] = 0;
    if (arena->low[r] < first) first = arena->low[r];
    if (arena->high[r] > end) end = arena->high[r];
  }
  memset(arena->o, 0, (size_t)(rows * ld_o) * sizeof(float));
  if (first < run->item.first) first = run->item.first;
  if (end > run->item.end) end = run->item.end;
  few_block blocks[2];
  int turn = 0;
  first = run->item.first + (first - run->item.first) / GLINT_CPU_ROWS_BLOCK * GLINT_CPU_ROWS_BLOCK;
  if (first < end) find_block(run, first, &blocks[0]);
  for (; first < end; first += GLINT_CPU_ROWS_BLOCK, turn ^= 1) {
    find_block(run, first + GLINT_CPU_ROWS_BLOCK, &blocks[turn ^ 1]);
    for (int64_t row = 0; row < rows;) {
      int together = rows - row >= 4 ? 4 : rows - row >= 2 ? 2 : 1;
      visit_rows(run, &blocks[turn], &blocks[turn ^ 1], row, together);
      row += together;
    }
  }
  for (int64_t r = 0; r < rows; r++) glint_cpu_finish_row(run, r, arena->o + r * ld_o, arena->m[r], arena->l[r]);
}
