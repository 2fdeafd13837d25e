/* Memory of a GPU for the command. */
#ifndef GLINT_TOOLS_MEMORY_CUDA_H
#define GLINT_TOOLS_MEMORY_CUDA_H

#include "memory.h"

glint_status memory_open_cuda(const glint_options *options, memory *m, glint_error *error);

#endif
