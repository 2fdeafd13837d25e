/* Random quantizations: every dtype, shape of factors, packed and strided tensors, unused rows, with guard bytes around what is written. */
#ifndef GLINT_TEST_RANDOM_CASE_H
#define GLINT_TEST_RANDOM_CASE_H

#include "testkit.h"

#include "cmocka_all.h"

enum { CASE_OUTPUTS = 8 }; /* q_fp8, k_fp8, v_fp8, descale_q, descale_k, descale_v, k_mean, lse_shift */

typedef struct quantize_case {
  glint_quantization q;
  testkit_case made; /* owns the tensors */
  char text[512];    /* the case in one line */
} quantize_case;

/* Case number index of a seed. Outputs are allocated but not filled. rows_most: of the longest sequence. */
void make_quantize_case(quantize_case *c, uint64_t seed, uint64_t index, int64_t rows_most);
void free_quantize_case(quantize_case *c);

/* A copy of the case's outputs in blocks of their own between guards, all bytes 0xA5, and q pointing to them. */
typedef struct quantize_outputs {
  glint_quantization q;
  unsigned char *block[CASE_OUTPUTS];
  size_t bytes[CASE_OUTPUTS]; /* of the tensor's span; guards of GUARD bytes come before and after */
} quantize_outputs;
void make_outputs(quantize_outputs *o, const quantize_case *c);
void free_outputs(quantize_outputs *o);

/* The output tensors in the order of CASE_OUTPUTS; data NULL: absent (or given). */
glint_tensor *output_of(glint_quantization *q, int n);
/* Fails where a guard changed, or a byte between the elements, or a row that no sequence uses. */
void check_guards(const quantize_outputs *o, const quantize_case *c);
/* All bytes of all outputs equal. */
void assert_same_outputs(const quantize_outputs *a, const quantize_outputs *b, const char *text);

/* Is row `row` (of the tensor's own axis 1, batch index `batch` of axis 0) used by a sequence? keys: lengths of k. */
int row_is_used(const glint_quantization *q, int keys, int64_t batch, int64_t row);

/* glint_quantize on device memory: inputs up, outputs up and down again, guards included. */
glint_status run_on_device(glint_context *context, const testkit_memory *memory, const quantize_outputs *o);

#endif
