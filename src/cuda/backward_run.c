/* The backward pass on GPUs: parameters and launches. */
#include "backward_params.h"
#include "cuda/backward.h"
#include "cuda/backward_cut.h"
#include "cuda/family.h"
#include "cuda/launch.h"
#include "cuda/ranges.h"

#include <string.h>

#define LOG2E         1.4426950408889634
#define ROWS_A_THREAD 4         /* STEPS of backward_prepare.c */
#define PIECE         (16 * 64) /* of dq, that a warp of backward_finish.c converts */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* What the scores are made of, and their gradients' own outputs. */
static void fill_scores(const glint_work *w, glint_backward_params *p) {
  p->scale = w->scale;
  p->scale_log2 = (float)((double)w->scale * LOG2E);
  if (w->softcap > 0) {
    p->softcap_in = w->scale / w->softcap;
    p->softcap_log2 = (float)((double)w->softcap * LOG2E);
  }
  glint_cuda_window(w, &p->window_left, &p->window_right);
  p->alibi_slopes = w->alibi_slopes.data;
  p->alibi_batch_stride = w->alibi_slopes.stride[0];
  p->sinks = w->sinks.data;
  p->dsinks = w->dsinks.data;
  p->bias = w->bias.data;
  p->bias_batch_stride = w->bias.stride[0];
  p->bias_head_stride = w->bias.stride[1];
  p->bias_row_stride = w->bias.stride[2];
  p->bias_key_stride = w->bias.stride[3];
  p->bias_float = w->bias.dtype == GLINT_FLOAT32;
  p->dbias = w->dbias.data;
  for (int axis = 0; axis < 4 && w->dbias.data; axis++) {
    p->dbias_stride[axis] = w->dbias.stride[axis];
    p->dbias_shape[axis] = w->dbias.shape[axis];
  }
  p->drop_threshold = w->drop_threshold;
  p->keep_scale = w->drop_threshold ? w->keep_scale : 1.f;
  p->dropout_seed = w->dropout_seed;
  p->dropout_offset = w->dropout_offset;
}

static void fill_tensors(const glint_work *w, glint_backward_params *p) {
  int packed_q = w->cu_seqlens_q.data != NULL, packed_k = w->cu_seqlens_k.data != NULL;
  p->q = w->q.data;
  p->k = w->k.data;
  p->v = w->v.data;
  p->q_stride = glint_cuda_stride(&w->q, packed_q);
  p->k_stride = glint_cuda_stride(&w->k, packed_k);
  p->v_stride = glint_cuda_stride(&w->v, packed_k);
  p->o_float = w->o.dtype == GLINT_FLOAT32;
  p->do_float = w->d_o.dtype == GLINT_FLOAT32;
  p->dq_float = w->dq.dtype == GLINT_FLOAT32;
  p->dk_float = w->dk.dtype == GLINT_FLOAT32;
  p->dv_float = w->dv.dtype == GLINT_FLOAT32;
}

static void fill_params(const glint_variant *v, const glint_work *w, const backward_cut *c, unsigned char *workspace,
                        glint_backward_params *p) {
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
  p->o_stride = glint_cuda_stride(&w->o, packed_q);
  p->do_stride = glint_cuda_stride(&w->d_o, packed_q);
  p->dq_stride = glint_cuda_stride(&w->dq, packed_q);
  p->dk_stride = glint_cuda_stride(&w->dk, packed_k);
  p->dv_stride = glint_cuda_stride(&w->dv, packed_k);
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
  fill_scores(w, p);
  fill_tensors(w, p);
  p->adds_four = v->arch == 90;
  p->padded_dim = v->head_dim;
  p->lse_is_natural = (v->features & FEATURE_BIAS) != 0;
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
  p->fixed_tickets = c->fixed_tickets;
  p->deterministic = (w->flags & GLINT_DETERMINISTIC) != 0;

  p->lse2 = (void *)workspace;
  p->delta = (void *)(workspace + (c->lse_bytes + 255) / 256 * 256);
  unsigned char *cleared = workspace + 2 * ((c->lse_bytes + 255) / 256 * 256);
  p->dq_accum = (void *)cleared;
  p->dq_parts = (void *)(cleared + c->accum_bytes);
  p->dq_left = p->dq_parts + (size_t)c->dq_slots * (size_t)c->chunks;
  p->queue = p->dq_left + c->dq_slots;
  p->tile_counter = p->queue + c->queue_words;
  if (glint_backward_kind(v) == BACKWARD_HEADS) p->tile_counter = p->dq_left;
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

/* One kernel of several that share their parameters. The simulator wants the tensors' bounds before each. */
static glint_status launch_one(glint_cuda *cuda, const glint_work *w, const glint_plan_info *plan, const glint_variant *v, int64_t grid,
                               glint_backward_params *params, const void *workspace, glint_error *error) {
  CUkernel kernel = NULL;
  if (grid == 0) return GLINT_OK;
  glint_status status = glint_cuda_kernel(cuda, (int)(v - glint_variants), &kernel, error);
  glint_start start = {kernel, w->stream, grid, v->threads, v->shared_bytes, 0};
  if (cuda->only_device) glint_simulator_ranges(cuda->driver.simulator, w, workspace, plan->workspace_bytes);
  return status == GLINT_OK ? glint_cuda_start(&cuda->driver, &start, params, error) : status;
}

/* dq from its accumulators (where the main kernel leaves that), and the sinks' gradient. */
static glint_status finish(glint_cuda *cuda, const glint_work *w, const glint_plan_info *plan, const glint_variant *main,
                           glint_backward_params *params, const void *workspace, glint_error *error) {
  const glint_variant *v = glint_backward_finish(glint_variants, w);
  if (glint_backward_kind(main) != BACKWARD_HEADS) params->dq = NULL;
  if (!v) return glint_fail(error, GLINT_ERROR_INTERNAL, "no kernel completes %s", main->name);
  int64_t warps = v->threads / 32, pieces = w->batch * w->heads_q * params->rows_padded * params->padded_dim / PIECE;
  int64_t grid = (params->dq ? ceil_div(pieces, warps) : 0) + (params->dsinks ? w->heads_q : 0);
  return launch_one(cuda, w, plan, v, grid, params, workspace, error);
}

glint_status glint_backward_run(glint_cuda *cuda, const glint_scope *scope, const glint_work *w, const glint_plan_info *plan,
                                void *workspace, glint_error *error) {
  int index = glint_variant_index(plan->kernel);
  const glint_variant *main = index < 0 ? NULL : &glint_variants[index],
                      *prepare = main ? glint_backward_prepare(glint_variants, main, w) : NULL;
  glint_backward_params params;
  glint_status status = GLINT_OK;
  if (!prepare) return glint_fail(error, GLINT_ERROR_INTERNAL, "plan names the kernel %s, which does not exist", plan->kernel);
  backward_cut c = glint_backward_cut(&cuda->machine[scope->device], main, w);
  if (!workspace) status = glint_cuda_workspace(cuda, scope, w->stream, plan->workspace_bytes, &workspace, error);
  if (status != GLINT_OK) return status;
  fill_params(main, w, &c, workspace, &params);
  if (glint_backward_kind(main) == BACKWARD_SLOTS) status = fill_maps(&cuda->driver, main, w, &params, error);
  int64_t rows = w->batch * w->heads_q * c.rows_padded;
  int64_t rows_a_block = prepare->threads / (prepare->head_dim < 256 ? prepare->head_dim / 8 : 32) * ROWS_A_THREAD;
  int64_t grid = clamp(ceil_div(rows, rows_a_block), 1, INT32_MAX);
  if (status == GLINT_OK) status = launch_one(cuda, w, plan, prepare, grid, &params, workspace, error);
  if (status == GLINT_OK) status = launch_one(cuda, w, plan, main, plan->grid, &params, workspace, error);
  const glint_variant *keys = glint_backward_kind(main) == BACKWARD_HALVES ? glint_backward_keys(glint_variants, main) : NULL;
  if (status == GLINT_OK && keys) status = launch_one(cuda, w, plan, keys, w->batch * w->heads_kv * c.k_blocks, &params, workspace, error);
  return status == GLINT_OK ? finish(cuda, w, plan, main, &params, workspace, error) : status;
}
