/* What differs from kernel source to kernel source on the host: how work is cut into tiles, workspace, and parameters beyond the common
 * ones. A new kernel file brings one row for family.c's table. */
#ifndef GLINT_CUDA_FAMILY_H
#define GLINT_CUDA_FAMILY_H

#include "cuda/driver.h"
#include "cuda/machine.h"
#include "cuda/variant.h"
#include "params.h"

typedef struct glint_family {
  const char *source;                                                                        /* file in kernels/ */
  int64_t (*tiles)(const glint_variant *variant, const glint_work *work);                    /* blocks of work: num_tiles */
  size_t (*workspace)(const glint_variant *variant, const glint_work *work, int32_t splits); /* bytes; NULL: none */
  /* Completes what glint_forward_fill has written: tensor maps, pointers into the workspace. NULL: nothing to add. */
  glint_status (*prepare)(const glint_driver *driver, const glint_variant *variant, const glint_work *work, void *workspace,
                          glint_forward_params *params, glint_error *error);
} glint_family;

/* The family of a variant; every source in the table has one (tests/cuda checks it). */
const glint_family *glint_family_of(const glint_variant *variant);

/* forward_combine.c: never chosen for a problem, it follows a launch that splits keys. */
int glint_is_combine(const glint_variant *variant);

/* Whether a variant with the needed features can do the problem: a grouped one (FEATURE_GROUPED) takes no packed q, only groups that fit a
 * tile, and pages that are a multiple or a part of its blocks of keys. */
int glint_variant_can(const glint_variant *variant, const glint_work *work);

/* Whether it is meant for such lengths: grouped variants for few rows, others from their MIN_KEYS keys on. 0 sends the problem on to the next
 * line of the table, unless options.kernel is the variant's whole name. */
int glint_variant_suits(const glint_variant *variant, const glint_work *work);

/* Parts that the keys of a tile are cut into: 1 for variants without FEATURE_SPLIT, what the problem asks for, or as many as make the estimated
 * time least. */
int32_t glint_variant_splits(const glint_machine *machine, const glint_variant *variant, const glint_work *work);

/* Positions of a sequence that share a tile: its rows, or rows over heads of a group. */
int64_t glint_tile_positions(const glint_variant *variant, const glint_work *work);

/* Tiles of TILE_Q rows of every head (grouped variants: group of heads) of every sequence, all keys. */
int64_t glint_query_tiles(const glint_variant *variant, const glint_work *work);

/* Parameters that all forward kernels share: everything but maps, partial results and the counter. */
void glint_forward_fill(const glint_variant *variant, const glint_work *work, int64_t l2_bytes, int64_t grid, int32_t splits,
                        glint_forward_params *params);

/* Batch, row and head strides; those of packed tensors (packed 1) have no batch. */
glint_stride glint_cuda_stride(const glint_view *view, int packed);

/* A map of q, k, v or o (axes column, head, row, batch) whose boxes are columns x 1 x rows x 1, with the 128-byte swizzle; elements beyond
 * the tensor read as zero and are not written. columns * element size must be 128 bytes or less. */
glint_status glint_tensor_map(const glint_driver *driver, const glint_view *view, uint32_t columns, uint32_t rows, tensor_map *map,
                              glint_error *error);

#endif
