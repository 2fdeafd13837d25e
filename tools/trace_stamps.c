/* From stamps to intervals, and what they say in numbers. */
#include "trace_stamps.h"

#include <stdlib.h>
#include <string.h>

#include "../kernels/trace.h"

const char *const trace_kind_name[TRACE_KINDS] = {"Q K^T in flight", "P V in flight", "softmax", "store O", "loads"};

static void add(trace_spans *s, trace_kind kind, int role, int64_t begin, int64_t end) {
  if (s->count < TRACE_MOST && end > begin) s->span[s->count++] = (trace_span){kind, role, begin, end};
}

/* When the last event of a kind happened; -1: not yet, or already used. */
typedef struct open_events {
  int64_t at[TRACE_LOAD_Q + 1];
} open_events;

static void close_span(trace_spans *s, open_events *open, trace_kind kind, int role, int from, int64_t now) {
  if (open->at[from] >= 0) add(s, kind, role, open->at[from], now);
  open->at[from] = -1;
}

static void consume(trace_spans *s, open_events *open, int role, int event, int64_t now) {
  switch (event) {
  case TRACE_QK_DONE: close_span(s, open, TRACE_QK, role, TRACE_TURN, now); break;
  case TRACE_PV_DONE: close_span(s, open, TRACE_PV, role, TRACE_PV_ISSUED, now); break;
  case TRACE_PACKED: /* a tile's first softmax follows Q K^T alone, later ones both products */
    close_span(s, open, TRACE_EXP, role, open->at[TRACE_PV_DONE] > open->at[TRACE_QK_DONE] ? TRACE_PV_DONE : TRACE_QK_DONE, now);
    break;
  case TRACE_STORED: close_span(s, open, TRACE_STORE, role, TRACE_PV_DONE, now); break;
  case TRACE_LOAD_K: close_span(s, open, TRACE_LOADING, role, TRACE_TILE, now); break;
  default: break;
  }
  open->at[event] = now;
}

void trace_read(const uint32_t *stamps, trace_spans *s) {
  uint32_t first = 0;
  memset(s, 0, sizeof *s);
  for (int role = 0; role < GLINT_TRACE_ROLES; role++) {
    const uint32_t *at = stamps + (size_t)role * GLINT_TRACE_STAMPS * 2;
    if (!at[0]) continue;
    s->roles = role + 1;
    if (!first || (int32_t)(at[1] - first) < 0) first = at[1];
  }
  for (int role = 0; role < s->roles; role++) {
    const uint32_t *at = stamps + (size_t)role * GLINT_TRACE_STAMPS * 2;
    open_events open;
    for (size_t i = 0; i < sizeof open.at / sizeof *open.at; i++) open.at[i] = -1;
    for (int i = 0; i < GLINT_TRACE_STAMPS && at[2 * i] >= 1 && at[2 * i] <= TRACE_LOAD_Q; i++) {
      int64_t now = (int64_t)(uint32_t)(at[2 * i + 1] - first);
      consume(s, &open, role, (int)at[2 * i], now);
      if (now > s->end && role < s->roles - 1) s->end = now; /* the producer's stamps last longer: it makes fewer */
    }
  }
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Cycles during which at least `least` spans of the kinds (a set of bits) are open. */
static int64_t covered(const trace_spans *s, unsigned kinds, int least) {
  static int64_t edge[2 * TRACE_MOST];
  int n = 0, depth = 0;
  int64_t sum = 0, since = 0;
  for (int i = 0; i < s->count; i++) {
    if (!(kinds >> s->span[i].kind & 1u)) continue;
    edge[n++] = 2 * s->span[i].begin + 1; /* an end before a begin at the same time */
    edge[n++] = 2 * s->span[i].end;
  }
  qsort(edge, (size_t)n, sizeof *edge, compare);
  for (int i = 0; i < n; i++) {
    int64_t now = edge[i] / 2;
    if (depth >= least) sum += now - since;
    depth += edge[i] % 2 ? 1 : -1;
    since = now;
  }
  return sum;
}

void trace_summarise(FILE *to, const trace_spans *s) {
  static int64_t lengths[TRACE_MOST];
  for (int role = 0; role < s->roles; role++)
    for (int kind = 0; kind < TRACE_KINDS; kind++) {
      int n = 0;
      for (int i = 0; i < s->count; i++)
        if (s->span[i].role == role && (int)s->span[i].kind == kind) lengths[n++] = s->span[i].end - s->span[i].begin;
      if (!n) continue;
      qsort(lengths, (size_t)n, sizeof *lengths, compare);
      fprintf(to, "warpgroup %d  %-16s %5d times, median %6lld cycles\n", role, trace_kind_name[kind], n, (long long)lengths[n / 2]);
    }
  if (!s->end) return;
  double all = (double)s->end;
  unsigned products = 1u << TRACE_QK | 1u << TRACE_PV, softmax = 1u << TRACE_EXP;
  fprintf(to, "of %lld cycles: a product in flight %.0f %%, a softmax %.0f %%, two softmaxes at once %.0f %%\n", (long long)s->end,
          100 * (double)covered(s, products, 1) / all, 100 * (double)covered(s, softmax, 1) / all,
          100 * (double)covered(s, softmax, 2) / all);
}
