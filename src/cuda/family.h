/* What differs from kernel source to kernel source on the host: how work is cut into tiles, workspace, and parameters beyond the common
 * ones. A new kernel file brings one row for family.c's table. */
#ifndef GLINT_CUDA_FAMILY_H
#define GLINT_CUDA_FAMILY_H

#include "cuda/driver.h"
#include "cuda/variant.h"
#include "params.h"

typedef struct glint_family {
  const char *source;                                                        /* file in kernels/ */
  int64_t (*tiles)(const glint_variant *variant, const glint_work *work);    /* blocks of work: num_tiles */
  size_t (*workspace)(const glint_variant *variant, const glint_work *work); /* bytes; NULL: none */
  /* Completes what glint_forward_fill has written: tensor maps, pointers into the workspace. NULL: nothing to add. */
  glint_status (*prepare)(const glint_driver *driver, const glint_variant *variant, const glint_work *work, void *workspace,
                          glint_forward_params *params, glint_error *error);
} glint_family;

/* The family of a variant; every source in the table has one (tests/cuda checks it). */
const glint_family *glint_family_of(const glint_variant *variant);

/* Tiles of TILE_Q rows of every head of every sequence. */
int64_t glint_query_tiles(const glint_variant *variant, const glint_work *work);

/* Parameters that all forward kernels share: everything but maps, partial results and the counter. */
void glint_forward_fill(const glint_variant *variant, const glint_work *work, int64_t l2_bytes, glint_forward_params *params);

/* A map of q, k, v or o (axes column, head, row, batch) whose boxes are columns x 1 x rows x 1, with the 128-byte swizzle; elements beyond
 * the tensor read as zero and are not written. columns * element size must be 128 bytes or less. */
glint_status glint_tensor_map(const glint_driver *driver, const glint_view *view, uint32_t columns, uint32_t rows, tensor_map *map,
                              glint_error *error);

#endif
