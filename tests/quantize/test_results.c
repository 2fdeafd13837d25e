/* Results of glint_quantize on every engine that opens here with host pointers: against the oracle to one rounding, against each other bit for bit, with
 * guards; and the rounding over every value, given its neighbours' middles too. */
#include "random_case.h"

#include "../device_memory.h"
#include "convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM_CASES = 28, SIM_CASES = 16, GPU_CASES = 400 };
static uint64_t seed;
static glint_context *cpu, *oracle, *sim, *cuda; /* sim NULL: not in this build; cuda NULL: no GPU that can */
static const testkit_memory *memory;

static void run(glint_context *context, const quantize_outputs *o, const char *text) {
  if (glint_quantize(context, &o->q) != GLINT_OK) fail_msg("%s\n%s", glint_last_error(context), text);
}

/* A NaN has whatever bits an engine likes: here, those of the largest code. */
static void make_nans_alike(quantize_outputs *o) {
  for (int t = 0; t < 3; t++) {
    int first = o->block[t] && output_of(&o->q, t)->dtype == GLINT_FLOAT8_E5M2 ? 0x7D : 0x7F;
    for (size_t i = 0; o->block[t] && i < o->bytes[t]; i++)
      if ((o->block[t][64 + i] & 0x7F) >= first) o->block[t][64 + i] = 0x7F;
  }
  for (int t = 3; t < CASE_OUTPUTS; t++) {
    float *x = (float *)(void *)(o->block[t] ? o->block[t] + 64 : NULL);
    for (size_t i = 0; x && i < o->bytes[t] / sizeof *x; i++)
      if (isnan(x[i])) x[i] = NAN;
  }
}

/* Distance on the line of FP8 values; a sign's two zeros are one. NaN: far from everything but NaN. */
static int steps_apart(uint8_t a, uint8_t b, glint_dtype dtype) {
  int inf = dtype == GLINT_FLOAT8_E4M3 ? 0x7F : 0x7C, nan_a = (a & 0x7F) >= inf, nan_b = (b & 0x7F) >= inf;
  if (nan_a || nan_b) return nan_a && nan_b ? 0 : 999;
  int x = a & 0x80 ? -(a & 0x7F) : a, y = b & 0x80 ? -(b & 0x7F) : b;
  return abs(x - y);
}

static void assert_near_floats(const quantize_outputs *a, const quantize_outputs *b, int n, double floor, const char *text) {
  const float *x = (const float *)(const void *)(a->block[n] + 64), *y = (const float *)(const void *)(b->block[n] + 64);
  for (size_t i = 0; i < a->bytes[n] / 4; i++)
    if (x[i] != y[i] && !(isnan(x[i]) && isnan(y[i])) && !(fabs((double)x[i] - (double)y[i]) <= 1e-4 * fabs((double)y[i]) + floor))
      fail_msg("output %d, number %zu: %g, oracle %g\n%s", n, i, (double)x[i], (double)y[i], text);
}

static void agrees_with_oracle(void **state) {
  (void)state;
  long values = 0, other = 0;
  for (uint64_t n = 0; n < RANDOM_CASES; n++) {
    quantize_case c;
    quantize_outputs a, b;
    make_quantize_case(&c, seed, n, n % 8 ? 50 : 200);
    make_outputs(&a, &c), make_outputs(&b, &c);
    run(cpu, &a, c.text), run(oracle, &b, c.text);
    check_guards(&a, &c);
    for (int t = 0; t < 3; t++)
      for (size_t i = 0; a.block[t] && i < a.bytes[t]; i++) {
        int steps = steps_apart(a.block[t][64 + i], b.block[t][64 + i], output_of(&a.q, t)->dtype);
        values++, other += steps != 0;
        if (steps > 1) fail_msg("output %d, byte %zu: %02x, oracle %02x\n%s", t, i, a.block[t][64 + i], b.block[t][64 + i], c.text);
      }
    for (int t = 3; t < CASE_OUTPUTS; t++)
      if (a.block[t]) assert_near_floats(&a, &b, t, t < 6 ? 0 : 1e-3, c.text);
    free_outputs(&a), free_outputs(&b);
    free_quantize_case(&c);
  }
  printf("%ld values, %ld a step apart\n", values, other);
  assert_true(other * 500 < values); /* only values next to a tie */
}

/* The other engine: the simulator's, or a GPU's where there is one. */
static void run_there(const quantize_outputs *o, const char *text) {
  glint_context *context = cuda ? cuda : sim;
  if ((cuda ? run_on_device(cuda, memory, o) : glint_quantize(sim, &o->q)) != GLINT_OK) fail_msg("%s\n%s", glint_last_error(context), text);
}

static void engines_agree_to_the_bit(void **state) {
  (void)state;
  if (!sim && !cuda) skip();
  for (uint64_t n = 0; n < (cuda ? GPU_CASES : SIM_CASES); n++) {
    quantize_case c;
    quantize_outputs a, b;
    make_quantize_case(&c, seed + 1, n, n % 8 ? 70 : cuda ? 2000 : 300);
    make_outputs(&a, &c), make_outputs(&b, &c);
    run(cpu, &a, c.text), run_there(&b, c.text);
    check_guards(&b, &c);
    make_nans_alike(&a), make_nans_alike(&b);
    if (a.block[7]) { /* lse_shift: a sum in another order */
      assert_near_floats(&b, &a, 7, 1e-2, c.text);
      memcpy(b.block[7], a.block[7], a.bytes[7] + 128);
    }
    assert_same_outputs(&a, &b, c.text);
    free_outputs(&a), free_outputs(&b);
    free_quantize_case(&c);
  }
}

/* descale 1 turns the call into a conversion. Inputs: every 16-bit pattern as the upper half of a float, and the middles between FP8 values with
 * their neighbours. */
static void rounds_every_value(void **state) {
  (void)state;
  enum { COUNT = 65536 + 6 * 256 };
  float *x = malloc(COUNT * sizeof *x);
  uint8_t *got = malloc(COUNT);
  assert_true(x && got);
  for (int e5m2 = 0; e5m2 < 2; e5m2++) {
    glint_dtype dtype = e5m2 ? GLINT_FLOAT8_E5M2 : GLINT_FLOAT8_E4M3;
    int n = 0;
    for (uint32_t i = 0; i < 65536; i++) x[n++] = glint_float_from_bf16((uint16_t)i);
    for (int i = 0; i < 256; i++) {
      float a = e5m2 ? glint_float_from_e5m2((uint8_t)i) : glint_float_from_e4m3((uint8_t)i);
      float b = e5m2 ? glint_float_from_e5m2((uint8_t)(i + 1)) : glint_float_from_e4m3((uint8_t)(i + 1)), middle = 0.5f * a + 0.5f * b;
      x[n++] = a, x[n++] = middle, x[n++] = nextafterf(middle, INFINITY), x[n++] = nextafterf(middle, -INFINITY);
      x[n++] = nextafterf(a, INFINITY), x[n++] = nextafterf(a, -INFINITY);
    }
    float one = 1;
    glint_quantization q = {.struct_size = sizeof q, .descale_given = 1};
    q.v = (glint_tensor){x, {1, COUNT / 256, 1, 256}, {0}, GLINT_FLOAT32, 4};
    q.v_fp8 = (glint_tensor){got, {1, COUNT / 256, 1, 256}, {0}, dtype, 4};
    q.descale_v = (glint_tensor){&one, {1}, {0}, GLINT_FLOAT32, 1};
    for (int engine = 0; engine < (sim ? 3 : 2); engine++) {
      glint_context *context = engine == 0 ? cpu : engine == 1 ? oracle : sim;
      memset(got, 0x55, COUNT);
      assert_int_equal(glint_quantize(context, &q), GLINT_OK);
      for (int i = 0; i < COUNT; i++) {
        uint8_t expected = e5m2 ? glint_e5m2_from_float(x[i]) : glint_e4m3_from_float(x[i]);
        if (steps_apart(got[i], expected, dtype) != 0 || (got[i] ^ expected) & (isnan(x[i]) ? 0 : 0x80))
          fail_msg("engine %d: %a gives %02x, expected %02x", engine, (double)x[i], got[i], expected);
      }
    }
  }
  free(x);
  free(got);
}

/* smooth 2 and descale_given with the numbers of a first call give that call's bytes again (without rotation, whose factor enters differently). */
static void given_numbers_repeat_a_call(void **state) {
  (void)state;
  for (uint64_t n = 0; n < 60; n++) {
    quantize_case c;
    quantize_outputs a, b;
    make_quantize_case(&c, seed + 2, n, 80);
    c.q.rotate = 0;
    if (c.q.smooth)
      c.q.k_mean = (glint_tensor){(void *)(uintptr_t)64, {c.q.k.shape[0], c.q.k.shape[2], c.q.k.shape[3]}, {0}, GLINT_FLOAT32, 3};
    if (c.q.cu_seqlens_k.data && c.q.smooth) c.q.k_mean.shape[0] = c.q.cu_seqlens_k.shape[0] - 1;
    make_outputs(&a, &c), make_outputs(&b, &c);
    run(cpu, &a, c.text);
    for (int t = 3; t < 7; t++)
      if (b.block[t]) memcpy(b.block[t], a.block[t], a.bytes[t] + 128);
    b.q.descale_given = 1, b.q.smooth = c.q.smooth ? 2 : 0;
    run(cpu, &b, c.text);
    for (int t = 0; t < 3; t++)
      for (size_t i = 0; a.block[t] && i < a.bytes[t]; i++)
        assert_true(steps_apart(a.block[t][64 + i], b.block[t][64 + i], output_of(&a.q, t)->dtype) <= 1);
    free_outputs(&a), free_outputs(&b);
    free_quantize_case(&c);
  }
}

/* The same values, whatever surrounds them: broadcast batch, one sequence packed. */
static void broadcasts_inputs(void **state) {
  (void)state;
  enum { ROWS = 33, D = 64 };
  uint16_t x[ROWS * D];
  uint8_t one[ROWS * D], three[3 * ROWS * D];
  float scale_one[1], scale_three[3];
  for (int i = 0; i < ROWS * D; i++) x[i] = glint_bf16_from_float((float)testkit_random_normal(&seed));
  glint_quantization q = {.struct_size = sizeof q, .rotate = 1};
  q.q = (glint_tensor){x, {1, ROWS, 1, D}, {0}, GLINT_BFLOAT16, 4};
  q.q_fp8 = (glint_tensor){one, {1, ROWS, 1, D}, {0}, GLINT_FLOAT8_E4M3, 4};
  q.descale_q = (glint_tensor){scale_one, {1, 1}, {0}, GLINT_FLOAT32, 2};
  assert_int_equal(glint_quantize(cpu, &q), GLINT_OK);
  q.q.shape[0] = q.q_fp8.shape[0] = q.descale_q.shape[0] = 3;
  q.q.stride[0] = 0, q.q.stride[1] = D, q.q.stride[2] = D, q.q.stride[3] = 1;
  q.q_fp8.data = three, q.descale_q.data = scale_three;
  assert_int_equal(glint_quantize(cpu, &q), GLINT_OK);
  for (int b = 0; b < 3; b++) {
    assert_memory_equal(three + b * ROWS * D, one, sizeof one);
    assert_true(scale_three[b] == scale_one[0]);
  }
}

/* Its kernels are Hopper's. */
static int can_quantize(glint_context *context) {
  float x[16], descale;
  uint8_t y[16];
  size_t bytes;
  glint_quantization q = {.struct_size = sizeof q};
  q.v = (glint_tensor){x, {1, 1, 1, 16}, {0}, GLINT_FLOAT32, 4}, q.v_fp8 = (glint_tensor){y, {1, 1, 1, 16}, {0}, GLINT_FLOAT8_E4M3, 4};
  q.descale_v = (glint_tensor){&descale, {1}, {0}, GLINT_FLOAT32, 1};
  return glint_quantize_workspace(context, &q, &bytes) == GLINT_OK;
}

static int open_engines(void **state) {
  (void)state;
  glint_options options = {.struct_size = sizeof options, .engine = GLINT_ENGINE_CPU};
  if (glint_open(&options, &cpu) != GLINT_OK) return 1;
  options.engine = GLINT_ENGINE_ORACLE;
  if (glint_open(&options, &oracle) != GLINT_OK) return 1;
  options.engine = GLINT_ENGINE_SIM;
  if (glint_open(&options, &sim) != GLINT_OK) sim = NULL;
  options.engine = GLINT_ENGINE_CUDA;
  memory = device_memory();
  if (memory && glint_open(&options, &cuda) != GLINT_OK) cuda = NULL;
  if (cuda && !can_quantize(cuda)) glint_close(cuda), cuda = NULL;
  return 0;
}

static int close_engines(void **state) {
  (void)state;
  glint_close(cpu), glint_close(oracle), glint_close(sim), glint_close(cuda);
  device_memory_close();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rounds_every_value), cmocka_unit_test(agrees_with_oracle),
                                     cmocka_unit_test(engines_agree_to_the_bit), cmocka_unit_test(given_numbers_repeat_a_call),
                                     cmocka_unit_test(broadcasts_inputs)};
  seed = testkit_fresh_seed();
  printf("GLINT_SEED=%llu\n", (unsigned long long)seed);
  return cmocka_run_group_tests(tests, open_engines, close_engines);
}
