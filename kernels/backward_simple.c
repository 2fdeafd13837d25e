// The plain backward pass, first half: dq and dbias. parts/backward_simple.h has it all.
#define ROLE ROLE_QUERIES
#include "parts/backward_simple.h"

KERNEL_OCCUPANCY(GLINT_KERNEL, THREADS, MIN_BLOCKS, glint_backward_params) { backward(&p); }
