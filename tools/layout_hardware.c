/* glint layout: what layouts do to the hardware: banks and sectors, wgmma descriptors and TMA boxes, and the lane maps of instructions. */
#include <stdlib.h>
#include <string.h>

#include "layout_tool.h"

/* ---- banks -------------------------------------------------------------------------------------------------------------------- */

typedef struct banks_call {
  glint_layout layout, tv;
  glint_access access;
  const char *name;
} banks_call;

/* The instruction's kind and bytes a lane; for ldmatrix the number of lanes that give an address. */
static glint_status parse_access(layout_call *call, banks_call *b, int *lanes) {
  const char *name = b->name;
  static const struct {
    const char *name;
    int bytes;
  } widths[] = {{".8", 1}, {".16", 2}, {".32", 4}, {".64", 8}, {".128", 16}};
  *lanes = 32;
  if (strncmp(name, "ldmatrix.x", 10) == 0 || strncmp(name, "stmatrix.x", 10) == 0) {
    char count = name[10];
    if ((count == '1' || count == '2' || count == '4') && (name[11] == '\0' || strcmp(name + 11, ".trans") == 0)) {
      b->access.kind = GLINT_ACCESS_LDMATRIX;
      b->access.bytes = 16;
      *lanes = 8 * (count - '0');
      return GLINT_OK;
    }
  } else if (strncmp(name, "cp.async.", 9) == 0) {
    b->access.bytes = atoi(name + 9);
    if (b->access.bytes == 4 || b->access.bytes == 8 || b->access.bytes == 16) return GLINT_OK;
  } else if (strncmp(name, "ld", 2) == 0 || strncmp(name, "st", 2) == 0) {
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
      if (strcmp(name + 2, widths[i].name) == 0) {
        b->access.bytes = widths[i].bytes;
        return GLINT_OK;
      }
  }
  return layout_refuse(
      call, "--access is '%.40s', expected ld.8 to ld.128, st.8 to st.128, cp.async.4, .8, .16, ldmatrix.x1, .x2, .x4 or stmatrix", name);
}

static glint_status read_banks_call(layout_call *call, banks_call *b) {
  int lanes;
  b->name = call->access ? call->access : "ld.32";
  b->access = (glint_access){.kind = GLINT_ACCESS_SHARED, .element_bits = call->element_bits ? call->element_bits : 16};
  b->access.base = (uint64_t)call->base;
  glint_status status = layout_argument(call, 0, &b->layout);
  if (!status) status = parse_access(call, b, &lanes);
  if (!status && call->global) {
    if (b->access.kind == GLINT_ACCESS_LDMATRIX) return layout_refuse(call, "ldmatrix and stmatrix have no global form");
    b->access.kind = GLINT_ACCESS_GLOBAL;
  }
  if (!status && call->tv) {
    status = glint_layout_parse(call->tv, &b->tv, &call->error);
    b->access.tv = &b->tv;
  }
  if (status) return status;
  glint_layout mode;
  const glint_layout *tv = call->tv ? &b->tv : &b->layout;
  status = glint_layout_mode(tv, 0, &mode, &call->error);
  if (!status && b->access.kind == GLINT_ACCESS_LDMATRIX && glint_layout_size(&mode) != lanes)
    return layout_refuse(call, "%s takes %d row addresses, the map has %lld lanes", b->name, lanes, (long long)glint_layout_size(&mode));
  return status;
}

/* The lanes that want a word of this bank, as "0 4-7". */
static void lanes_of_bank(const uint64_t *address, uint32_t lanes, int bytes, int bank, char text[128]) {
  int length = 0, first = -1;
  text[0] = '\0';
  for (int lane = 0; lane <= 32; lane++) {
    int hit = 0;
    if (lane < 32 && (lanes >> lane & 1))
      for (int k = 0; k < (bytes + 3) / 4; k++) hit |= (int)((address[lane] / 4 + (uint64_t)k) % 32) == bank;
    if (hit && first < 0) first = lane;
    if (hit || first < 0) continue;
    if (length < 112)
      length += lane - 1 > first ? snprintf(text + length, 16, "%s%d-%d", length ? " " : "", first, lane - 1)
                                 : snprintf(text + length, 16, "%s%d", length ? " " : "", first);
    first = -1;
  }
}

/* Neighbouring banks with the same lanes and the same number of words are one line. */
static void say_phase(layout_call *call, const banks_call *b, const glint_bank_report *r, const uint64_t *address, int i) {
  const glint_bank_phase *phase = &r->phase[i];
  char key[32], lanes[128], next[128];
  if (!phase->lanes) return;
  for (int bank = 0; bank < 32;) {
    int end = bank + 1;
    lanes_of_bank(address, phase->lanes, b->access.bytes, bank, lanes);
    for (; end < 32 && phase->words[end] == phase->words[bank]; end++) {
      lanes_of_bank(address, phase->lanes, b->access.bytes, end, next);
      if (strcmp(lanes, next) != 0) break;
    }
    if (end - bank > 1)
      snprintf(key, sizeof key, "  banks %d-%d", bank, end - 1);
    else
      snprintf(key, sizeof key, "  bank %d", bank);
    if (phase->words[bank])
      fprintf(call->to, "%-15s %d word%s, lanes %s\n", key, phase->words[bank], phase->words[bank] > 1 ? "s" : "", lanes);
    bank = end;
  }
}

static void json_instruction(layout_call *call, const glint_bank_report *r, const uint64_t *address, uint32_t active) {
  cJSON *list = cJSON_AddArrayToObject(call->json, "addresses"), *phases = cJSON_AddArrayToObject(call->json, "phases");
  for (int lane = 0; lane < 32; lane++)
    cJSON_AddItemToArray(list, (active >> lane & 1) ? cJSON_CreateNumber((double)address[lane]) : cJSON_CreateNull());
  for (int i = 0; i < r->phase_count; i++) {
    cJSON *phase = cJSON_CreateObject(), *words;
    cJSON_AddItemToArray(phases, phase);
    cJSON_AddNumberToObject(phase, "degree", r->phase[i].degree);
    words = cJSON_AddArrayToObject(phase, "words");
    for (int bank = 0; bank < 32; bank++) cJSON_AddItemToArray(words, cJSON_CreateNumber(r->phase[i].words[bank]));
  }
}

static glint_status say_instruction(layout_call *call, const banks_call *b, int64_t i) {
  glint_bank_report r;
  uint64_t address[32];
  uint32_t active;
  glint_status status = glint_access_report(&b->layout, &b->access, i, &r, address, &active, &call->error);
  if (status) return status;
  layout_say_number(call, "instruction", i);
  if (call->output == LAYOUT_JSON) json_instruction(call, &r, address, active);
  for (int k = 0; call->output == LAYOUT_TEXT && k < r.phase_count; k++) {
    if (!r.phase[k].lanes) continue;
    fprintf(call->to, " phase %d: lanes %d-%d, %d wavefront%s\n", k, __builtin_ctz(r.phase[k].lanes), 31 - __builtin_clz(r.phase[k].lanes),
            r.phase[k].degree, r.phase[k].degree > 1 ? "s" : "");
    say_phase(call, b, &r, address, k);
  }
  return GLINT_OK;
}

/* The first instruction with the most wavefronts (or sectors). */
static glint_status find_worst(layout_call *call, const banks_call *b, int64_t instructions, int64_t *worst) {
  glint_bank_report r;
  int most = -1;
  for (int64_t i = 0; i < instructions; i++) {
    glint_status status = glint_access_report(&b->layout, &b->access, i, &r, NULL, NULL, &call->error);
    if (status) return status;
    if (r.wavefronts + r.sectors > most) {
      most = r.wavefronts + r.sectors;
      *worst = i;
    }
  }
  return GLINT_OK;
}

/* Both repairs; the swizzle, where there is one, becomes the result. */
static glint_status repair(layout_call *call, const banks_call *b) {
  glint_layout swizzled, padded;
  int64_t row, pad;
  int vector = call->vector_bytes ? call->vector_bytes : b->access.bytes;
  glint_status s = glint_access_fix_swizzle(&b->layout, &b->access, 1, vector, &swizzled, &call->error);
  if (s && s != GLINT_ERROR_NOT_FOUND) return s;
  if (s)
    layout_say(call, "swizzle", "%s", call->error.text);
  else
    layout_say_layout(call, "swizzle", &swizzled);
  glint_status p = glint_access_fix_padding(&b->layout, &b->access, 1, vector, &padded, &row, &pad, &call->error);
  if (p && p != GLINT_ERROR_NOT_FOUND) return p;
  if (p)
    layout_say(call, "padding", "%s", call->error.text);
  else
    layout_say_layout(call, "padding", &padded);
  if (!p) layout_say(call, "", "(%lld elements after every %lld)", (long long)pad, (long long)row);
  if (!s)
    call->result = swizzled;
  else if (!p)
    call->result = padded;
  return s && p ? layout_refuse(call, "neither a swizzle nor padding removes the conflicts") : GLINT_OK;
}

static glint_status banks(layout_call *call) {
  banks_call b;
  glint_access_total total;
  int64_t shown = call->instruction;
  glint_status status = read_banks_call(call, &b);
  if (!status) status = glint_access_count(&b.layout, &b.access, &total, &call->error);
  if (status) return status;
  if (call->output == LAYOUT_SVG)
    return layout_refuse(call, "banks has text and JSON; the picture with banks is `show --format svg --element BITS`");
  layout_say(call, "access", "%s, %d bytes a lane, %d-bit elements", b.name, b.access.bytes, b.access.element_bits);
  if (!call->global) {
    if (shown < 0) status = find_worst(call, &b, total.instructions, &shown);
    if (!status) status = say_instruction(call, &b, shown);
    if (status) return status;
  }
  layout_say_number(call, "instructions", total.instructions);
  if (call->global) {
    layout_say_number(call, "sectors", total.sectors);
    layout_say_number(call, "needed", total.needed_sectors);
    layout_say_number(call, "transactions", total.lines);
  } else {
    layout_say_number(call, "wavefronts", total.wavefronts);
    layout_say_number(call, "ideal", total.ideal);
    layout_say_number(call, "conflicts", total.wavefronts - total.ideal);
    layout_say(call, "worst", "%d-way", total.worst);
  }
  call->result = b.layout;
  call->has_result = 1;
  return call->fix ? repair(call, &b) : GLINT_OK;
}

/* ---- descriptor ----------------------------------------------------------------------------------------------------------------- */

typedef struct descriptor_call {
  glint_layout layout;
  int bits;
  glint_major major;
  int64_t rows, columns, mn, mn0, k0;
} descriptor_call;

static glint_status read_descriptor_call(layout_call *call, descriptor_call *d) {
  glint_layout mode, at;
  d->bits = call->element_bits ? call->element_bits : 16;
  glint_status status = layout_argument(call, 0, &d->layout);
  if (!status && glint_layout_rank(&d->layout) != 2)
    status = layout_refuse(call, "the layout has %d modes, expected (mn, k)", glint_layout_rank(&d->layout));
  if (!status) status = glint_layout_mode(&d->layout, 0, &mode, &call->error);
  if (status) return status;
  d->rows = glint_layout_size(&mode);
  d->columns = glint_layout_size(&d->layout) / d->rows;
  d->mn = call->rows > 0 ? call->rows : d->rows < 64 ? d->rows : 64;
  if (call->at) {
    status = glint_layout_parse_coordinate(call->at, &at, &call->error);
    if (status) return status;
    if (at.count != 3 || at.node[1].kind != GLINT_LAYOUT_MODE || at.node[2].kind != GLINT_LAYOUT_MODE)
      return layout_refuse(call, "--at is '%.40s', expected (MN,K)", call->at);
    d->mn0 = at.node[1].shape;
    d->k0 = at.node[2].shape;
  }
  if (call->major && strcmp(call->major, "k") == 0)
    d->major = GLINT_MAJOR_K;
  else if (call->major && strcmp(call->major, "mn") == 0)
    d->major = GLINT_MAJOR_MN;
  else if (call->major)
    return layout_refuse(call, "--major is '%.20s', expected k or mn", call->major);
  else
    d->major = d->rows > 1 && glint_layout_at(&d->layout, 1) - glint_layout_at(&d->layout, 0) == 1 ? GLINT_MAJOR_MN : GLINT_MAJOR_K;
  return GLINT_OK;
}

/* For programs a number, null where the hardware does not read the field. */
static void say_field(layout_call *call, const char *key, long long bytes, int used) {
  if (call->output == LAYOUT_JSON)
    cJSON_AddItemToObject(call->json, key, used ? cJSON_CreateNumber((double)bytes) : cJSON_CreateNull());
  else if (used)
    layout_say(call, key, "%lld bytes", bytes);
  else
    layout_say(call, key, "not read");
}

static glint_status say_descriptor(layout_call *call, const descriptor_call *d, glint_wgmma_descriptor *w) {
  glint_status status =
      glint_layout_wgmma_descriptor(&d->layout, d->bits, d->major, d->mn, d->mn0, d->k0, (uint64_t)call->base, w, &call->error);
  if (status) return status;
  layout_say(call, "operand", "%lld x %d at (%lld,%lld), %s-major, %d-bit elements", (long long)d->mn, 256 / d->bits, (long long)d->mn0,
             (long long)d->k0, d->major == GLINT_MAJOR_K ? "K" : "MN", d->bits);
  say_field(call, "start", w->start, 1);
  say_field(call, "LBO", w->lbo, w->lbo_used);
  say_field(call, "SBO", w->sbo, w->sbo_used);
  if (call->output == LAYOUT_JSON)
    cJSON_AddNumberToObject(call->json, "swizzle", w->swizzle);
  else if (w->swizzle)
    layout_say(call, "mode", "%d-byte swizzle", w->swizzle);
  else
    layout_say(call, "mode", "no swizzle");
  layout_say_number(call, "base offset", w->base_offset);
  return GLINT_OK;
}

/* Where the next operands along k start, relative to this one. */
static void say_steps(layout_call *call, const descriptor_call *d, uint32_t start) {
  char text[512];
  int length = 0;
  glint_layout_error reason;
  for (int64_t k = d->k0 + 256 / d->bits; k + 256 / d->bits <= d->columns && length < 480; k += 256 / d->bits) {
    glint_wgmma_descriptor w;
    if (glint_layout_wgmma_descriptor(&d->layout, d->bits, d->major, d->mn, d->mn0, k, (uint64_t)call->base, &w, &reason)) break;
    length += snprintf(text + length, sizeof text - (size_t)length, "%s%+lld", length ? " " : "", (long long)w.start - (long long)start);
  }
  if (length) layout_say(call, "next k steps", "%s bytes", text);
}

static void say_box(layout_call *call, const descriptor_call *d) {
  glint_tma_box box;
  int contiguous = d->major == GLINT_MAJOR_K;
  glint_layout_error reason;
  if (glint_layout_tma_box(&d->layout, d->bits, contiguous, &box, &reason)) {
    layout_say(call, "TMA box", "none: %s", reason.text);
    return;
  }
  if (call->output == LAYOUT_JSON) {
    cJSON *list = cJSON_AddArrayToObject(call->json, "TMA box");
    for (int i = 0; i < box.rank; i++) {
      cJSON *dimension = cJSON_CreateObject();
      cJSON_AddItemToArray(list, dimension);
      cJSON_AddNumberToObject(dimension, "extent", box.box[i]);
      cJSON_AddNumberToObject(dimension, "mode", box.mode[i]);
      cJSON_AddNumberToObject(dimension, "step", (double)box.step[i]);
    }
    return;
  }
  char text[256];
  int length = 0;
  for (int i = 0; i < box.rank; i++)
    length +=
        snprintf(text + length, sizeof text - (size_t)length, "%s%d along %s", i ? ", " : "", box.box[i], box.mode[i] == 0 ? "mn" : "k");
  for (int i = 0, n = length; i < box.rank && n == length; i++)
    if (box.step[i] != 1) length += snprintf(text + length, sizeof text - (size_t)length, "; steps");
  for (int i = 0; i < box.rank && strstr(text, "steps"); i++)
    length += snprintf(text + length, sizeof text - (size_t)length, " %lld", (long long)box.step[i]);
  layout_say(call, "TMA box", "%s; swizzle %d, %lld bytes, aligned to %d", text, box.swizzle, (long long)box.bytes, box.alignment);
}

static glint_status descriptor(layout_call *call) {
  descriptor_call d = {0};
  glint_wgmma_descriptor w;
  glint_status status = read_descriptor_call(call, &d);
  if (status) return status;
  if (call->output == LAYOUT_SVG) return layout_refuse(call, "descriptor has text and JSON");
  status = say_descriptor(call, &d, &w);
  if (status && status != GLINT_ERROR_INVALID_ARGUMENT) return status;
  if (!status) say_steps(call, &d, w.start);
  say_box(call, &d);
  if (status) return status;
  if (call->output == LAYOUT_TEXT)
    fprintf(call->to, "0x%016llx\n", (unsigned long long)w.bits);
  else
    layout_say(call, "descriptor", "0x%016llx", (unsigned long long)w.bits);
  return GLINT_OK;
}

/* ---- atoms ---------------------------------------------------------------------------------------------------------------------- */

static glint_status list_atoms(layout_call *call) {
  glint_layout_atom_info info;
  char text[256], key[64];
  for (int32_t i = 0; i < glint_layout_atom_count(); i++) {
    glint_status status = glint_layout_atom_at(i, &info, &call->error);
    if (status) return status;
    glint_layout_format(&info.tv, text, sizeof text);
    snprintf(key, sizeof key, "%s %s", info.instruction, info.operand);
    if (call->output == LAYOUT_JSON)
      cJSON_AddStringToObject(call->json, key, text);
    else
      fprintf(call->to, "%-18s %-9s %2d-bit  %-28s %s\n", info.instruction, info.operand, info.element_bits, info.domain, text);
  }
  return GLINT_OK;
}

static glint_status atom(layout_call *call) {
  glint_layout_atom_info info;
  if (call->argument_count == 0) return list_atoms(call);
  glint_status status = glint_layout_atom(call->argument[0], call->argument_count > 1 ? call->argument[1] : NULL, &info, &call->error);
  if (status) return status;
  char title[160];
  snprintf(title, sizeof title, "%s, operand %s: %s, %d-bit", info.instruction, info.operand, info.domain, info.element_bits);
  layout_say(call, "atom", "%s", title);
  layout_say(call, "layout", "(thread, value) -> offset in %s", info.domain);
  long long rows, columns;
  const char *shape = strrchr(info.domain, '=');
  if (shape && sscanf(shape, "= (%lld,%lld)", &rows, &columns) == 2) status = layout_show_tv(call, &info.tv, rows, columns, title);
  call->result = info.tv;
  call->has_result = !status && call->output != LAYOUT_SVG;
  return status;
}

layout_body layout_find_hardware(const char *verb) {
  if (strcmp(verb, "banks") == 0) return banks;
  if (strcmp(verb, "descriptor") == 0) return descriptor;
  return strcmp(verb, "atom") == 0 ? atom : NULL;
}
