/* Clock stamps of an instrumented kernel (kernels/trace.h) as intervals of time. */
#ifndef GLINT_TOOLS_TRACE_STAMPS_H
#define GLINT_TOOLS_TRACE_STAMPS_H

#include <stdint.h>
#include <stdio.h>

enum { TRACE_ROLES = 5, TRACE_MOST = 16384 };

/* What a warpgroup, or a load, is doing for a while. */
typedef enum trace_kind { TRACE_QK, TRACE_PV, TRACE_EXP, TRACE_STORE, TRACE_LOADING, TRACE_KINDS } trace_kind;
extern const char *const trace_kind_name[TRACE_KINDS];

typedef struct trace_span {
  trace_kind kind;
  int role; /* consumers first, then the producer */
  int64_t begin, end;
} trace_span;

typedef struct trace_spans {
  trace_span span[TRACE_MOST];
  int count, roles; /* roles that made stamps */
  int64_t end;      /* of the last; the first stamp is time 0 */
} trace_spans;

/* stamps: GLINT_TRACE_BYTES bytes as the kernel wrote them, zero where it wrote nothing. Stamps are 32-bit clocks and may wrap once. */
void trace_read(const uint32_t *stamps, trace_spans *spans);

/* The part from begin on for length cycles, one lane for products and one for the softmax of each consumer. */
void trace_draw(FILE *to, const trace_spans *spans, int64_t begin, int64_t length, const char *title);

/* Median length of each kind for each role, and how much of the time products and softmax overlap. */
void trace_summarise(FILE *to, const trace_spans *spans);

#endif
