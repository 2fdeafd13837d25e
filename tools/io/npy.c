/* Reader and writer of the .npy format. The header is a Python dictionary in text form; only what NumPy writes there is understood. */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct header {
  char order, kind; /* '<', '>' or '|'; 'f', 'i', 'u' or 'V' */
  int width;        /* bytes of an element */
  int fortran;
  int32_t rank;
  int64_t shape[IO_MAX_RANK];
  int has_descr, has_order, has_shape;
} header;

typedef struct scanner {
  const char *at, *end;
  glint_error *error;
} scanner;

static glint_status wrong(scanner *s, const char *expected) {
  int left = (int)(s->end - s->at < 12 ? s->end - s->at : 12);
  char found[13] = {0};
  for (int i = 0; i < left; i++) found[i] = s->at[i] >= ' ' && s->at[i] < 127 ? s->at[i] : '?';
  return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: expected %s, found \"%s\"", expected, found);
}

static void skip_spaces(scanner *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t')) s->at++;
}

static int take(scanner *s, char c) {
  skip_spaces(s);
  if (s->at == s->end || *s->at != c) return 0;
  s->at++;
  return 1;
}

static int take_word(scanner *s, const char *word) {
  size_t length = strlen(word);
  skip_spaces(s);
  if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0) return 0;
  s->at += length;
  return 1;
}

static glint_status take_string(scanner *s, char *text, size_t size) {
  skip_spaces(s);
  if (s->at == s->end || (*s->at != '\'' && *s->at != '"')) return wrong(s, "a quoted string");
  const char *first = s->at + 1, *close = memchr(first, *s->at, (size_t)(s->end - first));
  if (!close || (size_t)(close - first) >= size) return wrong(s, "a short quoted string");
  memcpy(text, first, (size_t)(close - first));
  text[close - first] = '\0';
  s->at = close + 1;
  return GLINT_OK;
}

static glint_status take_descr(scanner *s, header *h) {
  char text[16];
  skip_spaces(s);
  if (s->at < s->end && *s->at == '[') return wrong(s, "one type (structured arrays are not supported)");
  glint_status status = take_string(s, text, sizeof text);
  if (status != GLINT_OK) return status;
  int used = 0;
  h->order = text[0] == '=' ? '<' : text[0];
  if (!memchr("<>|=", text[0], 4) || sscanf(text + 1, "%c%2d%n", &h->kind, &h->width, &used) != 2 || text[1 + used])
    return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: type '%s' is not understood", text);
  return GLINT_OK;
}

static glint_status take_extent(scanner *s, int64_t *extent) {
  skip_spaces(s);
  if (s->at == s->end || *s->at < '0' || *s->at > '9') return wrong(s, "an extent");
  for (*extent = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
    if (__builtin_mul_overflow(*extent, (int64_t)10, extent) || __builtin_add_overflow(*extent, (int64_t)(*s->at - '0'), extent))
      return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: an extent does not fit 63 bits");
  if (s->at < s->end && *s->at == 'L') s->at++; /* Python 2 wrote long integers so */
  return GLINT_OK;
}

static glint_status take_shape(scanner *s, header *h) {
  if (!take(s, '(')) return wrong(s, "a shape");
  while (!take(s, ')')) {
    if (h->rank == IO_MAX_RANK) return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: more than %d axes", IO_MAX_RANK);
    glint_status status = take_extent(s, &h->shape[h->rank++]);
    if (status != GLINT_OK) return status;
    if (take(s, ',')) continue;
    if (!take(s, ')')) return wrong(s, ", or )");
    break;
  }
  return GLINT_OK;
}

static glint_status take_entry(scanner *s, header *h) {
  char key[24];
  glint_status status = take_string(s, key, sizeof key);
  if (status != GLINT_OK) return status;
  if (!take(s, ':')) return wrong(s, ":");
  if (strcmp(key, "descr") == 0 && !h->has_descr++) return take_descr(s, h);
  if (strcmp(key, "shape") == 0 && !h->has_shape++) return take_shape(s, h);
  if (strcmp(key, "fortran_order") != 0 || h->has_order++)
    return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: unknown or repeated key '%s'", key);
  h->fortran = take_word(s, "True");
  return h->fortran || take_word(s, "False") ? GLINT_OK : wrong(s, "True or False");
}

static glint_status parse_header(scanner *s, header *h) {
  if (!take(s, '{')) return wrong(s, "{");
  while (!take(s, '}')) {
    glint_status status = take_entry(s, h);
    if (status != GLINT_OK) return status;
    if (take(s, ',')) continue;
    if (!take(s, '}')) return wrong(s, ", or }");
    break;
  }
  skip_spaces(s);
  if (s->at != s->end) return wrong(s, "nothing more");
  if (!h->has_descr || !h->has_order || !h->has_shape)
    return glint_fail(s->error, GLINT_ERROR_INVALID_ARGUMENT, "npy header: needs descr, fortran_order and shape");
  return GLINT_OK;
}

/* The dtype in memory; GLINT_DTYPE_NONE when it has none. */
static glint_dtype dtype_of(const header *h, int two_bytes_are_bf16) {
  if (h->kind == 'f')
    return h->width == 2 ? GLINT_FLOAT16 : h->width == 4 ? GLINT_FLOAT32 : h->width == 8 ? GLINT_FLOAT64 : GLINT_DTYPE_NONE;
  if (h->kind == 'i') return h->width == 4 || h->width == 8 ? GLINT_INT32 : GLINT_DTYPE_NONE;
  return two_bytes_are_bf16 && h->width == 2 && (h->kind == 'u' || h->kind == 'V') ? GLINT_BFLOAT16 : GLINT_DTYPE_NONE;
}

static glint_status refuse_type(const header *h, glint_error *error) {
  if (h->width == 2 && (h->kind == 'u' || h->kind == 'V'))
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: type %c2 has no meaning by itself; --dtype bf16 reads it as bfloat16",
                      h->kind);
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: type %c%d is not supported (f2, f4, f8, i4, i8, and u2 as bfloat16 are)",
                    h->kind, h->width);
}

/* Element index, in row-major counting, of the element that lies at position `at` in column-major counting. */
static int64_t row_major_of(const header *h, int64_t at) {
  int64_t index = 0, coordinate[IO_MAX_RANK];
  for (int32_t i = 0; i < h->rank; i++) coordinate[i] = at % h->shape[i], at /= h->shape[i];
  for (int32_t i = 0; i < h->rank; i++) index = index * h->shape[i] + coordinate[i];
  return index;
}

static void copy_elements(const header *h, const uint8_t *source, int64_t count, uint8_t *target) {
  int width = h->width;
  for (int64_t i = 0; i < count; i++) {
    uint8_t *to = target + width * (h->fortran ? row_major_of(h, i) : i);
    for (int b = 0; b < width; b++) to[b] = source[width * i + (h->order == '>' ? width - 1 - b : b)];
  }
}

static glint_status narrow(const header *h, const uint8_t *source, io_array *array, glint_error *error) {
  int64_t *wide = malloc((size_t)array->count * 8 + 1);
  if (!wide) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "npy: no memory for %lld integers", (long long)array->count);
  copy_elements(h, source, array->count, (uint8_t *)wide);
  glint_status status = io_narrow_int64(wide, array->count, array->data, error);
  free(wide);
  return status;
}

/* The elements at bytes.data + start become *array: in place where they lie as they are needed, else converted into a block of their own. */
static glint_status make_array(const header *h, io_bytes bytes, size_t start, glint_dtype dtype, io_array *array, glint_error *error) {
  uint8_t *source = bytes.data + start;
  size_t size = glint_dtype_size(dtype);
  int as_is = h->order != '>' && (!h->fortran || h->rank < 2) && (size_t)h->width == size && (uintptr_t)source % size == 0;
  if (as_is) {
    *array = (io_array){.data = source, .block = bytes.data, .dtype = dtype, .rank = h->rank};
    for (int32_t i = 0; i < h->rank; i++) array->shape[i] = h->shape[i];
    array->count = (int64_t)((bytes.size - start) / size);
    return GLINT_OK;
  }
  glint_status status = io_array_allocate(array, dtype, h->rank, h->shape, error);
  if (status == GLINT_OK && (size_t)h->width != size)
    status = narrow(h, source, array, error);
  else if (status == GLINT_OK)
    copy_elements(h, source, array->count, array->data);
  if (status != GLINT_OK) io_array_free(array);
  return status;
}

/* Start and length of the header text; the data follow it. */
static glint_status find_header(io_bytes bytes, size_t *start, size_t *length, glint_error *error) {
  if (bytes.size < 10 || memcmp(bytes.data, "\x93NUMPY", 6) != 0)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: the file does not start as a .npy file does");
  int version = bytes.data[6];
  if (version < 1 || version > 3)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: format version %d; 1, 2 and 3 are supported", version);
  int size_bytes = version == 1 ? 2 : 4;
  *start = 8 + (size_t)size_bytes;
  *length = 0;
  for (int i = 0; i < size_bytes && *start <= bytes.size; i++) *length |= (size_t)bytes.data[8 + i] << (8 * i);
  if (*start > bytes.size || *length > bytes.size - *start)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: the header's length %zu goes beyond the file's %zu bytes", *length,
                      bytes.size);
  return GLINT_OK;
}

static glint_status check_size(const header *h, size_t have, glint_error *error) {
  int64_t need;
  char shape[IO_SHAPE_TEXT];
  io_shape_text(h->shape, h->rank, shape);
  if (!io_product(h->shape, h->rank, (size_t)h->width, &need))
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: shape %s: the product does not fit 63 bits", shape);
  if ((uint64_t)need != have)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "npy: shape %s needs %lld bytes of data, the file has %zu", shape,
                      (long long)need, have);
  return GLINT_OK;
}

static glint_status parse(io_bytes bytes, int two_bytes_are_bf16, io_array *array, glint_error *error) {
  size_t start = 0, length = 0;
  glint_status status = find_header(bytes, &start, &length, error);
  if (status != GLINT_OK) return status;
  header h = {0};
  scanner s = {(const char *)bytes.data + start, (const char *)bytes.data + start + length, error};
  if ((status = parse_header(&s, &h)) != GLINT_OK) return status;
  glint_dtype dtype = dtype_of(&h, two_bytes_are_bf16);
  if (dtype == GLINT_DTYPE_NONE) return refuse_type(&h, error);
  if ((status = check_size(&h, bytes.size - start - length, error)) != GLINT_OK) return status;
  return make_array(&h, bytes, start + length, dtype, array, error);
}

glint_status io_npy_parse(io_bytes bytes, int two_bytes_are_bf16, io_array *array, glint_error *error) {
  *array = (io_array){0};
  glint_status status = parse(bytes, two_bytes_are_bf16, array, error);
  if (array->block != bytes.data) free(bytes.data);
  return status;
}

glint_status io_npy_read(const char *path, int two_bytes_are_bf16, io_array *array, glint_error *error) {
  io_bytes bytes;
  *array = (io_array){0};
  glint_status status = io_file_read(path, &bytes, error);
  if (status != GLINT_OK) return status;
  glint_error detail = {{0}};
  status = io_npy_parse(bytes, two_bytes_are_bf16, array, &detail);
  return status == GLINT_OK ? status : glint_fail(error, status, "%s: %s", path, detail.text);
}

glint_status io_npy_write(const char *path, const io_array *array, glint_error *error) {
  const char *type = array->dtype == GLINT_FLOAT16    ? "<f2"
                     : array->dtype == GLINT_FLOAT32  ? "<f4"
                     : array->dtype == GLINT_FLOAT64  ? "<f8"
                     : array->dtype == GLINT_INT32    ? "<i4"
                     : array->dtype == GLINT_BFLOAT16 ? "<u2"
                                                      : "|u1";
  char text[256] = "\x93NUMPY\x01";
  int at = 10 + snprintf(text + 10, sizeof text - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
  for (int32_t i = 0; i < array->rank; i++) at += snprintf(text + at, sizeof text - (size_t)at, "%lld,", (long long)array->shape[i]);
  at += snprintf(text + at, sizeof text - (size_t)at, "), }");
  int end = (at + 1 + 63) / 64 * 64; /* data start at a multiple of 64, the header ends in a newline */
  memset(text + at, ' ', (size_t)(end - 1 - at));
  text[end - 1] = '\n';
  text[8] = (char)((end - 10) & 255), text[9] = (char)((end - 10) >> 8);
  io_bytes parts[2] = {{(uint8_t *)text, (size_t)end}, {array->data, (size_t)array->count * glint_dtype_size(array->dtype)}};
  return io_file_write(path, parts, 2, error);
}
