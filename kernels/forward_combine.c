// Partial results of several parts of the keys become o and lse: the second kernel of a forward pass that splits keys (Dao et al. 2023,
// "Flash-Decoding"). A warp takes one row of one head. Every part s left its normalised share o_s and lse_s in log2 units; with
// w_s = 2^(lse_s - top), o = sum w_s o_s / sum w_s and lse = top + log2(sum w_s). The order of summation is fixed.
#include "params.h"

#include "isa/sm90.h"

#define LN2   0.69314718f
#define LOG2E 1.44269504f
#define WARPS (THREADS / 32)

FN float max_of_warp(float x) {
  UNROLL
  for (u32 d = 1; d < 32; d *= 2) x = max_f32(x, shfl_xor_f32(x, d));
  return x;
}

FN float sum_of_warp(float x) {
  UNROLL
  for (u32 d = 1; d < 32; d *= 2) x += shfl_xor_f32(x, d);
  return x;
}

// Four columns, rounded to o's type, by a lane that has them
FN void store_columns(void *o, const float *x) {
  u32 w[2];
  UNROLL
  for (int i = 0; i < 2; i++) w[i] = DTYPE == DTYPE_BF16 ? pack_bf16(x[2 * i], x[2 * i + 1]) : pack_f16(x[2 * i], x[2 * i + 1]);
  gmem_store_8(o, w);
}

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_forward_params) {
  grid_dependency_wait();
  i64 rows = (i64)p.batch * p.heads_q * p.seqlen_q, row = (i64)block_id_x() * WARPS + tid() / 32;
  if (row >= rows) return;
  i32 lane = (i32)(tid() % 32), head = (i32)(row / p.seqlen_q % p.heads_q), i = (i32)(row % p.seqlen_q);
  i64 batch = row / p.seqlen_q / p.heads_q;

  int unused = p.seqused_q && i >= (i32)gmem_load_4_nc(p.seqused_q + batch);
  float top = -INFINITY, total = 0.f, sink = p.sinks && !unused ? gmem_load_f32_nc(p.sinks + head) * LOG2E : -INFINITY;
  NO_UNROLL
  for (i32 s = lane; s < p.num_splits; s += 32) {
    float lse = gmem_load_f32(p.lse_partial + s * rows + row);
    top = max_f32(top, lse == lse ? lse : INFINITY); // a NaN must not pass for an empty part
  }
  top = max_of_warp(top);
  int empty = top == -INFINITY; // no key: o is 0, and only a sink keeps lse from -inf
  if (sink > top) top = sink;
  NO_UNROLL
  for (i32 s = lane; s < p.num_splits; s += 32) total += empty ? 0.f : exp2_approx(gmem_load_f32(p.lse_partial + s * rows + row) - top);
  total = sum_of_warp(total);
  if (sink > -INFINITY) total += exp2_approx(sink - top);
  if (p.lse && lane == 0)
    gmem_store_f32(p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride + i, (top + log2_approx(total)) * LN2);

  u16 *o = (u16 *)p.o + batch * p.o_stride.batch + i * p.o_stride.row + head * p.o_stride.head;
  NO_UNROLL
  for (i32 column = 4 * lane; column < p.head_dim_v; column += 128) {
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
    for (i32 s = 0; s < p.num_splits; s++) {
      u32 part[4];
      gmem_load_16(part, p.o_partial + (s * rows + row) * p.head_dim_v + column);
      float weight = exp2_approx(gmem_load_f32(p.lse_partial + s * rows + row) - top);
      UNROLL
      for (int x = 0; x < 4; x++) sum[x] = fma_f32(weight, f32_from_bits(part[x]), sum[x]);
    }
    float scale = empty ? 0.f : rcp_approx(total);
    UNROLL
    for (int x = 0; x < 4; x++) sum[x] = empty ? 0.f : sum[x] * scale;
    store_columns(o + column, sum);
  }
}
