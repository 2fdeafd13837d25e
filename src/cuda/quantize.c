/* Quantization on GPUs: up to six launches, of which most calls need one (blocks) or three (maxima, factors, convert). options.kernel and
 * options.arch choose attention kernels; they do not matter here. */
#include "cuda/quantize.h"
#include "cuda/family.h"
#include "cuda/launch.h"
#include "cuda/ranges.h"
#include "quantize_params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(QUANTIZE_CHUNK == GLINT_MEAN_CHUNK && QUANTIZE_SUMS == GLINT_MEAN_SUMS, "kernels and the cpu engine add alike");

enum {
  MOST_THREADS = 512,
  SMALL_THREADS = 256,
  TILE_THREADS = 256,
  SHIFT_WARPS = 8,
  SUM_THREADS = 256,
  SUM_COLUMNS = 8,
  MEAN_COLUMNS = 128
};

int glint_is_quantize(const glint_variant *v) { return strncmp(v->source, "quantize", strlen("quantize")) == 0; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Where the pieces of the workspace start, in floats. */
typedef struct quantize_pieces {
  int64_t maxima[3], multipliers[3], mean, sums, floats;
} quantize_pieces;

/* KEEP of quantize.c: rows of a tile that a thread has. */
static int64_t kept_rows(glint_dtype dtype) { return dtype == GLINT_FLOAT32 ? 2 : 4; }

/* Rows of a tile where factors are not made in one pass: as many as TILE_THREADS threads have at once, and a divisor of the block's rows. */
static int32_t tile_rows(const glint_quantize_tensor *t, int64_t vectors) {
  int64_t most = TILE_THREADS / vectors * kept_rows(t->in.dtype);
  if (!t->block_rows) return (int32_t)most;
  while (t->block_rows % most) most--;
  return (int32_t)most;
}

/* Threads that have all rows of a block at once: whole rows for each, in whole warps. */
static int64_t threads_of_block(const glint_quantize_tensor *t) {
  int64_t rows = ceil_div(t->block_rows, kept_rows(t->in.dtype));
  return ceil_div(rows * ceil_div(t->in.shape[3], QUANTIZE_COLUMNS), 32) * 32;
}

static int in_one_pass(const glint_quantize_work *w, const glint_quantize_tensor *t) {
  return t->block_rows && !w->descale_given && threads_of_block(t) <= MOST_THREADS;
}

/* Everything of an operand that follows from shapes. */
static void shape_operand(const glint_quantize_work *w, const glint_quantize_tensor *t, glint_quantize_operand *o) {
  memset(o, 0, sizeof *o);
  o->seqlen = (int32_t)t->seqlen, o->heads = (int32_t)t->in.shape[2], o->columns = (int32_t)t->in.shape[3];
  o->vectors = (int32_t)ceil_div(o->columns, QUANTIZE_COLUMNS);
  o->vectors_magic = (uint32_t)(65535 / o->vectors + 1);
  o->rows = in_one_pass(w, t) ? (int32_t)t->block_rows : tile_rows(t, o->vectors);
  o->blocks = (int32_t)t->descale.shape[2];
  o->block_tiles = t->block_rows ? (int32_t)(t->block_rows / o->rows) : 0;
  o->tiles = t->block_rows ? o->blocks * o->block_tiles : (int32_t)ceil_div(t->seqlen, o->rows);
  o->heads_a_scale = (int32_t)t->heads_a_scale, o->shared = t->shared;
  int64_t groups = w->lengths.batch * (o->heads / o->heads_a_scale);
  o->slots = o->shared ? 1 : (int32_t)(groups * o->blocks);
  o->slot_tiles = o->shared       ? (int32_t)(w->lengths.batch * o->heads * o->tiles)
                  : t->block_rows ? o->block_tiles
                                  : o->heads_a_scale * o->tiles;
  o->rotate = t->rotate ? (int32_t)glint_rotation_block(o->columns) : 0;
  o->factor = t->rotate ? glint_rotation_factor(o->columns) : 1;
}

static int32_t chunks_of(const glint_quantize_work *w) { return (int32_t)ceil_div(w->lengths.seqlen_k, GLINT_MEAN_CHUNK); }

static quantize_pieces cut_workspace(const glint_quantize_work *w) {
  quantize_pieces p = {.floats = 0};
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++) {
    const glint_quantize_tensor *t = &w->tensor[n];
    glint_quantize_operand o;
    if (!t->in.rank || in_one_pass(w, t)) continue;
    shape_operand(w, t, &o);
    p.maxima[n] = p.floats, p.floats += w->lengths.batch * o.heads * o.tiles;
    p.multipliers[n] = p.floats, p.floats += o.slots;
  }
  if (w->smooth != 1) return p;
  int64_t means = w->lengths.batch * w->lengths.heads_kv * w->lengths.head_dim;
  p.mean = p.floats, p.floats += means;
  p.sums = p.floats, p.floats += means * chunks_of(w);
  return p;
}

/* Tells the device. */
static const void *some_data(const glint_quantize_work *w) {
  const void *data = NULL;
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS && !data; n++) data = w->tensor[n].in.data;
  return data;
}

/* Kernels count rows, tiles and blocks in 32 bits. */
static glint_status refuse_sizes(const glint_quantize_work *w, glint_error *error) {
  const glint_work *l = &w->lengths;
  int64_t longest = l->seqlen_q > l->seqlen_k ? l->seqlen_q : l->seqlen_k, heads = l->batch * l->heads_q;
  if (longest < INT32_MAX / 64 && heads < INT32_MAX / 64 && heads * (longest + 16) < (int64_t)1 << 33 &&
      heads * ceil_div(longest + 16, 16) * 2 < INT32_MAX)
    return GLINT_OK;
  return glint_fail(error, GLINT_ERROR_UNSUPPORTED,
                    "batch %" PRId64 ", heads %" PRId64 ", rows %" PRId64 ": more than the quantization kernels count", l->batch,
                    l->heads_q, longest);
}

glint_status glint_cuda_quantize_workspace(void *state, const glint_quantize_work *w, size_t *bytes, glint_error *error) {
  glint_cuda *cuda = state;
  const glint_machine *m = &cuda->machine[glint_cuda_device_of(cuda, some_data(w))];
  if (m->compute != 90)
    return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "glint_quantize: its kernels need a Hopper GPU, this is %.80s (sm_%" PRId32 ")",
                      m->name, m->compute);
  glint_status status = refuse_sizes(w, error);
  *bytes = (size_t)cut_workspace(w).floats * sizeof(float);
  return status;
}

/* ---- parameters ---- */

static int is_aligned(const glint_view *v) {
  int64_t size = (int64_t)glint_dtype_size(v->dtype);
  int bad = (uintptr_t)v->data % 16 != 0 || v->shape[3] % QUANTIZE_COLUMNS != 0;
  for (int axis = 0; axis < 3; axis++) bad |= v->shape[axis] > 1 && v->stride[axis] * size % 16 != 0;
  return !bad;
}

typedef struct quantize_call {
  glint_cuda *cuda;
  const glint_scope *scope;
  const glint_quantize_work *w;
  quantize_pieces pieces;
  float *workspace;
  glint_error *error;
} quantize_call;

static void fill_operand(const quantize_call *call, int n, glint_quantize_operand *o) {
  const glint_quantize_work *w = call->w;
  const glint_quantize_tensor *t = &w->tensor[n];
  const glint_view *cu = t->of_keys ? &w->lengths.cu_seqlens_k : &w->lengths.cu_seqlens_q;
  shape_operand(w, t, o);
  o->in = t->in.data, o->out = t->out.data;
  o->in_stride = glint_cuda_stride(&t->in, cu->data != NULL), o->out_stride = glint_cuda_stride(&t->out, cu->data != NULL);
  o->cu_seqlens = cu->data;
  o->seqused = (t->of_keys ? &w->lengths.seqused_k : &w->lengths.seqused_q)->data;
  o->descale = t->descale.data;
  o->descale_batch = t->descale.stride[0], o->descale_head = t->descale.stride[1], o->descale_block = t->descale.stride[2];
  o->aligned = is_aligned(&t->in) && is_aligned(&t->out);
  if (call->workspace) o->maxima = call->workspace + call->pieces.maxima[n], o->multipliers = call->workspace + call->pieces.multipliers[n];
  if (n != GLINT_QUANTIZE_K || !w->smooth) return;
  int64_t columns = w->lengths.head_dim;
  o->mean = w->smooth == 1 ? call->workspace + call->pieces.mean : w->k_mean.data;
  o->mean_batch = w->smooth == 1 ? w->lengths.heads_kv * columns : w->k_mean.stride[0];
  o->mean_head = w->smooth == 1 ? columns : w->k_mean.stride[1];
  o->mean_aligned = (uintptr_t)o->mean % 16 == 0 && o->mean_batch % 4 == 0 && o->mean_head % 4 == 0 && columns % QUANTIZE_COLUMNS == 0;
}

/* ---- launches ---- */

static void tell_simulator(const quantize_call *call) {
  const glint_quantize_work *w = call->w;
  const struct {
    const char *name;
    const glint_view *view;
  } tensors[] = {{"q", &w->tensor[0].in},
                 {"k", &w->tensor[1].in},
                 {"v", &w->tensor[2].in},
                 {"q_fp8", &w->tensor[0].out},
                 {"k_fp8", &w->tensor[1].out},
                 {"v_fp8", &w->tensor[2].out},
                 {"descale_q", &w->tensor[0].descale},
                 {"descale_k", &w->tensor[1].descale},
                 {"descale_v", &w->tensor[2].descale},
                 {"cu_seqlens_q", &w->lengths.cu_seqlens_q},
                 {"cu_seqlens_k", &w->lengths.cu_seqlens_k},
                 {"seqused_q", &w->lengths.seqused_q},
                 {"seqused_k", &w->lengths.seqused_k},
                 {"k_mean", &w->k_mean},
                 {"lse_shift", &w->lse_shift}};
  enum { TENSORS = sizeof tensors / sizeof tensors[0] };
  glint_sim_range ranges[TENSORS + 1];
  for (int i = 0; i < TENSORS; i++)
    ranges[i] = (glint_sim_range){tensors[i].name, tensors[i].view->data, glint_view_bytes(tensors[i].view)};
  ranges[TENSORS] = (glint_sim_range){"workspace", call->workspace, (size_t)call->pieces.floats * sizeof(float)};
  call->cuda->driver.simulator->launch_ranges(ranges, TENSORS + 1);
}

static glint_status launch(const quantize_call *call, const char *dtype, const char *step, int64_t grid, int64_t threads, int64_t shared,
                           void *params) {
  char name[96];
  CUkernel kernel;
  snprintf(name, sizeof name, "glint_quantize_%s%s%s", dtype, *dtype ? "_" : "", step);
  int index = glint_variant_index(name);
  if (index < 0) return glint_fail(call->error, GLINT_ERROR_INTERNAL, "there is no kernel %s", name);
  glint_status status = glint_cuda_kernel(call->cuda, index, &kernel, call->error);
  if (status != GLINT_OK) return status;
  if (call->cuda->only_device) tell_simulator(call);
  glint_start start = {kernel, call->w->stream, grid, threads, shared, 0};
  return glint_cuda_start(&call->cuda->driver, &start, params, call->error);
}

static glint_dtype input_dtype(const glint_quantize_work *w) {
  int n = 0;
  while (!w->tensor[n].in.rank) n++;
  return w->tensor[n].in.dtype;
}

static const char *dtype_name_of(const glint_quantize_work *w) {
  glint_dtype dtype = input_dtype(w);
  return dtype == GLINT_BFLOAT16 ? "bf16" : dtype == GLINT_FLOAT16 ? "fp16" : "float32";
}

/* One of the steps on tiles, a block each. */
static glint_status launch_tiles(const quantize_call *call, const char *step, int64_t tiles, int64_t threads, glint_quantize_params *p) {
  char name[32];
  int rotate = 0;
  for (int n = 0; n < p->operands; n++) {
    rotate |= p->operand[n].rotate;
    p->operand[n].step = (int32_t)(threads / p->operand[n].vectors);
  }
  snprintf(name, sizeof name, "%s%s", step, rotate ? "_rotate" : "");
  return tiles ? launch(call, dtype_name_of(call->w), name, tiles, threads, 128, p) : GLINT_OK;
}

/* The operands that go in one pass, or the others. */
static void collect(const quantize_call *call, int one_pass, glint_quantize_params *p) {
  const glint_quantize_work *w = call->w;
  memset(p, 0, sizeof *p);
  glint_rotation_signs(w->rotation_seed, p->signs);
  p->largest = glint_fp8_largest(w->dtype), p->e5m2 = w->dtype == GLINT_FLOAT8_E5M2, p->given = w->descale_given;
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++)
    if (w->tensor[n].in.rank && in_one_pass(w, &w->tensor[n]) == one_pass) fill_operand(call, n, &p->operand[p->operands++]);
}

static int64_t number_tiles(const glint_quantize_work *w, glint_quantize_params *p) {
  int64_t blocks = 0;
  for (int n = 0; n < p->operands; n++) {
    p->operand[n].first_block = (int32_t)blocks;
    blocks += w->lengths.batch * p->operand[n].heads * p->operand[n].tiles;
  }
  p->blocks = (int32_t)blocks;
  return blocks;
}

static int64_t number_slots(glint_quantize_params *p) {
  int64_t slots = 0;
  for (int n = 0; n < p->operands; n++) p->operand[n].first_block = (int32_t)slots, slots += p->operand[n].slots;
  return slots;
}

static glint_status quantize_blocks(const quantize_call *call) {
  glint_quantize_params p;
  int64_t threads = 32;
  collect(call, 1, &p);
  int64_t tiles = number_tiles(call->w, &p);
  for (int n = 0; n < GLINT_QUANTIZE_TENSORS; n++) {
    const glint_quantize_tensor *t = &call->w->tensor[n];
    if (t->in.rank && in_one_pass(call->w, t) && threads_of_block(t) > threads) threads = threads_of_block(t);
  }
  return launch_tiles(call, threads > SMALL_THREADS ? "large_blocks" : "blocks", tiles, threads, &p);
}

static glint_status quantize_in_two_passes(const quantize_call *call) {
  glint_quantize_params p;
  glint_status status = GLINT_OK;
  collect(call, 0, &p);
  if (!p.operands) return GLINT_OK;
  int64_t blocks = number_tiles(call->w, &p);
  if (!p.given) status = launch_tiles(call, "maxima", blocks, TILE_THREADS, &p);
  int64_t slots = number_slots(&p);
  if (status == GLINT_OK) status = launch(call, "", "factors", slots, 256, 128, &p);
  number_tiles(call->w, &p);
  if (status == GLINT_OK) status = launch_tiles(call, "convert", blocks, TILE_THREADS, &p);
  return status;
}

static void fill_mean(const quantize_call *call, glint_quantize_mean_params *p) {
  const glint_quantize_work *w = call->w;
  const glint_work *l = &w->lengths;
  const glint_view *q = &w->tensor[GLINT_QUANTIZE_Q].in, *k = &w->tensor[GLINT_QUANTIZE_K].in;
  int64_t heads = w->smooth == 1 ? l->heads_kv : w->k_mean.shape[1];
  memset(p, 0, sizeof *p);
  p->q = q->data, p->k = k->data;
  p->q_stride = glint_cuda_stride(q, l->cu_seqlens_q.data != NULL), p->k_stride = glint_cuda_stride(k, l->cu_seqlens_k.data != NULL);
  p->cu_seqlens_q = l->cu_seqlens_q.data, p->seqused_q = l->seqused_q.data;
  p->cu_seqlens_k = l->cu_seqlens_k.data, p->seqused_k = l->seqused_k.data;
  p->mean = w->k_mean.data, p->mean_batch = w->k_mean.stride[0], p->mean_head = w->k_mean.stride[1];
  if (w->smooth == 1) {
    p->mean_copy = p->mean, p->copy_batch = p->mean_batch, p->copy_head = p->mean_head;
    p->sums = call->workspace + call->pieces.sums, p->mean = call->workspace + call->pieces.mean;
    p->mean_batch = l->heads_kv * l->head_dim, p->mean_head = l->head_dim;
  }
  p->shift = w->lse_shift.data;
  p->shift_batch = l->cu_seqlens_q.data ? 0 : w->lse_shift.stride[0];
  p->shift_head = w->lse_shift.stride[1], p->shift_row = w->lse_shift.stride[2];
  p->batch = (int32_t)l->batch, p->heads_q = (int32_t)l->heads_q, p->heads_kv = (int32_t)heads, p->group = (int32_t)(l->heads_q / heads);
  p->columns = (int32_t)l->head_dim;
  p->seqlen_q = (int32_t)l->seqlen_q, p->seqlen_k = (int32_t)l->seqlen_k, p->chunks = chunks_of(w);
  p->k_aligned = is_aligned(k);
  p->scale = w->scale;
}

static glint_status find_means(const quantize_call *call) {
  glint_quantize_mean_params p;
  glint_status status = GLINT_OK;
  fill_mean(call, &p);
  int64_t heads = (int64_t)p.batch * p.heads_kv, sums = heads * p.chunks * ceil_div(p.columns, SUM_COLUMNS);
  if (sums) status = launch(call, dtype_name_of(call->w), "sums", ceil_div(sums, SUM_THREADS), SUM_THREADS, 0, &p);
  if (status != GLINT_OK) return status;
  return launch(call, "", "means", heads * ceil_div(p.columns, MEAN_COLUMNS), MEAN_COLUMNS * GLINT_MEAN_SUMS,
                MEAN_COLUMNS * GLINT_MEAN_SUMS * 4, &p);
}

static glint_status find_shifts(const quantize_call *call) {
  glint_quantize_mean_params p;
  fill_mean(call, &p);
  int64_t rows = (int64_t)p.batch * p.heads_q * p.seqlen_q;
  return rows ? launch(call, dtype_name_of(call->w), "shifts", ceil_div(rows, SHIFT_WARPS), 32 * SHIFT_WARPS, 0, &p) : GLINT_OK;
}

static glint_status run_steps(quantize_call *call) {
  glint_status status = GLINT_OK;
  size_t bytes = (size_t)call->pieces.floats * sizeof(float);
  void *memory = call->workspace;
  if (!memory && bytes) status = glint_cuda_workspace(call->cuda, call->scope, call->w->stream, bytes, &memory, call->error);
  call->workspace = memory;
  if (status == GLINT_OK && call->w->smooth == 1) status = find_means(call);
  if (status == GLINT_OK) status = quantize_blocks(call);
  if (status == GLINT_OK) status = quantize_in_two_passes(call);
  if (status == GLINT_OK && call->w->lse_shift.data) status = find_shifts(call);
  return status;
}

glint_status glint_cuda_quantize(void *state, const glint_quantize_work *w, void *workspace, glint_error *error) {
  glint_scope scope;
  quantize_call call = {.cuda = state, .scope = &scope, .w = w, .pieces = cut_workspace(w), .workspace = workspace, .error = error};
  glint_status status = glint_cuda_enter(call.cuda, some_data(w), &scope, error);
  if (status != GLINT_OK) return status;
  status = run_steps(&call);
  glint_cuda_leave(call.cuda, &scope);
  return status;
}
