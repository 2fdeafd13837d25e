/* Arrays of the readers, and whole files as bytes. */
#include "array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
  glint_dtype dtype;
  const char *name, *long_name;
} names[] = {
    {GLINT_FLOAT32, "f32", "float32"},          {GLINT_BFLOAT16, "bf16", "bfloat16"},       {GLINT_FLOAT16, "f16", "float16"},
    {GLINT_FLOAT8_E4M3, "e4m3", "float8_e4m3"}, {GLINT_FLOAT8_E5M2, "e5m2", "float8_e5m2"}, {GLINT_INT32, "i32", "int32"},
    {GLINT_FLOAT64, "f64", "float64"},
};

const char *io_dtype_name(glint_dtype dtype) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].dtype == dtype) return names[i].name;
  return "none";
}

glint_dtype io_dtype_of(const char *name) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i].name) == 0 || strcmp(name, names[i].long_name) == 0) return names[i].dtype;
  return GLINT_DTYPE_NONE;
}

int io_product(const int64_t *shape, int32_t rank, size_t size, int64_t *bytes) {
  int64_t product = (int64_t)size;
  for (int32_t i = 0; i < rank; i++)
    if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product)) return 0;
  *bytes = product;
  return 1;
}

const char *io_shape_text(const int64_t *shape, int32_t rank, char *text) {
  int at = snprintf(text, IO_SHAPE_TEXT, "[");
  for (int32_t i = 0; i < rank && i < IO_MAX_RANK; i++)
    at += snprintf(text + at, (size_t)(IO_SHAPE_TEXT - at), "%s%lld", i ? ", " : "", (long long)shape[i]);
  snprintf(text + at, (size_t)(IO_SHAPE_TEXT - at), "]");
  return text;
}

glint_status io_array_allocate(io_array *array, glint_dtype dtype, int32_t rank, const int64_t *shape, glint_error *error) {
  *array = (io_array){.dtype = dtype, .rank = rank};
  int64_t bytes;
  if (!io_product(shape, rank, glint_dtype_size(dtype), &bytes))
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the shape's product does not fit 63 bits");
  for (int32_t i = 0; i < rank; i++) array->shape[i] = shape[i];
  array->count = bytes / (int64_t)glint_dtype_size(dtype);
  size_t rounded = ((size_t)bytes + 64) / 64 * 64;
  array->data = array->block = aligned_alloc(64, rounded);
  if (!array->data) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "no memory for an array of %lld bytes", (long long)bytes);
  return GLINT_OK;
}

void io_array_free(io_array *array) {
  free(array->block);
  *array = (io_array){0};
}

glint_status io_narrow_int64(const void *source, int64_t count, int32_t *target, glint_error *error) {
  for (int64_t i = 0; i < count; i++) {
    int64_t value;
    memcpy(&value, (const char *)source + 8 * i, sizeof value);
    if (value < INT32_MIN || value > INT32_MAX)
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "element %lld is %lld, beyond int32", (long long)i, (long long)value);
    target[i] = (int32_t)value;
  }
  return GLINT_OK;
}

/* Room for capacity bytes; what bytes holds is kept. */
static int grow(io_bytes *bytes, size_t capacity) {
  uint8_t *larger = aligned_alloc(64, (capacity + 63) / 64 * 64);
  if (!larger) return 0;
  if (bytes->size) memcpy(larger, bytes->data, bytes->size);
  free(bytes->data);
  bytes->data = larger;
  return 1;
}

/* A regular file fits the first block; pipes, which have no size, double it as they go. */
static glint_status read_all(FILE *file, const char *path, io_bytes *bytes, glint_error *error) {
  struct stat about;
  size_t capacity = fstat(fileno(file), &about) == 0 && about.st_size > 0 ? (size_t)about.st_size + 1 : 1 << 16;
  for (;;) {
    if (!grow(bytes, capacity)) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes", path, capacity);
    bytes->size += fread(bytes->data + bytes->size, 1, capacity - bytes->size, file);
    if (ferror(file)) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    if (bytes->size < capacity) return GLINT_OK;
    capacity *= 2;
  }
}

glint_status io_file_read(const char *path, io_bytes *bytes, glint_error *error) {
  *bytes = (io_bytes){0};
  FILE *file = fopen(path, "rb");
  if (!file) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  glint_status status = read_all(file, path, bytes, error);
  fclose(file);
  if (status != GLINT_OK) {
    free(bytes->data);
    *bytes = (io_bytes){0};
  }
  return status;
}

glint_status io_file_write(const char *path, const io_bytes *parts, int count, glint_error *error) {
  FILE *file = fopen(path, "wb");
  if (!file) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  int failed = 0;
  for (int i = 0; i < count && !failed; i++) failed = parts[i].size > 0 && fwrite(parts[i].data, 1, parts[i].size, file) != parts[i].size;
  int code = errno;
  if (fclose(file) != 0 && !failed) failed = 1, code = errno;
  if (!failed) return GLINT_OK;
  remove(path);
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: cannot write: %s", path, strerror(code));
}
