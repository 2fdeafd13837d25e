/* An item with few query rows (decode), by the kernels of rows.h: keys block by block, in each block one kv head of the item after the other,
 * up to 4 rows at a time. Rows of the arena: [head of the item][row]; its block of K, which is not needed here, holds queries packed for tiles. */
#include "forward.h"
#include "rows.h"

#include <string.h>

/* A block of keys: where the rows of the item's first head lie; the other heads' follow at once. */
typedef struct few_block {
  int64_t first, end;
  ptrdiff_t stride; /* bytes from one key to the next; 0: not the same everywhere */
  const void *keys[GLINT_CPU_ROWS_BLOCK + GLINT_CPU_ROWS_PAD], *values[GLINT_CPU_ROWS_BLOCK + GLINT_CPU_ROWS_PAD];
} few_block;

/* One head of the item at the block at hand. */
typedef struct few_visit {
  const glint_cpu_run *run; /* item.head is this head */
  const few_block *block;
  int64_t head;                /* from the item's first */
  glint_cpu_soon keys, values; /* this head's share of the next block: what there is to ask for meanwhile */
} few_visit;

static void find_block(const glint_cpu_run *run, int64_t first, few_block *block) {
  block->first = first;
  block->end = first + GLINT_CPU_ROWS_BLOCK < run->item.end ? first + GLINT_CPU_ROWS_BLOCK : run->item.end;
  if (block->end <= block->first) {
    block->end = block->first;
    return;
  }
  glint_cpu_key_rows(run, block->first, block->end, block->keys, block->values, NULL, NULL);
  int64_t count = block->end - block->first;
  block->stride = count > 1 ? (const char *)block->keys[1] - (const char *)block->keys[0] : 0;
  for (int64_t n = 2; n < count; n++)
    if ((const char *)block->keys[n] - (const char *)block->keys[n - 1] != block->stride) block->stride = 0;
  for (int64_t n = count; n < count + GLINT_CPU_ROWS_PAD; n++)
    block->keys[n] = block->keys[count - 1], block->values[n] = block->values[count - 1];
}

/* Nobody asked for an item's first block before. */
static void ask_for_block(const glint_cpu_run *run, const few_block *block) {
  const glint_work *w = run->w;
  int64_t element = (int64_t)glint_dtype_size(w->k.dtype) * run->item.heads, count = block->end - block->first;
  for (int64_t j = 0; j < count; j++)
    for (int64_t i = 0; i < w->head_dim * element; i += 64) __builtin_prefetch((const char *)block->keys[j] + i, 0, 2);
  for (int64_t j = 0; j < count; j++)
    for (int64_t i = 0; i < w->head_dim_v * element; i += 64) __builtin_prefetch((const char *)block->values[j] + i, 0, 2);
}

int glint_cpu_few_tiles(const glint_work *w, const glint_cpu_plan *plan) {
  int plain = w->softcap == 0 && !w->alibi_slopes.data;
  return plan->kernels->rows->tiles && plain && w->k.dtype == GLINT_BFLOAT16 && w->head_dim % GLINT_CPU_TILE_COLUMNS == 0;
}

/* Scores of keys [offset, offset + count) of the block; row: from the first of all heads. */
static void find_scores(const few_visit *visit, int64_t row, int rows, int64_t offset, int count, const glint_cpu_soon *soon) {
  static const glint_cpu_soon nothing = {0};
  const glint_cpu_run *run = visit->run;
  const glint_work *w = run->w;
  const glint_cpu_rows *kernels = run->plan->kernels->rows;
  const void *const *keys = visit->block->keys + offset;
  ptrdiff_t at = visit->head * w->head_dim * (int64_t)glint_dtype_size(w->k.dtype);
  int tiled = 0;
  if (rows == GLINT_CPU_TILE_ROWS && visit->block->stride && glint_cpu_few_tiles(w, run->plan))
    tiled = count / GLINT_CPU_TILE_KEYS * GLINT_CPU_TILE_KEYS;
  if (tiled)
    kernels->tiles->scores(run->arena->k + row * (w->head_dim / 2), (const char *)keys[0] + at, visit->block->stride, tiled,
                           (int)w->head_dim, run->arena->s, soon);
  if (tiled < count)
    kernels->scores(rows, run->arena->q + row * w->head_dim, w->head_dim, keys + tiled, at, count - tiled, w->k.dtype, (int)w->head_dim,
                    run->arena->s + tiled * rows, tiled ? &nothing : soon);
}

/* Rows [row, row + rows) of the head against keys [first, end) of the block, all visible. */
static void visit_same(const few_visit *visit, int64_t row, int rows, int64_t first, int64_t end) {
  static const glint_cpu_soon nothing = {0};
  const glint_cpu_run *run = visit->run;
  const glint_work *w = run->w;
  const few_block *block = visit->block;
  const glint_cpu_rows *kernels = run->plan->kernels->rows;
  glint_cpu_arena *arena = run->arena;
  int64_t ld_o = run->plan->columns, offset = first - block->first, at = visit->head * run->item.rows + row;
  float alpha[GLINT_CPU_ROWS_MAX], slope[GLINT_CPU_ROWS_MAX], position[GLINT_CPU_ROWS_MAX];
  glint_cpu_rows_change change = {.cap = w->softcap};
  int64_t element = (int64_t)glint_dtype_size(w->k.dtype);
  if (w->alibi_slopes.data) {
    const glint_sequence *s = &run->share->s;
    for (int r = 0; r < rows; r++) {
      int64_t slope_at = run->item.b * w->alibi_slopes.stride[0] + glint_cpu_head(run, row + r) * w->alibi_slopes.stride[1];
      slope[r] = ((const float *)w->alibi_slopes.data)[slope_at];
      position[r] = (float)(glint_cpu_position(run, row + r) + s->len_k - s->used_q - first);
    }
    change.slope = slope, change.position = position;
  }
  int count = (int)(end - first);
  find_scores(visit, at, rows, offset, count, row == 0 ? &visit->keys : &nothing);
  kernels->softmax(rows, arena->s, count, &change, run->units.log2_unit, arena->m + at, arena->l + at, alpha);
  kernels->accumulate(rows, arena->s, block->values + offset, visit->head * w->head_dim_v * element, count, w->v.dtype, (int)w->head_dim_v,
                      arena->o + at * ld_o, ld_o, alpha, row == 0 ? &visit->values : &nothing);
}

/* Rows [row, row + rows) see the same keys: together; otherwise one by one, each with its own keys, so that nothing is masked. */
static void visit_rows(const few_visit *visit, int64_t row, int rows) {
  const glint_cpu_arena *arena = visit->run->arena;
  const few_block *block = visit->block;
  int64_t low[GLINT_CPU_ROWS_MAX] = {0}, high[GLINT_CPU_ROWS_MAX] = {0};
  int same = 1;
  for (int r = 0; r < rows; r++) {
    low[r] = arena->low[row + r] > block->first ? arena->low[row + r] : block->first;
    high[r] = arena->high[row + r] < block->end ? arena->high[row + r] : block->end;
    same &= low[r] == low[0] && high[r] == high[0];
  }
  if (same && low[0] < high[0]) visit_same(visit, row, rows, low[0], high[0]);
  for (int r = 0; !same && r < rows; r++)
    if (low[r] < high[r]) visit_same(visit, row + r, 1, low[r], high[r]);
}

static void visit_head(const few_visit *visit) {
  int64_t rows = visit->run->item.rows;
  for (int64_t row = 0; row < rows;) {
    int together = rows - row >= 4 ? 4 : rows - row >= 2 ? 2 : 1;
    visit_rows(visit, row, together);
    row += together;
  }
}

/* The run of one of the item's heads. */
static glint_cpu_run run_of_head(const glint_cpu_run *run, int64_t head) {
  glint_cpu_run one = *run;
  one.item.head += head;
  if (one.item.partial) one.item.partial += head * run->share->splits * run->share->rows * (run->plan->columns + 2);
  return one;
}

/* Queries of all heads, empty sums, and the limits of the rows, which are the same for every head. Narrows [*first, *end) to what is seen. */
static void begin(const glint_cpu_run *run, int64_t *first, int64_t *end) {
  const glint_work *w = run->w;
  glint_cpu_arena *arena = run->arena;
  int64_t rows = run->item.rows, low = run->item.end, high = run->item.first;
  for (int64_t r = 0; r < rows; r++) {
    glint_visible_keys(w, &run->share->s, glint_cpu_position(run, r), &arena->low[r], &arena->high[r]);
    if (arena->low[r] < low) low = arena->low[r];
    if (arena->high[r] > high) high = arena->high[r];
  }
  for (int64_t head = 0; head < run->item.heads; head++) {
    glint_cpu_run one = run_of_head(run, head);
    for (int64_t r = 0; r < rows; r++) glint_cpu_query_row(&one, r, run->units.q_factor, arena->q + (head * rows + r) * w->head_dim);
    for (int64_t r = 0; r + GLINT_CPU_TILE_ROWS <= rows && glint_cpu_few_tiles(w, run->plan); r += GLINT_CPU_TILE_ROWS) {
      int64_t at = head * rows + r;
      run->plan->kernels->rows->tiles->pack_q(arena->q + at * w->head_dim, w->head_dim, (int)w->head_dim,
                                              arena->k + at * (w->head_dim / 2));
    }
  }
  for (int64_t r = 0; r < run->item.heads * rows; r++) arena->m[r] = -__builtin_inff(), arena->l[r] = 0;
  memset(arena->o, 0, (size_t)(run->item.heads * rows * run->plan->columns) * sizeof(float));
  *first = low < run->item.first ? run->item.first : low;
  *end = high > run->item.end ? run->item.end : high;
  /* blocks lie at fixed places, whatever the rows see */
  *first = run->item.first + (*first - run->item.first) / GLINT_CPU_ROWS_BLOCK * GLINT_CPU_ROWS_BLOCK;
}

void glint_cpu_few_item(const glint_cpu_run *run) {
  const glint_work *w = run->w;
  int64_t rows = run->item.rows, heads = run->item.heads, first, end;
  int64_t element = (int64_t)glint_dtype_size(w->k.dtype) * heads;
  few_block blocks[2];
  int turn = 0;
  int tiles = glint_cpu_few_tiles(w, run->plan);
  if (tiles) run->plan->kernels->rows->tiles->begin();
  begin(run, &first, &end);
  if (first < end) {
    find_block(run, first, &blocks[0]);
    ask_for_block(run, &blocks[0]);
  }
  for (; first < end; first += GLINT_CPU_ROWS_BLOCK, turn ^= 1) {
    few_block *next = &blocks[turn ^ 1];
    find_block(run, first + GLINT_CPU_ROWS_BLOCK, next);
    int64_t count = next->end - next->first;
    for (int64_t head = 0; head < heads; head++) {
      glint_cpu_run one = run_of_head(run, head);
      int64_t from = count * head / heads;
      int share = (int)(count * (head + 1) / heads - from);
      few_visit visit = {&one, &blocks[turn], head, {next->keys + from, share, w->head_dim * element}, {next->values + from, share, 0}};
      visit.values.bytes = w->head_dim_v * element;
      visit_head(&visit);
    }
  }
  if (tiles) run->plan->kernels->rows->tiles->end();
  for (int64_t head = 0; head < heads; head++) {
    glint_cpu_run one = run_of_head(run, head);
    for (int64_t r = 0; r < rows; r++) {
      int64_t at = head * rows + r;
      glint_cpu_finish_row(&one, r, run->arena->o + at * run->plan->columns, run->arena->m[at], run->arena->l[at]);
    }
  }
}
