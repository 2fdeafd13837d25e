/* glint bench --ladder: plain arithmetic, FlashAttention-1, -2, -3 on the same problem. */
#ifndef GLINT_TOOLS_BENCH_LADDER_H
#define GLINT_TOOLS_BENCH_LADDER_H

#include "bench.h"

typedef struct bench_ladder bench_ladder;

extern const report_column bench_ladder_columns[];
extern const int bench_ladder_column_count;

/* seconds: for each measurement. Without a GPU there are no times, without the simulator's library no counts (stderr says so); fails
 * without both. */
glint_status bench_ladder_open(double seconds, bench_ladder **ladder, glint_error *error);
void bench_ladder_close(bench_ladder *ladder);

/* One row a rung; a rung that refuses the problem says why. Every result is judged against the oracle by the way. */
glint_status bench_ladder_run(bench_ladder *ladder, const bench_shape *shape, report *r, glint_error *error);

#endif
