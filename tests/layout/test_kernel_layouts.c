/* The kernels' layouts, stated in kernels/parts/layouts.h: one to one, 16-byte chunks whole, no bank conflicts in any access, and equal to what
 * the device code computes. The device functions are compiled here as C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "glint_layout.h"
#include "isa/sm90.h"
#include "parts/layouts.h"
#if __has_include("parts/swizzle.h")
#include "parts/swizzle.h"
#endif
#if __has_include("parts/fa3_product.h") /* one variant: keys of a tile and head_dim as in the table's first lines */
#define DTYPE_BF16 1
#define DTYPE      DTYPE_BF16
#define HEAD_DIM   128
#define HEAD_DIM_V 128
#define TILE_K     112
#define ROW_BYTES  128
#include "parts/fa3_product.h"
#endif

static glint_layout_error error;
#define OK(call)                                                                                                                           \
  do {                                                                                                                                     \
    if ((call) != GLINT_OK) fail_msg("%s: %s", #call, error.text);                                                                         \
  } while (0)

static const int tile_rows[] = {16, 32, 64, 80, 96, 112, 128, 144, 176, 192};
enum { ROWS = sizeof tile_rows / sizeof *tile_rows };

static void tile_16(int rows, int columns, glint_layout *l) {
  char text[128];
  snprintf(text, sizeof text, LAYOUT_TILE_16, rows, columns / 64, rows * 64);
  OK(glint_layout_parse(text, l, &error));
}

static int64_t at(const glint_layout *l, int rows, int row, int column) { return glint_layout_at(l, row + (int64_t)rows * column); }

static void check_bijection_and_chunks(const glint_layout *l, int rows, int columns, int chunk) {
  static uint64_t bitmap[192 * 512 / 64];
  assert_int_equal(glint_layout_injective(l, bitmap, sizeof bitmap / sizeof *bitmap), 1);
  assert_int_equal(glint_layout_cosize(l), rows * columns); /* injective into [0, size): one to one */
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) {
      assert_in_range(at(l, rows, r, c), 0, rows * columns - 1);
      assert_int_equal(at(l, rows, r, c), at(l, rows, r, c - c % chunk) + c % chunk);
      assert_int_equal(at(l, rows, r, c - c % chunk) % chunk, 0);
    }
}

/* Every place of a pattern: lane -> coordinate, shifted over the tile in steps of 16 rows and `columns_step` columns. */
static void check_conflict_free(const glint_layout *l, int rows, int columns, const char *lanes, glint_access_kind kind, int bytes,
                                int bits, int rows_step, int columns_step) {
  glint_layout tv;
  glint_bank_report report;
  uint64_t address[32];
  OK(glint_layout_parse(lanes, &tv, &error));
  for (int r = 0; r < rows; r += rows_step)
    for (int c = 0; c < columns; c += columns_step) {
      for (int lane = 0; lane < 32; lane++)
        address[lane] = (uint64_t)(glint_layout_at(l, glint_layout_at(&tv, lane) + r + (int64_t)rows * c) * bits / 8);
      OK(glint_bank_count(kind, bytes, address, ~0u, &report, &error));
      assert_int_equal(report.wavefronts, report.ideal);
    }
}

static void check_fragments(const glint_layout *l, int rows, int columns) {
  char lanes[64];
  snprintf(lanes, sizeof lanes, LAYOUT_FRAGMENT_A, rows * 8);
  check_conflict_free(l, rows, columns, lanes, GLINT_ACCESS_LDMATRIX, 16, 16, 16, 16); /* Q; V with trans; O by stmatrix */
  snprintf(lanes, sizeof lanes, LAYOUT_FRAGMENT_B, rows * 8);
  check_conflict_free(l, rows, columns, lanes, GLINT_ACCESS_LDMATRIX, 16, 16, 16, 16); /* K */
}

static void test_tile_16(void **unused) {
  (void)unused;
  glint_layout l;
  char lanes[64];
  for (int i = 0; i < ROWS; i++)
    for (int columns = 64; columns <= 256; columns += 64) {
      int rows = tile_rows[i];
      tile_16(rows, columns, &l);
      check_bijection_and_chunks(&l, rows, columns, 8);
      check_fragments(&l, rows, columns);
      snprintf(lanes, sizeof lanes, "((8,4)):((%d,1))", rows * 8); /* cp.async: eight lanes a row of a box, four rows a warp */
      check_conflict_free(&l, rows, columns, lanes, GLINT_ACCESS_SHARED, 16, 16, 4, 64);
    }
}

static void test_box_32(void **unused) {
  (void)unused;
  glint_layout l;
  char text[64];
  for (int i = 0; i < ROWS; i++) {
    snprintf(text, sizeof text, LAYOUT_BOX_32, tile_rows[i]);
    OK(glint_layout_parse(text, &l, &error));
    check_bijection_and_chunks(&l, tile_rows[i], 32, 8);
    check_fragments(&l, tile_rows[i], 32);
  }
}

static void test_tile_8(void **unused) {
  (void)unused;
  glint_layout l;
  char text[64], lanes[64];
  for (int i = 0; i < ROWS; i++)
    for (int boxes = 1; boxes <= 2; boxes++) {
      int rows = tile_rows[i];
      snprintf(text, sizeof text, LAYOUT_TILE_8, rows, boxes, rows * 128);
      OK(glint_layout_parse(text, &l, &error));
      check_bijection_and_chunks(&l, rows, boxes * 128, 16);
      snprintf(lanes, sizeof lanes, "((16,2)):((1,%d))", rows * 16);
      check_conflict_free(&l, rows, boxes * 128, lanes, GLINT_ACCESS_LDMATRIX, 16, 8, 16, 32);
    }
}

/* A conflict would be seen: without the swizzle eight rows of a chunk lie in the same four banks. */
static void test_plain_tile_conflicts(void **unused) {
  (void)unused;
  glint_layout l;
  glint_access_total total;
  glint_access access = {.kind = GLINT_ACCESS_LDMATRIX, .element_bits = 16, .bytes = 16};
  glint_layout tv;
  OK(glint_layout_parse("(64,64):(64,1)", &l, &error));
  OK(glint_layout_parse("((16,2)):((1,512))", &tv, &error));
  access.tv = &tv;
  OK(glint_access_count(&l, &access, &total, &error));
  assert_int_equal(total.worst, 8);
  assert_int_equal(total.wavefronts, 32);
}

/* V is read by ldmatrix.trans. That changes which lane receives an element, not what is fetched: V needs the swizzle as much as K. */
static void test_v_is_fetched_like_k(void **unused) {
  (void)unused;
  glint_layout_atom_info k, v;
  OK(glint_layout_atom("ldmatrix.x4", "address", &k, &error));
  OK(glint_layout_atom("ldmatrix.x4.trans", "address", &v, &error));
  assert_int_equal(glint_layout_size(&k.tv), 32 * 8);
  assert_int_equal(glint_layout_size(&v.tv), 32 * 8);
  for (int64_t i = 0; i < 32 * 8; i++) assert_int_equal(glint_layout_at(&k.tv, i), glint_layout_at(&v.tv, i));
}

#ifdef TILE_OFFSET
static void test_tile_offset(void **unused) {
  (void)unused;
  glint_layout l, last;
  char text[64];
  for (int i = 0; i < ROWS; i++)
    for (int columns = 32; columns <= 256; columns += 32) {
      int rows = tile_rows[i], whole = columns / 64 * 64;
      if (whole) tile_16(rows, whole, &l);
      snprintf(text, sizeof text, LAYOUT_BOX_32, rows);
      OK(glint_layout_parse(text, &last, &error));
      for (int r = 0; r < rows; r++)
        for (int chunk = 0; chunk < columns / 8; chunk++) {
          int64_t expected =
              chunk * 8 < whole ? 2 * at(&l, rows, r, chunk * 8) : whole * rows * 2 + 2 * at(&last, rows, r, chunk * 8 - whole);
          assert_int_equal(TILE_OFFSET(rows, columns, r, chunk), expected);
        }
    }
}

/* The addresses of ldmatrix fragments, put together from lane, turn and step. */
static void test_fragment_addresses(void **unused) {
  (void)unused;
  for (int columns = 32; columns <= 256; columns += 32)
    for (int row = 0; row < 64; row += 16)
      for (int step = 0; step < columns / 16; step++)
        for (int lane = 0; lane < 32; lane++) {
          int pitch = BOX_PITCH(columns, step / 4);
          int a =
              (FRAGMENT_LANE(pitch, LANE_ROW_A(lane), LANE_CHUNK_A(lane)) ^ FRAGMENT_TURN(step)) + FRAGMENT_STEP(64, columns, row, step);
          int b =
              (FRAGMENT_LANE(pitch, LANE_ROW_B(lane), LANE_CHUNK_B(lane)) ^ FRAGMENT_TURN(step)) + FRAGMENT_STEP(64, columns, row, step);
          assert_int_equal(a, TILE_OFFSET(64, columns, row + LANE_ROW_A(lane), 2 * step + LANE_CHUNK_A(lane)));
          assert_int_equal(b, TILE_OFFSET(64, columns, row + LANE_ROW_B(lane), 2 * step + LANE_CHUNK_B(lane)));
        }
}
#endif

/* Fields that the hardware does not read may be anything. */
static uint64_t fields_read(const glint_wgmma_descriptor *d) {
  uint64_t mask = ~0ull;
  if (!d->lbo_used) mask &= ~(0x3FFFull << 16);
  if (!d->sbo_used) mask &= ~(0x3FFFull << 32);
  return mask;
}

/* Q and K: K-major, 8 rows 1024 bytes apart, a k16 step 32 bytes in a box and rows * 128 to the next box. */
static void test_descriptors_k_major(void **unused) {
  (void)unused;
  glint_layout l;
  glint_wgmma_descriptor d;
  for (int i = 2; i < ROWS; i++)
    for (int columns = 64; columns <= 256; columns += 64)
      for (int k = 0; k < columns / 16; k++) {
        int rows = tile_rows[i];
        u32 base = 3 * 1024, step = (u32)(k / 4 * rows * 128 + k % 4 * 32);
        tile_16(rows, columns, &l);
        OK(glint_layout_wgmma_descriptor(&l, 16, GLINT_MAJOR_K, rows, 0, 16 * k, base, &d, &error));
        u64 built = wgmma_descriptor(base + step, 16, 1024, 1);
        assert_int_equal(d.bits & fields_read(&d), built & fields_read(&d));
      }
}

/* V: (head_dim, key), MN-major, boxes of 64 columns rows * 128 bytes apart, 8 keys 1024, a k16 step 2048. */
static void test_descriptors_mn_major(void **unused) {
  (void)unused;
  glint_layout l;
  glint_wgmma_descriptor d;
  char text[128];
  for (int i = 0; i < ROWS; i++)
    for (int boxes = 1; boxes <= 4; boxes++) {
      int rows = tile_rows[i];
      snprintf(text, sizeof text, "Sw<3,3,3> o 0 o ((64,%d),%d):((1,%d),64)", boxes, rows, rows * 64);
      OK(glint_layout_parse(text, &l, &error));
      for (int k = 0; k < rows / 16; k++) {
        OK(glint_layout_wgmma_descriptor(&l, 16, GLINT_MAJOR_MN, 64 * boxes, 0, 16 * k, 1024, &d, &error));
        u64 built = wgmma_descriptor((u32)(1024 + k * 2048), (u32)rows * 128, 1024, 1);
        assert_int_equal(d.bits & fields_read(&d), built & fields_read(&d));
        assert_int_equal(d.lbo_used, boxes > 1);
      }
    }
}

#ifdef TILE_K
/* The descriptors of the sm_90 forward kernel, advanced as it advances them: Q (64 rows), K and V. */
static void test_fa3_descriptors(void **unused) {
  (void)unused;
  glint_layout q, k, v;
  glint_wgmma_descriptor d;
  char text[128];
  const u32 base = 5 * 1024;
  tile_16(64, HEAD_DIM, &q);
  tile_16(TILE_K, HEAD_DIM, &k);
  snprintf(text, sizeof text, "Sw<3,3,3> o 0 o ((64,%d),%d):((1,%d),64)", HEAD_DIM_V / 64, TILE_K, TILE_K * 64);
  OK(glint_layout_parse(text, &v, &error));
  for (u32 i = 0; i < HEAD_DIM / 16; i++) {
    OK(glint_layout_wgmma_descriptor(&q, 16, GLINT_MAJOR_K, 64, 0, 16 * i, base, &d, &error));
    assert_int_equal(d.bits & fields_read(&d), advance(k_major(base), k_major_step(i, 64)) & fields_read(&d));
    OK(glint_layout_wgmma_descriptor(&k, 16, GLINT_MAJOR_K, TILE_K, 0, 16 * i, base, &d, &error));
    assert_int_equal(d.bits & fields_read(&d), advance(k_major(base), k_major_step(i, TILE_K)) & fields_read(&d));
  }
  for (u32 i = 0; i < TILE_K / 16; i++) {
    OK(glint_layout_wgmma_descriptor(&v, 16, GLINT_MAJOR_MN, HEAD_DIM_V, 0, 16 * i, base, &d, &error));
    assert_int_equal(d.bits & fields_read(&d), advance(mn_major(base), i * 16 * ROW_BYTES) & fields_read(&d));
  }
}
#endif

static void test_tma_boxes(void **unused) {
  (void)unused;
  glint_layout l;
  glint_tma_box box;
  for (int i = 0; i < ROWS; i++)
    for (int columns = 64; columns <= 256; columns += 64) {
      tile_16(tile_rows[i], columns, &l);
      OK(glint_layout_tma_box(&l, 16, 1, &box, &error));
      assert_int_equal(box.swizzle, 128);
      assert_int_equal(box.box[0], 64);
      assert_int_equal(box.box[1], tile_rows[i]);
      assert_int_equal(box.rank, columns > 64 ? 3 : 2);
      assert_int_equal(box.mode[0], 1);
      assert_int_equal(box.mode[1], 0);
      assert_int_equal(box.bytes, tile_rows[i] * columns * 2);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tile_16),
      cmocka_unit_test(test_box_32),
      cmocka_unit_test(test_tile_8),
      cmocka_unit_test(test_plain_tile_conflicts),
      cmocka_unit_test(test_v_is_fetched_like_k),
#ifdef TILE_OFFSET
      cmocka_unit_test(test_tile_offset),
      cmocka_unit_test(test_fragment_addresses),
#endif
      cmocka_unit_test(test_descriptors_k_major),
      cmocka_unit_test(test_descriptors_mn_major),
#ifdef TILE_K
      cmocka_unit_test(test_fa3_descriptors),
#endif
      cmocka_unit_test(test_tma_boxes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
