/* The fixture of the cuda engine's tests. */
#include "device_fixture.h"

#include "convert.h"
#include "cuda/path.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int find_graph_functions(fixture *f) {
  static const struct {
    const char *symbol;
    size_t offset;
  } table[] = {
#define ROW(name, symbol, parameters) {#symbol, offsetof(fixture, name)},
      GLINT_DRIVER_GRAPH_FUNCTIONS(ROW)
#undef ROW
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    void *address = dlsym(f->driver.library, table[i].symbol);
    if (!address) return 0;
    memcpy((char *)f + table[i].offset, &address, sizeof address);
  }
  return 1;
}

int fixture_open(fixture *f) {
  glint_error error = {""};
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CUDA};
  int devices = 0;
  memset(f, 0, sizeof *f);
  if (glint_driver_open(glint_cuda_path(), &f->driver, &error) != GLINT_OK) {
    print_message("no GPU here: %s\n", error.text);
    return 0;
  }
  assert_true(find_graph_functions(f));
  assert_cuda_ok(f, f->driver.cuDeviceGetCount(&devices));
  for (int i = 0; i < 2 && i < devices; i++)
    if (glint_device_memory_open(i, &f->memory[i], &error) != GLINT_OK) fail_msg("%s", error.text);
  if (glint_open(&options, &f->context) != GLINT_OK) fail_msg("%s", glint_last_error(NULL));
  return 1;
}

void fixture_close(fixture *f) {
  glint_close(f->context);
  for (int i = 0; i < 2; i++) glint_device_memory_close(f->memory[i]);
  glint_driver_close(&f->driver);
}

void assert_glint_ok(glint_context *context, glint_status status) {
  if (status != GLINT_OK) fail_msg("%s: %s", glint_status_text(status), glint_last_error(context));
}

void assert_cuda_ok(const fixture *f, CUresult result) {
  glint_error error = {""};
  if (glint_driver_result(&f->driver, result, "the test's own call", &error) != GLINT_OK) fail_msg("%s", error.text);
}

static void *on_device(device_problem *d, size_t bytes) {
  glint_error error = {""};
  void *pointer = NULL;
  if (glint_device_alloc(d->memory, bytes, &pointer, &error) != GLINT_OK) fail_msg("%s", error.text);
  return pointer;
}

static void upload(device_problem *d, void *to, const void *from, size_t bytes) {
  glint_error error = {""};
  if (glint_device_upload(d->memory, to, from, bytes, &error) != GLINT_OK) fail_msg("%s", error.text);
}

static void download(device_problem *d, void *to, const void *from, size_t bytes) {
  glint_error error = {""};
  if (glint_device_download(d->memory, to, from, bytes, &error) != GLINT_OK) fail_msg("%s", error.text);
}

static int64_t elements(const glint_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static glint_tensor tensor(device_problem *d, glint_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t e) {
  glint_tensor t = {.shape = {a, b, c, e}, .dtype = dtype, .rank = e ? 4 : 3};
  t.data = on_device(d, (size_t)elements(&t) * glint_dtype_size(dtype));
  return t;
}

static void *host(size_t bytes) {
  void *p = calloc(bytes ? bytes : 1, 1);
  assert_non_null(p);
  return p;
}

void device_problem_make(device_problem *d, glint_device_memory *memory, device_shape s, uint64_t seed) {
  memset(d, 0, sizeof *d);
  d->memory = memory;
  d->api.struct_size = sizeof d->api;
  d->api.causal = s.causal;
  d->api.q = tensor(d, GLINT_BFLOAT16, s.batch, s.seqlen_q, s.heads_q, s.head_dim);
  d->api.k = tensor(d, GLINT_BFLOAT16, s.batch, s.seqlen_k, s.heads_kv, s.head_dim);
  d->api.v = tensor(d, GLINT_BFLOAT16, s.batch, s.seqlen_k, s.heads_kv, s.head_dim);
  d->api.o = tensor(d, GLINT_BFLOAT16, s.batch, s.seqlen_q, s.heads_q, s.head_dim);
  d->api.lse = tensor(d, GLINT_FLOAT32, s.batch, s.heads_q, s.seqlen_q, 0);
  d->o_elements = elements(&d->api.o);
  d->lse_elements = elements(&d->api.lse);
  d->o = host((size_t)d->o_elements * 2);
  d->lse = host((size_t)d->lse_elements * 4);
  d->expected_o = host((size_t)d->o_elements * 4);
  d->expected_lse = host((size_t)d->lse_elements * 4);
  const glint_tensor *inputs[3] = {&d->api.q, &d->api.k, &d->api.v};
  for (int i = 0; i < 3; i++) {
    const int64_t n = elements(inputs[i]);
    d->inputs[i] = host((size_t)n * 2);
    for (int64_t j = 0; j < n; j++) d->inputs[i][j] = glint_bf16_from_double(testkit_random_normal(&seed));
  }
  device_problem_upload_inputs(d);
  device_problem_poison(d);
}

void device_problem_upload_inputs(device_problem *d) {
  const glint_tensor *inputs[3] = {&d->api.q, &d->api.k, &d->api.v};
  for (int i = 0; i < 3; i++) upload(d, inputs[i]->data, d->inputs[i], (size_t)elements(inputs[i]) * 2);
}

void device_problem_poison(device_problem *d) {
  memset(d->o, 0xFF, (size_t)d->o_elements * 2);
  memset(d->lse, 0xFF, (size_t)d->lse_elements * 4);
  upload(d, d->api.o.data, d->o, (size_t)d->o_elements * 2);
  upload(d, d->api.lse.data, d->lse, (size_t)d->lse_elements * 4);
}

void device_problem_free(device_problem *d) {
  glint_error error = {""};
  void *memory[] = {d->api.q.data, d->api.k.data, d->api.v.data, d->api.o.data, d->api.lse.data};
  for (int i = 0; i < 5; i++) glint_device_free(d->memory, memory[i], &error);
  for (int i = 0; i < 3; i++) free(d->inputs[i]);
  free(d->o);
  free(d->first_o);
  free(d->lse);
  free(d->expected_o);
  free(d->expected_lse);
}

void device_problem_expect(device_problem *d, const int32_t *seqused_k) {
  const glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_ORACLE};
  glint_context *oracle;
  glint_problem p = d->api;
  int32_t lengths[16];
  p.q.data = d->inputs[0];
  p.k.data = d->inputs[1];
  p.v.data = d->inputs[2];
  p.o.data = d->expected_o;
  p.o.dtype = GLINT_FLOAT32;
  p.lse.data = d->expected_lse;
  p.stream = NULL;
  p.seqused_k = (glint_tensor){0};
  if (seqused_k) {
    assert_true(p.q.shape[0] <= 16);
    memcpy(lengths, seqused_k, (size_t)p.q.shape[0] * sizeof lengths[0]);
    p.seqused_k = (glint_tensor){.data = lengths, .shape = {p.q.shape[0]}, .dtype = GLINT_INT32, .rank = 1};
  }
  assert_glint_ok(NULL, glint_open(&options, &oracle));
  assert_glint_ok(oracle, glint_forward(oracle, &p));
  glint_close(oracle);
}

/* o carries two roundings to bfloat16 (P and o), lse none of that size. */
void device_problem_check(device_problem *d) {
  download(d, d->o, d->api.o.data, (size_t)d->o_elements * 2);
  download(d, d->lse, d->api.lse.data, (size_t)d->lse_elements * 4);
  for (int64_t i = 0; i < d->o_elements; i++) {
    const double got = (double)glint_float_from_bf16(d->o[i]), want = (double)d->expected_o[i];
    if (!(fabs(got - want) <= 0x1p-7 * (1 + fabs(want)))) fail_msg("o[%lld] is %g, expected %g", (long long)i, got, want);
  }
  for (int64_t i = 0; i < d->lse_elements; i++) {
    const double got = (double)d->lse[i], want = (double)d->expected_lse[i];
    if (!(got == want || fabs(got - want) <= 1e-3 * (1 + fabs(want)))) fail_msg("lse[%lld] is %g, expected %g", (long long)i, got, want);
  }
}

void device_problem_check_same(device_problem *d) {
  const size_t bytes = (size_t)d->o_elements * 2;
  download(d, d->o, d->api.o.data, bytes);
  if (!d->first_o) {
    d->first_o = host(bytes);
    memcpy(d->first_o, d->o, bytes);
  }
  assert_memory_equal(d->o, d->first_o, bytes);
}
