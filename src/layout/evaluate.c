/* From coordinates to offsets and back: integer and nested coordinates, slices, and the swizzle. */
#include "tree.h"

int64_t glint_swizzle_apply(glint_swizzle swizzle, int64_t offset) {
  if (swizzle.bits == 0) return offset;
  /* unsigned, so that negative offsets shift as two's complement numbers of 64 bits */
  uint64_t x = (uint64_t)offset, mask = (1ull << swizzle.bits) - 1;
  uint64_t source = mask << (swizzle.base + (swizzle.shift > 0 ? swizzle.shift : 0));
  uint64_t moved = swizzle.shift > 0 ? (x & source) >> swizzle.shift : (x & source) << -swizzle.shift;
  return (int64_t)(x ^ moved);
}

int64_t layout_at_node(const glint_layout *l, int32_t node, int64_t index) {
  if (!layout_is_tuple(l, node)) return (int64_t)((uint64_t)index * (uint64_t)l->node[node].stride);
  int64_t offset = 0;
  int32_t rank = l->node[node].rank;
  node++;
  for (int32_t i = 0; i < rank; i++) {
    int64_t size = layout_size_of(l, node), in_mode = index;
    if (i + 1 < rank) {
      in_mode = index % size;
      index /= size;
    }
    offset = (int64_t)((uint64_t)offset + (uint64_t)layout_at_node(l, node, in_mode));
    node = layout_next(l, node);
  }
  return offset;
}

int64_t glint_layout_at(const glint_layout *layout, int64_t index) {
  return glint_swizzle_apply(layout->swizzle, (int64_t)((uint64_t)layout->offset + (uint64_t)layout_at_node(layout, 0, index)));
}

/* Beyond its size a mode continues with its last stride; how far, is limited so that offsets stay exact. */
static int is_reachable(const glint_layout *l, int32_t node, int64_t at) {
  int64_t stride = 1, reach;
  for (int32_t i = node, end = layout_next(l, node); i < end; i++) {
    int64_t s = l->node[i].stride < 0 ? -l->node[i].stride : l->node[i].stride;
    if (l->node[i].kind == GLINT_LAYOUT_MODE && s > stride) stride = s;
  }
  return at >= 0 && !__builtin_mul_overflow(at, stride, &reach) && reach < GLINT_LAYOUT_MAX_SIZE * 64;
}

/* Adds to *offset what the coordinate's fixed parts give; _ gives nothing. bounded: each part must lie inside its mode. */
static glint_status add_coordinate(const glint_layout *l, int32_t node, const glint_layout *c, int32_t c_node, int bounded, int64_t *offset,
                                   glint_layout_error *error) {
  if (c->node[c_node].kind == GLINT_LAYOUT_ALL) return GLINT_OK;
  if (!layout_is_tuple(c, c_node)) {
    int64_t at = c->node[c_node].shape, size = layout_size_of(l, node);
    if ((at < 0 || at >= size) && (bounded || !is_reachable(l, node, at)))
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "coordinate %lld is outside a mode of size %lld", (long long)at,
                         (long long)size);
    *offset += layout_at_node(l, node, at);
    return GLINT_OK;
  }
  int32_t rank = c->node[c_node].rank;
  if (!layout_is_tuple(l, node) || l->node[node].rank != rank)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the coordinate has %d entries where the layout has %d modes", rank,
                       layout_rank_of(l, node));
  for (int32_t i = 0; i < rank; i++) {
    glint_status status = add_coordinate(l, layout_child(l, node, i), c, layout_child(c, c_node, i), bounded, offset, error);
    if (status) return status;
  }
  return GLINT_OK;
}

static int has_all(const glint_layout *c) {
  for (int32_t i = 0; i < c->count; i++)
    if (c->node[i].kind == GLINT_LAYOUT_ALL) return 1;
  return 0;
}

glint_status glint_layout_at_coordinate(const glint_layout *layout, const glint_layout *coordinate, int64_t *offset,
                                        glint_layout_error *error) {
  if (has_all(coordinate)) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the coordinate has a _ : it names a slice, no element");
  int64_t sum = layout->offset;
  glint_status status = add_coordinate(layout, 0, coordinate, 0, 0, &sum, error);
  if (!status) *offset = glint_swizzle_apply(layout->swizzle, sum);
  return status;
}

glint_status glint_layout_coordinate(const glint_layout *layout, int64_t index, glint_layout *coordinate, glint_layout_error *error) {
  int64_t size = glint_layout_size(layout);
  if (index < 0 || index >= size)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "index is %lld, expected 0 to %lld", (long long)index, (long long)size - 1);
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  for (int32_t i = 0; i < layout->count; i++) {
    const glint_layout_node *n = &layout->node[i];
    if (n->kind == GLINT_LAYOUT_MODE) {
      layout_put_mode(&b, index % n->shape, 0);
      index /= n->shape;
    } else {
      layout_put(&b, (glint_layout_kind)n->kind, 0, 0, n->rank);
    }
  }
  if (!b.status) *coordinate = result;
  return b.status;
}

/* Appends the subtrees of l that stand at a _ of the coordinate, and counts them. */
static void keep_modes(layout_builder *b, const glint_layout *l, int32_t node, const glint_layout *c, int32_t c_node, int32_t *kept) {
  if (c->node[c_node].kind == GLINT_LAYOUT_ALL) {
    layout_put_tree(b, l, node);
    ++*kept;
  } else if (layout_is_tuple(c, c_node)) {
    for (int32_t i = 0; i < c->node[c_node].rank; i++) keep_modes(b, l, layout_child(l, node, i), c, layout_child(c, c_node, i), kept);
  }
}

glint_status glint_layout_slice(const glint_layout *layout, const glint_layout *coordinate, glint_layout *out, int64_t *offset,
                                glint_layout_error *error) {
  if (!has_all(coordinate)) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the coordinate has no _ : nothing would be left");
  int64_t fixed = 0;
  glint_status status = add_coordinate(layout, 0, coordinate, 0, 1, &fixed, error);
  if (status) return status;
  glint_swizzle swizzle = layout->swizzle;
  int64_t inner = layout->offset;
  int swizzled = layout_is_swizzled(layout);
  if (coordinate->node[0].kind == GLINT_LAYOUT_ALL) {
    *out = *layout;
    *offset = 0;
    return GLINT_OK;
  }
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  int32_t kept = 0;
  layout_put_tuple(&b, 0);
  keep_modes(&b, layout, 0, coordinate, 0, &kept);
  result.node[0].rank = kept;
  if (layout_end(&b)) return b.status;
  *out = result;
  layout_wrap(out, swizzle, swizzled ? inner + fixed : 0);
  *offset = swizzled ? 0 : fixed;
  return GLINT_OK;
}
