/* Right and left inverse, and the widest vector that two layouts share. */
#include "tree.h"

typedef struct inverse_mode {
  int64_t stride, shape, index_stride; /* index_stride: by how much the integer coordinate moves with this mode */
} inverse_mode;

static int comes_before(const inverse_mode *x, const inverse_mode *y) {
  if (x->stride != y->stride) return x->stride < y->stride;
  return x->shape != y->shape ? x->shape < y->shape : x->index_stride < y->index_stride;
}

/* Of a plain layout: follows the modes by ascending stride as long as each begins where the last ended. Stride 0 adds nothing. */
static glint_status invert_plain(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  inverse_mode mode[GLINT_LAYOUT_MAX_NODES];
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES], index_stride = 1, next = 1;
  int32_t n = 0, r = 0;
  for (int32_t i = 0; i < layout->count; i++) {
    const glint_layout_node *leaf = &layout->node[i];
    if (leaf->kind != GLINT_LAYOUT_MODE) continue;
    if (leaf->shape != 1 && leaf->stride != 0) {
      inverse_mode m = {leaf->stride, leaf->shape, index_stride};
      int32_t j = n++;
      for (; j > 0 && comes_before(&m, &mode[j - 1]); j--) mode[j] = mode[j - 1];
      mode[j] = m;
    }
    index_stride *= leaf->shape;
  }
  for (int32_t i = 0; i < n && mode[i].stride == next; i++) {
    shape[r] = mode[i].shape;
    stride[r++] = mode[i].index_stride;
    next = mode[i].shape * mode[i].stride;
  }
  layout_builder b = layout_begin(out, error);
  layout_put_flat(&b, shape, stride, layout_merge(shape, stride, r));
  return layout_end(&b);
}

/* The gaps between the modes must be whole multiples of what lies below them: only then does the complement fill them. */
static glint_status check_gaps(const glint_layout *layout, glint_layout_error *error) {
  int64_t shape[GLINT_LAYOUT_MAX_NODES], stride[GLINT_LAYOUT_MAX_NODES], filled = 1;
  glint_layout sorted;
  glint_status status = glint_layout_sort(layout, &sorted, error);
  if (status) return status;
  int32_t n = layout_leaves(&sorted, 0, shape, stride);
  for (int32_t i = 0; i < n; i++) {
    if (shape[i] == 1 || stride[i] == 0) continue;
    if (stride[i] % filled != 0)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                         "left inverse undefined: the stride of mode %lld:%lld is no multiple of %lld, where the smaller modes end",
                         (long long)shape[i], (long long)stride[i], (long long)filled);
    filled = shape[i] * stride[i];
  }
  return GLINT_OK;
}

static glint_status invert_left_plain(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  glint_layout rest, both;
  glint_status status = glint_layout_complement(layout, 1, &rest, error);
  if (!status) status = check_gaps(layout, error);
  if (status) return status;
  const glint_layout *modes[2] = {layout, &rest};
  status = glint_layout_concat(modes, 2, &both, error);
  if (!status) status = invert_plain(&both, out, error);
  return status;
}

typedef glint_status (*inversion)(const glint_layout *layout, glint_layout *out, glint_layout_error *error);

/* (Sw o 0 o l)^-1 = l^-1 o Sw, since a swizzle is its own inverse. */
static glint_status invert(const glint_layout *layout, inversion plain, glint_layout *out, glint_layout_error *error) {
  glint_layout inner = *layout, inverse, swizzle;
  layout_wrap(&inner, (glint_swizzle){0, 0, 0}, 0);
  glint_status status = plain(&inner, &inverse, error);
  if (!status && layout_is_swizzled(layout)) {
    if (layout->offset)
      return layout_fail(error, GLINT_ERROR_UNSUPPORTED,
                         "the inverse of a layout with an offset (%lld) behind its swizzle has no such form", (long long)layout->offset);
    glint_layout_leaf(glint_layout_size(&inverse), 1, &swizzle);
    layout_wrap(&swizzle, layout->swizzle, 0);
    status = glint_layout_compose(&inverse, &swizzle, &inverse, error);
  }
  if (!status) *out = inverse;
  return status;
}

glint_status glint_layout_right_inverse(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  return invert(layout, invert_plain, out, error);
}

glint_status glint_layout_left_inverse(const glint_layout *layout, glint_layout *out, glint_layout_error *error) {
  return invert(layout, invert_left_plain, out, error);
}

glint_status glint_layout_max_common_vector(const glint_layout *a, const glint_layout *b, int64_t *n, glint_layout_error *error) {
  glint_layout plain_a = *a, plain_b = *b, common;
  layout_wrap(&plain_a, (glint_swizzle){0, 0, 0}, 0);
  layout_wrap(&plain_b, (glint_swizzle){0, 0, 0}, 0);
  glint_status status = invert_plain(&plain_b, &common, error);
  if (!status) status = glint_layout_compose(&plain_a, &common, &common, error);
  if (!status) status = glint_layout_coalesce(&common, NULL, &common, error);
  if (status) return status;
  const glint_layout_node *first = &common.node[layout_child(&common, 0, 0)];
  int64_t width = first->stride == 1 ? first->shape : 1;
  /* a swizzle leaves runs of 2^base alone */
  if (a->swizzle.bits && width > (int64_t)1 << a->swizzle.base) width = (int64_t)1 << a->swizzle.base;
  if (b->swizzle.bits && width > (int64_t)1 << b->swizzle.base) width = (int64_t)1 << b->swizzle.base;
  *n = width;
  return GLINT_OK;
}
