/* glint_layout: CuTe's layout algebra as a small C library. SPDX-License-Identifier: Apache-2.0
 *
 * A layout is a function from coordinates to offsets, written shape:stride. (4,8):(1,4) sends (i, j) to i + 4 j. Shapes and strides are
 * nested tuples of the same form; an integer is a coordinate too: it counts through the modes from the left (colexicographic order).
 * A layout may be behind a swizzle: Sw<B,M,S> o offset o shape:stride sends a coordinate c to swizzle(offset + (shape:stride)(c)), where
 * the swizzle XORs B bits, taken S bits higher, into the B bits that start at bit M (S < 0: taken lower).
 *
 * The semantics are those of CuTe (NVIDIA CUTLASS, include/cute/layout.hpp and python/pycute); docs/layouts.md is an introduction.
 * Operations that CuTe leaves undefined are refused here: the status is GLINT_ERROR_INVALID_ARGUMENT and the error text says why.
 *
 * Memory: a layout is a plain value of fixed size; nothing allocates. Every function may be called from any thread. An output may be the
 * same object as an input. The error argument may be NULL. Strides and offsets count elements unless a name says bytes. */
#ifndef GLINT_LAYOUT_H
#define GLINT_LAYOUT_H

#include "glint.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GLINT_LAYOUT_MAX_NODES 128         /* modes and tuples together; a result that needs more is GLINT_ERROR_UNSUPPORTED */
#define GLINT_LAYOUT_MAX_DEPTH 16          /* nesting */
#define GLINT_LAYOUT_MAX_SIZE  (1ll << 48) /* size, cosize, strides and offsets stay below this in magnitude */

typedef struct glint_layout_error {
  char text[256];
} glint_layout_error;

/* One node of a layout's tree, in preorder: a tuple is followed by its modes. */
typedef enum glint_layout_kind {
  GLINT_LAYOUT_MODE = 0,  /* a leaf shape:stride */
  GLINT_LAYOUT_TUPLE = 1, /* rank modes follow */
  GLINT_LAYOUT_TILER = 2, /* rank tilers follow, one a mode of what is tiled: <4:1,8:2> */
  GLINT_LAYOUT_ALL = 3    /* _ : in a tiler "leave this mode alone", in a coordinate "keep this mode" */
} glint_layout_kind;

typedef struct glint_layout_node {
  int64_t shape;  /* GLINT_LAYOUT_MODE: at least 1 (in a coordinate: the coordinate) */
  int64_t stride; /* GLINT_LAYOUT_MODE; may be 0 or negative */
  int32_t rank;   /* GLINT_LAYOUT_TUPLE and _TILER: at least 1 */
  int32_t kind;   /* glint_layout_kind */
} glint_layout_node;

/* x -> x xor ((x & mask) shifted by `shift`), CuTe's Swizzle<bits, base, shift>. bits 0 is the identity. */
typedef struct glint_swizzle {
  int32_t bits;  /* B: 0 to 30 */
  int32_t base;  /* M: lowest bits that stay, 0 to 30 */
  int32_t shift; /* S: |S| >= B, |S| <= 30 */
} glint_swizzle;

typedef struct glint_layout {
  glint_swizzle swizzle; /* all zero: none */
  int64_t offset;        /* added before the swizzle; 0 for a plain layout */
  int32_t count;         /* nodes in use */
  glint_layout_node node[GLINT_LAYOUT_MAX_NODES];
} glint_layout;

/* ---- text -------------------------------------------------------------------------------------------------------------------- */

/* Reads "((2,4),8):((1,16),2)", "8:2", a shape alone ("(4,8)": strides 1, 4, as pycute's Layout(shape)), or "Sw<3,3,3> o 0 o (8,64):(64,1)".
 * Blanks are free, and integers may have CuTe's underscore (_8). */
GLINT_API glint_status glint_layout_parse(const char *text, glint_layout *layout, glint_layout_error *error);
/* Reads a tiler: a layout with strides; an integer N (N:1); a shape (4,8), which tiles by mode as in CuTe; <tiler,...> by mode; _. */
GLINT_API glint_status glint_layout_parse_tiler(const char *text, glint_layout *tiler, glint_layout_error *error);
/* Reads a coordinate or a shape: an integer, _, or a tuple of such: "(1,(2,_))". */
GLINT_API glint_status glint_layout_parse_coordinate(const char *text, glint_layout *coordinate, glint_layout_error *error);
/* Writes the text form, at most size bytes with the NUL; returns the length of the whole. */
GLINT_API size_t glint_layout_format(const glint_layout *layout, char *text, size_t size);
/* The same for a coordinate or shape: "(1,(2,3))". */
GLINT_API size_t glint_layout_format_shape(const glint_layout *layout, char *text, size_t size);

/* ---- construction and questions ---------------------------------------------------------------------------------------------- */

GLINT_API void glint_layout_leaf(int64_t shape, int64_t stride, glint_layout *layout);
/* The layout whose modes are the given ones; none may be swizzled. */
GLINT_API glint_status glint_layout_concat(const glint_layout *const *modes, int32_t rank, glint_layout *layout, glint_layout_error *error);
/* Mode i of the layout (the swizzle stays). An integer shape has itself as mode 0. */
GLINT_API glint_status glint_layout_mode(const glint_layout *layout, int32_t i, glint_layout *mode, glint_layout_error *error);
/* swizzle o offset o layout; layout must not be swizzled. */
GLINT_API glint_status glint_layout_swizzled(glint_swizzle swizzle, int64_t offset, const glint_layout *layout, glint_layout *out,
                                             glint_layout_error *error);
GLINT_API int64_t glint_layout_size(const glint_layout *layout);   /* number of coordinates */
GLINT_API int64_t glint_layout_cosize(const glint_layout *layout); /* largest offset + 1 (strides by magnitude; the swizzle is left out) */
GLINT_API int32_t glint_layout_rank(const glint_layout *layout);   /* number of modes; 1 for an integer */
GLINT_API int32_t glint_layout_depth(const glint_layout *layout);  /* 0 for an integer, else 1 + the deepest mode */
GLINT_API int glint_layout_equal(const glint_layout *a, const glint_layout *b);
/* 1 if no two coordinates share an offset, 0 if some do, -1 if the bitmap of `words` words has fewer bits than the cosize or an offset is
 * negative. A swizzle does not matter: it is a bijection. The bitmap's contents are overwritten. */
GLINT_API int glint_layout_injective(const glint_layout *layout, uint64_t *bitmap, size_t words);

/* ---- evaluation -------------------------------------------------------------------------------------------------------------- */

GLINT_API int64_t glint_swizzle_apply(glint_swizzle swizzle, int64_t offset);
/* Offset of an integer coordinate; any index >= 0 (beyond the size the last mode continues, as in CuTe). */
GLINT_API int64_t glint_layout_at(const glint_layout *layout, int64_t index);
/* Offset of a nested coordinate; every integer of it, at least 0, may stand for a whole sub-tuple, and may pass its mode's size as above. */
GLINT_API glint_status glint_layout_at_coordinate(const glint_layout *layout, const glint_layout *coordinate, int64_t *offset,
                                                  glint_layout_error *error);
/* The nested coordinate of index 0 <= index < size. */
GLINT_API glint_status glint_layout_coordinate(const glint_layout *layout, int64_t index, glint_layout *coordinate,
                                               glint_layout_error *error);
/* Fixed coordinates must lie inside their modes. Keeps the modes at which the coordinate has _ ; *offset is what the fixed coordinates add (a swizzled result carries it itself, then it
 * is 0). At least one _ is needed. */
GLINT_API glint_status glint_layout_slice(const glint_layout *layout, const glint_layout *coordinate, glint_layout *out, int64_t *offset,
                                          glint_layout_error *error);

/* ---- algebra. A swizzled first operand passes through: the operation works on what is behind the swizzle -------------------------- */

/* The same function with as few, flat modes as possible. profile (may be NULL): a shape whose leaves are coalesced one by one. */
GLINT_API glint_status glint_layout_coalesce(const glint_layout *layout, const glint_layout *profile, glint_layout *out,
                                             glint_layout_error *error);
/* Without modes of stride 0 or shape 1, then coalesced. */
GLINT_API glint_status glint_layout_filter(const glint_layout *layout, const glint_layout *profile, glint_layout *out,
                                           glint_layout_error *error);
GLINT_API glint_status glint_layout_flatten(const glint_layout *layout, glint_layout *out, glint_layout_error *error);
/* Flat, modes by ascending stride, then shape: the same offsets in ascending order of mode. */
GLINT_API glint_status glint_layout_sort(const glint_layout *layout, glint_layout *out, glint_layout_error *error);
/* c -> a(b(c)), with b's shape refined. b may be a tiler: then by mode, and modes beyond the tiler's stay. Refused where a's shape does not
 * divide b's strides and shapes. */
GLINT_API glint_status glint_layout_compose(const glint_layout *a, const glint_layout *b, glint_layout *out, glint_layout_error *error);
/* The layout of what `layout` leaves out of [0, cotarget): disjoint from it and ascending. cotarget 0 means 1. Refused where modes overlap. */
GLINT_API glint_status glint_layout_complement(const glint_layout *layout, int64_t cotarget, glint_layout *out, glint_layout_error *error);
/* The largest R with layout(R(i)) = i for all i < size(R). Of a swizzled layout: where the inverse is again swizzle o layout. */
GLINT_API glint_status glint_layout_right_inverse(const glint_layout *layout, glint_layout *out, glint_layout_error *error);
/* L with L(layout(i)) = i; needs an injective layout (modes of stride 0 are skipped: then layout(L(layout(i))) = layout(i)). */
GLINT_API glint_status glint_layout_left_inverse(const glint_layout *layout, glint_layout *out, glint_layout_error *error);

typedef enum glint_layout_form {
  GLINT_LAYOUT_LOGICAL = 0, /* ((tile, rest) of each mode): logical_divide, logical_product */
  GLINT_LAYOUT_ZIPPED = 1,  /* ((tile, ...), (rest, ...)) */
  GLINT_LAYOUT_TILED = 2,   /* ((tile, ...), rest, ...) */
  GLINT_LAYOUT_FLAT = 3,    /* (tile, ..., rest, ...) */
  GLINT_LAYOUT_BLOCKED = 4, /* products only: ((block, tiler) of each mode) */
  GLINT_LAYOUT_RAKED = 5    /* products only: ((tiler, block) of each mode) */
} glint_layout_form;

/* layout o (tiler, complement(tiler, size)). */
GLINT_API glint_status glint_layout_divide(const glint_layout *layout, const glint_layout *tiler, glint_layout_form form, glint_layout *out,
                                           glint_layout_error *error);
/* (block, complement(block, size(block) * cosize(tiler)) o tiler). */
GLINT_API glint_status glint_layout_product(const glint_layout *block, const glint_layout *tiler, glint_layout_form form, glint_layout *out,
                                            glint_layout_error *error);
/* blocked_product of block with as many copies as fill `shape`, which block's modes must divide. order (may be NULL: 0, 1, ...) ranks
 * the modes along which copies follow each other. */
GLINT_API glint_status glint_layout_tile_to_shape(const glint_layout *block, const glint_layout *shape, const glint_layout *order,
                                                  glint_layout *out, glint_layout_error *error);
/* Tile number `coordinate` of the layout cut by the tiler. */
GLINT_API glint_status glint_layout_local_tile(const glint_layout *layout, const glint_layout *tiler, const glint_layout *coordinate,
                                               glint_layout *out, int64_t *offset, glint_layout_error *error);
/* What falls to thread `index` when the threads, laid out as `threads`, are repeated over the layout. */
GLINT_API glint_status glint_layout_local_partition(const glint_layout *layout, const glint_layout *threads, int64_t index,
                                                    glint_layout *out, int64_t *offset, glint_layout_error *error);
/* Largest n such that for i < n a and b put the same coordinate at offset i: the width of a vector copy between them. */
GLINT_API glint_status glint_layout_max_common_vector(const glint_layout *a, const glint_layout *b, int64_t *n, glint_layout_error *error);
/* The same memory seen as elements of new_bits instead of old_bits (recast_layout; upcast and downcast). */
GLINT_API glint_status glint_layout_recast(const glint_layout *layout, int32_t old_bits, int32_t new_bits, glint_layout *out,
                                           glint_layout_error *error);

/* ---- atoms: who holds what in an instruction -------------------------------------------------------------------------------------- */

typedef struct glint_layout_atom_info {
  char instruction[32]; /* mma.m16n8k16, wgmma.m64n128k16, ldmatrix.x4.trans, ld.128, ... */
  char operand[16];     /* A, B, C (accumulator); address or register for memory instructions */
  char domain[64];      /* what the offsets index, e.g. "(M,K) = (16,16)", column-major */
  int32_t element_bits;
  glint_layout tv; /* (thread, value) -> offset in the domain */
} glint_layout_atom_info;

/* Number of atoms in the list; glint_layout_atom_at(i) describes one. wgmma stands there with N = 64; by name every N = 8, 16, ... 256 works. */
GLINT_API int32_t glint_layout_atom_count(void);
GLINT_API glint_status glint_layout_atom_at(int32_t i, glint_layout_atom_info *info, glint_layout_error *error);
/* By instruction and operand; operand NULL: the first one. */
GLINT_API glint_status glint_layout_atom(const char *instruction, const char *operand, glint_layout_atom_info *info,
                                         glint_layout_error *error);

/* ---- shared-memory banks and global sectors ----------------------------------------------------------------------------------------- */

/* What one warp-wide memory instruction does. */
typedef enum glint_access_kind {
  GLINT_ACCESS_SHARED = 0, /* ld/st.shared of `bytes` = 1, 2, 4, 8 or 16 a lane */
  GLINT_ACCESS_LDMATRIX =
      1,                  /* ldmatrix/stmatrix: matrices of 8 rows of 16 bytes, row i's address in lane i; .x1 .x2 .x4 = 8, 16, 32 lanes */
  GLINT_ACCESS_GLOBAL = 2 /* ld/st.global, cp.async's global side: 32-byte sectors, 128-byte lines */
} glint_access_kind;

/* One phase: lanes that the hardware serves together. Two lanes conflict if they need different 4-byte words of one bank (word % 32). */
typedef struct glint_bank_phase {
  uint32_t lanes;    /* mask of the active lanes of the phase */
  int32_t degree;    /* most distinct words of one bank: the phase's wavefronts; 0 if no lane is active */
  uint8_t words[32]; /* distinct words by bank */
} glint_bank_phase;

typedef struct glint_bank_report {
  int32_t phase_count; /* 4 lanes*bytes / 128: up to 4 bytes 1, 8 bytes 2 halves, 16 bytes and ldmatrix.x4 4 quarters */
  glint_bank_phase phase[4];
  int32_t wavefronts; /* sum of degrees */
  int32_t ideal;      /* active phases: what no conflict costs */
  int32_t sectors;    /* GLINT_ACCESS_GLOBAL: distinct 32-byte sectors */
  int32_t lines;      /* GLINT_ACCESS_GLOBAL: distinct 128-byte lines (transactions) */
} glint_bank_report;

/* Counts one instruction from byte addresses. active: mask of lanes that take part. bytes as in glint_access_kind (ldmatrix: 16). Addresses
 * must be multiples of bytes. This is the model that the simulator counts with. */
GLINT_API glint_status glint_bank_count(glint_access_kind kind, int32_t bytes, const uint64_t address[32], uint32_t active,
                                        glint_bank_report *report, glint_layout_error *error);

/* An access pattern on a layout. */
typedef struct glint_access {
  glint_access_kind kind;
  int32_t element_bits; /* of the layout's elements: 8, 16, 32, 64, 128 */
  int32_t bytes;        /* a lane and instruction; ldmatrix: 16 */
  const glint_layout
      *tv;       /* (lane, value[, instruction]) -> integer coordinate of the layout; NULL: the layout itself is (lane, value[, ...]) */
  uint64_t base; /* byte address of offset 0 */
} glint_access;

typedef struct glint_access_total {
  int64_t instructions;
  int64_t wavefronts;     /* shared: with conflicts */
  int64_t ideal;          /* shared: without */
  int32_t worst;          /* largest degree of a phase */
  int64_t sectors, lines; /* global */
  int64_t needed_sectors; /* global: bytes asked for / 32, rounded up for each instruction */
} glint_access_total;

/* Instruction number i of the pattern, 0 <= i < instructions. Refused, with the lane, where a vector is not contiguous or not aligned. address
 * (may be NULL) gets the 32 byte addresses, *active (may be NULL) the mask. */
GLINT_API glint_status glint_access_report(const glint_layout *layout, const glint_access *access, int64_t i, glint_bank_report *report,
                                           uint64_t *address, uint32_t *active, glint_layout_error *error);
GLINT_API glint_status glint_access_count(const glint_layout *layout, const glint_access *access, glint_access_total *total,
                                          glint_layout_error *error);
/* The smallest swizzle (fewest bits, then lowest source) under which every one of n patterns is free of conflicts while runs of
 * vector_bytes stay whole. GLINT_ERROR_NOT_FOUND if none of up to 5 bits does. */
GLINT_API glint_status glint_access_fix_swizzle(const glint_layout *layout, const glint_access *access, int32_t n, int32_t vector_bytes,
                                                glint_layout *out, glint_layout_error *error);
/* The smallest padding that does the same: *pad elements after every *row elements. GLINT_ERROR_NOT_FOUND if up to 128 bytes do not. */
GLINT_API glint_status glint_access_fix_padding(const glint_layout *layout, const glint_access *access, int32_t n, int32_t vector_bytes,
                                                glint_layout *out, int64_t *row, int64_t *pad, glint_layout_error *error);

/* ---- wgmma descriptors and TMA boxes (PTX manual: "Matrix descriptor", "cp.async.bulk.tensor") -------------------------------------- */

typedef enum glint_major { GLINT_MAJOR_K = 0, GLINT_MAJOR_MN = 1 } glint_major;

typedef struct glint_wgmma_descriptor {
  uint64_t bits;              /* what the instruction takes; fields not used are 0, except LBO 1 for swizzled K-major */
  uint32_t start, lbo, sbo;   /* bytes */
  int32_t lbo_used, sbo_used; /* 0: the hardware does not read the field for this operand */
  int32_t swizzle;            /* bytes: 0 (none), 32, 64, 128 */
  int32_t base_offset;        /* 0 where the base address is a multiple of the swizzle's period */
  glint_major major;
} glint_wgmma_descriptor;

/* The descriptor of one wgmma operand. layout: (mn, k) -> element offset, rank 2, over a whole tile in shared memory; the operand is the
 * block of mn x (256 / element_bits) elements at (mn0, k0). base: byte address of offset 0. Where no descriptor describes the layout,
 * GLINT_ERROR_INVALID_ARGUMENT and the text says at which element it fails and what the hardware would read there. */
GLINT_API glint_status glint_layout_wgmma_descriptor(const glint_layout *layout, int32_t element_bits, glint_major major, int64_t mn,
                                                     int64_t mn0, int64_t k0, uint64_t base, glint_wgmma_descriptor *descriptor,
                                                     glint_layout_error *error);

typedef struct glint_tma_box {
  int32_t rank;      /* 1 to 5 */
  int32_t box[5];    /* elements, innermost first */
  int32_t mode[5];   /* which mode of the layout the dimension walks: 0 or 1 */
  int64_t step[5];   /* by how many elements of that mode */
  int32_t swizzle;   /* bytes: 0, 32, 64, 128 (CU_TENSOR_MAP_SWIZZLE_*) */
  int32_t alignment; /* of the destination, bytes */
  int64_t bytes;     /* what one copy writes */
} glint_tma_box;

/* The one TMA box that fills the layout (rank 2; `contiguous` is the mode whose neighbours are adjacent in global memory), or why none does. */
GLINT_API glint_status glint_layout_tma_box(const glint_layout *layout, int32_t element_bits, int32_t contiguous, glint_tma_box *box,
                                            glint_layout_error *error);

#ifdef __cplusplus
}
#endif

#endif
