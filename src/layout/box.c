/* The TMA box that writes a layout. A tensor copy fills shared memory densely: box dimension 0 first, then 1, and so on, then the swizzle on
 * the address. So the modes of the layout, sorted by stride, are the box's dimensions, if they are compact. */
#include "tree.h"

typedef struct dimension {
  int64_t extent, stride, step; /* stride in shared memory, step along the mode, all in elements */
  int32_t mode;
} dimension;

enum { MAX_BOX = 256, MAX_RANK = 5 };

/* The leaves with more than one element, by ascending stride. */
static glint_status sorted_leaves(const glint_layout *l, dimension *d, int32_t *count, glint_layout_error *error) {
  int32_t n = 0;
  for (int32_t mode = 0; mode < 2; mode++) {
    int64_t step = 1;
    int32_t node = layout_child(l, 0, mode);
    for (int32_t end = layout_next(l, node); node < end; node++) {
      const glint_layout_node *leaf = &l->node[node];
      if (leaf->kind != GLINT_LAYOUT_MODE) continue;
      dimension x = {leaf->shape, leaf->stride, step, mode};
      step *= leaf->shape;
      if (leaf->shape == 1) continue;
      if (leaf->stride <= 0)
        return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode %lld:%lld: a copy writes every element once, forwards",
                           (long long)leaf->shape, (long long)leaf->stride);
      int32_t j = n++;
      for (; j > 0 && d[j - 1].stride > x.stride; j--) d[j] = d[j - 1];
      d[j] = x;
    }
  }
  *count = n;
  return GLINT_OK;
}

static glint_status check_dense(const dimension *d, int32_t n, glint_layout_error *error) {
  int64_t next = 1;
  for (int32_t i = 0; i < n; i++) {
    if (d[i].stride != next)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                         "a copy writes shared memory densely, but %s at element %lld (mode %lld:%lld)",
                         d[i].stride > next ? "the layout has a gap" : "two modes overlap", (long long)next, (long long)d[i].extent,
                         (long long)d[i].stride);
    next *= d[i].extent;
  }
  return GLINT_OK;
}

/* Joins neighbours that walk on along the same mode. */
static int32_t join(dimension *d, int32_t n) {
  int32_t last = 0;
  for (int32_t i = 1; i < n; i++) {
    if (d[i].mode == d[last].mode && d[i].step == d[last].step * d[last].extent)
      d[last].extent *= d[i].extent;
    else
      d[++last] = d[i];
  }
  return last + 1;
}

/* Cuts every dimension to its limit (256; the swizzle's span for the first); what is left over becomes a dimension of its own. */
static glint_status cut(const dimension *d, int32_t n, int64_t first_limit, dimension *out, int32_t *count, glint_layout_error *error) {
  int32_t k = 0;
  for (int32_t i = 0; i < n; i++) {
    dimension rest = d[i];
    do {
      int64_t limit = k == 0 && first_limit < MAX_BOX ? first_limit : MAX_BOX, part = rest.extent < limit ? rest.extent : limit;
      while (rest.extent % part != 0) part--;
      if (k == MAX_RANK) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the box would need more than %d dimensions", MAX_RANK);
      out[k++] = (dimension){part, rest.stride, rest.step, rest.mode};
      rest.extent /= part;
      rest.step *= part;
      rest.stride *= part;
    } while (rest.extent > 1);
  }
  *count = k;
  return GLINT_OK;
}

static glint_status check_tensor(const dimension *d, int32_t n, int32_t contiguous, int64_t bytes, glint_layout_error *error) {
  if (d[0].mode != contiguous || d[0].step != 1)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                       "neighbours in shared memory are %lld apart along mode %d, but neighbours in global memory lie along mode %d",
                       (long long)d[0].step, d[0].mode, contiguous);
  if (d[0].extent * bytes % 16 != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the innermost box dimension has %lld bytes, expected a multiple of 16",
                       (long long)(d[0].extent * bytes));
  for (int32_t i = 1; i < n; i++)
    if (d[i].mode == contiguous && d[i].step * bytes % 16 != 0)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "dimension %d steps %lld bytes in global memory, expected a multiple of 16",
                         i, (long long)(d[i].step * bytes));
  return GLINT_OK;
}

glint_status glint_layout_tma_box(const glint_layout *layout, int32_t element_bits, int32_t contiguous, glint_tma_box *box,
                                  glint_layout_error *error) {
  if (element_bits != 8 && element_bits != 16 && element_bits != 32 && element_bits != 64)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "element_bits is %d, expected 8, 16, 32 or 64", element_bits);
  if (glint_layout_rank(layout) != 2 || contiguous < 0 || contiguous > 1)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "expected a layout of two modes and contiguous 0 or 1; got %d modes and %d",
                       glint_layout_rank(layout), contiguous);
  int64_t bytes = element_bits / 8, span = MAX_BOX * bytes;
  int32_t swizzle = 0, n;
  if (layout->swizzle.bits) {
    int32_t base = layout->swizzle.base + __builtin_ctzll((uint64_t)bytes);
    if (base != 4 || layout->swizzle.shift != 3 || layout->swizzle.bits > 3)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                         "TMA has no swizzle Sw<%d,%d,%d> of bytes; it has Sw<1,4,3>, Sw<2,4,3> and Sw<3,4,3>", layout->swizzle.bits, base,
                         layout->swizzle.shift);
    span = swizzle = 16 << layout->swizzle.bits;
  }
  int32_t alignment = swizzle ? 8 * swizzle : 128;
  if (layout->offset * bytes % alignment != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "offset %lld is %lld bytes, expected a multiple of %d",
                       (long long)layout->offset, (long long)(layout->offset * bytes), alignment);
  dimension leaf[GLINT_LAYOUT_MAX_NODES], d[MAX_RANK];
  glint_status status = sorted_leaves(layout, leaf, &n, error);
  if (!status && n == 0)
    status = layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "one element is no box: its bytes must be a multiple of 16");
  if (!status) status = check_dense(leaf, n, error);
  if (!status) n = join(leaf, n);
  if (!status) status = cut(leaf, n, span / bytes, d, &n, error);
  if (!status) status = check_tensor(d, n, contiguous, bytes, error);
  if (status) return status;
  *box = (glint_tma_box){.rank = n, .swizzle = swizzle, .alignment = alignment, .bytes = glint_layout_size(layout) * bytes};
  for (int32_t i = 0; i < n; i++) {
    box->box[i] = (int32_t)d[i].extent;
    box->mode[i] = d[i].mode;
    box->step[i] = d[i].step;
  }
  return GLINT_OK;
}
