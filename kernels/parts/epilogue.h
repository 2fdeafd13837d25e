/* From accumulators to o and lse. */
#ifndef GLINT_PARTS_EPILOGUE_H
#define GLINT_PARTS_EPILOGUE_H
#include "parts/sequence.h"
#include "parts/softmax.h"
#include "parts/warp_mma.h"

/* o /= sum; the sink, a logit without a value, joins the sum first. Returns nothing but leaves in lse[m][h] the row's log-sum-exp. Rows that
 * saw no key, or that lie beyond the used ones, become 0 whatever their accumulators hold. */
FN void finish_rows(const glint_forward_params *p, const tile_place *t, i32 row, row_stats *r, float o[M_TILES][V_TILES][4],
                    float lse[M_TILES][2]) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    float sum = row_sum(r->sum[m][h]), reference = r->reference[m][h], factor = 1.f;
    i32 live = row + 16 * m + 8 * h < t->used_q;
    int seen = live && sum != 0.f;
    if (!seen) reference = -INFINITY, sum = 0.f;
    if ((FEATURES & FEATURE_SINKS) && p->sinks && live) {
      float sink = gmem_load_f32_nc(p->sinks + t->head) * (LOG2E / REFERENCE_LOG2), top = max_f32(reference, sink);
      factor = exp2_approx((reference - top) * REFERENCE_LOG2);
      sum = sum * factor + exp2_approx((sink - top) * REFERENCE_LOG2);
      reference = top;
    }
    lse[m][h] = sum == 0.f ? -INFINITY : (REFERENCE_LOG2 * LN2) * reference + LN2 * log2_approx(sum);
    factor = factor / sum;
    if ((FEATURES & FEATURE_DROPOUT) && p->drop_threshold) factor *= p->keep_scale;
    UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 2 * h; i < 2 * h + 2; i++) o[m][n][i] = seen ? o[m][n][i] * factor : 0.f;
  }
}

FN void store_lse(const glint_forward_params *p, const tile_place *t, i32 row, const float lse[M_TILES][2]) {
  if (!p->lse || tid() % 4) return;
  float *out = p->lse + t->batch * p->lse_batch_stride + t->head * p->lse_head_stride + t->first_q + row;
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    if (row + 16 * m + 8 * h < t->len_q) gmem_store_f32(out + 16 * m + 8 * h, lse[m][h]);
  }
}

/* The warp's rows of boxes first to last - 1 from shared memory to o, `lanes` lanes a row. */
FN void store_boxes(const glint_forward_params *p, const tile_place *t, u32 smem, i32 warp_row, i32 lanes, i32 first, i32 last) {
  const i32 at_once = 32 / lanes, row = warp_row + (i32)(tid() % 32) / lanes, chunk = (i32)tid() % lanes;
  char *out = (char *)row_address(p->o, &p->o_stride, t->batch, t->head, t->first_q + t->row + row, 2) + chunk * 16;
  UNROLL for (i32 pass = 0; pass < 16 * M_TILES / at_once; pass++) {
    UNROLL for (i32 box = first; box < last; box++) {
      if (t->row + row + pass * at_once < t->len_q && box * BOX_COLUMNS + 8 * chunk < p->head_dim_v) {
        u32 words[4];
        smem_load_16(words, smem + (u32)TILE_OFFSET(TILE_Q, HEAD_DIM_V, row + pass * at_once, box * 8 + chunk));
        gmem_store_16(out + box * 128, words);
      }
    }
    out += at_once * p->o_stride.row * 2;
  }
}

/* o in the type of the inputs: through the warp's own rows of the Q tile (no longer needed), so that it leaves in 16-byte chunks, eight lanes
 * a row. Only this warp touches them; a lane's store waits for the warp's last ldmatrix of Q, which reads for all its lanes. */
FN void store_o_16(const glint_forward_params *p, const tile_place *t, u32 smem, i32 warp_row, const float o[M_TILES][V_TILES][4]) {
  u32 lane = tid() % 32;
  warp_sync();
  UNROLL for (u32 m = 0; m < M_TILES; m++) UNROLL for (u32 h = 0; h < 2; h++) UNROLL for (u32 n = 0; n < V_TILES; n++) {
    u32 at = TILE_OFFSET(TILE_Q, HEAD_DIM_V, (u32)warp_row + 16 * m + 8 * h + lane / 4, n) + lane % 4 * 4;
    smem_store_4(smem + at, pack_16(o[m][n][2 * h], o[m][n][2 * h + 1]));
  }
  warp_sync();
  const i32 whole_boxes = HEAD_DIM_V / BOX_COLUMNS;
  store_boxes(p, t, smem, warp_row, 8, 0, whole_boxes);
  if (HEAD_DIM_V % BOX_COLUMNS) store_boxes(p, t, smem, warp_row, 4, whole_boxes, whole_boxes + 1);
}

/* o element by element: float32 output, or rows without alignment. */
FN void store_o_elements(const glint_forward_params *p, const tile_place *t, i32 row, const float o[M_TILES][V_TILES][4]) {
  UNROLL for (i32 m = 0; m < M_TILES; m++) UNROLL for (i32 h = 0; h < 2; h++) {
    if (row + 16 * m + 8 * h >= t->len_q) continue;
    char *out = (char *)row_address(p->o, &p->o_stride, t->batch, t->head, t->first_q + row + 16 * m + 8 * h, p->o_float ? 4 : 2);
    UNROLL for (i32 n = 0; n < V_TILES; n++) UNROLL for (i32 i = 0; i < 2; i++) {
      i32 column = 8 * n + (i32)(tid() % 4) * 2 + i;
      float value = o[m][n][2 * h + i];
      if (column >= p->head_dim_v) continue;
      if (p->o_float)
        gmem_store_f32((float *)out + column, value);
      else
        gmem_store_2((u16 *)out + column, (u16)pack_16(value, 0.f));
    }
  }
}
#endif
