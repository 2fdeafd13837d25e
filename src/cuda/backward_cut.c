/* How the work of the backward pass is cut. */
#include "cuda/backward_cut.h"
#include "backward_params.h"
#include "cuda/backward.h"

#include <string.h>

#define PREPARE    "backward_prepare.c"
#define FINISH     "backward_finish.c"
#define KEYS       "backward_simple_keys.c"
#define CHUNK_ROWS 256 /* most rows of dq that are counted together */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

backward_kind glint_backward_kind(const glint_variant *v) {
  if (strcmp(v->source, "backward_fa2.c") == 0) return BACKWARD_HEADS;
  return strcmp(v->source, "backward_simple.c") == 0 ? BACKWARD_HALVES : BACKWARD_SLOTS;
}

/* Hopper's kernels: accumulators for the heads in flight alone, a queue of what is to be converted. */
static void cut_slots(backward_cut *c, const glint_variant *v, const glint_work *w, int64_t slots, int64_t pairs, int64_t group) {
  c->chunk = 1;
  if (!(w->flags & GLINT_DETERMINISTIC)) /* few counts, but several chunks a head even when it is short */
    while (2 * c->chunk * v->tile_q <= CHUNK_ROWS && 2 * c->chunk * 4 * (int64_t)v->tile_q <= w->seqlen_q) c->chunk *= 2;
  c->chunks = (int32_t)ceil_div(c->q_blocks, c->chunk);
  c->dq_slots = (int32_t)(clamp(slots, 1, pairs > 0 ? pairs : 1) * group);
  c->queue_words = 2 * (size_t)(w->batch * w->heads_q) * (size_t)c->chunks;
  c->accum_bytes = (size_t)c->dq_slots * (size_t)c->rows_padded * (size_t)v->head_dim * sizeof(float);
  c->clear_bytes = c->accum_bytes + ((size_t)c->dq_slots * (size_t)(c->chunks + 1) + c->queue_words + 3) * sizeof(uint32_t);
}

/* Key blocks of a head add to dq in order, each a little behind the one before it. A multiple of their number of blocks, with tickets that are
 * fixed, keeps every block at its place in that order from head to head; otherwise each head would have to wait for the end of the last. A
 * window to the right orders them by itself (last_keys_first). */
static void line_up(backward_cut *c, const glint_work *w, int32_t right, int64_t at_once) {
  if (!(w->flags & GLINT_DETERMINISTIC) || right != GLINT_UNBOUNDED || c->tiles < at_once) return;
  const int64_t lined_up = at_once / c->k_blocks * c->k_blocks;
  if (lined_up * 100 < at_once * 85) return;
  c->grid = lined_up;
  c->fixed_tickets = 1;
}

static void cut_all_heads(backward_cut *c, const glint_variant *v, const glint_work *w) {
  const size_t heads = (size_t)(w->batch * w->heads_q);
  c->chunk = 1;
  c->chunks = c->q_blocks;
  c->dq_slots = (int32_t)heads;
  c->accum_bytes = w->dq.data ? heads * (size_t)c->rows_padded * (size_t)v->head_dim * sizeof(float) : 0;
  c->clear_bytes = c->accum_bytes;
  if (w->flags & GLINT_DETERMINISTIC) c->clear_bytes += (heads * (size_t)c->q_blocks + 1) * sizeof(uint32_t);
}

backward_cut glint_backward_cut(const glint_machine *m, const glint_variant *v, const glint_work *w) {
  backward_cut c;
  int32_t left, right;
  const backward_kind kind = glint_backward_kind(v);
  int64_t pairs = w->batch * w->heads_kv, group = w->heads_kv ? w->heads_q / w->heads_kv : 1;
  memset(&c, 0, sizeof c);
  glint_cuda_window(w, &left, &right);
  c.q_blocks = (int32_t)ceil_div(w->seqlen_q, v->tile_q);
  c.k_blocks = (int32_t)clamp(ceil_div(w->seqlen_k, v->tile_k), 1, INT32_MAX);
  c.rows_padded = c.q_blocks * v->tile_q;
  c.tiles = pairs * c.k_blocks;
  /* every block works on one tile; those of Hopper hold tickets for two more */
  const int64_t blocks = (int64_t)m->multiprocessors * (kind == BACKWARD_SLOTS ? 3 : glint_cuda_occupancy(m, v));
  int64_t in_flight = ceil_div(blocks, c.k_blocks) + 1, together = 1, slots = in_flight + 1;
  if (left != GLINT_UNBOUNDED || right != GLINT_UNBOUNDED) {
    /* key blocks differ in work: heavy ones of several heads first, as long as q, d_o and accumulators of those heads stay in L2 */
    int64_t head_bytes = (int64_t)c.rows_padded * v->head_dim * group * (2 + 2 + 4);
    together = clamp(head_bytes ? m->l2_bytes / 2 / head_bytes : 1, in_flight, 4 * in_flight);
    slots = 2 * together;
  }
  c.heads_together = (int32_t)clamp(together, 1, pairs > 0 ? pairs : 1);
  c.lse_bytes = (size_t)(w->batch * w->heads_q) * (size_t)c.rows_padded * sizeof(float);
  if (kind == BACKWARD_SLOTS) cut_slots(&c, v, w, slots, pairs, group);
  if (kind == BACKWARD_HEADS) cut_all_heads(&c, v, w);
  if (kind == BACKWARD_HALVES) c.tiles = w->batch * w->heads_q * c.q_blocks;
  c.clear_bytes = (c.clear_bytes + 15) / 16 * 16;
  const int64_t at_once = (int64_t)m->multiprocessors * glint_cuda_occupancy(m, v);
  c.grid = v->persistent && c.tiles > at_once ? at_once : c.tiles;
  if (kind == BACKWARD_SLOTS) line_up(&c, w, right, at_once);
  return c;
}

const glint_variant *glint_backward_prepare(const glint_variant *variants, const glint_variant *main, const glint_work *w) {
  for (const glint_variant *v = variants; v->name; v++)
    if (strcmp(v->source, PREPARE) == 0 && v->dtype == (int32_t)w->q.dtype && v->head_dim >= w->head_dim_v &&
        !((v->features ^ main->features) & FEATURE_UNALIGNED))
      return v;
  return NULL;
}

const glint_variant *glint_backward_keys(const glint_variant *variants, const glint_variant *main) {
  for (const glint_variant *v = variants; v->name; v++)
    if (strcmp(v->source, KEYS) == 0 && v->dtype == main->dtype && v->head_dim == main->head_dim) return v;
  return NULL;
}

const glint_variant *glint_backward_finish(const glint_variant *variants, const glint_work *w) {
  for (const glint_variant *v = variants; v->name; v++)
    if (strcmp(v->source, FINISH) == 0 && v->dtype == (int32_t)w->q.dtype) return v;
  return NULL;
}
