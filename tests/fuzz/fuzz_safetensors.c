/* Fuzz target: the safetensors reader on arbitrary bytes, with every tensor of an accepted file loaded. */
#include "fuzz.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

static void load(const io_safetensors *file, const io_entry *entry) {
  io_array array;
  glint_error error = {{0}};
  FUZZ_REQUIRE(entry->begin <= entry->end && entry->end <= file->bytes.size);
  FUZZ_REQUIRE(io_safetensors_find(file, entry->name) == entry);
  if (io_safetensors_load(file, entry, &array, &error) != GLINT_OK) {
    FUZZ_REQUIRE(error.text[0] != '\0');
    return;
  }
  fuzz_touch(array.data, (size_t)array.count * glint_dtype_size(array.dtype));
  io_array_free(&array);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  io_bytes bytes = {malloc(size + 1), size};
  if (!bytes.data) return 0;
  if (size) memcpy(bytes.data, data, size);
  io_safetensors file;
  glint_error error = {{0}};
  if (io_safetensors_parse(bytes, &file, &error) == GLINT_OK) {
    for (int i = 0; i < file.count; i++) load(&file, &file.entries[i]);
    io_safetensors_free(&file);
  } else {
    FUZZ_REQUIRE(file.bytes.data == NULL && error.text[0] != '\0');
  }
  return 0;
}
