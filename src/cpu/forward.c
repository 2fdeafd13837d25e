/* The forward pass: items of work over threads, then the merge of split keys. Every item's result depends on the item alone, so the order in
 * which threads take them changes nothing. */
#include "forward.h"

#include <omp.h>

/* The sequence that number n belongs to: the last b with starts[b] <= n. */
static int64_t find_sequence(const int64_t *starts, int64_t batch, int64_t n) {
  int64_t low = 0, high = batch;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (starts[middle] <= n)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Item n of a sequence: groups of heads run fastest, then splits, then query blocks from the last one. */
static glint_cpu_item item_of(const glint_work *w, const glint_cpu_plan *plan, const glint_cpu_share *share, float *partial, int64_t b,
                              int64_t n) {
  glint_cpu_item item = {.b = b, .head = n % share->head_groups * share->item_heads};
  int64_t part = n / share->head_groups % share->splits, block = share->blocks - 1 - n / share->head_groups / share->splits;
  item.heads = w->heads_kv - item.head < share->item_heads ? w->heads_kv - item.head : share->item_heads;
  item.row = block * share->block_rows;
  item.rows = share->rows - item.row < share->block_rows ? share->rows - item.row : share->block_rows;
  item.first = share->first + part * share->split_keys;
  item.end = part == share->splits - 1 ? share->end : item.first + share->split_keys;
  if (share->splits > 1) item.partial = partial + ((item.head * share->splits + part) * share->rows + item.row) * (plan->columns + 2);
  return item;
}

static void run_item(const glint_work *w, const glint_cpu_plan *plan, const int64_t *items_at, const int64_t *partials_at, float *partial,
                     glint_cpu_arena *arena, int64_t n) {
  int64_t b = find_sequence(items_at, w->batch, n);
  glint_cpu_share share = glint_cpu_share_of(plan, w, b);
  glint_cpu_run run = {.w = w, .plan = plan, .share = &share, .arena = arena};
  run.units = glint_cpu_share_units(w, plan, &share);
  run.item = item_of(w, plan, &share, partial + partials_at[b] * (plan->columns + 2), b, n - items_at[b]);
  if (share.few)
    glint_cpu_few_item(&run);
  else
    glint_cpu_panel_item(&run);
}

/* Merges the splits of query head n % heads_q of sequence n / heads_q. */
static void combine(const glint_work *w, const glint_cpu_plan *plan, const int64_t *partials_at, const float *partial, int64_t n) {
  int64_t b = n / w->heads_q, head = n % w->heads_q;
  if (partials_at[b] == partials_at[b + 1]) return;
  glint_cpu_share share = glint_cpu_share_of(plan, w, b);
  glint_cpu_units units = glint_cpu_share_units(w, plan, &share);
  for (int64_t r = head % plan->group; r < share.rows; r += plan->group)
    glint_cpu_combine_row(w, plan, &share, &units, partial + partials_at[b] * (plan->columns + 2), head / plan->group, r);
}

void glint_cpu_forward(const glint_work *w, const glint_cpu_plan *plan, void *workspace) {
  char *base = workspace;
  int64_t *items_at = (int64_t *)(void *)(base + plan->items_at), *partials_at = (int64_t *)(void *)(base + plan->partials_at);
  float *partial = (float *)(void *)(base + plan->partial);
  if (w->seqlen_new) glint_cpu_append(w, plan->threads);
  items_at[0] = partials_at[0] = 0;
  for (int64_t b = 0; b < w->batch; b++) {
    glint_cpu_share share = glint_cpu_share_of(plan, w, b);
    items_at[b + 1] = items_at[b] + share.items;
    partials_at[b + 1] = partials_at[b] + share.partial_rows;
    glint_cpu_clear_rows(w, &share.s);
  }
#pragma omp parallel num_threads(plan->threads)
  {
    glint_cpu_arena arena;
    glint_cpu_arena_layout(plan, w, base + plan->arenas + (size_t)omp_get_thread_num() * plan->arena_bytes, &arena);
    if (plan->kernels->begin) plan->kernels->begin();
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < plan->items; n++) run_item(w, plan, items_at, partials_at, partial, &arena, n);
    if (plan->kernels->end) plan->kernels->end();
    /* all items are done here: omp for ends with a barrier */
    if (plan->combine_rows) {
#pragma omp for schedule(static) nowait
      for (int64_t n = 0; n < w->batch * w->heads_q; n++) combine(w, plan, partials_at, partial, n);
    }
  }
}
