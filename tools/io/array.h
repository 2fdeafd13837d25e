/* Arrays as files hold them, and whole files as bytes. Shared by the readers and writers of the command. */
#ifndef GLINT_IO_ARRAY_H
#define GLINT_IO_ARRAY_H

#include "engine.h"

#define IO_MAX_RANK 4

/* Row-major and contiguous. data is aligned to its element and never NULL in a loaded array (even an empty one). Large inputs are not
 * copied: an array may lie in the very block that the file was read into. */
typedef struct io_array {
  void *data;
  void *block; /* what io_array_free frees; NULL: the memory belongs to someone else */
  glint_dtype dtype;
  int32_t rank; /* 0 to IO_MAX_RANK; 0 is a scalar */
  int64_t shape[IO_MAX_RANK];
  int64_t count; /* product of shape */
} io_array;

typedef struct io_bytes {
  uint8_t *data;
  size_t size;
} io_bytes;

/* Sets dtype, shape and count, and allocates. Refuses products beyond 63 bits. array->data is NULL on failure. */
glint_status io_array_allocate(io_array *array, glint_dtype dtype, int32_t rank, const int64_t *shape, glint_error *error);
void io_array_free(io_array *array);

/* The product of shape times size into *bytes; 0 when it does not fit 63 bits or an extent is negative. */
int io_product(const int64_t *shape, int32_t rank, size_t size, int64_t *bytes);

/* "[2, 3]" into text, which must hold IO_SHAPE_TEXT characters. Returns text. */
#define IO_SHAPE_TEXT 96
const char *io_shape_text(const int64_t *shape, int32_t rank, char *text);

/* Reads int64 into int32. Refuses values outside, naming the first. */
glint_status io_narrow_int64(const void *source, int64_t count, int32_t *target, glint_error *error);

/* The dtype as numpy and this command spell it ("f32"); "none" for GLINT_DTYPE_NONE. */
const char *io_dtype_name(glint_dtype dtype);
/* The opposite; also takes the long names (float32, bfloat16, float16, float64). GLINT_DTYPE_NONE when unknown. */
glint_dtype io_dtype_of(const char *name);

/* Whole files. bytes->data is 64-byte aligned, to be freed by the caller with free. */
glint_status io_file_read(const char *path, io_bytes *bytes, glint_error *error);
/* Writes the parts one behind the other; any may be empty. A half-written file is removed. */
glint_status io_file_write(const char *path, const io_bytes *parts, int count, glint_error *error);

#endif
