/* Guarded copies of a problem: every tensor alone in a block between guard bytes, outputs poisoned. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF };

#define IN_PROBLEM(field, role)                                                                                                            \
  { #field, offsetof(glint_problem, field), offsetof(glint_work, field), 0, role }
#define IN_GRADIENTS(field, role)                                                                                                          \
  { #field, offsetof(glint_gradients, field), offsetof(glint_work, field), 1, role }
const testkit_slot testkit_slots[] = {
    IN_PROBLEM(q, TESTKIT_IN),
    IN_PROBLEM(k, TESTKIT_CACHE),
    IN_PROBLEM(v, TESTKIT_CACHE),
    IN_PROBLEM(o, TESTKIT_RESULT),
    IN_PROBLEM(lse, TESTKIT_RESULT),
    IN_PROBLEM(alibi_slopes, TESTKIT_IN),
    IN_PROBLEM(sinks, TESTKIT_IN),
    IN_PROBLEM(bias, TESTKIT_IN),
    IN_PROBLEM(cu_seqlens_q, TESTKIT_IN),
    IN_PROBLEM(cu_seqlens_k, TESTKIT_IN),
    IN_PROBLEM(seqused_q, TESTKIT_IN),
    IN_PROBLEM(seqused_k, TESTKIT_IN),
    IN_PROBLEM(page_table, TESTKIT_IN),
    {"cache_seqlens", offsetof(glint_problem, cache_seqlens), offsetof(glint_work, seqused_k), 0, TESTKIT_IN},
    IN_PROBLEM(k_new, TESTKIT_IN),
    IN_PROBLEM(v_new, TESTKIT_IN),
    IN_PROBLEM(rotary_cos, TESTKIT_IN),
    IN_PROBLEM(rotary_sin, TESTKIT_IN),
    IN_PROBLEM(descale_q, TESTKIT_IN),
    IN_PROBLEM(descale_k, TESTKIT_IN),
    IN_PROBLEM(descale_v, TESTKIT_IN),
    IN_GRADIENTS(d_o, TESTKIT_IN),
    IN_GRADIENTS(d_lse, TESTKIT_IN),
    IN_GRADIENTS(dq, TESTKIT_GRADIENT),
    IN_GRADIENTS(dk, TESTKIT_GRADIENT),
    IN_GRADIENTS(dv, TESTKIT_GRADIENT),
    IN_GRADIENTS(dsinks, TESTKIT_GRADIENT),
    IN_GRADIENTS(dbias, TESTKIT_GRADIENT),
};
const int testkit_slot_count = sizeof testkit_slots / sizeof *testkit_slots;

glint_tensor *testkit_slot_of(const testkit_slot *slot, glint_problem *problem, glint_gradients *gradients) {
  char *base = slot->in_gradients ? (char *)gradients : (char *)problem;
  return base ? (glint_tensor *)(void *)(base + slot->offset) : NULL;
}

static void *host_alloc(void *user, size_t bytes) {
  void *memory = NULL;
  (void)user;
  return posix_memalign(&memory, 256, bytes) ? NULL : memory;
}

static void host_free(void *user, void *memory) {
  (void)user;
  free(memory);
}

static int host_move(void *user, void *to, const void *from, size_t bytes) {
  (void)user;
  memcpy(to, from, bytes);
  return 1;
}

const testkit_memory testkit_host_memory = {NULL, host_alloc, host_free, host_move, host_move};

/* The block's picture: guard, the tensor at its own alignment, guard. keep: with the tensor's contents, otherwise poison. */
static int bind(testkit_copy *copy, testkit_bound *bound, const glint_tensor *from, int keep, int float64) {
  glint_tensor *to = bound->tensor;
  size_t misaligned = (uintptr_t)from->data % 256;
  if (float64) {
    to->dtype = GLINT_FLOAT64;
    memset(to->stride, 0, sizeof to->stride);
    misaligned = 0;
  }
  size_t element = glint_dtype_size(to->dtype), span = (size_t)testkit_span(to) * element;
  bound->start = GUARD + misaligned, bound->bytes = bound->start + span + GUARD;
  bound->block = copy->memory->alloc(copy->memory->user, bound->bytes);
  bound->before = malloc(bound->bytes), bound->after = malloc(bound->bytes);
  if (!bound->block || !bound->before || !bound->after) return 0;
  memset(bound->before, GUARD_BYTE, bound->bytes);
  unsigned char *first = bound->before + bound->start;
  memset(first, POISON_BYTE, span);
  if (keep && !float64) memcpy(first, from->data, span);
  for (int64_t n = 0, count = testkit_count(to); keep && float64 && n < count; n++)
    glint_store(first, GLINT_FLOAT64, n, glint_load(from->data, from->dtype, testkit_offset(from, n)));
  to->data = bound->block + bound->start;
  return copy->memory->upload(copy->memory->user, bound->block, bound->before, bound->bytes);
}

int testkit_copy_make(testkit_copy *copy, const testkit_memory *memory, const glint_problem *problem, const glint_gradients *gradients,
                      int float64) {
  memset(copy, 0, sizeof *copy);
  copy->memory = memory, copy->problem = *problem;
  if (gradients) copy->gradients = *gradients;
  for (int n = 0; n < testkit_slot_count; n++) {
    const testkit_slot *slot = &testkit_slots[n];
    testkit_bound *bound = &copy->bound[n];
    bound->tensor = testkit_slot_of(slot, &copy->problem, gradients ? &copy->gradients : NULL);
    if (!bound->tensor || !bound->tensor->data) continue;
    glint_tensor from = *bound->tensor;
    int cache = slot->role == TESTKIT_CACHE && problem->k_new.data;
    bound->written = slot->role == TESTKIT_GRADIENT || cache || (slot->role == TESTKIT_RESULT && !gradients);
    int keep = !bound->written || cache || (slot->role == TESTKIT_GRADIENT && gradients->accumulate);
    if (!bind(copy, bound, &from, keep, float64 && (slot->role == TESTKIT_GRADIENT || slot->role == TESTKIT_RESULT) && bound->written))
      return 0;
  }
  return 1;
}

int testkit_copy_workspace(testkit_copy *copy, size_t bytes) {
  size_t whole = bytes + 2 * GUARD;
  unsigned char *picture = malloc(whole);
  copy->workspace_block = copy->memory->alloc(copy->memory->user, whole);
  int ok = picture && copy->workspace_block;
  if (ok) {
    memset(picture, GUARD_BYTE, whole);
    memset(picture + GUARD, POISON_BYTE, bytes);
    ok = copy->memory->upload(copy->memory->user, copy->workspace_block, picture, whole);
    copy->workspace_bytes = bytes;
    copy->problem.workspace = copy->workspace_block + GUARD, copy->problem.workspace_bytes = bytes;
  }
  free(picture);
  return ok;
}

int testkit_copy_fetch(testkit_copy *copy) {
  for (int n = 0; n < testkit_slot_count; n++)
    if (copy->bound[n].block &&
        !copy->memory->download(copy->memory->user, copy->bound[n].after, copy->bound[n].block, copy->bound[n].bytes))
      return 0;
  return 1;
}

void testkit_copy_free(testkit_copy *copy) {
  for (int n = 0; n < testkit_slot_count; n++) {
    if (copy->bound[n].block) copy->memory->free(copy->memory->user, copy->bound[n].block);
    free(copy->bound[n].before);
    free(copy->bound[n].after);
  }
  if (copy->workspace_block) copy->memory->free(copy->memory->user, copy->workspace_block);
  *copy = (testkit_copy){0}; /* a second call finds nothing */
}

static int check_workspace(const testkit_copy *copy, char *message, size_t size) {
  unsigned char *picture = malloc(copy->workspace_bytes + 2 * GUARD);
  if (!picture) return 0;
  int ok = copy->memory->download(copy->memory->user, picture, copy->workspace_block, copy->workspace_bytes + 2 * GUARD);
  for (size_t n = 0; ok && n < GUARD; n++) ok = picture[n] == GUARD_BYTE && picture[GUARD + copy->workspace_bytes + n] == GUARD_BYTE;
  if (!ok) snprintf(message, size, "workspace: written outside of its %zu bytes", copy->workspace_bytes);
  free(picture);
  return ok;
}

int testkit_copy_check(const testkit_copy *copy, int all, char *message, size_t size) {
  if (copy->workspace_block && !check_workspace(copy, message, size)) return 0;
  for (int n = 0; n < testkit_slot_count; n++) {
    const testkit_bound *bound = &copy->bound[n];
    if (!bound->block) continue;
    unsigned char *seen = bound->after;
    size_t element = glint_dtype_size(bound->tensor->dtype);
    /* elements of an output may have changed: show them as they were, keeping what came in a picture of its own */
    unsigned char *own = NULL;
    if (bound->written && !all) {
      own = malloc(bound->bytes);
      if (!own) return 0;
      memcpy(own, bound->after, bound->bytes);
      for (int64_t e = 0, count = testkit_count(bound->tensor); e < count; e++) {
        size_t at = bound->start + (size_t)testkit_offset(bound->tensor, e) * element;
        memcpy(own + at, bound->before + at, element);
      }
      seen = own;
    }
    size_t at = 0;
    while (at < bound->bytes && seen[at] == bound->before[at]) at++;
    if (at < bound->bytes)
      snprintf(message, size, "%s: byte %lld from its start was written, which is %s", testkit_slots[n].name,
               (long long)at - (long long)bound->start,
               all              ? "wrong in a refused call"
               : bound->written ? "outside of its elements"
                                : "an input");
    free(own);
    if (at < bound->bytes) return 0;
  }
  return 1;
}
