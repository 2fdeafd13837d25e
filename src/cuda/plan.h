/* Which kernel runs a problem on a GPU, and why: pure functions, tested without any GPU. */
#ifndef GLINT_CUDA_PLAN_H
#define GLINT_CUDA_PLAN_H

#include "cuda/machine.h"
#include "cuda/variant.h"
#include "engine.h"

typedef struct glint_choice {
  const glint_machine *machine;
  const glint_variant *variants; /* ends with a row whose name is NULL */
  int32_t arch;                  /* only kernels of this architecture; 0: any that the machine runs */
  const char *kernel;            /* only kernels whose name starts so; "" for all */
} glint_choice;

/* Fills every field of *plan but struct_size and engine, and *variant with the row's index. GLINT_ERROR_UNSUPPORTED names the field that no
 * kernel can serve. */
glint_status glint_cuda_plan(const glint_choice *choice, const glint_work *work, int *variant, glint_plan_info *plan, glint_error *error);

/* FEATURE_ bits (kernels/params.h) that a problem needs. */
uint32_t glint_cuda_features(const glint_work *work);

/* Bounds of the window as kernels take them: GLINT_UNBOUNDED where nothing is hidden. */
void glint_cuda_window(const glint_work *work, int32_t *left, int32_t *right);

/* Blocks of this kernel that one SM holds at once; 0: it does not fit. */
int32_t glint_cuda_occupancy(const glint_machine *machine, const glint_variant *variant);

/* Pairs of row and key that the window leaves visible, over batch and query heads. Lengths that lie on the device count as their bounds. */
double glint_cuda_visible_pairs(const glint_work *work);

#endif
