/* The heuristics of the CPU engine, all of them. */
#include "plan.h"

#include "rows.h"

#include <stdio.h>
#include <string.h>

/* Rows that the few-rows kernels take: above, a panel of query rows is fuller and cheaper. */
enum { FEW_ROWS = 16 };
/* Bytes of neighbouring heads' rows, and query rows, that a few-rows item takes together at most. */
enum { FEW_ITEM_BYTES = 4096, FEW_ITEM_ROWS = 128 };
/* Work items that keep every core of a large machine busy, and the least number of keys worth an item of its own. Few-rows items are short and
 * wait for memory: with more of them the last one ends sooner. */
enum { ITEMS_WANTED = 32, FEW_ITEMS_WANTED = 64, SPLIT_KEYS_MIN = 256 };
/* Multiplications of one thread that take about as long as waking it. */
#define THREAD_WORK 2.5e5

static int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

const glint_cpu_kernels *glint_cpu_kernels_for(const glint_cpu_settings *settings, glint_dtype dtype) {
#if defined(__x86_64__)
  if (dtype == GLINT_BFLOAT16) {
    if (settings->isa == GLINT_ISA_AMX_BF16) return &glint_cpu_amx_bf16;
    if (settings->isa == GLINT_ISA_AVX512_BF16 && (settings->forced || !settings->machine->slow_bf16_dot)) return &glint_cpu_avx512_bf16;
  }
  if (settings->isa >= GLINT_ISA_AVX512 && settings->isa <= GLINT_ISA_AMX_BF16) return &glint_cpu_avx512_f32;
  if (settings->isa == GLINT_ISA_AVX2) return &glint_cpu_avx2_f32;
#else
  (void)dtype, (void)settings;
#endif
  return &glint_cpu_portable_f32;
}

/* Few-rows kernels read rows where they lie: whole vectors, no scales. */
static int can_use_rows(const glint_cpu_plan *plan, const glint_work *w) {
  int unit = plan->kernels->rows->column_unit;
  return w->q.dtype <= GLINT_FLOAT16 && w->head_dim % unit == 0 && w->head_dim_v % unit == 0 && !w->bias.data && !w->drop_threshold;
}

/* Threads worth waking: no more than items, and each with at least a few microseconds of work. */
static int threads_for(const glint_work *w, int threads, int64_t items) {
  double work = (double)w->batch * (double)w->heads_q * (double)w->seqlen_q * (double)w->seqlen_k * (double)(w->head_dim + w->head_dim_v);
  double worth = work / THREAD_WORK;
  int64_t most = worth < (double)threads ? 1 + (int64_t)worth : threads;
  return (int)larger(1, smaller(most, items));
}

/* Rows an item: as many panels as leave Q and O in half of the second-level cache, fewer when that would leave threads idle. How many
 * does not change any result: a row's arithmetic depends on its keys only. */
static int64_t rows_per_item(const glint_cpu_settings *settings, const glint_cpu_plan *plan, const glint_work *w) {
  int64_t panel = plan->kernels->panel, panel_bytes = panel * (plan->units_d + plan->columns) * (int64_t)sizeof(float);
  int64_t panels = larger(1, smaller(GLINT_CPU_PANELS_MAX, settings->machine->l2_bytes / 2 / panel_bytes));
  int64_t all = ceil_div(w->seqlen_q * plan->group, panel), heads = w->batch * w->heads_kv;
  /* uneven items (causal) even out when there are four for every thread */
  int64_t wanted = plan->threads == 1 ? 1 : ceil_div((w->window_right >= 0 ? 4 : 2) * (int64_t)plan->threads, larger(1, heads));
  int64_t blocks = larger(ceil_div(all, panels), smaller(wanted, all));
  return larger(1, ceil_div(all, larger(1, blocks))) * panel;
}

/* Kv heads that a few-rows item takes together: those whose rows of K and V lie side by side, so that memory is read in its own order. One by
 * one, 256 bytes here and there a page, they came at two thirds of the bandwidth. */
static int64_t heads_per_item(const glint_work *w, int64_t rows) {
  int adjacent = w->k.stride[2] == w->head_dim && w->v.stride[2] == w->head_dim_v;
  int64_t row_bytes = larger(w->head_dim, w->head_dim_v) * (int64_t)glint_dtype_size(w->k.dtype);
  int64_t most = larger(1, smaller(FEW_ITEM_BYTES / row_bytes, FEW_ITEM_ROWS / larger(1, rows)));
  return adjacent ? ceil_div(w->heads_kv, ceil_div(w->heads_kv, most)) : 1;
}

/* Splits over keys: the caller's, or enough to keep all cores busy. Depends on no thread count; with GLINT_BATCH_INVARIANT on no other
 * sequence either. */
static void split(glint_cpu_share *share, const glint_work *w) {
  int64_t keys = larger(0, share->end - share->first), wanted = w->num_splits;
  if (!wanted) {
    int64_t sequences = w->flags & GLINT_BATCH_INVARIANT ? 1 : w->batch;
    int64_t units = sequences * share->head_groups * ceil_div(share->rows, 64);
    int64_t items = share->few ? FEW_ITEMS_WANTED : ITEMS_WANTED;
    wanted = units >= items ? 1 : smaller(ceil_div(items, larger(1, units)), keys / SPLIT_KEYS_MIN);
  }
  wanted = larger(1, smaller(wanted, keys));
  share->split_keys = larger(GLINT_CPU_SPLIT_UNIT, glint_cpu_round_up(ceil_div(keys, wanted), GLINT_CPU_SPLIT_UNIT));
  share->splits = larger(1, ceil_div(keys, share->split_keys));
}

glint_cpu_share glint_cpu_share_of(const glint_cpu_plan *plan, const glint_work *w, int64_t b) {
  glint_cpu_share share = {.s = glint_sequence_of(w, b)};
  int64_t ignored;
  share.rows = share.s.used_q * plan->group;
  if (share.s.used_q > 0) {
    glint_visible_keys(w, &share.s, 0, &share.first, &ignored);
    glint_visible_keys(w, &share.s, share.s.used_q - 1, &ignored, &share.end);
  }
  share.first = share.first / GLINT_CPU_SPLIT_UNIT * GLINT_CPU_SPLIT_UNIT;
  if (share.end < share.first) share.end = share.first;
  share.few = share.rows <= FEW_ROWS && can_use_rows(plan, w);
  share.item_heads = share.few ? heads_per_item(w, share.rows) : 1;
  share.head_groups = ceil_div(w->heads_kv, share.item_heads);
  share.block_rows = plan->max_block_rows;
  share.blocks = ceil_div(share.rows, share.block_rows);
  split(&share, w);
  share.items = share.head_groups * share.blocks * share.splits;
  share.partial_rows = share.splits > 1 ? share.splits * share.rows * w->heads_kv : 0;
  return share;
}

int64_t glint_cpu_row_floats(const glint_cpu_plan *plan) {
  int64_t q = plan->units_d * (plan->kernels->bf16 ? 2 : 1);
  return glint_cpu_round_up(larger(q, plan->columns), 16);
}

/* Reserves bytes, rounded so that the next piece is aligned. */
static char *take(char *base, size_t *at, int64_t bytes) {
  char *piece = base ? base + *at : NULL;
  *at += (size_t)glint_cpu_round_up(bytes, 64);
  return piece;
}

size_t glint_cpu_arena_layout(const glint_cpu_plan *plan, const glint_work *w, char *base, glint_cpu_arena *arena) {
  const glint_cpu_kernels *kernels = plan->kernels;
  int64_t panel = kernels->panel, rows = plan->max_block_rows, block = kernels->block_k, word = (int64_t)sizeof(float);
  size_t at = 0;
  if (can_use_rows(plan, w)) rows = larger(rows, FEW_ITEM_ROWS);
  arena->q = (float *)(void *)take(base, &at, rows * plan->units_d * word);
  arena->k = (float *)(void *)take(base, &at, block * plan->units_d * word);
  arena->v = (float *)(void *)take(base, &at, block * plan->columns * word / (kernels->bf16 ? 2 : 1));
  arena->s = (float *)(void *)take(base, &at, block * panel * word);
  arena->o = (float *)(void *)take(base, &at, rows * plan->columns * word);
  arena->rows = (float *)(void *)take(base, &at, panel * glint_cpu_row_floats(plan) * word);
  arena->bias = (float *)(void *)take(base, &at, w->bias.data ? panel * (block + 16) * word : 0);
  arena->m = (float *)(void *)take(base, &at, rows * word);
  arena->l = (float *)(void *)take(base, &at, rows * word);
  arena->low = (int64_t *)(void *)take(base, &at, rows * (int64_t)sizeof(int64_t));
  arena->high = (int64_t *)(void *)take(base, &at, rows * (int64_t)sizeof(int64_t));
  arena->key_rows = (const void **)(void *)take(base, &at, block * (int64_t)sizeof(void *));
  arena->value_rows = (const void **)(void *)take(base, &at, block * (int64_t)sizeof(void *));
  arena->key_scales = (float *)(void *)take(base, &at, block * word);
  arena->value_scales = (float *)(void *)take(base, &at, block * word);
  arena->pack = (float *)(void *)take(base, &at, 16 * plan->columns * word);
  /* whole pages apart, plus a line: threads share no line, and the same piece of two arenas falls into different cache sets */
  return (size_t)glint_cpu_round_up((int64_t)at, 4096) + 256;
}

glint_cpu_plan glint_cpu_plan_forward(const glint_cpu_settings *settings, const glint_work *w) {
  glint_cpu_plan plan = {.kernels = glint_cpu_kernels_for(settings, w->q.dtype), .group = w->heads_q / w->heads_kv};
  const glint_cpu_kernels *kernels = plan.kernels;
  int64_t partial_rows = 0;
  size_t at = 0;
  plan.units_d = (int)glint_cpu_round_up(kernels->bf16 ? (w->head_dim + 1) / 2 : w->head_dim, kernels->step_d);
  plan.columns = (int)glint_cpu_round_up(w->head_dim_v, kernels->step_v);
  plan.threads = settings->threads;
  plan.max_block_rows = rows_per_item(settings, &plan, w);
  for (int64_t b = 0; b < w->batch; b++) {
    glint_cpu_share share = glint_cpu_share_of(&plan, w, b);
    plan.items += share.items;
    partial_rows += share.partial_rows;
  }
  plan.combine_rows = partial_rows;
  plan.threads = threads_for(w, settings->threads, larger(plan.items, w->seqlen_new ? w->batch : 0));
  plan.items_at = at;
  take(NULL, &at, (w->batch + 1) * (int64_t)sizeof(int64_t));
  plan.partials_at = at;
  take(NULL, &at, (w->batch + 1) * (int64_t)sizeof(int64_t));
  plan.partial = at;
  take(NULL, &at, partial_rows * (plan.columns + 2) * (int64_t)sizeof(float));
  plan.arenas = (size_t)glint_cpu_round_up((int64_t)at, 256);
  glint_cpu_arena arena;
  plan.arena_bytes = glint_cpu_arena_layout(&plan, w, NULL, &arena);
  plan.bytes = plan.arenas + plan.arena_bytes * (size_t)plan.threads;
  return plan;
}

void glint_cpu_plan_describe(const glint_cpu_settings *settings, const glint_cpu_plan *plan, const glint_work *w, glint_plan_info *info) {
  const glint_cpu_kernels *kernels = plan->kernels;
  glint_cpu_share share = {.splits = 1};
  int64_t most = 1;
  for (int64_t b = 0; b < w->batch; b++) {
    share = glint_cpu_share_of(plan, w, b);
    most = larger(most, share.splits);
  }
  snprintf(info->kernel, sizeof info->kernel, "cpu_%s%s", kernels->name, share.few ? "_rows" : "");
  snprintf(info->reason, sizeof info->reason, "%s %s%s; %s", settings->forced ? "forced" : "best here:", glint_cpu_isa_name(settings->isa),
           settings->machine->slow_bf16_dot && !settings->forced && settings->isa == GLINT_ISA_AVX512_BF16
               ? " (its bfloat16 dot product is slower than FMA)"
               : "",
           share.few ? "few query rows: vectors along head_dim, K and V read where they lie"
                     : "panels of query rows against packed blocks of keys");
  info->tile_q = (int32_t)(share.few ? share.rows : plan->max_block_rows);
  info->tile_k = kernels->block_k;
  info->stages = 1;
  info->num_splits = (int32_t)most;
  info->threads = plan->threads;
  info->shared_bytes = (int64_t)plan->arena_bytes;
  info->grid = plan->items;
  info->waves_x100 = plan->items * 100 / larger(1, plan->threads);
  glint_work_cost(w, 1, &info->flops, &info->bytes);
  info->workspace_bytes = plan->bytes;
}

/* Sums of dK and dV over rows of one sequence and kv head, whole blocks. */
static int64_t sum_rows_of(const glint_cpu_backward_plan *plan, int64_t len_k) {
  return glint_cpu_round_up(len_k, plan->shape.kernels->block_k);
}

/* dbias elements that several items would add to. */
static int shares_bias(const glint_work *w) {
  if (!w->dbias.data) return 0;
  return (w->dbias.shape[0] == 1 && w->batch > 1) || (w->dbias.shape[1] == 1 && w->heads_q > 1) ||
         (w->dbias.shape[2] == 1 && w->seqlen_q > 1);
}

size_t glint_cpu_backward_layout(const glint_cpu_backward_plan *plan, const glint_work *w, char *base, glint_cpu_backward_arena *arena) {
  const glint_cpu_plan *shape = &plan->shape;
  int bf16 = shape->kernels->bf16;
  int64_t rows = shape->max_block_rows, block = shape->kernels->block_k, tile = block * shape->kernels->panel,
          word = (int64_t)sizeof(float);
  glint_cpu_plan forward = *shape;
  forward.columns = plan->columns_d > shape->columns ? plan->columns_d : shape->columns; /* base.o is dQ here */
  size_t at = glint_cpu_arena_layout(&forward, w, base, &arena->base);
  arena->q_packed = (float *)(void *)take(base, &at, rows * plan->columns_d * word);
  arena->do_packed = (float *)(void *)take(base, &at, rows * shape->columns * word);
  arena->d_o = (float *)(void *)take(base, &at, rows * plan->units_v * word);
  arena->k_columns = bf16 ? (float *)(void *)take(base, &at, block * plan->columns_d / 2 * word) : arena->base.k;
  arena->dp = (float *)(void *)take(base, &at, tile * word);
  arena->ds_weights = bf16 ? (float *)(void *)take(base, &at, tile / 2 * word) : arena->dp;
  arena->keep = (float *)(void *)take(base, &at, w->drop_threshold ? tile * word : 0);
  arena->slope = (float *)(void *)take(base, &at, w->softcap > 0 ? tile * word : 0);
  arena->minus_lse = (float *)(void *)take(base, &at, rows * word);
  arena->rest = (float *)(void *)take(base, &at, rows * word);
  arena->delta = (float *)(void *)take(base, &at, rows * word);
  return (size_t)glint_cpu_round_up((int64_t)at, 4096) + 256;
}

/* bfloat16 kernels do plain masks only; the others do everything. */
static const glint_cpu_kernels *backward_kernels(const glint_cpu_settings *settings, const glint_work *w) {
  const glint_cpu_kernels *kernels = glint_cpu_kernels_for(settings, w->q.dtype);
  int plain = w->d_o.dtype == w->q.dtype && w->softcap == 0 && !w->bias.data && !w->alibi_slopes.data && !w->drop_threshold;
  return kernels->backward && (plain || !kernels->bf16) ? kernels : glint_cpu_kernels_for(settings, GLINT_FLOAT32);
}

glint_cpu_backward_plan glint_cpu_plan_backward(const glint_cpu_settings *settings, const glint_work *w) {
  glint_cpu_backward_plan plan = {.shape = {.kernels = backward_kernels(settings, w), .group = w->heads_q / w->heads_kv}};
  glint_cpu_plan *shape = &plan.shape;
  int64_t panel = shape->kernels->panel, units = w->batch * w->heads_kv, total = 0, longest = 0, word = (int64_t)sizeof(float);
  int pair = shape->kernels->bf16 ? 2 : 1;
  size_t at = 0;
  shape->units_d = (int)glint_cpu_round_up(ceil_div(w->head_dim, pair), 16), plan.columns_d = shape->units_d * pair;
  plan.units_v = (int)glint_cpu_round_up(ceil_div(w->head_dim_v, pair), 16), shape->columns = plan.units_v * pair;
  plan.one_thread = shares_bias(w);
  shape->threads = plan.one_thread ? 1 : settings->threads;
  int64_t row_bytes = (shape->units_d + plan.units_v + 2 * plan.columns_d + shape->columns) * word;
  int64_t panels = larger(1, smaller(8, settings->machine->l2_bytes / 2 / (row_bytes * panel)));
  shape->max_block_rows = panels * panel;
  int64_t groups = ceil_div(larger(1, w->seqlen_q * shape->group), shape->max_block_rows);
  /* each split sums dK and dV by itself: fewer than in the forward pass, and at least two groups of panels each */
  int64_t wanted = ceil_div(ITEMS_WANTED / 2, larger(1, units));
  plan.splits = plan.one_thread ? 1 : larger(1, smaller(groups / 2, wanted));
  plan.items = units * plan.splits;
  shape->threads = threads_for(w, shape->threads, plan.items);
  for (int64_t b = 0; b < w->batch; b++) {
    int64_t rows = sum_rows_of(&plan, glint_sequence_of(w, b).len_k);
    total += rows * w->heads_kv * plan.splits;
    longest = larger(longest, rows);
  }
  plan.sum_rows = plan.splits == 1 ? longest : 0;
  plan.keys_at = at;
  take(NULL, &at, (w->batch + 1) * (int64_t)sizeof(int64_t));
  plan.sums = at;
  take(NULL, &at, (plan.splits == 1 ? longest * shape->threads : total) * (plan.columns_d + shape->columns) * word);
  plan.sinks = at;
  take(NULL, &at, w->dsinks.data ? w->batch * w->heads_q * plan.splits * (int64_t)sizeof(double) : 0);
  plan.bias = at;
  const int64_t *bias = w->dbias.shape;
  take(NULL, &at, w->dbias.data ? bias[0] * bias[1] * bias[2] * bias[3] * word : 0);
  plan.arenas = (size_t)glint_cpu_round_up((int64_t)at, 256);
  glint_cpu_backward_arena arena;
  plan.arena_bytes = glint_cpu_backward_layout(&plan, w, NULL, &arena);
  plan.bytes = plan.arenas + plan.arena_bytes * (size_t)shape->threads;
  return plan;
}

void glint_cpu_describe_backward(const glint_cpu_settings *settings, const glint_cpu_backward_plan *plan, const glint_work *w,
                                 glint_plan_info *info) {
  const glint_cpu_plan *shape = &plan->shape;
  snprintf(info->kernel, sizeof info->kernel, "cpu_backward_%s", shape->kernels->name);
  snprintf(info->reason, sizeof info->reason, "%s %s; products of %s%s",
           settings->forced ? "forced" : "best here:", glint_cpu_isa_name(settings->isa), shape->kernels->bf16 ? "bfloat16" : "floats",
           plan->one_thread ? "; one thread: dbias is summed over an axis that items share" : "");
  info->tile_q = (int32_t)shape->max_block_rows;
  info->tile_k = shape->kernels->block_k;
  info->stages = 1;
  info->num_splits = (int32_t)plan->splits;
  info->threads = shape->threads;
  info->shared_bytes = (int64_t)plan->arena_bytes;
  info->grid = plan->items;
  info->waves_x100 = plan->items * 100 / larger(1, shape->threads);
  glint_work_cost(w, 1, &info->flops, &info->bytes);
  info->workspace_bytes = plan->bytes;
}
