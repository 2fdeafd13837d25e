// Gradients on their way out: rows of dq, dk, dv in 16 bits or float32, added to or overwritten.
#ifndef GLINT_BACKWARD_OUTPUT_H
#define GLINT_BACKWARD_OUTPUT_H

// The rows of one head of one sequence.
typedef struct output_rows {
  char *row0;
  i64 row_bytes;
  i32 rows, columns; // that exist
  int is_float, accumulate;
} output_rows;

FN output_rows output_of(void *out, const glint_stride *stride, i32 batch, i32 head, i32 first_row, i32 rows, i32 columns, int is_float,
                         int accumulate) {
  const i32 size = is_float ? 4 : 2;
  output_rows o = {(char *)out + (batch * stride->batch + head * stride->head + first_row * stride->row) * size,
                   stride->row * size,
                   rows,
                   columns,
                   is_float,
                   accumulate};
  return o;
}

// Whether whole 16-byte chunks can be stored.
FN int leaves_in_chunks(const output_rows *o) { return !(FEATURES & FEATURE_UNALIGNED) && !o->is_float && !o->accumulate; }

FN void store_element(char *at, int is_float, int accumulate, float x) {
  if (is_float) {
    if (accumulate) x += gmem_load_f32(at);
    gmem_store_f32(at, x);
  } else {
    if (accumulate) x += UNPACK_LO(gmem_load_2(at));
    gmem_store_2(at, (u16)PACK(x, 0.f));
  }
}

// Two neighbouring columns, the first even, from any row. Aligned rows have an even number of columns and pairs are stored whole.
FN void store_columns(const output_rows *o, i32 row, i32 column, float x0, float x1) {
  if (row >= o->rows || column >= o->columns) return;
  char *at = o->row0 + row * o->row_bytes + column * (o->is_float ? 4 : 2);
  if (FEATURES & FEATURE_UNALIGNED) {
    store_element(at, o->is_float, o->accumulate, x0);
    if (column + 1 < o->columns) store_element(at + (o->is_float ? 4 : 2), o->is_float, o->accumulate, x1);
  } else if (o->is_float) {
    u32 bits[2] = {0, 0};
    if (o->accumulate) gmem_load_8(bits, at);
    bits[0] = bits_from_f32(x0 + f32_from_bits(bits[0]));
    bits[1] = bits_from_f32(x1 + f32_from_bits(bits[1]));
    gmem_store_8(at, bits);
  } else {
    u32 old = o->accumulate ? gmem_load_4(at) : 0;
    gmem_store_4(at, PACK(x0 + UNPACK_LO(old), x1 + UNPACK_HI(old)));
  }
}

#endif
