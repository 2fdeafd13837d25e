/* The backward pass on GPUs: which kernel, and how much workspace. The rule is that of the forward pass: the first line of
 * kernels/variants.txt that can do it on this GPU. */
#include "cuda/backward.h"
#include "backward_params.h"
#include "cuda/backward_cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HELPERS 3 /* sources of backward kernels that are no main kernels */

int glint_is_backward(const glint_variant *v) { return strncmp(v->source, "backward", strlen("backward")) == 0; }

static int is_main(const glint_variant *v) {
  static const char *const helpers[HELPERS] = {"backward_prepare.c", "backward_finish.c", "backward_simple_keys.c"};
  for (int i = 0; i < HELPERS; i++)
    if (strcmp(v->source, helpers[i]) == 0) return 0;
  return glint_is_backward(v);
}

static glint_status refuse_field(glint_error *error, const char *field, const char *why) {
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s: %s", field, why);
}

static int sums_over_broadcast(const glint_work *w) {
  if (!w->dbias.data) return 0;
  return (w->dbias.shape[0] == 1 && w->batch > 1) || (w->dbias.shape[1] == 1 && w->heads_q > 1) ||
         (w->dbias.shape[2] == 1 && w->seqlen_q > 1) || (w->dbias.shape[3] == 1 && w->seqlen_k > 1);
}

/* What no backward kernel does, field by field. */
static glint_status refuse_unsupported(const glint_work *w, glint_error *error) {
  const struct {
    int there;
    const char *field, *why;
  } limits[] = {
      {w->q.dtype != GLINT_BFLOAT16 && w->q.dtype != GLINT_FLOAT16 && w->q.dtype != GLINT_FLOAT32, "q.dtype",
       "the backward kernels take float32, bfloat16 and float16"},
      {w->page_table.data != NULL, "page_table", "no backward kernel does it"},
      {w->seqlen_new != 0, "k_new", "no backward kernel does it"},
      {w->dbias.data && w->dbias.dtype != GLINT_FLOAT32, "dbias.dtype", "the backward kernels write float32"},
      {w->dsinks.data && w->dsinks.dtype != GLINT_FLOAT32, "dsinks.dtype", "the backward kernels write float32"},
      {(w->flags & GLINT_DETERMINISTIC) && sums_over_broadcast(w), "dbias",
       "the backward kernels add it up over broadcast axes in any order, which GLINT_DETERMINISTIC forbids"},
  };
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
    if (limits[i].there) return refuse_field(error, limits[i].field, limits[i].why);
  return GLINT_OK;
}

/* Rows that start at multiples of 16 bytes: loads and stores of 16 bytes, and tensor maps. */
static int is_aligned(const glint_view *v) {
  int64_t size = (int64_t)glint_dtype_size(v->dtype);
  if (!v->data) return 1;
  if ((uintptr_t)v->data % 16) return 0;
  for (int axis = 0; axis < 3; axis++)
    if (v->shape[axis] > 1 && v->stride[axis] * size % 16) return 0;
  return 1;
}

/* FEATURE_ bits beyond those of the forward pass. Sinks are in lse, and their gradient comes afterwards, for every kernel. */
static uint32_t features_of(const glint_work *w) {
  uint32_t need = glint_cuda_features(w) & ~(uint32_t)(FEATURE_SINKS | FEATURE_SPLIT);
  if (w->flags & GLINT_DETERMINISTIC) need |= FEATURE_ORDERED;
  if (w->d_o.dtype == GLINT_FLOAT32) need |= FEATURE_O_FLOAT;
  if (!is_aligned(&w->d_o) || !is_aligned(&w->dq) || !is_aligned(&w->dk) || !is_aligned(&w->dv)) need |= FEATURE_UNALIGNED;
  return need;
}

/* TMA wants no axis with stride 0, and Hopper's kernels one dtype for all gradients. */
static int is_for_tma(const glint_work *w) {
  const glint_view *inputs[] = {&w->q, &w->k, &w->v, &w->d_o}, *gradients[] = {&w->dq, &w->dk, &w->dv};
  glint_dtype dtype = GLINT_DTYPE_NONE;
  for (int i = 0; i < 4; i++)
    for (int axis = 0; axis < 3; axis++)
      if (inputs[i]->shape[axis] > 1 && inputs[i]->stride[axis] == 0) return 0;
  for (int i = 0; i < 3; i++) {
    if (!gradients[i]->data) continue;
    if (dtype != GLINT_DTYPE_NONE && gradients[i]->dtype != dtype) return 0;
    dtype = gradients[i]->dtype;
  }
  return 1;
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

static int serves(const glint_choice *c, const glint_variant *v, const glint_work *w, uint32_t need) {
  return is_main(v) && (!c->arch || v->arch == c->arch) && strncmp(v->name, c->kernel, strlen(c->kernel)) == 0 &&
         (v->arch == 90 ? c->machine->compute == 90 : c->machine->compute >= v->arch) && glint_cuda_occupancy(c->machine, v) >= 1 &&
         v->dtype == (int32_t)w->q.dtype && v->head_dim >= w->head_dim && v->head_dim_v >= w->head_dim_v && !(need & ~v->features) &&
         !((v->features & FEATURE_STAGED) && !(need & FEATURE_ORDERED)) && (glint_backward_kind(v) != BACKWARD_SLOTS || is_for_tma(w)) &&
         glint_backward_prepare(c->variants, v, w);
}

static void fill_plan(const glint_choice *choice, const glint_variant *v, const glint_work *w, const backward_cut *c,
                      glint_plan_info *plan) {
  const glint_machine *m = choice->machine;
  const int64_t at_once = (int64_t)m->multiprocessors * glint_cuda_occupancy(m, v);
  snprintf(plan->kernel, sizeof plan->kernel, "%s", v->name);
  snprintf(plan->reason, sizeof plan->reason,
           "first backward kernel for head_dim %" PRId64 "/%" PRId64 " and the features on %.40s (sm_%d)", w->head_dim, w->head_dim_v,
           m->name, (int)m->compute);
  plan->tile_q = v->tile_q;
  plan->tile_k = v->tile_k;
  plan->stages = v->stages;
  plan->num_splits = 1;
  plan->threads = v->threads;
  plan->registers = v->registers;
  plan->shared_bytes = v->shared_bytes;
  plan->grid = c->grid;
  plan->waves_x100 = c->tiles * 100 / at_once;
  plan->flops = 2.0 * (3.0 * (double)w->head_dim + 2.0 * (double)w->head_dim_v) * glint_cuda_visible_pairs(w);
  plan->bytes = 2.0 * 2.0 * (double)w->total_q * (double)w->heads_q * (double)(w->head_dim + w->head_dim_v) +
                2.0 * 2.0 * (double)w->total_k * (double)w->heads_kv * (double)(w->head_dim + w->head_dim_v);
  if (m->flops_16bit > 0) plan->roofline_seconds = plan->flops / m->flops_16bit;
  if (m->bytes_per_second > 0 && plan->bytes / m->bytes_per_second > plan->roofline_seconds)
    plan->roofline_seconds = plan->bytes / m->bytes_per_second;
  plan->workspace_bytes = 2 * c->lse_bytes + c->clear_bytes + 3 * 256;
}

glint_status glint_backward_plan(const glint_choice *choice, const glint_work *w, glint_plan_info *plan, glint_error *error) {
  const uint32_t need = features_of(w);
  glint_status status = refuse_unsupported(w, error);
  if (status != GLINT_OK) return status;
  for (const glint_variant *v = choice->variants; v->name; v++) {
    if (!serves(choice, v, w, need)) continue;
    backward_cut c = glint_backward_cut(choice->machine, v, w);
    status = refuse_sizes(w, &c, error);
    if (status == GLINT_OK) fill_plan(choice, v, w, &c, plan);
    return status;
  }
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "glint_backward: no kernel for head_dim %" PRId64 "/%" PRId64 " on %s (sm_%d)%s",
                    w->head_dim, w->head_dim_v, choice->machine->name, (int)choice->machine->compute,
                    *choice->kernel || choice->arch ? " among those that options.kernel and options.arch allow" : "");
}
