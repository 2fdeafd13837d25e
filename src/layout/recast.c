/* The same memory seen as wider or narrower elements. */
#include "tree.h"

static int is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* n old elements become one. A mode that runs inside a new element shrinks, all other strides shrink. */
static glint_status upcast(glint_layout *l, int64_t n, glint_layout_error *error) {
  for (int32_t i = 0; i < l->count; i++) {
    glint_layout_node *leaf = &l->node[i];
    if (leaf->kind != GLINT_LAYOUT_MODE || leaf->stride == 0) continue;
    int64_t stride = leaf->stride < 0 ? -leaf->stride : leaf->stride, sign = leaf->stride < 0 ? -1 : 1;
    int64_t inside = layout_ceil_div(n, stride); /* old elements of this mode in one new element */
    if ((stride % n != 0 && n % stride != 0) || (leaf->shape % inside != 0 && inside % leaf->shape != 0))
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode %lld:%lld does not divide into elements that are %lld times wider",
                         (long long)leaf->shape, (long long)leaf->stride, (long long)n);
    leaf->shape = layout_ceil_div(leaf->shape, inside);
    leaf->stride = sign * layout_ceil_div(stride, n);
  }
  if (!layout_is_swizzled(l)) return GLINT_OK;
  if (!is_power_of_two(n))
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "a swizzled layout recasts by powers of two, not by %lld", (long long)n);
  if (l->offset % n != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "offset %lld is not a multiple of %lld", (long long)l->offset, (long long)n);
  glint_swizzle s = l->swizzle;
  s.base -= (int32_t)__builtin_ctzll((uint64_t)n);
  if (s.base < 0) {
    s.bits = s.bits + s.base > 0 ? s.bits + s.base : 0;
    s.base = 0;
  }
  layout_wrap(l, s, l->offset / n);
  return GLINT_OK;
}

/* The leaf that runs through neighbouring elements: the one of stride 1 or -1, one with more than one element if there is such. -1: none,
 * -2: several. */
static int32_t unit_leaf(const glint_layout *l) {
  int32_t unit = -1, alone = 1;
  for (int32_t i = 0; i < l->count; i++) {
    const glint_layout_node *leaf = &l->node[i];
    if (leaf->kind != GLINT_LAYOUT_MODE || (leaf->stride != 1 && leaf->stride != -1)) continue;
    if (leaf->shape == 1 && unit >= 0) continue;
    if (unit >= 0 && l->node[unit].shape > 1) alone = 0;
    unit = i;
  }
  return alone ? unit : -2;
}

/* One old element becomes n. The mode of stride 1 grows, all other strides grow. */
static glint_status downcast(glint_layout *l, int64_t n, glint_layout_error *error) {
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  int32_t unit = unit_leaf(l);
  if (unit < 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s of stride 1: the parts of an element would have no place of their own",
                       unit == -1 ? "no mode is" : "more than one mode is");
  for (int32_t i = 0; i < l->count; i++) {
    const glint_layout_node *leaf = &l->node[i];
    if (leaf->kind != GLINT_LAYOUT_MODE)
      layout_put(&b, (glint_layout_kind)leaf->kind, 0, 0, leaf->rank);
    else
      layout_put_mode(&b, i == unit ? layout_mul(&b, leaf->shape, n) : leaf->shape,
                      i == unit ? leaf->stride : layout_mul(&b, leaf->stride, n));
  }
  glint_swizzle s = l->swizzle;
  int64_t offset = layout_mul(&b, l->offset, n);
  if (layout_is_swizzled(l)) {
    if (!is_power_of_two(n))
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "a swizzled layout recasts by powers of two, not by %lld", (long long)n);
    s.base += (int32_t)__builtin_ctzll((uint64_t)n);
    if (s.base > 30) return layout_fail(error, GLINT_ERROR_UNSUPPORTED, "the swizzle would start beyond bit 30");
  }
  if (layout_end(&b)) return b.status;
  *l = result;
  layout_wrap(l, s, offset);
  return GLINT_OK;
}

glint_status glint_layout_recast(const glint_layout *layout, int32_t old_bits, int32_t new_bits, glint_layout *out,
                                 glint_layout_error *error) {
  if (old_bits < 1 || new_bits < 1 || old_bits > 4096 || new_bits > 4096)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "element bits are %d and %d, expected 1 to 4096", old_bits, new_bits);
  int32_t x = old_bits, y = new_bits;
  while (y) {
    int32_t rest = x % y;
    x = y;
    y = rest;
  }
  int32_t up = new_bits / x, down = old_bits / x;
  glint_layout result = *layout;
  glint_status status = up > 1 ? upcast(&result, up, error) : GLINT_OK;
  if (!status && down > 1) status = downcast(&result, down, error);
  if (!status) *out = result;
  return status;
}
