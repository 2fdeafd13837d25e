/* q, k and v of a file to FP8 by glint_quantize, and the same problem in bfloat16 to compare with. */
#include "run_quantize.h"

#include <math.h>
#include <string.h>

#include "convert.h"

enum { DESCALE_Q = 10 }; /* of problem_fields */

int run_is_fp8(glint_dtype dtype) { return dtype == GLINT_FLOAT8_E4M3 || dtype == GLINT_FLOAT8_E5M2; }

/* Replaces array by itself in another dtype. */
static glint_status convert(io_array *array, glint_dtype dtype, glint_error *error) {
  io_array to;
  glint_status status = io_array_allocate(&to, dtype, array->rank, array->shape, error);
  if (status != GLINT_OK) return status;
  for (int64_t i = 0; i < array->count; i++) glint_store(to.data, dtype, i, glint_load(array->data, array->dtype, i));
  io_array_free(array);
  *array = to;
  return GLINT_OK;
}

/* ---- factors ---- */

static int64_t sequences_of(const glint_problem *p) { return p->cu_seqlens_q.data ? p->cu_seqlens_q.shape[0] - 1 : p->q.shape[0]; }

/* Rows that the API divides into blocks. */
static int64_t longest(const glint_tensor *t, const glint_tensor *cu, int64_t bound) {
  return cu->data && bound && bound < t->shape[1] ? bound : t->shape[1];
}

static glint_status allocate_factors(const run_quantization *how, loaded_problem *p, int n, glint_error *error) {
  const glint_problem *api = &p->api;
  const int64_t heads = n ? api->k.shape[2] : api->q.shape[2];
  const int64_t rows =
      n ? longest(&api->k, &api->cu_seqlens_k, api->max_seqlen_k) : longest(&api->q, &api->cu_seqlens_q, api->max_seqlen_q);
  int64_t shape[3] = {1, 0, 0};
  int32_t rank = 1;
  if (p->inputs[DESCALE_Q + n].data)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: there already is a %s", problem_fields[n].name,
                      problem_fields[DESCALE_Q + n].name);
  if (how->scales != RUN_SCALES_TENSOR) shape[0] = sequences_of(api), shape[1] = api->k.shape[2], rank = 2;
  if (how->scales == RUN_SCALES_BLOCK)
    shape[1] = heads, shape[2] = rows > how->block_rows ? (rows + how->block_rows - 1) / how->block_rows : 1, rank = 3;
  glint_status status = io_array_allocate(&p->inputs[DESCALE_Q + n], GLINT_FLOAT32, rank, shape, error);
  if (status == GLINT_OK) *problem_tensor(&p->api, DESCALE_Q + n) = problem_tensor_of(&p->inputs[DESCALE_Q + n]);
  return status;
}

/* ---- the call ---- */

static void add_lengths(const glint_problem *p, glint_quantization *q) {
  q->cu_seqlens_q = p->cu_seqlens_q, q->cu_seqlens_k = p->cu_seqlens_k, q->seqused_q = p->seqused_q;
  q->seqused_k = p->cache_seqlens.data ? p->cache_seqlens : p->seqused_k;
  q->max_seqlen_q = p->max_seqlen_q, q->max_seqlen_k = p->max_seqlen_k;
}

static glint_status call(const glint_quantization *q, glint_error *error) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  glint_context *context;
  if (glint_open(&options, &context) != GLINT_OK) return glint_fail(error, GLINT_ERROR_INTERNAL, "%s", glint_last_error(NULL));
  glint_status status = glint_quantize(context, q);
  if (status != GLINT_OK) glint_fail(error, status, "%s", glint_last_error(context));
  glint_close(context);
  return status;
}

/* A pool of pages has no sequences of its own: k and v go as they lie, by themselves. */
static glint_status call_for(const loaded_problem *p, glint_quantization *q, glint_error *error) {
  if (!p->api.page_table.data) {
    add_lengths(&p->api, q);
    return call(q, error);
  }
  glint_quantization pool = *q;
  pool.q = pool.q_fp8 = pool.descale_q = (glint_tensor){0};
  q->k = q->k_fp8 = q->descale_k = q->v = q->v_fp8 = q->descale_v = (glint_tensor){0};
  q->cu_seqlens_q = p->api.cu_seqlens_q, q->seqused_q = p->api.seqused_q, q->max_seqlen_q = p->api.max_seqlen_q;
  glint_status status = call(q, error);
  return status == GLINT_OK ? call(&pool, error) : status;
}

static glint_status refuse(const run_quantization *how, const loaded_problem *p, glint_error *error) {
  const char *why = NULL;
  if (run_is_fp8(p->inputs[0].dtype)) why = "--dtype, --rotate, --smooth, --scales: q, k and v are FP8 already";
  if (p->api.k_new.data) why = "k_new and v_new cannot be turned into FP8 here";
  if (p->api.page_table.data && (how->smooth || how->scales != RUN_SCALES_TENSOR))
    why = "page_table: only --scales tensor, and no --smooth, for a pool of pages";
  if (how->smooth && (p->api.softcap > 0 || p->api.sinks.data)) why = "--smooth: softcap and sinks do not shift with the scores";
  return why ? glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s", why) : GLINT_OK;
}

glint_status run_quantize(const run_quantization *how, glint_dtype dtype, loaded_problem *p, io_array *shift, glint_error *error) {
  glint_quantization q = {.struct_size = sizeof q, .rotate = how->rotate, .rotation_seed = 1, .smooth = how->smooth, .scale = p->api.scale};
  glint_tensor *const in[] = {&q.q, &q.k, &q.v}, *const out[] = {&q.q_fp8, &q.k_fp8, &q.v_fp8},
                      *const factors[] = {&q.descale_q, &q.descale_k, &q.descale_v};
  io_array fp8[3] = {{0}};
  *shift = (io_array){0};
  glint_status status = refuse(how, p, error);
  if (status != GLINT_OK) return status;
  for (int n = 0; n < 3 && status == GLINT_OK; n++) {
    status = io_array_allocate(&fp8[n], dtype, p->inputs[n].rank, p->inputs[n].shape, error);
    if (status == GLINT_OK) status = allocate_factors(how, p, n, error);
    if (status != GLINT_OK) break;
    memset(fp8[n].data, 0, (size_t)fp8[n].count); /* rows of no sequence are not written */
    *in[n] = problem_tensor_of(&p->inputs[n]), *out[n] = problem_tensor_of(&fp8[n]);
    *factors[n] = problem_tensor_of(&p->inputs[DESCALE_Q + n]);
  }
  if (status == GLINT_OK && how->smooth) {
    status = io_array_allocate(shift, GLINT_FLOAT32, 3, p->lse.shape, error);
    if (status == GLINT_OK) memset(shift->data, 0, (size_t)shift->count * sizeof(float)), q.lse_shift = problem_tensor_of(shift);
  }
  if (status == GLINT_OK) status = call_for(p, &q, error);
  for (int n = 0; n < 3; n++) {
    if (status != GLINT_OK) {
      io_array_free(&fp8[n]);
      continue;
    }
    io_array_free(&p->inputs[n]);
    p->inputs[n] = fp8[n];
    *problem_tensor(&p->api, n) = problem_tensor_of(&p->inputs[n]);
  }
  if (status == GLINT_OK) status = convert(&p->o, GLINT_BFLOAT16, error);
  p->api.o = problem_tensor_of(&p->o);
  return status;
}

/* ---- bfloat16 ---- */

glint_status run_bf16_make(const loaded_problem *p, run_bf16 *b, glint_error *error) {
  glint_status status = GLINT_OK;
  *b = (run_bf16){.api = p->api};
  for (int n = 0; n < 3 && status == GLINT_OK; n++) {
    const io_array *from = &p->inputs[n];
    status = io_array_allocate(&b->inputs[n], GLINT_BFLOAT16, from->rank, from->shape, error);
    for (int64_t i = 0; status == GLINT_OK && i < from->count; i++)
      glint_store(b->inputs[n].data, GLINT_BFLOAT16, i, glint_load(from->data, from->dtype, i));
    if (status == GLINT_OK) *problem_tensor(&b->api, n) = problem_tensor_of(&b->inputs[n]);
  }
  if (status == GLINT_OK) status = io_array_allocate(&b->o, GLINT_FLOAT32, 4, p->o.shape, error);
  if (status != GLINT_OK) {
    run_bf16_free(b);
    return status;
  }
  memset(b->o.data, 0, (size_t)b->o.count * sizeof(float));
  b->api.o = problem_tensor_of(&b->o);
  b->api.lse = (glint_tensor){0};
  return GLINT_OK;
}

void run_bf16_free(run_bf16 *b) {
  for (int n = 0; n < 3; n++) io_array_free(&b->inputs[n]);
  io_array_free(&b->o);
}

void run_differences(const io_array *a, const io_array *b, double *rmse, double *largest) {
  double sum = 0;
  *largest = 0;
  for (int64_t i = 0; i < b->count; i++) {
    double gap = fabs(glint_load(a->data, a->dtype, i) - glint_load(b->data, b->dtype, i));
    sum += gap * gap;
    if (!(gap <= *largest)) *largest = gap;
  }
  *rmse = sqrt(sum / (double)(b->count ? b->count : 1));
}
