/* Quantization on GPUs. */
#ifndef GLINT_CUDA_QUANTIZE_H
#define GLINT_CUDA_QUANTIZE_H

#include "cuda/state.h"

/* 1: the variant is one of the quantization's steps, not an attention kernel. */
int glint_is_quantize(const glint_variant *variant);

/* The engine's calls. state is a glint_cuda. */
glint_status glint_cuda_quantize_workspace(void *state, const glint_quantize_work *work, size_t *bytes, glint_error *error);
glint_status glint_cuda_quantize(void *state, const glint_quantize_work *work, void *workspace, glint_error *error);

#endif
