// The report, gathered for the caller.
#include "model.h"
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b) {
  const sim_place *x = ((const sim_line *)a)->place, *y = ((const sim_line *)b)->place;
  int c = strcmp(x->file, y->file);
  if (!c) c = (x->line > y->line) - (x->line < y->line);
  return c ? c : strcmp(x->instruction, y->instruction);
}

static void gather_lines(sim_device *d) {
  sim_report *r = &d->report;
  r->line_count = 0, r->bank_conflicts = 0;
  free(d->report_lines);
  d->report_lines = calloc(d->line_capacity + 1, sizeof *d->report_lines);
  r->lines = d->report_lines;
  if (!d->report_lines) return;
  for (u32 i = 0; i < d->line_capacity; i++)
    if (d->lines[i].place && d->lines[i].warp_instructions) {
      d->report_lines[r->line_count++] = d->lines[i];
      r->bank_conflicts += d->lines[i].smem_wavefronts - d->lines[i].smem_ideal;
    }
  qsort(d->report_lines, r->line_count, sizeof *d->report_lines, by_place);
}

static void gather_tensors(sim_device *d) {
  sim_report *r = &d->report;
  r->tensor_count = 0;
  free(d->report_tensors);
  d->report_tensors = calloc(d->tensor_count + 1, sizeof *d->report_tensors);
  r->tensors = d->report_tensors;
  if (!d->report_tensors) return;
  for (; r->tensor_count < d->tensor_count; r->tensor_count++) {
    d->report_tensors[r->tensor_count] = d->tensors[r->tensor_count].counts;
    d->report_tensors[r->tensor_count].name = d->tensors[r->tensor_count].name;
  }
}

const sim_report *sim_get_report(sim_device *d) {
  gather_lines(d);
  gather_tensors(d);
  return &d->report;
}

// Names of which no range is left are forgotten.
static void reset_tensors(sim_device *d) {
  u32 kept = 0;
  for (u32 i = 0; i < d->tensor_count; i++) {
    int used = 0;
    for (u32 j = 0; j < d->range_count; j++)
      if (d->ranges[j].tensor == i) d->ranges[j].tensor = kept, used = 1;
    if (!used) continue;
    if (kept != i) d->tensors[kept] = d->tensors[i];
    d->tensors[kept++].counts = (sim_tensor){0};
  }
  d->tensor_count = kept;
}

void sim_reset_report(sim_device *d) {
  d->report = (sim_report){.hazards = d->hazards};
  if (d->lines) memset(d->lines, 0, d->line_capacity * sizeof *d->lines);
  reset_tensors(d);
}
