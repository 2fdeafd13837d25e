/* Writing O and lse: normalisation, sinks, rounding to the output type, and the merge of splits over keys. */
#include "forward.h"

#include <math.h>
#include <string.h>

/* Rounds a row to o's type. */
typedef void store_row(void *dst, glint_dtype dtype, const float *src, int64_t n, float scale);

static void store_result(const glint_work *w, store_row *store, const glint_sequence *s, int64_t head, int64_t i, const float *o,
                         float factor, float lse) {
  int64_t at = s->batch_q * w->o.stride[0] + (s->row_q + i) * w->o.stride[1] + head * w->o.stride[2];
  store((char *)w->o.data + (size_t)at * glint_dtype_size(w->o.dtype), w->o.dtype, o, w->head_dim_v, factor);
  if (w->lse.data)
    ((float *)w->lse.data)[s->batch_q * w->lse.stride[0] + head * w->lse.stride[1] + (s->row_q + i) * w->lse.stride[2]] = lse;
}

/* o / l with the sink in l; m in log 2 units of double. A sink far above every score must not overflow: the larger of the two is the unit. */
static void normalise(const glint_work *w, store_row *store, const glint_sequence *s, int64_t head, int64_t i, const float *o, double m,
                      float l) {
  double unit = m, sum = (double)l, factor = 1;
  if (w->sinks.data) {
    double sink = (double)((const float *)w->sinks.data)[head * w->sinks.stride[0]] * GLINT_LOG2E;
    double top = sink > unit ? sink : unit;
    if (isnan(sink)) top = sink;
    if (top != -(double)INFINITY) {
      factor = exp2(unit - top);
      sum = sum * factor + exp2(sink - top);
      unit = top;
    }
  }
  /* no key and no sink: unit is -inf and sum is 0, unless a NaN is in it */
  if (unit == -(double)INFINITY && sum == 0) {
    store_result(w, store, s, head, i, o, 0, -INFINITY);
    return;
  }
  if (w->drop_threshold) factor *= (double)w->keep_scale;
  double lse = (unit == -(double)INFINITY ? 0 : unit) / GLINT_LOG2E + log(sum);
  store_result(w, store, s, head, i, o, (float)(factor / sum), (float)lse);
}

void glint_cpu_finish_row(const glint_cpu_run *run, int64_t r, const float *o, float m, float l) {
  int columns = run->plan->columns;
  if (!run->item.partial) {
    normalise(run->w, run->plan->kernels->from_float, &run->share->s, glint_cpu_head(run, r), glint_cpu_position(run, r), o,
              (double)m * (double)run->units.log2_unit, l);
    return;
  }
  float *to = run->item.partial + r * (columns + 2);
  memcpy(to, o, (size_t)run->w->head_dim_v * sizeof *o);
  to[columns] = m, to[columns + 1] = l;
}

void glint_cpu_clear_rows(const glint_work *w, const glint_sequence *s) {
  for (int64_t i = s->used_q; i < s->len_q; i++)
    for (int64_t head = 0; head < w->heads_q; head++) {
      int64_t at = s->batch_q * w->o.stride[0] + (s->row_q + i) * w->o.stride[1] + head * w->o.stride[2];
      size_t element = glint_dtype_size(w->o.dtype);
      memset((char *)w->o.data + (size_t)at * element, 0, (size_t)w->head_dim_v * element);
      if (w->lse.data)
        ((float *)w->lse.data)[s->batch_q * w->lse.stride[0] + head * w->lse.stride[1] + (s->row_q + i) * w->lse.stride[2]] = -INFINITY;
    }
}

/* In the order of the splits, whoever computed them: the sum is the same for every number of threads. */
void glint_cpu_combine_row(const glint_work *w, const glint_cpu_plan *plan, const glint_cpu_share *share, const glint_cpu_units *units,
                           const float *partial, int64_t head, int64_t r) {
  int64_t columns = plan->columns, stride = columns + 2;
  const float *row = partial + (head * share->splits * share->rows + r) * stride;
  float sum[512], m = -INFINITY, l = 0; /* head_dim_v is at most 512 */
  for (int64_t n = 0; n < share->splits; n++) {
    float other = row[n * share->rows * stride + columns];
    m = other > m ? other : m;
  }
  memset(sum, 0, sizeof sum);
  for (int64_t n = 0; n < share->splits; n++) {
    const float *from = row + n * share->rows * stride;
    if (from[columns] == -INFINITY && from[columns + 1] == 0) continue; /* saw no key: its o is not even written */
    float weight = from[columns] == m ? 1.0f : exp2f((from[columns] - (m == -INFINITY ? 0 : m)) * units->log2_unit);
    l += weight * from[columns + 1];
    for (int64_t c = 0; c < w->head_dim_v; c++) sum[c] += weight * from[c];
  }
  int64_t i = r / plan->group, query_head = head * plan->group + r % plan->group;
  normalise(w, plan->kernels->from_float, &share->s, query_head, i, sum, (double)m * (double)units->log2_unit, l);
}
