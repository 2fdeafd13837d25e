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
/* 2 x 2 tiles of 16 x 16: 32 keys (or columns) against 32 query rows. MR is not used: the products are below. */
#define MR         32
#define NV         2
#define BF16       1
#define PAIR(a, b) pair_avx512_bf16(a, b)
#define OWN_PRODUCTS
#include "panel_template.h"
#define STRIP 4
#include "rows_template.h"

enum { AMX_TILE = 16, AMX_KEYS = 32 };

/* Some compilers' tile intrinsics do not say what memory they read: what was stored must be in memory before them. */
static inline void stored_before_tiles(void) { __asm__ volatile("" ::: "memory"); }

static TARGET void FN(begin)(void) {
  /* the layout that LDTILECFG reads */
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape;
  memset(&shape, 0, sizeof shape);
  shape.palette = 1;
  for (int i = 0; i < 8; i++) shape.row_bytes[i] = 64, shape.rows[i] = 16;
  __asm__ volatile("" : : "r"(&shape) : "memory");
  _tile_loadconfig(&shape);
}

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

static TARGET void FN(scores)(const float *q, const float *k, int units_d, int keys, float *s) {
  stored_before_tiles();
  for (int j = 0; j < keys; j += 2 * AMX_TILE) {
    const float *k0 = k + (ptrdiff_t)j * units_d, *k1 = k0 + (ptrdiff_t)AMX_TILE * units_d;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int u = 0; u < units_d; u += AMX_TILE) {
      _tile_loadd(4, k0 + u, units_d * 4);
      _tile_loadd(6, q + (ptrdiff_t)u * NR, NR * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, q + (ptrdiff_t)u * NR + AMX_TILE, NR * 4);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, k1 + u, units_d * 4);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float *to = s + (ptrdiff_t)j * NR;
    _tile_stored(0, to, NR * 4);
    _tile_stored(1, to + AMX_TILE, NR * 4);
    _tile_stored(2, to + AMX_TILE * NR, NR * 4);
    _tile_stored(3, to + AMX_TILE * NR + AMX_TILE, NR * 4);
  }
}

static TARGET void FN(accumulate)(const float *p, const float *v, int first, int keys, int columns, float *o, const float *alpha) {
  if (alpha) {
    vec a0 = V(load)(alpha), a1 = V(load)(alpha + VL);
    for (int c = 0; c < columns; c++) {
      V(store)(o + c * NR, V(mul)(V(load)(o + c * NR), a0));
      V(store)(o + c * NR + VL, V(mul)(V(load)(o + c * NR + VL), a1));
    }
  }
  stored_before_tiles();
  v += (ptrdiff_t)(first / AMX_KEYS) * columns * AMX_TILE;
  for (int c = 0; c < columns; c += 2 * AMX_TILE) {
    float *to = o + (ptrdiff_t)c * NR;
    _tile_loadd(0, to, NR * 4);
    _tile_loadd(1, to + AMX_TILE, NR * 4);
    _tile_loadd(2, to + AMX_TILE * NR, NR * 4);
    _tile_loadd(3, to + AMX_TILE * NR + AMX_TILE, NR * 4);
    for (int j = 0; j < keys; j += AMX_KEYS) {
      const float *vj = v + ((ptrdiff_t)(j / AMX_KEYS) * columns + c) * AMX_TILE, *pj = p + (ptrdiff_t)(j / 2) * NR;
      _tile_loadd(4, vj, 64);
      _tile_loadd(6, pj, NR * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, pj + AMX_TILE, NR * 4);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, vj + AMX_TILE * AMX_TILE, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, NR * 4);
    _tile_stored(1, to + AMX_TILE, NR * 4);
    _tile_stored(2, to + AMX_TILE * NR, NR * 4);
    _tile_stored(3, to + AMX_TILE * NR + AMX_TILE, NR * 4);
  }
}

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
    .element = FN(element),
    .rows = &FN(rows),
};
#include "template_end.h"
#endif
