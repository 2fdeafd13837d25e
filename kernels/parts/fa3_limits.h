// Where a consumer's rows stand, and which keys they see.
#ifndef GLINT_PARTS_FA3_LIMITS_H
#define GLINT_PARTS_FA3_LIMITS_H

// What decides over masks: keys that all rows of the warpgroup see, keys that any of them sees, and the thread's two rows: where they stand
// in the sequence and among the keys, and their query heads
typedef struct fa3_limits {
  i32 free_begin, free_end, begin, end, row[2], key[2], head[2];
} fa3_limits;

FN fa3_limits row_limits(const glint_forward_params *p, const fa3_tile *t, u32 consumer) {
  i32 offset = t->seqlen_k - t->seqlen_q, first = t->m * tile_positions(p) + (i32)consumer * 64,
      last = first + (GROUPED ? tile_positions(p) : 64) - 1;
  i32 in_tile = (i32)(tid() % 128 / 32 * 16 + tid() % 32 / 4);
  fa3_limits l = {0, t->seqlen_k, 0, t->seqlen_k, {0, 0}, {0, 0}, {0, 0}};
  UNROLL
  for (int i = 0; i < 2; i++) {
    i32 r = in_tile + 8 * i, position = GROUPED ? r / p->group : r;
    l.row[i] = position < tile_positions(p) ? first + position : t->rows;
    l.key[i] = l.row[i] + offset;
    l.head[i] = GROUPED ? t->head * p->group + r - position * p->group : t->head;
  }
  if (MASKED) {
    l.end = min_i32(l.end, last + offset + p->window_right + 1);
    l.free_end = min_i32(l.free_end, first + offset + p->window_right + 1);
    l.begin = max_i32(0, first + offset - p->window_left);
    l.free_begin = max_i32(0, last + offset - p->window_left);
  }
  return l;
}

#endif
