/* The .npy reader and writer: files that NumPy wrote, round trips, wrong headers one by one, and random damage. */
#include "npy.h"

#include "io_test.h"

#include <dirent.h>
#include <unistd.h>

static void every_kind_that_numpy_writes(void **state) {
  (void)state;
  static const struct {
    const char *prefix;
    glint_dtype dtype;
  } kinds[] = {{"f2", GLINT_FLOAT16}, {"f4", GLINT_FLOAT32}, {"f8", GLINT_FLOAT64}, {"i4", GLINT_INT32}, {"i8", GLINT_INT32}};
  DIR *folder = opendir(DATA "/npy");
  assert_non_null(folder);
  int seen = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      if (strncmp(entry->d_name, kinds[k].prefix, 2) != 0 || entry->d_name[2] != '_') continue;
      char path[512];
      snprintf(path, sizeof path, DATA "/npy/%s", entry->d_name);
      io_array array;
      glint_error error = {{0}};
      if (io_npy_read(path, 0, &array, &error) != GLINT_OK) fail_msg("%s", error.text);
      assert_int_equal(array.dtype, kinds[k].dtype);
      io_test_expect_fixture(&array);
      io_array_free(&array);
      seen++;
    }
  }
  closedir(folder);
  assert_int_equal(seen, 20);
}

static void bfloat16_only_when_asked(void **state) {
  (void)state;
  io_array array;
  glint_error error = {{0}};
  assert_int_equal(io_npy_read(DATA "/npy/bf16_bits.npy", 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "--dtype bf16"));
  assert_int_equal(io_npy_read(DATA "/npy/bf16_bits.npy", 1, &array, &error), GLINT_OK);
  assert_int_equal(array.dtype, GLINT_BFLOAT16);
  io_test_expect_fixture(&array);
  io_array_free(&array);
}

static void scalars_and_empty_arrays(void **state) {
  (void)state;
  io_array array;
  glint_error error = {{0}};
  assert_int_equal(io_npy_read(DATA "/npy/scalar.npy", 0, &array, &error), GLINT_OK);
  assert_int_equal(array.rank, 0);
  assert_true(io_test_value(&array, 0) == -3);
  io_array_free(&array);
  assert_int_equal(io_npy_read(DATA "/npy/empty.npy", 0, &array, &error), GLINT_OK);
  assert_int_equal(array.count, 0);
  assert_int_equal(array.shape[1], 5);
  io_array_free(&array);
}

static void round_trips(void **state) {
  (void)state;
  static const glint_dtype dtypes[] = {GLINT_FLOAT16, GLINT_FLOAT32, GLINT_FLOAT64, GLINT_INT32, GLINT_BFLOAT16};
  char path[] = "/tmp/glint_npy_XXXXXX";
  close(mkstemp(path));
  for (int round = 0; round < 50; round++) {
    int64_t shape[IO_MAX_RANK];
    int32_t rank = (int32_t)(io_test_random() % (IO_MAX_RANK + 1));
    for (int32_t i = 0; i < rank; i++) shape[i] = (int64_t)(io_test_random() % 5);
    io_array out, in;
    glint_error error = {{0}};
    assert_int_equal(io_array_allocate(&out, dtypes[round % 5], rank, shape, &error), GLINT_OK);
    size_t bytes = (size_t)out.count * glint_dtype_size(out.dtype);
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)out.data)[i] = (uint8_t)io_test_random();
    assert_int_equal(io_npy_write(path, &out, &error), GLINT_OK);
    if (io_npy_read(path, out.dtype == GLINT_BFLOAT16, &in, &error) != GLINT_OK) fail_msg("%s", error.text);
    assert_int_equal(in.dtype, out.dtype);
    assert_int_equal(in.rank, rank);
    assert_memory_equal(in.shape, out.shape, sizeof in.shape);
    assert_memory_equal(in.data, out.data, bytes);
    io_array_free(&in);
    io_array_free(&out);
  }
  unlink(path);
}

/* A version 1 file with this header text and `extra` bytes of data. */
static io_bytes with_header(const char *text, size_t extra) {
  size_t length = strlen(text);
  io_bytes bytes = {calloc(10 + length + extra, 1), 10 + length + extra};
  assert_non_null(bytes.data);
  memcpy(bytes.data, "\x93NUMPY\x01", 8);
  bytes.data[8] = (uint8_t)length, bytes.data[9] = (uint8_t)(length >> 8);
  memcpy(bytes.data + 10, text, length);
  return bytes;
}

static void wrong_headers_are_named(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data;
    const char *message; /* NULL: the file is right */
  } cases[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, NULL},
      {"{\"shape\":(2,3L),'fortran_order':True,'descr':'=f4'}", 24, NULL},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4, NULL},
      {"", 0, "expected {"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23, "needs 24 bytes of data, the file has 23"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 25, "needs 24 bytes of data, the file has 25"},
      {"{'descr': '<f4', 'fortran_order': False}", 0, "needs descr, fortran_order and shape"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "repeated key 'descr'"},
      {"{'descr': '<f4', 'colour': 1}", 0, "unknown or repeated key 'colour'"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': ()}", 8, "type c8 is not supported"},
      {"{'descr': '<f3', 'fortran_order': False, 'shape': ()}", 3, "type f3 is not supported"},
      {"{'descr': 'f4', 'fortran_order': False, 'shape': ()}", 4, "type 'f4' is not understood"},
      {"{'descr': '<f4x', 'fortran_order': False, 'shape': ()}", 4, "type '<f4x' is not understood"},
      {"{'descr': '<f-1', 'fortran_order': False, 'shape': ()}", 4, "type f-1 is not supported"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4, "structured arrays are not supported"},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", 4, "expected True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, "expected an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", 8, "expected , or )"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,2", 8, "expected , or )"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1)}", 4, "more than 4 axes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4, "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}", 0, "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296,0)}", 0, "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 0, "does not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} import os", 4, "expected nothing more"},
      {"{'descr: '<f4'", 0, "expected :"},
      {"{'descr", 0, "expected a short quoted string"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    io_array array;
    glint_error error = {{0}};
    glint_status status = io_npy_parse(with_header(cases[i].header, cases[i].data), 0, &array, &error);
    if (!cases[i].message) {
      if (status != GLINT_OK) fail_msg("%s: %s", cases[i].header, error.text);
      io_array_free(&array);
    } else if (status != GLINT_ERROR_INVALID_ARGUMENT || !strstr(error.text, cases[i].message) || array.data) {
      fail_msg("%s: status %d, \"%s\" where \"%s\" was expected", cases[i].header, status, error.text, cases[i].message);
    }
  }
}

static void wrong_files_are_named(void **state) {
  (void)state;
  io_array array;
  glint_error error = {{0}};
  assert_int_equal(io_npy_read("/nonexistent/x.npy", 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "/nonexistent/x.npy: No such file"));
  assert_int_equal(io_npy_read("/tmp", 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(io_npy_read(DATA "/sample.safetensors", 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "does not start as"));
  assert_int_equal(io_npy_parse(io_test_copy("\x93NUMPY\x04\x00\x00\x00\x00\x00", 12), 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "format version 4"));
  assert_int_equal(io_npy_parse(io_test_copy("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), 0, &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(error.text, "beyond the file's 12 bytes"));
  assert_int_equal(io_npy_write("/nonexistent/x.npy", &array, &error), GLINT_ERROR_INVALID_ARGUMENT);
}

static void damage_never_crashes(void **state) {
  (void)state;
  io_bytes whole;
  glint_error error;
  assert_int_equal(io_file_read(DATA "/npy/f4_big_F_v2.npy", &whole, &error), GLINT_OK);
  for (int round = 0; round < 20000; round++) {
    size_t size = round < (int)whole.size ? (size_t)round : whole.size;
    io_bytes bytes = io_test_copy(whole.data, size);
    int changes = size && round >= (int)whole.size ? 1 + (int)(io_test_random() % 3) : 0;
    for (int i = 0; i < changes; i++) bytes.data[io_test_random() % size] = (uint8_t)io_test_random();
    io_array array;
    error.text[0] = '\0';
    if (io_npy_parse(bytes, 1, &array, &error) == GLINT_OK)
      io_array_free(&array);
    else
      assert_true(error.text[0] != '\0');
  }
  free(whole.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_that_numpy_writes), cmocka_unit_test(bfloat16_only_when_asked),
      cmocka_unit_test(scalars_and_empty_arrays),     cmocka_unit_test(round_trips),
      cmocka_unit_test(wrong_headers_are_named),      cmocka_unit_test(wrong_files_are_named),
      cmocka_unit_test(damage_never_crashes),
  };
  return cmocka_run_group_tests(tests, io_test_seed, NULL);
}
