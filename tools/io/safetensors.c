/* Reader and writer of the safetensors format. */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  size_t size;
  glint_dtype dtype; /* GLINT_DTYPE_NONE: known size, but no tensor of glint has this type */
} types[] = {
    {"F64", 8, GLINT_FLOAT64},         {"F32", 4, GLINT_FLOAT32},         {"F16", 2, GLINT_FLOAT16},     {"BF16", 2, GLINT_BFLOAT16},
    {"F8_E4M3", 1, GLINT_FLOAT8_E4M3}, {"F8_E5M2", 1, GLINT_FLOAT8_E5M2}, {"I32", 4, GLINT_INT32},       {"I64", 8, GLINT_DTYPE_NONE},
    {"U64", 8, GLINT_DTYPE_NONE},      {"U32", 4, GLINT_DTYPE_NONE},      {"I16", 2, GLINT_DTYPE_NONE},  {"U16", 2, GLINT_DTYPE_NONE},
    {"I8", 1, GLINT_DTYPE_NONE},       {"U8", 1, GLINT_DTYPE_NONE},       {"BOOL", 1, GLINT_DTYPE_NONE}, {"C64", 8, GLINT_DTYPE_NONE},
};
enum { TYPES = sizeof types / sizeof *types };

static int type_of(const char *name) {
  for (int i = 0; i < TYPES; i++)
    if (strcmp(types[i].name, name) == 0) return i;
  return -1;
}

/* Numbers of a JSON text are doubles: whole ones are exact up to 2^53, and anything else is refused. */
static int whole_number(const cJSON *item, int64_t *value) {
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 9007199254740992.0)) return 0;
  *value = (int64_t)item->valuedouble;
  return (double)*value == item->valuedouble;
}

static glint_status refuse(glint_error *error, const char *name, const char *what) {
  return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: tensor \"%.80s\": %s", name, what);
}

/* The product of all extents is what the bytes are compared with, so it is taken over the whole list, not over the axes that fit. */
static glint_status parse_shape(const cJSON *list, size_t size, io_entry *entry, int64_t *bytes, glint_error *error) {
  if (!cJSON_IsArray(list)) return refuse(error, entry->name, "shape is not a list");
  *bytes = (int64_t)size;
  const cJSON *item;
  cJSON_ArrayForEach(item, list) {
    int64_t extent;
    if (!whole_number(item, &extent)) return refuse(error, entry->name, "shape holds something that is no extent");
    if (__builtin_mul_overflow(*bytes, extent, bytes)) return refuse(error, entry->name, "shape: the product does not fit 63 bits");
    if (entry->rank < IO_MAX_RANK) entry->shape[entry->rank] = extent;
    entry->rank++;
  }
  return GLINT_OK;
}

static glint_status parse_offsets(const cJSON *list, size_t data_start, size_t file_size, io_entry *entry, glint_error *error) {
  int64_t begin, end;
  if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2 || !whole_number(list->child, &begin) || !whole_number(list->child->next, &end))
    return refuse(error, entry->name, "data_offsets is not a pair of offsets");
  int64_t available = (int64_t)(file_size - data_start);
  if (begin > end || end > available)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                      "safetensors: tensor \"%.80s\": data_offsets [%lld, %lld] in a file with %lld bytes of data", entry->name,
                      (long long)begin, (long long)end, (long long)available);
  entry->begin = data_start + (size_t)begin;
  entry->end = data_start + (size_t)end;
  return GLINT_OK;
}

static glint_status parse_entry(const cJSON *item, size_t data_start, size_t file_size, io_entry *entry, glint_error *error) {
  *entry = (io_entry){.name = item->string};
  if (!cJSON_IsObject(item)) return refuse(error, entry->name, "its description is not an object");
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "dtype");
  if (!cJSON_IsString(type)) return refuse(error, entry->name, "dtype is missing or no text");
  int number = type_of(type->valuestring);
  if (number < 0)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: tensor \"%.80s\": dtype \"%.40s\" is unknown", entry->name,
                      type->valuestring);
  entry->type = types[number].name;
  int64_t bytes = 0;
  glint_status status = parse_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), types[number].size, entry, &bytes, error);
  if (status != GLINT_OK) return status;
  status = parse_offsets(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), data_start, file_size, entry, error);
  if (status != GLINT_OK) return status;
  if ((uint64_t)bytes != entry->end - entry->begin)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                      "safetensors: tensor \"%.80s\": shape and dtype need %lld bytes, data_offsets give %zu", entry->name,
                      (long long)bytes, entry->end - entry->begin);
  return GLINT_OK;
}

static glint_status check_metadata(const cJSON *metadata, glint_error *error) {
  if (!cJSON_IsObject(metadata)) return refuse(error, "__metadata__", "not an object");
  const cJSON *item;
  cJSON_ArrayForEach(item, metadata) {
    if (!cJSON_IsString(item)) return refuse(error, "__metadata__", "holds something that is no text");
  }
  return GLINT_OK;
}

static int by_place(const void *left, const void *right) {
  const io_entry *a = *(io_entry *const *)left, *b = *(io_entry *const *)right;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *left, const void *right) {
  return strcmp((*(io_entry *const *)left)->name, (*(io_entry *const *)right)->name);
}

/* Names are unique, and the tensors tile the data: no byte is shared and none is left over. */
static glint_status check_layout(const io_safetensors *file, size_t data_start, io_entry **sorted, glint_error *error) {
  for (int i = 0; i < file->count; i++) sorted[i] = &file->entries[i];
  qsort(sorted, (size_t)file->count, sizeof *sorted, by_name);
  for (int i = 1; i < file->count; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) return refuse(error, sorted[i]->name, "the name occurs twice");
  qsort(sorted, (size_t)file->count, sizeof *sorted, by_place);
  size_t at = data_start;
  for (int i = 0; i < file->count; i++) {
    if (sorted[i]->begin != at)
      return refuse(error, sorted[i]->name, sorted[i]->begin < at ? "overlaps another tensor" : "bytes before it belong to no tensor");
    at = sorted[i]->end;
  }
  if (at != file->bytes.size)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: the last %zu bytes belong to no tensor", file->bytes.size - at);
  return GLINT_OK;
}

static glint_status parse_entries(io_safetensors *file, size_t data_start, glint_error *error) {
  const cJSON *item;
  cJSON_ArrayForEach(item, file->header) {
    int is_metadata = strcmp(item->string, "__metadata__") == 0;
    glint_status status =
        is_metadata ? check_metadata(item, error) : parse_entry(item, data_start, file->bytes.size, &file->entries[file->count], error);
    if (status != GLINT_OK) return status;
    file->count += !is_metadata;
  }
  io_entry **sorted = malloc(((size_t)file->count + 1) * sizeof(io_entry *));
  if (!sorted) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "safetensors: no memory for %d entries", file->count);
  glint_status status = check_layout(file, data_start, sorted, error);
  free(sorted);
  return status;
}

/* Header text at bytes 8 to 8 + *length. */
static glint_status find_header(io_bytes bytes, size_t *length, glint_error *error) {
  if (bytes.size < 8)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: %zu bytes, fewer than the eight of the header's length",
                      bytes.size);
  uint64_t size = 0;
  for (int i = 0; i < 8; i++) size |= (uint64_t)bytes.data[i] << (8 * i);
  if (size > bytes.size - 8 || size > IO_SAFETENSORS_MAX_HEADER)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: a header of %llu bytes in a file of %zu (the limit is %u)",
                      (unsigned long long)size, bytes.size, IO_SAFETENSORS_MAX_HEADER);
  *length = (size_t)size;
  return GLINT_OK;
}

static glint_status parse_file(io_safetensors *file, glint_error *error) {
  size_t length = 0;
  glint_status status = find_header(file->bytes, &length, error);
  if (status != GLINT_OK) return status;
  const char *text = (const char *)file->bytes.data + 8, *end = NULL;
  file->header = cJSON_ParseWithLengthOpts(text, length, &end, 0);
  if (!file->header || !cJSON_IsObject(file->header))
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: the header is not a JSON object");
  for (; end < text + length; end++)
    if (*end != ' ' && *end != '\n' && *end != '\t' && *end != '\r')
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "safetensors: something follows the header's JSON object");
  file->entries = calloc((size_t)cJSON_GetArraySize(file->header) + 1, sizeof *file->entries);
  if (!file->entries) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "safetensors: no memory for the header");
  return parse_entries(file, 8 + length, error);
}

glint_status io_safetensors_parse(io_bytes bytes, io_safetensors *file, glint_error *error) {
  *file = (io_safetensors){.bytes = bytes};
  glint_status status = parse_file(file, error);
  if (status != GLINT_OK) io_safetensors_free(file);
  return status;
}

glint_status io_safetensors_read(const char *path, io_safetensors *file, glint_error *error) {
  io_bytes bytes;
  *file = (io_safetensors){0};
  glint_status status = io_file_read(path, &bytes, error);
  if (status != GLINT_OK) return status;
  glint_error detail = {{0}};
  status = io_safetensors_parse(bytes, file, &detail);
  return status == GLINT_OK ? status : glint_fail(error, status, "%s: %s", path, detail.text);
}

void io_safetensors_free(io_safetensors *file) {
  free(file->bytes.data);
  cJSON_Delete(file->header);
  free(file->entries);
  *file = (io_safetensors){0};
}

const io_entry *io_safetensors_find(const io_safetensors *file, const char *name) {
  for (int i = 0; i < file->count; i++)
    if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
  return NULL;
}

const char *io_safetensors_metadata(const io_safetensors *file, const char *key) {
  return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__"), key));
}

/* A view of source where its alignment allows one. */
static glint_status view_or_allocate(io_array *array, glint_dtype dtype, const io_entry *entry, void *source, glint_error *error) {
  if (!source || (uintptr_t)source % glint_dtype_size(dtype) != 0) return io_array_allocate(array, dtype, entry->rank, entry->shape, error);
  *array = (io_array){.data = source, .dtype = dtype, .rank = entry->rank};
  memcpy(array->shape, entry->shape, sizeof array->shape);
  array->count = (int64_t)((entry->end - entry->begin) / glint_dtype_size(dtype));
  return GLINT_OK;
}

glint_status io_safetensors_load(const io_safetensors *file, const io_entry *entry, io_array *array, glint_error *error) {
  *array = (io_array){0};
  if (entry->rank > IO_MAX_RANK)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "tensor \"%.80s\" has %d axes, more than %d", entry->name, entry->rank,
                      IO_MAX_RANK);
  int wide = strcmp(entry->type, "I64") == 0;
  glint_dtype dtype = wide ? GLINT_INT32 : types[type_of(entry->type)].dtype;
  if (dtype == GLINT_DTYPE_NONE)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "tensor \"%.80s\" has dtype %s, which no tensor of attention has", entry->name,
                      entry->type);
  uint8_t *source = file->bytes.data + entry->begin;
  glint_status status = view_or_allocate(array, dtype, entry, wide ? NULL : source, error);
  if (status != GLINT_OK || array->data == source) return status;
  if (!wide)
    memcpy(array->data, source, entry->end - entry->begin);
  else
    status = io_narrow_int64(source, array->count, array->data, error);
  if (status != GLINT_OK) io_array_free(array);
  return status;
}

static const char *type_name(glint_dtype dtype) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].dtype == dtype) return types[i].name;
  return "U8";
}

static cJSON *describe_array(const io_array *array, size_t begin, size_t end) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "dtype", type_name(array->dtype));
  cJSON *shape = cJSON_AddArrayToObject(item, "shape"), *offsets = cJSON_AddArrayToObject(item, "data_offsets");
  for (int32_t i = 0; i < array->rank; i++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)array->shape[i]));
  cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
  cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end));
  return item;
}

/* Length (eight bytes) and text of the header, padded with spaces so that the data start at a multiple of eight. */
static uint8_t *make_header(const io_named_array *arrays, int count, const cJSON *metadata, size_t *size) {
  cJSON *header = cJSON_CreateObject();
  if (metadata) cJSON_AddItemToObject(header, "__metadata__", cJSON_Duplicate(metadata, 1));
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    size_t end = at + (size_t)arrays[i].array.count * glint_dtype_size(arrays[i].array.dtype);
    cJSON_AddItemToObject(header, arrays[i].name, describe_array(&arrays[i].array, at, end));
    at = end;
  }
  char *text = cJSON_PrintUnformatted(header);
  cJSON_Delete(header);
  size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
  uint8_t *bytes = text ? malloc(8 + padded) : NULL;
  if (bytes) {
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(padded >> (8 * i));
    memcpy(bytes + 8, text, length);
    memset(bytes + 8 + length, ' ', padded - length);
  }
  cJSON_free(text);
  *size = 8 + padded;
  return bytes;
}

glint_status io_safetensors_write(const char *path, const io_named_array *arrays, int count, const cJSON *metadata, glint_error *error) {
  io_bytes *parts = calloc((size_t)count + 1, sizeof *parts);
  if (parts) parts[0].data = make_header(arrays, count, metadata, &parts[0].size);
  glint_status status = GLINT_ERROR_OUT_OF_MEMORY;
  if (!parts || !parts[0].data) {
    glint_fail(error, status, "%s: no memory for the header", path);
  } else {
    for (int i = 0; i < count; i++)
      parts[i + 1] = (io_bytes){arrays[i].array.data, (size_t)arrays[i].array.count * glint_dtype_size(arrays[i].array.dtype)};
    status = io_file_write(path, parts, count + 1, error);
  }
  if (parts) free(parts[0].data);
  free(parts);
  return status;
}
