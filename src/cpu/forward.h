/* The forward pass of the CPU engine: shared pieces of forward.c, panel.c, few.c and output.c. */
#ifndef GLINT_CPU_FORWARD_H
#define GLINT_CPU_FORWARD_H
#include "plan.h"

#define GLINT_LOG2E 1.4426950408889634

/* One item of work: rows [row, row + rows) of kv heads [head, head + heads), keys [first, end) of sequence b. */
typedef struct glint_cpu_item {
  int64_t b, head, heads, row, rows, first, end;
  float *partial; /* of the first head: [rows][columns + 2] when the keys are split, else NULL: results go to o and lse */
} glint_cpu_item;

/* Units of scores. Softmax takes p = 2^((s - m) * log2_unit). Plain float scores come out in units of log 2, because Q was scaled so; changed
 * ones (softcap, bias, ALiBi) are natural, so that a bias of the most negative float stays finite; plain bfloat16 ones are raw. */
typedef struct glint_cpu_units {
  int changed;
  float q_factor;  /* folded into Q when it is packed */
  float s_factor;  /* multiplies scores before they are changed */
  float log2_unit; /* one unit of m and of the scores that softmax sees, in log 2 */
} glint_cpu_units;

/* All that an item needs to know. */
typedef struct glint_cpu_run {
  const glint_work *w;
  const glint_cpu_plan *plan;
  const glint_cpu_share *share;
  glint_cpu_item item;
  glint_cpu_arena *arena;
  glint_cpu_units units;
} glint_cpu_run;

/* bf16: Q goes to the kernels in bfloat16. */
glint_cpu_units glint_cpu_units_of(const glint_work *w, int bf16);
/* The units of one sequence's items. */
glint_cpu_units glint_cpu_share_units(const glint_work *w, const glint_cpu_plan *plan, const glint_cpu_share *share);
/* Few-rows items of this sequence may take scores from tiles. */
int glint_cpu_few_tiles(const glint_work *w, const glint_cpu_plan *plan);

/* Row r of an item counts positions first, heads of the group second. */
static inline int64_t glint_cpu_position(const glint_cpu_run *run, int64_t r) { return (run->item.row + r) / run->plan->group; }
static inline int64_t glint_cpu_head(const glint_cpu_run *run, int64_t r) {
  return run->item.head * run->plan->group + (run->item.row + r) % run->plan->group;
}

/* Asks for the row that comes GLINT_CPU_ROWS_AHEAD positions later, if the sequence has it: rows of one head lie a page apart in the usual
 * layouts, which no hardware prefetcher foresees. */
enum { GLINT_CPU_ROWS_AHEAD = 8 };
static inline void glint_cpu_ask_ahead(const char *row, int64_t stride_bytes, int64_t bytes, int64_t i, int64_t rows) {
  if (i + GLINT_CPU_ROWS_AHEAD >= rows) return;
  for (int64_t c = 0; c < bytes; c += 64) __builtin_prefetch(row + GLINT_CPU_ROWS_AHEAD * stride_bytes + c);
}

/* Query row r of the item as floats times factor, rotated if the problem says so; dst holds head_dim floats. */
void glint_cpu_query_row(const glint_cpu_run *run, int64_t r, float factor, float *dst);
/* The same as words of the kernels; dst holds units_d words, the rest of which is left alone. */
void glint_cpu_query_words(const glint_cpu_run *run, int64_t r, float factor, float *dst);
/* Pointers to rows first..end of K and V, and their FP8 scales (scales NULL: none). Returns 1 if there are scales. */
int glint_cpu_key_rows(const glint_cpu_run *run, int64_t first, int64_t end, const void **keys, const void **values, float *key_scales,
                       float *value_scales);

/* The two ways to compute an item. */
void glint_cpu_panel_item(const glint_cpu_run *run);
void glint_cpu_few_item(const glint_cpu_run *run);

/* Softcap, bias and ALiBi on arena->s: the panel whose first row is base, keys first .. first + keys. Scores are natural afterwards. */
void glint_cpu_change_scores(const glint_cpu_run *run, int64_t base, int64_t first, int keys);

/* Of the panel whose first row is base. */
glint_cpu_dropout glint_cpu_dropout_of(const glint_cpu_run *run, int64_t base);

/* Result of row r (head and position of the item): o not normalised, maximum m in run->units, sum l. Goes to o and lse, or to partial. */
void glint_cpu_finish_row(const glint_cpu_run *run, int64_t r, const float *o, float m, float l);
/* o = 0 and lse = -inf for rows that exist but are not used. */
void glint_cpu_clear_rows(const glint_work *w, const glint_sequence *s);
/* Merges the splits of row r of (b, head). */
void glint_cpu_combine_row(const glint_work *w, const glint_cpu_plan *plan, const glint_cpu_share *share, const glint_cpu_units *units,
                           const float *partial, int64_t head, int64_t r);

/* Writes k_new (rotated) and v_new into the cache. */
void glint_cpu_append(const glint_work *w, int threads);
/* Runs the whole plan in workspace. */
void glint_cpu_forward(const glint_work *w, const glint_cpu_plan *plan, void *workspace);
#endif
