// Which lane holds which matrix element, for each matrix instruction: stated once, used by the simulator, by the layout tool and by the
// documentation. From the PTX manual's fragment figures.
//
// A map is a layout in the sense of the layout algebra (shape:stride): the coordinate is (lane, value), the result is
// row + rows * column. lane = lane_digit[0] + lane_shape[0] * lane_digit[1]; value = v0 + 2 v1 + 4 v2 (+ 8 v3 for e4m3 operands, and for
// wgmma's accumulator any number of v3), values counted in elements: those that share a register are neighbours.
#ifndef GLINT_LANE_MAPS_H
#define GLINT_LANE_MAPS_H

typedef struct lane_map {
  const char *name;
  unsigned rows, columns, elements_per_register;
  unsigned lane_shape[3], lane_stride[3];   // the third digit: the warp of a warpgroup
  unsigned value_shape[4], value_stride[4]; // shape 0: unused, the last one open-ended where 1u << 30
} lane_map;

enum { LANE_MAP_OPEN = 1 << 30 };

// 8x8 matrix of ldmatrix and stmatrix: lane l holds row l / 4, columns 2 (l % 4) and the next. With .trans: the transposed matrix.
static const lane_map lane_map_matrix = {"ldmatrix m8n8", 8, 8, 2, {4, 8, 1}, {16, 1, 0}, {2, 0, 0, 0}, {8, 0, 0, 0}};

// mma.m16n8k16, 16-bit operands
static const lane_map lane_map_mma_a = {"mma m16n8k16 A", 16, 16, 2, {4, 8, 1}, {32, 1, 0}, {2, 2, 2, 0}, {16, 8, 128, 0}};
static const lane_map lane_map_mma_b = {"mma m16n8k16 B (k x n)", 16, 8, 2, {4, 8, 1}, {2, 16, 0}, {2, 2, 0, 0}, {1, 8, 0, 0}};
static const lane_map lane_map_mma_c = {"mma m16n8k16 C, D", 16, 8, 1, {4, 8, 1}, {32, 1, 0}, {2, 2, 0, 0}, {16, 8, 0, 0}};

// wgmma.m64nN: A from registers (k16 with 16-bit elements, k32 with 8-bit ones) and the accumulator, any N
static const lane_map lane_map_wgmma_a16 = {"wgmma m64k16 A, 16-bit", 64, 16, 2, {4, 8, 4}, {128, 1, 16}, {2, 2, 2, 0}, {64, 8, 512, 0}};
static const lane_map lane_map_wgmma_a8 = {"wgmma m64k32 A, 8-bit", 64, 32, 4, {4, 8, 4}, {256, 1, 16}, {4, 2, 2, 0}, {64, 8, 1024, 0}};
static const lane_map lane_map_wgmma_d = {"wgmma m64nN D", 64, 256, 1, {4, 8, 4}, {128, 1, 16}, {2, 2, LANE_MAP_OPEN, 0}, {64, 8, 512, 0}};

static inline void lane_map_at(const lane_map *m, unsigned lane, unsigned value, unsigned *row, unsigned *column) {
  unsigned index = 0;
  for (int i = 0; i < 3; i++) index += lane % m->lane_shape[i] * m->lane_stride[i], lane /= m->lane_shape[i];
  for (int i = 0; i < 4 && m->value_shape[i]; i++) index += value % m->value_shape[i] * m->value_stride[i], value /= m->value_shape[i];
  *row = index % m->rows;
  *column = index / m->rows;
}

#endif
