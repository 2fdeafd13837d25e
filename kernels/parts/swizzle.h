/* Where an element of a tile of 16-bit numbers lies in shared memory. Plain C expressions, so that a host test can prove of them that they
 * are one to one and free of bank conflicts.
 *
 * A tile of `rows` x `columns` is cut into boxes of 64 columns (the last may have 32). A box is stored row after row, 128 (64) bytes each,
 * and within every 1024 bytes the 16-byte chunk number c of 128-byte line l moves to c ^ l. So eight rows of one column of chunks, which is
 * what one 8x8 matrix of ldmatrix reads, lie in eight different groups of four banks; chunks stay whole; and eight neighbouring lanes that
 * write or read one row touch all 32 banks once. It is the literature's Swizzle<3,3,3> for 16-bit elements and TMA's 128-byte swizzle.
 *
 * It is the same function for Q, K, V and O and for every head_dim. Some texts leave V out, because ldmatrix.trans "reads along columns":
 * but trans changes which lane receives an element, not which rows of 16 bytes are fetched, so V without the swizzle conflicts exactly as K
 * without it does, and with it not at all. */
#ifndef GLINT_PARTS_SWIZZLE_H
#define GLINT_PARTS_SWIZZLE_H

/* Of a byte offset in a box whose base is a multiple of 1024. An involution: it is its own inverse. */
#define SWIZZLE(byte) ((byte) ^ (((byte) >> 3) & 0x70))

#define BOX_COLUMNS             64
#define BOXES(columns)          (((columns) + BOX_COLUMNS - 1) / BOX_COLUMNS)
#define TILE_BYTES(rows, n)     ((rows) * (n)*2)
/* Bytes from one row of a box to the next before the swizzle: 128, or 64 in a last box of 32 columns. */
#define BOX_PITCH(columns, box) ((box)*BOX_COLUMNS + BOX_COLUMNS <= (columns) ? 128 : 64)

/* Byte offset of the 16-byte chunk that starts at column 8 * chunk of `row`, in a tile of `rows` (a multiple of 16) x `columns` (of 32). */
#define TILE_OFFSET(rows, columns, row, chunk)                                                                                             \
  ((chunk) / 8 * (rows)*128 + SWIZZLE((row)*BOX_PITCH(columns, (chunk) / 8) + (chunk) % 8 * 16))

/* The same for a chunk of box `box`, from the offset in the box of some row (multiples of 16 rows further on add whole kilobytes, which the
 * swizzle leaves alone): BOX_LANE(pitch, row, chunk) + BOX_STEP(rows, columns, box, more_rows). */
#define BOX_LANE(pitch, row, chunk)             SWIZZLE((row) * (pitch) + (chunk)*16)
#define BOX_STEP(rows, columns, box, more_rows) ((box) * (rows)*128 + (more_rows)*BOX_PITCH(columns, box))

/* Addresses of an ldmatrix.x4 that fetches 16 rows x 16 columns, as two offsets: FRAGMENT_LANE depends on the lane alone, FRAGMENT_STEP on
 * constants alone, but for an exclusive or with the column step inside the box (it touches the chunk's bits only, so it commutes with the
 * swizzle). Offset = (FRAGMENT_LANE ^ FRAGMENT_TURN) + FRAGMENT_STEP = TILE_OFFSET(rows, columns, row + row of lane, 2 * step + chunk of
 * lane) for row a multiple of 16 and step = column / 16. */
#define FRAGMENT_LANE(pitch, lane_row, lane_chunk) SWIZZLE((lane_row) * (pitch) + (lane_chunk)*16)
#define FRAGMENT_TURN(step)                        ((step) % 4 * 32)
#define FRAGMENT_STEP(rows, columns, row, step)    ((step) / 4 * (rows)*128 + (row)*BOX_PITCH(columns, (step) / 4))

/* The two orders in which ldmatrix.x4 takes its four 8x8 matrices. A: rows 0-7, rows 8-15, then the same of the next 8 columns: the A operand
 * of mma.m16n8k16 (Q), and with trans its B operand for two column tiles (V). B: the 8 columns of rows 0-7 first: without trans, the B
 * operand for two tiles of 8 keys (K). */
#define LANE_ROW_A(lane)   ((lane) % 16)
#define LANE_CHUNK_A(lane) ((lane) / 16)
#define LANE_ROW_B(lane)   ((lane) / 16 * 8 + (lane) % 8)
#define LANE_CHUNK_B(lane) ((lane) / 8 % 2)

#endif
