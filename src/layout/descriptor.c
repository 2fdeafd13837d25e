/* The wgmma matrix descriptor of a layout in shared memory (PTX manual, "Asynchronous warpgroup level matrix multiply": strides and the
 * descriptor's format). The field values come from a few elements of the layout; then every element of the operand is compared with where
 * the hardware would read it, so that a descriptor that is returned is right and one that is refused names the element. */
#include "tree.h"

#include <string.h>

typedef struct operand {
  const glint_layout *layout; /* without its swizzle */
  int64_t rows, mn0, k0;      /* rows: size of the layout's first mode */
  int64_t bytes;              /* of an element */
  int64_t chunk;              /* elements of 16 bytes */
  int64_t width;              /* 16-byte chunks of the swizzle's span: 1, 2, 4, 8 */
  glint_major major;
  int64_t start, lbo, sbo;
} operand;

/* Unswizzled byte offset of element (mn, k) of the operand. */
static int64_t stored_at(const operand *o, int64_t mn, int64_t k) {
  return (o->layout->offset + layout_at_node(o->layout, 0, o->mn0 + mn + o->rows * (o->k0 + k))) * o->bytes;
}

/* Unswizzled byte offset at which the hardware looks for element (mn, k). */
static int64_t read_at(const operand *o, int64_t mn, int64_t k) {
  int64_t run = o->chunk * o->width; /* MN-major: elements between two leading steps */
  if (o->major == GLINT_MAJOR_K && o->width > 1) return o->start + mn % 8 * 16 * o->width + mn / 8 * o->sbo + k * o->bytes;
  if (o->major == GLINT_MAJOR_K) return o->start + mn % 8 * 16 + mn / 8 * o->sbo + k / o->chunk * o->lbo + k % o->chunk * o->bytes;
  if (o->width > 1) return o->start + mn % run * o->bytes + mn / run * o->lbo + k % 8 * 16 * o->width + k / 8 * o->sbo;
  return o->start + mn % o->chunk * o->bytes + mn / o->chunk * o->sbo + k % 8 * 16 + k / 8 * o->lbo;
}

/* The swizzle's span in 16-byte chunks, or 0 if the hardware has no such swizzle. */
static int64_t swizzle_width(glint_swizzle s, int64_t element_bytes) {
  if (s.bits == 0) return 1;
  int32_t base = s.base + __builtin_ctzll((uint64_t)element_bytes);
  return base == 4 && s.shift == 3 && s.bits <= 3 ? (int64_t)1 << s.bits : 0;
}

static glint_status check_operand(const glint_layout *layout, int32_t element_bits, glint_major major, int64_t mn, int64_t mn0, int64_t k0,
                                  glint_layout_error *error) {
  if (element_bits != 8 && element_bits != 16 && element_bits != 32)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "element_bits is %d, expected 8, 16 or 32", element_bits);
  if (major != GLINT_MAJOR_K && element_bits != 16)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "wgmma takes MN-major operands of 16-bit types only; this one has %d bits",
                       element_bits);
  if (glint_layout_rank(layout) != 2)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the layout has %d modes, expected (mn, k)", glint_layout_rank(layout));
  if (mn < 8 || mn > 256 || mn % 8 != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the operand has %lld rows, expected a multiple of 8 up to 256", (long long)mn);
  int64_t rows = layout_size_of(layout, layout_child(layout, 0, 0)), columns = layout_size_of(layout, layout_child(layout, 0, 1));
  if (mn0 < 0 || k0 < 0 || mn0 + mn > rows || k0 + 256 / element_bits > columns)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                       "the operand (%lld to %lld, %lld to %lld) is not inside the layout's (%lld, %lld)", (long long)mn0,
                       (long long)(mn0 + mn - 1), (long long)k0, (long long)(k0 + 256 / element_bits - 1), (long long)rows,
                       (long long)columns);
  return GLINT_OK;
}

/* Which fields the hardware reads, and their values from the elements that they lead to. */
static void measure(operand *o, int64_t mn, glint_wgmma_descriptor *d) {
  int64_t run = o->chunk * o->width, first = stored_at(o, 0, 0);
  int64_t leading = 0, stride = 0; /* the element each field leads to, along mn; 0: along k */
  if (o->major == GLINT_MAJOR_K) {
    d->sbo_used = mn > 8;
    d->lbo_used = o->width == 1;
    stride = 8;
  } else {
    d->lbo_used = o->width == 1 || mn > run;
    d->sbo_used = o->width > 1 || mn > o->chunk;
    if (o->width > 1)
      leading = run;
    else
      stride = o->chunk;
  }
  int64_t k_step = o->major == GLINT_MAJOR_K ? o->chunk : 8;
  o->start = first;
  o->lbo = d->lbo_used ? (leading ? stored_at(o, leading, 0) : stored_at(o, 0, k_step)) - first : 0;
  o->sbo = d->sbo_used ? (stride ? stored_at(o, stride, 0) : stored_at(o, 0, k_step)) - first : 0;
}

static glint_status check_fields(const operand *o, uint64_t base, glint_layout_error *error) {
  uint64_t grain = o->width > 1 ? 128 : 16;
  if (base % grain != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "base is %llu, expected a multiple of %llu", (unsigned long long)base,
                       (unsigned long long)grain);
  if (o->start % 16 != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the operand starts at byte %lld, not at a multiple of 16",
                       (long long)o->start);
  int64_t field[2] = {o->lbo, o->sbo};
  for (int i = 0; i < 2; i++)
    if (field[i] < 0 || field[i] % 16 != 0 || field[i] >= 1 << 18)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the %s byte offset would be %lld, expected a multiple of 16 below 2^18",
                         i ? "stride" : "leading", (long long)field[i]);
  return GLINT_OK;
}

static glint_status compare(const operand *o, int64_t mn, int64_t k, glint_layout_error *error) {
  for (int64_t j = 0; j < k; j++)
    for (int64_t i = 0; i < mn; i++)
      if (stored_at(o, i, j) != read_at(o, i, j))
        return layout_fail(
            error, GLINT_ERROR_INVALID_ARGUMENT,
            "no %s-major descriptor: element (%lld,%lld) is stored at byte %lld, but with start %lld, LBO %lld, SBO %lld and "
            "a swizzle of %lld bytes it is read at byte %lld (before the swizzle)",
            o->major == GLINT_MAJOR_K ? "K" : "MN", (long long)i, (long long)j, (long long)stored_at(o, i, j), (long long)o->start,
            (long long)o->lbo, (long long)o->sbo, (long long)(o->width > 1 ? o->width * 16 : 0), (long long)read_at(o, i, j));
  return GLINT_OK;
}

glint_status glint_layout_wgmma_descriptor(const glint_layout *layout, int32_t element_bits, glint_major major, int64_t mn, int64_t mn0,
                                           int64_t k0, uint64_t base, glint_wgmma_descriptor *descriptor, glint_layout_error *error) {
  glint_status status = check_operand(layout, element_bits, major, mn, mn0, k0, error);
  if (status) return status;
  operand o = {.layout = layout, .mn0 = mn0, .k0 = k0, .major = major, .bytes = element_bits / 8, .chunk = 128 / element_bits};
  o.rows = layout_size_of(layout, layout_child(layout, 0, 0));
  o.width = swizzle_width(layout->swizzle, o.bytes);
  if (!o.width)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                       "wgmma has no swizzle Sw<%d,%d,%d> of bytes; it has Sw<1,4,3>, Sw<2,4,3> and Sw<3,4,3>", layout->swizzle.bits,
                       layout->swizzle.base + __builtin_ctzll((uint64_t)o.bytes), layout->swizzle.shift);
  glint_wgmma_descriptor d = {.major = major, .swizzle = o.width > 1 ? (int32_t)(16 * o.width) : 0};
  measure(&o, mn, &d);
  status = check_fields(&o, base, error);
  if (!status) status = compare(&o, mn, 256 / element_bits, error);
  if (status) return status;
  uint64_t mode = o.width == 8 ? 1 : o.width == 4 ? 2 : o.width == 2 ? 3 : 0;
  uint64_t period = 128 * (uint64_t)o.width; /* the swizzle repeats after so many bytes; it counts from absolute address 0 */
  d.start = (uint32_t)((base + (uint64_t)o.start) & 0x3FFFF);
  d.lbo = (uint32_t)o.lbo;
  d.sbo = (uint32_t)o.sbo;
  d.base_offset = o.width > 1 && base % period != 0 ? (int32_t)(base >> 7 & 7) : 0;
  uint64_t leading = major == GLINT_MAJOR_K && o.width > 1 ? 1 : d.lbo >> 4;
  d.bits = d.start >> 4 | leading << 16 | (uint64_t)(d.sbo >> 4) << 32 | (uint64_t)d.base_offset << 49 | mode << 62;
  *descriptor = d;
  return GLINT_OK;
}
