// A user's program in C++17.
#include <glint.h>

#include <cstdio>
#include <memory>
#include <vector>

int main() {
  std::vector<float> q(4, 0.0f), k(8, 1.0f), v{1, 2, 3, 4, 3, 6, 9, 12}, o(4, 0.0f);
  glint_options options{};
  options.struct_size = sizeof options;
  options.engine = GLINT_ENGINE_CPU;
  glint_context *opened = nullptr;
  if (glint_open(&options, &opened) != GLINT_OK) {
    std::fprintf(stderr, "glint_open: %s\n", glint_last_error(nullptr));
    return 1;
  }
  std::unique_ptr<glint_context, decltype(&glint_close)> context(opened, glint_close);
  glint_problem p{};
  p.struct_size = sizeof p;
  p.q = {q.data(), {1, 1, 1, 4}, {}, GLINT_FLOAT32, 4};
  p.k = {k.data(), {1, 2, 1, 4}, {}, GLINT_FLOAT32, 4};
  p.v = {v.data(), {1, 2, 1, 4}, {}, GLINT_FLOAT32, 4};
  p.o = {o.data(), {1, 1, 1, 4}, {}, GLINT_FLOAT32, 4};
  if (glint_forward(context.get(), &p) != GLINT_OK) {
    std::fprintf(stderr, "glint_forward: %s\n", glint_last_error(context.get()));
    return 1;
  }
  return o != std::vector<float>{2, 4, 6, 8};
}
