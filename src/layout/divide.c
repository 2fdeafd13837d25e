/* Divides and products in all their forms, and the partitions made of them. */
#include "tree.h"

static glint_status split(const glint_layout *l, int32_t node, const glint_layout *tiler, int32_t t_node, int product, glint_layout *out,
                          glint_layout_error *error);

/* l's subtree divided by, or multiplied with, one layout: a pair (tile, rest) or (block, copies). */
static glint_status split_by_layout(const glint_layout *l, int32_t node, const glint_layout *tiler, int32_t t_node, int product,
                                    glint_layout *out, glint_layout_error *error) {
  glint_layout part, tile, rest;
  glint_status status = layout_subtree(tiler, t_node, &tile, error);
  if (!status) status = layout_subtree(l, node, &part, error);
  if (status) return status;
  if (product) {
    int64_t cotarget;
    if (__builtin_mul_overflow(glint_layout_size(&part), glint_layout_cosize(&tile), &cotarget) || cotarget >= GLINT_LAYOUT_MAX_SIZE)
      return layout_fail(error, GLINT_ERROR_UNSUPPORTED, "the product passes 2^48 elements");
    status = glint_layout_complement(&part, cotarget, &rest, error);
    if (!status) status = glint_layout_compose(&rest, &tile, &rest, error);
    const glint_layout *modes[2] = {&part, &rest};
    return status ? status : glint_layout_concat(modes, 2, out, error);
  }
  status = glint_layout_complement(&tile, glint_layout_size(&part), &rest, error);
  const glint_layout *modes[2] = {&tile, &rest};
  if (!status) status = glint_layout_concat(modes, 2, &tile, error);
  return status ? status : glint_layout_compose(&part, &tile, out, error);
}

static glint_status check_tiler_rank(const glint_layout *l, int32_t node, const glint_layout *tiler, int32_t t_node,
                                     glint_layout_error *error) {
  int32_t rank = layout_rank_of(l, node), t_rank = layout_rank_of(tiler, t_node);
  if (t_rank <= rank) return GLINT_OK;
  return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the tiler has %d modes, the layout only %d", t_rank, rank);
}

/* The logical form: by mode where the tiler is one, unchanged where it is _. */
static glint_status split(const glint_layout *l, int32_t node, const glint_layout *tiler, int32_t t_node, int product, glint_layout *out,
                          glint_layout_error *error) {
  if (tiler->node[t_node].kind == GLINT_LAYOUT_ALL) return layout_subtree(l, node, out, error);
  if (tiler->node[t_node].kind != GLINT_LAYOUT_TILER) return split_by_layout(l, node, tiler, t_node, product, out, error);
  glint_status status = check_tiler_rank(l, node, tiler, t_node, error);
  if (status) return status;
  int32_t rank = layout_rank_of(l, node);
  glint_layout part;
  layout_builder b = layout_begin(out, error);
  layout_put_tuple(&b, rank);
  for (int32_t i = 0; i < rank && !b.status; i++) {
    int32_t child = layout_child(l, node, i);
    if (i >= tiler->node[t_node].rank) {
      layout_put_tree(&b, l, child);
    } else {
      status = split(l, child, tiler, layout_child(tiler, t_node, i), product, &part, error);
      if (status) return status;
      layout_put_tree(&b, &part, 0);
    }
  }
  return b.status;
}

/* The zipped form, ((tile, ...), (rest, ..., modes beyond the tiler)); a mode under _ has tile 1:0. */
static glint_status zip_split(const glint_layout *l, int32_t node, const glint_layout *tiler, int32_t t_node, int product,
                              glint_layout *out, glint_layout_error *error) {
  layout_builder b = layout_begin(out, error);
  if (tiler->node[t_node].kind == GLINT_LAYOUT_ALL) {
    layout_put_tuple(&b, 2);
    layout_put_mode(&b, 1, 0);
    layout_put_tree(&b, l, node);
    return b.status;
  }
  if (tiler->node[t_node].kind != GLINT_LAYOUT_TILER) return split_by_layout(l, node, tiler, t_node, product, out, error);
  glint_status status = check_tiler_rank(l, node, tiler, t_node, error);
  if (status) return status;
  int32_t rank = layout_rank_of(l, node), t_rank = tiler->node[t_node].rank;
  glint_layout part, rests;
  layout_builder r = layout_begin(&rests, error);
  layout_put_tuple(&b, 2);
  layout_put_tuple(&b, t_rank);
  layout_put_tuple(&r, rank);
  for (int32_t i = 0; i < rank && !b.status && !r.status; i++) {
    int32_t child = layout_child(l, node, i);
    if (i >= t_rank) {
      layout_put_tree(&r, l, child);
      continue;
    }
    status = zip_split(l, child, tiler, layout_child(tiler, t_node, i), product, &part, error);
    if (status) return status;
    layout_put_tree(&b, &part, layout_child(&part, 0, 0));
    layout_put_tree(&r, &part, layout_child(&part, 0, 1));
  }
  if (r.status) return r.status;
  layout_put_tree(&b, &rests, 0);
  return b.status;
}

static void put_modes(layout_builder *b, const glint_layout *l, int32_t node) {
  for (int32_t i = 0; i < layout_rank_of(l, node); i++) layout_put_tree(b, l, layout_child(l, node, i));
}

/* From ((tiles), (rests)) to ((tiles), rest...) or (tile..., rest...). */
static glint_status unpack(const glint_layout *zipped, glint_layout_form form, glint_layout *out, glint_layout_error *error) {
  int32_t tile = layout_child(zipped, 0, 0), rest = layout_child(zipped, 0, 1);
  int flat = form == GLINT_LAYOUT_FLAT;
  glint_layout result;
  layout_builder b = layout_begin(&result, error);
  layout_put_tuple(&b, (flat ? layout_rank_of(zipped, tile) : 1) + layout_rank_of(zipped, rest));
  if (flat)
    put_modes(&b, zipped, tile);
  else
    layout_put_tree(&b, zipped, tile);
  put_modes(&b, zipped, rest);
  if (!b.status) *out = result;
  return b.status;
}

static glint_status check_plain_tiler(const glint_layout *tiler, glint_layout_error *error) {
  if (!layout_is_swizzled(tiler)) return GLINT_OK;
  return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "a tiler cannot be swizzled");
}

static glint_status split_in_form(const glint_layout *layout, const glint_layout *tiler, int product, glint_layout_form form,
                                  glint_layout *out, glint_layout_error *error) {
  glint_layout result;
  glint_swizzle swizzle = layout->swizzle;
  int64_t offset = layout->offset;
  glint_status status = check_plain_tiler(tiler, error);
  if (status) return status;
  if (form == GLINT_LAYOUT_LOGICAL)
    status = split(layout, 0, tiler, 0, product, &result, error);
  else
    status = zip_split(layout, 0, tiler, 0, product, &result, error);
  if (!status && (form == GLINT_LAYOUT_TILED || form == GLINT_LAYOUT_FLAT)) status = unpack(&result, form, &result, error);
  if (!status && !layout_within_limits(&result)) status = layout_fail(error, GLINT_ERROR_UNSUPPORTED, "the result passes 2^48 elements");
  if (status) return status;
  *out = result;
  layout_wrap(out, swizzle, offset);
  return GLINT_OK;
}

glint_status glint_layout_divide(const glint_layout *layout, const glint_layout *tiler, glint_layout_form form, glint_layout *out,
                                 glint_layout_error *error) {
  if (form < GLINT_LAYOUT_LOGICAL || form > GLINT_LAYOUT_FLAT)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "form is %d, expected logical, zipped, tiled or flat", (int)form);
  return split_in_form(layout, tiler, 0, form, out, error);
}

/* l with 1:0 appended up to `rank` modes; as a tuple if asked for, even of one mode. */
static glint_status pad_rank(const glint_layout *l, int32_t rank, int tuple, glint_layout *out, glint_layout_error *error) {
  int32_t have = glint_layout_rank(l);
  layout_builder b = layout_begin(out, error);
  if (have == rank && layout_is_tuple(l, 0) == tuple) {
    layout_put_tree(&b, l, 0);
    return b.status;
  }
  layout_put_tuple(&b, rank);
  put_modes(&b, l, 0);
  for (int32_t i = have; i < rank; i++) layout_put_mode(&b, 1, 0);
  return b.status;
}

/* blocked and raked product: block and tiler of equal rank, their product zipped mode by mode. */
static glint_status product_by_rank(const glint_layout *block, const glint_layout *tiler, int raked, glint_layout *out,
                                    glint_layout_error *error) {
  int32_t rank = glint_layout_rank(block), t_rank = glint_layout_rank(tiler);
  if (t_rank > rank) rank = t_rank;
  int tuples = layout_is_tuple(block, 0) || layout_is_tuple(tiler, 0);
  glint_layout a, t, pair, result;
  glint_status status = pad_rank(block, rank, tuples, &a, error);
  if (!status) status = pad_rank(tiler, rank, tuples, &t, error);
  if (!status) status = split_by_layout(&a, 0, &t, 0, 1, &pair, error);
  if (status) return status;
  int32_t first = layout_child(&pair, 0, raked ? 1 : 0), second = layout_child(&pair, 0, raked ? 0 : 1);
  layout_builder b = layout_begin(&result, error);
  /* of two integers the zip is the pair itself, as in CuTe */
  if (tuples) layout_put_tuple(&b, rank);
  for (int32_t i = 0; i < rank; i++) {
    layout_put_tuple(&b, 2);
    layout_put_tree(&b, &pair, tuples ? layout_child(&pair, first, i) : first);
    layout_put_tree(&b, &pair, tuples ? layout_child(&pair, second, i) : second);
  }
  if (!layout_end(&b)) *out = result;
  return b.status;
}

glint_status glint_layout_product(const glint_layout *block, const glint_layout *tiler, glint_layout_form form, glint_layout *out,
                                  glint_layout_error *error) {
  if (form < GLINT_LAYOUT_LOGICAL || form > GLINT_LAYOUT_RAKED)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "form is %d, expected logical, zipped, tiled, flat, blocked or raked",
                       (int)form);
  if (form < GLINT_LAYOUT_BLOCKED) return split_in_form(block, tiler, 1, form, out, error);
  glint_swizzle swizzle = block->swizzle;
  int64_t offset = block->offset;
  glint_status status = check_plain_tiler(tiler, error);
  if (status) return status;
  if (tiler->node[0].kind != GLINT_LAYOUT_MODE && tiler->node[0].kind != GLINT_LAYOUT_TUPLE)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "blocked and raked products need a layout, not a tiler by mode");
  status = product_by_rank(block, tiler, form == GLINT_LAYOUT_RAKED, out, error);
  if (!status) layout_wrap(out, swizzle, offset);
  return status;
}

/* The order's entry for mode i: an integer of its own, or i. */
static int64_t rank_in_order(const glint_layout *order, int32_t i) {
  if (!order || i >= glint_layout_rank(order)) return i;
  return order->node[layout_child(order, 0, i)].shape;
}

glint_status glint_layout_tile_to_shape(const glint_layout *block, const glint_layout *shape, const glint_layout *order, glint_layout *out,
                                        glint_layout_error *error) {
  int32_t rank = glint_layout_rank(shape);
  if (glint_layout_rank(block) > rank)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the block has %d modes, the shape only %d", glint_layout_rank(block), rank);
  glint_layout padded, copies;
  glint_status status = pad_rank(block, rank, layout_is_tuple(shape, 0), &padded, error);
  if (status) return status;
  layout_builder b = layout_begin(&copies, error);
  if (layout_is_tuple(shape, 0)) layout_put_tuple(&b, rank);
  for (int32_t i = 0; i < rank; i++) {
    int64_t have = layout_size_of(&padded, layout_child(&padded, 0, i)), want = layout_size_of(shape, layout_child(shape, 0, i));
    if (want % have != 0)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode %d of the block has %lld elements, which do not divide %lld", i,
                         (long long)have, (long long)want);
    layout_put_mode(&b, want / have, 0);
  }
  /* strides by rank in the order; ties by position */
  for (int32_t i = 0; i < rank; i++) {
    int64_t stride = 1;
    for (int32_t j = 0; j < rank; j++) {
      int64_t before = rank_in_order(order, j) - rank_in_order(order, i);
      if (before < 0 || (before == 0 && j < i)) stride *= copies.node[layout_child(&copies, 0, j)].shape;
    }
    glint_layout_node *copy = &copies.node[layout_child(&copies, 0, i)];
    copy->stride = copy->shape == 1 ? 0 : stride; /* as CuTe writes static modes of one element */
  }
  glint_swizzle swizzle = block->swizzle;
  int64_t offset = block->offset;
  status = product_by_rank(&padded, &copies, 0, out, error);
  if (!status) layout_wrap(out, swizzle, offset);
  return status;
}

/* ---- partitions -------------------------------------------------------------------------------------------------------------- */

/* A coordinate for mode `fixed` (0 tile, 1 rest) of a zipped layout, with _ for every mode of the other. An integer coordinate counts
 * through the whole mode; a tuple that is too short is filled up with _. */
static glint_status slice_zipped(const glint_layout *zipped, int32_t fixed, const glint_layout *coordinate, glint_layout *out,
                                 int64_t *offset, glint_layout_error *error) {
  glint_layout whole;
  layout_builder b = layout_begin(&whole, error);
  layout_put_tuple(&b, 2);
  for (int32_t side = 0; side < 2; side++) {
    int32_t mode = layout_child(zipped, 0, side), rank = layout_rank_of(zipped, mode);
    if (side == fixed && !layout_is_tuple(coordinate, 0)) {
      layout_put_tree(&b, coordinate, 0);
      continue;
    }
    int32_t given = side == fixed ? coordinate->node[0].rank : 0;
    if (given > rank)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the coordinate has %d entries, expected at most %d", given, rank);
    if (layout_is_tuple(zipped, mode)) layout_put_tuple(&b, rank);
    for (int32_t i = 0; i < rank; i++) {
      if (i < given)
        layout_put_tree(&b, coordinate, layout_child(coordinate, 0, i));
      else
        layout_put(&b, GLINT_LAYOUT_ALL, 0, 0, 0);
    }
  }
  return b.status ? b.status : glint_layout_slice(zipped, &whole, out, offset, error);
}

glint_status glint_layout_local_tile(const glint_layout *layout, const glint_layout *tiler, const glint_layout *coordinate,
                                     glint_layout *out, int64_t *offset, glint_layout_error *error) {
  glint_layout zipped;
  glint_status status = glint_layout_divide(layout, tiler, GLINT_LAYOUT_ZIPPED, &zipped, error);
  return status ? status : slice_zipped(&zipped, 1, coordinate, out, offset, error);
}

/* The integer coordinate, in each mode of `threads`, of the thread numbered index. */
static glint_status thread_coordinate(const glint_layout *threads, int64_t index, glint_layout *tiler, glint_layout *coordinate,
                                      glint_layout_error *error) {
  int32_t rank = glint_layout_rank(threads);
  layout_builder t = layout_begin(tiler, error), c = layout_begin(coordinate, error);
  if (layout_is_tuple(threads, 0)) {
    layout_put(&t, GLINT_LAYOUT_TILER, 0, 0, rank);
    layout_put_tuple(&c, rank);
  }
  for (int32_t i = 0; i < rank; i++) {
    int32_t node = layout_child(threads, 0, i);
    int64_t at = 0, scale = 1;
    for (int32_t end = layout_next(threads, node), k = node; k < end; k++) {
      const glint_layout_node *leaf = &threads->node[k];
      if (leaf->kind != GLINT_LAYOUT_MODE) continue;
      if (leaf->stride < 0 || (leaf->stride == 0 && leaf->shape > 1))
        return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "mode %lld:%lld of the threads does not number them",
                           (long long)leaf->shape, (long long)leaf->stride);
      if (leaf->shape > 1) at += scale * (index / leaf->stride % leaf->shape);
      scale *= leaf->shape;
    }
    layout_put_mode(&t, scale, 1);
    layout_put_mode(&c, at, 0);
  }
  return t.status ? t.status : c.status;
}

glint_status glint_layout_local_partition(const glint_layout *layout, const glint_layout *threads, int64_t index, glint_layout *out,
                                          int64_t *offset, glint_layout_error *error) {
  glint_layout tiler, coordinate, zipped;
  if (layout_is_swizzled(threads)) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the threads' layout is swizzled");
  if (index < 0 || index >= glint_layout_cosize(threads))
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "thread is %lld, expected 0 to %lld", (long long)index,
                       (long long)glint_layout_cosize(threads) - 1);
  glint_status status = thread_coordinate(threads, index, &tiler, &coordinate, error);
  if (!status) status = glint_layout_divide(layout, &tiler, GLINT_LAYOUT_ZIPPED, &zipped, error);
  return status ? status : slice_zipped(&zipped, 0, &coordinate, out, offset, error);
}
