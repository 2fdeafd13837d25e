/* Access patterns on a layout: from (lane, value, instruction) to addresses, their cost, and the smallest change that makes it minimal. */
#include "tree.h"

#include <string.h>

/* A pattern, taken apart. */
typedef struct pattern {
  const glint_layout *layout;
  const glint_access *access;
  const glint_layout *tv; /* the layout itself if the access names none */
  int64_t threads, values, iterations;
  int64_t vector; /* elements of a lane and instruction; 1 if the pattern names only first elements */
  int64_t warps, instructions;
} pattern;

static int64_t mode_size(const glint_layout *l, int32_t i) {
  return i < glint_layout_rank(l) ? layout_size_of(l, layout_child(l, 0, i)) : 1;
}

static glint_status take_apart(const glint_layout *layout, const glint_access *access, pattern *p, glint_layout_error *error) {
  int32_t bits = access->element_bits;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "element_bits is %d, expected 8, 16, 32, 64 or 128", bits);
  if (access->bytes < bits / 8 || access->bytes > 16 || (access->bytes & (access->bytes - 1)))
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "bytes is %d, expected a power of two from the element's %d to 16",
                       access->bytes, bits / 8);
  *p = (pattern){.layout = layout, .access = access, .tv = access->tv ? access->tv : layout};
  int32_t rank = glint_layout_rank(p->tv);
  if (rank > 3)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                       "the pattern has %d modes, expected (lane, value) or (lane, value, instruction)", rank);
  p->threads = mode_size(p->tv, 0);
  p->values = mode_size(p->tv, 1);
  p->iterations = mode_size(p->tv, 2);
  if (p->threads > 32 && p->threads % 32 != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the pattern has %lld threads, expected up to 32 or whole warps",
                       (long long)p->threads);
  p->vector = p->values == 1 ? 1 : access->bytes * 8 / bits;
  if (p->values % p->vector != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%lld values a lane are no whole vectors of %lld", (long long)p->values,
                       (long long)p->vector);
  p->warps = (p->threads + 31) / 32;
  p->instructions = p->iterations * p->warps * (p->values / p->vector);
  return GLINT_OK;
}

/* Byte address of one value. */
static glint_status value_address(const pattern *p, int64_t thread, int64_t value, int64_t iteration, int64_t *address,
                                  glint_layout_error *error) {
  int64_t index = thread + p->threads * (value + p->values * iteration);
  int64_t offset = glint_layout_at(p->tv, index);
  if (p->access->tv) {
    if (offset < 0 || offset >= glint_layout_size(p->layout))
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "thread %lld, value %lld is coordinate %lld of a layout of size %lld",
                         (long long)thread, (long long)value, (long long)offset, (long long)glint_layout_size(p->layout));
    offset = glint_layout_at(p->layout, offset);
  }
  *address = (int64_t)p->access->base + offset * (p->access->element_bits / 8);
  if (*address < 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "thread %lld, value %lld has the negative offset %lld", (long long)thread,
                       (long long)value, (long long)offset);
  return GLINT_OK;
}

static glint_status report_instruction(const pattern *p, int64_t i, glint_bank_report *report, uint64_t address[32], uint32_t *active,
                                       glint_layout_error *error) {
  int64_t vectors = p->values / p->vector, element = p->access->element_bits / 8;
  int64_t first = i % vectors * p->vector, warp = i / vectors % p->warps, iteration = i / vectors / p->warps;
  *active = 0;
  memset(address, 0, 32 * sizeof *address);
  for (int64_t lane = 0; lane < 32 && warp * 32 + lane < p->threads; lane++) {
    int64_t start = 0, next = 0;
    glint_status status = value_address(p, warp * 32 + lane, first, iteration, &start, error);
    for (int64_t v = 1; !status && v < p->vector; v++) {
      status = value_address(p, warp * 32 + lane, first + v, iteration, &next, error);
      if (!status && next != start + v * element)
        return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                           "lane %lld: value %lld is at byte %lld, value %lld at byte %lld: no vector of %d contiguous bytes",
                           (long long)lane, (long long)first, (long long)start, (long long)(first + v), (long long)next, p->access->bytes);
    }
    if (status) return status;
    address[lane] = (uint64_t)start;
    *active |= 1u << lane;
  }
  return glint_bank_count(p->access->kind, p->access->bytes, address, *active, report, error);
}

glint_status glint_access_report(const glint_layout *layout, const glint_access *access, int64_t i, glint_bank_report *report,
                                 uint64_t *address, uint32_t *active, glint_layout_error *error) {
  pattern p;
  uint64_t lanes[32];
  uint32_t mask;
  glint_status status = take_apart(layout, access, &p, error);
  if (status) return status;
  if (i < 0 || i >= p.instructions)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "instruction is %lld, expected 0 to %lld", (long long)i,
                       (long long)p.instructions - 1);
  status = report_instruction(&p, i, report, address ? address : lanes, active ? active : &mask, error);
  return status;
}

static void add_report(const glint_access *access, const glint_bank_report *report, uint32_t active, glint_access_total *total) {
  total->instructions++;
  total->wavefronts += report->wavefronts;
  total->ideal += report->ideal;
  total->sectors += report->sectors;
  total->lines += report->lines;
  if (access->kind == GLINT_ACCESS_GLOBAL) total->needed_sectors += (__builtin_popcount(active) * access->bytes + 31) / 32;
  for (int32_t i = 0; i < report->phase_count; i++)
    if (report->phase[i].degree > total->worst) total->worst = report->phase[i].degree;
}

glint_status glint_access_count(const glint_layout *layout, const glint_access *access, glint_access_total *total,
                                glint_layout_error *error) {
  pattern p;
  glint_bank_report report;
  uint64_t address[32];
  uint32_t active;
  glint_access_total sum = {0};
  glint_status status = take_apart(layout, access, &p, error);
  for (int64_t i = 0; !status && i < p.instructions; i++) {
    status = report_instruction(&p, i, &report, address, &active, error);
    if (!status) add_report(access, &report, active, &sum);
  }
  if (!status) *total = sum;
  return status;
}

/* ---- the smallest change without conflicts ---------------------------------------------------------------------------------------- */

/* GLINT_OK: no instruction of any pattern conflicts; GLINT_ERROR_NOT_FOUND: one does; else what is wrong with the pattern. A pattern without
 * a map of its own is (lane, value) -> offset: then the candidate is the pattern too. */
static glint_status conflict_free(const glint_layout *layout, const glint_access *access, int32_t n, glint_layout_error *error) {
  for (int32_t k = 0; k < n; k++) {
    pattern p;
    glint_bank_report report;
    uint64_t address[32];
    uint32_t active;
    glint_status status = take_apart(layout, &access[k], &p, error);
    for (int64_t i = 0; !status && i < p.instructions; i++) {
      status = report_instruction(&p, i, &report, address, &active, error);
      if (!status && report.wavefronts > report.ideal) status = GLINT_ERROR_NOT_FOUND;
    }
    if (status) return status;
  }
  return GLINT_OK;
}

static int32_t log2_floor(int64_t x) { return 63 - __builtin_clzll((uint64_t)x); }

static glint_status check_patterns(const glint_access *access, int32_t n, int32_t vector_bytes, glint_layout_error *error) {
  if (n < 1) return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%d patterns, expected at least 1", n);
  for (int32_t i = 0; i < n; i++) {
    if (access[i].kind == GLINT_ACCESS_GLOBAL)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "pattern %d is on global memory, which has no banks", i);
    if (access[i].element_bits != access[0].element_bits)
      return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "the patterns' elements differ in width");
  }
  if (vector_bytes * 8 < access[0].element_bits || vector_bytes > 128 || (vector_bytes & (vector_bytes - 1)))
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "vector_bytes is %d, expected a power of two from one element to 128",
                       vector_bytes);
  return GLINT_OK;
}

glint_status glint_access_fix_swizzle(const glint_layout *layout, const glint_access *access, int32_t n, int32_t vector_bytes,
                                      glint_layout *out, glint_layout_error *error) {
  glint_status status = check_patterns(access, n, vector_bytes, error);
  if (status) return status;
  glint_layout plain = *layout, candidate;
  layout_wrap(&plain, (glint_swizzle){0, 0, 0}, 0);
  int64_t cosize = glint_layout_cosize(&plain);
  int32_t top = log2_floor(cosize), low = log2_floor(vector_bytes * 8 / access[0].element_bits);
  for (int32_t bits = 0; bits <= 5; bits++) {
    /* bits 0 is one candidate: no swizzle. The source bits must exist, and the target bits must not lead out of the layout's memory. */
    int32_t last_base = bits ? top - bits : low;
    for (int32_t base = low; base <= last_base; base++) {
      if (bits && cosize % (1ll << (base + bits)) != 0) continue;
      int32_t last_shift = bits ? top - base : 0;
      for (int32_t shift = bits; shift <= last_shift; shift++) {
        status = glint_layout_swizzled((glint_swizzle){bits, base, shift}, 0, &plain, &candidate, error);
        if (!status) status = conflict_free(&candidate, access, n, error);
        if (!status) {
          *out = candidate;
          return GLINT_OK;
        }
        if (status != GLINT_ERROR_NOT_FOUND && !bits) return status; /* the pattern itself is wrong */
      }
    }
  }
  return layout_fail(error, GLINT_ERROR_NOT_FOUND, "no swizzle of up to 5 bits that keeps %d bytes whole removes the conflicts",
                     vector_bytes);
}

/* Adds pad elements after every row elements: strides that are multiples of row grow; the others must stay inside a row. */
static int pad_rows(const glint_layout *plain, int64_t row, int64_t pad, glint_layout *out) {
  int64_t inside = 0;
  *out = *plain;
  for (int32_t i = 0; i < out->count; i++) {
    glint_layout_node *leaf = &out->node[i];
    if (leaf->kind != GLINT_LAYOUT_MODE || leaf->shape == 1) continue;
    if (leaf->stride % row == 0)
      leaf->stride += leaf->stride / row * pad;
    else
      inside += (leaf->shape - 1) * leaf->stride;
  }
  return inside < row && layout_within_limits(out);
}

glint_status glint_access_fix_padding(const glint_layout *layout, const glint_access *access, int32_t n, int32_t vector_bytes,
                                      glint_layout *out, int64_t *row, int64_t *pad, glint_layout_error *error) {
  glint_status status = check_patterns(access, n, vector_bytes, error);
  if (status) return status;
  glint_layout plain = *layout, candidate;
  layout_wrap(&plain, (glint_swizzle){0, 0, 0}, 0);
  int64_t vector = vector_bytes * 8 / access[0].element_bits, best = -1;
  for (int32_t i = 0; i < plain.count; i++) {
    int64_t stride = plain.node[i].stride;
    if (plain.node[i].kind != GLINT_LAYOUT_MODE || stride < vector || stride % vector != 0) continue;
    for (int64_t p = 0; p * access[0].element_bits <= 128 * 8; p += vector) {
      if (!pad_rows(&plain, stride, p, &candidate)) break;
      int64_t grown = glint_layout_cosize(&candidate) - glint_layout_cosize(&plain);
      if (best >= 0 && grown >= best) break;
      status = conflict_free(&candidate, access, n, error);
      if (status && status != GLINT_ERROR_NOT_FOUND && p == 0) return status;
      if (status) continue;
      best = grown;
      *out = candidate;
      *row = stride;
      *pad = p;
      break;
    }
  }
  if (best >= 0) return GLINT_OK;
  return layout_fail(error, GLINT_ERROR_NOT_FOUND, "no padding of up to 128 bytes in steps of %d removes the conflicts", vector_bytes);
}
