/* Does the simulator compute what the GPU computes? Each instruction wrapper of kernels/isa runs on both with the same bits, through the
 * same calls: once on the driver (libcuda), once on the simulator's stand-in for it. Exact instructions must agree to the bit; approximate
 * ones within the bound that the PTX manual gives; matrix products to the bit on small integers (all sums exact), and on random bits
 * within what the hardware's shorter alignment of addends may lose.
 *
 *   isa_compare [seed [driver]]     driver: libcuda.so.1; libisa_sim.so itself to try this program without a GPU
 *
 * Every part runs in a process of its own, since an instruction that the GPU refuses spoils the context it ran in: the others go on.
 * Exit status 0: all agree. 77: no GPU of compute capability 9.0 here. */
#include "cuda/driver.h"
#include "sim_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS     (1 << 16)
#define SKIPPED   77
#define SIMULATOR "libisa_sim.so"

extern const unsigned char isa_code[]; /* cubin of numerics.c */
#define WIDTH(n)  extern const unsigned char isa_code_wgmma_##n[];
#define WIDTHS(X) X(8) X(24) X(64) X(80) X(96) X(128) X(176) X(192) X(256)
WIDTHS(WIDTH)
#undef WIDTH

typedef struct machine {
  const char *name;
  glint_driver driver;
  CUdeviceptr in, out;
} machine;

static machine gpu = {.name = "GPU"}, model = {.name = "simulator"};
static uint32_t in[WORDS], of_gpu[WORDS], of_model[WORDS];
static uint64_t state_of_random;
static int failures, compared;
static char underway[160]; /* what runs now, for the message of a failing call */

static uint32_t random_u32(void) {
  state_of_random = state_of_random * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state_of_random >> 32);
}
static float as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static uint32_t as_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static void must(machine *m, CUresult result, const char *call) {
  glint_error error = {""};
  if (glint_driver_result(&m->driver, result, call, &error) == GLINT_OK) return;
  printf("%s%s%s: %s\n", m->name, *underway ? ", " : "", underway, error.text);
  exit(1);
}
#define MUST(m, name, arguments) must(m, (m)->driver.name arguments, #name)

static int machine_open(machine *m, const char *path, int wanted_major) {
  glint_error error = {""};
  int count = 0, found = -1;
  if (glint_driver_open(path, &m->driver, &error) != GLINT_OK) {
    printf("%s: %s\n", m->name, error.text);
    return 0;
  }
  MUST(m, cuDeviceGetCount, (&count));
  for (int i = 0; i < count; i++) {
    CUdevice device;
    int major = 0;
    MUST(m, cuDeviceGet, (&device, i));
    MUST(m, cuDeviceGetAttribute, (&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    if (major == wanted_major && found < 0) found = device;
  }
  if (found < 0) {
    printf("%s: no device of compute capability %d.x\n", m->name, wanted_major);
    return 0;
  }
  CUcontext context;
  MUST(m, cuDevicePrimaryCtxRetain, (&context, found));
  MUST(m, cuCtxPushCurrent, (context));
  MUST(m, cuMemAlloc, (&m->in, sizeof in));
  MUST(m, cuMemAlloc, (&m->out, sizeof of_gpu));
  return 1;
}

/* A tensor map over in or out: cols x rows of an element type, boxes, swizzle; rank 2, or 4 with two axes of 1. */
typedef struct map_form {
  int used, type, rank, swizzle, nan_fill;
  uint32_t element_bytes, columns, rows, offset_bytes, box_columns, box_rows, step_columns;
} map_form;

static void encode(machine *m, tensor_map *map, const map_form *f, CUdeviceptr base) {
  if (!f->used) return;
  const uint64_t row = (uint64_t)f->columns * f->element_bytes, sizes[4] = {f->columns, f->rows, 1, 1},
                 strides[3] = {row, row * f->rows, row * f->rows};
  const uint32_t box[4] = {f->box_columns, f->box_rows, 1, 1}, steps[4] = {f->step_columns, 1, 1, 1};
  MUST(m, cuTensorMapEncodeTiled,
       (map, f->type, (uint32_t)f->rank, (void *)(uintptr_t)(base + f->offset_bytes), sizes, strides, box, steps, 0, f->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, f->nan_fill));
}

static void run(machine *m, const void *code, const char *kernel, const char *model_kernel, uint32_t threads, uint32_t shared, uint32_t n,
                uint32_t fault, const map_form *map, const map_form *map_out, uint32_t *result) {
  static _Alignas(64) test_params p;
  const char *name = m->driver.simulator ? model_kernel : kernel; /* the stand-in finds kernels by name and needs no code */
  CUlibrary library;
  CUkernel handle;
  CUfunction function;
  CUdevice device;
  memset(&p, 0, sizeof p);
  memset(result, 0, sizeof of_gpu);
  MUST(m, cuCtxGetDevice, (&device));
  MUST(m, cuMemcpyHtoD, (m->in, in, sizeof in));
  MUST(m, cuMemcpyHtoD, (m->out, result, sizeof of_gpu));
  encode(m, &p.map, map, m->in);
  encode(m, &p.map_out, map_out, map_out->used == 2 ? m->in : m->out);
  p.n = n, p.fault = fault, p.in = (const u32 *)(uintptr_t)m->in, p.out = (u32 *)(uintptr_t)m->out;
  MUST(m, cuLibraryLoadData, (&library, m->driver.simulator ? (const void *)name : code, NULL, NULL, 0, NULL, NULL, 0));
  MUST(m, cuLibraryGetKernel, (&handle, library, name));
  if (shared > 48 * 1024) MUST(m, cuKernelSetAttribute, (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared, handle, device));
  MUST(m, cuKernelGetFunction, (&function, handle));
  const CUlaunchConfig config = {1, 1, 1, threads, 1, 1, shared, NULL, NULL, 0};
  void *parameters[1] = {&p};
  MUST(m, cuLaunchKernelEx, (&config, function, parameters, NULL));
  MUST(m, cuCtxSynchronize, ());
  MUST(m, cuMemcpyDtoH, (result, m->out, sizeof of_gpu));
  MUST(m, cuLibraryUnload, (library));
}

static void run_both(const void *code, const char *kernel, const char *model_kernel, uint32_t threads, uint32_t shared, uint32_t n,
                     uint32_t fault, const map_form *map, const map_form *map_out) {
  static const map_form none;
  if (!*underway) snprintf(underway, sizeof underway, "%s", kernel);
  /* the context of each machine was pushed by its own library: nothing to switch */
  run(&gpu, code, kernel, model_kernel, threads, shared, n, fault, map ? map : &none, map_out ? map_out : &none, of_gpu);
  run(&model, code, kernel, model_kernel, threads, shared, n, fault, map ? map : &none, map_out ? map_out : &none, of_model);
  *underway = 0;
}

static void differ(const char *what, uint32_t index, double bound) {
  if (++failures <= 40)
    printf("%s: word %u is %08x (%g) on the GPU, %08x (%g) in the simulator; bound %g\n", what, index, of_gpu[index],
           (double)as_float(of_gpu[index]), of_model[index], (double)as_float(of_model[index]), bound);
}
static void same_words(const char *what, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; i++, compared++)
    if (of_gpu[i] != of_model[i]) differ(what, i, 0);
}
static void close_float(const char *what, uint32_t i, double bound) {
  float g = as_float(of_gpu[i]), s = as_float(of_model[i]);
  compared++;
  if (of_gpu[i] == of_model[i] || (g != g && s != s) || g == s) return;
  if (!(fabs((double)g - (double)s) <= bound)) differ(what, i, bound);
}

static void random_words(uint32_t count) {
  for (uint32_t i = 0; i < count; i++) in[i] = random_u32();
}

/* ---- instructions that move or convert bits ------------------------------------------------------------------------------------ */
static void compare_ldmatrix(int unused) {
  static const uint32_t forms[] = {1, 2, 4, 9, 10, 12};
  (void)unused;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    random_words(128);
    run_both(isa_code, "num_ldmatrix", "num_ldmatrix", 32, 512, forms[i], 0, NULL, NULL);
    same_words("ldmatrix", 0, 128);
  }
}

static void compare_stmatrix(int unused) {
  static const uint32_t forms[] = {2, 4, 10, 12};
  (void)unused;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    random_words(128);
    run_both(isa_code, "num_stmatrix", "num_stmatrix", 32, 512, forms[i], 0, NULL, NULL);
    same_words("stmatrix", 0, 128);
  }
}

static void compare_lanes(int unused) {
  (void)unused;
  random_words(128);
  run_both(isa_code, "num_movmatrix", "num_movmatrix", 32, 0, 0, 0, NULL, NULL);
  same_words("movmatrix", 0, 32);
  run_both(isa_code, "num_shuffles", "num_shuffles", 32, 0, 0, 0, NULL, NULL);
  same_words("shuffles and votes", 0, 256);
}

static void compare_cp_async(int unused) {
  (void)unused;
  random_words(128);
  run_both(isa_code, "num_cp_async", "num_cp_async", 32, 512, 0, 0, NULL, NULL);
  same_words("cp.async", 0, 128);
}

static void compare_memory(int unused) {
  (void)unused;
  random_words(128);
  run_both(isa_code, "num_memory", "num_memory", 128, 4096 + 64, 0, 0, NULL, NULL);
  same_words("bulk copies, reductions, atomics", 0, 512);
}

static int is_nan16(uint32_t h, uint32_t infinity) { return (h & 0x7fff) > infinity; }
/* Words of two 16-bit floats: the same, or NaN in both. */
static void same_pairs(const char *what, uint32_t i, uint32_t infinity) {
  compared++;
  for (uint32_t half = 0; half < 2; half++) {
    uint32_t g = of_gpu[i] >> (16 * half) & 0xffff, s = of_model[i] >> (16 * half) & 0xffff;
    if (g != s && !(is_nan16(g, infinity) && is_nan16(s, infinity))) differ(what, i, 0);
  }
}

static void compare_arithmetic(int unused) {
  static const uint32_t special[] = {0,          0x80000000, 0x3f800000, 0x7f800000, 0xff800000, 0x00000001, 0x00800000, 0x47800000,
                                     0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x43e00000, 0x43e80000, 0x43e80001, 0x3b000000};
  static const char *const exact[] = {"fma.f32",        "max.f32",        "min.f32",    "f32 of f16 lo", "f32 of f16 hi",
                                      "f32 of bf16 lo", "f32 of bf16 hi", "mul.hi.u32", "clz, popc"};
  (void)unused;
  for (int round = 0; round < 200; round++) {
    for (uint32_t i = 0; i < 128; i++) {
      in[i] = round % 2 ? as_bits(ldexpf((float)(int32_t)random_u32(), (int)(random_u32() % 60) - 60)) : random_u32();
      if (random_u32() % 8 == 0) in[i] = special[random_u32() % (sizeof special / sizeof *special)];
    }
    run_both(isa_code, "num_arithmetic", "num_arithmetic", 32, 0, 0, 0, NULL, NULL);
    for (uint32_t l = 0; l < 32; l++) {
      uint32_t o = 16 * l;
      same_pairs("cvt.bf16x2", o, 0x7f80);
      same_pairs("cvt.f16x2", o + 1, 0x7c00);
      same_words("cvt.e4m3x2", o + 2, 1);
      same_pairs("cvt.f16x2.e4m3x2", o + 3, 0x7c00);
      same_words("prmt", o + 4, 1);
      same_pairs("fma.f16x2", o + 5, 0x7c00);
      same_pairs("fma.bf16x2", o + 6, 0x7f80);
      for (uint32_t i = 0; i < 9; i++) {
        if (i < 7)
          close_float(exact[i], o + 7 + i, 0);
        else
          same_words(exact[i], o + 7 + i, 1);
      }
    }
  }
}

static double ulp16(uint32_t h, int mantissa, uint32_t infinity) {
  int e = (int)((h & infinity) >> mantissa), bias = mantissa == 10 ? 15 : 127;
  return ldexp(1, (e ? e : 1) - bias - mantissa);
}
static double value16(uint32_t h, int mantissa) {
  if (mantissa == 7) return (double)as_float(h << 16);
  int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
  double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}
/* One unit in the last place of the 16-bit result, or the manual's 2^-9.9 (f16), 2^-7 (bf16) relative. */
static void close_pairs(const char *what, uint32_t i, int mantissa, uint32_t infinity, double relative) {
  compared++;
  for (uint32_t half = 0; half < 2; half++) {
    uint32_t g = of_gpu[i] >> (16 * half) & 0xffff, s = of_model[i] >> (16 * half) & 0xffff;
    if (g == s || (is_nan16(g, infinity) && is_nan16(s, infinity))) continue;
    double bound = ulp16(s, mantissa, infinity) + relative * fabs(value16(s, mantissa));
    if ((s & 0x7fff) == infinity || !(fabs(value16(g, mantissa) - value16(s, mantissa)) <= bound)) differ(what, i, bound);
  }
}

static void compare_approximations(int unused) {
  (void)unused;
  for (int round = 0; round < 200; round++) {
    for (uint32_t i = 0; i < 128; i++) {
      in[i] = round % 2 ? as_bits((float)(int32_t)random_u32() * 0x1p-27f) : random_u32();
      if ((in[i] & 0x7f800000) == 0x7f800000) in[i] &= 0x80800000; /* 2^-126 or 0 instead of NaN */
    }
    run_both(isa_code, "num_approximations", "num_approximations", 32, 0, 0, 0, NULL, NULL);
    for (uint32_t l = 0; l < 32; l++) {
      uint32_t o = 6 * l;
      double x = (double)as_float(in[4 * l]);
      close_float("ex2.approx.ftz", o, ldexp(fabs((double)as_float(of_model[o])), -22) + 0x1p-126);
      close_float("lg2.approx.ftz", o + 1, x > 0.5 && x < 2 ? 0x1p-22 : ldexp(fabs((double)as_float(of_model[o + 1])), -22));
      close_float("tanh.approx", o + 2, ldexp(fabs((double)as_float(of_model[o + 2])), -10) + 0x1p-126);
      close_float("rcp.approx.ftz", o + 3, ldexp(fabs((double)as_float(of_model[o + 3])), -23) + 0x1p-126);
      close_pairs("ex2.approx.f16x2", o + 4, 10, 0x7c00, 0x1p-9);
      close_pairs("ex2.approx.ftz.bf16x2", o + 5, 7, 0x7f80, 0x1p-7);
    }
  }
}

/* ---- TMA -------------------------------------------------------------------------------------------------------------------------- */
/* bits: of an element that may be filled with NaN, 0: none; any NaN serves. */
static void same_filled(const char *what, uint32_t count, int bits) {
  for (uint32_t i = 0; i < count; i++, compared++) {
    const uint32_t g = of_gpu[i], s = of_model[i];
    const int nan =
        bits == 32 ? as_float(g) != as_float(g) && as_float(s) != as_float(s)
                   : bits == 16 && (g & 0x7fff) > 0x7f80 && (s & 0x7fff) > 0x7f80 && g >> 16 == (g & 0xffff) && s >> 16 == (s & 0xffff);
    if (g != s && !nan) differ(what, i, 0);
  }
}

/* type: of the elements, 0 to 3 */
static void compare_tma(int type) {
  static const struct {
    int type;
    uint32_t bytes;
  } types[] = {{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
               {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2},
               {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
               {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4}};
  char what[128];
  for (int round = 0; round < 30; round++) {
    uint32_t t = (uint32_t)type, swizzle = random_u32() % 4, bytes = types[t].bytes, row = 16u << swizzle;
    if (swizzle == 0) row = 16 * (1 + random_u32() % 8);
    map_form map = {
        1,           types[t].type,         2, (int)swizzle, bytes == 1 ? 0 : (int)(random_u32() % 2), bytes, 256 / bytes, 96, 64,
        row / bytes, 1 + random_u32() % 64, 1};
    map_form map_out = map;
    map_out.rank = 4, map_out.offset_bytes = 65536, map_out.nan_fill = 0;
    uint32_t add = random_u32() % 2 && bytes > 1;
    random_words(WORDS);
    if (add) /* sums that are exact in every format: small integers */
      for (uint32_t i = 16; i < WORDS; i++) {
        uint32_t v = random_u32() % 16;
        in[i] = bytes == 4                                          ? as_bits((float)v)
                : types[t].type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? (as_bits((float)v) >> 16) * 0x10001u
                                                                    : (v ? 0x4400u + v % 4 * 0x100u : 0u) * 0x10001u;
      }
    /* whole 16 bytes; stores not before the tensor: anything else is an illegal instruction */
    const int chunk = 16 / (int)bytes;
    in[0] = (uint32_t)(((int)(random_u32() % 40) - 12) * chunk), in[1] = (uint32_t)((int)(random_u32() % 160) - 40);
    in[2] = (uint32_t)((int)(random_u32() % 24) * chunk), in[3] = (uint32_t)(random_u32() % 130);
    snprintf(what, sizeof what, "TMA type %d swizzle %u box %u x %u at %d, %d; out at %d, %d add %u nan %d", map.type, swizzle,
             map.box_columns, map.box_rows, (int)in[0], (int)in[1], (int)in[2], (int)in[3], add, map.nan_fill);
    strcpy(underway, what);
    run_both(isa_code, "num_tma", "num_tma", 128, 65536 + 64, row * map.box_rows, add, &map, &map_out);
    same_filled(what, row * map.box_rows / 4, map.nan_fill ? (bytes == 2 ? 16 : 32) : 0);
    same_words(what, 16384, 96 * 64);
  }
}

/* ---- matrix products -------------------------------------------------------------------------------------------------------------- */
enum { BF16, F16, E4M3 };

static uint32_t element_word(int type, int integers) {
  uint32_t w = 0;
  for (uint32_t i = 0; i < (type == E4M3 ? 4u : 2u); i++) {
    int v = (int)(random_u32() % 9) - 4;
    uint32_t bits, a = (uint32_t)abs(v);
    if (type == E4M3)
      bits = integers ? (a == 0 ? 0 : a == 1 ? 0x38 : a == 2 ? 0x40 : a == 3 ? 0x44 : 0x48) : random_u32() & 0x5f;
    else if (type == F16)
      bits = integers ? (a == 0 ? 0 : a == 1 ? 0x3c00 : a == 2 ? 0x4000 : a == 3 ? 0x4200 : 0x4400) : random_u32() & 0x3fff;
    else
      bits = integers ? as_bits((float)a) >> 16 : (random_u32() & 0x7f) | (122 + random_u32() % 8) << 7;
    if (integers ? v < 0 : random_u32() & 1) bits |= type == E4M3 ? 0x80 : 0x8000;
    w |= bits << ((type == E4M3 ? 8 : 16) * i);
  }
  return w;
}

static void compare_mma(int unused) {
  (void)unused;
  for (int round = 0; round < 100; round++) {
    int type = round % 2, integers = round / 2 % 2;
    for (uint32_t i = 0; i < 320; i++)
      in[i] = i % 10 < 6 ? element_word(type, integers)
                         : as_bits(integers ? (float)((int)(random_u32() % 64) - 32) : (float)(int32_t)random_u32() * 0x1p-30f);
    run_both(isa_code, "num_mma", "num_mma", 32, 0, (uint32_t)type, 0, NULL, NULL);
    for (uint32_t i = 0; i < 128; i++) /* 16 products below 16 (bf16) or 4 (f16) */
      close_float(integers ? "mma on integers" : "mma", i, integers ? 0 : 16 * 16 * 0x1p-22);
  }
}

/* Rounding of sums of random products. 16-bit types: 64 products, each cut to the largest one's last bit of 25 or so. e4m3: 13 bits remain of
 * each of 32 products and the sum so far, so a step of 32 is off by up to 33 times 2^-13 of the largest number in it (at most 900, or the
 * sum); the cuts have any sign, so four steps stay below that with a wide margin. */
static double wgmma_room(int type, uint32_t i) {
  const double size = fabs((double)as_float(of_model[i]));
  return type == E4M3 ? 33 * 0x1p-13 * (size > 1024 ? size : 1024) : 64 * 64 * 0x1p-21;
}

static void compare_wgmma_form(uint32_t n, const void *code, int type, uint32_t swizzle, uint32_t ta, uint32_t tb, uint32_t registers,
                               int integers) {
  static const int tma_swizzle[4] = {0, 3, 2, 1};
  static const int types[3] = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_UINT8};
  uint32_t bytes = type == E4M3 ? 1 : 2, span = swizzle ? 256u >> swizzle : 16, accumulate = random_u32() & 1;
  uint32_t b_columns = (tb ? 2 * n : 128) / bytes, b_rows = tb ? 64 : n;
  for (uint32_t i = 0; i < 64 * 32 + 64 * 128; i++) in[i] = element_word(type, integers);
  for (uint32_t i = 64 * 32 + 64 * 128; i < 64 * 32 + 64 * 128 + 128 * 128; i++)
    in[i] = as_bits(integers ? (float)((int)(random_u32() % 64) - 32) : (float)(int32_t)random_u32() * 0x1p-28f);
  map_form a = {1, types[type], 2, tma_swizzle[swizzle], 0, bytes, 128 / bytes, 64, 0, span / bytes, 64, 1};
  map_form b = {2, types[type], 2, tma_swizzle[swizzle], 0, bytes, b_columns, b_rows, 64 * 32 * 4, span / bytes, b_rows, 1};
  char kernel[32], what[128];
  snprintf(kernel, sizeof kernel, "num_wgmma_%u", n);
  snprintf(what, sizeof what, "wgmma n %u type %d swizzle %u trans %u %u registers %u accumulate %u%s", n, type, swizzle, ta, tb, registers,
           accumulate, integers ? ", integers" : "");
  strcpy(underway, what);
  run_both(code, kernel, "num_wgmma", 128, 2 * 64 * 256 * 2 + 64, n,
           swizzle | (uint32_t)type << 2 | ta << 4 | tb << 5 | registers << 6 | accumulate << 7, &a, &b);
  for (uint32_t t = 0; t < 128; t++)
    for (uint32_t i = 0; i < n / 2; i++) close_float(what, 128 * t + i, integers ? 0 : wgmma_room(type, 128 * t + i));
}

static void compare_wgmma(uint32_t n, int type) {
  static const struct {
    uint32_t n;
    const unsigned char *code;
  } widths[] = {
#define WIDTH(n) {n, isa_code_wgmma_##n},
      WIDTHS(WIDTH)
#undef WIDTH
  };
  static const uint32_t least_n[4] = {8, 64, 32, 16};
  size_t w = 0;
  while (widths[w].n != n) w++;
  for (uint32_t form = 0; form < 64; form++) {
    uint32_t swizzle = form & 3, ta = form >> 2 & 1, tb = form >> 3 & 1, registers = form >> 4 & 1;
    int integers = form >> 5 & 1;
    if ((registers && ta) || (tb && n % least_n[swizzle]) || (type == E4M3 && (ta || tb))) continue;
    compare_wgmma_form(n, widths[w].code, type, swizzle, ta, tb, registers, integers);
  }
}
static void compare_wgmma_bf16(int n) { compare_wgmma((uint32_t)n, BF16); }
static void compare_wgmma_f16(int n) { compare_wgmma((uint32_t)n, F16); }
static void compare_wgmma_e4m3(int n) { compare_wgmma((uint32_t)n, E4M3); }

/* ---- parts ------------------------------------------------------------------------------------------------------------------------ */
typedef struct part {
  const char *name;
  void (*compare)(int argument);
  int argument;
} part;

static const part parts[] = {{"ldmatrix", compare_ldmatrix, 0},
                             {"stmatrix", compare_stmatrix, 0},
                             {"movmatrix, shuffles, votes", compare_lanes, 0},
                             {"cp.async", compare_cp_async, 0},
                             {"bulk copies, reductions, atomics", compare_memory, 0},
                             {"arithmetic, conversions", compare_arithmetic, 0},
                             {"approximations", compare_approximations, 0},
                             {"mma", compare_mma, 0},
                             {"TMA, 8 bits", compare_tma, 0},
                             {"TMA, fp16", compare_tma, 1},
                             {"TMA, bf16", compare_tma, 2},
                             {"TMA, float32", compare_tma, 3},
#define WIDTH(n)                                                                                                                           \
  {"wgmma bf16, n " #n, compare_wgmma_bf16, n}, {"wgmma fp16, n " #n, compare_wgmma_f16, n}, {"wgmma e4m3, n " #n, compare_wgmma_e4m3, n},
                             WIDTHS(WIDTH)
#undef WIDTH
};
enum { PARTS = sizeof parts / sizeof *parts };

/* In a process of its own: opens both machines and compares. */
static int run_part(const part *p, const char *driver, const char *simulator) {
  if (!machine_open(&gpu, driver, 9)) return SKIPPED;
  if (!machine_open(&model, simulator, 9)) return 1;
  p->compare(p->argument);
  printf("%s: %d values compared, %d differ\n", p->name, compared, failures);
  return failures != 0;
}

int main(int argc, char **argv) {
  char path[4096] = "";
  int failed = 0;
  if (readlink("/proc/self/exe", path, sizeof path - sizeof SIMULATOR) < 0) return 1;
  strcpy(strrchr(path, '/') + 1, SIMULATOR); /* beside the program */
  state_of_random = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)state_of_random);
  for (int i = 0; i < PARTS; i++, state_of_random++) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      status = run_part(&parts[i], argc > 2 ? argv[2] : "libcuda.so.1", path);
      fflush(stdout);
      _exit(status); /* without the driver's exit handlers: its context may be spoilt */
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return SKIPPED;
    if (!WIFEXITED(status) || WEXITSTATUS(status)) printf("%s: failed\n", parts[i].name), failed++;
  }
  printf("%d of %d parts failed\n", failed, (int)PARTS);
  return failed != 0;
}
