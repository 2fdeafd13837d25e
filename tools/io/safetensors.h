/* The safetensors format: eight bytes of header length, a JSON header, then the tensors' bytes. Everything a header claims is checked before
 * a tensor can be reached: types, extents, bounds, overlaps and gaps. */
#ifndef GLINT_IO_SAFETENSORS_H
#define GLINT_IO_SAFETENSORS_H

#include <cjson/cJSON.h>

#include "array.h"

#define IO_SAFETENSORS_MAX_HEADER (16u << 20) /* bytes; room for 100,000 tensors */

typedef struct io_entry {
  const char *name;
  const char *type;           /* as the file spells it, e.g. "BF16" */
  int32_t rank;               /* may exceed IO_MAX_RANK; such a tensor cannot be loaded */
  int64_t shape[IO_MAX_RANK]; /* the first axes */
  size_t begin, end;          /* bytes of the file that hold it */
} io_entry;

typedef struct io_safetensors {
  io_bytes bytes; /* the whole file */
  cJSON *header;  /* owns the names */
  io_entry *entries;
  int count;
} io_safetensors;

/* Takes over bytes (memory for free), also on failure. *file is empty then. */
glint_status io_safetensors_parse(io_bytes bytes, io_safetensors *file, glint_error *error);
glint_status io_safetensors_read(const char *path, io_safetensors *file, glint_error *error);
void io_safetensors_free(io_safetensors *file);

/* NULL when there is none. */
const io_entry *io_safetensors_find(const io_safetensors *file, const char *name);
/* A text of the file's __metadata__, or NULL. */
const char *io_safetensors_metadata(const io_safetensors *file, const char *key);
/* One tensor, valid while file is (a view of it where alignment allows): F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I32, and I64 where the values fit int32. */
glint_status io_safetensors_load(const io_safetensors *file, const io_entry *entry, io_array *array, glint_error *error);

typedef struct io_named_array {
  const char *name;
  io_array array;
} io_named_array;

/* metadata: an object of texts, or NULL. */
glint_status io_safetensors_write(const char *path, const io_named_array *arrays, int count, const cJSON *metadata, glint_error *error);

#endif
