/* glint layout: the verbs of the algebra, each a thin layer over one function of glint_layout.h. */
#include <string.h>

#include "layout_tool.h"

enum { JSON_OFFSETS = 1 << 16 }; /* layouts up to this size are listed */

static glint_status give(layout_call *call, glint_status status) {
  call->has_result = !status;
  return status;
}

static glint_status show(layout_call *call) {
  glint_status status = layout_argument(call, 0, &call->result);
  if (status) return status;
  char shape[LAYOUT_TEXT_SIZE];
  glint_layout_format_shape(&call->result, shape, sizeof shape);
  layout_say(call, "shape", "%s", shape);
  layout_say_number(call, "size", glint_layout_size(&call->result));
  layout_say_number(call, "cosize", glint_layout_cosize(&call->result));
  layout_say_number(call, "rank", glint_layout_rank(&call->result));
  layout_say_number(call, "depth", glint_layout_depth(&call->result));
  if (call->output == LAYOUT_JSON && glint_layout_size(&call->result) <= JSON_OFFSETS) {
    cJSON *list = cJSON_AddArrayToObject(call->json, "offsets"); /* in the order of integer coordinates */
    for (int64_t i = 0; i < glint_layout_size(&call->result); i++)
      cJSON_AddItemToArray(list, cJSON_CreateNumber((double)glint_layout_at(&call->result, i)));
  }
  if (call->output == LAYOUT_TEXT && glint_layout_rank(&call->result) <= 2) status = layout_show(call);
  return give(call, status);
}

static glint_status eval(layout_call *call) {
  glint_layout layout, coordinate;
  int64_t offset;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status && call->argument_count < 2) status = layout_refuse(call, "a coordinate is missing");
  cJSON *list = call->output == LAYOUT_JSON ? cJSON_AddArrayToObject(call->json, "offsets") : NULL;
  for (int i = 1; !status && i < call->argument_count; i++) {
    status = glint_layout_parse_coordinate(call->argument[i], &coordinate, &call->error);
    if (!status) status = glint_layout_at_coordinate(&layout, &coordinate, &offset, &call->error);
    if (status) break;
    if (list)
      cJSON_AddItemToArray(list, cJSON_CreateNumber((double)offset));
    else
      fprintf(call->to, "%lld\n", (long long)offset);
  }
  return status;
}

static glint_status compose(layout_call *call) {
  glint_layout a, b;
  glint_status status = layout_argument(call, 0, &a);
  if (status) return status;
  /* a swizzled right operand is a layout, no tiler */
  if (call->argument_count > 1 && strchr(call->argument[1], 'o'))
    status = layout_argument(call, 1, &b);
  else
    status = layout_tiler_argument(call, 1, &b);
  return give(call, status ? status : glint_layout_compose(&a, &b, &call->result, &call->error));
}

static glint_status complement(layout_call *call) {
  glint_layout layout;
  long long cotarget = 0;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status && call->argument_count > 1)
    status = layout_integer_argument(call, 1, "the cotarget", 1, GLINT_LAYOUT_MAX_SIZE - 1, &cotarget);
  return give(call, status ? status : glint_layout_complement(&layout, cotarget, &call->result, &call->error));
}

static glint_status divide(layout_call *call) {
  glint_layout layout, tiler;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status) status = layout_tiler_argument(call, 1, &tiler);
  return give(call, status ? status : glint_layout_divide(&layout, &tiler, call->form, &call->result, &call->error));
}

static glint_status product(layout_call *call) {
  glint_layout block, tiler;
  glint_status status = layout_argument(call, 0, &block);
  /* blocked and raked products take a layout, so that a bare shape means its compact layout */
  if (!status && call->form >= GLINT_LAYOUT_BLOCKED)
    status = layout_argument(call, 1, &tiler);
  else if (!status)
    status = layout_tiler_argument(call, 1, &tiler);
  return give(call, status ? status : glint_layout_product(&block, &tiler, call->form, &call->result, &call->error));
}

static glint_status inverse(layout_call *call) {
  glint_layout layout;
  glint_status status = layout_argument(call, 0, &layout);
  if (status) return status;
  if (call->left) return give(call, glint_layout_left_inverse(&layout, &call->result, &call->error));
  return give(call, glint_layout_right_inverse(&layout, &call->result, &call->error));
}

static glint_status with_profile(layout_call *call, glint_status (*operation)(const glint_layout *, const glint_layout *, glint_layout *,
                                                                              glint_layout_error *)) {
  glint_layout layout, profile;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status && call->profile) status = glint_layout_parse_coordinate(call->profile, &profile, &call->error);
  return give(call, status ? status : operation(&layout, call->profile ? &profile : NULL, &call->result, &call->error));
}

static glint_status coalesce(layout_call *call) { return with_profile(call, glint_layout_coalesce); }
static glint_status filter(layout_call *call) { return with_profile(call, glint_layout_filter); }

static glint_status flatten(layout_call *call) {
  glint_layout layout;
  glint_status status = layout_argument(call, 0, &layout);
  return give(call, status ? status : glint_layout_flatten(&layout, &call->result, &call->error));
}

static glint_status sort(layout_call *call) {
  glint_layout layout;
  glint_status status = layout_argument(call, 0, &layout);
  return give(call, status ? status : glint_layout_sort(&layout, &call->result, &call->error));
}

static glint_status vector(layout_call *call) {
  glint_layout a, b;
  int64_t n = 0;
  glint_status status = layout_argument(call, 0, &a);
  if (!status) status = layout_argument(call, 1, &b);
  if (!status) status = glint_layout_max_common_vector(&a, &b, &n, &call->error);
  if (status) return status;
  layout_say_number(call, "elements", n);
  return GLINT_OK;
}

static glint_status recast(layout_call *call) {
  glint_layout layout;
  long long from = 0, to = 0;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status) status = layout_integer_argument(call, 1, "the old width in bits", 1, 4096, &from);
  if (!status) status = layout_integer_argument(call, 2, "the new width in bits", 1, 4096, &to);
  return give(call, status ? status : glint_layout_recast(&layout, (int32_t)from, (int32_t)to, &call->result, &call->error));
}

static glint_status tile(layout_call *call) {
  glint_layout block, shape, order;
  glint_status status = layout_argument(call, 0, &block);
  if (!status) status = layout_argument(call, 1, &shape);
  int ordered = call->argument_count > 2;
  if (!status && ordered) status = glint_layout_parse_coordinate(call->argument[2], &order, &call->error);
  return give(call, status ? status : glint_layout_tile_to_shape(&block, &shape, ordered ? &order : NULL, &call->result, &call->error));
}

static glint_status coordinate_argument(layout_call *call, int i, glint_layout *coordinate) {
  if (i >= call->argument_count) return layout_refuse(call, "a coordinate is missing");
  return glint_layout_parse_coordinate(call->argument[i], coordinate, &call->error);
}

static glint_status local_tile(layout_call *call) {
  glint_layout layout, tiler, coordinate;
  int64_t offset = 0;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status) status = layout_tiler_argument(call, 1, &tiler);
  if (!status) status = coordinate_argument(call, 2, &coordinate);
  if (!status) status = glint_layout_local_tile(&layout, &tiler, &coordinate, &call->result, &offset, &call->error);
  if (!status) layout_say_number(call, "offset", offset);
  return give(call, status);
}

static glint_status local_partition(layout_call *call) {
  glint_layout layout, threads;
  long long index = 0;
  int64_t offset = 0;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status) status = layout_argument(call, 1, &threads);
  if (!status) status = layout_integer_argument(call, 2, "the thread", 0, GLINT_LAYOUT_MAX_SIZE - 1, &index);
  if (!status) status = glint_layout_local_partition(&layout, &threads, index, &call->result, &offset, &call->error);
  if (!status) layout_say_number(call, "offset", offset);
  return give(call, status);
}

static glint_status slice(layout_call *call) {
  glint_layout layout, coordinate;
  int64_t offset = 0;
  glint_status status = layout_argument(call, 0, &layout);
  if (!status) status = coordinate_argument(call, 1, &coordinate);
  if (!status) status = glint_layout_slice(&layout, &coordinate, &call->result, &offset, &call->error);
  if (!status) layout_say_number(call, "offset", offset);
  return give(call, status);
}

layout_body layout_find_algebra(const char *verb) {
  static const struct {
    const char *name;
    layout_body body;
  } bodies[] = {{"show", show},
                {"eval", eval},
                {"compose", compose},
                {"complement", complement},
                {"divide", divide},
                {"product", product},
                {"inverse", inverse},
                {"coalesce", coalesce},
                {"filter", filter},
                {"flatten", flatten},
                {"sort", sort},
                {"vector", vector},
                {"recast", recast},
                {"tile", tile},
                {"local-tile", local_tile},
                {"local-partition", local_partition},
                {"slice", slice}};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    if (strcmp(bodies[i].name, verb) == 0) return bodies[i].body;
  return NULL;
}
