// Hazards: collected once for each kind and pair of places, with a count of occurrences. And the numbering of places.
#include "model.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static sim_place **places; // by id; 0 unused
static u32 place_count = 1, place_capacity;

u32 place_id(sim_place *at) {
  int id = __atomic_load_n((int *)&at->id, __ATOMIC_ACQUIRE);
  if (id) return (u32)id;
  pthread_mutex_lock(&places_lock);
  id = __atomic_load_n((int *)&at->id, __ATOMIC_RELAXED);
  if (!id && grow(&places, &place_capacity, place_count + 1, sizeof *places)) {
    places[place_count] = at;
    id = (int)place_count++;
    __atomic_store_n((int *)&at->id, id, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&places_lock);
  return (u32)id;
}

sim_place *place_of(u32 id) {
  pthread_mutex_lock(&places_lock);
  sim_place *p = id && id < place_count ? places[id] : NULL;
  pthread_mutex_unlock(&places_lock);
  return p;
}

void hazard(sim_thread *t, sim_hazard_kind kind, const sim_place *at, const sim_place *other, u32 other_thread, const char *format, ...) {
  sim_device *d = t->block->device;
  sim_report *r = &d->report;
  for (u32 i = 0; i < r->hazard_count; i++)
    if (d->hazards[i].kind == kind && d->hazards[i].place == at && d->hazards[i].other == other) {
      d->hazards[i].count++;
      return;
    }
  if (r->hazard_count == d->config.max_hazards) {
    r->hazards_dropped++;
    return;
  }
  sim_hazard *h = &d->hazards[r->hazard_count++];
  *h = (sim_hazard){.kind = kind, .place = at, .other = other, .thread = t->id, .other_thread = other_thread, .count = 1};
  memcpy(h->block, t->block->index, sizeof h->block);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(h->text, sizeof h->text, format, arguments);
  va_end(arguments);
}

int require_arch(sim_thread *t, sim_place *at, u32 arch) {
  u32 have = t->block->device->config.arch;
  if (have >= arch) return 1;
  hazard(t, SIM_NOT_ON_ARCH, at, NULL, ~0u, "needs sm_%u; this is sm_%u", arch, have);
  return 0;
}

void *grow(void *array, u32 *capacity, u32 needed, size_t element) {
  void **a = array, *n;
  if (needed <= *capacity) return *a;
  u32 more = *capacity ? *capacity : 16;
  while (more < needed) more *= 2;
  n = realloc(*a, more * element);
  if (!n) return NULL;
  *a = n;
  *capacity = more;
  return n;
}
