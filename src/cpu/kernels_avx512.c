/* AVX-512 kernels on floats: float32 and float16 inputs, and bfloat16 where no bfloat16 instructions are wanted. */
#include "kernels.h"

#include "../api/convert.h"
#include "rows.h"
#include <string.h>

#if defined(__x86_64__)
#include "vec_avx512.h"
#define VEC avx512

/* 8 keys x 3 vectors: 24 accumulators hide the latency of two FMA pipes, and 3 loads + 8 broadcasts feed 24 FMAs. */
#define SUFFIX       avx512_f32
#define TARGET       TARGET_avx512
#define MR           8
#define NV           3
#define BF16         0
#define DOT(a, b, c) fma_avx512(a, b, c)
#include "panel_template.h"
#define STRIP 4
#include "rows_template.h"

#include "dropout_template.h"

#include "backward_template.h"

const glint_cpu_kernels glint_cpu_avx512_f32 = {
    .name = "avx512_f32",
    .isa = GLINT_ISA_AVX512,
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
