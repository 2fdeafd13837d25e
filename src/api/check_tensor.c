/* Checks of one tensor by itself: everything that can be said without its neighbours. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *glint_dtype_name(glint_dtype dtype) {
  switch (dtype) {
  case GLINT_DTYPE_NONE: return "none";
  case GLINT_FLOAT32: return "float32";
  case GLINT_BFLOAT16: return "bfloat16";
  case GLINT_FLOAT16: return "float16";
  case GLINT_FLOAT8_E4M3: return "float8_e4m3";
  case GLINT_FLOAT8_E5M2: return "float8_e5m2";
  case GLINT_INT32: return "int32";
  case GLINT_FLOAT64: return "float64";
  }
  return "unknown";
}

int glint_multiply(int64_t a, int64_t b, int64_t *product) {
  if (a && b > INT64_MAX / a) return 0;
  *product = a * b;
  return 1;
}

static glint_status check_dtype(glint_checker *c, const char *name, glint_dtype dtype, unsigned dtypes) {
  unsigned value = (unsigned)dtype;
  if (value < 32 && dtypes >> value & 1) return GLINT_OK;
  char expected[160] = "";
  size_t used = 0;
  for (unsigned d = 1; d <= GLINT_FLOAT64; d++)
    if (dtypes >> d & 1)
      used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", used ? " or " : "", glint_dtype_name((glint_dtype)d));
  return glint_refuse(c, "%s.dtype is %u (%s): expected %s", name, value, glint_dtype_name(dtype), expected);
}

static glint_status check_shape(glint_checker *c, const char *name, const glint_tensor *t, int min_rank, int max_rank) {
  if (t->rank < min_rank || t->rank > max_rank) {
    if (min_rank == max_rank) return glint_refuse(c, "%s.rank is %d: expected %d", name, t->rank, min_rank);
    return glint_refuse(c, "%s.rank is %d: expected %d to %d", name, t->rank, min_rank, max_rank);
  }
  for (int a = 0; a < 4; a++) {
    if (a >= t->rank && t->shape[a])
      return glint_refuse(c, "%s.shape[%d] is %" PRId64 ": expected 0, since %s.rank is %d", name, a, t->shape[a], name, t->rank);
    if (a >= t->rank && t->stride[a])
      return glint_refuse(c, "%s.stride[%d] is %" PRId64 ": expected 0, since %s.rank is %d", name, a, t->stride[a], name, t->rank);
    if (t->shape[a] < 0) return glint_refuse(c, "%s.shape[%d] is %" PRId64 ": expected 0 or more", name, a, t->shape[a]);
  }
  return GLINT_OK;
}

/* Product of the shape times the element size must fit; a length of 0 does not excuse the others, engines multiply in any order. */
static glint_status check_count(glint_checker *c, const char *name, const glint_tensor *t) {
  int64_t count = (int64_t)glint_dtype_size(t->dtype);
  for (int a = 0; a < t->rank; a++)
    if (!glint_multiply(count, t->shape[a] ? t->shape[a] : 1, &count))
      return glint_refuse(c, "%s.shape is [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]: its size in bytes must fit 63 bits", name,
                          t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
  return GLINT_OK;
}

static glint_status resolve_strides(glint_checker *c, const char *name, const glint_tensor *t, glint_view *view) {
  int last = t->rank - 1, given = 0;
  for (int a = 0; a <= last; a++) given |= t->stride[a] != 0;
  int64_t contiguous = 1;
  for (int a = last; a >= 0; a--) {
    view->stride[a] = given ? t->stride[a] : contiguous;
    contiguous *= t->shape[a] ? t->shape[a] : 1;
  }
  if (!given) return GLINT_OK;
  for (int a = 0; a <= last; a++)
    if (t->stride[a] < 0) return glint_refuse(c, "%s.stride[%d] is %" PRId64 ": expected 0 or more", name, a, t->stride[a]);
  if (t->stride[last] != 1 && t->shape[last] != 1)
    return glint_refuse(c, "%s.stride[%d] is %" PRId64 ": expected 1, the last axis must be contiguous", name, last, t->stride[last]);
  view->stride[last] = 1;
  return GLINT_OK;
}

/* The last element, the first byte behind it and its address must all be representable. */
static glint_status check_extent(glint_checker *c, const char *name, const glint_view *view) {
  int64_t span = 0, step = 0, bytes;
  for (int a = 0; a < view->rank; a++) {
    if (!view->shape[a]) return GLINT_OK;
    if (!glint_multiply(view->shape[a] - 1, view->stride[a], &step) || step > INT64_MAX - 1 - span)
      return glint_refuse(c, "%s.stride[%d] is %" PRId64 ": (shape - 1) * stride summed over the axes must fit 63 bits", name, a,
                          view->stride[a]);
    span += step;
  }
  if (!glint_multiply(span + 1, (int64_t)glint_dtype_size(view->dtype), &bytes) || (uintptr_t)bytes > UINTPTR_MAX - (uintptr_t)view->data)
    return glint_refuse(c, "%s spans %" PRId64 " elements from %p: expected to end within the address space", name, span + 1, view->data);
  return GLINT_OK;
}

/* Sorted by stride, each axis must step over all that the smaller ones reach. */
static glint_status check_distinct(glint_checker *c, const char *name, const glint_view *view) {
  int order[4], n = 0;
  for (int a = 0; a < view->rank; a++) {
    if (!view->shape[a]) return GLINT_OK;
    if (view->shape[a] == 1) continue;
    int at = n++;
    for (; at && view->stride[order[at - 1]] > view->stride[a]; at--) order[at] = order[at - 1];
    order[at] = a;
  }
  int64_t reach = 0;
  for (int k = 0; k < n; k++) {
    int a = order[k];
    if (view->stride[a] <= reach)
      return glint_refuse(c, "%s.stride[%d] is %" PRId64 ": expected more than %" PRId64 ", elements of an output must not overlap", name,
                          a, view->stride[a], reach);
    reach += (view->shape[a] - 1) * view->stride[a];
  }
  return GLINT_OK;
}

static int is_empty(const glint_tensor *t) {
  for (int a = 0; a < t->rank && a < 4; a++)
    if (!t->shape[a]) return 1;
  return 0;
}

glint_status glint_check_tensor(glint_checker *c, const char *name, const glint_tensor *t, unsigned dtypes, int min_rank, int max_rank,
                                unsigned role, glint_view *view) {
  memset(view, 0, sizeof *view);
  if (!t->data && !(role & GLINT_REQUIRED)) return GLINT_OK;
  if (!t->data && !is_empty(t)) return glint_refuse(c, "%s.data is NULL: expected a pointer, %s is required here", name, name);
  GLINT_TRY(check_shape(c, name, t, min_rank, max_rank));
  GLINT_TRY(check_dtype(c, name, t->dtype, dtypes));
  size_t element = glint_dtype_size(t->dtype);
  if ((uintptr_t)t->data % element)
    return glint_refuse(c, "%s.data is %p: expected a multiple of %zu bytes, the size of one element", name, t->data, element);
  GLINT_TRY(check_count(c, name, t));
  view->data = t->data, view->dtype = t->dtype, view->rank = t->rank;
  memcpy(view->shape, t->shape, sizeof view->shape);
  GLINT_TRY(resolve_strides(c, name, t, view));
  GLINT_TRY(check_extent(c, name, view));
  return role & GLINT_OUTPUT ? check_distinct(c, name, view) : GLINT_OK;
}

glint_status glint_check_axis(glint_checker *c, const char *name, const glint_view *view, int axis, int64_t expected, const char *what) {
  if (view->shape[axis] == expected) return GLINT_OK;
  return glint_refuse(c, "%s.shape[%d] is %" PRId64 ": expected %s = %" PRId64, name, axis, view->shape[axis], what, expected);
}
