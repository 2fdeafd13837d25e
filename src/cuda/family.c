/* One row for each kernel source, and what it needs from the host. */
#include "cuda/family.h"
#include "trace.h"

#include <string.h>

static CUresult encode(const glint_driver *driver, const glint_view *view, uint32_t columns, uint32_t heads, uint32_t rows,
                       tensor_map *map) {
  static const int types[] = {[GLINT_FLOAT32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                              [GLINT_BFLOAT16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                              [GLINT_FLOAT16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                              [GLINT_FLOAT8_E4M3] = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                              [GLINT_FLOAT8_E5M2] = CU_TENSOR_MAP_DATA_TYPE_UINT8};
  static const int axes[4] = {3, 2, 1, 0}; /* column, head, row, batch */
  const uint64_t size = glint_dtype_size(view->dtype);
  const uint32_t box[4] = {columns, heads, rows, 1}, steps[4] = {1, 1, 1, 1};
  uint64_t extent[4], stride[4];
  for (int i = 0; i < 4; i++) {
    extent[i] = (uint64_t)view->shape[axes[i]];
    stride[i] = (uint64_t)view->stride[axes[i]] * size;
    /* a map has no empty axes (nothing is loaded then), and the stride of an axis of length 1 must still be a multiple of 16 */
    if (extent[i] == 0) extent[i] = 1;
    if (extent[i] == 1) stride[i] = 16;
  }
  return driver->cuTensorMapEncodeTiled(map, types[view->dtype], 4, view->data, extent, stride + 1, box, steps, 0,
                                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 0);
}

glint_status glint_tensor_map(const glint_driver *driver, const glint_view *view, uint32_t columns, uint32_t rows, tensor_map *map,
                              glint_error *error) {
  return glint_driver_result(driver, encode(driver, view, columns, 1, rows, map), "cuTensorMapEncodeTiled", error);
}

/* Instrumented variants, which options.kernel asks for by name, leave their stamps in the workspace. */
static int traces(const glint_variant *v) { return strncmp(v->name, "glint_trace_", 12) == 0; }

/* Rows of partial results: [split][batch][heads_q][seqlen_q] */
static int64_t partial_rows(const glint_work *w, int32_t splits) { return splits * w->batch * w->heads_q * w->seqlen_q; }

/* Boxes of q and o in a grouped variant hold the heads of a group; boxes of keys lie within a page. */
static glint_status prepare_grouped(const glint_driver *driver, const glint_variant *v, const glint_work *w, void *workspace,
                                    glint_forward_params *p, glint_error *error) {
  const uint32_t columns = 128 / (uint32_t)glint_dtype_size(w->q.dtype), heads = (uint32_t)p->group,
                 positions = (uint32_t)glint_tile_positions(v, w),
                 keys = (uint32_t)(w->page_size && w->page_size < v->tile_k ? w->page_size : v->tile_k);
  p->o_partial = workspace;
  p->lse_partial = p->o_partial + partial_rows(w, p->num_splits) * w->head_dim_v;
  CUresult result = encode(driver, &w->q, columns, heads, positions, &p->map_q);
  if (!result) result = encode(driver, &w->k, columns, 1, keys, &p->map_k);
  if (!result) result = encode(driver, &w->v, columns, 1, keys, &p->map_v);
  if (!result) result = encode(driver, &w->o, columns, heads, positions, &p->map_o);
  return glint_driver_result(driver, result, "cuTensorMapEncodeTiled", error);
}

/* forward_fa3.c: boxes of 64 columns (128 bytes: the swizzle's width); a consumer warpgroup owns 64 rows of q and o. */
static glint_status prepare_fa3(const glint_driver *driver, const glint_variant *v, const glint_work *w, void *workspace,
                                glint_forward_params *p, glint_error *error) {
  if (traces(v)) p->trace = workspace;
  if (v->features & FEATURE_GROUPED) return prepare_grouped(driver, v, w, workspace, p, error);
  uint32_t columns = 128 / (uint32_t)glint_dtype_size(w->q.dtype);
  uint32_t o_columns = 128 / (uint32_t)glint_dtype_size(w->o.dtype);
  glint_status status = glint_tensor_map(driver, &w->q, columns, 64, &p->map_q, error);
  if (status == GLINT_OK) status = glint_tensor_map(driver, &w->k, columns, (uint32_t)v->tile_k, &p->map_k, error);
  if (status == GLINT_OK) status = glint_tensor_map(driver, &w->v, columns, (uint32_t)v->tile_k, &p->map_v, error);
  if (status == GLINT_OK) status = glint_tensor_map(driver, &w->o, o_columns, 64, &p->map_o, error);
  return status;
}

/* forward_fp8.c: boxes of 128 columns for q, k, v; each warp of a consumer stores its 16 rows of o in boxes of 64 columns. float32 o goes
 * without a map. */
static glint_status prepare_fp8(const glint_driver *driver, const glint_variant *v, const glint_work *w, void *workspace,
                                glint_forward_params *p, glint_error *error) {
  (void)workspace;
  glint_status status = glint_tensor_map(driver, &w->q, 128, 64, &p->map_q, error);
  if (status == GLINT_OK) status = glint_tensor_map(driver, &w->k, 128, (uint32_t)v->tile_k, &p->map_k, error);
  if (status == GLINT_OK) status = glint_tensor_map(driver, &w->v, 128, (uint32_t)v->tile_k, &p->map_v, error);
  if (status == GLINT_OK && w->o.dtype != GLINT_FLOAT32) status = glint_tensor_map(driver, &w->o, 64, 16, &p->map_o, error);
  return status;
}

/* forward_fa1.c: a block a head; between two blocks of keys o, max and sum of every row wait in the workspace. */
static int64_t heads_fa1(const glint_variant *v, const glint_work *w) {
  (void)v;
  return w->batch * w->heads_q;
}

static size_t workspace_fa1(const glint_variant *v, const glint_work *w, int32_t splits) {
  (void)v, (void)splits;
  return (size_t)(w->batch * w->heads_q * w->seqlen_q * (w->head_dim_v + 2)) * sizeof(float);
}

static glint_status prepare_fa1(const glint_driver *driver, const glint_variant *v, const glint_work *w, void *workspace,
                                glint_forward_params *p, glint_error *error) {
  (void)driver, (void)v, (void)error;
  p->q_tiles = 1;
  p->o_partial = (float *)workspace;
  p->lse_partial = p->o_partial + w->batch * w->heads_q * w->seqlen_q * w->head_dim_v;
  return GLINT_OK;
}

static size_t workspace_fa3(const glint_variant *v, const glint_work *w, int32_t splits) {
  if (traces(v)) return GLINT_TRACE_BYTES;
  return splits > 1 ? (size_t)partial_rows(w, splits) * (size_t)(w->head_dim_v + 1) * sizeof(float) : 0;
}

static const glint_family families[] = {{"forward_fa2.c", glint_query_tiles, NULL, NULL},
                                        {"forward_fa1.c", heads_fa1, workspace_fa1, prepare_fa1},
                                        {"forward_fa3.c", glint_query_tiles, workspace_fa3, prepare_fa3},
                                        {"forward_fp8.c", glint_query_tiles, NULL, prepare_fp8}};

int glint_is_combine(const glint_variant *v) { return strcmp(v->source, "forward_combine.c") == 0; }

const glint_family *glint_family_of(const glint_variant *variant) {
  for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
    if (strcmp(families[i].source, variant->source) == 0) return &families[i];
  return &families[0]; /* a kernel that needs nothing of its own: one block for TILE_Q rows */
}
