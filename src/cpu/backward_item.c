/* One item of the backward pass (Dao 2023, FlashAttention-2, section 3.1.2; here by groups of query panels, so that dQ needs no second pass).
 * For a panel of rows and a block of keys, everything turned round as in the forward pass ([key][row]):
 *   S = K Q;  P = e^(scale S - lse);  dP = V dO;  dS = P (dP - delta);  dV += P dO;  dK += dS Q;  dQ += K dS
 * with delta = sum of dO O - d_lse, dropout's factors on P and dP, and softcap's derivative on dS. scale is applied when dQ and dK are
 * written. */
#include "backward.h"

#include <math.h>
#include <string.h>

/* Where some row of a panel sees something, and where all rows see everything. */
typedef struct row_range {
  int64_t first, end, all_first, all_end;
} row_range;

/* A float lse beyond this is too coarse to hold the logarithm of the sum beside the maximum (a bias of the most negative float). */
#define COARSE_LSE 65536.0f

static int64_t limit(int64_t n, int64_t low, int64_t high) { return n < low ? low : n > high ? high : n; }

static int64_t offset_of_lse(const glint_view *view, const glint_sequence *s, int64_t head, int64_t i) {
  return s->batch_q * view->stride[0] + head * view->stride[1] + (s->row_q + i) * view->stride[2];
}

static int64_t offset_of_row(const glint_view *view, const glint_sequence *s, int64_t head, int64_t i) {
  return s->batch_q * view->stride[0] + (s->row_q + i) * view->stride[1] + head * view->stride[2];
}

/* dO of a row as words of the kernels; its delta and lse; its share of dsinks. row: index in the group of panels. */
static void load_gradient_row(const glint_cpu_backward_run *b, int64_t row, float *words) {
  const glint_work *w = b->run.w;
  const glint_sequence *s = &b->run.share->s;
  const glint_cpu_kernels *kernels = b->run.plan->kernels;
  int64_t i = glint_cpu_position(&b->run, row), head = glint_cpu_head(&b->run, row), n = w->head_dim_v;
  float o[512], x[512], *d_o = kernels->bf16 ? x : words;
  size_t element = glint_dtype_size(w->o.dtype);
  const char *from_o = (const char *)w->o.data + (size_t)offset_of_row(&w->o, s, head, i) * element;
  const char *from_d_o = (const char *)w->d_o.data + (size_t)offset_of_row(&w->d_o, s, head, i) * element;
  glint_cpu_ask_ahead(from_o, w->o.stride[1] * (int64_t)element, n * (int64_t)element, i, s->used_q);
  glint_cpu_ask_ahead(from_d_o, w->d_o.stride[1] * (int64_t)element, n * (int64_t)element, i, s->used_q);
  kernels->to_float(o, from_o, w->o.dtype, n, 1.0f);
  kernels->to_float(d_o, from_d_o, w->d_o.dtype, n, 1.0f);
  if (kernels->bf16) memcpy(words, from_d_o, (size_t)n * 2); /* such kernels run only where dO has their type */
  double delta = (double)kernels->backward->dot(o, d_o, n);
  double lse = (double)((const float *)w->lse.data)[offset_of_lse(&w->lse, s, head, i)];
  if (w->d_lse.data) delta -= (double)((const float *)w->d_lse.data)[offset_of_lse(&w->d_lse, s, head, i)];
  b->arena->delta[row] = (float)delta, b->arena->rest[row] = 0;
  /* a row that sees nothing: its scores are all -inf, and must not meet another -inf */
  b->arena->minus_lse[row] = lse == -(double)INFINITY ? 0 : -(float)lse;
  if (w->sinks.data && fabs(lse) > (double)COARSE_LSE)
    b->arena->rest[row] = expf((float)((double)((const float *)w->sinks.data)[head * w->sinks.stride[0]] - lse));
  if (!b->sinks) return;
  double sink = (double)((const float *)w->sinks.data)[head * w->sinks.stride[0]];
  if (lse == -(double)INFINITY) return;
  b->sinks[(head - b->run.item.head * b->run.plan->group) * b->plan->splits] -= exp(sink - lse) * delta;
}

static void find_range(const glint_cpu_backward_run *b, int64_t r, row_range *range) {
  int64_t low, high;
  glint_visible_keys(b->run.w, &b->run.share->s, glint_cpu_position(&b->run, r), &low, &high);
  b->arena->base.low[r] = low, b->arena->base.high[r] = high;
  if (low < high) {
    if (low < range->first) range->first = low;
    if (high > range->end) range->end = high;
  }
  if (low > range->all_first) range->all_first = low;
  if (high < range->all_end) range->all_end = high;
}

/* Packs one panel of Q, or of dO, in both orders. Q keeps its exact values: here an error of the scores is not shared by the whole row,
 * since lse comes from elsewhere. Unused rows: zeros, and lse = inf, which makes their P zero. */
static row_range load_rows(const glint_cpu_backward_run *b, int64_t base) {
  const glint_cpu_plan *plan = b->run.plan;
  const glint_cpu_kernels *kernels = plan->kernels;
  glint_cpu_backward_arena *arena = b->arena;
  int64_t panel = kernels->panel, ld = glint_cpu_row_floats(plan), used = b->run.item.rows - base < panel ? b->run.item.rows - base : panel;
  float *rows = arena->base.rows;
  row_range range = {INT64_MAX, 0, 0, INT64_MAX};
  memset(rows, 0, (size_t)(panel * ld) * sizeof(float));
  for (int64_t n = 0; n < used; n++) {
    glint_cpu_query_words(&b->run, base + n, 1.0f, rows + n * ld);
    find_range(b, base + n, &range);
  }
  kernels->transpose(rows, ld, arena->base.q + base * plan->units_d, panel, (int)panel, plan->units_d);
  kernels->backward->pack_rows(rows, ld, b->plan->columns_d, arena->q_packed + base * b->plan->columns_d);
  memset(rows, 0, (size_t)(panel * ld) * sizeof(float));
  for (int64_t n = 0; n < used; n++) load_gradient_row(b, base + n, rows + n * ld);
  kernels->transpose(rows, ld, arena->d_o + base * b->plan->units_v, panel, (int)panel, b->plan->units_v);
  kernels->backward->pack_rows(rows, ld, plan->columns, arena->do_packed + base * plan->columns);
  for (int64_t r = base + used; r < base + panel; r++) {
    arena->minus_lse[r] = -INFINITY, arena->rest[r] = arena->delta[r] = 0;
    arena->base.low[r] = arena->base.low[r - 1], arena->base.high[r] = arena->base.high[r - 1];
  }
  memset(arena->base.o + base * b->plan->columns_d, 0, (size_t)(panel * b->plan->columns_d) * sizeof(float));
  return range;
}

/* V is packed as K is: here both are left factors. */
static void load_keys(const glint_cpu_backward_run *b, int64_t first, int64_t end) {
  const glint_work *w = b->run.w;
  const glint_cpu_kernels *kernels = b->run.plan->kernels;
  glint_cpu_arena *arena = &b->arena->base;
  int count = (int)(end - first), padded = (int)glint_cpu_round_up(count, kernels->step_k);
  int scaled = glint_cpu_key_rows(&b->run, first, end, arena->key_rows, arena->value_rows, arena->key_scales, arena->value_scales);
  kernels->pack_k(arena->key_rows, scaled ? arena->key_scales : NULL, count, padded, w->k.dtype, (int)w->head_dim, b->run.plan->units_d,
                  arena->k);
  kernels->pack_k(arena->value_rows, scaled ? arena->value_scales : NULL, count, padded, w->v.dtype, (int)w->head_dim_v, b->plan->units_v,
                  arena->v);
  if (b->arena->k_columns != arena->k)
    kernels->pack_v(arena->key_rows, NULL, count, padded, w->k.dtype, (int)w->head_dim, b->plan->columns_d, b->arena->k_columns,
                    arena->pack);
}

static void mask_rows(const glint_cpu_backward_run *b, int64_t base, int64_t first, int keys) {
  const glint_cpu_kernels *kernels = b->run.plan->kernels;
  float low[GLINT_CPU_PANEL_MAX], high[GLINT_CPU_PANEL_MAX];
  for (int n = 0; n < kernels->panel; n++) {
    low[n] = (float)limit(b->arena->base.low[base + n] - first, 0, keys);
    high[n] = (float)limit(b->arena->base.high[base + n] - first, 0, keys);
  }
  kernels->mask(b->arena->base.s, 0, keys, low, high);
}

/* Dropout's factors of a tile. */
static void find_kept(const glint_cpu_backward_run *b, int64_t base, int64_t first, int keys) {
  const glint_cpu_kernels *kernels = b->run.plan->kernels;
  const glint_cpu_dropout d = glint_cpu_dropout_of(&b->run, base);
  for (int64_t j = first, end; j < first + keys; j = end) {
    end = j / 8 * 8 + 8 < first + keys ? j / 8 * 8 + 8 : first + keys;
    kernels->keep(b->arena->keep + (j - first) * kernels->panel, (uint32_t)(j / 8), (int)(j % 8), (int)(j % 8 + end - j), &d);
  }
}

/* dS joins dbias: rows one by one in the order of the panel, so that the sum has one order. */
static void add_bias(const glint_cpu_backward_run *b, int64_t base, int64_t first, int keys) {
  const glint_work *w = b->run.w;
  const int64_t *shape = w->dbias.shape;
  int64_t panel = b->run.plan->kernels->panel, end = b->run.share->s.len_k;
  for (int64_t n = 0; n < panel && base + n < b->run.item.rows; n++) {
    int64_t b0 = shape[0] == 1 ? 0 : b->run.item.b, h0 = shape[1] == 1 ? 0 : glint_cpu_head(&b->run, base + n);
    int64_t i0 = shape[2] == 1 ? 0 : glint_cpu_position(&b->run, base + n);
    float *row = b->bias + ((b0 * shape[1] + h0) * shape[2] + i0) * shape[3] + first;
    for (int64_t j = 0; j < keys && first + j < end; j++) row[j] += b->arena->dp[j * panel + n];
  }
}

/* The keys of a block that a panel visits: first is rounded down and keys up to step_k. Returns 0 when there are none. */
static int trim(const glint_cpu_kernels *kernels, const row_range *range, int64_t block, int64_t block_end, int64_t *first, int *keys) {
  int64_t end = block_end < range->end ? block_end : range->end;
  *first = block;
  if (range->first > block) *first = block + (range->first - block) / kernels->step_k * kernels->step_k;
  *keys = (int)glint_cpu_round_up(end - *first, kernels->step_k);
  return *first < end;
}

/* Scores of a panel against keys [first, first + keys), changed and masked, into arena s; softcap's derivative into slope. */
static void make_scores(const glint_cpu_backward_run *b, int64_t base, const row_range *range, int64_t block, int64_t first, int keys) {
  const glint_work *w = b->run.w;
  const glint_cpu_plan *plan = b->run.plan;
  glint_cpu_backward_arena *arena = b->arena;
  float *s = arena->base.s;
  plan->kernels->scores(arena->base.q + base * plan->units_d, arena->base.k + (first - block) * plan->units_d, plan->units_d, keys, s);
  if (w->softcap > 0) plan->kernels->backward->cap_slope(s, keys, b->run.units.s_factor, arena->slope);
  if (b->run.units.changed) glint_cpu_change_scores(&b->run, base, first, keys);
  if (range->all_first > first || range->all_end < first + keys) mask_rows(b, base, first, keys);
}

/* For rows with a coarse lse: rest = -log(sum of e^(s - lse)), by a pass of its own over the keys. Rare. */
static void find_rest(const glint_cpu_backward_run *b, int64_t base, const row_range *range, int64_t block, int64_t block_end) {
  int64_t panel = b->run.plan->kernels->panel, first;
  float scale = b->run.units.changed ? 1.0f : b->run.w->scale;
  int keys;
  if (!trim(b->run.plan->kernels, range, block, block_end, &first, &keys)) return;
  make_scores(b, base, range, block, first, keys);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t n = 0; n < panel; n++)
      if (fabsf(b->arena->minus_lse[base + n]) > COARSE_LSE)
        b->arena->rest[base + n] += expf(fmaf(b->arena->base.s[j * panel + n], scale, b->arena->minus_lse[base + n]));
}

/* One panel against one block of keys [block, block_end). */
static void visit_tile(const glint_cpu_backward_run *b, int64_t base, const row_range *range, int64_t block, int64_t block_end) {
  const glint_work *w = b->run.w;
  const glint_cpu_plan *plan = b->run.plan;
  const glint_cpu_kernels *kernels = plan->kernels;
  const glint_cpu_backward *backward = kernels->backward;
  glint_cpu_backward_arena *arena = b->arena;
  int columns_d = b->plan->columns_d, columns = plan->columns, units_v = b->plan->units_v;
  int64_t first;
  int keys;
  if (!trim(kernels, range, block, block_end, &first, &keys)) return;
  int offset = (int)(first - block);
  float *s = arena->base.s;
  make_scores(b, base, range, block, first, keys);
  kernels->scores(arena->d_o + base * units_v, arena->base.v + (ptrdiff_t)offset * units_v, units_v, keys, arena->dp);
  if (w->drop_threshold) find_kept(b, base, first, keys);
  backward->gradients(s, arena->dp, arena->ds_weights, keys, b->run.units.changed ? 1.0f : w->scale, arena->minus_lse + base,
                      arena->rest + base, arena->delta + base, w->drop_threshold ? arena->keep : NULL);
  if (b->bias) add_bias(b, base, first, keys);
  for (int64_t n = 0; w->softcap > 0 && n < (int64_t)keys * kernels->panel; n++) arena->dp[n] *= arena->slope[n];
  if (w->dv.data) backward->add_product(s, keys, arena->do_packed + base * columns, columns, b->dv + first * columns);
  if (w->dk.data) backward->add_product(arena->ds_weights, keys, arena->q_packed + base * columns_d, columns_d, b->dk + first * columns_d);
  if (w->dq.data) kernels->accumulate(arena->dp, arena->k_columns, offset, keys, columns_d, arena->base.o + base * columns_d, NULL);
}

void glint_cpu_write_gradient(const glint_work *w, const glint_cpu_kernels *kernels, const glint_view *view, int64_t at, const float *src,
                              int64_t n, float scale, int64_t rows_behind) {
  float x[512];
  int64_t element = (int64_t)glint_dtype_size(view->dtype);
  char *dst = (char *)view->data + at * element;
  for (int64_t c = 0; rows_behind >= GLINT_CPU_ROWS_AHEAD && c < n * element; c += 64)
    __builtin_prefetch(dst + GLINT_CPU_ROWS_AHEAD * view->stride[1] * element + c, 1);
  for (int64_t c = 0; c < n; c++) x[c] = src[c] * scale;
  for (int64_t c = 0; w->accumulate && c < n; c++) x[c] += (float)glint_load(dst, view->dtype, c);
  if (view->dtype <= GLINT_FLOAT16)
    kernels->from_float(dst, view->dtype, x, n, 1.0f);
  else
    for (int64_t c = 0; c < n; c++) glint_store(dst, view->dtype, c, (double)x[c]);
}

static void write_rows(const glint_cpu_backward_run *b, int64_t base) {
  const glint_work *w = b->run.w;
  const glint_cpu_plan *plan = b->run.plan;
  int64_t panel = plan->kernels->panel, ld = glint_cpu_row_floats(plan);
  if (!w->dq.data) return;
  plan->kernels->transpose(b->arena->base.o + base * b->plan->columns_d, panel, b->arena->base.rows, ld, b->plan->columns_d, (int)panel);
  for (int64_t n = 0; n < panel && base + n < b->run.item.rows; n++) {
    int64_t i = glint_cpu_position(&b->run, base + n), at = offset_of_row(&w->dq, &b->run.share->s, glint_cpu_head(&b->run, base + n), i);
    glint_cpu_write_gradient(w, plan->kernels, &w->dq, at, b->arena->base.rows + n * ld, w->head_dim, w->scale,
                             b->run.share->s.used_q - 1 - i);
  }
}

/* Rows of one group of panels: run.item is that group. */
static void group_of_panels(const glint_cpu_backward_run *b) {
  int64_t panel = b->run.plan->kernels->panel, block_k = b->run.plan->kernels->block_k;
  int64_t panels = (b->run.item.rows + panel - 1) / panel, first = INT64_MAX, end = 0;
  row_range range[GLINT_CPU_PANELS_MAX];
  for (int64_t n = 0; n < panels; n++) {
    range[n] = load_rows(b, n * panel);
    if (range[n].first < first) first = range[n].first;
    if (range[n].end > end) end = range[n].end;
  }
  int64_t start = first < end ? first / block_k * block_k : end;
  int coarse = 0;
  for (int64_t r = 0; r < b->run.item.rows; r++) {
    float lse = fabsf(b->arena->minus_lse[r]);
    coarse |= lse > COARSE_LSE && lse < INFINITY;
  }
  for (int64_t block = start; coarse && block < end; block += block_k) {
    int64_t block_end = block + block_k < b->run.item.end ? block + block_k : b->run.item.end;
    load_keys(b, block, block_end);
    for (int64_t n = 0; n < panels; n++) find_rest(b, n * panel, &range[n], block, block_end);
  }
  for (int64_t r = 0; r < b->run.item.rows; r++)
    if (b->arena->rest[r] > 0) b->arena->rest[r] = -logf(b->arena->rest[r]);
  for (int64_t block = start; block < end; block += block_k) {
    int64_t block_end = block + block_k < b->run.item.end ? block + block_k : b->run.item.end;
    load_keys(b, block, block_end);
    for (int64_t n = 0; n < panels; n++) visit_tile(b, n * panel, &range[n], block, block_end);
  }
  for (int64_t n = 0; n < panels; n++) write_rows(b, n * panel);
}

void glint_cpu_backward_item(const glint_cpu_backward_run *b) {
  int64_t rows = b->run.plan->max_block_rows;
  for (int64_t row = 0; row < b->run.item.rows; row += rows) {
    glint_cpu_backward_run group = *b;
    group.run.item.row += row;
    group.run.item.rows = b->run.item.rows - row < rows ? b->run.item.rows - row : rows;
    group_of_panels(&group);
  }
}
