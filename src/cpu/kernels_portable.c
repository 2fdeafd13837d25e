/* Kernels in portable C, for every machine. */
#include "kernels.h"

#include "../api/convert.h"
#include "rows.h"
#include <string.h>

#include "vec_portable.h"
#define VEC portable

/* 4 keys x 2 vectors: 8 accumulators leave room in 16 registers for operands and the product. */
#define SUFFIX       portable_f32
#define TARGET       TARGET_portable
#define MR           4
#define NV           2
#define BF16         0
#define DOT(a, b, c) fma_portable(a, b, c)
#include "panel_template.h"
#define STRIP 2
#include "rows_template.h"

#include "dropout_template.h"

#include "backward_template.h"

const glint_cpu_kernels glint_cpu_portable_f32 = {
    .name = "portable_f32",
    .isa = GLINT_ISA_PORTABLE,
    .panel = NR,
    .step_k = MR,
    .step_d = VL,
    .step_v = 16,
    .block_k = 128,
    .to_float = FN(to_float),
    .from_float = FN(from_float),
    .transpose = FN(transpose),
    .pack_k = FN(pack_k),
    .pack_v = FN(pack_v),
    .scores = FN(scores),
    .change = FN(change),
    .mask = FN(mask),
    .softmax = FN(softmax),
    .accumulate = FN(accumulate),
    .attend = FN(attend),
    .keep = FN(keep),
    .drop = FN(drop),
    .element = FN(element),
    .rows = &FN(rows),
    .backward = &FN(backward),
};
#include "template_end.h"
