/* Coalesce, filter, flatten, sort, composition and complement. Where CuTe's C++ and pycute differ, pycute is followed for results and the
 * stricter of the two for what is refused: a result that is returned is the composition as a function. */
#include "tree.h"

#include <string.h>

typedef glint_status (*node_operation)(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error);

/* Applies the operation at the leaves of the profile, mode by mode; modes beyond the profile stay. */
static glint_status by_profile(const glint_layout *l, int32_t node, const glint_layout *profile, int32_t p_node, node_operation operation,
                               layout_builder *b) {
  if (!layout_is_tuple(profile, p_node)) {
    glint_layout part;
    glint_status status = operation(l, node, &part, b->error);
    if (status) return b->status = status;
    layout_put_tree(b, &part, 0);
    return b->status;
  }
  int32_t rank = layout_rank_of(l, node), p_rank = profile->node[p_node].rank;
  if (p_rank > rank)
    return b->status = layout_fail(b->error, GLINT_ERROR_INVALID_ARGUMENT, "the profile has %d modes, the layout only %d", p_rank, rank);
  layout_put_tuple(b, rank);
  for (int32_t i = 0; i < rank; i++) {
    int32_t child = layout_child(l, node, i);
    if (i >= p_rank)
      layout_put_tree(b, l, child);
    else if (by_profile(l, child, profile, layout_child(profile, p_node, i), operation, b))
      return b->status;
  }
  return b->status;
}

static glint_status with_profile(const glint_layout *layout, const glint_layout *profile, node_operation operation, glint_layout *out,
                                 glint_layout_error *error) {
  static const glint_layout whole = {.count = 1};
  glint_layout result;
  glint_swizzle swizzle = layout->swizzle;
  int64_t offset = layout->offset;
  layout_builder b = layout_begin(&result, error);
  if (by_profile(layout, 0, profile ? profile : &whole, 0, operation, &b)) return b.status;
  *out = result;
  layout_wrap(out, swizzle, offset);
  return GLINT_OK;
}

static glint_status put_flat_result(const int64_t *shape, const int64_t *stride, int32_t n, glint_layout *out, glint_layout_error *error) {
  layout_builder b = layout_begin(out, error);
  layout_put_flat(&b, shape, stride, n);
  return layout_end(&b);
}

static glint_status coalesce_node(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES];
  int32_t n = layout_merge(shape, stride, layout_leaves(l, node, shape, stride));
  return put_flat_result(shape, stride, n, out, error);
}

static glint_status filter_node(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES];
  int32_t n = layout_leaves(l, node, shape, stride), kept = 0;
  for (int32_t i = 0; i < n; i++)
    if (shape[i] != 1 && stride[i] != 0) {
      shape[kept] = shape[i];
      stride[kept++] = stride[i];
    }
  return put_flat_result(shape, stride, layout_merge(shape, stride, kept), out, error);
}

static glint_status flatten_node(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES];
  int32_t n = layout_leaves(l, node, shape, stride);
  return put_flat_result(shape, stride, n, out, error);
}

/* Insertion sort by stride, then shape: layouts are short. */
static void sort_modes(int64_t *shape, int64_t *stride, int32_t n) {
  for (int32_t i = 1; i < n; i++) {
    int64_t s = shape[i], d = stride[i];
    int32_t j = i;
    for (; j > 0 && (stride[j - 1] > d || (stride[j - 1] == d && shape[j - 1] > s)); j--) {
      shape[j] = shape[j - 1];
      stride[j] = stride[j - 1];
    }
    shape[j] = s;
    stride[j] = d;
  }
}

static glint_status sort_node(const glint_layout *l, int32_t node, glint_layout *out, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES];
  int32_t n = layout_leaves(l, node, shape, stride);
  sort_modes(shape, stride, n);
  return put_flat_result(shape, stride, n, out, error);
}

glint_status glint_layout_coalesce(const glint_layout *layout, const glint_layout *profile, glint_layout *out, glint_layout_error *error) {
  return with_profile(layout, profile, coalesce_node, out, error);
}

glint_status glint_layout_filter(const glint_layout *layout, const glint_layout *profile, glint_layout *out, glint_layout_error *error) {
  return with_profile(layout, profile, filter_node, out, error);
}

glint_status glint_layout_flatten(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  return with_profile(layout, NULL, flatten_node, out, error);
}

glint_status glint_layout_sort(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  return with_profile(layout, NULL, sort_node, out, error);
}

/* ---- composition -------------------------------------------------------------------------------------------------------------- */

/* The left operand: n coalesced modes, and how far into each the modes of the right operand lead together. Their sum must not carry into the
 * next mode: else the composition mode by mode would not be the composition of the functions. */
typedef struct left_modes {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES], reach[GLINT_LAYOUT_MAX_NODES];
  int32_t n;
} left_modes;

static void refuse_composition(layout_builder *b, const left_modes *a, int32_t i, int64_t shape, int64_t stride, const char *why) {
  if (b->status) return;
  b->status = layout_fail(b->error, GLINT_ERROR_INVALID_ARGUMENT,
                          "composition undefined: mode %lld:%lld of the right layout %s mode %lld:%lld of the left one", (long long)shape,
                          (long long)stride, why, (long long)a->shape[i], (long long)a->stride[i]);
}

/* a after one mode shape:stride of b. Mode i of a takes the factor of `shape` that moves inside it; what is left moves in the next modes.
 * Divisibility is what makes each step the same in every lap. */
static void compose_mode(layout_builder *b, left_modes *a, int64_t shape, int64_t stride) {
  int64_t r_shape[GLINT_LAYOUT_MAX_NODES + 1], r_stride[GLINT_LAYOUT_MAX_NODES + 1];
  int64_t rest_shape = shape, rest_stride = stride;
  int32_t r = 0;
  if (stride == 0) {
    layout_put_mode(b, shape, 0);
    return;
  }
  for (int32_t i = 0; i + 1 < a->n; i++) {
    int64_t step = rest_stride < 0 ? -rest_stride : rest_stride, sign = rest_stride < 0 ? -1 : 1, taken = 1;
    if (step % a->shape[i] != 0 && rest_shape > 1) {
      int64_t room = layout_ceil_div(a->shape[i], step);
      taken = room < rest_shape ? room : rest_shape;
      int stays = rest_shape <= room; /* never leaves mode i: nothing has to divide */
      if (!stays && (a->shape[i] % step != 0 || rest_shape % taken != 0)) {
        refuse_composition(b, a, i, shape, stride, "does not divide");
        return;
      }
      a->reach[i] += (taken - 1) * step;
      if (a->reach[i] >= a->shape[i]) {
        refuse_composition(b, a, i, shape, stride, "leads, together with the modes before it, beyond the end of");
        return;
      }
    }
    if (taken != 1) {
      r_shape[r] = taken;
      r_stride[r++] = layout_mul(b, rest_stride, a->stride[i]);
    }
    rest_shape /= taken;
    rest_stride = sign * layout_ceil_div(step, a->shape[i]);
  }
  if (rest_shape != 1 || r == 0) {
    r_shape[r] = rest_shape;
    r_stride[r++] = layout_mul(b, rest_stride, a->stride[a->n - 1]);
  }
  layout_put_flat(b, r_shape, r_stride, r);
}

static int64_t cosize_of(const glint_layout *l, int32_t node) {
  int64_t last = 0;
  for (int32_t end = layout_next(l, node); node < end; node++)
    if (l->node[node].kind == GLINT_LAYOUT_MODE)
      last += (l->node[node].shape - 1) * (l->node[node].stride < 0 ? -l->node[node].stride : l->node[node].stride);
  return last + 1;
}

static glint_status compose_into(layout_builder *b, const glint_layout *a, int32_t node, const glint_layout *l, int32_t l_node) {
  if (b->status) return b->status;
  const glint_layout_node *right = &l->node[l_node];
  if (right->kind == GLINT_LAYOUT_ALL) {
    layout_put_tree(b, a, node);
  } else if (right->kind == GLINT_LAYOUT_TILER) {
    int32_t rank = layout_rank_of(a, node);
    if (right->rank > rank)
      return b->status =
                 layout_fail(b->error, GLINT_ERROR_INVALID_ARGUMENT, "the tiler has %d modes, the layout only %d", right->rank, rank);
    layout_put_tuple(b, rank);
    for (int32_t i = 0; i < rank; i++) {
      if (i < right->rank)
        compose_into(b, a, layout_child(a, node, i), l, layout_child(l, l_node, i));
      else
        layout_put_tree(b, a, layout_child(a, node, i));
    }
  } else {
    left_modes left = {.reach = {0}};
    left.n = layout_leaves(a, node, left.shape, left.stride);
    /* beyond its size a layout goes on along its last mode, so there a last mode of shape 1 must not be dropped */
    if (left.shape[left.n - 1] == 1 && cosize_of(l, l_node) > layout_size_of(a, node)) left.shape[left.n - 1] = 2;
    left.n = layout_merge(left.shape, left.stride, left.n);
    for (int32_t end = layout_next(l, l_node); l_node < end; l_node++) {
      if (l->node[l_node].kind == GLINT_LAYOUT_TUPLE)
        layout_put_tuple(b, l->node[l_node].rank);
      else
        compose_mode(b, &left, l->node[l_node].shape, l->node[l_node].stride);
    }
  }
  return b->status;
}

glint_status layout_compose_node(const glint_layout *a, int32_t node, const glint_layout *b, int32_t b_node, glint_layout *out,
                                 glint_layout_error *error) {
  glint_layout result;
  layout_builder builder = layout_begin(&result, error);
  compose_into(&builder, a, node, b, b_node);
  if (!layout_end(&builder)) *out = result;
  return builder.status;
}

/* The swizzle w with w o a = a o s, by CuTe's rule: s's two bit masks go through a. Whether it holds is checked by the caller. */
static int carry_swizzle(const glint_layout *a, glint_swizzle s, glint_swizzle *w) {
  uint64_t mask = (1ull << s.bits) - 1;
  int64_t source = (int64_t)(mask << (s.base + (s.shift > 0 ? s.shift : 0)));
  int64_t target = (int64_t)(mask << (s.base - (s.shift < 0 ? s.shift : 0)));
  int64_t y = layout_at_node(a, 0, source), z = layout_at_node(a, 0, target);
  if (y <= 0 || z <= 0 || __builtin_popcountll((uint64_t)y) != s.bits || __builtin_popcountll((uint64_t)z) != s.bits) return 0;
  int32_t y_low = __builtin_ctzll((uint64_t)y), z_low = __builtin_ctzll((uint64_t)z);
  if (y != (int64_t)(mask << y_low) || z != (int64_t)(mask << z_low)) return 0;
  *w = (glint_swizzle){s.bits, y_low < z_low ? y_low : z_low, y_low - z_low};
  return w->base <= 30 && w->shift <= 30 && w->shift >= -30 && (w->shift < 0 ? -w->shift : w->shift) >= w->bits;
}

/* a o (Sw o 0 o l) for a plain a. */
static glint_status compose_swizzled(const glint_layout *a, const glint_layout *b, glint_layout *out, glint_layout_error *error) {
  glint_layout inner = *b, result;
  glint_swizzle w;
  layout_wrap(&inner, (glint_swizzle){0, 0, 0}, 0);
  if (layout_is_swizzled(a) || b->offset != 0 || glint_layout_size(b) > 1 << 20 || !carry_swizzle(a, b->swizzle, &w))
    return layout_fail(error, GLINT_ERROR_UNSUPPORTED, "the swizzle on the right does not pass through the layout on the left");
  glint_status status = layout_compose_node(a, 0, &inner, 0, &result, error);
  if (status) return status;
  layout_wrap(&result, w, 0);
  for (int64_t i = 0, size = glint_layout_size(b); i < size; i++)
    if (glint_layout_at(&result, i) != glint_layout_at(a, glint_layout_at(b, i)))
      return layout_fail(error, GLINT_ERROR_UNSUPPORTED, "the composition is not of the form swizzle o layout (it differs at index %lld)",
                         (long long)i);
  *out = result;
  return GLINT_OK;
}

glint_status glint_layout_compose(const glint_layout *a, const glint_layout *b, glint_layout *out, glint_layout_error *error) {
  if (layout_is_swizzled(b)) return compose_swizzled(a, b, out, error);
  glint_swizzle swizzle = a->swizzle;
  int64_t offset = a->offset;
  glint_status status = layout_compose_node(a, 0, b, 0, out, error);
  if (!status) layout_wrap(out, swizzle, offset);
  return status;
}

/* ---- complement --------------------------------------------------------------------------------------------------------------- */

glint_status glint_layout_complement(const glint_layout *layout, int64_t cotarget, glint_layout *out, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES];
  int64_t r_shape[GLINT_LAYOUT_MAX_NODES + 1], r_stride[GLINT_LAYOUT_MAX_NODES + 1];
  int64_t filled = 1; /* offsets below it are covered, by the layout or by the complement's modes so far */
  int32_t n = layout_leaves(layout, 0, shape, stride), r = 0;
  if (cotarget < 0 || cotarget >= GLINT_LAYOUT_MAX_SIZE)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "cotarget is %lld, expected 0 to 2^48", (long long)cotarget);
  sort_modes(shape, stride, n);
  for (int32_t i = 0; i < n; i++) {
    if (stride[i] == 0 || shape[i] == 1) continue;
    if (stride[i] < filled)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                         stride[i] < 0 ? "complement undefined: mode %lld:%lld has a negative stride"
                                       : "complement undefined: mode %lld:%lld overlaps the modes of smaller stride",
                         (long long)shape[i], (long long)stride[i]);
    r_shape[r] = stride[i] / filled;
    r_stride[r++] = filled;
    filled = shape[i] * stride[i];
  }
  r_shape[r] = layout_ceil_div(cotarget > 0 ? cotarget : 1, filled);
  r_stride[r++] = filled;
  return put_flat_result(r_shape, r_stride, layout_merge(r_shape, r_stride, r), out, error);
}
