// The report: gathered for the caller, printed for people, printed as JSON.
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
  d->report_tensors = calloc(d->range_count + 1, sizeof *d->report_tensors);
  r->tensors = d->report_tensors;
  if (!d->report_tensors) return;
  for (u32 order = 0; order < d->ranges_registered; order++)
    for (u32 i = 0; i < d->range_count; i++)
      if (d->ranges[i].order == order) {
        d->report_tensors[r->tensor_count] = d->ranges[i].counts;
        d->report_tensors[r->tensor_count++].name = d->ranges[i].name;
      }
}

const sim_report *sim_get_report(sim_device *d) {
  gather_lines(d);
  gather_tensors(d);
  return &d->report;
}

void sim_reset_report(sim_device *d) {
  d->report = (sim_report){.hazards = d->hazards};
  if (d->lines) memset(d->lines, 0, d->line_capacity * sizeof *d->lines);
  for (u32 i = 0; i < d->range_count; i++) d->ranges[i].counts = (sim_tensor){0};
}

// ---- for people -----------------------------------------------------------------------------------------------------------------------------
static void print_hazard(const sim_hazard *h, FILE *out) {
  char place[160];
  fprintf(out, "hazard: %s\n    %s, thread %u, block (%u, %u, %u)", sim_hazard_name(h->kind), place_text(h->place, place, sizeof place), h->thread,
          h->block[0], h->block[1], h->block[2]);
  if (h->count > 1) fprintf(out, ", %llu times", h->count);
  if (h->other) {
    fprintf(out, "\n    with %s", place_text(h->other, place, sizeof place));
    if (h->other_thread != ~0u) fprintf(out, ", thread %u", h->other_thread);
  }
  fprintf(out, "\n    %s\n", h->text);
}

void sim_report_print(const sim_report *r, FILE *out) {
  char place[160];
  for (u32 i = 0; i < r->hazard_count; i++) print_hazard(&r->hazards[i], out);
  if (r->hazards_dropped) fprintf(out, "and %llu hazards more\n", r->hazards_dropped);
  fprintf(out, "hazards %u, launches %llu, blocks %llu, threads %llu, mma %llu, wgmma %llu, TMA bytes %llu, cp.async %llu, barriers %llu, bank conflicts %llu\n",
          r->hazard_count, r->launches, r->blocks, r->threads, r->mma, r->wgmma, r->tma_bytes, r->cp_async, r->barriers, r->bank_conflicts);
  fprintf(out, "%-44s %12s %12s %10s %5s %14s %12s %12s %16s\n", "line", "instructions", "wavefronts", "conflicts", "ways", "global bytes", "sectors",
          "transactions", "matrix flops");
  for (u32 i = 0; i < r->line_count; i++) {
    const sim_line *l = &r->lines[i];
    fprintf(out, "%-44s %12llu %12llu %10llu %5llu %14llu %12llu %12llu %16llu\n", place_text(l->place, place, sizeof place), l->warp_instructions,
            l->smem_wavefronts, l->smem_wavefronts - l->smem_ideal, l->worst_ways, l->gmem_bytes, l->gmem_sectors, l->gmem_transactions, l->mma_flops);
  }
  fprintf(out, "%-24s %14s %14s %14s %14s\n", "tensor", "bytes read", "bytes written", "sectors read", "written");
  for (u32 i = 0; i < r->tensor_count; i++) {
    const sim_tensor *t = &r->tensors[i];
    fprintf(out, "%-24s %14llu %14llu %14llu %14llu\n", t->name, t->bytes_read, t->bytes_written, t->sectors_read, t->sectors_written);
  }
}

// ---- JSON ------------------------------------------------------------------------------------------------------------------------------------
static void json_string(const char *s, FILE *out) {
  fputc('"', out);
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') fprintf(out, "\\%c", *s);
    else if ((unsigned char)*s < 32) fprintf(out, "\\u%04x", (unsigned)(unsigned char)*s);
    else fputc(*s, out);
  }
  fputc('"', out);
}

static void json_place(const char *key, const sim_place *p, FILE *out) {
  fprintf(out, "\"%s\":", key);
  if (!p) {
    fputs("null", out);
    return;
  }
  fputs("{\"file\":", out);
  json_string(p->file, out);
  fprintf(out, ",\"line\":%d,\"instruction\":", p->line);
  json_string(p->instruction, out);
  fputc('}', out);
}

static void json_hazard(const sim_hazard *h, FILE *out) {
  fputs("{\"kind\":", out);
  json_string(sim_hazard_name(h->kind), out);
  fputc(',', out);
  json_place("place", h->place, out);
  fputc(',', out);
  json_place("other", h->other, out);
  fprintf(out, ",\"block\":[%u,%u,%u],\"thread\":%u,\"other_thread\":", h->block[0], h->block[1], h->block[2], h->thread);
  if (h->other_thread == ~0u) fputs("null", out);
  else fprintf(out, "%u", h->other_thread);
  fprintf(out, ",\"count\":%llu,\"text\":", h->count);
  json_string(h->text, out);
  fputc('}', out);
}

void sim_report_print_json(const sim_report *r, FILE *out) {
  fputs("{\"hazards\":[", out);
  for (u32 i = 0; i < r->hazard_count; i++) {
    if (i) fputc(',', out);
    json_hazard(&r->hazards[i], out);
  }
  fprintf(out, "],\"hazards_dropped\":%llu,\"launches\":%llu,\"blocks\":%llu,\"threads\":%llu,\"mma\":%llu,\"wgmma\":%llu,\"tma_bytes\":%llu,"
               "\"cp_async\":%llu,\"barriers\":%llu,\"bank_conflicts\":%llu,\"lines\":[",
          r->hazards_dropped, r->launches, r->blocks, r->threads, r->mma, r->wgmma, r->tma_bytes, r->cp_async, r->barriers, r->bank_conflicts);
  for (u32 i = 0; i < r->line_count; i++) {
    const sim_line *l = &r->lines[i];
    fputs(i ? ",{" : "{", out);
    json_place("place", l->place, out);
    fprintf(out, ",\"warp_instructions\":%llu,\"smem_wavefronts\":%llu,\"smem_ideal\":%llu,\"worst_ways\":%llu,\"gmem_bytes\":%llu,"
                 "\"gmem_sectors\":%llu,\"gmem_transactions\":%llu,\"mma_flops\":%llu}",
            l->warp_instructions, l->smem_wavefronts, l->smem_ideal, l->worst_ways, l->gmem_bytes, l->gmem_sectors, l->gmem_transactions, l->mma_flops);
  }
  fputs("],\"tensors\":[", out);
  for (u32 i = 0; i < r->tensor_count; i++) {
    const sim_tensor *t = &r->tensors[i];
    fputs(i ? ",{\"name\":" : "{\"name\":", out);
    json_string(t->name, out);
    fprintf(out, ",\"bytes_read\":%llu,\"bytes_written\":%llu,\"sectors_read\":%llu,\"sectors_written\":%llu}", t->bytes_read, t->bytes_written,
            t->sectors_read, t->sectors_written);
  }
  fputs("]}\n", out);
}
