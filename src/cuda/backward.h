/* The backward pass on GPUs: a preparing kernel, then the main one (kernels/backward_params.h). */
#ifndef GLINT_CUDA_BACKWARD_H
#define GLINT_CUDA_BACKWARD_H

#include "cuda/plan.h"
#include "cuda/state.h"

/* Whether a row of the table belongs to the backward pass; the forward plan passes over it. */
int glint_is_backward(const glint_variant *variant);

/* As glint_cuda_plan. */
glint_status glint_backward_plan(const glint_choice *choice, const glint_work *work, glint_plan_info *plan, glint_error *error);

/* As glint_cuda_run, inside a scope. workspace: plan->workspace_bytes. */
glint_status glint_backward_run(glint_cuda *cuda, const glint_scope *scope, const glint_work *work, const glint_plan_info *plan,
                                void *workspace, glint_error *error);

#endif
