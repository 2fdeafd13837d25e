/* Atoms against the PTX manual's fragment formulas, bank counts against known cases and against bench/banks/patterns.h, descriptors and TMA
 * boxes against known values, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "glint_layout.h"

static glint_layout_error error;
#define OK(call)                                                                                                                           \
  do {                                                                                                                                     \
    if ((call) != GLINT_OK) fail_msg("%s: %s", #call, error.text);                                                                         \
  } while (0)

static glint_layout parse(const char *text) {
  glint_layout l;
  if (glint_layout_parse(text, &l, &error)) fail_msg("%s: %s", text, error.text);
  return l;
}

/* ---- atoms: row and column of value i of thread t, as the manual writes them -------------------------------------------------------- */

typedef struct place {
  int row, column;
} place;

static place a_k8(int t, int i) { return (place){t / 4 + (i < 2 ? 0 : 8), t % 4 * 2 + i % 2}; }
static place b_k8(int t, int i) { return (place){t / 4, t % 4 * 2 + i}; } /* (n, k) */
static place c_any(int t, int i) { return (place){t / 4 + (i < 2 ? 0 : 8), t % 4 * 2 + i % 2}; }
static place a_k16(int t, int i) { return (place){t / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), t % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)}; }
static place b_k16(int t, int i) { return (place){t / 4, t % 4 * 2 + i % 2 + (i < 2 ? 0 : 8)}; }
static place a_tf32(int t, int i) { return (place){t / 4 + (i % 2 ? 8 : 0), t % 4 + (i < 2 ? 0 : 4)}; }
static place b_tf32(int t, int i) { return (place){t / 4, t % 4 + 4 * i}; }
static place a_k32(int t, int i) { return (place){t / 4 + (i < 4 || (i >= 8 && i < 12) ? 0 : 8), t % 4 * 4 + i % 4 + (i < 8 ? 0 : 16)}; }
static place b_k32(int t, int i) { return (place){t / 4, t % 4 * 4 + i % 4 + (i < 4 ? 0 : 16)}; }
static place of_warp(place p, int t) { return (place){p.row + t / 32 * 16, p.column}; }
static place w_a_k16(int t, int i) { return of_warp(a_k16(t % 32, i), t); }
static place w_a_k8(int t, int i) { return of_warp(a_tf32(t % 32, i), t); }
static place w_a_k32(int t, int i) { return of_warp(a_k32(t % 32, i), t); }
/* accumulator of N columns: register 4j + {0,1} row lane/4, columns 8j + 2 (lane%4) + {0,1}; 4j + {2,3} row + 8 */
static place w_c(int t, int i) { return of_warp((place){t % 32 / 4 + (i % 4 < 2 ? 0 : 8), i / 4 * 8 + t % 4 * 2 + i % 2}, t); }
/* matrices of 8 x 8, row by row: matrix i / 2 */
static place ld_register(int t, int i) { return (place){t % 4 * 2 + i % 2, i / 2 * 8 + t / 4}; } /* column of the matrix, row over all */
static place ld_trans(int t, int i) { return (place){t / 4, i / 2 * 8 + t % 4 * 2 + i % 2}; }
static place ld_address(int t, int i) { return (place){i, t}; }

static void check_atom(const char *instruction, const char *operand, int threads, int values, int rows, place (*formula)(int, int)) {
  glint_layout_atom_info info;
  static char seen[1 << 16];
  OK(glint_layout_atom(instruction, operand, &info, &error));
  assert_int_equal(glint_layout_size(&info.tv), threads * values);
  assert_int_equal(glint_layout_rank(&info.tv), 2);
  memset(seen, 0, sizeof seen);
  for (int t = 0; t < threads; t++)
    for (int i = 0; i < values; i++) {
      place p = formula(t, i);
      int64_t offset = glint_layout_at(&info.tv, t + threads * i);
      assert_int_equal(offset, p.row + rows * p.column);
      assert_false(seen[offset]++);
    }
}

static void test_atoms(void **unused) {
  (void)unused;
  check_atom("mma.m16n8k8", "A", 32, 4, 16, a_k8);
  check_atom("mma.m16n8k8", "B", 32, 2, 8, b_k8);
  check_atom("mma.m16n8k8", "C", 32, 4, 16, c_any);
  check_atom("mma.m16n8k16", "A", 32, 8, 16, a_k16);
  check_atom("mma.m16n8k16", "B", 32, 4, 8, b_k16);
  check_atom("mma.m16n8k16", "C", 32, 4, 16, c_any);
  check_atom("mma.m16n8k8.tf32", "A", 32, 4, 16, a_tf32);
  check_atom("mma.m16n8k8.tf32", "B", 32, 2, 8, b_tf32);
  check_atom("mma.m16n8k32", "A", 32, 16, 16, a_k32);
  check_atom("mma.m16n8k32", "B", 32, 8, 8, b_k32);
  check_atom("mma.m16n8k32", "C", 32, 4, 16, c_any);
  check_atom("wgmma.m64n128k8", "A", 128, 4, 64, w_a_k8);
  check_atom("wgmma.m64n128k16", "A", 128, 8, 64, w_a_k16);
  check_atom("wgmma.m64n128k32", "A", 128, 16, 64, w_a_k32);
  for (int n = 8; n <= 256; n += 8) {
    char name[32];
    snprintf(name, sizeof name, "wgmma.m64n%dk16", n);
    check_atom(name, "C", 128, n / 2, 64, w_c);
  }
  static const char *const counts[] = {"x1", "x2", "x4"};
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "ldmatrix.%s", counts[i]);
    check_atom(name, "register", 32, 2 << i, 8, ld_register);
    check_atom(name, "address", 8 << i, 8, 8, ld_address);
    snprintf(name, sizeof name, "stmatrix.%s.trans", counts[i]);
    check_atom(name, "register", 32, 2 << i, 8, ld_trans);
  }
  check_atom("ld.128", "address", 32, 16, 16, ld_address);
  check_atom("st.32", NULL, 32, 4, 4, ld_address);
  check_atom("cp.async.8", NULL, 32, 8, 8, ld_address);
}

static void test_accumulator_is_the_next_operand(void **unused) {
  (void)unused;
  glint_layout_atom_info c, a;
  OK(glint_layout_atom("wgmma.m64n128k16", "C", &c, &error));
  OK(glint_layout_atom("wgmma.m64n64k16", "A", &a, &error));
  for (int k = 0; k < 8; k++) /* registers 8k..8k+7 are the A operand of k step k */
    for (int t = 0; t < 128; t++)
      for (int i = 0; i < 8; i++)
        assert_int_equal(glint_layout_at(&c.tv, t + 128 * (8 * k + i)), glint_layout_at(&a.tv, t + 128 * i) + 64 * 16 * k);
}

static void test_unknown_atoms(void **unused) {
  (void)unused;
  glint_layout_atom_info info;
  assert_int_equal(glint_layout_atom("mma.m16n8k64", NULL, &info, &error), GLINT_ERROR_NOT_FOUND);
  assert_int_equal(glint_layout_atom("mma.m16n8k16", "D", &info, &error), GLINT_ERROR_NOT_FOUND);
  assert_int_equal(glint_layout_atom("wgmma.m64n12k16", "C", &info, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_layout_atom("wgmma.m64n64k16", "B", &info, &error), GLINT_ERROR_NOT_FOUND);
  for (int32_t i = 0; i < glint_layout_atom_count(); i++) OK(glint_layout_atom_at(i, &info, &error));
}

/* ---- banks ---------------------------------------------------------------------------------------------------------------------- */

enum { LD16, LD32, LD64, LD128, ST32, ST128, LDSM4, STSM4 };
typedef struct pattern {
  const char *name, *access, *layout, *tv;
  int instruction, bytes, lanes, bits;
  int address[32];
} pattern;

static int read_patterns(pattern *p) {
  int n = 0;
#define PATTERN(name_, instruction_, access_, bytes_, lanes_, bits_, address_, layout_, tv_)                                               \
  p[n] = (pattern){#name_, access_, layout_, tv_, instruction_, bytes_, lanes_, bits_, {0}};                                               \
  for (int l = 0; l < 32; l++) p[n].address[l] = (address_);                                                                               \
  n++;
#include "../../bench/banks/patterns.h"
#undef PATTERN
  return n;
}

/* A pattern's line of expected.csv, by the tool's counts; its two statements are compared on the way. */
static void pattern_line(const pattern *p, char line[128]) {
  glint_layout layout = parse(p->layout), tv;
  glint_bank_report report;
  uint64_t address[32];
  glint_access access = {p->instruction >= LDSM4 ? GLINT_ACCESS_LDMATRIX : GLINT_ACCESS_SHARED, p->bits, p->bytes, NULL, 0};
  if (*p->tv) tv = parse(p->tv), access.tv = &tv;
  OK(glint_access_report(&layout, &access, 0, &report, address, NULL, &error));
  for (int lane = 0; lane < p->lanes; lane++)
    if ((int64_t)address[lane] != p->address[lane])
      fail_msg("%s: lane %d at %lld, expected %d", p->name, lane, (long long)address[lane], p->address[lane]);
  snprintf(line, 128, "%s,%s,%d,%d\n", p->name, p->access, report.wavefronts, report.wavefronts - report.ideal);
}

static const char heading[] = "pattern,access,wavefronts,conflicts\n";
static pattern patterns[64];

/* bench/banks/expected.csv, which the GPU is compared with, holds the tool's counts. */
static void test_patterns(void **state) {
  char line[128], file_line[128];
  FILE *expected = fopen(*(const char *const *)*state, "r");
  assert_non_null(expected);
  assert_non_null(fgets(file_line, sizeof file_line, expected));
  assert_string_equal(file_line, heading);
  int n = read_patterns(patterns);
  assert_true(n >= 10);
  for (int i = 0; i < n; i++) {
    pattern_line(&patterns[i], line);
    assert_non_null(fgets(file_line, sizeof file_line, expected));
    assert_string_equal(file_line, line);
  }
  assert_null(fgets(file_line, sizeof file_line, expected));
  fclose(expected);
}

/* Writes expected.csv anew. */
static int write_expected(const char *path) {
  char line[128];
  FILE *f = fopen(path, "w");
  if (!f || fputs(heading, f) < 0) return 1;
  for (int i = 0, n = read_patterns(patterns); i < n; i++) {
    pattern_line(&patterns[i], line);
    fputs(line, f);
  }
  return fclose(f) != 0;
}

static int count(const char *layout_text, const char *tv_text, glint_access_kind kind, int bytes, int bits, int *ideal) {
  glint_layout layout = parse(layout_text), tv;
  glint_access_total total;
  glint_access access = {kind, bits, bytes, NULL, 0};
  if (tv_text) tv = parse(tv_text), access.tv = &tv;
  OK(glint_access_count(&layout, &access, &total, &error));
  if (ideal) *ideal = (int)total.ideal;
  return (int)total.wavefronts;
}

static void test_bank_counts(void **unused) {
  (void)unused;
  int ideal;
  assert_int_equal(count("32:32", NULL, GLINT_ACCESS_SHARED, 4, 32, &ideal), 32);
  assert_int_equal(ideal, 1);
  assert_int_equal(count("32:33", NULL, GLINT_ACCESS_SHARED, 4, 32, NULL), 1);
  assert_int_equal(count("32:0", NULL, GLINT_ACCESS_SHARED, 4, 32, NULL), 1);
  assert_int_equal(count("(32,2):(2,1)", NULL, GLINT_ACCESS_SHARED, 8, 32, &ideal), 2);
  assert_int_equal(ideal, 2);
  assert_int_equal(count("(32,4):(4,1)", NULL, GLINT_ACCESS_SHARED, 16, 32, &ideal), 4);
  assert_int_equal(ideal, 4);
  assert_int_equal(count("(32,4):(32,1)", NULL, GLINT_ACCESS_SHARED, 16, 32, NULL), 32);
  assert_int_equal(count("8:64", NULL, GLINT_ACCESS_LDMATRIX, 16, 16, &ideal), 8); /* x1: one phase */
  assert_int_equal(ideal, 1);
  assert_int_equal(count("(128,1):(4,1)", NULL, GLINT_ACCESS_SHARED, 4, 32, &ideal), 16); /* four warps, 4 ways each */
  assert_int_equal(ideal, 4);
}

static void test_coalescing(void **unused) {
  (void)unused;
  glint_access access = {GLINT_ACCESS_GLOBAL, 32, 4, NULL, 0};
  glint_access_total total;
  glint_layout row = parse("32:1"), column = parse("32:64"), shifted = parse("32:1");
  OK(glint_access_count(&row, &access, &total, &error));
  assert_int_equal(total.sectors, 4);
  assert_int_equal(total.lines, 1);
  assert_int_equal(total.needed_sectors, 4);
  OK(glint_access_count(&column, &access, &total, &error));
  assert_int_equal(total.sectors, 32);
  assert_int_equal(total.lines, 32);
  access.base = 4;
  OK(glint_access_count(&shifted, &access, &total, &error));
  assert_int_equal(total.sectors, 5);
  assert_int_equal(total.lines, 2);
}

static void test_fix(void **unused) {
  (void)unused;
  glint_layout layout = parse("(64,64):(64,1)"), tv = parse("((16,2)):((1,512))"), out;
  glint_access access = {GLINT_ACCESS_LDMATRIX, 16, 16, &tv, 0};
  glint_access_total total;
  int64_t row, pad;
  char text[128];
  OK(glint_access_fix_swizzle(&layout, &access, 1, 16, &out, &error));
  glint_layout_format(&out, text, sizeof text);
  assert_string_equal(text, "Sw<3,3,3> o 0 o (64,64):(64,1)");
  OK(glint_access_count(&out, &access, &total, &error));
  assert_int_equal(total.wavefronts, total.ideal);
  OK(glint_access_fix_padding(&layout, &access, 1, 16, &out, &row, &pad, &error));
  glint_layout_format(&out, text, sizeof text);
  assert_string_equal(text, "(64,64):(72,1)");
  assert_int_equal(row, 64);
  assert_int_equal(pad, 8);
  /* nothing helps where two lanes must share a bank: 64 rows of 16-byte vectors cannot be kept whole and read by 4-byte columns */
  glint_layout column = parse("32:1");
  glint_access narrow = {GLINT_ACCESS_SHARED, 16, 4, &column, 0};
  glint_layout tall = parse("(32,64):(64,1)");
  assert_int_equal(glint_access_fix_swizzle(&tall, &narrow, 1, 16, &out, &error), GLINT_ERROR_NOT_FOUND);
}

static void test_access_refusals(void **unused) {
  (void)unused;
  glint_access_total total;
  glint_layout split = parse("(32,4):(4,2)"), odd = parse("(32,4):(6,1)"), fine = parse("(32,4):(4,1)");
  glint_access access = {GLINT_ACCESS_SHARED, 32, 16, NULL, 0};
  assert_int_equal(glint_access_count(&split, &access, &total, &error), GLINT_ERROR_INVALID_ARGUMENT); /* not contiguous */
  assert_non_null(strstr(error.text, "lane 0"));
  assert_int_equal(glint_access_count(&odd, &access, &total, &error), GLINT_ERROR_INVALID_ARGUMENT); /* not aligned */
  assert_non_null(strstr(error.text, "lane 1"));
  access.bytes = 3;
  assert_int_equal(glint_access_count(&fine, &access, &total, &error), GLINT_ERROR_INVALID_ARGUMENT);
}

/* ---- descriptors and boxes -------------------------------------------------------------------------------------------------------- */

static uint64_t descriptor(const char *text, int bits, glint_major major, int mn, int k0, uint64_t base) {
  glint_layout l = parse(text);
  glint_wgmma_descriptor d;
  if (glint_layout_wgmma_descriptor(&l, bits, major, mn, 0, k0, base, &d, &error)) fail_msg("%s: %s", text, error.text);
  return d.bits;
}

static uint64_t fields(uint64_t start, uint64_t lbo, uint64_t sbo, uint64_t base_offset, uint64_t mode) {
  return start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | base_offset << 49 | mode << 62;
}

static void test_descriptors(void **unused) {
  (void)unused;
  /* K-major, the four modes: T = 8 elements of 16 bytes */
  assert_int_equal(descriptor("Sw<3,3,3> o 0 o (64,64):(64,1)", 16, GLINT_MAJOR_K, 64, 0, 0), fields(0, 16, 1024, 0, 1));
  assert_int_equal(descriptor("Sw<3,3,3> o 0 o (64,64):(64,1)", 16, GLINT_MAJOR_K, 64, 16, 2048), fields(2048 + 32, 16, 1024, 0, 1));
  assert_int_equal(descriptor("Sw<2,3,3> o 0 o (64,32):(32,1)", 16, GLINT_MAJOR_K, 64, 0, 0), fields(0, 16, 512, 0, 2));
  assert_int_equal(descriptor("Sw<1,3,3> o 0 o (64,16):(16,1)", 16, GLINT_MAJOR_K, 64, 0, 0), fields(0, 16, 256, 0, 3));
  assert_int_equal(descriptor("((8,8),(8,2)):((8,128),(1,64))", 16, GLINT_MAJOR_K, 64, 0, 0), fields(0, 128, 256, 0, 0));
  /* 8-bit and tf32 */
  assert_int_equal(descriptor("Sw<3,4,3> o 0 o (128,128):(128,1)", 8, GLINT_MAJOR_K, 128, 32, 0), fields(32, 16, 1024, 0, 1));
  assert_int_equal(descriptor("Sw<3,2,3> o 0 o (64,32):(32,1)", 32, GLINT_MAJOR_K, 64, 8, 0), fields(32, 16, 1024, 0, 1));
  /* MN-major */
  assert_int_equal(descriptor("Sw<3,3,3> o 0 o ((64,2),128):((1,8192),64)", 16, GLINT_MAJOR_MN, 128, 16, 0),
                   fields(2048, 16384, 1024, 0, 1));
  assert_int_equal(descriptor("Sw<2,3,3> o 0 o ((32,2),16):((1,512),32)", 16, GLINT_MAJOR_MN, 64, 0, 0), fields(0, 1024, 512, 0, 2));
  assert_int_equal(descriptor("((8,8),(8,2)):((1,64),(8,512))", 16, GLINT_MAJOR_MN, 64, 0, 0), fields(0, 1024, 128, 0, 0));
  /* a base that is not a multiple of the swizzle's period */
  assert_int_equal(descriptor("Sw<3,3,3> o 0 o (64,64):(64,1)", 16, GLINT_MAJOR_K, 64, 0, 1024 + 256), fields(1280, 16, 1024, 2, 1));
}

static void refused(const char *text, int bits, glint_major major, const char *reason) {
  glint_layout l = parse(text);
  glint_wgmma_descriptor d;
  assert_int_equal(glint_layout_wgmma_descriptor(&l, bits, major, 64, 0, 0, 0, &d, &error), GLINT_ERROR_INVALID_ARGUMENT);
  if (!strstr(error.text, reason)) fail_msg("%s: \"%s\" does not say \"%s\"", text, error.text, reason);
}

static void test_descriptor_refusals(void **unused) {
  (void)unused;
  refused("(64,64):(64,1)", 16, GLINT_MAJOR_K, "element (1,0) is stored at byte 128");
  refused("(64,64):(72,1)", 16, GLINT_MAJOR_K, "element");
  refused("Sw<3,2,3> o 0 o (64,64):(64,1)", 16, GLINT_MAJOR_K, "no swizzle Sw<3,3,3> of bytes");
  refused("Sw<3,3,3> o 0 o (64,64):(64,1)", 16, GLINT_MAJOR_MN, "MN-major");
  refused("Sw<3,4,3> o 0 o (64,64):(1,64)", 8, GLINT_MAJOR_MN, "16-bit types only");
  refused("Sw<3,3,3> o 0 o (32,64):(64,1)", 16, GLINT_MAJOR_K, "not inside");
}

static void test_boxes(void **unused) {
  (void)unused;
  glint_tma_box b;
  glint_layout l = parse("Sw<3,3,3> o 0 o (128,(64,2)):(64,(1,8192))");
  OK(glint_layout_tma_box(&l, 16, 1, &b, &error));
  assert_int_equal(b.rank, 3);
  assert_int_equal(b.box[0], 64);
  assert_int_equal(b.box[1], 128);
  assert_int_equal(b.box[2], 2);
  assert_int_equal(b.step[2], 64);
  assert_int_equal(b.swizzle, 128);
  assert_int_equal(b.alignment, 1024);
  l = parse("(16,512):(512,1)"); /* boxes end at 256 */
  OK(glint_layout_tma_box(&l, 16, 1, &b, &error));
  assert_int_equal(b.rank, 3);
  assert_int_equal(b.box[0], 256);
  assert_int_equal(b.box[1], 2);
  static const struct {
    const char *layout, *reason;
    int contiguous;
  } cases[] = {{"(64,64):(72,1)", "gap", 1},
               {"(64,64):(32,1)", "overlap", 1},
               {"(64,64):(0,1)", "every element once", 1},
               {"(64,64):(1,64)", "neighbours in global memory", 1},
               {"(64,4):(4,1)", "multiple of 16", 1},
               {"Sw<4,3,4> o 0 o (64,64):(64,1)", "no swizzle", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    l = parse(cases[i].layout);
    assert_int_equal(glint_layout_tma_box(&l, 16, cases[i].contiguous, &b, &error), GLINT_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.text, cases[i].reason)) fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].layout, error.text, cases[i].reason);
  }
}

/* test_hardware EXPECTED.csv tests; with a second argument, "write", it writes that file. */
int main(int argc, char **argv) {
  if (argc < 2) return 2;
  if (argc > 2) return write_expected(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_atoms),         cmocka_unit_test(test_accumulator_is_the_next_operand),
      cmocka_unit_test(test_unknown_atoms), cmocka_unit_test_prestate(test_patterns, &argv[1]),
      cmocka_unit_test(test_bank_counts),   cmocka_unit_test(test_coalescing),
      cmocka_unit_test(test_fix),           cmocka_unit_test(test_access_refusals),
      cmocka_unit_test(test_descriptors),   cmocka_unit_test(test_descriptor_refusals),
      cmocka_unit_test(test_boxes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
