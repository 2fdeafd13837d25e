/* How the CPU engine cuts a problem: kernels, tiles, splits over keys, and where everything lies in the workspace. Pure functions of the
 * checked problem (lengths included) and of the engine's settings. */
#ifndef GLINT_CPU_PLAN_H
#define GLINT_CPU_PLAN_H
#include "../api/engine.h"
#include "isa.h"
#include "kernels.h"

static inline int64_t glint_cpu_round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

typedef struct glint_cpu_state glint_cpu_state;

/* Settings of an open engine. */
typedef struct glint_cpu_settings {
  glint_isa isa;
  int forced; /* the instruction set was asked for: no quirk overrides it */
  int threads;
  const glint_cpu_machine *machine;
} glint_cpu_settings;

/* One sequence's share of the work. An item is (query block, split, group of kv heads); blocks count from the last row backwards, since with
 * causal masks those are the heaviest and should start first. */
typedef struct glint_cpu_share {
  glint_sequence s;
  int64_t rows;         /* query rows of one kv head: used_q * group */
  int64_t first, end;   /* keys that any row sees */
  int few;              /* handled by the few-rows kernels */
  int64_t item_heads;   /* kv heads an item: several where their rows lie side by side, so that memory is read in one stream */
  int64_t head_groups;  /* items that cover all kv heads */
  int64_t block_rows;   /* rows an item, a multiple of the panel and of the group */
  int64_t blocks;       /* query blocks */
  int64_t splits;       /* over keys */
  int64_t split_keys;   /* keys a split, a multiple of GLINT_CPU_SPLIT_UNIT */
  int64_t items;        /* head_groups * blocks * splits */
  int64_t partial_rows; /* rows of partial results: 0 when splits is 1 */
} glint_cpu_share;

/* A split starts at a multiple of this: of every step_k, of the 8 keys of a dropout block, and of AMX's 32 keys. */
enum { GLINT_CPU_SPLIT_UNIT = 64 };

/* Panels an item at most: K and V are packed once for all of them. */
enum { GLINT_CPU_PANELS_MAX = 16 };

typedef struct glint_cpu_plan {
  const glint_cpu_kernels *kernels;
  int64_t group;          /* query heads a kv head */
  int units_d, columns;   /* padded head_dim in words, padded head_dim_v */
  int64_t max_block_rows; /* bound on share.block_rows */
  int threads;
  int64_t items, combine_rows;
  /* Offsets into the workspace, bytes. items_at: int64 [batch + 1], the first item of each sequence; partials_at: int64 [batch + 1], the
   * first partial row of each sequence; partial: float [rows][columns + 2] (o not normalised, m, l); arenas: one a thread. */
  size_t items_at, partials_at, partial, arenas, arena_bytes, bytes;
} glint_cpu_plan;

/* The scratch of one thread; every pointer is 64-byte aligned. */
typedef struct glint_cpu_arena {
  float *q, *k, *v, *s, *o;            /* blocks of kernels.h; q and o: one a panel of the item */
  float *rows;                         /* [panel][wide]: rows on their way in or out */
  float *bias;                         /* [panel][block_k + 16] */
  float *m, *l;                        /* [panels * panel] */
  int64_t *low, *high;                 /* [panels * panel]: visible keys of each row */
  const void **key_rows, **value_rows; /* [block_k] */
  float *key_scales, *value_scales;    /* [block_k] */
  float *pack;                         /* scratch of pack_v */
} glint_cpu_arena;

/* The backward pass. Items are (sequence, kv head, range of query rows); each walks its rows in groups of panels, and for each group all
 * blocks of keys, so that dQ stays with the rows and dK, dV are gathered in floats for the item's kv head. */
typedef struct glint_cpu_backward_plan {
  glint_cpu_plan shape;   /* kernels, group, units_d, columns (of V), max_block_rows (rows a group of panels), threads */
  int units_v, columns_d; /* words of a row of V, padded head_dim: what units_d and columns are to the other matrix */
  int64_t splits;         /* ranges of query rows a kv head: fixed by the problem, so that sums do not depend on threads */
  int64_t items;
  int one_thread; /* dbias is summed over an axis that items share */
  /* Offsets into the workspace, bytes. keys_at: int64 [batch + 1], first row of each sequence in the sums; sums: float
   * [rows][columns_d + columns] of dK and dV, for every item, or one a thread where an item owns its kv head (splits 1); sinks: double
   * [batch][heads_q][splits]; bias: float, contiguous, shape of dbias; arenas: one a thread. */
  size_t keys_at, sums, sinks, bias, arenas, arena_bytes, bytes;
  int64_t sum_rows; /* rows of one of the threads' sums; 0 when splits > 1 */
} glint_cpu_backward_plan;

/* Scratch of one thread in the backward pass. Panels lie behind one another. */
typedef struct glint_cpu_backward_arena {
  glint_cpu_arena base;            /* q, k, v (rows of units_v words), s, rows, bias, low, high, key rows; o is dQ [columns_d][panel] */
  float *q_packed, *do_packed;     /* by pack_rows */
  float *d_o;                      /* [units_v][panel] */
  float *k_columns;                /* K as accumulate wants its V; base.k itself on floats */
  float *dp, *keep, *slope;        /* [block_k][panel]; keep with dropout, slope with softcap */
  float *ds_weights;               /* bfloat16 [block_k][panel]; dp itself on floats */
  float *minus_lse, *rest, *delta; /* one a row; rest: what a float lse far from 0 cannot hold; delta less d_lse */
} glint_cpu_backward_arena;

glint_cpu_backward_plan glint_cpu_plan_backward(const glint_cpu_settings *settings, const glint_work *w);
size_t glint_cpu_backward_layout(const glint_cpu_backward_plan *plan, const glint_work *w, char *base, glint_cpu_backward_arena *arena);
void glint_cpu_describe_backward(const glint_cpu_settings *settings, const glint_cpu_backward_plan *plan, const glint_work *w,
                                 glint_plan_info *info);

const glint_cpu_kernels *glint_cpu_kernels_for(const glint_cpu_settings *settings, glint_dtype dtype);
glint_cpu_plan glint_cpu_plan_forward(const glint_cpu_settings *settings, const glint_work *w);
glint_cpu_share glint_cpu_share_of(const glint_cpu_plan *plan, const glint_work *w, int64_t b);
/* Pointers into the arena at base (NULL: only the size counts). Returns its bytes. */
size_t glint_cpu_arena_layout(const glint_cpu_plan *plan, const glint_work *w, char *base, glint_cpu_arena *arena);

/* Floats a row of arena.rows: a query row or an output row, whichever is wider. */
int64_t glint_cpu_row_floats(const glint_cpu_plan *plan);

/* For glint_plan. */
void glint_cpu_plan_describe(const glint_cpu_settings *settings, const glint_cpu_plan *plan, const glint_work *w, glint_plan_info *info);
#endif
