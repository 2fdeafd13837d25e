/* The few-rows kernels (rows.h says what each does). Parameters: those of panel_template.h, in whose instantiation this is included, and
 *   STRIP   vectors of columns that accumulate keeps in registers for 4 rows (twice that for fewer rows)
 *   TILE_ROWS  defined: the includer has kernels of that kind in FN(tile_rows) (AMX) */
#if !defined STRIP
#error "rows_template.h: STRIP must be defined"
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET

/* VL elements at element i of a row; dtype is a constant wherever this is inlined. */
INLINE vec FN(load_any)(const void *row, int i, glint_dtype dtype) {
  if (dtype == GLINT_FLOAT32) return V(load)((const float *)row + i);
  if (dtype == GLINT_BFLOAT16) return V(load_bf16)((const uint16_t *)row + i);
  return V(load_f16)((const uint16_t *)row + i);
}

/* What is left to ask for: this row from `at` to `end`, then `left` more. */
typedef struct FN(asked) {
  const void *const *rows;
  const char *at, *end;
  int64_t bytes;
  int left, each; /* each: lines in one of the kernel's steps */
} FN(asked);

INLINE FN(asked) FN(ask_in)(const glint_cpu_soon *soon, int steps) {
  FN(asked) asked = {.rows = soon->rows, .bytes = (soon->bytes + 63) / 64 * 64, .left = soon->count};
  asked.each = ((int)(asked.bytes / 64) * soon->count + steps - 1) / steps;
  return asked;
}

INLINE void FN(ask)(FN(asked) * asked) {
  for (int lines = asked->each; lines > 0; lines--) {
    if (asked->at == asked->end) {
      if (asked->left == 0) return;
      asked->left--;
      asked->at = *asked->rows++;
      asked->end = asked->at + asked->bytes;
    }
    __builtin_prefetch(asked->at, 0, 2);
    asked->at += 64;
  }
}

INLINE void FN(scores_rows)(int rows, const float *q, ptrdiff_t ld_q, const void *const *keys, ptrdiff_t at, int count, glint_dtype dtype,
                            int head_dim, float *s, const glint_cpu_soon *soon) {
  int together = VL / rows;
  FN(asked) asked = FN(ask_in)(soon, (count + together - 1) / together);
  for (int j = 0; j < count; j += together) {
    vec acc[VL];
    FN(ask)(&asked);
#pragma GCC unroll 16
    for (int n = 0; n < VL; n++) acc[n] = V(set1)(0.0f);
    for (int i = 0; i < head_dim; i += VL) {
      vec b[GLINT_CPU_ROWS_MAX];
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) b[r] = V(load)(q + r * ld_q + i);
#pragma GCC unroll 16
      for (int a = 0; a < together; a++) {
        vec k = FN(load_any)((const char *)keys[j + a] + at, i, dtype);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[a * rows + r] = V(fma)(k, b[r], acc[a * rows + r]);
      }
    }
    V(store)(s + j * rows, V(sum_each)(acc));
  }
}

INLINE void FN(accumulate_rows)(int rows, const float *p, const void *const *values, ptrdiff_t at, int count, glint_dtype dtype,
                                int head_dim_v, float *o, ptrdiff_t ld_o, const float *alpha, const glint_cpu_soon *soon) {
  const int strip = rows == 4 ? STRIP : 2 * STRIP;
  FN(asked) asked = FN(ask_in)(soon, count * ((head_dim_v + strip * VL - 1) / (strip * VL)));
  for (int c = 0; c < head_dim_v; c += strip * VL) {
    vec acc[GLINT_CPU_ROWS_MAX * STRIP];
    int whole = c + strip * VL <= head_dim_v;
    int n_end = whole ? strip : (head_dim_v - c) / VL;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
      for (int n = 0; n < strip; n++)
        acc[r * strip + n] = n < n_end ? V(mul)(V(load)(o + r * ld_o + c + n * VL), V(set1)(alpha[r])) : V(set1)(0.0f);
    for (int j = 0; j < count; j++) {
      FN(ask)(&asked);
#pragma GCC unroll 8
      for (int n = 0; n < strip; n++) {
        if (!whole && n >= n_end) break;
        vec v = FN(load_any)((const char *)values[j] + at, c + n * VL, dtype);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[r * strip + n] = V(fma)(v, V(broadcast)(p + j * rows + r), acc[r * strip + n]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
      for (int n = 0; n < strip; n++)
        if (n < n_end) V(store)(o + r * ld_o + c + n * VL, acc[r * strip + n]);
  }
}

/* One copy of a kernel for each number of rows and dtype. */
#define EACH(call)                                                                                                                         \
  switch (dtype) {                                                                                                                         \
  case GLINT_FLOAT32: EACH_ROWS(call, GLINT_FLOAT32) break;                                                                                \
  case GLINT_BFLOAT16: EACH_ROWS(call, GLINT_BFLOAT16) break;                                                                              \
  default: EACH_ROWS(call, GLINT_FLOAT16)                                                                                                  \
  }
#define EACH_ROWS(call, type)                                                                                                              \
  if (rows == 1)                                                                                                                           \
    call(1, type);                                                                                                                         \
  else if (rows == 2)                                                                                                                      \
    call(2, type);                                                                                                                         \
  else                                                                                                                                     \
    call(4, type);

static TARGET void FN(scores_few)(int rows, const float *q, ptrdiff_t ld_q, const void *const *keys, ptrdiff_t at, int count,
                                  glint_dtype dtype, int head_dim, float *s, const glint_cpu_soon *soon) {
#define CALL(n, type) FN(scores_rows)(n, q, ld_q, keys, at, count, type, head_dim, s, soon)
  EACH(CALL)
#undef CALL
}

static TARGET void FN(accumulate_few)(int rows, const float *p, const void *const *values, ptrdiff_t at, int count, glint_dtype dtype,
                                      int head_dim_v, float *o, ptrdiff_t ld_o, const float *alpha, const glint_cpu_soon *soon) {
#define CALL(n, type) FN(accumulate_rows)(n, p, values, at, count, type, head_dim_v, o, ld_o, alpha, soon)
  EACH(CALL)
#undef CALL
}
#undef EACH
#undef EACH_ROWS

/* Lane n of a vector belongs to row n % rows, key n / rows. */
static TARGET void FN(change_few)(int rows, float *s, int floats, const glint_cpu_rows_change *change) {
  float slope[VL], position[VL];
  for (int n = 0; n < VL; n++) {
    slope[n] = change->slope ? change->slope[n % rows] : 0;
    position[n] = change->slope ? change->position[n % rows] - (float)(n / rows) : 0;
  }
  for (int i = 0; i < floats; i += VL) {
    vec x = V(load)(s + i);
    if (change->cap > 0) x = V(mul)(V(set1)(change->cap), FN(tanh)(x));
    if (change->slope) {
      vec distance = V(abs)(V(sub)(V(load)(position), V(set1)((float)(i / rows))));
      x = V(sub)(x, V(mul)(V(load)(slope), distance));
    }
    V(store)(s + i, x);
  }
}

static TARGET float FN(exp2_one)(float x) {
  float y[VL];
  V(store)(y, V(exp2)(V(set1)(x)));
  return y[0];
}

static TARGET void FN(softmax_few)(int rows, float *s, int count, const glint_cpu_rows_change *change, float unit, float *m, float *l,
                                   float *alpha) {
  const float minus_inf = -__builtin_inff();
  float lanes[VL], safe[VL] = {0};
  int floats = (count * rows + VL - 1) / VL * VL;
  if (change->cap > 0 || change->slope) FN(change_few)(rows, s, floats, change);
  for (int i = count * rows; i < floats; i++) s[i] = minus_inf;
  vec top = V(set1)(minus_inf), sum = V(set1)(0.0f);
  for (int i = 0; i < floats; i += VL) top = V(max)(V(load)(s + i), top);
  V(store)(lanes, top);
  for (int r = 0; r < rows; r++) {
    float highest = minus_inf, old = m[r];
    for (int n = r; n < VL; n += rows) highest = lanes[n] > highest ? lanes[n] : highest;
    if (highest > old + GLINT_CPU_RESCALE_THRESHOLD / unit) m[r] = highest;
    float subtract = m[r] == minus_inf ? 0 : m[r];
    alpha[r] = m[r] == old ? 1.0f : FN(exp2_one)((old - subtract) * unit);
    for (int n = r; n < VL; n += rows) safe[n] = subtract;
  }
  vec base = V(load)(safe), factor = V(set1)(unit);
  for (int i = 0; i < floats; i += VL) {
    vec p = V(exp2)(V(mul)(V(sub)(V(load)(s + i), base), factor));
    sum = V(add)(sum, p);
    V(store)(s + i, p);
  }
  V(store)(lanes, sum);
  for (int r = 0; r < rows; r++) {
    float total = 0;
    for (int n = r; n < VL; n += rows) total += lanes[n];
    l[r] = l[r] * alpha[r] + total;
  }
}

#ifdef TILE_ROWS
static const glint_cpu_tile_rows FN(tile_rows);
static const glint_cpu_rows FN(rows) = {VL, FN(scores_few), FN(softmax_few), FN(accumulate_few), &FN(tile_rows)};
#else
static const glint_cpu_rows FN(rows) = {VL, FN(scores_few), FN(softmax_few), FN(accumulate_few), NULL};
#endif
#undef INLINE
#undef STRIP
