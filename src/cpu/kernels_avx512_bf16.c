/* AVX-512-BF16 kernels: bfloat16 inputs by VDPBF16PS. */
#include "kernels.h"

#include "../api/convert.h"
#include "rows.h"
#include <string.h>

#if defined(__x86_64__)
#include "vec_avx512_bf16.h"
#define VEC avx512

/* The register block of the float kernels: a word is a pair. */
#define SUFFIX       avx512_bf16
#define TARGET       TARGET_avx512_bf16
#define MR           8
#define NV           3
#define BF16         1
#define DOT(a, b, c) dot_avx512_bf16(a, b, c)
#define PAIR(a, b)   pair_avx512_bf16(a, b)
#include "panel_template.h"
#define STRIP 4
#include "rows_template.h"

#include "dropout_template.h"

const glint_cpu_kernels glint_cpu_avx512_bf16 = {
    .name = "avx512_bf16",
    .isa = GLINT_ISA_AVX512_BF16,
    .bf16 = 1,
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
};
#include "template_end.h"
#endif
