/* Tells the simulator the bounds and names of a problem's tensors. */
#include "cuda/ranges.h"

size_t glint_view_bytes(const glint_view *v) {
  int64_t elements = 1;
  if (!v->data) return 0;
  for (int axis = 0; axis < v->rank; axis++) {
    if (v->shape[axis] == 0) return 0;
    elements += (v->shape[axis] - 1) * v->stride[axis];
  }
  return (size_t)elements * glint_dtype_size(v->dtype);
}

void glint_simulator_ranges(const glint_sim_interface *simulator, const glint_work *w, const void *workspace, size_t workspace_bytes) {
  const struct {
    const char *name;
    const glint_view *view;
  } tensors[] = {{"q", &w->q},
                 {"k", &w->k},
                 {"v", &w->v},
                 {"o", &w->o},
                 {"lse", &w->lse},
                 {"alibi_slopes", &w->alibi_slopes},
                 {"sinks", &w->sinks},
                 {"bias", &w->bias},
                 {"cu_seqlens_q", &w->cu_seqlens_q},
                 {"cu_seqlens_k", &w->cu_seqlens_k},
                 {"seqused_q", &w->seqused_q},
                 {"seqused_k", &w->seqused_k},
                 {"page_table", &w->page_table},
                 {"descale_q", &w->descale_q},
                 {"descale_k", &w->descale_k},
                 {"descale_v", &w->descale_v},
                 {"d_o", &w->d_o},
                 {"d_lse", &w->d_lse},
                 {"dq", &w->dq},
                 {"dk", &w->dk},
                 {"dv", &w->dv},
                 {"dsinks", &w->dsinks},
                 {"dbias", &w->dbias}};
  enum { TENSORS = sizeof tensors / sizeof tensors[0] };
  glint_sim_range ranges[TENSORS + 1];
  for (int i = 0; i < TENSORS; i++)
    ranges[i] = (glint_sim_range){tensors[i].name, tensors[i].view->data, glint_view_bytes(tensors[i].view)};
  ranges[TENSORS] = (glint_sim_range){"workspace", workspace, workspace ? workspace_bytes : 0};
  simulator->launch_ranges(ranges, TENSORS + 1);
}
