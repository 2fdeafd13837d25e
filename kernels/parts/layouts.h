// The layouts of the kernels' tiles in shared memory and of their fragments, in the notation of docs/layouts.md. Device code computes them by the
// functions and macros named beside each; tests/layout/test_kernel_layouts.c proves the two equal, and of each layout that it is one to one,
// keeps 16-byte chunks whole, is free of bank conflicts in every access that a kernel makes, and has the descriptor that the kernel builds.
// Where a number depends on the variant the text is a printf format; its arguments stand beside it.
#ifndef GLINT_PARTS_LAYOUTS_H
#define GLINT_PARTS_LAYOUTS_H

// A tile of 16-bit elements, (row, column): boxes of 64 columns, each stored row after row, 128-byte swizzle. Q, K, V, O, dO, dS.
// TILE_OFFSET of parts/swizzle.h (sm_80); TMA boxes, wgmma_descriptor and stage_o (sm_90). Arguments: rows, boxes, rows * 64.
#define LAYOUT_TILE_16 "Sw<3,3,3> o 0 o (%d,(64,%d)):(64,(1,%d))"

// The last box of a head_dim that is 32 more than a multiple of 64, on sm_80: rows of 64 bytes under the same swizzle. Argument: rows.
#define LAYOUT_BOX_32 "Sw<3,3,3> o 0 o (%d,32):(32,1)"

// A tile of 8-bit elements: boxes of 128 columns. Arguments: rows, boxes, rows * 128.
#define LAYOUT_TILE_8 "Sw<3,4,3> o 0 o (%d,(128,%d)):(128,(1,%d))"

// Addresses that the lanes of ldmatrix.x4 and stmatrix.x4 give, as (lane) -> coordinate in a tile of `rows` rows: the order of the A operand
// (rows 0-15 of 8 columns, then of the next 8), and the order of the B operand (16 columns of rows 0-7 first). Argument: rows * 8.
#define LAYOUT_FRAGMENT_A "((16,2)):((1,%d))"
#define LAYOUT_FRAGMENT_B "((8,2,2)):((1,%d,8))"

#endif
