/* Which lengths a variant is for, and into how many parts it cuts the keys: pure functions of problem, variant and machine. */
#include "cuda/family.h"
#include "cuda/plan.h"

#define MOST_ROWS   128 /* rows of a group (seqlen_q * heads) up to which a grouped variant beats tiles of TILE_Q rows of one head */
#define MOST_SPLITS 256
#define BOX_ROWS    8 /* the 128-byte swizzle repeats after so many rows: pieces of a block start at such rows */

/* Costs in units of one block of keys (TILE_K) that a thread block works on */
#define TILE_COST    4.0  /* prologue, first loads and epilogue of a tile */
#define COMBINE_COST 8.0  /* the second kernel */
#define PART_COST    0.25 /* what it reads of one part */

static int64_t group_of(const glint_work *w) { return w->heads_kv ? w->heads_q / w->heads_kv : 1; }

int64_t glint_tile_positions(const glint_variant *v, const glint_work *w) {
  const int64_t group = group_of(w);
  return v->features & FEATURE_GROUPED && group > 0 && group <= v->tile_q ? v->tile_q / group : v->tile_q;
}

static int pages_fit(const glint_variant *v, const glint_work *w) {
  if (!w->page_size) return 1;
  return w->page_size % v->tile_k == 0 || (v->tile_k % w->page_size == 0 && w->page_size % BOX_ROWS == 0);
}

int glint_variant_can(const glint_variant *v, const glint_work *w) {
  if (!(v->features & FEATURE_GROUPED)) return 1;
  return !w->cu_seqlens_q.data && group_of(w) <= v->tile_q && pages_fit(v, w);
}

int glint_variant_suits(const glint_variant *v, const glint_work *w) {
  if (v->features & FEATURE_GROUPED && w->seqlen_q * group_of(w) > MOST_ROWS) return 0;
  return w->seqlen_k >= v->min_keys;
}

/* Blocks of keys that the last rows of a sequence see, at most */
static int64_t blocks_of_keys(const glint_variant *v, const glint_work *w) {
  int64_t keys = w->seqlen_k;
  if (w->window_left >= 0 && w->window_right >= 0 && w->window_left < keys && w->window_right < keys)
    keys = w->window_left + w->window_right + w->seqlen_q < keys ? w->window_left + w->window_right + w->seqlen_q : keys;
  return (keys + v->tile_k - 1) / v->tile_k;
}

/* Time of the launch with so many parts, if its tiles take turns on thread blocks */
static double cost_of(int64_t tiles, int64_t blocks, int64_t at_once, int64_t splits) {
  const double waves = (double)((tiles * splits + at_once - 1) / at_once);
  const double tile = (double)((blocks + splits - 1) / splits) + TILE_COST;
  return waves * tile + (splits > 1 ? COMBINE_COST + PART_COST * (double)splits : 0);
}

int32_t glint_variant_splits(const glint_machine *m, const glint_variant *v, const glint_work *w) {
  if (!(v->features & FEATURE_SPLIT)) return 1;
  const int64_t blocks = blocks_of_keys(v, w), tiles = glint_query_tiles(v, w),
                at_once = (int64_t)m->multiprocessors * glint_cuda_occupancy(m, v);
  const int64_t most = blocks < MOST_SPLITS ? blocks : MOST_SPLITS;
  if (w->num_splits > 0) return w->num_splits < MOST_SPLITS ? w->num_splits : MOST_SPLITS;
  /* what a batch looks like must not change how a sequence's keys are summed */
  if (w->flags & GLINT_BATCH_INVARIANT || tiles < 1 || at_once < 1 || tiles >= at_once * 8) return 1;
  int32_t best = 1;
  for (int32_t splits = 2; splits <= most; splits++)
    if (cost_of(tiles, blocks, at_once, splits) < cost_of(tiles, blocks, at_once, best)) best = splits;
  return best;
}
