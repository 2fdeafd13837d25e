/* Quantization on the CPU. */
#ifndef GLINT_CPU_QUANTIZE_H
#define GLINT_CPU_QUANTIZE_H

#include "../api/engine.h"

size_t glint_cpu_quantize_workspace(const glint_quantize_work *work);
void glint_cpu_quantize(const glint_quantize_work *work, int threads, void *workspace);

#endif
