/* Kernels of the backward pass, on floats (kernels.h says what each does). Parameters: those of panel_template.h, in whose instantiation
 * this is included. */

/* One strip of C += A B: strip vectors of columns, MR rows; strip is a constant wherever this is inlined. */
static TARGET inline __attribute__((always_inline)) void FN(product_strip)(int strip, const float *a, ptrdiff_t ld_a, int depth,
                                                                           const float *b, ptrdiff_t ld_b, float *c, ptrdiff_t ld_c) {
  vec acc[MR][NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int n = 0; n < strip; n++) acc[i][n] = V(load)(c + i * ld_c + n * VL);
  for (int u = 0; u < depth; u++) {
    vec row[NV];
#pragma GCC unroll 4
    for (int n = 0; n < strip; n++) row[n] = V(load)(b + u * ld_b + n * VL);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
      vec factor = V(broadcast)(a + i * ld_a + u);
#pragma GCC unroll 4
      for (int n = 0; n < strip; n++) acc[i][n] = V(fma)(factor, row[n], acc[i][n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int n = 0; n < strip; n++) V(store)(c + i * ld_c + n * VL, acc[i][n]);
}

static TARGET void FN(add_product)(const float *weights, int keys, const float *packed, int columns, float *c) {
  int n = 0;
  for (; n + NV * VL <= columns; n += NV * VL)
    for (int j = 0; j < keys; j += MR)
      FN(product_strip)(NV, weights + j * NR, NR, NR, packed + n, columns, c + (ptrdiff_t)j * columns + n, columns);
  for (; n + 2 * VL <= columns; n += 2 * VL)
    for (int j = 0; j < keys; j += MR)
      FN(product_strip)(2, weights + j * NR, NR, NR, packed + n, columns, c + (ptrdiff_t)j * columns + n, columns);
  for (; n < columns; n += VL)
    for (int j = 0; j < keys; j += MR)
      FN(product_strip)(1, weights + j * NR, NR, NR, packed + n, columns, c + (ptrdiff_t)j * columns + n, columns);
}

static void FN(pack_rows)(const float *rows, ptrdiff_t ld, int columns, float *packed) {
  for (int r = 0; r < NR; r++) memcpy(packed + (ptrdiff_t)r * columns, rows + r * ld, (size_t)columns * sizeof(float));
}

static TARGET void FN(gradients)(float *s, float *dp, float *ds_weights, int keys, float scale, const float *minus_lse, const float *rest,
                                 const float *delta, const float *keep) {
  const vec factor = V(set1)(scale), log2e = V(set1)(1.4426950408889634f), zero = V(set1)(0.0f);
  (void)ds_weights;
  for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
    for (int n = 0; n < NR; n += VL) {
      ptrdiff_t at = (ptrdiff_t)j * NR + n;
      vec x = V(add)(V(fma)(V(load)(s + at), factor, V(load)(minus_lse + n)), V(load)(rest + n));
      vec p = V(exp2)(V(mul)(x, log2e)), d = V(load)(dp + at), kept = p;
      if (keep) kept = V(mul)(p, V(load)(keep + at)), d = V(mul)(d, V(load)(keep + at));
      V(store)(s + at, kept);
      /* where nothing is seen, NaN in dP must not count */
      V(store)(dp + at, V(select_equal)(p, zero, zero, V(mul)(p, V(sub)(d, V(load)(delta + n)))));
    }
}

static TARGET void FN(cap_slope)(const float *s, int keys, float factor, float *slope) {
  const vec one = V(set1)(1.0f);
  for (int i = 0; i < keys * NR; i += VL) {
    vec t = FN(tanh)(V(mul)(V(load)(s + i), V(set1)(factor)));
    V(store)(slope + i, V(sub)(one, V(mul)(t, t)));
  }
}

static TARGET float FN(dot)(const float *a, const float *b, int64_t n) {
  float sum = 0;
  for (int64_t c = 0; c < n; c++) sum = V(fma_one)(a[c], b[c], sum);
  return sum;
}

static const glint_cpu_backward FN(backward) = {FN(pack_rows), FN(add_product), FN(gradients), FN(dot), FN(cap_slope)};
