// The report printed, for people and as JSON. Needs only sim.h, so that the command prints reports of the simulator's library.
#include "sim.h"
#include <string.h>

const char *sim_place_text(const sim_place *at, char *text, size_t size) {
  if (!at)
    snprintf(text, size, "?");
  else {
    const char *slash = strrchr(at->file, '/');
    snprintf(text, size, "%s:%d (%s)", slash ? slash + 1 : at->file, at->line, at->instruction);
  }
  return text;
}

const char *sim_hazard_name(sim_hazard_kind kind) {
  static const char *const names[SIM_HAZARD_KINDS] = {
      [SIM_SMEM_OUT_OF_BOUNDS] = "shared memory out of bounds",
      [SIM_GMEM_OUT_OF_BOUNDS] = "global memory out of bounds",
      [SIM_MISALIGNED] = "misaligned access",
      [SIM_UNINITIALISED] = "uninitialised shared memory",
      [SIM_RACE] = "race",
      [SIM_CP_ASYNC_NOT_WAITED] = "cp.async not waited for",
      [SIM_TMA_NOT_WAITED] = "TMA load not waited for",
      [SIM_WGMMA_NOT_WAITED] = "wgmma not waited for",
      [SIM_WGMMA_STILL_READS] = "wgmma may still read",
      [SIM_TMA_STILL_READS] = "TMA store may still read",
      [SIM_MISSING_PROXY_FENCE] = "missing fence.proxy.async",
      [SIM_MISSING_WGMMA_FENCE] = "missing wgmma.fence",
      [SIM_MISSING_INIT_FENCE] = "missing fence.mbarrier_init",
      [SIM_DIVERGENT] = "divergence",
      [SIM_BARRIER_MISUSE] = "barrier misuse",
      [SIM_MBARRIER_MISUSE] = "mbarrier misuse",
      [SIM_BAD_OPERAND] = "bad operand",
      [SIM_BAD_TENSOR_MAP] = "bad tensor map",
      [SIM_DEADLOCK] = "deadlock",
      [SIM_NOT_ON_ARCH] = "not on this arch",
  };
  return (unsigned)kind < SIM_HAZARD_KINDS ? names[kind] : "unknown";
}

// ---- for people -----------------------------------------------------------------------------------------------------------------------------
static void print_hazard(const sim_hazard *h, FILE *out) {
  char place[160];
  fprintf(out, "hazard: %s\n    %s, thread %u, block (%u, %u, %u)", sim_hazard_name(h->kind), sim_place_text(h->place, place, sizeof place),
          h->thread, h->block[0], h->block[1], h->block[2]);
  if (h->count > 1) fprintf(out, ", %llu times", h->count);
  if (h->other) {
    fprintf(out, "\n    with %s", sim_place_text(h->other, place, sizeof place));
    if (h->other_thread != ~0u) fprintf(out, ", thread %u", h->other_thread);
  }
  fprintf(out, "\n    %s\n", h->text);
}

void sim_report_print(const sim_report *r, FILE *out) {
  char place[160];
  for (u32 i = 0; i < r->hazard_count; i++) print_hazard(&r->hazards[i], out);
  if (r->hazards_dropped) fprintf(out, "and %llu hazards more\n", r->hazards_dropped);
  fprintf(out,
          "hazards %u, launches %llu, blocks %llu, threads %llu, mma %llu, wgmma %llu, TMA bytes %llu, cp.async %llu, barriers %llu, bank "
          "conflicts %llu\n",
          r->hazard_count, r->launches, r->blocks, r->threads, r->mma, r->wgmma, r->tma_bytes, r->cp_async, r->barriers, r->bank_conflicts);
  fprintf(out, "%-44s %12s %12s %10s %5s %14s %12s %12s %16s\n", "line", "instructions", "wavefronts", "conflicts", "ways", "global bytes",
          "sectors", "transactions", "matrix flops");
  for (u32 i = 0; i < r->line_count; i++) {
    const sim_line *l = &r->lines[i];
    fprintf(out, "%-44s %12llu %12llu %10llu %5llu %14llu %12llu %12llu %16llu\n", sim_place_text(l->place, place, sizeof place),
            l->warp_instructions, l->smem_wavefronts, l->smem_wavefronts - l->smem_ideal, l->worst_ways, l->gmem_bytes, l->gmem_sectors,
            l->gmem_transactions, l->mma_flops);
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
    if (*s == '"' || *s == '\\')
      fprintf(out, "\\%c", *s);
    else if ((unsigned char)*s < 32)
      fprintf(out, "\\u%04x", (unsigned)(unsigned char)*s);
    else
      fputc(*s, out);
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
  if (h->other_thread == ~0u)
    fputs("null", out);
  else
    fprintf(out, "%u", h->other_thread);
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
  fprintf(out,
          "],\"hazards_dropped\":%llu,\"launches\":%llu,\"blocks\":%llu,\"threads\":%llu,\"mma\":%llu,\"wgmma\":%llu,\"tma_bytes\":%llu,"
          "\"cp_async\":%llu,\"barriers\":%llu,\"bank_conflicts\":%llu,\"lines\":[",
          r->hazards_dropped, r->launches, r->blocks, r->threads, r->mma, r->wgmma, r->tma_bytes, r->cp_async, r->barriers,
          r->bank_conflicts);
  for (u32 i = 0; i < r->line_count; i++) {
    const sim_line *l = &r->lines[i];
    fputs(i ? ",{" : "{", out);
    json_place("place", l->place, out);
    fprintf(out,
            ",\"warp_instructions\":%llu,\"smem_wavefronts\":%llu,\"smem_ideal\":%llu,\"worst_ways\":%llu,\"gmem_bytes\":%llu,"
            "\"gmem_sectors\":%llu,\"gmem_transactions\":%llu,\"mma_flops\":%llu}",
            l->warp_instructions, l->smem_wavefronts, l->smem_ideal, l->worst_ways, l->gmem_bytes, l->gmem_sectors, l->gmem_transactions,
            l->mma_flops);
  }
  fputs("],\"tensors\":[", out);
  for (u32 i = 0; i < r->tensor_count; i++) {
    const sim_tensor *t = &r->tensors[i];
    fputs(i ? ",{\"name\":" : "{\"name\":", out);
    json_string(t->name, out);
    fprintf(out, ",\"bytes_read\":%llu,\"bytes_written\":%llu,\"sectors_read\":%llu,\"sectors_written\":%llu}", t->bytes_read,
            t->bytes_written, t->sectors_read, t->sectors_written);
  }
  fputs("]}\n", out);
}
