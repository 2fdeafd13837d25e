/* Undefines what a template was instantiated with, so that the next instantiation (glint_all.c has all in one file) starts afresh. */
#undef SUFFIX
#undef VEC
#undef TARGET
#undef MR
#undef NV
#undef BF16
#undef DOT
#undef PAIR
#undef OWN_PRODUCTS
#undef FN
#undef V
#undef vec
#undef VL
#undef NR
