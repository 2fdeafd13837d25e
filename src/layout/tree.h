/* Inside src/layout: building and walking a layout's tree, and checked arithmetic. A builder appends nodes in preorder; its first failure
 * sticks, so that a function may build everything and test once. */
#ifndef GLINT_LAYOUT_TREE_H
#define GLINT_LAYOUT_TREE_H

#include "glint_layout.h"

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
glint_status
layout_fail(glint_layout_error *error, glint_status status, const char *format, ...);

typedef struct layout_builder {
  glint_layout *out;
  glint_layout_error *error;
  glint_status status; /* of the first failure */
} layout_builder;

/* Starts an empty, plain layout in *out. */
layout_builder layout_begin(glint_layout *out, glint_layout_error *error);
void layout_put(layout_builder *b, glint_layout_kind kind, int64_t shape, int64_t stride, int32_t rank);
void layout_put_mode(layout_builder *b, int64_t shape, int64_t stride);
void layout_put_tuple(layout_builder *b, int32_t rank);
/* Appends the subtree of l at node. */
void layout_put_tree(layout_builder *b, const glint_layout *l, int32_t node);
/* Checks sizes and returns the builder's status. */
glint_status layout_end(layout_builder *b);

/* Product that stays within GLINT_LAYOUT_MAX_SIZE; otherwise the builder fails and 0 comes back. */
int64_t layout_mul(layout_builder *b, int64_t x, int64_t y);

int32_t layout_next(const glint_layout *l, int32_t node);             /* the node behind this subtree */
int32_t layout_child(const glint_layout *l, int32_t node, int32_t i); /* mode i; an integer is its own mode 0 */
int32_t layout_rank_of(const glint_layout *l, int32_t node);
int64_t layout_size_of(const glint_layout *l, int32_t node);
int layout_is_tuple(const glint_layout *l, int32_t node); /* a tuple or a tiler's tuple */
/* A plain layout made of one subtree. */
glint_status layout_subtree(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error);
/* Product of shapes and sum of |(shape - 1) * stride|; 0 if either passes GLINT_LAYOUT_MAX_SIZE. */
int layout_within_limits(const glint_layout *l);

/* The leaves of a subtree as arrays of GLINT_LAYOUT_MAX_NODES; returns their number. */
int32_t layout_leaves(const glint_layout *l, int32_t node, int64_t *shape, int64_t *stride);
/* A flat layout of n modes: an integer if n is 1, 1:0 if n is 0. */
void layout_put_flat(layout_builder *b, const int64_t *shape, const int64_t *stride, int32_t n);
/* Merges neighbours (and drops shape 1) in place; returns the new n, at least 1. */
int32_t layout_merge(int64_t *shape, int64_t *stride, int32_t n);
int64_t layout_at_node(const glint_layout *l, int32_t node, int64_t index);
int layout_is_swizzled(const glint_layout *l);
/* Copies the swizzle and offset of `from`. */
void layout_wrap(glint_layout *out, glint_swizzle swizzle, int64_t offset);
int64_t layout_ceil_div(int64_t x, int64_t y);

/* Operations on a subtree, for those who work by mode. */
glint_status layout_compose_node(const glint_layout *a, int32_t node, const glint_layout *b, int32_t b_node, glint_layout *out,
                                 glint_layout_error *error);

#endif
