/* Stamps of an instrumented kernel (TRACE=1): what the host's drawing and the kernels agree on. Plain C and CUDA C. */
#ifndef GLINT_TRACE_H
#define GLINT_TRACE_H

/* p.trace of one block: [role][GLINT_TRACE_STAMPS] pairs {event, SM clock}, roles being the consumers and then the producer. A role that has
 * made fewer stamps leaves the rest as the host filled them. */
#define GLINT_TRACE_STAMPS 4096
#define GLINT_TRACE_ROLES  5
#define GLINT_TRACE_BYTES  (GLINT_TRACE_ROLES * GLINT_TRACE_STAMPS * 8)

enum {
  TRACE_TILE = 1, /* consumer: has received a tile. producer: has fetched one */
  TRACE_K_READY,  /* the block's K has landed */
  TRACE_TURN,     /* it is this consumer's turn to issue products */
  TRACE_QK_ISSUED,
  TRACE_V_READY,
  TRACE_PV_ISSUED,
  TRACE_QK_DONE, /* scores are in registers */
  TRACE_PV_DONE,
  TRACE_PACKED, /* exponentials are computed and packed for the next product, O rescaled */
  TRACE_STORED, /* O is on its way */
  TRACE_LOAD_K, /* producer: K's load is issued */
  TRACE_LOAD_V,
  TRACE_LOAD_Q
};

#endif
