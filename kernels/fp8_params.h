/* What the FP8 kernels need beyond params.h. */
#ifndef GLINT_FP8_PARAMS_H
#define GLINT_FP8_PARAMS_H

/* A bit of FEATURES: P V has a second accumulator in float32 (GLINT_FP32_ACCUMULATE). */
#define FEATURE_FP32_ACCUMULATE 0x4000 /* 0x2000: FEATURE_GROUPED of params.h */

#endif
