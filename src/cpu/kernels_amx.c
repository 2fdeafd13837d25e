/* AMX kernels: bfloat16 inputs by TDPBF16PS on tiles of 16 x 16 words.
 *
 * Turned round, S = K Q needs no transposed K: 16 keys are an A tile as they lie in memory, and a panel of Q is in the pairwise layout that
 * a B tile wants. P, stored in pairs of keys, is the B tile of O = V P; only V is transposed when packed, to [key / 32][column][16 words]. */
#include "kernels.h"

#include "../api/convert.h"
#include "rows.h"
#include <string.h>

#if defined(__x86_64__)
#include "vec_avx512_bf16.h"
#define VEC avx512

#define SUFFIX     amx_bf16
#define TARGET     __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma,f16c" GLINT_CPU_WIDE)))
/* Tiles go 2 x 2: 32 keys (or columns) against 32 query rows, twice a panel, so that K and V come from L2 once for 64 rows. MR is not used:
 * the products are below. */
#define MR         32
#define NV         4
#define BF16       1
#define PAIR(a, b) pair_avx512_bf16(a, b)
#define OWN_PRODUCTS
#include "panel_template.h"
#define STRIP 4
#define TILE_ROWS
#include "rows_template.h"

#include "dropout_template.h"

enum { AMX_TILE = 16, AMX_KEYS = 32 };

/* Some compilers' tile intrinsics do not say what memory they read: what was stored must be in memory before them. */
static inline void stored_before_tiles(void) { __asm__ volatile("" ::: "memory"); }

/* Eight tiles of 16 rows: 64 bytes a row in those of `wide`, narrow_bytes in the others. */
static TARGET void FN(configure)(unsigned wide, uint16_t narrow_bytes) {
  /* the layout that LDTILECFG reads */
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape;
  memset(&shape, 0, sizeof shape);
  shape.palette = 1;
  for (int i = 0; i < 8; i++) shape.row_bytes[i] = wide >> i & 1 ? 64 : narrow_bytes, shape.rows[i] = 16;
  __asm__ volatile("" : : "r"(&shape) : "memory");
  _tile_loadconfig(&shape);
}

static TARGET void FN(begin)(void) { FN(configure)(0xFF, 0); }

static TARGET void FN(end)(void) { _tile_release(); }

static TARGET int FN(pack_v)(const void *const *rows, const float *scales, int count, int padded, glint_dtype dtype, int head_dim_v,
                             int columns, float *v, float *scratch) {
  int finite = 1;
  (void)scales;
  (void)dtype;
  for (int j = 0; j < padded; j += AMX_KEYS) {
    for (int pair = 0; pair < AMX_TILE; pair++) {
      float *to = scratch + (ptrdiff_t)pair * columns;
      int key = j + 2 * pair;
      for (int n = key + FN(AHEAD); n < key + FN(AHEAD) + 2 && n < count; n++) FN(ask_row)(rows[n], head_dim_v * 2);
      if (key < count)
        FN(interleave)(rows[key], key + 1 < count ? rows[key + 1] : NULL, head_dim_v, columns, to);
      else
        memset(to, 0, (size_t)columns * sizeof(float));
      finite &= FN(finite)(to, columns);
    }
    FN(transpose)(scratch, columns, v + (ptrdiff_t)(j / AMX_KEYS) * columns * AMX_TILE, AMX_TILE, AMX_TILE, columns);
  }
  return finite;
}

static void *FN(element)(float *v, int key, int column, int columns) {
  return (char *)(v + ((ptrdiff_t)(key / AMX_KEYS) * columns + column) * AMX_TILE + key % AMX_KEYS / 2) + key % 2 * 2;
}

/* 4 more products of a step: 32 keys against 32 query rows, 16 words of head_dim. */
static TARGET inline __attribute__((always_inline)) void FN(score_step)(const float *q, const float *k, int units_d) {
  _tile_loadd(4, k, units_d * 4);
  _tile_loadd(6, q, NR * 4);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, q + AMX_TILE, NR * 4);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, k + (ptrdiff_t)AMX_TILE * units_d, units_d * 4);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

static TARGET inline __attribute__((always_inline)) void FN(zero_tiles)(void) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/* The 32 x 32 result, to rows of NR floats. */
static TARGET inline __attribute__((always_inline)) void FN(store_tiles)(float *to) {
  _tile_stored(0, to, NR * 4);
  _tile_stored(1, to + AMX_TILE, NR * 4);
  _tile_stored(2, to + AMX_TILE * NR, NR * 4);
  _tile_stored(3, to + AMX_TILE * NR + AMX_TILE, NR * 4);
}

static TARGET void FN(scores)(const float *q, const float *k, int units_d, int keys, float *s) {
  stored_before_tiles();
  for (int j = 0; j < keys; j += AMX_KEYS)
    for (int half = 0; half < NR; half += 2 * AMX_TILE) {
      FN(zero_tiles)();
      for (int u = 0; u < units_d; u += AMX_TILE) FN(score_step)(q + (ptrdiff_t)u * NR + half, k + (ptrdiff_t)j * units_d + u, units_d);
      FN(store_tiles)(s + (ptrdiff_t)j * NR + half);
    }
}

static TARGET void FN(rescale)(int columns, float *o, const float *alpha) {
  for (int n = 0; n < NR; n += VL) {
    vec factor = V(load)(alpha + n);
    for (int c = 0; c < columns; c++) V(store)(o + c * NR + n, V(mul)(V(load)(o + c * NR + n), factor));
  }
}

static TARGET void FN(accumulate)(const float *p, const float *v, int first, int keys, int columns, float *o, const float *alpha) {
  if (alpha) FN(rescale)(columns, o, alpha);
  stored_before_tiles();
  v += (ptrdiff_t)(first / AMX_KEYS) * columns * AMX_TILE;
  for (int c = 0; c < columns; c += 2 * AMX_TILE)
    for (int half = 0; half < NR; half += 2 * AMX_TILE) {
      float *to = o + (ptrdiff_t)c * NR + half;
      _tile_loadd(0, to, NR * 4);
      _tile_loadd(1, to + AMX_TILE, NR * 4);
      _tile_loadd(2, to + AMX_TILE * NR, NR * 4);
      _tile_loadd(3, to + AMX_TILE * NR + AMX_TILE, NR * 4);
      for (int j = 0; j < keys; j += AMX_KEYS) {
        const float *vj = v + ((ptrdiff_t)(j / AMX_KEYS) * columns + c) * AMX_TILE, *pj = p + (ptrdiff_t)(j / 2) * NR + half;
        _tile_loadd(4, vj, 64);
        _tile_loadd(6, pj, NR * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, pj + AMX_TILE, NR * 4);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, vj + AMX_TILE * AMX_TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      FN(store_tiles)(to);
    }
}

/* ---- the whole step, in chunks of keys whose scores stay in L1. Tile and vector work come in turns: on the machines measured, vector
 * arithmetic runs at half its rate while tile instructions are in flight, so that overlapping them gains nothing ---- */

enum { AMX_CHUNK = 32 }; /* keys */

/* A row's maximum is only looked for when the row has none yet, or when its probabilities under the one it has come out large: mostly the
 * scores are read once. `limit` is on a chunk's sum, so that no probability is larger either. */
static const float FN(limit) = 256.0f; /* 2^GLINT_CPU_RESCALE_THRESHOLD */

/* Rows of vector n that need another maximum. */
static TARGET inline __attribute__((always_inline)) __mmask16 FN(rows_above)(vec sum) {
  return _mm512_cmp_ps_mask(sum, V(set1)(FN(limit)), _CMP_NLE_UQ);
}
static TARGET inline __attribute__((always_inline)) __mmask16 FN(rows_without)(const float *m) {
  return _mm512_cmp_ps_mask(V(load)(m), V(set1)(-__builtin_inff()), _CMP_EQ_OQ);
}

/* The maximum over a chunk joins m in the rows of `which`; alpha, and l times it. */
static TARGET void FN(raise_maximum)(const float *s, int keys, float unit, const __mmask16 *which, float *m, float *l, float *alpha) {
  const vec minus_inf = V(set1)(-__builtin_inff()), one = V(set1)(1.0f);
  vec top[NV];
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) top[n] = minus_inf;
  for (int j = 0; j < keys; j++)
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) top[n] = V(max)(V(load)(s + (ptrdiff_t)j * NR + n * VL), top[n]);
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) {
    vec old = V(load)(m + n * VL), now = _mm512_mask_max_ps(old, which[n], top[n], old);
    vec base = V(select_equal)(now, minus_inf, V(set1)(0.0f), now);
    vec change = V(select_equal)(now, old, one, V(exp2)(V(mul)(V(sub)(old, base), V(set1)(unit))));
    V(store)(alpha + n * VL, change);
    V(store)(m + n * VL, now);
    V(store)(l + n * VL, V(mul)(V(load)(l + n * VL), change));
  }
}

/* P of a chunk and its row sums. Returns 1 when a row's probabilities are too large: see which. */
static TARGET int FN(exponentiate)(const float *s, int keys, float *p, float unit, const float *m, vec *sum, __mmask16 *which) {
  vec factor = V(set1)(unit), base[NV];
  int above = 0;
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) {
    vec now = V(load)(m + n * VL);
    base[n] = V(mul)(V(select_equal)(now, V(set1)(-__builtin_inff()), V(set1)(0.0f), now), factor), sum[n] = V(set1)(0.0f);
  }
  for (int j = 0; j < keys; j += 2)
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) {
      const float *at = s + (ptrdiff_t)j * NR + n * VL;
      vec a = V(exp2)(V(fms)(V(load)(at), factor, base[n]));
      vec b = V(exp2)(V(fms)(V(load)(at + NR), factor, base[n]));
      sum[n] = V(add)(sum[n], V(add)(a, b));
      V(store)(p + (ptrdiff_t)j / 2 * NR + n * VL, PAIR(a, b));
    }
#pragma GCC unroll 4
  for (int n = 0; n < NV; n++) which[n] = FN(rows_above)(sum[n]), above |= which[n];
  return above != 0;
}

static TARGET void FN(attend)(const glint_cpu_step *a) {
  float *s = a->s + (ptrdiff_t)a->block_k / 2 * NR, *p = a->s, alpha[NR];
  int done = 0; /* keys whose P is in O */
  for (int j = 0; j < a->keys; j += AMX_CHUNK) {
    int keys = a->keys - j < AMX_CHUNK ? a->keys - j : AMX_CHUNK, first = a->first + j, raise = 0, tried = 0;
    vec sum[NV];
    __mmask16 which[NV];
    FN(scores)(a->q, a->k + (ptrdiff_t)first * a->units_d, a->units_d, keys, s);
    if (a->low && (first < a->all_low || first + keys > a->all_high)) FN(mask)(s, first, keys, a->low, a->high);
    for (int n = 0; n < NV; n++) which[n] = FN(rows_without)(a->m + n * VL), raise |= which[n];
    /* once for rows without a maximum, once for those whose sums came out too large; a NaN stays one whatever the maximum */
    for (; tried == 0 || (raise && tried < 3); tried++) {
      if (raise) {
        /* what P holds so far belongs to the old maximum */
        if (j > done) FN(accumulate)(p + (ptrdiff_t)done / 2 * NR, a->v, a->first + done, j - done, a->columns, a->o, NULL);
        done = j;
        FN(raise_maximum)(s, keys, a->unit, which, a->m, a->l, alpha);
        FN(rescale)(a->columns, a->o, alpha);
      }
      raise = FN(exponentiate)(s, keys, p + (ptrdiff_t)j / 2 * NR, a->unit, a->m, sum, which);
    }
    for (int n = 0; n < NV; n++) V(store)(a->l + n * VL, V(add)(V(load)(a->l + n * VL), sum[n]));
  }
  FN(accumulate)(p + (ptrdiff_t)done / 2 * NR, a->v, a->first + done, a->keys - done, a->columns, a->o, NULL);
}

/* ---- few rows: K as A tiles where it lies, 4 queries as narrow B tiles ---- */

/* Tiles 4 to 7 hold keys, the others have a word a row of q. */
static TARGET void FN(begin_rows)(void) { FN(configure)(0xF0, 4 * GLINT_CPU_TILE_ROWS); }

static TARGET void FN(pack_q)(const float *q, ptrdiff_t ld_q, int head_dim, float *packed) {
  float words[256]; /* head_dim is at most 512 */
  for (int r = 0; r < GLINT_CPU_TILE_ROWS; r++) {
    FN(from_float)(words, GLINT_BFLOAT16, q + r * ld_q, head_dim, 1.0f);
    for (int u = 0; u < head_dim / 2; u++) packed[u * GLINT_CPU_TILE_ROWS + r] = words[u];
  }
}

static TARGET void FN(scores_tiles)(const float *packed, const void *keys, ptrdiff_t stride, int count, int head_dim, float *s,
                                    const glint_cpu_soon *soon) {
  enum { Q_TILE = AMX_TILE * GLINT_CPU_TILE_ROWS, S_TILE = AMX_TILE * GLINT_CPU_TILE_ROWS, LD = 4 * GLINT_CPU_TILE_ROWS };
  const char *key = keys;
  int steps = head_dim / GLINT_CPU_TILE_COLUMNS, j = 0;
  FN(asked) asked = FN(ask_in)(soon, (count + 2 * AMX_TILE - 1) / (2 * AMX_TILE) * steps);
  stored_before_tiles();
  /* two sums at a time: each product waits for the one before it */
  for (; j + 2 * AMX_TILE <= count; j += 2 * AMX_TILE, key += 2 * AMX_TILE * stride) {
    _tile_zero(0);
    _tile_zero(1);
    for (int u = 0; u < steps; u++) {
      FN(ask)(&asked);
      _tile_loadd(2, packed + u * Q_TILE, LD);
      _tile_loadd(4, key + u * 64, stride);
      _tile_dpbf16ps(0, 4, 2);
      _tile_loadd(5, key + AMX_TILE * stride + u * 64, stride);
      _tile_dpbf16ps(1, 5, 2);
    }
    _tile_stored(0, s + (ptrdiff_t)j * GLINT_CPU_TILE_ROWS, LD);
    _tile_stored(1, s + (ptrdiff_t)j * GLINT_CPU_TILE_ROWS + S_TILE, LD);
  }
  if (j == count) return;
  _tile_zero(0);
  for (int u = 0; u < steps; u++) {
    FN(ask)(&asked);
    _tile_loadd(2, packed + u * Q_TILE, LD);
    _tile_loadd(4, key + u * 64, stride);
    _tile_dpbf16ps(0, 4, 2);
  }
  _tile_stored(0, s + (ptrdiff_t)j * GLINT_CPU_TILE_ROWS, LD);
}

static const glint_cpu_tile_rows FN(tile_rows) = {FN(begin_rows), FN(begin), FN(pack_q), FN(scores_tiles)};

/* ---- backward ---- */

static TARGET void FN(pack_rows)(const float *rows, ptrdiff_t ld, int columns, float *packed) {
  for (int r = 0; r < NR; r += 2) FN(interleave)
  ((const uint16_t *)(const void *)(rows + r * ld), (const uint16_t *)(const void *)(rows + (r + 1) * ld), columns, columns,
   packed + (ptrdiff_t)(r / 2) * columns);
}

/* Weights are A tiles (16 keys x 32 rows), packed rows are B tiles (32 rows x 16 columns): those of a panel and two columns of tiles stay in
 * registers while all keys pass. */
static TARGET void FN(add_product)(const float *weights, int keys, const float *packed, int columns, float *c) {
  enum { LD_WEIGHTS = NR / 2 };
  stored_before_tiles();
  for (int n = 0; n < columns; n += 2 * AMX_TILE) {
    _tile_loadd(4, packed + n, columns * 4);
    _tile_loadd(5, packed + n + AMX_TILE, columns * 4);
    _tile_loadd(6, packed + (ptrdiff_t)AMX_TILE * columns + n, columns * 4);
    _tile_loadd(7, packed + (ptrdiff_t)AMX_TILE * columns + n + AMX_TILE, columns * 4);
    for (int j = 0; j < keys; j += AMX_TILE) {
      float *to = c + (ptrdiff_t)j * columns + n;
      const float *a = weights + (ptrdiff_t)j * LD_WEIGHTS;
      _tile_loadd(2, a, LD_WEIGHTS * 4);
      _tile_loadd(0, to, columns * 4);
      _tile_dpbf16ps(0, 2, 4);
      _tile_loadd(1, to + AMX_TILE, columns * 4);
      _tile_dpbf16ps(1, 2, 5);
      _tile_loadd(3, a + AMX_TILE, LD_WEIGHTS * 4);
      _tile_dpbf16ps(0, 3, 6);
      _tile_dpbf16ps(1, 3, 7);
      _tile_stored(0, to, columns * 4);
      _tile_stored(1, to + AMX_TILE, columns * 4);
    }
  }
}

/* P and dS of one vector of rows. */
static TARGET inline __attribute__((always_inline)) void FN(gradient)(vec s, vec dp, vec factor, vec minus_lse, vec rest, vec delta, vec *p,
                                                                      vec *ds) {
  const vec log2e = V(set1)(1.4426950408889634f), zero = V(set1)(0.0f);
  *p = V(exp2)(V(mul)(V(add)(V(fma)(s, factor, minus_lse), rest), log2e));
  /* where nothing is seen, NaN in dP must not count */
  *ds = V(select_equal)(*p, zero, zero, V(mul)(*p, V(sub)(dp, delta)));
}

/* In place: what is written for a pair of keys lies at or before what was read for it. */
static TARGET void FN(gradients)(float *s, float *dp, float *ds_weights, int keys, float scale, const float *minus_lse, const float *rest,
                                 const float *delta, const float *keep) {
  vec factor = V(set1)(scale);
  (void)keep; /* dropout is left to the float kernels */
  for (int j = 0; j < keys; j += 2) {
    vec p[2][NV], ds[2][NV];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) {
        ptrdiff_t at = (ptrdiff_t)(j + i) * NR + n * VL;
        FN(gradient)
        (V(load)(s + at), V(load)(dp + at), factor, V(load)(minus_lse + n * VL), V(load)(rest + n * VL), V(load)(delta + n * VL), &p[i][n],
         &ds[i][n]);
      }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
#pragma GCC unroll 4
      for (int n = 0; n < NV; n++) {
        V(store_weights)((uint16_t *)(void *)(s + (ptrdiff_t)(j + i) * (NR / 2)) + n * VL, p[i][n]);
        V(store_weights)((uint16_t *)(void *)(ds_weights + (ptrdiff_t)(j + i) * (NR / 2)) + n * VL, ds[i][n]);
      }
#pragma GCC unroll 4
    for (int n = 0; n < NV; n++) V(store)(dp + (ptrdiff_t)(j / 2) * NR + n * VL, PAIR(ds[0][n], ds[1][n]));
  }
}

/* In vectors: tiles sum in an order of their own, which no other code can repeat. */
static TARGET float FN(dot)(const float *a, const float *b, int64_t n) {
  vec sum = V(set1)(0.0f);
  float lanes[VL], total = 0;
  int64_t c = 0;
  for (; c + VL <= n; c += VL) sum = V(fma)(V(load)(a + c), V(load)(b + c), sum);
  V(store)(lanes, sum);
  for (; c < n; c++) total = V(fma_one)(a[c], b[c], total);
  for (int i = 0; i < VL; i++) total += lanes[i];
  return total;
}

static const glint_cpu_backward FN(backward) = {FN(pack_rows), FN(add_product), FN(gradients), FN(dot), NULL};

const glint_cpu_kernels glint_cpu_amx_bf16 = {
    .name = "amx_bf16",
    .isa = GLINT_ISA_AMX_BF16,
    .bf16 = 1,
    .panel = NR,
    .step_k = AMX_KEYS,
    .step_d = AMX_TILE,
    .step_v = 2 * AMX_TILE,
    .block_k = 256,
    .begin = FN(begin),
    .end = FN(end),
    .to_float = FN(to_float),
    .from_float = FN(from_float),
    .transpose = FN(transpose),
    .pack_k = FN(pack_k),
    .pack_v = FN(pack_v),
    .scores = FN(scores),
    .change = FN(change),
    .mask = FN(mask),
    .softmax = FN(softmax),
    .accumulate = FN(accumulate),
    .attend = FN(attend),
    .keep = FN(keep),
    .drop = FN(drop),
    .element = FN(element),
    .rows = &FN(rows),
    .backward = &FN(backward),
};
#include "template_end.h"
#endif
