/* The panel kernels (kernels.h says what each does), instantiated once per instruction set. Parameters:
 *   SUFFIX   appended to every name here
 *   VEC      which vec_ISA.h: its operations are used as OPERATION_VEC
 *   TARGET   attribute of every function
 *   MR, NV   register block: MR keys (or columns of V) x NV vectors of query rows
 *   BF16     1: words are pairs of bfloat16, and PAIR(a, b) makes a vector of pairs (a low) from two vectors of floats
 *   DOT(a, b, c)  c + a . b on vectors of words
 *   OWN_PRODUCTS  defined: the includer brings pack_v, scores, accumulate, attend and element itself (AMX)
 * Undefines none of them: the includer ends with its table. */
#if !defined SUFFIX || !defined VEC || !defined TARGET || !defined MR || !defined NV || !defined BF16
#error "panel_template.h: SUFFIX, VEC, TARGET, MR, NV and BF16 must be defined"
#endif
#if BF16 && !defined PAIR
#error "panel_template.h: BF16 needs PAIR"
#endif
#if !defined OWN_PRODUCTS && !defined DOT
#error "panel_template.h: DOT must be defined"
#endif
#define FN(name)     GLINT_CAT(name, SUFFIX)
#define V(operation) GLINT_CAT(operation, VEC)
#define vec          V(vec)
#define VL           V(VL)
#define NR           (NV * VL)

static TARGET void FN(to_float)(float *dst, const void *src, glint_dtype dtype, int64_t n, float scale) {
  vec factor = V(set1)(scale);
  int64_t i = 0;
  switch (dtype) {
  case GLINT_FLOAT32: {
    const float *from = src;
    for (; i + VL <= n; i += VL) V(store)(dst + i, V(mul)(V(load)(from + i), factor));
    for (; i < n; i++) dst[i] = from[i] * scale;
    break;
  }
  case GLINT_BFLOAT16: {
    const uint16_t *from = src;
    for (; i + VL <= n; i += VL) V(store)(dst + i, V(mul)(V(load_bf16)(from + i), factor));
    for (; i < n; i++) dst[i] = glint_float_from_bf16(from[i]) * scale;
    break;
  }
  case GLINT_FLOAT16: {
    const uint16_t *from = src;
    for (; i + VL <= n; i += VL) V(store)(dst + i, V(mul)(V(load_f16)(from + i), factor));
    for (; i < n; i++) dst[i] = glint_float_from_f16(from[i]) * scale;
    break;
  }
  default:
    for (; i < n; i++) dst[i] = (float)glint_load(src, dtype, i) * scale;
  }
}

static TARGET void FN(from_float)(void *dst, glint_dtype dtype, const float *src, int64_t n, float scale) {
  vec factor = V(set1)(scale);
  int64_t i = 0;
  if (dtype == GLINT_FLOAT32) {
    float *to = dst;
    for (; i + VL <= n; i += VL) V(store)(to + i, V(mul)(V(load)(src + i), factor));
    for (; i < n; i++) to[i] = src[i] * scale;
  } else if (dtype == GLINT_BFLOAT16) {
    uint16_t *to = dst;
    for (; i + VL <= n; i += VL) V(store_bf16)(to + i, V(mul)(V(load)(src + i), factor));
    for (; i < n; i++) to[i] = glint_bf16_from_float(src[i] * scale);
  } else {
    uint16_t *to = dst;
    for (; i + VL <= n; i += VL) V(store_f16)(to + i, V(mul)(V(load)(src + i), factor));
    for (; i < n; i++) to[i] = glint_f16_from_float(src[i] * scale);
  }
}

static TARGET void FN(transpose)(const float *src, ptrdiff_t ld_src, float *dst, ptrdiff_t ld_dst, int rows, int columns) {
  for (int r = 0; r < rows; r += VL)
    for (int c = 0; c < columns; c += VL) {
      vec t[VL];
#pragma GCC unroll 16
      for (int i = 0; i < VL; i++) t[i] = V(load)(src + (r + i) * ld_src + c);
      V(transpose)(t);
#pragma GCC unroll 16
      for (int i = 0; i < VL; i++) V(store)(dst + (c + i) * ld_dst + r, t[i]);
    }
}

/* 1 when no word of row holds an infinity or NaN; n a multiple of VL. x * 0 is 0 for finite x only. */
static TARGET int FN(finite)(const float *row, int n) {
  vec zero = V(set1)(0.0f), sum = zero;
  for (int i = 0; i < n; i += VL) sum = V(fma)(V(load)(row + i), zero, sum);
#if BF16
  /* the upper half decides for the float above; here the lower halves, one element further down */
  for (int i = 0; i < n; i += VL) sum = V(fma)(V(low_half)(V(load)(row + i)), zero, sum);
#endif
  return V(all_equal)(sum, zero);
}

/* Asks for a row that is packed soon: the first block of an item was not asked for before. */
static inline void FN(ask_row)(const void *row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row + i);
}
enum { GLINT_CAT(AHEAD, SUFFIX) = 8 };

static TARGET void FN(pack_k)(const void *const *rows, const float *scales, int count, int padded, glint_dtype dtype, int head_dim,
                              int units_d, float *k) {
  for (int j = 0; j < count; j++) {
    float *to = k + (ptrdiff_t)j * units_d;
    if (j + FN(AHEAD) < count) FN(ask_row)(rows[j + FN(AHEAD)], head_dim * (int64_t)glint_dtype_size(dtype));
#if BF16
    (void)scales;
    memcpy(to, rows[j], (size_t)head_dim * 2);
    memset((char *)to + head_dim * 2, 0, (size_t)units_d * 4 - (size_t)head_dim * 2);
#else
    FN(to_float)(to, rows[j], dtype, head_dim, scales ? scales[j] : 1.0f);
    for (int c = head_dim; c < units_d; c++) to[c] = 0;
#endif
  }
  memset(k + (ptrdiff_t)count * units_d, 0, (size_t)(padded - count) * (size_t)units_d * sizeof(float));
}

#if BF16
/* to[c] = the pair (low[c], high[c]); high may be NULL (zeros). columns a multiple of VL and at least n. */
static TARGET void FN(interleave)(const uint16_t *low, const uint16_t *high, int n, int columns, float *to) {
  int c = 0;
  for (; c + VL <= n; c += VL) V(store)(to + c, GLINT_CAT(interleave, VEC)(low + c, high ? high + c : NULL));
  for (; c < columns; c++) {
    uint32_t word = c < n ? low[c] | (high ? (uint32_t)high[c] << 16 : 0) : 0;
    memcpy(to + c, &word, sizeof word);
  }
}
#endif

#ifndef OWN_PRODUCTS
static TARGET int FN(pack_v)(const void *const *rows, const float *scales, int count, int padded, glint_dtype dtype, int head_dim_v,
                             int columns, float *v, float *scratch) {
  int finite = 1;
  (void)scratch;
#if BF16
  (void)scales;
  (void)dtype;
  for (int j = 0; j < padded; j += 2) {
    float *to = v + (ptrdiff_t)(j / 2) * columns;
    for (int n = j + FN(AHEAD); n < j + FN(AHEAD) + 2 && n < count; n++) FN(ask_row)(rows[n], head_dim_v * 2);
    if (j < count) {
      FN(interleave)(rows[j], j + 1 < count ? rows[j + 1] : NULL, head_dim_v, columns, to);
      finite &= FN(finite)(to, columns);
    } else
      memset(to, 0, (size_t)columns * sizeof(float));
  }
#else
  for (int j = 0; j < count; j++) {
    float *to = v + (ptrdiff_t)j * columns;
    if (j + FN(AHEAD) < count) FN(ask_row)(rows[j + FN(AHEAD)], head_dim_v * (int64_t)glint_dtype_size(dtype));
    FN(to_float)(to, rows[j], dtype, head_dim_v, scales ? scales[j] : 1.0f);
    for (int c = head_dim_v; c < columns; c++) to[c] = 0;
    finite &= FN(finite)(to, columns);
  }
  memset(v + (ptrdiff_t)count * columns, 0, (size_t)(padded - count) * (size_t)columns * sizeof(float));
#endif
  return finite;
}

static void *FN(element)(float *v, int key, int column, int columns) {
#if BF16
  return (char *)(v + (ptrdiff_t)(key / 2) * columns + column) + key % 2 * 2;
#else
  return v + (ptrdiff_t)key * columns + column;
#endif
}

static TARGET void FN(scores)(const float *q, const float *k, int units_d, int keys, float *s) {
  for (int j = 0; j < keys; j += MR) {
    vec acc[MR][NV];
    const float *kj = k + (ptrdiff_t)j * units_d;
#pragma GCC unroll 8
    for (int a = 0; a < MR; a++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) acc[a][n] = V(set1)(0.0f);
    for (int u = 0; u < units_d; u++) {
      vec b[NV];
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) b[n] = V(load)(q + (ptrdiff_t)u * NR + n * VL);
#pragma GCC unroll 8
      for (int a = 0; a < MR; a++) {
        vec word = V(broadcast)(kj + (ptrdiff_t)a * units_d + u);
#pragma GCC unroll 4
        for (int n = 0; n < NV; n++) acc[a][n] = DOT(word, b[n], acc[a][n]);
      }
    }
#pragma GCC unroll 8
    for (int a = 0; a < MR; a++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) V(store)(s + (ptrdiff_t)(j + a) * NR + n * VL, acc[a][n]);
  }
}

static TARGET void FN(accumulate)(const float *p, const float *v, int first, int keys, int columns, float *o, const float *alpha) {
  int units = BF16 ? keys / 2 : keys;
  v += (ptrdiff_t)(BF16 ? first / 2 : first) * columns;
  for (int c = 0; c < columns; c += MR) {
    vec acc[MR][NV];
    float *oc = o + (ptrdiff_t)c * NR;
#pragma GCC unroll 8
    for (int a = 0; a < MR; a++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) acc[a][n] = V(load)(oc + a * NR + n * VL);
    if (alpha) {
#pragma GCC unroll 8
      for (int a = 0; a < MR; a++)
#pragma GCC unroll 4
        for (int n = 0; n < NV; n++) acc[a][n] = V(mul)(acc[a][n], V(load)(alpha + n * VL));
    }
    for (int u = 0; u < units; u++) {
      vec b[NV];
      const float *vu = v + (ptrdiff_t)u * columns + c;
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) b[n] = V(load)(p + (ptrdiff_t)u * NR + n * VL);
#pragma GCC unroll 8
      for (int a = 0; a < MR; a++) {
        vec word = V(broadcast)(vu + a);
#pragma GCC unroll 4
        for (int n = 0; n < NV; n++) acc[a][n] = DOT(word, b[n], acc[a][n]);
      }
    }
#pragma GCC unroll 8
    for (int a = 0; a < MR; a++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) V(store)(oc + a * NR + n * VL, acc[a][n]);
  }
}
#endif

/* tanh: below 0.3 the odd Taylor polynomial of degree 11 (truncation error 1e-8 relative), above 1 - 2 / (e^2x + 1). */
static TARGET inline __attribute__((always_inline)) vec FN(tanh)(vec x) {
  vec a = V(abs)(x), x2 = V(mul)(x, x);
  vec poly = V(fma)(x2, V(set1)(-1382.0f / 155925), V(set1)(62.0f / 2835));
  poly = V(fma)(x2, poly, V(set1)(-17.0f / 315));
  poly = V(fma)(x2, poly, V(set1)(2.0f / 15));
  poly = V(fma)(x2, poly, V(set1)(-1.0f / 3));
  vec near_zero = V(fma)(V(mul)(x, x2), poly, x);
  /* e^20 is beyond float's reach of 1: limiting the argument keeps the exponential finite; NaN must stay */
  vec limited = V(select_greater)(a, V(set1)(20.0f), V(set1)(20.0f), a);
  vec e = V(exp2)(V(mul)(limited, V(set1)(2.885390081777927f)));
  vec far = V(sub)(V(set1)(1.0f), V(div)(V(set1)(2.0f), V(add)(e, V(set1)(1.0f))));
  return V(select_greater)(V(set1)(0.3f), a, near_zero, V(copysign)(far, x));
}

static TARGET void FN(change)(float *s, int first, int keys, const glint_cpu_scores *change, float factor) {
  vec scale = V(set1)(factor), cap = V(set1)(change->cap);
  for (int j = 0; j < keys; j++)
    for (int n = 0; n < NR; n += VL) {
      float *at = s + (ptrdiff_t)j * NR + n;
      vec x = V(mul)(V(load)(at), scale);
      if (change->cap > 0) x = V(mul)(cap, FN(tanh)(x));
      if (change->slope) {
        vec distance = V(abs)(V(sub)(V(load)(change->position + n), V(set1)((float)(first + j))));
        x = V(sub)(x, V(mul)(V(load)(change->slope + n), distance));
      }
      V(store)(at, x);
    }
  if (!change->bias) return;
  for (int j = 0; j < keys; j += VL)
    for (int n = 0; n < NR; n += VL) {
      vec t[VL];
      for (int i = 0; i < VL; i++) t[i] = V(load)(change->bias + (n + i) * change->bias_ld + j);
      V(transpose)(t);
      for (int i = 0; i < VL && j + i < keys; i++) {
        float *at = s + (ptrdiff_t)(j + i) * NR + n;
        V(store)(at, V(add)(V(load)(at), t[i]));
      }
    }
}

static TARGET void FN(mask)(float *s, int first, int keys, const float *low, const float *high) {
  for (int j = 0; j < keys; j++) {
    vec key = V(set1)((float)(first + j));
    for (int n = 0; n < NR; n += VL) {
      float *at = s + (ptrdiff_t)j * NR + n;
      V(store)(at, V(keep_between)(V(load)(at), key, V(load)(low + n), V(load)(high + n)));
    }
  }
}

/* P over keys first..end of the block, from scores; adds to sum. scaled: unit is not 1. Constant where this is inlined. */
static TARGET inline __attribute__((always_inline)) void FN(exponentials)(float *s, int keys, int scaled, vec unit, const vec *base,
                                                                          vec *sum) {
#if BF16
  (void)scaled;
  for (int j = 0; j < keys; j += 2)
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) {
      float *at = s + (ptrdiff_t)j * NR + n * VL;
      vec a = V(exp2)(V(mul)(V(sub)(V(load)(at), base[n]), unit));
      vec b = V(exp2)(V(mul)(V(sub)(V(load)(at + NR), base[n]), unit));
      sum[n] = V(add)(sum[n], V(add)(a, b));
      V(store)(s + (ptrdiff_t)(j / 2) * NR + n * VL, PAIR(a, b));
    }
#else
  for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) {
      float *at = s + (ptrdiff_t)j * NR + n * VL;
      vec x = V(sub)(V(load)(at), base[n]);
      vec p = V(exp2)(scaled ? V(mul)(x, unit) : x);
      sum[n] = V(add)(sum[n], p);
      V(store)(at, p);
    }
#endif
}

/* keys is even (step_k is). A row that has seen no key yet has m = -inf, and 0 is subtracted in its place. */
static TARGET int FN(softmax)(float *s, int keys, float unit, float *m, float *l, float *alpha) {
  const vec minus_inf = V(set1)(-__builtin_inff()), zero = V(set1)(0.0f), one = V(set1)(1.0f), factor = V(set1)(unit);
  vec top[NV], sum[NV], base[NV];
  int same = 1;
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) top[n] = minus_inf;
  for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) top[n] = V(max)(V(load)(s + (ptrdiff_t)j * NR + n * VL), top[n]);
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) {
    vec old = V(load)(m + n * VL);
    vec now = V(select_greater)(top[n], V(add)(old, V(set1)(GLINT_CPU_RESCALE_THRESHOLD / unit)), top[n], old);
    base[n] = V(select_equal)(now, minus_inf, zero, now);
    vec change = V(select_equal)(now, old, one, V(exp2)(V(mul)(V(sub)(old, base[n]), factor)));
    V(store)(m + n * VL, now);
    V(store)(alpha + n * VL, change);
    same &= V(all_equal)(change, one);
    sum[n] = zero;
  }
  if (unit == 1.0f)
    FN(exponentials)(s, keys, 0, factor, base, sum);
  else
    FN(exponentials)(s, keys, 1, factor, base, sum);
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) V(store)(l + n * VL, V(fma)(V(load)(l + n * VL), V(load)(alpha + n * VL), sum[n]));
  return !same;
}

#ifndef OWN_PRODUCTS
static TARGET void FN(attend)(const glint_cpu_step *a) {
  float alpha[NR];
  FN(scores)(a->q, a->k + (ptrdiff_t)a->first * a->units_d, a->units_d, a->keys, a->s);
  if (a->low) FN(mask)(a->s, a->first, a->keys, a->low, a->high);
  int rescale = FN(softmax)(a->s, a->keys, a->unit, a->m, a->l, alpha);
  FN(accumulate)(a->s, a->v, a->first, a->keys, a->columns, a->o, rescale ? alpha : NULL);
}
#endif
