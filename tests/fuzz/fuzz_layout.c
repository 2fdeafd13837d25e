/* Fuzz target: the text forms of layouts, tilers and coordinates, one a line, and every operation on what they say. */
#include "fuzz.h"
#include "glint_layout.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 1 << 12 }; /* coordinates that are walked through */

static void round_trip(const glint_layout *l, glint_status (*parse)(const char *, glint_layout *, glint_layout_error *)) {
  char text[8192];
  glint_layout again;
  FUZZ_REQUIRE(glint_layout_format(l, text, sizeof text) < sizeof text);
  FUZZ_REQUIRE(parse(text, &again, NULL) == GLINT_OK && glint_layout_equal(l, &again));
}

static void one_layout(const glint_layout *l) {
  static uint64_t bitmap[1 << 10];
  glint_layout r;
  glint_tma_box box;
  glint_wgmma_descriptor d;
  glint_layout_error error;
  int64_t size = glint_layout_size(l);
  round_trip(l, glint_layout_parse);
  FUZZ_REQUIRE(glint_layout_coalesce(l, NULL, &r, &error) == GLINT_OK && glint_layout_size(&r) == size);
  for (int64_t i = 0; i < size && i < SMALL; i++) FUZZ_REQUIRE(glint_layout_at(l, i) == glint_layout_at(&r, i));
  glint_layout_filter(l, NULL, &r, &error);
  glint_layout_sort(l, &r, &error);
  glint_layout_left_inverse(l, &r, &error);
  if (glint_layout_right_inverse(l, &r, &error) == GLINT_OK)
    for (int64_t i = 0; i < glint_layout_size(&r) && i < SMALL; i++) FUZZ_REQUIRE(glint_layout_at(l, glint_layout_at(&r, i)) == i);
  glint_layout_injective(l, bitmap, sizeof bitmap / sizeof *bitmap);
  for (int32_t bits = 8; bits <= 64; bits *= 2) {
    glint_layout_recast(l, 16, bits, &r, &error);
    glint_layout_tma_box(l, bits, 1, &box, &error);
    glint_layout_wgmma_descriptor(l, bits, GLINT_MAJOR_K, 64, 0, 0, 0, &d, &error);
  }
  glint_layout_wgmma_descriptor(l, 16, GLINT_MAJOR_MN, 64, 0, 0, 0, &d, &error);
}

static void two_layouts(const glint_layout *a, const glint_layout *b) {
  glint_layout r;
  glint_layout_error error;
  int64_t n, offset;
  if (glint_layout_compose(a, b, &r, &error) == GLINT_OK && b->node[0].kind < GLINT_LAYOUT_TILER) {
    FUZZ_REQUIRE(glint_layout_size(&r) == glint_layout_size(b));
    int64_t beyond = glint_layout_cosize(b) < GLINT_LAYOUT_MAX_SIZE / 4; /* offsets that stay exact */
    for (int64_t i = 0; beyond && i < glint_layout_size(b) && i < SMALL; i++) {
      int64_t at = glint_layout_at(b, i);
      if (at >= 0 && at < glint_layout_size(a)) FUZZ_REQUIRE(glint_layout_at(&r, i) == glint_layout_at(a, at));
    }
  }
  for (int form = GLINT_LAYOUT_LOGICAL; form <= GLINT_LAYOUT_RAKED; form++) {
    glint_layout_divide(a, b, (glint_layout_form)form, &r, &error);
    glint_layout_product(a, b, (glint_layout_form)form, &r, &error);
  }
  if (b->node[0].kind >= GLINT_LAYOUT_TILER) return;
  glint_layout_complement(b, glint_layout_size(a), &r, &error);
  glint_layout_max_common_vector(a, b, &n, &error);
  glint_layout_tile_to_shape(a, b, NULL, &r, &error);
  glint_layout_local_partition(a, b, 1, &r, &offset, &error);
}

static void access_patterns(const glint_layout *l, const glint_layout *tv) {
  glint_access_total total;
  glint_layout_error error;
  if (glint_layout_size(l) > SMALL || glint_layout_size(tv) > SMALL) return;
  for (int32_t bytes = 2; bytes <= 16; bytes *= 2) {
    glint_access access = {GLINT_ACCESS_SHARED, 16, bytes, tv, 0};
    if (glint_access_count(l, &access, &total, &error) == GLINT_OK) FUZZ_REQUIRE(total.wavefronts >= total.ideal);
    access.kind = GLINT_ACCESS_GLOBAL;
    glint_access_count(l, &access, &total, &error);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1), *line[3] = {NULL, NULL, NULL};
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  line[0] = text;
  for (int i = 1; i < 3 && line[i - 1]; i++) {
    line[i] = strchr(line[i - 1], '\n');
    if (line[i]) *line[i]++ = '\0';
  }
  glint_layout a, b, c, out;
  glint_layout_error error = {{0}};
  int64_t offset;
  int has_a = glint_layout_parse(line[0], &a, &error) == GLINT_OK;
  FUZZ_REQUIRE(has_a || error.text[0] != '\0');
  int has_b = line[1] && glint_layout_parse_tiler(line[1], &b, &error) == GLINT_OK;
  int has_c = line[2] && glint_layout_parse_coordinate(line[2], &c, &error) == GLINT_OK;
  if (has_a) one_layout(&a);
  if (has_b) round_trip(&b, glint_layout_parse_tiler);
  if (has_a && has_b) {
    two_layouts(&a, &b);
    if (b.node[0].kind < GLINT_LAYOUT_TILER) access_patterns(&a, &b);
  }
  if (has_a && has_c) {
    glint_layout_at_coordinate(&a, &c, &offset, &error);
    glint_layout_slice(&a, &c, &out, &offset, &error);
    glint_layout_coalesce(&a, &c, &out, &error);
    if (has_b) glint_layout_local_tile(&a, &b, &c, &out, &offset, &error);
  }
  free(text);
  return 0;
}
