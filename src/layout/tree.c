/* The tree of a layout: building it node by node, walking it, and the questions that need no algebra (size, rank, depth...). */
#include "tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

glint_status layout_fail(glint_layout_error *error, glint_status status, const char *format, ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  return status;
}

layout_builder layout_begin(glint_layout *out, glint_layout_error *error) {
  out->count = 0;
  layout_wrap(out, (glint_swizzle){0, 0, 0}, 0);
  return (layout_builder){out, error, GLINT_OK};
}

void layout_put(layout_builder *b, glint_layout_kind kind, int64_t shape, int64_t stride, int32_t rank) {
  if (b->status) return;
  if (b->out->count == GLINT_LAYOUT_MAX_NODES) {
    b->status = layout_fail(b->error, GLINT_ERROR_UNSUPPORTED, "the result has more than %d modes and tuples", GLINT_LAYOUT_MAX_NODES);
    return;
  }
  b->out->node[b->out->count++] = (glint_layout_node){shape, stride, rank, (int32_t)kind};
}

void layout_put_mode(layout_builder *b, int64_t shape, int64_t stride) { layout_put(b, GLINT_LAYOUT_MODE, shape, stride, 0); }

void layout_put_tuple(layout_builder *b, int32_t rank) { layout_put(b, GLINT_LAYOUT_TUPLE, 0, 0, rank); }

void layout_put_tree(layout_builder *b, const glint_layout *l, int32_t node) {
  for (int32_t end = layout_next(l, node); node < end; node++) {
    const glint_layout_node *n = &l->node[node];
    layout_put(b, (glint_layout_kind)n->kind, n->shape, n->stride, n->rank);
  }
}

glint_status layout_end(layout_builder *b) {
  if (!b->status && !layout_within_limits(b->out))
    b->status = layout_fail(b->error, GLINT_ERROR_UNSUPPORTED, "the size or the offsets of the result pass 2^48");
  return b->status;
}

int64_t layout_mul(layout_builder *b, int64_t x, int64_t y) {
  int64_t product;
  if (!__builtin_mul_overflow(x, y, &product) && product < GLINT_LAYOUT_MAX_SIZE && product > -GLINT_LAYOUT_MAX_SIZE) return product;
  if (!b->status) b->status = layout_fail(b->error, GLINT_ERROR_UNSUPPORTED, "%lld * %lld passes 2^48", (long long)x, (long long)y);
  return 0;
}

int layout_is_tuple(const glint_layout *l, int32_t node) {
  return l->node[node].kind == GLINT_LAYOUT_TUPLE || l->node[node].kind == GLINT_LAYOUT_TILER;
}

int32_t layout_next(const glint_layout *l, int32_t node) {
  int32_t open = 1; /* subtrees still to pass */
  for (; open > 0; node++, open--)
    if (layout_is_tuple(l, node)) open += l->node[node].rank;
  return node;
}

int32_t layout_child(const glint_layout *l, int32_t node, int32_t i) {
  if (!layout_is_tuple(l, node)) return node;
  node++;
  while (i-- > 0) node = layout_next(l, node);
  return node;
}

int32_t layout_rank_of(const glint_layout *l, int32_t node) { return layout_is_tuple(l, node) ? l->node[node].rank : 1; }

int64_t layout_size_of(const glint_layout *l, int32_t node) {
  int64_t size = 1;
  for (int32_t end = layout_next(l, node); node < end; node++)
    if (l->node[node].kind == GLINT_LAYOUT_MODE) size *= l->node[node].shape;
  return size;
}

glint_status layout_subtree(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error) {
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  layout_put_tree(&b, l, node);
  if (!b.status) *out = result;
  return b.status;
}

int layout_within_limits(const glint_layout *l) {
  int64_t size = 1, reach = 0;
  for (int32_t i = 0; i < l->count; i++) {
    const glint_layout_node *n = &l->node[i];
    if (n->kind != GLINT_LAYOUT_MODE) continue;
    int64_t span, stride = n->stride < 0 ? -n->stride : n->stride;
    if (stride >= GLINT_LAYOUT_MAX_SIZE || n->shape < 1) return 0;
    if (__builtin_mul_overflow(size, n->shape, &size) || size >= GLINT_LAYOUT_MAX_SIZE) return 0;
    if (__builtin_mul_overflow(n->shape - 1, stride, &span) || span >= GLINT_LAYOUT_MAX_SIZE) return 0;
    reach += span;
    if (reach >= GLINT_LAYOUT_MAX_SIZE) return 0;
  }
  return 1;
}

int32_t layout_leaves(const glint_layout *l, int32_t node, int64_t *shape, int64_t *stride) {
  int32_t n = 0;
  for (int32_t end = layout_next(l, node); node < end; node++)
    if (l->node[node].kind == GLINT_LAYOUT_MODE) {
      shape[n] = l->node[node].shape;
      stride[n++] = l->node[node].stride;
    }
  return n;
}

void layout_put_flat(layout_builder *b, const int64_t *shape, const int64_t *stride, int32_t n) {
  if (n == 0) layout_put_mode(b, 1, 0);
  if (n > 1) layout_put_tuple(b, n);
  for (int32_t i = 0; i < n; i++) layout_put_mode(b, shape[i], stride[i]);
}

int32_t layout_merge(int64_t *shape, int64_t *stride, int32_t n) {
  int32_t last = 0; /* shape[0..last] is the result; it starts as 1:0 */
  int64_t top_shape = 1, top_stride = 0;
  for (int32_t i = 0; i < n; i++) {
    if (shape[i] == 1) continue;
    if (top_shape == 1) {
      top_shape = shape[i];
      top_stride = stride[i];
    } else if (top_shape * top_stride == stride[i]) {
      top_shape *= shape[i];
    } else {
      int64_t next_shape = shape[i], next_stride = stride[i];
      shape[last] = top_shape;
      stride[last++] = top_stride;
      top_shape = next_shape;
      top_stride = next_stride;
    }
  }
  shape[last] = top_shape;
  stride[last] = top_stride;
  return last + 1;
}

int layout_is_swizzled(const glint_layout *l) { return l->swizzle.bits != 0 || l->offset != 0; }

void layout_wrap(glint_layout *out, glint_swizzle swizzle, int64_t offset) {
  out->swizzle = swizzle.bits || offset ? swizzle : (glint_swizzle){0, 0, 0};
  out->offset = offset;
}

int64_t layout_ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

void glint_layout_leaf(int64_t shape, int64_t stride, glint_layout *layout) {
  layout_builder b = layout_begin(layout, NULL);
  layout_put_mode(&b, shape, stride);
}

glint_status glint_layout_concat(const glint_layout *const *modes, int32_t rank, glint_layout *layout, glint_layout_error *error) {
  if (rank < 1) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "rank is %d, expected at least 1", rank);
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  layout_put_tuple(&b, rank);
  for (int32_t i = 0; i < rank; i++) {
    if (layout_is_swizzled(modes[i]))
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode %d is swizzled; a mode must be plain", i);
    layout_put_tree(&b, modes[i], 0);
  }
  if (!layout_end(&b)) *layout = result;
  return b.status;
}

glint_status glint_layout_mode(const glint_layout *layout, int32_t i, glint_layout *mode, glint_layout_error *error) {
  int32_t rank = glint_layout_rank(layout);
  if (i < 0 || i >= rank) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode is %d, expected 0 to %d", i, rank - 1);
  glint_swizzle swizzle = layout->swizzle;
  int64_t offset = layout->offset;
  glint_status status = layout_subtree(layout, layout_child(layout, 0, i), mode, error);
  if (!status) layout_wrap(mode, swizzle, offset);
  return status;
}

glint_status glint_layout_swizzled(glint_swizzle swizzle, int64_t offset, const glint_layout *layout, glint_layout *out,
                                   glint_layout_error *error) {
  int32_t s = swizzle.shift < 0 ? -swizzle.shift : swizzle.shift;
  if (swizzle.bits < 0 || swizzle.base < 0 || s < swizzle.bits || s > 30 || swizzle.base > 30)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "Sw<%d,%d,%d>: expected 0 <= B <= |S| <= 30 and 0 <= M <= 30", swizzle.bits,
                       swizzle.base, swizzle.shift);
  if (offset >= GLINT_LAYOUT_MAX_SIZE || offset <= -GLINT_LAYOUT_MAX_SIZE)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "offset %lld passes 2^48", (long long)offset);
  if (layout_is_swizzled(layout)) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the layout is already behind a swizzle");
  if (out != layout) *out = *layout;
  layout_wrap(out, swizzle, offset);
  return GLINT_OK;
}

int64_t glint_layout_size(const glint_layout *layout) { return layout_size_of(layout, 0); }

int64_t glint_layout_cosize(const glint_layout *layout) {
  int64_t last = 0;
  for (int32_t i = 0; i < layout->count; i++) {
    const glint_layout_node *n = &layout->node[i];
    if (n->kind == GLINT_LAYOUT_MODE) last += (n->shape - 1) * (n->stride < 0 ? -n->stride : n->stride);
  }
  return last + 1;
}

int32_t glint_layout_rank(const glint_layout *layout) { return layout_rank_of(layout, 0); }

static int32_t depth_of(const glint_layout *l, int32_t node) {
  if (!layout_is_tuple(l, node)) return 0;
  int32_t deepest = 0;
  for (int32_t i = 0; i < l->node[node].rank; i++) {
    int32_t d = depth_of(l, layout_child(l, node, i));
    if (d > deepest) deepest = d;
  }
  return deepest + 1;
}

int32_t glint_layout_depth(const glint_layout *layout) { return depth_of(layout, 0); }

int glint_layout_equal(const glint_layout *a, const glint_layout *b) {
  if (a->count != b->count || a->offset != b->offset || a->swizzle.bits != b->swizzle.bits) return 0;
  if (a->swizzle.bits && (a->swizzle.base != b->swizzle.base || a->swizzle.shift != b->swizzle.shift)) return 0;
  for (int32_t i = 0; i < a->count; i++) {
    const glint_layout_node *x = &a->node[i], *y = &b->node[i];
    if (x->kind != y->kind || x->rank != y->rank || x->shape != y->shape || x->stride != y->stride) return 0;
  }
  return 1;
}

int glint_layout_injective(const glint_layout *layout, uint64_t *bitmap, size_t words) {
  int64_t size = glint_layout_size(layout), cosize = glint_layout_cosize(layout);
  if ((uint64_t)cosize > (uint64_t)words * 64) return -1;
  if (size > cosize) return 0;
  memset(bitmap, 0, words * sizeof *bitmap);
  for (int64_t i = 0; i < size; i++) {
    int64_t at = layout_at_node(layout, 0, i);
    if (at < 0) return -1;
    uint64_t bit = 1ull << (at % 64);
    if (bitmap[at / 64] & bit) return 0;
    bitmap[at / 64] |= bit;
  }
  return 1;
}
