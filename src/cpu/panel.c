/* An item by panels of query rows: keys block by block; K and V packed once a block, then used by every panel. */
#include "forward.h"

#include "../api/convert.h"

#include <math.h>
#include <string.h>

/* Limits of one panel's visible keys: where some row sees something, and where all rows see everything. */
typedef struct panel_range {
  int64_t first, end, all_first, all_end;
} panel_range;

/* The block of keys at hand. */
typedef struct key_block {
  int64_t first, end; /* keys */
  int finite;         /* V has no NaN and no infinity */
} key_block;

static int64_t round_down(int64_t n, int64_t unit) { return n / unit * unit; }

/* Packs one panel of Q; rows beyond the item are zero and take the limits of the last row, so that they force no mask. */
static panel_range load_panel(const glint_cpu_run *run, int64_t panel) {
  const glint_work *w = run->w;
  const glint_cpu_plan *plan = run->plan;
  const glint_cpu_kernels *kernels = plan->kernels;
  glint_cpu_arena *arena = run->arena;
  int64_t base = panel * kernels->panel, ld = glint_cpu_row_floats(plan);
  panel_range range = {INT64_MAX, 0, 0, INT64_MAX};
  memset(arena->rows, 0, (size_t)(kernels->panel * ld) * sizeof(float));
  for (int n = 0; n < kernels->panel; n++) {
    int64_t r = base + n;
    if (r < run->item.rows) {
      glint_cpu_query_words(run, r, run->units.q_factor, arena->rows + n * ld);
      glint_visible_keys(w, &run->share->s, glint_cpu_position(run, r), &arena->low[r], &arena->high[r]);
      if (arena->low[r] < run->item.first) arena->low[r] = run->item.first;
      if (arena->high[r] > run->item.end) arena->high[r] = run->item.end;
      /* an empty row must not widen the range, but must be masked */
      if (arena->low[r] < arena->high[r]) {
        if (arena->low[r] < range.first) range.first = arena->low[r];
        if (arena->high[r] > range.end) range.end = arena->high[r];
      }
      if (arena->low[r] > range.all_first) range.all_first = arena->low[r];
      if (arena->high[r] < range.all_end) range.all_end = arena->high[r];
    } else
      arena->low[r] = arena->low[r - 1], arena->high[r] = arena->high[r - 1];
  }
  kernels->transpose(arena->rows, ld, arena->q + base * plan->units_d, kernels->panel, kernels->panel, plan->units_d);
  memset(arena->o + base * plan->columns, 0, (size_t)kernels->panel * (size_t)plan->columns * sizeof(float));
  for (int n = 0; n < kernels->panel; n++) arena->m[base + n] = -__builtin_inff(), arena->l[base + n] = 0;
  return range;
}

static void ask_for_row(const void *row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row + i, 0, 2);
}

/* Asks for share `part` of `parts` of the rows of K and V that follow the block at hand: rows of one head lie a page apart in the usual
 * layouts, which no hardware prefetcher foresees. */
static void ask_for_next(const glint_cpu_run *run, int64_t first, int64_t end, int64_t part, int64_t parts) {
  const glint_work *w = run->w;
  const glint_sequence *s = &run->share->s;
  int64_t element = (int64_t)glint_dtype_size(w->k.dtype), count = end - first;
  for (int64_t j = first + count * part / parts; j < first + count * (part + 1) / parts; j++) {
    ask_for_row((const char *)w->k.data + glint_key_offset(w, &w->k, run->item.b, s, j, run->item.head) * element, w->head_dim * element);
    ask_for_row((const char *)w->v.data + glint_key_offset(w, &w->v, run->item.b, s, j, run->item.head) * element, w->head_dim_v * element);
  }
}

static void load_block(const glint_cpu_run *run, key_block *block) {
  const glint_work *w = run->w;
  const glint_cpu_plan *plan = run->plan;
  glint_cpu_arena *arena = run->arena;
  int count = (int)(block->end - block->first), padded = (int)glint_cpu_round_up(count, plan->kernels->step_k);
  int scaled =
      glint_cpu_key_rows(run, block->first, block->end, arena->key_rows, arena->value_rows, arena->key_scales, arena->value_scales);
  plan->kernels->pack_k(arena->key_rows, scaled ? arena->key_scales : NULL, count, padded, w->k.dtype, (int)w->head_dim, plan->units_d,
                        arena->k);
  block->finite = plan->kernels->pack_v(arena->value_rows, scaled ? arena->value_scales : NULL, count, padded, w->v.dtype,
                                        (int)w->head_dim_v, plan->columns, arena->v, arena->pack);
}

/* The panel's slice of the additive bias, keys [first, first + keys), zero beyond the sequence. */
static void load_bias(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
  const glint_work *w = run->w;
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int64_t ld = kernels->block_k + 16, valid = run->item.end - first < keys ? run->item.end - first : keys;
  memset(run->arena->bias, 0, (size_t)(kernels->panel * ld) * sizeof(float));
  for (int64_t n = 0; n < kernels->panel && base + n < run->item.rows; n++) {
    int64_t at = run->item.b * w->bias.stride[0] + glint_cpu_head(run, base + n) * w->bias.stride[1] +
                 glint_cpu_position(run, base + n) * w->bias.stride[2] + first;
    const char *src = (const char *)w->bias.data + (size_t)at * glint_dtype_size(w->bias.dtype);
    kernels->to_float(run->arena->bias + n * ld, src, w->bias.dtype, valid, 1.0f);
  }
}

/* Softcap, bias and ALiBi; scores are in natural units afterwards. */
void glint_cpu_change_scores(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
  const glint_work *w = run->w;
  const glint_cpu_kernels *kernels = run->plan->kernels;
  float slope[GLINT_CPU_PANEL_MAX] = {0}, position[GLINT_CPU_PANEL_MAX] = {0};
  glint_cpu_scores change = {.cap = w->softcap};
  if (w->bias.data) {
    load_bias(run, base, first, keys);
    change.bias = run->arena->bias, change.bias_ld = kernels->block_k + 16;
  }
  if (w->alibi_slopes.data) {
    const glint_sequence *s = &run->share->s;
    for (int64_t n = 0; n < kernels->panel && base + n < run->item.rows; n++) {
      int64_t at = run->item.b * w->alibi_slopes.stride[0] + glint_cpu_head(run, base + n) * w->alibi_slopes.stride[1];
      slope[n] = ((const float *)w->alibi_slopes.data)[at];
      position[n] = (float)(glint_cpu_position(run, base + n) + s->len_k - s->used_q - first);
    }
    change.slope = slope, change.position = position;
  }
  kernels->change(run->arena->s, 0, keys, &change, run->units.s_factor);
}

static int64_t clamp(int64_t n, int64_t low, int64_t high) { return n < low ? low : n > high ? high : n; }

/* Limits of the panel's rows relative to the block, held as floats (exact: a block is short). */
typedef struct panel_limits {
  float low[GLINT_CPU_PANEL_MAX], high[GLINT_CPU_PANEL_MAX];
} panel_limits;

static void find_limits(const glint_cpu_run *run, int64_t base, int64_t block_first, panel_limits *limits) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  for (int n = 0; n < kernels->panel; n++) {
    limits->low[n] = (float)clamp(run->arena->low[base + n] - block_first, 0, kernels->block_k);
    limits->high[n] = (float)clamp(run->arena->high[base + n] - block_first, 0, kernels->block_k);
  }
}

glint_cpu_dropout glint_cpu_dropout_of(const glint_cpu_run *run, int64_t base) {
  const glint_work *w = run->w;
  glint_cpu_dropout d = {.offset = (uint32_t)w->dropout_offset, .threshold = (uint32_t)w->drop_threshold, .factor = w->keep_scale};
  d.key[0] = (uint32_t)w->dropout_seed, d.key[1] = (uint32_t)(w->dropout_seed >> 32) ^ (uint32_t)(w->dropout_offset >> 32);
  for (int64_t n = 0; n < run->plan->kernels->panel && base + n < run->item.rows; n++) {
    d.row[n] = (uint32_t)glint_cpu_position(run, base + n);
    d.batch_head[n] = (uint32_t)(run->item.b * w->heads_q + glint_cpu_head(run, base + n));
  }
  return d;
}

/* Clears the probabilities that dropout takes; the factor 1 / (1 - p) is applied with the normalisation. */
static void drop(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  const glint_cpu_dropout d = glint_cpu_dropout_of(run, base);
  for (int64_t j = first, end; j < first + keys; j = end) {
    end = j / 8 * 8 + 8 < first + keys ? j / 8 * 8 + 8 : first + keys;
    float *p = run->arena->s + (kernels->bf16 ? (j - first) / 2 : j - first) * kernels->panel;
    kernels->drop(p, (uint32_t)(j / 8), (int)(j % 8), (int)(j % 8 + end - j), &d);
  }
}

static float probability(const glint_cpu_run *run, int64_t j, int64_t n) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  if (!kernels->bf16) return run->arena->s[j * kernels->panel + n];
  uint16_t half;
  memcpy(&half, (const char *)(run->arena->s + j / 2 * kernels->panel + n) + j % 2 * 2, sizeof half);
  return glint_float_from_bf16(half);
}

/* What of one block one panel visits: keys [first, first + keys), multiples of step_k from the block's start. */
typedef struct panel_visit {
  int64_t base; /* the panel's first row */
  int first, keys, masked;
  panel_limits limits;
} panel_visit;

/* Zeroes the NaN and infinities of packed V. */
static void clean_values(const glint_cpu_run *run, const panel_visit *visit) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int columns = run->plan->columns;
  glint_dtype dtype = kernels->bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32;
  for (int j = visit->first; j < visit->first + visit->keys; j++)
    for (int c = 0; c < columns; c++) {
      void *element = kernels->element(run->arena->v, j, c, columns);
      if (!isfinite(glint_load(element, dtype, 0))) glint_store(element, dtype, 0, 0);
    }
}

/* Adds P times the NaN and infinities of V for the rows that see them. */
static void add_unclean_values(const glint_cpu_run *run, const panel_visit *visit) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int columns = run->plan->columns, panel = kernels->panel;
  float *o = run->arena->o + visit->base * columns;
  for (int j = visit->first; j < visit->first + visit->keys; j++)
    for (int c = 0; c < columns; c++) {
      float value = (float)glint_load(kernels->element(run->arena->v, j, c, columns), kernels->bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32, 0);
      if (isfinite(value)) continue;
      for (int n = 0; n < panel; n++)
        if (visit->limits.low[n] <= (float)j && (float)j < visit->limits.high[n])
          o[c * panel + n] += probability(run, j - visit->first, n) * value;
    }
}

/* The step in separate parts, with what goes between them. */
static void attend_changed(const glint_cpu_run *run, const glint_cpu_step *step, int64_t base, int64_t first) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  float alpha[GLINT_CPU_PANEL_MAX];
  kernels->scores(step->q, step->k + (ptrdiff_t)step->first * step->units_d, step->units_d, step->keys, step->s);
  if (run->units.changed) glint_cpu_change_scores(run, base, first, step->keys);
  if (step->low) kernels->mask(step->s, step->first, step->keys, step->low, step->high);
  int rescale = kernels->softmax(step->s, step->keys, step->unit, step->m, step->l, alpha);
  if (run->w->drop_threshold) drop(run, base, first, step->keys);
  kernels->accumulate(step->s, step->v, step->first, step->keys, step->columns, step->o, rescale ? alpha : NULL);
}

/* One panel against one block. */
static void visit_panel(const glint_cpu_run *run, int64_t panel, const panel_range *range, key_block *block) {
  const glint_cpu_plan *plan = run->plan;
  const glint_cpu_kernels *kernels = plan->kernels;
  glint_cpu_arena *arena = run->arena;
  panel_visit visit = {.base = panel * kernels->panel};
  int64_t first = block->first, end = block->end < range->end ? block->end : range->end;
  if (range->first > first) first = block->first + round_down(range->first - block->first, kernels->step_k);
  if (first >= end) return;
  visit.first = (int)(first - block->first), visit.keys = (int)glint_cpu_round_up(end - first, kernels->step_k);
  visit.masked = range->all_first > first || range->all_end < first + visit.keys;
  glint_cpu_step step = {.q = arena->q + visit.base * plan->units_d, .k = arena->k, .v = arena->v, .units_d = plan->units_d};
  step.columns = plan->columns, step.block_k = kernels->block_k, step.first = visit.first, step.keys = visit.keys;
  step.unit = run->units.log2_unit, step.s = arena->s;
  step.m = arena->m + visit.base, step.l = arena->l + visit.base, step.o = arena->o + visit.base * plan->columns;
  if (visit.masked) {
    find_limits(run, visit.base, block->first, &visit.limits);
    step.low = visit.limits.low, step.high = visit.limits.high;
    step.all_low = (int)clamp(range->all_first - block->first, 0, kernels->block_k);
    step.all_high = (int)clamp(range->all_end - block->first, 0, kernels->block_k);
  }
  /* a masked key's probability is 0, and 0 times NaN is NaN: such values are kept from the kernel and added afterwards for the rows that
   * see them, so that the others get the bits that any finite value would give. Slow, and rare. */
  int careful = visit.masked && !block->finite;
  if (careful) clean_values(run, &visit);
  if (run->units.changed || run->w->drop_threshold)
    attend_changed(run, &step, visit.base, first);
  else
    kernels->attend(&step);
  if (careful) {
    load_block(run, block);
    add_unclean_values(run, &visit);
  }
}

static void finish_panel(const glint_cpu_run *run, int64_t panel) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int64_t base = panel * kernels->panel, ld = glint_cpu_row_floats(run->plan);
  kernels->transpose(run->arena->o + base * run->plan->columns, kernels->panel, run->arena->rows, ld, run->plan->columns, kernels->panel);
  for (int64_t n = 0; n < kernels->panel && base + n < run->item.rows; n++)
    glint_cpu_finish_row(run, base + n, run->arena->rows + n * ld, run->arena->m[base + n], run->arena->l[base + n]);
}

void glint_cpu_panel_item(const glint_cpu_run *run) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int64_t panels = (run->item.rows + kernels->panel - 1) / kernels->panel;
  panel_range range[GLINT_CPU_PANELS_MAX], all = {INT64_MAX, 0, 0, 0};
  for (int64_t n = 0; n < panels; n++) {
    range[n] = load_panel(run, n);
    if (range[n].first < all.first) all.first = range[n].first;
    if (range[n].end > all.end) all.end = range[n].end;
  }
  /* blocks lie at fixed places, whatever the panels of this item see: a row's sums do not depend on its neighbours */
  int64_t start = all.first < all.end ? run->item.first + round_down(all.first - run->item.first, kernels->block_k) : all.end;
  for (int64_t first = start; first < all.end; first += kernels->block_k) {
    key_block block = {first, first + kernels->block_k < all.end ? first + kernels->block_k : all.end, 1};
    if (all.first > first) block.first = first + round_down(all.first - first, kernels->step_k);
    load_block(run, &block);
    int64_t next_end = block.end + kernels->block_k < all.end ? block.end + kernels->block_k : all.end;
    for (int64_t n = 0; n < panels; n++) {
      ask_for_next(run, block.end, next_end, n, panels);
      visit_panel(run, n, &range[n], &block);
    }
  }
  for (int64_t n = 0; n < panels; n++) finish_panel(run, n);
}
