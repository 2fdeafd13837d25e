/* The backward pass on GPUs: which kernels, how much workspace, parameters, two launches. */
#include "cuda/backward.h"
#include "backward_params.h"
#include "cuda/family.h"
#include "cuda/launch.h"
#include "cuda/ranges.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOG2E         1.4426950408889634
#define PREPARE       "backward_prepare.c"
#define CHUNK_ROWS    256 /* most rows of dq that are counted together */
#define ROWS_A_THREAD 4   /* STEPS of backward_prepare.c */

int glint_is_backward(const glint_variant *v) { return strncmp(v->source, "backward", strlen("backward")) == 0; }

static int is_prepare(const glint_variant *v) { return strcmp(v->source, PREPARE) == 0; }

/* How the work is cut, from shapes and machine alone. */
typedef struct backward_cut {
  int32_t q_blocks, k_blocks, rows_padded, heads_together, dq_slots, chunk, chunks;
  int64_t tiles;
  size_t lse_bytes;   /* of lse2, and of delta */
  size_t accum_bytes; /* dq_accum */
  size_t queue_words;
  size_t clear_bytes; /* accumulators and the counters behind them */
} backward_cut;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

static backward_cut cut(const glint_machine *m, const glint_variant *v, const glint_work *w) {
  backward_cut c;
  int32_t left, right;
  int64_t pairs = w->batch * w->heads_kv, group = w->heads_kv ? w->heads_q / w->heads_kv : 1;
  glint_cuda_window(w, &left, &right);
  c.q_blocks = (int32_t)ceil_div(w->seqlen_q, v->tile_q);
  c.k_blocks = (int32_t)clamp(ceil_div(w->seqlen_k, v->tile_k), 1, INT32_MAX);
  c.rows_padded = c.q_blocks * v->tile_q;
  c.tiles = pairs * c.k_blocks;
  c.chunk = 1;
  if (!(w->flags & GLINT_DETERMINISTIC)) /* few counts, but several chunks a head even when it is short */
    while (2 * c.chunk * v->tile_q <= CHUNK_ROWS && 2 * c.chunk * 8 * (int64_t)v->tile_q <= w->seqlen_q) c.chunk *= 2;
  c.chunks = (int32_t)ceil_div(c.q_blocks, c.chunk);
  /* every block works on one tile and holds tickets for two more */
  int64_t in_flight = ceil_div(3 * (int64_t)m->multiprocessors, c.k_blocks) + 1, together = 1, slots = in_flight + 1;
  if (left != GLINT_UNBOUNDED || right != GLINT_UNBOUNDED) {
    /* key blocks differ in work: heavy ones of several heads first, as long as q, d_o and accumulators of those heads stay in L2 */
    int64_t head_bytes = (int64_t)c.rows_padded * v->head_dim * group * (2 + 2 + 4);
    together = clamp(head_bytes ? m->l2_bytes / 2 / head_bytes : 1, in_flight, 4 * in_flight);
    slots = 2 * together;
  }
  c.heads_together = (int32_t)clamp(together, 1, pairs > 0 ? pairs : 1);
  c.dq_slots = (int32_t)(clamp(slots, 1, pairs > 0 ? pairs : 1) * group);
  c.lse_bytes = (size_t)(w->batch * w->heads_q) * (size_t)c.rows_padded * sizeof(float);
  c.accum_bytes = (size_t)c.dq_slots * (size_t)c.rows_padded * (size_t)v->head_dim * sizeof(float);
  c.queue_words = 2 * (size_t)(w->batch * w->heads_q) * (size_t)c.chunks;
  c.clear_bytes = c.accum_bytes + ((size_t)c.dq_slots * (size_t)(c.chunks + 1) + c.queue_words + 3) * sizeof(uint32_t);
  c.clear_bytes = (c.clear_bytes + 15) / 16 * 16;
  return c;
}

static const glint_variant *prepare_variant(const glint_variant *variants, const glint_work *w) {
  for (const glint_variant *v = variants; v->name; v++)
    if (is_prepare(v) && v->dtype == (int32_t)w->q.dtype && v->head_dim >= w->head_dim_v) return v;
  return NULL;
}

static glint_status refuse_field(glint_error *error, const char *field, const char *why) {
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s: %s", field, why);
}

/* What the backward kernels do not do, field by field. */
static glint_status refuse_unsupported(const glint_work *w, glint_error *error) {
  const struct {
    int there;
    const char *field, *why;
  } limits[] = {
      {w->q.dtype != GLINT_BFLOAT16 && w->q.dtype != GLINT_FLOAT16, "q.dtype", "the backward kernels take bfloat16 and float16"},
      {w->o.dtype != w->q.dtype, "o.dtype", "the backward kernels want q's dtype"},
      {w->d_o.dtype != w->q.dtype, "d_o.dtype", "the backward kernels want q's dtype"},
      {w->softcap > 0, "softcap", "no backward kernel does it"},
      {w->alibi_slopes.data != NULL, "alibi_slopes", "no backward kernel does it"},
      {w->bias.data != NULL, "bias", "no backward kernel does it"},
      {w->dbias.data != NULL, "dbias", "no backward kernel does it"},
      {w->dsinks.data != NULL, "dsinks", "no backward kernel does it"},
      {w->drop_threshold != 0, "dropout_p", "no backward kernel does it"},
      {w->page_table.data != NULL, "page_table", "no backward kernel does it"},
      {w->seqlen_new != 0, "k_new", "no backward kernel does it"},
  };
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
    if (limits[i].there) return refuse_field(error, limits[i].field, limits[i].why);
  const glint_view *gradients[] = {&w->dq, &w->dk, &w->dv};
  glint_dtype dtype = GLINT_DTYPE_NONE;
  for (int i = 0; i < 3; i++) {
    if (!gradients[i]->data) continue;
    if (dtype != GLINT_DTYPE_NONE && gradients[i]->dtype != dtype)
      return refuse_field(error, "dq.dtype, dk.dtype, dv.dtype", "the backward kernels want one dtype for all");
    dtype = gradients[i]->dtype;
  }
  return GLINT_OK;
}

/* Loads and stores of 16 bytes, and tensor maps, need rows that start at multiples of 16. */
static glint_status refuse_unaligned(const glint_work *w, glint_error *error) {
  const struct {
    const char *name;
    const glint_view *view;
  } views[] = {{"q", &w->q}, {"k", &w->k}, {"v", &w->v}, {"o", &w->o}, {"d_o", &w->d_o}, {"dq", &w->dq}, {"dk", &w->dk}, {"dv", &w->dv}};
  if (w->head_dim % 8 || w->head_dim_v % 8)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "head_dim is %" PRId64 ", head_dim_v %" PRId64 ": the backward kernels need multiples of 8", w->head_dim,
                      w->head_dim_v);
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
    const glint_view *v = views[i].view;
    if (!v->data) continue;
    int64_t size = (int64_t)glint_dtype_size(v->dtype);
    int bad = (uintptr_t)v->data % 16 != 0;
    for (int axis = 0; axis < 3; axis++) bad |= v->shape[axis] > 1 && (v->stride[axis] * size % 16 != 0 || v->stride[axis] == 0);
    if (bad)
      return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                        "%s: the backward kernels need rows that start at multiples of 16 bytes, and no axis with stride 0", views[i].name);
  }
  return GLINT_OK;
}

static glint_status refuse_sizes(const glint_work *w, const backward_cut *c, glint_error *error) {
  if (w->seqlen_q >= GLINT_UNBOUNDED / 2 || w->seqlen_k >= GLINT_UNBOUNDED / 2 || w->batch * w->heads_q > INT32_MAX ||
      c->tiles > INT32_MAX / 2)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "batch %" PRId64 ", heads_q %" PRId64 ", seqlen_q %" PRId64 ", seqlen_k %" PRId64
                      ": more than the backward kernels count",
                      w->batch, w->heads_q, w->seqlen_q, w->seqlen_k);
  return GLINT_OK;
}

static int serves(const glint_choice *c, const glint_variant *v, const glint_work *w) {
  return glint_is_backward(v) && !is_prepare(v) && (!c->arch || v->arch == c->arch) &&
         strncmp(v->name, c->kernel, strlen(c->kernel)) == 0 &&
         (v->arch == 90 ? c->machine->compute == 90 : c->machine->compute >= v->arch) && glint_cuda_occupancy(c->machine, v) >= 1 &&
         v->dtype == (int32_t)w->q.dtype && v->head_dim >= w->head_dim && v->head_dim_v >= w->head_dim_v;
}

static void fill_plan(const glint_choice *choice, const glint_variant *v, const glint_work *w, const backward_cut *c,
                      glint_plan_info *plan) {
  const glint_machine *m = choice->machine;
  snprintf(plan->kernel, sizeof plan->kernel, "%s", v->name);
  snprintf(plan->reason, sizeof plan->reason,
           "first backward kernel for head_dim %" PRId64 "/%" PRId64 " on %.40s (sm_%d); %" PRId32 " slots for dq", w->head_dim,
           w->head_dim_v, m->name, (int)m->compute, c->dq_slots);
  plan->tile_q = v->tile_q;
  plan->tile_k = v->tile_k;
  plan->stages = v->stages;
  plan->num_splits = 1;
  plan->threads = v->threads;
  plan->registers = v->registers;
  plan->shared_bytes = v->shared_bytes;
  plan->grid = clamp(c->tiles, 0, m->multiprocessors);
  plan->waves_x100 = c->tiles * 100 / m->multiprocessors;
  plan->flops = 2.0 * (3.0 * (double)w->head_dim + 2.0 * (double)w->head_dim_v) * glint_cuda_visible_pairs(w);
  plan->bytes = 2.0 * 2.0 * (double)w->total_q * (double)w->heads_q * (double)(w->head_dim + w->head_dim_v) +
                2.0 * 2.0 * (double)w->total_k * (double)w->heads_kv * (double)(w->head_dim + w->head_dim_v);
  if (m->flops_16bit > 0) plan->roofline_seconds = plan->flops / m->flops_16bit;
  if (m->bytes_per_second > 0 && plan->bytes / m->bytes_per_second > plan->roofline_seconds)
    plan->roofline_seconds = plan->bytes / m->bytes_per_second;
  plan->workspace_bytes = 2 * c->lse_bytes + c->clear_bytes + 3 * 256;
}

glint_status glint_backward_plan(const glint_choice *choice, const glint_work *w, glint_plan_info *plan, glint_error *error) {
  glint_status status = refuse_unsupported(w, error);
  if (status == GLINT_OK) status = refuse_unaligned(w, error);
  if (status != GLINT_OK) return status;
  if (!prepare_variant(choice->variants, w))
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "head_dim_v is %" PRId64 ": no backward kernel takes it", w->head_dim_v);
  for (const glint_variant *v = choice->variants; v->name; v++) {
    if (!serves(choice, v, w)) continue;
    backward_cut c = cut(choice->machine, v, w);
    status = refuse_sizes(w, &c, error);
    if (status == GLINT_OK) fill_plan(choice, v, w, &c, plan);
    return status;
  }
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "glint_backward: no kernel for head_dim %" PRId64 "/%" PRId64 " on %s (sm_%d)%s",
                    w->head_dim, w->head_dim_v, choice->machine->name, (int)choice->machine->compute,
                    *choice->kernel || choice->arch ? " among those that options.kernel and options.arch allow" : "");
}

static glint_stride stride_of(const glint_view *v, int packed) {
  return (glint_stride){packed ? 0 : v->stride[0], v->stride[1], v->stride[2]};
}

static void fill_params(const glint_work *w, const backward_cut *c, unsigned char *workspace, glint_backward_params *p) {
  int packed_q = w->cu_seqlens_q.data != NULL, packed_k = w->cu_seqlens_k.data != NULL;
  memset(p, 0, sizeof *p);
  p->o = w->o.data;
  p->d_o = w->d_o.data;
  p->lse = w->lse.data;
  p->d_lse = w->d_lse.data;
  p->dq = w->dq.data;
  /* without keys there is nothing to write, and no map to write it by */
  p->dk = w->total_k ? w->dk.data : NULL;
  p->dv = w->total_k ? w->dv.data : NULL;
  p->o_stride = stride_of(&w->o, packed_q);
  p->do_stride = stride_of(&w->d_o, packed_q);
  p->dq_stride = stride_of(&w->dq, packed_q);
  p->dk_stride = stride_of(&w->dk, packed_k);
  p->dv_stride = stride_of(&w->dv, packed_k);
  p->lse_batch_stride = packed_q ? 0 : w->lse.stride[0];
  p->lse_head_stride = w->lse.stride[1];
  p->d_lse_batch_stride = packed_q ? 0 : w->d_lse.stride[0];
  p->d_lse_head_stride = w->d_lse.stride[1];
  p->batch = (int32_t)w->batch;
  p->heads_q = (int32_t)w->heads_q;
  p->heads_kv = (int32_t)w->heads_kv;
  p->group = (int32_t)(w->heads_q / w->heads_kv);
  p->seqlen_q = (int32_t)w->seqlen_q;
  p->seqlen_k = (int32_t)w->seqlen_k;
  p->head_dim = (int32_t)w->head_dim;
  p->head_dim_v = (int32_t)w->head_dim_v;
  p->cu_seqlens_q = w->cu_seqlens_q.data;
  p->cu_seqlens_k = w->cu_seqlens_k.data;
  p->seqused_q = w->seqused_q.data;
  p->seqused_k = w->seqused_k.data;
  p->scale = w->scale;
  p->scale_log2 = (float)((double)w->scale * LOG2E);
  glint_cuda_window(w, &p->window_left, &p->window_right);
  p->q_blocks = c->q_blocks;
  p->k_blocks = c->k_blocks;
  p->rows_padded = c->rows_padded;
  p->heads_together = c->heads_together;
  p->dq_slots = c->dq_slots;
  p->chunk = c->chunk;
  p->chunks = c->chunks;
  const glint_view *gradient = w->dq.data ? &w->dq : w->dk.data ? &w->dk : &w->dv;
  p->gradient_float = gradient->dtype == GLINT_FLOAT32;
  p->accumulate = w->accumulate;
  p->deterministic = (w->flags & GLINT_DETERMINISTIC) != 0;

  p->lse2 = (void *)workspace;
  p->delta = (void *)(workspace + (c->lse_bytes + 255) / 256 * 256);
  unsigned char *cleared = workspace + 2 * ((c->lse_bytes + 255) / 256 * 256);
  p->dq_accum = (void *)cleared;
  p->dq_parts = (void *)(cleared + c->accum_bytes);
  p->dq_left = p->dq_parts + (size_t)c->dq_slots * (size_t)c->chunks;
  p->queue = p->dq_left + c->dq_slots;
  p->tile_counter = p->queue + c->queue_words;
  p->queue_tail = p->tile_counter + 1;
  p->queue_head = p->tile_counter + 2;
  p->clear_bytes = (int64_t)c->clear_bytes;
}

/* Maps of the tensors that are there. One without elements is never loaded; it borrows any other's place. */
static glint_status fill_maps(const glint_driver *driver, const glint_variant *v, const glint_work *w, glint_backward_params *p,
                              glint_error *error) {
  const glint_view *some = w->total_q ? &w->q : &w->k;
  const struct {
    tensor_map *map;
    const glint_view *view;
    int32_t rows;
    int wanted;
  } maps[] = {{&p->map_q, &w->q, v->tile_q, 1},
              {&p->map_k, &w->k, v->tile_k, 1},
              {&p->map_v, &w->v, v->tile_k, 1},
              {&p->map_do, &w->d_o, v->tile_q, 1},
              {&p->map_dk, &w->dk, 64, p->dk && !p->gradient_float},
              {&p->map_dv, &w->dv, 64, p->dv && !p->gradient_float}};
  glint_status status = GLINT_OK;
  for (size_t i = 0; i < sizeof maps / sizeof maps[0] && status == GLINT_OK; i++) {
    if (!maps[i].wanted) continue;
    int empty = maps[i].view->shape[0] == 0 || maps[i].view->shape[1] == 0;
    status = glint_tensor_map(driver, empty ? some : maps[i].view, 64, (uint32_t)maps[i].rows, maps[i].map, error);
  }
  return status;
}

static glint_status launch(const glint_cuda *cuda, const glint_variant *v, CUkernel kernel, CUstream stream, int64_t grid,
                           glint_backward_params *params, glint_error *error) {
  void *parameters[] = {params};
  CUlaunchConfig config = {.grid_x = (uint32_t)grid,
                           .grid_y = 1,
                           .grid_z = 1,
                           .block_x = (uint32_t)v->threads,
                           .block_y = 1,
                           .block_z = 1,
                           .shared_bytes = (uint32_t)v->shared_bytes,
                           .stream = stream};
  return GLINT_DRIVER_CALL(&cuda->driver, error, cuLaunchKernelEx, (&config, (CUfunction)(void *)kernel, parameters, NULL));
}

static const glint_variant *by_name(const char *name) {
  for (const glint_variant *v = glint_variants; v->name; v++)
    if (strcmp(v->name, name) == 0) return v;
  return NULL;
}

glint_status glint_backward_run(glint_cuda *cuda, const glint_scope *scope, const glint_work *w, const glint_plan_info *plan,
                                void *workspace, glint_error *error) {
  const glint_variant *main = by_name(plan->kernel), *prepare = prepare_variant(glint_variants, w);
  CUkernel main_kernel, prepare_kernel;
  glint_backward_params params;
  if (!main || !prepare) return glint_fail(error, GLINT_ERROR_INTERNAL, "plan names the kernel %s, which does not exist", plan->kernel);
  backward_cut c = cut(&cuda->machine[scope->device], main, w);
  glint_status status = glint_cuda_kernel(cuda, (int)(main - glint_variants), &main_kernel, error);
  if (status == GLINT_OK) status = glint_cuda_kernel(cuda, (int)(prepare - glint_variants), &prepare_kernel, error);
  if (status == GLINT_OK && !workspace) status = glint_cuda_workspace(cuda, scope, w->stream, plan->workspace_bytes, &workspace, error);
  if (status != GLINT_OK) return status;
  fill_params(w, &c, workspace, &params);
  status = fill_maps(&cuda->driver, main, w, &params, error);
  int64_t rows = w->batch * w->heads_q * c.rows_padded, rows_a_block = prepare->threads / (prepare->head_dim / 8) * ROWS_A_THREAD;
  if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
  if (status == GLINT_OK)
    status = launch(cuda, prepare, prepare_kernel, w->stream, clamp(ceil_div(rows, rows_a_block), 1, INT32_MAX), &params, error);
  if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
  if (status == GLINT_OK) status = launch(cuda, main, main_kernel, w->stream, plan->grid, &params, error);
  return status;
}
