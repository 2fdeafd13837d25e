/* 2^x for every vector type. Parameters: VEC (the suffix of vec_ISA.h, which includes this). Defines exp2_VEC.
 *
 * 2^x = 2^floor(x) * p(x - floor(x)), p the polynomial on [0, 1) with p(0) = 1 and the least largest relative error (found by iteratively
 * reweighted least squares). For -126 <= x < 127
 * the relative error is at most GLINT_EXP2_ERROR (degree 5), and 2^0 = 1 exactly.
 * Below -126 the result lies between 0 and 2^-125; -inf gives 0, NaN gives NaN. */
#ifndef GLINT_EXP2_ERROR
#define GLINT_EXP2_ERROR 2.5e-7
#define GLINT_CAT2(a, b) a##_##b
#define GLINT_CAT(a, b)  GLINT_CAT2(a, b)
#endif
#define V(operation) GLINT_CAT(operation, VEC)
#ifndef GLINT_STATIC_INLINE
#define GLINT_STATIC_INLINE static inline __attribute__((always_inline))
#endif

GLINT_STATIC_INLINE V(TARGET) V(vec) V(exp2)(V(vec) x) {
  V(vec) f = V(fraction)(x);
  V(vec) p = V(fma)(f, V(set1)(0x1.e974fep-10f), V(set1)(0x1.277854p-7f));
  p = V(fma)(f, p, V(set1)(0x1.c91ce6p-5f));
  p = V(fma)(f, p, V(set1)(0x1.ebdb56p-3f));
  p = V(fma)(f, p, V(set1)(0x1.62e4bap-1f));
  p = V(fma)(f, p, V(set1)(1.0f));
  return V(scale_pow2)(p, x);
}

#undef V
