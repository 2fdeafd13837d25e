// The end of a tile: o / sum goes to the tensor, and lse = ln(sum of exp(s)) to its place.
#ifndef GLINT_PARTS_FP8_EPILOGUE_H
#define GLINT_PARTS_FP8_EPILOGUE_H

// Takes the sink, a logit without a value, into a row's sum; returns the factor for o, and the row's lse in log2 units.
FN float finish_row(const glint_forward_params *p, float shift, float sum, int empty, i32 head, float *lse) {
  if (SINKS && p->sinks) {
    float sink = gmem_load_f32_nc(p->sinks + head) * LOG2E, top = empty ? sink : max_f32(shift, sink);
    float kept = empty ? 0.f : exp2_approx(shift - top), total = sum * kept + (sink == top ? 1.f : exp2_approx(sink - top));
    *lse = top + log2_approx(total);
    return empty ? 0.f : kept * rcp_approx(total);
  }
  *lse = empty ? -INFINITY : shift + log2_approx(sum);
  return empty ? 0.f : rcp_approx(sum);
}

// What becomes of o[i]. Rows that exist but are not used become 0, whatever their Q held.
typedef struct fp8_finish {
  float factor[2];
  int used[2];
} fp8_finish;
FN float finished(const float *o, int i, const fp8_finish *f) { return PACKED && !f->used[i / 2 % 2] ? 0.f : o[i] * f->factor[i / 2 % 2]; }

// Sums of whole rows, and from them lse and the factor for o, V's among it. lse comes from the exponentials as they were, but o is divided by the
// sum of P as it was rounded: where one key has most of the weight, or many have the same, their rounding cancels.
FN void finish_rows(const glint_forward_params *p, const fp8_rows *r, const fa3_tile *t, i32 row, float v, fp8_finish *f) {
  UNROLL
  for (int i = 0; i < 2; i++) {
    float sum = r->sum[i], lse;
    sum += shfl_xor_f32(sum, 1);
    sum += shfl_xor_f32(sum, 2);
    int empty = r->shift[i] == -INFINITY && sum == 0.f; // a NaN sum is not empty
    i32 this_row = row + 8 * i;
    f->used[i] = this_row < t->seqlen_q;
    f->factor[i] = finish_row(p, r->shift[i], sum, empty, t->head, &lse) * v;
    if (ONES) {
      float exact = sum;
      if (BLOCK_SCALES) {
        exact = r->p_sum[i] + shfl_xor_f32(r->p_sum[i], 1);
        exact += shfl_xor_f32(exact, 2);
      }
      if (r->rounded[i] > 0.f) f->factor[i] *= exact * rcp_approx(r->rounded[i]);
    }
    if (PACKED && this_row >= t->seqlen_q) lse = -INFINITY;
    if (p->lse && tid() % 4 == 0 && this_row < t->rows)
      gmem_store_f32(p->lse + t->batch * p->lse_batch_stride + t->head * p->lse_head_stride + t->row_q + this_row, lse * LN2);
  }
}

FN i64 o_offset(const glint_forward_params *p, const fa3_tile *t, i32 row) {
  return t->batch * p->o_stride.batch + (t->row_q + row) * p->o_stride.row + t->head * p->o_stride.head;
}

// Boxes [first, first + O_BOXES) of o, 16 rows, into the warp's stage. Conflict-free: 8 rows take 8 different chunks.
FN void stage_o(u32 stage, const float *o, const fp8_finish *f, int first, int fp16) {
  u32 lane = tid() % 32, matrix = lane / 8, row = (matrix & 1) * 8 + lane % 8;
  u32 at = stage + row * ROW_BYTES + ((matrix >> 1 ^ (row & 7)) << 4);
  UNROLL
  for (int j = 0; j < O_BOXES * 4; j++) {
    u32 packed[4] = {0, 0, 0, 0}; // 0: columns beyond HEAD_DIM_V, which TMA reads but does not write
    UNROLL
    for (int i = 0; i < 4; i++)
      if ((first * 4 + j) * 16 < HEAD_DIM_V) {
        int at_o = 8 * (first * 4 + j) + 2 * i;
        float x = finished(o, at_o, f), y = finished(o, at_o + 1, f);
        packed[i] = fp16 ? pack_f16(x, y) : pack_bf16(x, y);
      }
    stmatrix_x4((at ^ (u32)(j % 4) << 5) + (u32)(j / 4) * 16 * ROW_BYTES, packed);
  }
}

// The stage to the tensor by 16-byte stores, a row's 128 bytes by eight lanes. For packed lengths, where a box of TMA would reach into the next
// sequence.
FN void copy_stage(const glint_forward_params *p, u32 stage, const fa3_tile *t, i32 row0, int first) {
  u32 lane = tid() % 32, chunk = lane % 8;
  NO_UNROLL
  for (u32 box = 0; box < O_BOXES; box++) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
      u32 row = 4 * i + lane / 8, w[4];
      smem_load_16(w, stage + box * 16 * ROW_BYTES + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
      i32 column = (first + (i32)box) * 64 + (i32)chunk * 8, to = row0 + (i32)row;
      if (to < t->rows && column < p->head_dim_v) gmem_store_16((u16 *)p->o + o_offset(p, t, to) + column, w);
    }
  }
}

// float32 goes straight from the registers: four lanes fill 32 bytes of a row.
FN void store_o_float(const glint_forward_params *p, const fa3_tile *t, const float *o, const fp8_finish *f, i32 row) {
  i32 column = (i32)(tid() % 4 * 2);
  UNROLL
  for (int i = 0; i < 2; i++) {
    float *to = (float *)p->o + o_offset(p, t, row + 8 * i) + column;
    i32 columns = row + 8 * i < t->rows ? p->head_dim_v - column : 0;
    UNROLL
    for (int j = 0; j < HEAD_DIM_V / 8; j++) {
      u32 w[2] = {bits_from_f32(finished(o, 4 * j + 2 * i, f)), bits_from_f32(finished(o, 4 * j + 2 * i + 1, f))};
      if (8 * j < columns) gmem_store_8(to + 8 * j, w);
    }
  }
}

// Each warp stores its own 16 rows, by TMA in boxes of 16 rows, and waits for nobody.
FN void store_o(const glint_forward_params *p, u32 smem, u32 consumer, const float *o, const fp8_finish *f, const fa3_tile *t) {
  u32 warp = tid() % 128 / 32, stage = o_stage(smem, consumer * 4 + warp);
  i32 row0 = t->m * TILE_Q + (i32)(consumer * 64 + warp * 16);
  if (FLOAT_O && p->o_float) {
    store_o_float(p, t, o, f, row0 + (i32)(tid() % 32 / 4));
    return;
  }
  UNROLL
  for (int first = 0; first < BOXES_O; first += O_BOXES) {
    if (!PACKED && tid() % 32 == 0) tma_store_wait_read(0);
    warp_sync();
    if (p->o_half)
      stage_o(stage, o, f, first, 1);
    else
      stage_o(stage, o, f, first, 0);
    if (!PACKED) fence_proxy_async();
    warp_sync();
    if (PACKED) {
      copy_stage(p, stage, t, row0, first);
    } else if (tid() % 32 == 0) {
      NO_UNROLL
      for (i32 i = 0; i < O_BOXES; i++) tma_store_4d(&p->map_o, stage + (u32)i * 16 * ROW_BYTES, (first + i) * 64, t->head, row0, t->batch);
      tma_store_commit();
    }
  }
}

#endif
