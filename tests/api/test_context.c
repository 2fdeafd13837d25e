/* Contexts: options, engine choice, errors by context and thread, workspace, plans, version, empty problems. */
#include "engines.h"
#include "glint.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static glint_context *open_engine(glint_engine engine) {
  glint_options options = {.struct_size = sizeof options, .engine = engine};
  glint_context *context = NULL;
  assert_int_equal(glint_open(&options, &context), GLINT_OK);
  return context;
}

static void test_version(void **state) {
  (void)state;
  assert_int_equal(glint_version(), GLINT_VERSION_MAJOR * 10000 + GLINT_VERSION_MINOR * 100 + GLINT_VERSION_PATCH);
  assert_int_equal(glint_dtype_size(GLINT_FLOAT8_E5M2), 1);
  assert_int_equal(glint_dtype_size(GLINT_BFLOAT16), 2);
  assert_int_equal(glint_dtype_size(GLINT_INT32), 4);
  assert_int_equal(glint_dtype_size(GLINT_FLOAT64), 8);
  assert_int_equal(glint_dtype_size(GLINT_DTYPE_NONE), 0);
  assert_int_equal(glint_dtype_size((glint_dtype)1000), 0);
  for (int status = 0; status <= GLINT_ERROR_INTERNAL; status++)
    assert_string_not_equal(glint_status_text((glint_status)status), "unknown status");
  assert_string_equal(glint_status_text((glint_status)-5), "unknown status");
}

static void test_options(void **state) {
  (void)state;
  struct {
    glint_options o;
    char tail[8];
  } future;
  glint_context *context = (glint_context *)&future;
  memset(&future, 0, sizeof future);
  assert_int_equal(glint_open(&future.o, &context), GLINT_ERROR_INVALID_ARGUMENT);
  assert_null(context);
  assert_non_null(strstr(glint_last_error(NULL), "options.struct_size is 0: expected sizeof(glint_options) = "));
  future.o.struct_size = sizeof future, future.o.engine = GLINT_ENGINE_ORACLE;
  assert_int_equal(glint_open(&future.o, &context), GLINT_OK);
  glint_close(context);
  future.tail[3] = 1;
  assert_int_equal(glint_open(&future.o, &context), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_open(&future.o, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  const struct {
    glint_options o;
    const char *text;
  } wrong[] = {
      {{.engine = (glint_engine)9}, "options.engine is 9: expected 0 to 4"},
      {{.isa = (glint_isa)-1}, "options.isa is -1: expected 0 to 6"},
      {{.threads = -2}, "options.threads is -2: expected 0 or more"},
      {{.device = -1}, "options.device is -1: expected 0 or more"},
      {{.arch = -80}, "options.arch is -80: expected 0 or more"},
  };
  for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
    glint_options options = wrong[n].o;
    options.struct_size = sizeof options;
    assert_int_equal(glint_open(&options, &context), GLINT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(glint_last_error(NULL), wrong[n].text);
    assert_null(context);
  }
  glint_close(NULL);
}

static void test_engine_choice(void **state) {
  (void)state;
  glint_context *context;
  setenv("GLINT_ENGINE", "oracle", 1);
  assert_int_equal(glint_open(NULL, &context), GLINT_OK);
  assert_int_equal(glint_context_engine(context), GLINT_ENGINE_ORACLE);
  glint_close(context);
  setenv("GLINT_ENGINE", "abacus", 1);
  assert_int_equal(glint_open(NULL, &context), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(glint_last_error(NULL), "GLINT_ENGINE is \"abacus\": expected auto, cpu, cuda, sim or oracle"));
  context = open_engine(GLINT_ENGINE_ORACLE); /* a choice in the options is not overridden */
  assert_int_equal(glint_context_engine(context), GLINT_ENGINE_ORACLE);
  glint_close(context);
  unsetenv("GLINT_ENGINE");
  if (!glint_open(NULL, &context)) {
    assert_true(glint_context_engine(context) == GLINT_ENGINE_CPU || glint_context_engine(context) == GLINT_ENGINE_CUDA);
    glint_close(context);
  }
  assert_int_equal(glint_context_engine(NULL), GLINT_ENGINE_AUTO);
}

static void test_describe(void **state) {
  (void)state;
  glint_context *context = open_engine(GLINT_ENGINE_ORACLE);
  size_t whole = glint_describe(context, NULL, 0);
  char *text = malloc(whole + 1), small[8];
  assert_non_null(text);
  assert_int_equal(glint_describe(context, text, whole + 1), whole);
  assert_int_equal(strlen(text), whole);
  assert_non_null(strstr(text, "oracle: float64 from the formula"));
  memset(small, 'x', sizeof small);
  assert_int_equal(glint_describe(context, small, sizeof small), whole);
  assert_int_equal(strlen(small), sizeof small - 1);
  assert_memory_equal(small, text, sizeof small - 1);
  assert_true(glint_describe(NULL, NULL, 0) > 0);
  free(text);
  glint_close(context);
}

static void spoil(glint_context *context, const char *expected) {
  glint_problem p = {.struct_size = sizeof p};
  assert_int_equal(glint_forward(context, expected ? &p : NULL), GLINT_ERROR_INVALID_ARGUMENT);
  assert_string_equal(glint_last_error(context), expected ? expected : "problem is NULL: expected a pointer");
}

static void *on_another_thread(void *context) {
  if (*glint_last_error(context)) return "an error of another thread is seen";
  if (glint_forward(context, NULL) != GLINT_ERROR_INVALID_ARGUMENT) return "not refused";
  if (strcmp(glint_last_error(context), "problem is NULL: expected a pointer")) return "wrong text";
  return NULL;
}

static void test_last_error(void **state) {
  (void)state;
  glint_context *first = open_engine(GLINT_ENGINE_ORACLE), *second = open_engine(GLINT_ENGINE_ORACLE);
  assert_string_equal(glint_last_error(first), "");
  spoil(first, "q.data is NULL: expected a pointer, q is required here");
  assert_string_equal(glint_last_error(second), "");
  spoil(second, NULL);
  assert_string_equal(glint_last_error(first), "q.data is NULL: expected a pointer, q is required here");
  pthread_t thread;
  void *wrong = NULL;
  assert_int_equal(pthread_create(&thread, NULL, on_another_thread, first), 0);
  pthread_join(thread, &wrong);
  if (wrong) fail_msg("%s", (const char *)wrong);
  assert_string_equal(glint_last_error(first), "q.data is NULL: expected a pointer, q is required here");
  glint_close(first);
  glint_close(second);
  for (int n = 0; n < 1000; n++) { /* a new context has no error, also at the address of an old one, also after many */
    glint_context *context = open_engine(GLINT_ENGINE_ORACLE);
    assert_string_equal(glint_last_error(context), "");
    spoil(context, n % 2 ? NULL : "q.data is NULL: expected a pointer, q is required here");
    glint_close(context);
  }
}

/* A dense problem of one block: q, k, v, o, lse one after the other. */
static glint_problem small_problem(float *memory, int64_t batch, int64_t sq, int64_t sk) {
  glint_problem p = {.struct_size = sizeof p};
  p.q = (glint_tensor){memory, {batch, sq, 2, 4}, {0}, GLINT_FLOAT32, 4};
  p.k = (glint_tensor){memory + 1024, {batch, sk, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.v = (glint_tensor){memory + 2048, {batch, sk, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.o = (glint_tensor){memory + 3072, {batch, sq, 2, 4}, {0}, GLINT_FLOAT32, 4};
  p.lse = (glint_tensor){memory + 3584, {batch, 2, sq}, {0}, GLINT_FLOAT32, 3};
  return p;
}

static void test_plan(void **state) {
  (void)state;
  static float memory[4096];
  struct {
    glint_plan_info plan;
    char tail[24];
  } future;
  glint_context *context = open_engine(GLINT_ENGINE_ORACLE);
  glint_problem p = small_problem(memory, 2, 3, 5);
  p.causal = 1;
  memset(&future, 0x77, sizeof future);
  future.plan.struct_size = sizeof future;
  assert_int_equal(glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, &future.plan), GLINT_OK);
  assert_int_equal(future.plan.struct_size, sizeof future);
  for (size_t n = 0; n < sizeof future.tail; n++) assert_int_equal(future.tail[n], 0);
  assert_string_equal(future.plan.kernel, "oracle_forward_f64");
  assert_true(future.plan.flops == 2.0 * 2 * 2 * (3 + 4 + 5) * (4 + 4)); /* 2 a pair and column; rows see 3, 4 and 5 keys */
  assert_int_equal(future.plan.engine, GLINT_ENGINE_ORACLE);
  glint_plan_info plan = {.struct_size = 0};
  assert_int_equal(glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, &plan), GLINT_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(glint_last_error(context), "plan.struct_size is 0: expected sizeof(glint_plan_info) = "));
  assert_int_equal(glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, NULL), GLINT_ERROR_INVALID_ARGUMENT);
  plan.struct_size = sizeof plan;
  assert_int_equal(glint_plan(context, GLINT_PASS_BACKWARD, &p, NULL, &plan), GLINT_OK); /* all of dq, dk, dv assumed */
  assert_string_equal(plan.kernel, "oracle_backward_f64");
  assert_int_equal(glint_plan(NULL, GLINT_PASS_FORWARD, &p, NULL, &plan), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_plan(context, (glint_pass)7, &p, NULL, &plan), GLINT_ERROR_INVALID_ARGUMENT);
  glint_close(context);
}

/* A workspace that is too small or not aligned is refused before anything is written, on every engine that wants one. */
static void test_workspace(void **state) {
  (void)state;
  static float memory[1 << 16];
  for (int n = 0; glint_engine_at(n); n++) {
    glint_options options = {.struct_size = sizeof options, .engine = glint_engine_at(n)->engine};
    glint_context *context;
    if (!glint_engine_at(n)->host || glint_open(&options, &context)) continue;
    glint_problem p = small_problem(memory, 1, 1, 100);
    p.num_splits = 4;
    glint_plan_info plan = {.struct_size = sizeof plan};
    glint_status status = glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, &plan);
    if (!status && plan.workspace_bytes) {
      char *workspace = aligned_alloc(256, (plan.workspace_bytes + 511) / 256 * 256);
      assert_non_null(workspace);
      memset(p.o.data, 0x5A, 32);
      p.workspace = workspace + 128, p.workspace_bytes = plan.workspace_bytes;
      assert_int_equal(glint_forward(context, &p), GLINT_ERROR_WORKSPACE);
      p.workspace = workspace, p.workspace_bytes = plan.workspace_bytes - 1;
      assert_int_equal(glint_forward(context, &p), GLINT_ERROR_WORKSPACE);
      assert_non_null(strstr(glint_last_error(context), "workspace_bytes is "));
      for (int i = 0; i < 32; i++) assert_int_equal(((char *)p.o.data)[i], 0x5A);
      p.workspace_bytes = plan.workspace_bytes;
      assert_int_equal(glint_forward(context, &p), GLINT_OK);
      free(workspace);
    }
    glint_close(context);
  }
}

static void test_float64_is_the_oracles(void **state) {
  (void)state;
  static float memory[8192];
  glint_context *context;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  if (glint_open(&options, &context)) skip();
  glint_problem p = small_problem(memory, 1, 3, 5);
  p.o.data = memory + 4096, p.o.dtype = GLINT_FLOAT64;
  assert_int_equal(glint_forward(context, &p), GLINT_ERROR_UNSUPPORTED);
  assert_string_equal(glint_last_error(context), "o.dtype is 7 (float64): only the oracle engine writes it");
  glint_close(context);
}

static void test_empty(void **state) {
  (void)state;
  static float memory[4096];
  for (int n = 0; glint_engine_at(n); n++) {
    glint_options options = {.struct_size = sizeof options, .engine = glint_engine_at(n)->engine};
    glint_context *context;
    if (!glint_engine_at(n)->host || glint_open(&options, &context)) continue;
    for (int n4 = 0; n4 < 4096; n4++) memory[n4] = NAN;
    glint_problem p = small_problem(memory, 0, 3, 5);
    assert_int_equal(glint_forward(context, &p), GLINT_OK);
    p = small_problem(memory, 2, 0, 5);
    p.q.data = p.o.data = p.lse.data = NULL; /* nothing there needs no pointer */
    assert_int_equal(glint_forward(context, &p), GLINT_OK);
    for (int i = 0; i < 4096; i++) assert_true(isnan(memory[i]));
    glint_plan_info plan = {.struct_size = sizeof plan};
    assert_int_equal(glint_plan(context, GLINT_PASS_FORWARD, &p, NULL, &plan), GLINT_OK);
    assert_string_equal(plan.kernel, "none");
    p = small_problem(memory, 2, 3, 0);
    p.k.data = p.v.data = NULL;
    glint_status status = glint_forward(context, &p);
    if (status == GLINT_OK) {
      for (int i = 0; i < 2 * 3 * 2 * 4; i++) assert_true(((float *)p.o.data)[i] == 0);
      for (int i = 0; i < 2 * 2 * 3; i++) assert_true(((float *)p.lse.data)[i] == -INFINITY);
    } else {
      assert_int_equal(status, GLINT_ERROR_UNSUPPORTED);
    }
    glint_close(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_version),       cmocka_unit_test(test_options),
      cmocka_unit_test(test_engine_choice), cmocka_unit_test(test_describe),
      cmocka_unit_test(test_last_error),    cmocka_unit_test(test_plan),
      cmocka_unit_test(test_workspace),     cmocka_unit_test(test_float64_is_the_oracles),
      cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
