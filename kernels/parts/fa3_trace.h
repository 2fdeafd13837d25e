// Clock stamps of the instrumented variant (TRACE=1): one thread of each warpgroup of one block notes what happened when. Without TRACE
// nothing of it is left.
#ifndef GLINT_PARTS_FA3_TRACE_H
#define GLINT_PARTS_FA3_TRACE_H

#include "../trace.h"

typedef struct fa3_trace {
  u32 *next; // NULL: this thread stamps nothing
  u32 left;
} fa3_trace;

#if TRACE
FN fa3_trace trace_open(const glint_forward_params *p, u32 role) {
  fa3_trace t = {p->trace + (u64)role * GLINT_TRACE_STAMPS * 2, GLINT_TRACE_STAMPS};
  if (block_id_x() != 0 || tid() % 128) t.left = 0;
  return t;
}
FN void stamp(fa3_trace *t, u32 event) {
  if (!t->left) return;
  u32 pair[2] = {event, clock_cycles()};
  gmem_store_8(t->next, pair);
  t->next += 2;
  t->left--;
}
#else
FN fa3_trace trace_open(const glint_forward_params *p, u32 role) {
  fa3_trace t = {0, 0};
  (void)p;
  (void)role;
  return t;
}
FN void stamp(fa3_trace *t, u32 event) {
  (void)t;
  (void)event;
}
#endif

#endif
