/* The last error of each context on each thread. Every thread has a few slots of its own: no locks, no allocation, nothing to free when a
 * thread ends. A thread on which more contexts fail than there are slots loses the oldest text. */
#include "last_error.h"

#include "engine.h"

#include <stdio.h>

#define SLOTS 12

typedef struct slot {
  uint64_t context_id, age; /* age 0: free */
  char text[sizeof(((glint_error *)0)->text)];
} slot;

static _Thread_local slot slots[SLOTS];
static _Thread_local uint64_t clock_now;

static slot *find(uint64_t context_id) {
  for (int n = 0; n < SLOTS; n++)
    if (slots[n].age && slots[n].context_id == context_id) return &slots[n];
  return NULL;
}

void glint_set_last_error(uint64_t context_id, const char *text) {
  slot *s = find(context_id);
  if (!s) {
    s = &slots[0];
    for (int n = 1; n < SLOTS; n++)
      if (slots[n].age < s->age) s = &slots[n];
  }
  s->context_id = context_id, s->age = ++clock_now;
  snprintf(s->text, sizeof s->text, "%s", text);
}

const char *glint_get_last_error(uint64_t context_id) {
  const slot *s = find(context_id);
  return s ? s->text : "";
}

void glint_drop_last_error(uint64_t context_id) {
  slot *s = find(context_id);
  if (s) s->age = 0;
}
