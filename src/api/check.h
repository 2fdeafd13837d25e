/* Inside of glint_check: what its topics (tensors, lengths, cache, scores, gradients) share. */
#ifndef GLINT_CHECK_H
#define GLINT_CHECK_H

#include "work.h"

typedef struct glint_checker {
  const glint_problem *p;   /* a full-size copy of the caller's */
  const glint_gradients *g; /* the same; NULL in forward, and in a plan of the backward pass without gradients */
  glint_work *w;
  int host; /* index arrays may be read */
  char *text;
  size_t size;
} glint_checker;

/* Writes the message and returns GLINT_ERROR_INVALID_ARGUMENT. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
glint_status
glint_refuse(glint_checker *c, const char *format, ...);

#define GLINT_TRY(call)                                                                                                                    \
  do {                                                                                                                                     \
    glint_status try_status = (call);                                                                                                      \
    if (try_status) return try_status;                                                                                                     \
  } while (0)

#define GLINT_BIT(dtype)    (1u << (dtype))
#define GLINT_FP8_DTYPES    (GLINT_BIT(GLINT_FLOAT8_E4M3) | GLINT_BIT(GLINT_FLOAT8_E5M2))
#define GLINT_HALF_DTYPES   (GLINT_BIT(GLINT_BFLOAT16) | GLINT_BIT(GLINT_FLOAT16))
#define GLINT_OUTPUT_DTYPES (GLINT_BIT(GLINT_FLOAT32) | GLINT_BIT(GLINT_FLOAT64)) /* float64: only the oracle takes it further */

enum { GLINT_REQUIRED = 1, GLINT_OUTPUT = 2 };

/* Resolves tensor into view: pointer, dtype (one of a mask of GLINT_BIT), rank, shape, strides, alignment, 63-bit sizes; outputs must not
 * overlap themselves. An absent tensor is refused when required, otherwise view->data is NULL. A required tensor without elements may
 * have no pointer. */
glint_status glint_check_tensor(glint_checker *c, const char *name, const glint_tensor *tensor, unsigned dtypes, int min_rank, int max_rank,
                                unsigned role, glint_view *view);

/* name.shape[axis] must be expected, which what describes ("q.shape[1]"). */
glint_status glint_check_axis(glint_checker *c, const char *name, const glint_view *view, int axis, int64_t expected, const char *what);

/* A newer caller's struct is longer than the known size. That is fine while the part unknown here is zero, which means default. */
glint_status glint_check_struct(glint_checker *c, const char *name, const void *given, size_t size, size_t known);

/* cu_seqlens, by its shape: batch + 1 entries, and the tensor that it packs (rows, of this name) has one batch. */
glint_status glint_check_cu(glint_checker *c, const char *name, const glint_tensor *t, const char *packed, const glint_view *rows,
                            glint_view *view);

/* Packed: the user's bound, or the total; a larger bound than the total says no more than the total. */
int64_t glint_packed_length(int64_t max_seqlen, int64_t total);

/* Rows of a block of FP8 scales: an even share, rounded up to a multiple of 16. */
int64_t glint_rows_per_block(int64_t seqlen, int64_t blocks);

/* Every factor of a scale (3 axes), where the host may read them: finite and positive. */
glint_status glint_check_factors(glint_checker *c, const char *name, const glint_view *view);

const char *glint_dtype_name(glint_dtype dtype);

/* a * b for non-negative numbers; 0 when that overflows 63 bits. */
int glint_multiply(int64_t a, int64_t b, int64_t *product);

/* The topics, in the order in which they run: each may rely on the ones before it. */
glint_status glint_check_main(glint_checker *c);      /* q, k, v, o, lse, packing and paging: all sizes of work */
glint_status glint_check_cache(glint_checker *c);     /* k_new, v_new, rotary */
glint_status glint_check_lengths(glint_checker *c);   /* values of cu_seqlens, seqused, max_seqlen, page table */
glint_status glint_check_positions(glint_checker *c); /* length of the rotary tables, against the lengths */
glint_status glint_check_scores(glint_checker *c);    /* scale, softcap, mask, ALiBi, sinks, bias, dropout, splits, flags */
glint_status glint_check_descale(glint_checker *c);
glint_status glint_check_gradients(glint_checker *c);

/* Between tensors, only before a run: a plan may be made with stand-in pointers. */
struct glint_error;
typedef struct glint_named_view {
  const char *name;
  const glint_view *view;
  int written;
} glint_named_view;
/* Refuses what is written and certainly overlaps another of the tensors. */
glint_status glint_check_overlap(const glint_named_view *tensors, size_t count, struct glint_error *error);
glint_status glint_check_aliasing(const glint_work *work, struct glint_error *error);

#endif
