/* Many threads on one context, each with its own problem, its own errors and the same answer every time. Meant for the thread sanitizer. */
#include "engines.h"
#include "testkit.h"

#include "cmocka_all.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6, ROUNDS = 25 };

typedef struct job {
  glint_context *context;
  uint64_t seed;
  const char *wrong; /* text of a failure */
} job;

static const char *round_trip(const job *j, testkit_case *c, const glint_problem *p, void *first, size_t bytes, int round) {
  glint_problem bad = *p;
  bad.causal = 2 + round;
  glint_status status = glint_forward(j->context, p);
  if (status == GLINT_ERROR_UNSUPPORTED) return NULL;
  if (status) return "refused";
  if (round == 0) memcpy(first, p->o.data, bytes);
  if (memcmp(first, p->o.data, bytes)) return "another result than before";
  if (glint_forward(j->context, &bad) != GLINT_ERROR_INVALID_ARGUMENT) return "wrong causal was taken";
  if (atoi(glint_last_error(j->context) + strlen("causal is ")) != bad.causal) return "the error text is another thread's";
  (void)c;
  return NULL;
}

static void *work(void *argument) {
  job *j = argument;
  testkit_case c = {0};
  glint_problem p = {.struct_size = sizeof p};
  const int64_t q[] = {2, 33, 4, 64}, k[] = {2, 70, 2, 64};
  p.q = testkit_tensor(&c, GLINT_FLOAT32, 4, q, 1, &j->seed), p.o = testkit_tensor(&c, GLINT_FLOAT32, 4, q, 0, &j->seed);
  p.k = testkit_tensor(&c, GLINT_FLOAT32, 4, k, 1, &j->seed), p.v = testkit_tensor(&c, GLINT_FLOAT32, 4, k, 1, &j->seed);
  p.num_splits = (int32_t)(j->seed % 3);
  size_t bytes = sizeof(float) * 2 * 33 * 4 * 64;
  void *first = malloc(bytes);
  j->wrong = first && p.q.data && p.o.data && p.k.data && p.v.data ? NULL : "out of memory";
  for (int round = 0; round < ROUNDS && !j->wrong; round++) j->wrong = round_trip(j, &c, &p, first, bytes, round);
  free(first);
  testkit_free_case(&c);
  return NULL;
}

static void test_one_context_many_threads(void **state) {
  (void)state;
  for (int n = 0; glint_engine_at(n); n++) {
    glint_options options = {.struct_size = sizeof options, .engine = glint_engine_at(n)->engine, .threads = 1};
    glint_context *context;
    pthread_t threads[THREADS];
    job jobs[THREADS];
    if (!glint_engine_at(n)->host || options.engine == GLINT_ENGINE_SIM || glint_open(&options, &context)) continue;
    for (int t = 0; t < THREADS; t++) {
      jobs[t] = (job){context, (uint64_t)t, NULL};
      assert_int_equal(pthread_create(&threads[t], NULL, work, &jobs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
      if (jobs[t].wrong) fail_msg("engine %s, thread %d: %s", glint_engine_at(n)->name, t, jobs[t].wrong);
    glint_close(context);
  }
}

static void *open_and_close(void *argument) {
  job *j = argument;
  for (int round = 0; round < 200 && !j->wrong; round++) {
    glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE};
    glint_context *context;
    if (glint_open(&options, &context)) j->wrong = "not opened";
    if (*glint_last_error(context)) j->wrong = "a new context has an error";
    if (glint_forward(context, NULL) != GLINT_ERROR_INVALID_ARGUMENT) j->wrong = "NULL was taken";
    glint_close(context);
  }
  return NULL;
}

static void test_contexts_come_and_go(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  job jobs[THREADS] = {{0}};
  for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_create(&threads[t], NULL, open_and_close, &jobs[t]), 0);
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t], NULL);
    if (jobs[t].wrong) fail_msg("thread %d: %s", t, jobs[t].wrong);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_context_many_threads), cmocka_unit_test(test_contexts_come_and_go)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
