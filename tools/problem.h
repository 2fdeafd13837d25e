/* Attention problems out of files: tensors named q, k, v (or NAME.q, NAME.k, NAME.v for many problems in one safetensors file) and, where
 * present, every other input tensor of glint_problem under its own name (alibi_slopes, sinks, cu_seqlens_q, page_table, ...). */
#ifndef GLINT_TOOLS_PROBLEM_H
#define GLINT_TOOLS_PROBLEM_H

#include "npy.h"
#include "safetensors.h"

enum { PROBLEM_INPUTS = 19 };

/* The input tensors of glint_problem, q, k and v first. */
typedef struct problem_field {
  const char *name;
  size_t offset;                                           /* of the glint_tensor in glint_problem */
  enum { FIELD_VALUES, FIELD_FLOATS, FIELD_INDICES } kind; /* of q's dtype; float32; int32 */
} problem_field;
extern const problem_field problem_fields[PROBLEM_INPUTS];
glint_tensor *problem_tensor(glint_problem *problem, int field);

/* Where problems come from. Either file is set, or the paths of the three .npy files are. */
typedef struct problem_source {
  io_safetensors file;
  const char *npy[3]; /* q, k, v */
  const char **names; /* prefixes without the dot; "" for bare q, k, v */
  int count;
} problem_source;

glint_status problem_source_open(const char *path, problem_source *source, glint_error *error);
glint_status problem_source_open_npy(const char *const paths[3], problem_source *source, glint_error *error);
void problem_source_close(problem_source *source);

typedef struct loaded_problem {
  const char *name;
  glint_problem api; /* host pointers; o and lse included */
  io_array inputs[PROBLEM_INPUTS];
  io_array o, lse;
  io_array stored_o; /* the file's own NAME.o; data NULL when there is none */
} loaded_problem;

/* Loads problem number `index`. scores: a glint_problem of which the fields that are no tensors are taken. dtype: what q, k and v are converted
 * to (not FP8: run_quantize.h); GLINT_DTYPE_NONE: as stored, float64 becoming float32; GLINT_FLOAT64: as stored, with o in float64.
 * o has that dtype too (bfloat16 for FP8). */
glint_status problem_load(const problem_source *source, int index, const glint_problem *scores, glint_dtype dtype, loaded_problem *p,
                          glint_error *error);
void problem_free(loaded_problem *p);

/* A contiguous tensor of the API over an array. */
glint_tensor problem_tensor_of(const io_array *array);

#endif
