/* A user's program in C11: one row, two keys with scores 0 and 0, so that the output is the mean of V. */
#include <glint.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  float q[4] = {0}, k[8] = {1, 2, 3, 4, 5, 6, 7, 8}, v[8] = {1, 2, 3, 4, 3, 6, 9, 12}, o[4] = {0};
  glint_context *context;
  glint_problem p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.q = (glint_tensor){q, {1, 1, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.k = (glint_tensor){k, {1, 2, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.v = (glint_tensor){v, {1, 2, 1, 4}, {0}, GLINT_FLOAT32, 4};
  p.o = (glint_tensor){o, {1, 1, 1, 4}, {0}, GLINT_FLOAT32, 4};
  glint_options options = {sizeof options, GLINT_ENGINE_CPU, GLINT_ISA_AUTO, 0, 0, 0, NULL};
  if (glint_open(&options, &context)) {
    fprintf(stderr, "glint_open: %s\n", glint_last_error(NULL));
    return 1;
  }
  glint_status status = glint_forward(context, &p);
  if (status) fprintf(stderr, "glint_forward: %s: %s\n", glint_status_text(status), glint_last_error(context));
  glint_close(context);
  return status != GLINT_OK || o[0] != 2 || o[1] != 4 || o[2] != 6 || o[3] != 8 ||
         glint_version() != GLINT_VERSION_MAJOR * 10000 + GLINT_VERSION_MINOR * 100 + GLINT_VERSION_PATCH;
}
