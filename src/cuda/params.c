/* From a checked problem to the launch parameters that all forward kernels share. */
#include "cuda/family.h"
#include "cuda/plan.h"

#include <string.h>

#define LOG2E 1.4426950408889634

glint_stride glint_cuda_stride(const glint_view *v, int packed) {
  return (glint_stride){packed ? 0 : v->stride[0], v->stride[1], v->stride[2]};
}

static void fill_scores(const glint_work *w, glint_forward_params *p) {
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
  p->bias = w->bias.data;
  p->bias_batch_stride = w->bias.stride[0];
  p->bias_head_stride = w->bias.stride[1];
  p->bias_row_stride = w->bias.stride[2];
  p->bias_key_stride = w->bias.stride[3];
  p->bias_float = w->bias.dtype == GLINT_FLOAT32;
  p->drop_threshold = w->drop_threshold;
  p->keep_scale = w->keep_scale;
  p->dropout_seed = w->dropout_seed;
  p->dropout_offset = w->dropout_offset;
}

static void fill_lengths(const glint_work *w, glint_forward_params *p) {
  p->seqlen_q = (int32_t)w->seqlen_q;
  p->seqlen_k = (int32_t)w->seqlen_k;
  p->total_q = (int32_t)w->total_q;
  p->total_k = (int32_t)w->total_k;
  p->cu_seqlens_q = w->cu_seqlens_q.data;
  p->cu_seqlens_k = w->cu_seqlens_k.data;
  p->seqused_q = w->seqused_q.data;
  p->seqused_k = w->seqused_k.data;
  p->page_size = (int32_t)w->page_size;
  p->page_table = w->page_table.data;
  p->page_table_stride = w->page_table.stride[0];
}

static void fill_descale(const glint_work *w, glint_forward_params *p) {
  p->descale_q = w->descale_q.data;
  p->descale_k = w->descale_k.data;
  p->descale_v = w->descale_v.data;
  for (int axis = 0; axis < 3; axis++) {
    p->descale_q_stride[axis] = w->descale_q.stride[axis];
    p->descale_k_stride[axis] = w->descale_k.stride[axis];
    p->descale_v_stride[axis] = w->descale_v.stride[axis];
  }
  p->descale_rows_q = (int32_t)w->descale_rows_q;
  p->descale_rows_k = (int32_t)w->descale_rows_k;
  p->descale_rows_v = (int32_t)w->descale_rows_v;
  p->descale_q_group = w->descale_q.shape[1] == w->heads_q || !w->heads_kv ? 1 : (int32_t)(w->heads_q / w->heads_kv);
  p->o_half = w->o.dtype == GLINT_FLOAT16;
}

static int64_t row_tiles(const glint_variant *v, const glint_work *w) {
  const int64_t positions = glint_tile_positions(v, w);
  return (w->seqlen_q + positions - 1) / positions;
}

/* How persistent blocks go through the tiles (kernels/parts/fa3_tile.h). Three eighths of the row blocks for the end: a simulation of 132
 * blocks over the papers' grid comes within 2 percent of perfect balance with it, and loses up to 13 without. */
static void fill_order(const glint_work *w, int64_t l2_bytes, int64_t grid, glint_forward_params *p) {
  const int64_t head_bytes = w->seqlen_k * (w->head_dim + w->head_dim_v) * (int64_t)glint_dtype_size(w->k.dtype),
                all = w->heads_q * w->batch;
  const int64_t groups_in_l2 = head_bytes ? l2_bytes / 2 / head_bytes : 1, tiles = (int64_t)p->q_tiles * p->group;
  int64_t groups = tiles ? (grid + tiles - 1) / tiles : 1; /* query heads that share keys stay together */
  if (groups > groups_in_l2) groups = groups_in_l2;
  const int64_t heads = groups * p->group; /* never more than there are, so that kernels may multiply it by q_tiles */
  p->heads_together = (int32_t)(heads > all ? all : heads < 1 ? 1 : heads);
  p->tail_tiles = p->window_right != GLINT_UNBOUNDED && p->window_left == GLINT_UNBOUNDED ? p->q_tiles * 3 / 8 : 0;
}

void glint_forward_fill(const glint_variant *v, const glint_work *w, int64_t l2_bytes, int64_t grid, int32_t splits,
                        glint_forward_params *p) {
  int packed_q = w->cu_seqlens_q.data != NULL, packed_k = w->cu_seqlens_k.data != NULL;
  memset(p, 0, sizeof *p);
  p->q = w->q.data;
  p->k = w->k.data;
  p->v = w->v.data;
  p->o = w->o.data;
  p->lse = w->lse.data;
  p->q_stride = glint_cuda_stride(&w->q, packed_q);
  p->k_stride = glint_cuda_stride(&w->k, packed_k);
  p->v_stride = glint_cuda_stride(&w->v, packed_k);
  p->o_stride = glint_cuda_stride(&w->o, packed_q);
  p->lse_batch_stride = packed_q ? 0 : w->lse.stride[0];
  p->lse_head_stride = w->lse.stride[1];
  p->batch = (int32_t)w->batch;
  p->heads_q = (int32_t)w->heads_q;
  p->heads_kv = (int32_t)w->heads_kv;
  p->group = w->heads_kv ? (int32_t)(w->heads_q / w->heads_kv) : 1;
  p->head_dim = (int32_t)w->head_dim;
  p->head_dim_v = (int32_t)w->head_dim_v;
  p->o_float = w->o.dtype == GLINT_FLOAT32;
  fill_scores(w, p);
  fill_lengths(w, p);
  fill_descale(w, p);
  p->q_tiles = (int32_t)row_tiles(v, w);
  p->num_splits = splits;
  p->num_tiles = (int32_t)glint_family_of(v)->tiles(v, w) * splits;
  fill_order(w, l2_bytes, grid, p);
}

int64_t glint_query_tiles(const glint_variant *v, const glint_work *w) {
  int64_t tiles = row_tiles(v, w), heads = v->features & FEATURE_GROUPED ? w->heads_kv : w->heads_q;
  /* saturates: the plan refuses what does not fit int32 */
  double all = (double)tiles * (double)heads * (double)w->batch;
  return all > (double)INT64_MAX / 4 ? INT64_MAX / 4 : tiles * heads * w->batch;
}
