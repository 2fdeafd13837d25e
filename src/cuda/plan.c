/* Choice of the kernel. The rule is one sentence: the first line of kernels/variants.txt that can do it on this GPU. */
#include "cuda/plan.h"
#include "cuda/backward.h"
#include "cuda/family.h"
#include "cuda/quantize.h"
#include "fp8_params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHARED_RESERVED                                                                                                                    \
  1024 /* bytes that the system takes of every block's shared memory (CUDA programming guide, compute capability 8.0) */
#define REGISTERS_ROUND    256 /* a warp's registers are handed out in such units */
#define MOST_BLOCKS_PER_SM 32
#define CHUNK              16 /* bytes of a vector load: rows must start on such a boundary */

static const char *dtype_name(int32_t dtype) {
  static const char *const names[] = {"none", "float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"};
  return dtype >= 0 && dtype <= GLINT_FLOAT8_E5M2 ? names[dtype] : "?";
}

/* Field that asks for a feature, as an error names it. */
static const struct {
  uint32_t bit;
  const char *field, *word;
} features[] = {{FEATURE_MASK, "causal or windowed", "mask"},
                {FEATURE_VARLEN, "cu_seqlens or seqused", "varlen"},
                {FEATURE_SOFTCAP, "softcap", "softcap"},
                {FEATURE_ALIBI, "alibi_slopes", "ALiBi"},
                {FEATURE_SINKS, "sinks", "sinks"},
                {FEATURE_BIAS, "bias", "bias"},
                {FEATURE_DROPOUT, "dropout_p", "dropout"},
                {FEATURE_PAGED, "page_table", "paged"},
                {FEATURE_SPLIT, "num_splits", "split"},
                {FEATURE_O_FLOAT, "o.dtype float32", "float32 o"},
                {FEATURE_UNALIGNED, "", "unaligned"},
                {FEATURE_FP32_ACCUMULATE, "flags GLINT_FP32_ACCUMULATE", "fp32 accumulation"},
                {FEATURE_BLOCK_SCALES, "descale_k or descale_v with several blocks", "block scales"}};
#define FEATURES (sizeof features / sizeof features[0])

static int32_t bound(int64_t window, int64_t reach) {
  return window < 0 || window >= reach || window >= GLINT_UNBOUNDED ? GLINT_UNBOUNDED : (int32_t)window;
}

void glint_cuda_window(const glint_work *w, int32_t *left, int32_t *right) {
  int varlen = w->cu_seqlens_q.data || w->cu_seqlens_k.data || w->seqused_q.data || w->seqused_k.data || w->page_table.data;
  /* the last row stands at key seqlen_k - 1, the first at seqlen_k - seqlen_q */
  *left = bound(w->window_left, varlen ? INT64_MAX : w->seqlen_k - 1);
  *right = bound(w->window_right, varlen ? INT64_MAX : w->seqlen_q - 1);
}

/* The view's first field that breaks the 16-byte rule of vector loads and tensor maps; NULL: none. */
static const char *misaligned(const glint_view *v) {
  int64_t size = (int64_t)glint_dtype_size(v->dtype);
  if ((uintptr_t)v->data % CHUNK) return "data";
  for (int axis = 0; axis < 3; axis++)
    if (v->shape[axis] > 1 && v->stride[axis] * size % CHUNK) return "stride";
  return NULL;
}

static int is_aligned(const glint_work *w) {
  int64_t size = (int64_t)glint_dtype_size(w->q.dtype);
  return w->head_dim * size % CHUNK == 0 && w->head_dim_v * size % CHUNK == 0 && !misaligned(&w->q) && !misaligned(&w->k) &&
         !misaligned(&w->v) && !misaligned(&w->o);
}

uint32_t glint_cuda_features(const glint_work *w) {
  uint32_t need = 0;
  int32_t left, right;
  glint_cuda_window(w, &left, &right);
  if (left != GLINT_UNBOUNDED || right != GLINT_UNBOUNDED) need |= FEATURE_MASK;
  if (w->cu_seqlens_q.data || w->cu_seqlens_k.data || w->seqused_q.data || w->seqused_k.data) need |= FEATURE_VARLEN;
  if (w->softcap > 0) need |= FEATURE_SOFTCAP;
  if (w->alibi_slopes.data) need |= FEATURE_ALIBI;
  if (w->sinks.data) need |= FEATURE_SINKS;
  if (w->bias.data) need |= FEATURE_BIAS;
  if (w->drop_threshold) need |= FEATURE_DROPOUT;
  if (w->page_table.data) need |= FEATURE_PAGED;
  if (w->num_splits > 1) need |= FEATURE_SPLIT;
  if (w->o.dtype == GLINT_FLOAT32 && w->q.dtype != GLINT_FLOAT32) need |= FEATURE_O_FLOAT;
  if (!is_aligned(w)) need |= FEATURE_UNALIGNED;
  if (w->flags & GLINT_FP32_ACCUMULATE) need |= FEATURE_FP32_ACCUMULATE;
  if (w->descale_rows_k || w->descale_rows_v) need |= FEATURE_BLOCK_SCALES;
  return need;
}

int32_t glint_cuda_occupancy(const glint_machine *m, const glint_variant *v) {
  if (v->shared_bytes > m->shared_per_block || v->threads <= 0) return 0;
  int32_t warps = v->threads / 32;
  int32_t per_warp = (v->registers * 32 + REGISTERS_ROUND - 1) / REGISTERS_ROUND * REGISTERS_ROUND;
  int32_t blocks = MOST_BLOCKS_PER_SM;
  int32_t limits[] = {(int32_t)(m->shared_per_sm / (v->shared_bytes + SHARED_RESERVED)), m->threads_per_sm / v->threads,
                      per_warp > 0 ? m->registers_per_sm / per_warp / warps : blocks};
  for (int i = 0; i < 3; i++)
    if (limits[i] < blocks) blocks = limits[i];
  return blocks;
}

/* Sum over i in [0, rows) of clamp(first + i, 0, limit). */
static double clamped_sum(int64_t first, int64_t rows, int64_t limit) {
  double sum = 0;
  int64_t rising_from = first < 0 ? -first : 0;          /* values below are 0 */
  int64_t full_from = limit > first ? limit - first : 0; /* values from here on are limit */
  if (rising_from > rows) rising_from = rows;
  if (full_from > rows) full_from = rows;
  if (full_from > rising_from) {
    double n = (double)(full_from - rising_from);
    sum += n * (double)(first + rising_from) + n * (n - 1) / 2;
  }
  return sum + (double)(rows - full_from) * (double)limit;
}

double glint_cuda_visible_pairs(const glint_work *w) {
  int64_t shift = w->seqlen_k - w->seqlen_q;
  double end =
      w->window_right < 0 ? (double)w->seqlen_q * (double)w->seqlen_k : clamped_sum(shift + w->window_right + 1, w->seqlen_q, w->seqlen_k);
  double begin = w->window_left < 0 ? 0 : clamped_sum(shift - w->window_left, w->seqlen_q, w->seqlen_k);
  double sequences = w->cu_seqlens_q.data && w->seqlen_q ? (double)w->total_q / (double)w->seqlen_q : (double)w->batch;
  if (sequences > (double)w->batch) sequences = (double)w->batch;
  return sequences * (double)w->heads_q * (end - begin);
}

static double view_bytes(const glint_view *v) {
  return (double)v->shape[0] * (double)v->shape[1] * (double)v->shape[2] * (double)v->shape[3] * (double)glint_dtype_size(v->dtype);
}

static int runs_on(const glint_variant *v, const glint_machine *m) {
  return (v->arch == 90 ? m->compute == 90 : m->compute >= v->arch) && glint_cuda_occupancy(m, v) >= 1;
}

static int is_allowed(const glint_choice *c, const glint_variant *v) {
  return !glint_is_backward(v) && !glint_is_quantize(v) && !glint_is_combine(v) && (!c->arch || v->arch == c->arch) &&
         strncmp(v->name, c->kernel, strlen(c->kernel)) == 0;
}

static int has_dims(const glint_variant *v, const glint_work *w) {
  if (v->features & FEATURE_UNPADDED) return v->head_dim == w->head_dim && v->head_dim_v == w->head_dim_v;
  return v->head_dim >= w->head_dim && v->head_dim_v >= w->head_dim_v;
}

static glint_status refuse_unaligned(const glint_work *w, glint_error *error) {
  const int64_t chunk = CHUNK / (int64_t)glint_dtype_size(w->q.dtype);
  const struct {
    const char *name;
    const glint_view *view;
  } views[] = {{"q", &w->q}, {"k", &w->k}, {"v", &w->v}, {"o", &w->o}};
  if (w->head_dim % chunk || w->head_dim_v % chunk)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "head_dim is %" PRId64 ", head_dim_v %" PRId64 ": the kernels need multiples of %" PRId64, w->head_dim, w->head_dim_v,
                      chunk);
  for (int i = 0; i < 4; i++) {
    const char *field = misaligned(views[i].view);
    if (field)
      return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                        "%s.%s: rows must start at multiples of %d bytes; data is %p, strides %" PRId64 ", %" PRId64 ", %" PRId64,
                        views[i].name, field, CHUNK, views[i].view->data, views[i].view->stride[0], views[i].view->stride[1],
                        views[i].view->stride[2]);
  }
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "o.dtype: its rows are no multiples of %d bytes", CHUNK);
}

/* Why no row fits: the first of these questions that no row can answer. */
static glint_status refuse(const glint_choice *c, const glint_work *w, uint32_t need, glint_error *error) {
  uint32_t offered = 0;
  int32_t rows = 0, allowed = 0, runnable = 0, most = 0, most_v = 0;
  for (const glint_variant *v = c->variants; v->name; v++) {
    rows++;
    if (!is_allowed(c, v)) continue;
    allowed++;
    if (!runs_on(v, c->machine)) continue;
    runnable++;
    if (v->dtype != (int32_t)w->q.dtype) continue;
    offered |= v->features | FEATURE_UNPADDED;
    if (v->head_dim > most) most = v->head_dim;
    if (v->head_dim_v > most_v) most_v = v->head_dim_v;
  }
  if (!rows) return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "this library has no GPU kernels");
  if (!allowed)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "options.kernel \"%s\", options.arch %" PRId32 ": no kernel has such a name and architecture", c->kernel, c->arch);
  if (!runnable)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s (compute capability %d.%d): none of %d kernels runs there", c->machine->name,
                      c->machine->compute / 10, c->machine->compute % 10, (int)allowed);
  if (!offered)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "q.dtype is %s: no kernel for it on %s", dtype_name((int32_t)w->q.dtype),
                      c->machine->name);
  if (w->head_dim > most || w->head_dim_v > most_v)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "head_dim is %" PRId64 ", head_dim_v %" PRId64 ": kernels for %s take at most %" PRId32 " and %" PRId32, w->head_dim,
                      w->head_dim_v, dtype_name((int32_t)w->q.dtype), most, most_v);
  if (need & ~offered & FEATURE_UNALIGNED) return refuse_unaligned(w, error);
  for (size_t i = 0; i < FEATURES; i++)
    if (need & ~offered & features[i].bit)
      return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s: no GPU kernel for %s does it", features[i].field,
                        dtype_name((int32_t)w->q.dtype));
  char list[160] = "";
  for (size_t i = 0; i < FEATURES; i++)
    if (need & features[i].bit) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? " + " : "", features[i].word);
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                    "head_dim %" PRId64 ", head_dim_v %" PRId64 " with %s: each is served, but no GPU kernel has all", w->head_dim,
                    w->head_dim_v, *list ? list : "nothing else");
}

/* What no kernel of any row does, and sizes that the launch parameters cannot hold. */
static glint_status refuse_always(const glint_work *w, glint_error *error) {
  if (w->seqlen_new) return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "k_new: no GPU kernel appends to a cache");
  if (w->rotary_dim) return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "rotary_cos: no GPU kernel rotates");
  const struct {
    const char *name;
    int64_t value, limit;
  } sizes[] = {{"seqlen_q", w->seqlen_q, GLINT_UNBOUNDED},
               {"seqlen_k", w->seqlen_k, GLINT_UNBOUNDED},
               {"total_q", w->total_q, INT32_MAX},
               {"total_k", w->total_k, INT32_MAX},
               {"batch", w->batch, INT32_MAX},
               {"heads_q", w->heads_q, INT32_MAX}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].value >= sizes[i].limit)
      return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s is %" PRId64 ": the GPU kernels count to %" PRId64, sizes[i].name,
                        sizes[i].value, sizes[i].limit - 1);
  return GLINT_OK;
}

static void describe_choice(const glint_choice *c, const glint_variant *v, const glint_work *w, uint32_t need, glint_plan_info *plan) {
  char list[120] = "";
  for (size_t i = 0; i < FEATURES; i++)
    if (need & features[i].bit) snprintf(list + strlen(list), sizeof list - strlen(list), ", %s", features[i].word);
  snprintf(plan->kernel, sizeof plan->kernel, "%s", v->name);
  snprintf(plan->reason, sizeof plan->reason, "first kernel for %s, head_dim %" PRId64 "/%" PRId64 "%s on %.40s (sm_%d)%s",
           dtype_name((int32_t)w->q.dtype), w->head_dim, w->head_dim_v, list, c->machine->name, (int)c->machine->compute,
           *c->kernel || c->arch ? ", as options demand" : "");
}

static glint_status fill(const glint_choice *c, const glint_variant *v, const glint_work *w, glint_plan_info *plan, glint_error *error) {
  const glint_family *family = glint_family_of(v);
  const glint_machine *m = c->machine;
  const int32_t splits = glint_variant_splits(m, v, w);
  int64_t tiles = family->tiles(v, w) * splits, at_once = (int64_t)m->multiprocessors * glint_cuda_occupancy(m, v);
  if (tiles > INT32_MAX)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                      "batch is %" PRId64 ", heads_q %" PRId64 ", seqlen_q %" PRId64 ": more than 2^31 tiles", w->batch, w->heads_q,
                      w->seqlen_q);
  plan->tile_q = v->tile_q;
  plan->tile_k = v->tile_k;
  plan->stages = v->stages;
  plan->num_splits = splits;
  plan->threads = v->threads;
  plan->registers = v->registers;
  plan->shared_bytes = v->shared_bytes;
  plan->grid = v->persistent && tiles > at_once ? at_once : tiles;
  plan->waves_x100 = at_once ? tiles * 100 / at_once : 0;
  plan->flops = 2.0 * (double)(w->head_dim + w->head_dim_v) * glint_cuda_visible_pairs(w);
  plan->bytes = view_bytes(&w->q) + view_bytes(&w->k) + view_bytes(&w->v) + view_bytes(&w->o) +
                (w->lse.data ? 4.0 * (double)w->total_q * (double)w->heads_q : 0);
  double peak = m->flops_16bit * (glint_dtype_size(w->q.dtype) == 1 ? 2 : 1);
  if (peak > 0) plan->roofline_seconds = plan->flops / peak;
  if (m->bytes_per_second > 0 && plan->bytes / m->bytes_per_second > plan->roofline_seconds)
    plan->roofline_seconds = plan->bytes / m->bytes_per_second;
  plan->workspace_bytes = family->workspace ? family->workspace(v, w, splits) : 0;
  return GLINT_OK;
}

glint_status glint_cuda_plan(const glint_choice *c, const glint_work *w, int *variant, glint_plan_info *plan, glint_error *error) {
  glint_status status = refuse_always(w, error);
  if (status != GLINT_OK) return status;
  uint32_t need = glint_cuda_features(w);
  for (const glint_variant *v = c->variants; v->name; v++) {
    if (!is_allowed(c, v) || !runs_on(v, c->machine) || v->dtype != (int32_t)w->q.dtype || need & ~v->features || !has_dims(v, w)) continue;
    if (!glint_variant_can(v, w) || (strcmp(c->kernel, v->name) != 0 && !glint_variant_suits(v, w))) continue;
    *variant = (int)(v - c->variants);
    describe_choice(c, v, w, need, plan);
    return fill(c, v, w, plan, error);
  }
  return refuse(c, w, need, error);
}
