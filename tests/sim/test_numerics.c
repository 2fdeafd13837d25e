// Matrix instructions against plain loops over row-major matrices, on random bits. Fragments are placed by formulas written out here, not by
// the simulator's lane maps.
#include "cmocka_all.h"
#include "sim.h"
#include "sim_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = 1 << 16 };
static _Alignas(128) u32 in[WORDS], out[WORDS];
static u64 state_of_random;

static u32 random_u32(void) {
  state_of_random = state_of_random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(state_of_random >> 32);
}

static void run(const char *kernel, test_params *p, u32 threads, u32 smem) {
  static const u32 grid[3] = {1, 1, 1};
  static sim_device *d;
  if (!d) {
    sim_config config = {.arch = 90};
    d = sim_open(&config);
    assert_non_null(d);
    assert_int_equal(sim_memory_register(d, "in", in, sizeof in), 0);
    assert_int_equal(sim_memory_register(d, "out", out, sizeof out), 0);
  }
  sim_set_modes(d, random_u32() % SIM_ALL_MODES, random_u32());
  sim_reset_report(d);
  memset(out, 0xff, sizeof out);
  p->in = in, p->out = out;
  sim_status s = sim_launch(d, sim_find_kernel(kernel), grid, threads, smem, p);
  if (s != SIM_OK) sim_report_print(sim_get_report(d), stderr);
  assert_int_equal(s, SIM_OK);
}

// Finite values of a sensible range, given by random bits; the type's word holds 2 (4) of them.
static u32 random_word(int type) {
  if (type == SIM_E4M3) {
    u32 w = 0;
    for (u32 i = 0; i < 4; i++) {
      u32 b = random_u32() & 255;
      w |= ((b & 127) == 127 ? b & 0x80 : b) << (8 * i);
    }
    return w;
  }
  if (type == SIM_F16) return random_u32() & 0xbfffbfffu; // below 2, all the subnormals
  u32 w = 0;
  for (u32 i = 0; i < 2; i++) w |= ((random_u32() & 0x807f) | (120 + random_u32() % 12) << 7) << (16 * i);
  return w;
}
static float element(const u32 *words, u32 i, int type) {
  u16 h;
  if (type == SIM_E4M3) {
    u8 b = ((const u8 *)words)[i];
    int e = b >> 3 & 15, m = b & 7;
    float f = e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
    return b & 128 ? -f : f;
  }
  memcpy(&h, (const char *)words + 2 * i, 2);
  if (type == SIM_BF16) return sim_f32((u32)h << 16);
  int e = h >> 10 & 31, m = h & 1023;
  float f = e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
  return h & 0x8000 ? -f : f;
}
static float out_float(u32 i) { return sim_f32(out[i]); }

static void mma_equals_plain_loops(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    int type = round % 2;
    float a[16][16], b[16][8], c[16][8];
    for (u32 l = 0; l < 32; l++) {
      u32 *w = in + 10 * l, g = l / 4, t = l % 4;
      for (u32 i = 0; i < 6; i++) w[i] = random_word(type);
      for (u32 i = 0; i < 4; i++) w[6 + i] = sim_bits((float)(i32)random_u32() * 0x1p-30f);
      for (u32 i = 0; i < 8; i++) a[g + (i / 2 % 2) * 8][2 * t + i % 2 + (i / 4) * 8] = element(w, i, type);
      for (u32 i = 0; i < 4; i++) b[2 * t + i % 2 + (i / 2) * 8][g] = element(w + 4, i, type);
      for (u32 i = 0; i < 4; i++) c[g + (i / 2) * 8][2 * t + i % 2] = sim_f32(w[6 + i]);
    }
    test_params p = {.n = (u32)type};
    run("num_mma", &p, 32, 0);
    for (u32 l = 0; l < 32; l++)
      for (u32 i = 0; i < 4; i++) {
        u32 r = l / 4 + (i / 2) * 8, j = 2 * (l % 4) + i % 2;
        float s = c[r][j];
        for (u32 k = 0; k < 16; k++) s += a[r][k] * b[k][j];
        assert_int_equal(out[4 * l + i], sim_bits(s));
      }
  }
}

static u16 half_of(const u32 *rows, u32 matrix, u32 row, u32 column) {
  return (u16)(rows[(8 * matrix + row) * 4 + column / 2] >> (16 * (column % 2)));
}

static void ldmatrix_and_stmatrix_follow_the_manual(void **state) {
  (void)state;
  static const u32 forms[] = {1, 2, 4, 9, 10, 12};
  for (u32 i = 0; i < 128; i++) in[i] = random_u32();
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    test_params p = {.n = forms[f]};
    u32 count = forms[f] & 7, trans = forms[f] >> 3;
    run("num_ldmatrix", &p, 32, 512);
    for (u32 l = 0; l < 32; l++)
      for (u32 m = 0; m < count; m++) {
        u32 r = l / 4, c = 2 * (l % 4);
        u32 expected =
            trans ? half_of(in, m, c, r) | (u32)half_of(in, m, c + 1, r) << 16 : half_of(in, m, r, c) | (u32)half_of(in, m, r, c + 1) << 16;
        assert_int_equal(out[4 * l + m], expected);
      }
    if (count == 1) continue;
    run("num_stmatrix", &p, 32, 512);
    for (u32 l = 0; l < 32; l++)
      for (u32 m = 0; m < count; m++)
        for (u32 h = 0; h < 2; h++) {
          u32 r = l / 4, c = 2 * (l % 4) + h;
          assert_int_equal(trans ? half_of(out, m, c, r) : half_of(out, m, r, c), (u16)(in[4 * l + m] >> (16 * h)));
        }
  }
  test_params p = {0};
  run("num_movmatrix", &p, 32, 0);
  for (u32 l = 0; l < 32; l++)
    for (u32 h = 0; h < 2; h++) { // element (row, column) goes to (column, row)
      u32 row = l / 4, column = 2 * (l % 4) + h, to = column * 4 + row / 2;
      assert_int_equal((u16)(out[to] >> (16 * (row % 2))), (u16)(in[l] >> (16 * h)));
    }
}

static void shuffles_and_votes(void **state) {
  (void)state;
  u32 votes = 0;
  for (u32 i = 0; i < 32; i++) in[i] = random_u32(), votes |= (in[i] & 1) << i;
  test_params p = {0};
  run("num_shuffles", &p, 32, 0);
  for (u32 l = 0; l < 32; l++) {
    const u32 *o = out + 8 * l;
    assert_int_equal(o[0], in[l ^ 5]);
    assert_int_equal(o[1], in[l / 3]);
    assert_int_equal(o[2], in[l < 3 ? l : l - 3]);
    assert_int_equal(o[3], in[l + 7 > 31 ? l : l + 7]);
    assert_int_equal(o[4], votes);
    assert_int_equal(o[5], votes == 0xffffffffu);
    assert_int_equal(o[6], votes != 0);
    assert_int_equal(o[7], sim_bits((float)(in[l ^ 16] & 255)));
  }
}

// ---- wgmma ------------------------------------------------------------------------------------------------------------------------
static void encode(tensor_map *map, const void *base, int type, u32 width_bytes, u32 rows, u32 swizzle) {
  static const u32 spans[4] = {16, 128, 64, 32};
  static const int tma_swizzle[4] = {0, 3, 2, 1};
  u32 bytes = type == SIM_E4M3 ? 1 : 2;
  const u64 dims[2] = {width_bytes / bytes, rows}, strides[1] = {width_bytes};
  const u32 box[2] = {spans[swizzle] / bytes, rows}, steps[2] = {1, 1};
  assert_null(sim_tensor_map_encode(map,
                                    type == SIM_E4M3  ? 0
                                    : type == SIM_F16 ? 6
                                                      : 9,
                                    2, (void *)(uintptr_t)base, dims, strides, box, steps, 0, tma_swizzle[swizzle], 0, 0));
}

static void check_wgmma(u32 n, int type, u32 swizzle, u32 trans_a, u32 trans_b, u32 registers, u32 accumulate) {
  u32 *a = in, *b = in + 64 * 32, *c = b + 64 * 128, depth = type == SIM_E4M3 ? 128 : 64;
  for (u32 i = 0; i < 64 * 32; i++) a[i] = random_word(type);
  for (u32 i = 0; i < n * 32; i++) b[i] = random_word(type);
  for (u32 i = 0; i < 128 * 128; i++) c[i] = sim_bits((float)(i32)random_u32() * 0x1p-28f);
  static test_params p;
  encode(&p.map, a, type, 128, 64, swizzle);
  encode(&p.map_out, b, type, trans_b ? 2 * n : 128, trans_b ? 64 : n, swizzle);
  p.n = n;
  p.fault = swizzle | (u32)type << 2 | trans_a << 4 | trans_b << 5 | registers << 6 | accumulate << 7;
  run("num_wgmma", &p, 128, 2 * 64 * 256 * 2 + 64);
  for (u32 t = 0; t < 128; t++)
    for (u32 i = 0; i < n / 2; i++) {
      u32 r = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, j = i / 4 * 8 + t % 4 * 2 + i % 2;
      float s = accumulate ? sim_f32(c[128 * t + i]) : 0;
      for (u32 k = 0; k < depth; k++)
        s += element(a, trans_a ? k * 64 + r : r * depth + k, type) * element(b, trans_b ? k * n + j : j * depth + k, type);
      if (out[128 * t + i] != sim_bits(s) && !(out_float(128 * t + i) == 0 && s == 0))
        fail_msg("n %u type %d swizzle %u trans %u %u registers %u accumulate %u: (%u, %u) is %g, expected %g", n, type, swizzle, trans_a,
                 trans_b, registers, accumulate, r, j, (double)out_float(128 * t + i), (double)s);
    }
}

static void wgmma_equals_plain_loops(void **state) {
  (void)state;
  for (u32 n = 8; n <= 256; n += 8)
    for (int type = SIM_BF16; type <= SIM_E4M3; type++) {
      // each n in random forms; over all n every form comes
      u32 swizzle = random_u32() % 4, ta = random_u32() & 1, tb = random_u32() & 1, registers = random_u32() & 1;
      if (type == SIM_E4M3) ta = tb = 0;
      if (registers) ta = 0;
      static const u32 least_n[4] = {8, 64, 32, 16}; // MN-major tiles are whole boxes
      if (tb && n % least_n[swizzle]) tb = 0;
      check_wgmma(n, type, swizzle, ta, tb, registers, random_u32() & 1);
    }
  for (u32 form = 0; form < 64; form++) { // and every form at one n
    u32 swizzle = form & 3, ta = form >> 2 & 1, tb = form >> 3 & 1, registers = form >> 4 & 1;
    if (!(registers && ta)) check_wgmma(64, form >> 5 ? SIM_F16 : SIM_BF16, swizzle, ta, tb, registers, form % 3 == 0);
  }
}

// ---- number formats -----------------------------------------------------------------------------------------------------------------
static void conversions_round_to_nearest_even(void **state) {
  (void)state;
  for (u32 h = 0; h < 65536; h++) { // every half is a fixed point, and halves between neighbours go to the even one
    float f = sim_f16_to_f32((u16)h);
    if (f != f) continue;
    u32 word = h;
    if ((h & 0x7c00) != 0x7c00) assert_int_equal(sim_bits(f), sim_bits(element(&word, 0, SIM_F16)));
    assert_int_equal(sim_pack_f16(f, 0.f) & 0xffff, h);
    float up = sim_f16_to_f32((u16)(h + 1));
    if ((h & 0x7fff) < 0x7bff) {
      float middle = 0.5f * (f + up);
      assert_int_equal(sim_pack_f16(middle, 0.f) & 0xffff, h & 1 ? h + 1 : h);
      assert_int_equal(sim_pack_f16(nextafterf(middle, up), 0.f) & 0xffff, h + 1);
    }
  }
  for (u32 i = 0; i < 100000; i++) {
    u32 u = random_u32();
    float f = sim_f32(u);
    if (f != f) continue;
    u16 b = (u16)sim_pack_bf16(f, 0.f);
    u32 down = u >> 16, tail = u & 0xffff;
    assert_int_equal(b, tail > 0x8000 || (tail == 0x8000 && (down & 1)) ? down + 1 : down);
  }
  for (u32 b = 0; b < 256; b++) {
    if ((b & 127) == 127) continue;
    u32 word = b;
    float f = element(&word, 0, SIM_E4M3);
    assert_int_equal(sim_pack_e4m3(f, 0, 0, 0) & 255, b);
    if ((b & 127) == 126) continue;
    word = b + 1;
    float up = element(&word, 0, SIM_E4M3), middle = 0.5f * (f + up);
    assert_int_equal(sim_pack_e4m3(middle, 0, 0, 0) & 255, b & 1 ? b + 1 : b);
    assert_int_equal(sim_pack_e4m3(nextafterf(middle, up), 0, 0, 0) & 255, b + 1);
  }
  assert_int_equal(sim_pack_e4m3(1e9f, -1e9f, 448.f, 464.f), 0x7e7efe7e);
  /* e5m2 is the upper byte of a 16-bit float */
  for (u32 b = 0; b < 256; b++) {
    if ((b & 127) > 123) continue;
    float f = sim_f16_to_f32((u16)(b << 8)), up = sim_f16_to_f32((u16)((b + 1) << 8)), middle = 0.5f * (f + up);
    assert_int_equal(sim_pack_e5m2(f, 0, 0, 0) & 255, b);
    if ((b & 127) == 123) continue;
    assert_int_equal(sim_pack_e5m2(0, middle, 0, 0) >> 8 & 255, b & 1 ? b + 1 : b);
    assert_int_equal(sim_pack_e5m2(0, 0, nextafterf(middle, up), 0) >> 16 & 255, b + 1);
  }
  assert_int_equal(sim_pack_e5m2(1e9f, -1e9f, 57344.f, 61440.f), 0x7b7bfb7b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mma_equals_plain_loops),
      cmocka_unit_test(ldmatrix_and_stmatrix_follow_the_manual),
      cmocka_unit_test(shuffles_and_votes),
      cmocka_unit_test(wgmma_equals_plain_loops),
      cmocka_unit_test(conversions_round_to_nearest_even),
  };
  const char *seed = getenv("GLINT_TEST_SEED");
  state_of_random = seed ? strtoull(seed, NULL, 0) : (u64)time(NULL);
  printf("seed %llu (GLINT_TEST_SEED)\n", state_of_random);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
