/* The cuda engine when things go wrong, and what it asks of the driver: on the stand-in of sim/, which counts calls and fails on demand. */
#include "device_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fixture f;
static device_problem d;
static const device_shape shape = {1, 70, 90, 2, 1, 64, 0};

static const glint_sim_interface *sim(void) { return f.driver.simulator; }

static int start(void **state) {
  (void)state;
  if (!fixture_open(&f) || !sim()) return -1;
  device_problem_make(&d, f.memory[0], shape, 7);
  device_problem_expect(&d, NULL);
  return 0;
}

static int stop(void **state) {
  (void)state;
  device_problem_free(&d);
  fixture_close(&f);
  return 0;
}

static glint_context *open_context(void) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA};
  glint_context *context;
  assert_glint_ok(NULL, glint_open(&options, &context));
  return context;
}

static void assert_says(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("'%s' does not say '%s'", text, words);
}

/* Opening with a driver library that is not one. */
static void test_driver_not_found(void **state) {
  (void)state;
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA};
  glint_context *context;
  char *old = strdup(getenv("GLINT_CUDA_LIBRARY"));
  assert_non_null(old);
  setenv("GLINT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  assert_int_equal(glint_open(&options, &context), GLINT_ERROR_NOT_FOUND);
  assert_says(glint_last_error(NULL), "/nowhere/libcuda.so.1");
  setenv("GLINT_CUDA_LIBRARY", "libm.so.6", 1);
  assert_int_equal(glint_open(&options, &context), GLINT_ERROR_NOT_FOUND);
  assert_says(glint_last_error(NULL), "libm.so.6 has no symbol cuInit");
  setenv("GLINT_CUDA_LIBRARY", old, 1);
  free(old);
}

static void test_open_fails(void **state) {
  (void)state;
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA};
  const struct {
    const char *function;
    CUresult result;
    glint_status status;
    const char *words;
  } cases[] = {{"cuInit", CUDA_ERROR_NO_DEVICE, GLINT_ERROR_NOT_FOUND, "cuInit: CUDA_ERROR_NO_DEVICE (100)"},
               {"cuDriverGetVersion", 999, GLINT_ERROR_DEVICE, "cuDriverGetVersion: unknown error (999)"},
               {"cuDeviceGetCount", CUDA_ERROR_INVALID_VALUE, GLINT_ERROR_DEVICE,
                "cuDeviceGetCount: CUDA_ERROR_INVALID_VALUE (1): invalid argument"},
               {"cuDeviceGetAttribute", CUDA_ERROR_INVALID_VALUE, GLINT_ERROR_DEVICE, "cuDeviceGetAttribute"},
               {"cuDeviceGetName", CUDA_ERROR_INVALID_DEVICE, GLINT_ERROR_DEVICE, "cuDeviceGetName"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    glint_context *context;
    sim()->order_failure(cases[i].function, cases[i].result, 0);
    assert_int_equal(glint_open(&options, &context), cases[i].status);
    assert_null(context);
    assert_says(glint_last_error(NULL), cases[i].words);
  }
}

static void test_device_that_does_not_exist(void **state) {
  (void)state;
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA, .device = 31};
  glint_context *context;
  assert_int_equal(glint_open(&options, &context), GLINT_ERROR_NOT_FOUND);
  assert_says(glint_last_error(NULL), "options.device is 31");
}

/* Each call on the way to a first result fails once; the next attempt works. */
static void test_each_call_fails_once(void **state) {
  (void)state;
  static const char *const functions[] = {"cuLibraryLoadData",   "cuLibraryGetKernel", "cuKernelSetAttribute",
                                          "cuKernelGetFunction", "cuLaunchKernelEx",   "cuCtxPushCurrent_v2"};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    glint_context *context = open_context();
    char name[64];
    device_problem_poison(&d);
    sim()->order_failure(functions[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
    if (glint_forward(context, &d.api) != GLINT_ERROR_OUT_OF_MEMORY) fail_msg("%s: '%s'", functions[i], glint_last_error(context));
    snprintf(name, sizeof name, "%.*s: CUDA_ERROR_OUT_OF_MEMORY", (int)strcspn(functions[i], "_"), functions[i]);
    assert_says(glint_last_error(context), name);
    sim()->order_failure(functions[i], CUDA_ERROR_LAUNCH_FAILED, 0);
    if (strcmp(functions[i], "cuLibraryLoadData") != 0) /* the one that has been done keeps */
      assert_int_equal(glint_forward(context, &d.api), GLINT_ERROR_DEVICE);
    sim()->order_failure(functions[i], CUDA_SUCCESS, 0);
    assert_glint_ok(context, glint_forward(context, &d.api));
    device_problem_check(&d);
    glint_close(context);
  }
}

/* After the first call: nothing is allocated, freed, copied, loaded or waited for. */
static void test_hot_path(void **state) {
  (void)state;
  static const char *const forbidden[] = {"cuMemAlloc_v2",       "cuMemFree_v2",     "cuMemcpyHtoD_v2",      "cuMemcpyDtoH_v2",
                                          "cuCtxSynchronize",    "cuStreamCreate",   "cuStreamSynchronize",  "cuLibraryLoadData",
                                          "cuLibraryGetKernel",  "cuDeviceGetCount", "cuDeviceGetAttribute", "cuKernelSetAttribute",
                                          "cuKernelGetFunction", "cuMemsetD32Async"};
  assert_glint_ok(f.context, glint_forward(f.context, &d.api));
  sim()->forget_calls();
  assert_glint_ok(f.context, glint_forward(f.context, &d.api));
  assert_int_equal(sim()->calls("cuLaunchKernelEx"), 1);
  for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++)
    if (sim()->calls(forbidden[i])) fail_msg("%s was called", forbidden[i]);
}

/* Nothing that a context took stays behind. */
static void test_close_gives_back(void **state) {
  (void)state;
  sim()->forget_calls();
  glint_context *context = open_context();
  assert_glint_ok(context, glint_forward(context, &d.api));
  glint_close(context);
  assert_int_equal(sim()->calls("cuMemAlloc_v2"), sim()->calls("cuMemFree_v2"));
  assert_int_equal(sim()->calls("cuLibraryLoadData"), sim()->calls("cuLibraryUnload"));
  assert_int_equal(sim()->calls("cuDevicePrimaryCtxRetain"), sim()->calls("cuDevicePrimaryCtxRelease_v2"));
  assert_int_equal(sim()->calls("cuCtxPushCurrent_v2"), sim()->calls("cuCtxPopCurrent_v2"));
  assert_int_equal(sim()->calls("cuStreamCreate"), sim()->calls("cuStreamDestroy_v2"));
}

/* A kernel that leaves its tensors is stopped by the model, and the error says where it went. */
static void test_launch_that_goes_wrong(void **state) {
  (void)state;
  glint_error error = {""};
  glint_problem p = d.api;
  void *short_o = NULL;
  assert_int_equal(glint_device_alloc(f.memory[0], (size_t)d.o_elements, &short_o, &error), GLINT_OK); /* half of what o needs */
  p.o.data = short_o;
  assert_int_equal(glint_forward(f.context, &p), GLINT_ERROR_DEVICE);
  assert_says(glint_last_error(f.context), "cuLaunchKernelEx: CUDA_ERROR_LAUNCH_FAILED");
  assert_says(glint_last_error(f.context), "kernels/");
  glint_device_free(f.memory[0], short_o, &error);
}

static void test_description(void **state) {
  (void)state;
  char text[4096];
  assert_true(glint_describe(f.context, text, sizeof text) < sizeof text);
  assert_says(text, "cuda: device 0: glint simulator of sm_90a, sm_90");
  assert_says(text, "cuda: device 1: glint simulator of sm_80, sm_80");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_driver_not_found),       cmocka_unit_test(test_open_fails), cmocka_unit_test(test_device_that_does_not_exist),
      cmocka_unit_test(test_each_call_fails_once),   cmocka_unit_test(test_hot_path),   cmocka_unit_test(test_close_gives_back),
      cmocka_unit_test(test_launch_that_goes_wrong), cmocka_unit_test(test_description)};
  return cmocka_run_group_tests(tests, start, stop);
}
