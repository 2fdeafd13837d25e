/* The safetensors reader and writer: a file of the reference implementation, round trips, wrong headers one by one, and random damage. */
#include "safetensors.h"

#include "io_test.h"

#include <unistd.h>

static void a_file_of_the_reference_writer(void **state) {
  (void)state;
  static const struct {
    const char *name;
    glint_dtype dtype;
  } expected[] = {{"x.f2", GLINT_FLOAT16}, {"x.f4", GLINT_FLOAT32}, {"x.f8", GLINT_FLOAT64}, {"x.i4", GLINT_INT32}, {"x.i8", GLINT_INT32}};
  io_safetensors file;
  glint_error error = {{0}};
  if (io_safetensors_read(DATA "/sample.safetensors", &file, &error) != GLINT_OK) fail_msg("%s", error.text);
  assert_int_equal(file.count, 6);
  assert_string_equal(io_safetensors_metadata(&file, "words"), "[\"a\", \"b\"]");
  assert_null(io_safetensors_metadata(&file, "absent"));
  assert_null(io_safetensors_find(&file, "absent"));
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const io_entry *entry = io_safetensors_find(&file, expected[i].name);
    assert_non_null(entry);
    io_array array;
    if (io_safetensors_load(&file, entry, &array, &error) != GLINT_OK) fail_msg("%s", error.text);
    assert_int_equal(array.dtype, expected[i].dtype);
    io_test_expect_fixture(&array);
    io_array_free(&array);
  }
  io_array array;
  assert_int_equal(io_safetensors_load(&file, io_safetensors_find(&file, "other.u1"), &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "U8"));
  io_safetensors_free(&file);
}

static void random_arrays(io_named_array *arrays, int count, char names[][24]) {
  static const glint_dtype dtypes[] = {GLINT_FLOAT16,  GLINT_FLOAT32,     GLINT_FLOAT64,    GLINT_INT32,
                                       GLINT_BFLOAT16, GLINT_FLOAT8_E4M3, GLINT_FLOAT8_E5M2};
  for (int i = 0; i < count; i++) {
    int64_t shape[IO_MAX_RANK];
    int32_t rank = (int32_t)(io_test_random() % (IO_MAX_RANK + 1));
    for (int32_t axis = 0; axis < rank; axis++) shape[axis] = (int64_t)(io_test_random() % 4);
    glint_error error;
    snprintf(names[i], sizeof names[i], "t%d.\"\u00fc\\", i);
    arrays[i].name = names[i];
    assert_int_equal(io_array_allocate(&arrays[i].array, dtypes[io_test_random() % 7], rank, shape, &error), GLINT_OK);
    size_t bytes = (size_t)arrays[i].array.count * glint_dtype_size(arrays[i].array.dtype);
    for (size_t b = 0; b < bytes; b++) ((uint8_t *)arrays[i].array.data)[b] = (uint8_t)io_test_random();
  }
}

static void round_trips(void **state) {
  (void)state;
  enum { COUNT = 12 };
  char path[] = "/tmp/glint_safetensors_XXXXXX", names[COUNT][24];
  close(mkstemp(path));
  cJSON *metadata = cJSON_CreateObject();
  cJSON_AddStringToObject(metadata, "key", "value");
  for (int round = 0; round < 20; round++) {
    io_named_array arrays[COUNT];
    random_arrays(arrays, COUNT, names);
    io_safetensors file;
    glint_error error = {{0}};
    assert_int_equal(io_safetensors_write(path, arrays, COUNT, round % 2 ? metadata : NULL, &error), GLINT_OK);
    if (io_safetensors_read(path, &file, &error) != GLINT_OK) fail_msg("%s", error.text);
    assert_int_equal(file.count, COUNT);
    assert_true((io_safetensors_metadata(&file, "key") != NULL) == (round % 2));
    for (int i = 0; i < COUNT; i++) {
      io_array in, *out = &arrays[i].array;
      assert_int_equal(io_safetensors_load(&file, io_safetensors_find(&file, names[i]), &in, &error), GLINT_OK);
      assert_int_equal(in.dtype, out->dtype);
      assert_int_equal(in.rank, out->rank);
      assert_memory_equal(in.shape, out->shape, sizeof in.shape);
      assert_memory_equal(in.data, out->data, (size_t)out->count * glint_dtype_size(out->dtype));
      io_array_free(&in);
      io_array_free(out);
    }
    io_safetensors_free(&file);
  }
  cJSON_Delete(metadata);
  unlink(path);
}

static io_bytes with_header(const char *text, size_t extra) {
  size_t length = strlen(text);
  io_bytes bytes = {calloc(8 + length + extra, 1), 8 + length + extra};
  assert_non_null(bytes.data);
  bytes.data[0] = (uint8_t)length, bytes.data[1] = (uint8_t)(length >> 8);
  memcpy(bytes.data + 8, text, length);
  return bytes;
}

#define TENSOR(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void wrong_headers_are_named(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data;
    const char *message; /* NULL: the file is right */
  } cases[] = {
      {"{}", 0, NULL},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "}  \n", 8, NULL},
      {"{" TENSOR("a", "F32", "[2]", "[8,16]") "," TENSOR("b", "BF16", "[4]", "[0,8]") "}", 16, NULL},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[0]", "[8,8]") "}", 8, NULL},
      {"", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {"{\"a\":", 0, "not a JSON object"},
      {"{} {}", 0, "something follows"},
      {"{}", 1, "the last 1 bytes belong to no tensor"},
      {"{\"a\":1}", 0, "\"a\": its description is not an object"},
      {"{\"a\":{}}", 0, "\"a\": dtype is missing"},
      {"{" TENSOR("a", "F31", "[2]", "[0,8]") "}", 8, "dtype \"F31\" is unknown"},
      {"{" TENSOR("a", "F32", "2", "[0,8]") "}", 8, "shape is not a list"},
      {"{" TENSOR("a", "F32", "[-2]", "[0,8]") "}", 8, "no extent"},
      {"{" TENSOR("a", "F32", "[1.5]", "[0,8]") "}", 8, "no extent"},
      {"{" TENSOR("a", "F32", "[1e300]", "[0,8]") "}", 8, "no extent"},
      {"{" TENSOR("a", "F32", "[\"2\"]", "[0,8]") "}", 8, "no extent"},
      {"{" TENSOR("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "does not fit 63 bits"},
      {"{" TENSOR("a", "F32", "[1,1,1,1,4294967296,4294967296]", "[0,0]") "}", 0, "does not fit 63 bits"},
      {"{" TENSOR("a", "F32", "[2]", "[0]") "}", 8, "data_offsets is not a pair"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8,8]") "}", 8, "data_offsets is not a pair"},
      {"{" TENSOR("a", "F32", "[2]", "[-8,8]") "}", 8, "data_offsets is not a pair"},
      {"{" TENSOR("a", "F32", "[2]", "[8,0]") "}", 8, "data_offsets [8, 0]"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 7, "data_offsets [0, 8] in a file with 7 bytes"},
      {"{" TENSOR("a", "F32", "[2]", "[0,9007199254740993]") "}", 8, "data_offsets"},
      {"{" TENSOR("a", "F32", "[3]", "[0,8]") "}", 8, "need 12 bytes, data_offsets give 8"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[4,12]") "}", 12, "\"b\": overlaps"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[0,8]") "}", 8, "overlaps"},
      {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F32", "[1]", "[8,12]") "}", 12,
       "\"b\": bytes before it belong to no tensor"},
      {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("a", "F32", "[1]", "[4,8]") "}", 8, "the name occurs twice"},
      {"{\"__metadata__\":[]}", 0, "\"__metadata__\": not an object"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "holds something that is no text"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    io_safetensors file;
    glint_error error = {{0}};
    glint_status status = io_safetensors_parse(with_header(cases[i].header, cases[i].data), &file, &error);
    if (!cases[i].message) {
      if (status != GLINT_OK) fail_msg("%s: %s", cases[i].header, error.text);
      io_safetensors_free(&file);
    } else if (status != GLINT_ERROR_INVALID_ARGUMENT || !strstr(error.text, cases[i].message) || file.bytes.data) {
      fail_msg("%s: status %d, \"%s\" where \"%s\" was expected", cases[i].header, status, error.text, cases[i].message);
    }
  }
}

static void wrong_files_are_named(void **state) {
  (void)state;
  io_safetensors file;
  glint_error error = {{0}};
  assert_int_equal(io_safetensors_read("/nonexistent/x", &file, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "/nonexistent/x: No such file"));
  assert_int_equal(io_safetensors_parse(io_test_copy("1234567", 7), &file, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "7 bytes, fewer than"));
  assert_int_equal(io_safetensors_parse(io_test_copy("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), &file, &error),
                   GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "a header of 18446744073709551615 bytes"));
}

/* Depth is bounded by the JSON parser: a header of nothing but brackets must not exhaust the stack. */
static void deep_nesting_is_refused(void **state) {
  (void)state;
  size_t depth = 1 << 20;
  io_bytes bytes = {calloc(8 + depth, 1), 8 + depth};
  assert_non_null(bytes.data);
  bytes.data[2] = 1u << 4;
  memset(bytes.data + 8, '[', depth);
  io_safetensors file;
  glint_error error = {{0}};
  assert_int_equal(io_safetensors_parse(bytes, &file, &error), GLINT_ERROR_INVALID_ARGUMENT);
}

static void too_many_axes_cannot_be_loaded(void **state) {
  (void)state;
  io_safetensors file;
  io_array array;
  glint_error error = {{0}};
  assert_int_equal(io_safetensors_parse(with_header("{" TENSOR("a", "F32", "[1,1,1,1,2]", "[0,8]") "}", 8), &file, &error), GLINT_OK);
  assert_int_equal(io_safetensors_load(&file, &file.entries[0], &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "5 axes"));
  io_safetensors_free(&file);
}

static void load_all(io_safetensors *file) {
  for (int i = 0; i < file->count; i++) {
    io_array array;
    glint_error error;
    if (io_safetensors_load(file, &file->entries[i], &array, &error) == GLINT_OK) io_array_free(&array);
  }
}

static void damage_never_crashes(void **state) {
  (void)state;
  io_bytes whole;
  glint_error error;
  assert_int_equal(io_file_read(DATA "/sample.safetensors", &whole, &error), GLINT_OK);
  size_t header = 8 + (size_t)whole.data[0] + 256 * (size_t)whole.data[1];
  for (int round = 0; round < 10000; round++) {
    size_t size = round < (int)whole.size ? (size_t)round : whole.size;
    io_bytes bytes = io_test_copy(whole.data, size);
    int changes = round >= (int)whole.size ? 1 + (int)(io_test_random() % 3) : 0;
    for (int i = 0; i < changes; i++) bytes.data[io_test_random() % header] = (uint8_t)io_test_random();
    io_safetensors file;
    error.text[0] = '\0';
    if (io_safetensors_parse(bytes, &file, &error) == GLINT_OK) {
      load_all(&file);
      io_safetensors_free(&file);
    } else {
      assert_true(error.text[0] != '\0');
    }
  }
  free(whole.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_of_the_reference_writer), cmocka_unit_test(round_trips),
      cmocka_unit_test(wrong_headers_are_named),        cmocka_unit_test(wrong_files_are_named),
      cmocka_unit_test(deep_nesting_is_refused),        cmocka_unit_test(too_many_axes_cannot_be_loaded),
      cmocka_unit_test(damage_never_crashes),
  };
  return cmocka_run_group_tests(tests, io_test_seed, NULL);
}
