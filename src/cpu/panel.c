/* An item by panels of query rows: keys block by block; K and V packed once a block, then used by every panel. */
#include "forward.h"

#include "../api/convert.h"
#include "../api/philox.h"

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

/* Row r of Q as words. */
static void load_query(const glint_cpu_run *run, int64_t r, float *to) {
  float x[512]; /* the largest head_dim */
  if (!run->plan->kernels->bf16) {
    glint_cpu_query_row(run, r, run->units.q_factor, to);
    return;
  }
  glint_cpu_query_row(run, r, run->units.q_factor, x);
  run->plan->kernels->from_float(to, GLINT_BFLOAT16, x, run->w->head_dim, 1.0f);
}

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
      load_query(run, r, arena->rows + n * ld);
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
static void change_scores(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
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

/* -inf where a row does not see a key; limits relative to first, held as floats (exact: a block is short). */
static void mask_scores(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
  float low[GLINT_CPU_PANEL_MAX], high[GLINT_CPU_PANEL_MAX];
  for (int n = 0; n < run->plan->kernels->panel; n++) {
    low[n] = (float)clamp(run->arena->low[base + n] - first, 0, keys);
    high[n] = (float)clamp(run->arena->high[base + n] - first, 0, keys);
  }
  run->plan->kernels->mask(run->arena->s, 0, keys, low, high);
}

/* Clears the probabilities that dropout takes; the factor 1 / (1 - p) is applied with the normalisation. */
static void drop(const glint_cpu_run *run, int64_t base, int64_t first, int keys) {
  const glint_work *w = run->w;
  const glint_cpu_kernels *kernels = run->plan->kernels;
  for (int64_t n = 0; n < kernels->panel && base + n < run->item.rows; n++) {
    uint32_t batch_head = (uint32_t)(run->item.b * w->heads_q + glint_cpu_head(run, base + n));
    uint32_t i = (uint32_t)glint_cpu_position(run, base + n);
    for (int64_t block = first / 8; block * 8 < first + keys; block++) {
      uint16_t u[8];
      glint_dropout_block(w->dropout_seed, w->dropout_offset, batch_head, i, (uint32_t)block, u);
      for (int64_t t = 0; t < 8; t++) {
        int64_t j = block * 8 + t - first;
        if (j < 0 || j >= keys || u[t] >= w->drop_threshold) continue;
        if (kernels->bf16)
          memset((char *)(run->arena->s + j / 2 * kernels->panel + n) + j % 2 * 2, 0, 2);
        else
          run->arena->s[j * kernels->panel + n] = 0;
      }
    }
  }
}

static float probability(const glint_cpu_run *run, int64_t j, int64_t n) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  if (!kernels->bf16) return run->arena->s[j * kernels->panel + n];
  uint16_t half;
  memcpy(&half, (const char *)(run->arena->s + j / 2 * kernels->panel + n) + j % 2 * 2, sizeof half);
  return glint_float_from_bf16(half);
}

/* O = alpha O + P V when V holds NaN or infinity and a mask is in play: the product with a masked key's zero would be NaN. So those
 * elements are added for the rows that see them and zeroed for the kernel: other rows get the bits that any finite value would give.
 * The block is packed again afterwards. Slow, and rare. */
static void accumulate_careful(const glint_cpu_run *run, int64_t base, key_block *block, int64_t first, int keys, const float *alpha) {
  const glint_cpu_kernels *kernels = run->plan->kernels;
  int columns = run->plan->columns, panel = kernels->panel, offset = (int)(first - block->first);
  float *o = run->arena->o + base * columns;
  glint_dtype dtype = kernels->bf16 ? GLINT_BFLOAT16 : GLINT_FLOAT32;
  for (int c = 0; alpha && c < columns; c++)
    for (int n = 0; n < panel; n++) o[c * panel + n] *= alpha[n];
  for (int j = 0; j < keys; j++)
    for (int c = 0; c < columns; c++) {
      void *element = kernels->element(run->arena->v, offset + j, c, columns);
      float value = (float)glint_load(element, dtype, 0);
      if (isfinite(value)) continue;
      for (int n = 0; n < panel; n++)
        if (run->arena->low[base + n] <= first + j && first + j < run->arena->high[base + n])
          o[c * panel + n] += probability(run, j, n) * value;
      glint_store(element, dtype, 0, 0);
    }
  kernels->accumulate(run->arena->s, run->arena->v, offset, keys, columns, o, NULL);
  load_block(run, block);
}

/* One panel against one block. */
static void visit(const glint_cpu_run *run, int64_t panel, const panel_range *range, key_block *block) {
  const glint_work *w = run->w;
  const glint_cpu_plan *plan = run->plan;
  const glint_cpu_kernels *kernels = plan->kernels;
  glint_cpu_arena *arena = run->arena;
  int64_t base = panel * kernels->panel;
  int64_t first = block->first, end = block->end < range->end ? block->end : range->end;
  if (range->first > first) first = block->first + round_down(range->first - block->first, kernels->step_k);
  if (first >= end) return;
  int keys = (int)glint_cpu_round_up(end - first, kernels->step_k), offset = (int)(first - block->first);
  int masked = range->all_first > first || range->all_end < first + keys;
  float alpha[GLINT_CPU_PANEL_MAX];
  kernels->scores(arena->q + base * plan->units_d, arena->k + (ptrdiff_t)offset * plan->units_d, plan->units_d, keys, arena->s);
  if (run->units.changed) change_scores(run, base, first, keys);
  if (masked) mask_scores(run, base, first, keys);
  int rescale = kernels->softmax(arena->s, keys, run->units.log2_unit, arena->m + base, arena->l + base, alpha);
  if (w->drop_threshold) drop(run, base, first, keys);
  if (masked && !block->finite)
    accumulate_careful(run, base, block, first, keys, rescale ? alpha : NULL);
  else
    kernels->accumulate(arena->s, arena->v, offset, keys, plan->columns, arena->o + base * plan->columns, rescale ? alpha : NULL);
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
    for (int64_t n = 0; n < panels; n++) visit(run, n, &range[n], &block);
  }
  for (int64_t n = 0; n < panels; n++) finish_panel(run, n);
}
