// The plain backward pass, second half: dk and dv. parts/backward_simple.h has it all.
#define ROLE ROLE_KEYS
#include "parts/backward_simple.h"

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) { backward(&p); }
