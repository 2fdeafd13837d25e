/* Known results of every operation, among them the examples of CuTe's documentation, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "glint_layout.h"

typedef struct operation {
  const char *name, *a, *b, *expected; /* expected: the result, or what the error's text must contain */
} operation;

static const operation table[] = {
    {"coalesce", "(2,(1,6)):(1,(6,2))", NULL, "12:1"},
    {"coalesce", "(2,1,6):(4,7,8)", NULL, "12:4"},
    {"coalesce by mode", "(2,(1,6)):(1,(6,2))", "(1,1)", "(2,6):(1,2)"},
    {"coalesce", "Sw<3,3,3> o 0 o ((4,2),8):((1,4),8)", NULL, "Sw<3,3,3> o 0 o 64:1"},
    {"coalesce by mode", "4:1", "(1,1)", "profile has 2 modes"},
    {"filter", "(2,4,1,3):(0,1,7,4)", NULL, "12:1"},
    {"filter", "(2,4):(0,0)", NULL, "1:0"},
    {"flatten", "((2,3),4):((1,2),6)", NULL, "(2,3,4):(1,2,6)"},
    {"sort", "(2,4,8):(8,1,64)", NULL, "(4,2,8):(1,8,64)"},
    {"compose", "20:2", "(5,4):(4,1)", "(5,4):(8,2)"},
    {"compose", "(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"},
    {"compose", "(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"},
    {"compose", "(12,(4,8)):(59,(13,1))", "<3:4,8:2>", "(3,(2,4)):(236,(26,1))"},
    {"compose", "(12,(4,8)):(59,(13,1))", "(3,8)", "(3,(4,2)):(59,(13,1))"},
    {"compose", "Sw<2,0,3> o 0 o (8,4):(4,1)", "(4,4):(2,8)", "Sw<2,0,3> o 0 o (4,4):(8,1)"},
    {"compose", "(4,6,8):(1,100,7)", "6:3", "does not divide"},
    {"compose", "(4,3):(3,1)", "6:1", "does not divide"},
    {"compose", "(4,3):(1,100)", "(3,2):(1,2)", "beyond the end"},
    {"compose", "4:1", "<2:1,2:1>", "tiler has 2 modes"},
    {"complement", "4:2", "24", "(2,3):(1,8)"},
    {"complement", "4:1", "24", "6:4"},
    {"complement", "(4,6):(1,4)", "24", "1:0"},
    {"complement", "(2,2):(1,6)", "24", "(3,2):(2,12)"},
    {"complement", "4:0", "24", "24:1"},
    {"complement", "(4,4):(1,2)", "24", "overlaps"},
    {"complement", "4:-1", "24", "negative stride"},
    {"right inverse", "(4,8):(8,1)", NULL, "(8,4):(4,1)"},
    {"right inverse", "(2,4,6):(4,1,8)", NULL, "(4,2,6):(2,1,8)"},
    {"right inverse", "4:2", NULL, "1:0"},
    {"right inverse", "(2,4):(0,1)", NULL, "4:2"},
    {"right inverse", "Sw<3,3,3> o 0 o (8,64):(64,1)", NULL, "Sw<3,0,-6> o 0 o (64,8):(8,1)"},
    {"left inverse", "4:2", NULL, "(2,4):(4,1)"},
    {"left inverse", "(4,2):(1,16)", NULL, "(4,4,2):(1,8,4)"},
    {"left inverse", "(2,4):(3,9)", NULL, "no multiple of 6"},
    {"divide", "(4,2,3):(2,1,8)", "4:2", "((2,2),(2,3)):((4,1),(2,8))"},
    {"divide", "(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"},
    {"zipped divide", "(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"},
    {"tiled divide", "(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"},
    {"flat divide", "(9,(4,8)):(59,(13,1))", "<3:3,(2,4):(1,8)>", "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"},
    {"zipped divide", "(8,16):(16,1)", "<_,4>", "((1,4),(8,4)):((0,1),(16,4))"},
    {"product", "(2,2):(4,1)", "6:1", "((2,2),(2,3)):((4,1),(2,8))"},
    {"product", "(2,2):(4,1)", "(4,2):(2,1)", "((2,2),(4,2)):((4,1),(8,2))"},
    {"blocked product", "(2,5):(5,1)", "(3,4):(1,3)", "((2,3),(5,4)):((5,10),(1,30))"},
    {"raked product", "(2,5):(5,1)", "(3,4):(1,3)", "((3,2),(4,5)):((10,5),(30,1))"},
    {"blocked product", "(2,5):(5,1)", "<3,4>", "need a layout"},
    {"tile to shape", "Sw<3,3,3> o 0 o (8,64):(64,1)", "(128,128)", "Sw<3,3,3> o 0 o ((8,16),(64,2)):((64,512),(1,8192))"},
    {"tile to shape", "(8,64):(64,1)", "(12,64)", "do not divide 12"},
    {"recast 16 to 8", "(4,8):(8,1)", NULL, "(4,16):(16,1)"},
    {"recast 8 to 16", "(4,8):(8,1)", NULL, "(4,4):(4,1)"},
    {"recast 16 to 8", "Sw<3,3,3> o 8 o (8,64):(64,1)", NULL, "Sw<3,4,3> o 16 o (8,128):(128,1)"},
    {"recast 8 to 16", "(4,3):(3,1)", NULL, "does not divide"},
    {"recast 16 to 8", "4:2", NULL, "no mode is of stride 1"},
    {"local tile", "(16,32):(32,1)", "(4,8)", "400 + (4,8):(32,1)"},
    {"local partition", "(16,32):(32,1)", "(4,8):(8,1)", "33 + (4,4):(128,8)"},
};

static glint_status parse(const char *name, const operation *o, glint_layout *a, glint_layout *b, glint_layout_error *error) {
  if (glint_layout_parse(o->a, a, error)) fail_msg("%s: %s", o->a, error->text);
  if (!o->b || strcmp(name, "complement") == 0) return GLINT_OK;
  if (strstr(name, "by mode")) return glint_layout_parse_coordinate(o->b, b, error);
  if (strcmp(name, "tile to shape") == 0 || strcmp(name, "local partition") == 0) return glint_layout_parse(o->b, b, error);
  if (strcmp(name, "raked product") == 0) return glint_layout_parse(o->b, b, error);
  return glint_layout_parse_tiler(o->b, b, error);
}

static glint_status apply(const operation *o, glint_layout *r, int64_t *offset, glint_layout_error *error) {
  static const char *const forms[] = {"divide",  "zipped divide",   "tiled divide", "flat divide",
                                      "product", "blocked product", "raked product"};
  static const glint_layout_form form_of[] = {GLINT_LAYOUT_LOGICAL, GLINT_LAYOUT_ZIPPED,  GLINT_LAYOUT_TILED, GLINT_LAYOUT_FLAT,
                                              GLINT_LAYOUT_LOGICAL, GLINT_LAYOUT_BLOCKED, GLINT_LAYOUT_RAKED};
  glint_layout a, b, tile;
  long long number = 0;
  glint_status status = parse(o->name, o, &a, &b, error);
  if (status) return status;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (strcmp(o->name, forms[i]) == 0)
      return i < 4 ? glint_layout_divide(&a, &b, form_of[i], r, error) : glint_layout_product(&a, &b, form_of[i], r, error);
  if (strncmp(o->name, "coalesce", 8) == 0) return glint_layout_coalesce(&a, o->b ? &b : NULL, r, error);
  if (strcmp(o->name, "filter") == 0) return glint_layout_filter(&a, NULL, r, error);
  if (strcmp(o->name, "flatten") == 0) return glint_layout_flatten(&a, r, error);
  if (strcmp(o->name, "sort") == 0) return glint_layout_sort(&a, r, error);
  if (strcmp(o->name, "compose") == 0) return glint_layout_compose(&a, &b, r, error);
  if (strcmp(o->name, "complement") == 0) {
    sscanf(o->b, "%lld", &number);
    return glint_layout_complement(&a, number, r, error);
  }
  if (strcmp(o->name, "right inverse") == 0) return glint_layout_right_inverse(&a, r, error);
  if (strcmp(o->name, "left inverse") == 0) return glint_layout_left_inverse(&a, r, error);
  if (strcmp(o->name, "tile to shape") == 0) return glint_layout_tile_to_shape(&a, &b, NULL, r, error);
  if (strcmp(o->name, "recast 16 to 8") == 0) return glint_layout_recast(&a, 16, 8, r, error);
  if (strcmp(o->name, "recast 8 to 16") == 0) return glint_layout_recast(&a, 8, 16, r, error);
  if (strcmp(o->name, "local tile") == 0) {
    if (glint_layout_parse_coordinate("(3,2)", &tile, error)) return GLINT_ERROR_INTERNAL;
    return glint_layout_local_tile(&a, &b, &tile, r, offset, error);
  }
  if (strcmp(o->name, "local partition") == 0) return glint_layout_local_partition(&a, &b, 9, r, offset, error);
  fail_msg("no operation %s", o->name);
  return GLINT_ERROR_INTERNAL;
}

static void test_results(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const operation *o = &table[i];
    glint_layout r;
    glint_layout_error error = {{0}};
    int64_t offset = 0;
    char text[512];
    size_t length = 0;
    glint_status status = apply(o, &r, &offset, &error);
    if (!status) {
      if (strncmp(o->name, "local", 5) == 0) length = (size_t)snprintf(text, sizeof text, "%lld + ", (long long)offset);
      glint_layout_format(&r, text + length, sizeof text - length);
    }
    if (status ? !strstr(error.text, o->expected) : strcmp(text, o->expected) != 0)
      fail_msg("%s %s %s: %s, expected %s", o->name, o->a, o->b ? o->b : "", status ? error.text : text, o->expected);
  }
}

static void test_text(void **unused) {
  (void)unused;
  static const char *const good[][2] = {{" ( (2, 4) ,8 ) : ((1,16),2) ", "((2,4),8):((1,16),2)"},
                                        {"(_4,_8):(_8,_1)", "(4,8):(8,1)"},
                                        {"(4,(2,3))", "(4,(2,3)):(1,(4,8))"},
                                        {"(8,):(2,)", "(8):(2)"},
                                        {"Swizzle<3,4,3> o 0 o 8:1", "Sw<3,4,3> o 0 o 8:1"},
                                        {"Sw<0,4,3> o 0 o 8:1", "8:1"},
                                        {"Sw<2,0,-3>o 5 o 8:-1", "Sw<2,0,-3> o 5 o 8:-1"}};
  static const char *const bad[][2] = {{"", "an integer at character 1"},
                                       {"(4,8", "\")\""},
                                       {"(4,8):(8)", "parentheses differ"},
                                       {"(4,8):8", "parentheses differ"},
                                       {"(4,0):(8,1)", "at least 1"},
                                       {"-4:1", "at least 1"},
                                       {"4:1 x", "the end"},
                                       {"()", "an integer"},
                                       {"_:1", "an integer"},
                                       {"Sw<3,3,2> o 0 o 8:1", "0 <= B <= |S|"},
                                       {"Sw<3,3> o 0 o 8:1", "\",\""},
                                       {"Sw<3,3,3> o 8:1", "\"o\""},
                                       {"99999999999999999999:1", "below 2^48"},
                                       {"(16777216,16777216):(1,1)", "2^48"},
                                       {"((((((((((((((((((2))))))))))))))))))", "16 levels"}};
  glint_layout l;
  glint_layout_error error;
  char text[256];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    if (glint_layout_parse(good[i][0], &l, &error)) fail_msg("%s: %s", good[i][0], error.text);
    glint_layout_format(&l, text, sizeof text);
    assert_string_equal(text, good[i][1]);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (!glint_layout_parse(bad[i][0], &l, &error)) fail_msg("\"%s\" is read", bad[i][0]);
    if (!strstr(error.text, bad[i][1])) fail_msg("\"%s\": \"%s\" does not say \"%s\"", bad[i][0], error.text, bad[i][1]);
  }
  assert_int_equal(glint_layout_parse("(4,8", &l, NULL), GLINT_ERROR_INVALID_ARGUMENT); /* no error wanted */
}

static void test_questions(void **unused) {
  (void)unused;
  glint_layout l, c;
  glint_layout_error error;
  int64_t offset;
  char text[64];
  uint64_t bitmap[4];
  assert_int_equal(glint_layout_parse("((2,4),8):((1,16),2)", &l, &error), GLINT_OK);
  assert_int_equal(glint_layout_size(&l), 64);
  assert_int_equal(glint_layout_cosize(&l), 64);
  assert_int_equal(glint_layout_rank(&l), 2);
  assert_int_equal(glint_layout_depth(&l), 2);
  assert_int_equal(glint_layout_injective(&l, bitmap, 1), 1);
  assert_int_equal(glint_layout_at(&l, 3), 17);
  assert_int_equal(glint_layout_coordinate(&l, 27, &c, &error), GLINT_OK);
  glint_layout_format_shape(&c, text, sizeof text);
  assert_string_equal(text, "((1,1),3)");
  assert_int_equal(glint_layout_at_coordinate(&l, &c, &offset, &error), GLINT_OK);
  assert_int_equal(offset, glint_layout_at(&l, 27));
  assert_int_equal(glint_layout_coordinate(&l, 64, &c, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_layout_parse_coordinate("(1,2,3)", &c, &error), GLINT_OK);
  assert_int_equal(glint_layout_at_coordinate(&l, &c, &offset, &error), GLINT_ERROR_INVALID_ARGUMENT);
  assert_int_equal(glint_layout_parse_coordinate("((_,2),_)", &c, &error), GLINT_OK);
  assert_int_equal(glint_layout_slice(&l, &c, &l, &offset, &error), GLINT_OK);
  glint_layout_format(&l, text, sizeof text);
  assert_string_equal(text, "(2,8):(1,2)");
  assert_int_equal(offset, 32);
  glint_layout_leaf(4, 0, &l);
  assert_int_equal(glint_layout_injective(&l, bitmap, 4), 0);
  glint_layout_leaf(400, 1, &l);
  assert_int_equal(glint_layout_injective(&l, bitmap, 4), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_text), cmocka_unit_test(test_questions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
