/* Fuzz target: the .npy reader on arbitrary bytes. The first byte chooses whether two-byte elements are bfloat16. */
#include "fuzz.h"
#include "npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  io_bytes bytes = {malloc(size), size - 1};
  if (!bytes.data) return 0;
  memcpy(bytes.data, data + 1, size - 1);
  io_array array;
  glint_error error = {{0}};
  if (io_npy_parse(bytes, data[0] & 1, &array, &error) == GLINT_OK) {
    FUZZ_REQUIRE(array.data != NULL && array.rank <= IO_MAX_RANK);
    fuzz_touch(array.data, (size_t)array.count * glint_dtype_size(array.dtype));
    io_array_free(&array);
  } else {
    FUZZ_REQUIRE(array.data == NULL && error.text[0] != '\0');
  }
  return 0;
}
