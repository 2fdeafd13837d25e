/* The backward pass: items over threads, then the sums over items in a fixed order. Results do not depend on the number of threads. */
#include "backward.h"

#include <omp.h>
#include <string.h>

/* The pieces of the workspace. */
typedef struct pieces {
  int64_t *keys_at;
  float *sums, *bias;
  double *sinks;
  char *arenas;
} pieces;

static int64_t sum_floats(const glint_cpu_backward_plan *plan) { return plan->columns_d + plan->shape.columns; }

static void clear(const glint_work *w, const glint_cpu_backward_plan *plan, const pieces *at) {
  const int64_t *bias = w->dbias.shape;
  if (w->dsinks.data) memset(at->sinks, 0, (size_t)(w->batch * w->heads_q * plan->splits) * sizeof(double));
  if (w->dbias.data) memset(at->bias, 0, (size_t)(bias[0] * bias[1] * bias[2] * bias[3]) * sizeof(float));
  at->keys_at[0] = 0;
  for (int64_t b = 0; b < w->batch; b++) {
    int64_t rows = glint_cpu_round_up(glint_sequence_of(w, b).len_k, plan->shape.kernels->block_k);
    at->keys_at[b + 1] = at->keys_at[b] + rows * w->heads_kv * plan->splits;
  }
}

/* Row j of a sequence's dK and dV; keys behind the used ones get 0. */
static void write_key(const glint_work *w, const glint_cpu_backward_plan *plan, const glint_sequence *s, int64_t b, int64_t head, int64_t j,
                      const float *dk, const float *dv) {
  const glint_cpu_kernels *kernels = plan->shape.kernels;
  if (w->dk.data)
    glint_cpu_write_gradient(w, kernels, &w->dk, glint_key_offset(w, &w->dk, b, s, j, head), dk, w->head_dim, w->scale, s->len_k - 1 - j);
  if (w->dv.data)
    glint_cpu_write_gradient(w, kernels, &w->dv, glint_key_offset(w, &w->dv, b, s, j, head), dv, w->head_dim_v, 1.0f, s->len_k - 1 - j);
}

/* Rows of k that the sequence has, used or not. */
static int64_t capacity_of(const glint_work *w, int64_t b) {
  const int32_t *cu = w->cu_seqlens_k.data;
  return cu ? (int64_t)cu[b + 1] - cu[b] : w->seqlen_k;
}

static void clear_unused(const glint_work *w, const glint_cpu_backward_plan *plan, const glint_sequence *s, int64_t b, int64_t head) {
  static const float zeros[512];
  if (w->accumulate) return;
  for (int64_t j = s->len_k; j < capacity_of(w, b); j++) write_key(w, plan, s, b, head, j, zeros, zeros);
  for (int64_t i = s->used_q; w->dq.data && i < s->len_q; i++)
    for (int64_t h = head * plan->shape.group; h < (head + 1) * plan->shape.group; h++) {
      int64_t at = s->batch_q * w->dq.stride[0] + (s->row_q + i) * w->dq.stride[1] + h * w->dq.stride[2];
      glint_cpu_write_gradient(w, plan->shape.kernels, &w->dq, at, zeros, w->head_dim, 1.0f, 0);
    }
}

/* First query row of a part of a kv head: parts are equal in the keys that their rows see, which causal masks make uneven, with the
 * cost of a row itself counted as so many keys. Whole panels. */
enum { KEYS_OF_A_ROW = 64 };
static int64_t first_row(const glint_work *w, const glint_cpu_backward_plan *plan, const glint_sequence *s, int64_t part) {
  int64_t all = 0, before = 0, first, end, i = 0;
  if (part == plan->splits) return s->used_q * plan->shape.group;
  for (int64_t n = 0; part > 0 && n < s->used_q; n++) {
    glint_visible_keys(w, s, n, &first, &end);
    all += KEYS_OF_A_ROW + (end > first ? end - first : 0);
  }
  for (; part > 0 && i < s->used_q && before * plan->splits < all * part; i++) {
    glint_visible_keys(w, s, i, &first, &end);
    before += KEYS_OF_A_ROW + (end > first ? end - first : 0);
  }
  return i * plan->shape.group / plan->shape.kernels->panel * plan->shape.kernels->panel;
}

static void run_backward_item(const glint_work *w, const glint_cpu_backward_plan *plan, const pieces *at, glint_cpu_backward_arena *arena,
                              float *thread_sums, int64_t n) {
  int64_t b = n / plan->splits / w->heads_kv, head = n / plan->splits % w->heads_kv, part = plan->splits - 1 - n % plan->splits;
  glint_cpu_share share = {.s = glint_sequence_of(w, b)};
  int64_t row = first_row(w, plan, &share.s, part), key_rows = glint_cpu_round_up(share.s.len_k, plan->shape.kernels->block_k);
  glint_cpu_backward_run run = {.plan = plan, .arena = arena};
  run.run = (glint_cpu_run){.w = w, .plan = &plan->shape, .share = &share, .arena = &arena->base, .units = glint_cpu_units_of(w, 1)};
  run.run.item = (glint_cpu_item){.b = b, .head = head, .row = row, .end = share.s.len_k};
  run.run.item.rows = first_row(w, plan, &share.s, part + 1) - row;
  run.dk = plan->splits == 1 ? thread_sums : at->sums + (at->keys_at[b] + (head * plan->splits + part) * key_rows) * sum_floats(plan);
  run.dv = run.dk + key_rows * plan->columns_d;
  memset(run.dk, 0, (size_t)(key_rows * sum_floats(plan)) * sizeof(float));
  if (w->dsinks.data) run.sinks = at->sinks + (b * w->heads_q + head * plan->shape.group) * plan->splits + part;
  if (w->dbias.data) run.bias = at->bias;
  if (run.run.item.rows > 0) glint_cpu_backward_item(&run);
  if (plan->splits > 1) return;
  for (int64_t j = 0; j < share.s.len_k; j++)
    write_key(w, plan, &share.s, b, head, j, run.dk + j * plan->columns_d, run.dv + j * plan->shape.columns);
  clear_unused(w, plan, &share.s, b, head);
}

/* The sums of one kv head over its splits, in their order. */
static void gather(const glint_work *w, const glint_cpu_backward_plan *plan, const pieces *at, int64_t n) {
  int64_t b = n / w->heads_kv, head = n % w->heads_kv, d = plan->columns_d, columns = plan->shape.columns;
  glint_sequence s = glint_sequence_of(w, b);
  int64_t key_rows = glint_cpu_round_up(s.len_k, plan->shape.kernels->block_k), stride = key_rows * sum_floats(plan);
  float *first = at->sums + (at->keys_at[b] + head * plan->splits * key_rows) * sum_floats(plan);
  for (int64_t part = 1; part < plan->splits; part++)
    for (int64_t i = 0; i < stride; i++) first[i] += first[part * stride + i];
  for (int64_t j = 0; j < s.len_k; j++) write_key(w, plan, &s, b, head, j, first + j * d, first + key_rows * d + j * columns);
  clear_unused(w, plan, &s, b, head);
}

static void add_or_set_float(const glint_work *w, const glint_view *view, int64_t at, double value) {
  glint_store(view->data, view->dtype, at, w->accumulate ? glint_load(view->data, view->dtype, at) + value : value);
}

static void write_shared_sums(const glint_work *w, const glint_cpu_backward_plan *plan, const pieces *at) {
  for (int64_t head = 0; w->dsinks.data && head < w->heads_q; head++) {
    double sum = 0;
    for (int64_t b = 0; b < w->batch; b++)
      for (int64_t part = 0; part < plan->splits; part++) sum += at->sinks[(b * w->heads_q + head) * plan->splits + part];
    add_or_set_float(w, &w->dsinks, head * w->dsinks.stride[0], sum);
  }
  if (!w->dbias.data) return;
  const int64_t *shape = w->dbias.shape, *stride = w->dbias.stride;
  int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  for (int64_t n = 0; n < count; n++) {
    int64_t j = n % shape[3], i = n / shape[3] % shape[2], h = n / shape[3] / shape[2] % shape[1], b = n / shape[3] / shape[2] / shape[1];
    add_or_set_float(w, &w->dbias, b * stride[0] + h * stride[1] + i * stride[2] + j, (double)at->bias[n]);
  }
}

void glint_cpu_backward_pass(const glint_work *w, const glint_cpu_backward_plan *plan, void *workspace) {
  char *base = workspace;
  int threads = plan->shape.threads;
  pieces at = {.keys_at = (int64_t *)(void *)(base + plan->keys_at), .sums = (float *)(void *)(base + plan->sums)};
  at.bias = (float *)(void *)(base + plan->bias), at.sinks = (double *)(void *)(base + plan->sinks), at.arenas = base + plan->arenas;
  clear(w, plan, &at);
#pragma omp parallel num_threads(threads)
  {
    glint_cpu_backward_arena arena;
    size_t thread = (size_t)omp_get_thread_num();
    glint_cpu_backward_layout(plan, w, at.arenas + thread * plan->arena_bytes, &arena);
    if (plan->shape.kernels->begin) plan->shape.kernels->begin();
    float *own = at.sums + (int64_t)thread * plan->sum_rows * sum_floats(plan);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < plan->items; n++) run_backward_item(w, plan, &at, &arena, own, n);
    if (plan->shape.kernels->end) plan->shape.kernels->end();
    if (plan->splits > 1) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t n = 0; n < w->batch * w->heads_kv; n++) gather(w, plan, &at, n);
    }
  }
  write_shared_sums(w, plan, &at);
}
