/* The cuda engine on a device: streams, graphs, contexts, devices, threads, and sizes that break launches. Runs on a GPU, and in CI on the
 * stand-in driver. Without either the tests are skipped. */
#include "device_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static fixture f;
static uint64_t seed;

static int is_simulated(void) { return f.driver.simulator != NULL; }
static const device_shape usual = {2, 150, 190, 4, 2, 64, 1};

static int start(void **state) {
  (void)state;
  seed = testkit_fresh_seed();
  print_message("GLINT_SEED=%llu\n", (unsigned long long)seed);
  return fixture_open(&f) ? 0 : 77;
}

static int stop(void **state) {
  (void)state;
  fixture_close(&f);
  return 0;
}

static void forward(const glint_problem *p) { assert_glint_ok(f.context, glint_forward(f.context, p)); }

static void test_result_without_a_context(void **state) {
  (void)state;
  device_problem d;
  CUcontext current = NULL;
  assert_cuda_ok(&f, f.driver.cuCtxGetCurrent(&current));
  assert_null(current);
  device_problem_make(&d, f.memory[0], usual, seed);
  device_problem_expect(&d, NULL);
  forward(&d.api);
  device_problem_check(&d);
  assert_cuda_ok(&f, f.driver.cuCtxGetCurrent(&current));
  assert_null(current); /* as it was */
  device_problem_free(&d);
}

static void test_callers_context_stays(void **state) {
  (void)state;
  device_problem d;
  CUcontext context, current;
  assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRetain(&context, 0));
  assert_cuda_ok(&f, f.driver.cuCtxPushCurrent(context));
  device_problem_make(&d, f.memory[0], usual, seed + 1);
  device_problem_expect(&d, NULL);
  forward(&d.api);
  assert_cuda_ok(&f, f.driver.cuCtxGetCurrent(&current));
  assert_ptr_equal(current, context);
  device_problem_check(&d);
  device_problem_free(&d);
  assert_cuda_ok(&f, f.driver.cuCtxPopCurrent(&current));
  assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRelease(0));
}

/* Tensors on device 1 while device 0 is current. */
static void test_tensors_on_another_device(void **state) {
  (void)state;
  device_problem d;
  CUcontext context, current;
  if (!f.memory[1]) skip();
  assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRetain(&context, 0));
  assert_cuda_ok(&f, f.driver.cuCtxPushCurrent(context));
  device_problem_make(&d, f.memory[1], usual, seed + 2);
  device_problem_expect(&d, NULL);
  forward(&d.api);
  assert_cuda_ok(&f, f.driver.cuCtxGetCurrent(&current));
  assert_ptr_equal(current, context);
  device_problem_check(&d);
  device_problem_free(&d);
  assert_cuda_ok(&f, f.driver.cuCtxPopCurrent(&current));
  assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRelease(0));
}

/* ---- streams ---- */

static void with_context(int on) {
  static CUcontext context;
  CUcontext popped;
  if (on) {
    assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRetain(&context, 0));
    assert_cuda_ok(&f, f.driver.cuCtxPushCurrent(context));
  } else {
    assert_cuda_ok(&f, f.driver.cuCtxPopCurrent(&popped));
    assert_cuda_ok(&f, f.driver.cuDevicePrimaryCtxRelease(0));
  }
}

static void test_two_streams(void **state) {
  (void)state;
  device_problem d[2];
  CUstream stream[2];
  with_context(1);
  for (int i = 0; i < 2; i++) {
    assert_cuda_ok(&f, f.driver.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    device_problem_make(&d[i], f.memory[0], usual, seed + 10 + (uint64_t)i);
    device_problem_expect(&d[i], NULL);
    d[i].api.stream = stream[i];
  }
  for (int n = 0; n < (is_simulated() ? 3 : 100); n++) {
    for (int i = 0; i < 2; i++) device_problem_poison(&d[i]);
    for (int i = 0; i < 2; i++) forward(&d[i].api);
    for (int i = 0; i < 2; i++) device_problem_check_same(&d[i]);
  }
  for (int i = 0; i < 2; i++) {
    device_problem_check(&d[i]);
    device_problem_free(&d[i]);
    assert_cuda_ok(&f, f.driver.cuStreamDestroy(stream[i]));
  }
  with_context(0);
}

/* ---- graphs ---- */

/* A graph captured at one length, replayed at others; fresh: the very first call of a context, for this kernel (NULL: any), happens inside the
 * capture. */
static void capture_and_replay(int fresh, const char *kernel) {
  enum { REPLAYS = 3 };
  static const int32_t lengths[REPLAYS][2] = {{190, 190}, {1, 77}, {128, 0}};
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA, .kernel = kernel};
  glint_context *context = f.context;
  glint_error error = {""};
  device_problem d;
  CUstream stream;
  CUgraph graph;
  CUgraphExec executable;
  void *used = NULL;
  with_context(1);
  if (fresh) assert_glint_ok(NULL, glint_open(&options, &context));
  assert_cuda_ok(&f, f.driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  device_problem_make(&d, f.memory[0], usual, seed + 20);
  assert_int_equal(glint_device_alloc(f.memory[0], sizeof lengths[0], &used, &error), GLINT_OK);
  d.api.stream = stream;
  d.api.seqused_k = (glint_tensor){.data = used, .shape = {2}, .dtype = GLINT_INT32, .rank = 1};
  assert_cuda_ok(&f, f.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  glint_status status = glint_forward(context, &d.api);
  assert_glint_ok(context, status); /* first: a failure there ends the capture */
  assert_cuda_ok(&f, f.cuStreamEndCapture(stream, &graph));
  assert_cuda_ok(&f, f.cuGraphInstantiate(&executable, graph, 0));
  for (int n = 0; n < REPLAYS; n++) {
    device_problem_poison(&d);
    assert_int_equal(glint_device_upload(f.memory[0], used, lengths[n], sizeof lengths[n], &error), GLINT_OK);
    device_problem_expect(&d, lengths[n]);
    assert_cuda_ok(&f, f.cuGraphLaunch(executable, stream));
    device_problem_check(&d);
  }
  assert_cuda_ok(&f, f.cuGraphExecDestroy(executable));
  assert_cuda_ok(&f, f.cuGraphDestroy(graph));
  assert_cuda_ok(&f, f.driver.cuStreamDestroy(stream));
  glint_device_free(f.memory[0], used, &error);
  device_problem_free(&d);
  if (fresh) glint_close(context);
  with_context(0);
}

static void test_graph_replayed_at_other_lengths(void **state) {
  (void)state;
  capture_and_replay(0, NULL);
}

static void test_first_call_inside_a_capture(void **state) {
  (void)state;
  capture_and_replay(1, NULL);
}

static void test_workspace_inside_a_capture(void **state) {
  (void)state;
  capture_and_replay(1, "glint_forward_fa1");
}

/* ---- threads ---- */

typedef struct worker {
  pthread_t thread;
  device_problem d;
  glint_status status;
} worker;

static void *work(void *user) {
  worker *w = user;
  for (int n = 0; n < (is_simulated() ? 2 : 50) && w->status == GLINT_OK; n++) w->status = glint_forward(f.context, &w->d.api);
  return NULL;
}

static void test_threads_share_a_context(void **state) {
  (void)state;
  enum { THREADS = 4 };
  static worker w[THREADS];
  CUstream stream[THREADS];
  with_context(1);
  for (int i = 0; i < THREADS; i++) {
    device_problem_make(&w[i].d, f.memory[0], usual, seed + 30 + (uint64_t)i);
    device_problem_expect(&w[i].d, NULL);
    assert_cuda_ok(&f, f.driver.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    w[i].d.api.stream = stream[i];
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(w[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(w[i].status, GLINT_OK);
    device_problem_check(&w[i].d);
    device_problem_free(&w[i].d);
    assert_cuda_ok(&f, f.driver.cuStreamDestroy(stream[i]));
  }
  with_context(0);
}

/* ---- sizes ---- */

/* More tiles than grid.y and grid.z may have. */
static void test_many_sequences(void **state) {
  (void)state;
  device_problem d;
  device_problem_make(&d, f.memory[0], (device_shape){is_simulated() ? 65 : 80000, 4, 4, 1, 1, 64, 0}, seed + 40);
  device_problem_expect(&d, NULL);
  forward(&d.api);
  device_problem_check(&d);
  device_problem_free(&d);
}

static void test_nothing_to_do(void **state) {
  (void)state;
  device_problem d;
  device_problem_make(&d, f.memory[0], usual, seed + 41);
  d.api.q.shape[0] = d.api.k.shape[0] = d.api.v.shape[0] = d.api.o.shape[0] = d.api.lse.shape[0] = 0;
  forward(&d.api);
  d.api.q.shape[0] = d.api.k.shape[0] = d.api.v.shape[0] = d.api.o.shape[0] = d.api.lse.shape[0] = 2;
  device_problem_free(&d);
}

/* Offsets beyond 2^31 elements: K and V with a row stride so large that the last rows lie there. */
static void test_offsets_beyond_2_31(void **state) {
  (void)state;
  enum { ROWS = 24000, D = 64, GAP = 100096 }; /* 24000 * 100096 = 2.4e9 elements, 4.8 GB each */
  glint_error error = {""};
  device_problem d;
  void *wide = NULL;
  if (is_simulated()) skip();
  device_problem_make(&d, f.memory[0], (device_shape){1, 70, ROWS, 1, 1, D, 1}, seed + 42);
  device_problem_expect(&d, NULL);
  if (glint_device_alloc(f.memory[0], ((size_t)ROWS * GAP + 2 * D) * 2, &wide, &error) != GLINT_OK) {
    print_message("%s\n", error.text);
    device_problem_free(&d);
    skip();
  }
  char *k = wide, *v = k + 2 * D; /* side by side in each row, 128 bytes apart */
  for (int64_t i = 0; i < ROWS; i++) {
    assert_int_equal(glint_device_upload(f.memory[0], k + i * GAP * 2, d.inputs[1] + i * D, D * 2, &error), GLINT_OK);
    assert_int_equal(glint_device_upload(f.memory[0], v + i * GAP * 2, d.inputs[2] + i * D, D * 2, &error), GLINT_OK);
  }
  glint_problem p = d.api;
  p.k.data = k;
  p.v.data = v;
  const int64_t strides[4] = {(int64_t)ROWS * GAP, GAP, D, 1};
  memcpy(p.k.stride, strides, sizeof strides);
  memcpy(p.v.stride, strides, sizeof strides);
  forward(&p);
  device_problem_check(&d);
  glint_device_free(f.memory[0], wide, &error);
  device_problem_free(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_call_inside_a_capture),
                                     cmocka_unit_test(test_result_without_a_context),
                                     cmocka_unit_test(test_callers_context_stays),
                                     cmocka_unit_test(test_tensors_on_another_device),
                                     cmocka_unit_test(test_two_streams),
                                     cmocka_unit_test(test_graph_replayed_at_other_lengths),
                                     cmocka_unit_test(test_workspace_inside_a_capture),
                                     cmocka_unit_test(test_threads_share_a_context),
                                     cmocka_unit_test(test_many_sequences),
                                     cmocka_unit_test(test_nothing_to_do),
                                     cmocka_unit_test(test_offsets_beyond_2_31)};
  void *state = NULL;
  if (start(&state) != 0) return 77; /* skipped, as ctest counts it */
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  stop(&state);
  return failed;
}
