/* Attention of one sequence: two queries, three keys, one head, head_dim 4. Prints 1.378 2.000. */
#include <glint.h>
#include <stdio.h>
int main(void) {
  float q[] = {1, 0, 0, 0, 0, 1, 0, 0}, k[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}, v[] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, o[8];
  glint_problem p = {.struct_size = sizeof p, .causal = 1};
  p.q = (glint_tensor){.data = q, .shape = {1, 2, 1, 4}, .rank = 4, .dtype = GLINT_FLOAT32};
  p.o = (glint_tensor){.data = o, .shape = {1, 2, 1, 4}, .rank = 4, .dtype = GLINT_FLOAT32};
  p.k = (glint_tensor){.data = k, .shape = {1, 3, 1, 4}, .rank = 4, .dtype = GLINT_FLOAT32};
  p.v = (glint_tensor){.data = v, .shape = {1, 3, 1, 4}, .rank = 4, .dtype = GLINT_FLOAT32};
  glint_context *context;
  if (glint_open(NULL, &context) != GLINT_OK || glint_forward(context, &p) != GLINT_OK) return 1;
  printf("%.3f %.3f\n", o[0], o[4]);
  glint_close(context);
}
