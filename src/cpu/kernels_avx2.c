/* AVX2 + FMA kernels on floats; bfloat16 and float16 are converted when packed. */
#include "kernels.h"

#include "../api/convert.h"
#include "rows.h"
#include <string.h>

#if defined(__x86_64__)
#include "vec_avx2.h"
#define VEC avx2

/* 4 keys x 3 vectors: 12 accumulators, 3 query vectors and 1 broadcast fill the 16 registers. */
#define SUFFIX       avx2_f32
#define TARGET       TARGET_avx2
#define MR           4
#define NV           3
#define BF16         0
#define DOT(a, b, c) fma_avx2(a, b, c)
#include "panel_template.h"
#define STRIP 2
#include "rows_template.h"

#include "dropout_template.h"

#include "backward_template.h"

const glint_cpu_kernels glint_cpu_avx2_f32 = {
    .name = "avx2_f32",
    .isa = GLINT_ISA_AVX2,
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
#endif
