/* Attention problems out of files. */
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

#define FIELD(name, kind)                                                                                                                  \
  { #name, offsetof(glint_problem, name), kind }
const problem_field problem_fields[PROBLEM_INPUTS] = {
    FIELD(q, FIELD_VALUES),
    FIELD(k, FIELD_VALUES),
    FIELD(v, FIELD_VALUES),
    FIELD(k_new, FIELD_VALUES),
    FIELD(v_new, FIELD_VALUES),
    FIELD(alibi_slopes, FIELD_FLOATS),
    FIELD(sinks, FIELD_FLOATS),
    FIELD(bias, FIELD_FLOATS),
    FIELD(rotary_cos, FIELD_FLOATS),
    FIELD(rotary_sin, FIELD_FLOATS),
    FIELD(descale_q, FIELD_FLOATS),
    FIELD(descale_k, FIELD_FLOATS),
    FIELD(descale_v, FIELD_FLOATS),
    FIELD(cu_seqlens_q, FIELD_INDICES),
    FIELD(cu_seqlens_k, FIELD_INDICES),
    FIELD(seqused_q, FIELD_INDICES),
    FIELD(seqused_k, FIELD_INDICES),
    FIELD(page_table, FIELD_INDICES),
    FIELD(cache_seqlens, FIELD_INDICES),
};

glint_tensor *problem_tensor(glint_problem *problem, int field) { return (glint_tensor *)((char *)problem + problem_fields[field].offset); }

glint_tensor problem_tensor_of(const io_array *array) {
  glint_tensor tensor = {.data = array->data, .dtype = array->dtype, .rank = array->rank};
  for (int32_t i = 0; i < array->rank; i++) tensor.shape[i] = array->shape[i];
  return tensor;
}

/* ---- sources ---- */

static int ends_in_q(const char *name) {
  size_t length = strlen(name);
  return strcmp(name, "q") == 0 || (length > 2 && strcmp(name + length - 2, ".q") == 0);
}

static char *prefix_of(const char *name) {
  size_t length = strlen(name);
  return strndup(name, length > 2 ? length - 2 : 0);
}

glint_status problem_source_open(const char *path, problem_source *source, glint_error *error) {
  *source = (problem_source){0};
  glint_status status = io_safetensors_read(path, &source->file, error);
  if (status != GLINT_OK) return status;
  source->names = calloc((size_t)source->file.count + 1, sizeof *source->names);
  for (int i = 0; source->names && i < source->file.count; i++)
    if (ends_in_q(source->file.entries[i].name)) source->names[source->count++] = prefix_of(source->file.entries[i].name);
  if (source->count > 0) return GLINT_OK;
  problem_source_close(source);
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: no tensor is named q or NAME.q", path);
}

glint_status problem_source_open_npy(const char *const paths[3], problem_source *source, glint_error *error) {
  *source = (problem_source){.npy = {paths[0], paths[1], paths[2]}, .count = 1};
  source->names = calloc(1, sizeof *source->names);
  if (source->names) source->names[0] = strdup("");
  return source->names ? GLINT_OK : glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory");
}

void problem_source_close(problem_source *source) {
  for (int i = 0; source->names && i < source->count; i++) free((char *)source->names[i]);
  free(source->names);
  io_safetensors_free(&source->file);
  *source = (problem_source){0};
}

/* ---- conversion ---- */

/* Replaces array by itself in another dtype. Rounds once. */
static glint_status convert(io_array *array, glint_dtype dtype, glint_error *error) {
  io_array to;
  glint_status status = io_array_allocate(&to, dtype, array->rank, array->shape, error);
  if (status != GLINT_OK) return status;
  for (int64_t i = 0; i < array->count; i++) glint_store(to.data, dtype, i, glint_load(array->data, array->dtype, i));
  io_array_free(array);
  *array = to;
  return GLINT_OK;
}

static int is_fp8(glint_dtype dtype) { return dtype == GLINT_FLOAT8_E4M3 || dtype == GLINT_FLOAT8_E5M2; }

static glint_status convert_field(loaded_problem *p, int field, glint_dtype dtype, glint_error *error) {
  io_array *array = &p->inputs[field];
  const problem_field *about = &problem_fields[field];
  if (about->kind == FIELD_INDICES) {
    if (array->dtype == GLINT_INT32) return GLINT_OK;
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s is %s; expected int32", about->name, io_dtype_name(array->dtype));
  }
  if (array->dtype == GLINT_INT32) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s is int32; expected floats", about->name);
  glint_dtype target = about->kind == FIELD_FLOATS                           ? GLINT_FLOAT32
                       : dtype != GLINT_DTYPE_NONE && dtype != GLINT_FLOAT64 ? dtype
                       : array->dtype == GLINT_FLOAT64                       ? GLINT_FLOAT32
                                                                             : array->dtype;
  if (target == array->dtype) return GLINT_OK;
  return convert(array, target, error);
}

/* ---- loading ---- */

static glint_status load_named(const problem_source *source, const char *prefix, const char *name, io_array *array, glint_error *error) {
  char full[512];
  snprintf(full, sizeof full, "%s%s%s", prefix, *prefix ? "." : "", name);
  const io_entry *entry = io_safetensors_find(&source->file, full);
  return entry ? io_safetensors_load(&source->file, entry, array, error) : GLINT_OK;
}

static glint_status load_inputs(const problem_source *source, loaded_problem *p, glint_dtype dtype, glint_error *error) {
  for (int i = 0; i < PROBLEM_INPUTS; i++) {
    glint_status status = GLINT_OK;
    if (source->npy[0])
      status = i < 3 ? io_npy_read(source->npy[i], dtype == GLINT_BFLOAT16, &p->inputs[i], error) : GLINT_OK;
    else
      status = load_named(source, p->name, problem_fields[i].name, &p->inputs[i], error);
    if (status != GLINT_OK) return status;
    if (i < 3 && !p->inputs[i].data)
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "there is a %s%sq but no %s%s%s", p->name, *p->name ? "." : "", p->name,
                        *p->name ? "." : "", problem_fields[i].name);
  }
  return source->npy[0] ? GLINT_OK : load_named(source, p->name, "o", &p->stored_o, error);
}

/* [seqlen, heads, head_dim] is one sequence, or packed ones. */
static void add_batch_axis(io_array *array) {
  if (array->rank != 3) return;
  memmove(array->shape + 1, array->shape, 3 * sizeof *array->shape);
  array->shape[0] = 1;
  array->rank = 4;
}

static glint_status allocate_outputs(loaded_problem *p, glint_dtype dtype, glint_error *error) {
  const io_array *q = &p->inputs[0], *v = &p->inputs[2];
  if (q->rank != 4 || v->rank != 4)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s has %d axes; expected [batch, seqlen, heads, head_dim]",
                      q->rank != 4 ? "q" : "v", q->rank != 4 ? q->rank : v->rank);
  glint_dtype output = dtype == GLINT_FLOAT64 ? dtype : is_fp8(q->dtype) ? GLINT_BFLOAT16 : q->dtype;
  int64_t o_shape[4] = {q->shape[0], q->shape[1], q->shape[2], v->shape[3]}, lse_shape[3] = {q->shape[0], q->shape[2], q->shape[1]};
  glint_status status = io_array_allocate(&p->o, output, 4, o_shape, error);
  if (status == GLINT_OK) status = io_array_allocate(&p->lse, GLINT_FLOAT32, 3, lse_shape, error);
  if (status != GLINT_OK) return status;
  /* rows that belong to no sequence are not written by the library */
  memset(p->o.data, 0, (size_t)p->o.count * glint_dtype_size(output));
  memset(p->lse.data, 0, (size_t)p->lse.count * sizeof(float));
  p->api.o = problem_tensor_of(&p->o);
  p->api.lse = problem_tensor_of(&p->lse);
  return GLINT_OK;
}

static glint_status load(const problem_source *source, loaded_problem *p, glint_dtype dtype, glint_error *error) {
  glint_status status = load_inputs(source, p, dtype, error);
  for (int i = 0; status == GLINT_OK && i < PROBLEM_INPUTS; i++) {
    if (!p->inputs[i].data) continue;
    status = convert_field(p, i, dtype, error);
    if (problem_fields[i].kind == FIELD_VALUES) add_batch_axis(&p->inputs[i]);
  }
  for (int i = 0; status == GLINT_OK && i < PROBLEM_INPUTS; i++)
    if (p->inputs[i].data) *problem_tensor(&p->api, i) = problem_tensor_of(&p->inputs[i]);
  add_batch_axis(&p->stored_o);
  return status == GLINT_OK ? allocate_outputs(p, dtype, error) : status;
}

glint_status problem_load(const problem_source *source, int index, const glint_problem *scores, glint_dtype dtype, loaded_problem *p,
                          glint_error *error) {
  *p = (loaded_problem){.name = source->names[index], .api = *scores};
  p->api.struct_size = sizeof p->api;
  glint_error detail = {{0}};
  glint_status status = load(source, p, dtype, &detail);
  if (status == GLINT_OK) return status;
  glint_fail(error, status, "%s%s%s", p->name, *p->name ? ": " : "", detail.text);
  problem_free(p);
  return status;
}

void problem_free(loaded_problem *p) {
  for (int i = 0; i < PROBLEM_INPUTS; i++) io_array_free(&p->inputs[i]);
  io_array_free(&p->o);
  io_array_free(&p->lse);
  io_array_free(&p->stored_o);
}
