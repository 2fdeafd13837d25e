/* The CPU engine and the API in one file, for embedding: copy include/ and src/, then
 *   gcc -O2 -fopenmp -Iinclude src/glint_all.c your_program.c -lm
 * No GPU engine, no build system. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GLINT_HAVE_CPU

#include "api/check.c"
#include "api/check_aliasing.c"
#include "api/check_cache.c"
#include "api/check_descale.c"
#include "api/check_gradients.c"
#include "api/check_lengths.c"
#include "api/check_scores.c"
#include "api/check_tensor.c"
#include "api/context.c"
#include "api/convert.c"
#include "api/cost.c"
#include "api/engines.c"
#include "api/last_error.c"
#include "api/status.c"
#include "api/work.c"
#include "cpu/backward.c"
#include "cpu/backward_item.c"
#include "cpu/engine.c"
#include "cpu/few.c"
#include "cpu/forward.c"
#include "cpu/input.c"
#include "cpu/isa.c"
#include "cpu/kernels_amx.c"
#include "cpu/kernels_avx2.c"
#include "cpu/kernels_avx512.c"
#include "cpu/kernels_avx512_bf16.c"
#include "cpu/kernels_portable.c"
#include "cpu/output.c"
#include "cpu/panel.c"
#include "cpu/peak.c"
#include "cpu/plan.c"
#include "oracle/append.c"
#include "oracle/backward.c"
#include "oracle/forward.c"
#include "oracle/oracle.c"
#include "oracle/row.c"
