/* Random layouts and shrinking. */
#include "property.h"

#include <stdio.h>
#include <string.h>

static uint64_t state;

void property_seed(uint64_t seed) { state = seed; }

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
uint64_t property_random(void) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int64_t property_below(int64_t n) { return (int64_t)(property_random() % (uint64_t)n); }

/* Appends a random tree; *room is what the size may still grow by. */
static void grow(glint_layout *l, int depth, int64_t *room) {
  static const int64_t shapes[] = {1, 2, 2, 3, 4, 4, 5, 6, 8, 16};
  if (depth == 3 || l->count > 24 || property_below(100) < (depth ? 55 : 25)) {
    int64_t shape = shapes[property_below((int64_t)(sizeof shapes / sizeof *shapes))];
    if (shape > *room) shape = 1;
    *room /= shape;
    l->node[l->count++] = (glint_layout_node){shape, 0, 0, GLINT_LAYOUT_MODE};
    return;
  }
  int32_t rank = (int32_t)property_below(3) + 1;
  l->node[l->count++] = (glint_layout_node){0, 0, rank, GLINT_LAYOUT_TUPLE};
  for (int32_t i = 0; i < rank; i++) grow(l, depth + 1, room);
}

void property_layout(int64_t max_size, glint_layout *l) {
  int32_t leaf[GLINT_LAYOUT_MAX_NODES], n = 0;
  int64_t room = max_size, stride = 1, style = property_below(10);
  memset(l, 0, sizeof *l);
  grow(l, 0, &room);
  for (int32_t i = 0; i < l->count; i++)
    if (l->node[i].kind == GLINT_LAYOUT_MODE) leaf[n++] = i;
  for (int32_t i = n - 1; style > 3 && i > 0; i--) { /* shuffle the order in which strides grow */
    int32_t j = (int32_t)property_below(i + 1), swap = leaf[i];
    leaf[i] = leaf[j];
    leaf[j] = swap;
  }
  for (int32_t i = 0; i < n; i++) {
    glint_layout_node *node = &l->node[leaf[i]];
    node->stride = style == 9 ? property_below(13) : stride;
    stride *= node->shape;
    if (style > 6 && property_below(4) == 0) stride *= property_below(3) + 1;
    if (style == 8 && property_below(4) == 0) node->stride = 0;
  }
}

/* ---- shrinking ---------------------------------------------------------------------------------------------------------------- */

static int32_t end_of(const glint_layout *l, int32_t node) {
  int32_t open = 1;
  for (; open > 0; node++, open--)
    if (l->node[node].kind == GLINT_LAYOUT_TUPLE) open += l->node[node].rank;
  return node;
}

static void remove_nodes(glint_layout *l, int32_t from, int32_t to) {
  memmove(&l->node[from], &l->node[to], (size_t)(l->count - to) * sizeof *l->node);
  l->count -= to - from;
}

/* The parent tuple of a node, or -1. */
static int32_t parent_of(const glint_layout *l, int32_t node) {
  for (int32_t p = node - 1; p >= 0; p--)
    if (l->node[p].kind == GLINT_LAYOUT_TUPLE && end_of(l, p) > node) return p;
  return -1;
}

enum { STEPS = 7 };

/* Candidate number `step` at this node: something smaller in *out, or 0. */
static int shrink_node(const glint_layout *l, int32_t node, int step, glint_layout *out) {
  const glint_layout_node *n = &l->node[node];
  int32_t parent = parent_of(l, node);
  *out = *l;
  glint_layout_node *changed = &out->node[node];
  if (step == 0) { /* drop the node from its tuple */
    if (parent < 0 || l->node[parent].rank < 2) return 0;
    remove_nodes(out, node, end_of(l, node));
    out->node[parent].rank--;
    return 1;
  }
  if (step == 1) { /* a tuple of one becomes what it holds */
    if (n->kind != GLINT_LAYOUT_TUPLE || n->rank != 1) return 0;
    remove_nodes(out, node, node + 1);
    return 1;
  }
  if (n->kind != GLINT_LAYOUT_MODE) return 0;
  if (step == 2) changed->shape = 1;
  if (step == 3) changed->shape = n->shape / 2;
  if (step == 4) changed->shape = n->shape - 1;
  if (step == 5) changed->stride = 0;
  if (step == 6) changed->stride = n->stride / 2;
  return changed->shape >= 1 && (changed->shape < n->shape || changed->stride < n->stride);
}

/* Takes the first smaller pair that still fails, until there is none. */
static void shrink(law test, glint_layout *a, glint_layout *b, char why[256]) {
  glint_layout smaller;
  char reason[256];
  for (int again = 1; again;) {
    again = 0;
    for (int which = 0; which < 2 && !again; which++) {
      glint_layout *l = which ? b : a;
      for (int32_t node = 0; node < l->count && !again; node++)
        for (int step = 0; step < STEPS && !again; step++) {
          if (!shrink_node(l, node, step, &smaller)) continue;
          if (test(which ? a : &smaller, which ? &smaller : b, reason) != FAILS) continue;
          *l = smaller;
          memcpy(why, reason, sizeof reason);
          again = 1;
        }
    }
  }
}

int property_check(law test, int cases, glint_layout *a, glint_layout *b, char why[256]) {
  int held = 0;
  for (int i = 0; i < cases; i++) {
    property_layout(256, a);
    property_layout(64, b);
    verdict v = test(a, b, why);
    held += v == HOLDS;
    if (v != FAILS) continue;
    shrink(test, a, b, why);
    return 0;
  }
  if (held * 20 >= cases) return 1;
  snprintf(why, 256, "defined for only %d of %d cases: the test says too little", held, cases);
  return 0;
}
