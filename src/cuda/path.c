/* Where the driver libraries are looked for. */
#include "cuda/path.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_NAME "libglint_sim.so"

const char *glint_cuda_path(void) {
  const char *path = getenv("GLINT_CUDA_LIBRARY");
  return path && *path ? path : "libcuda.so.1";
}

/* path: file -> SIM_NAME in the file's folder. 0 when there is no such file. */
static int beside(const char *file, char *path, size_t size) {
  const char *slash = strrchr(file, '/');
  if (!slash) return 0;
  int length = snprintf(path, size, "%.*s%s", (int)(slash - file + 1), file, SIM_NAME);
  return length > 0 && (size_t)length < size && access(path, R_OK) == 0;
}

void glint_sim_path(char *path, size_t size) {
  const char *wish = getenv("GLINT_SIM_LIBRARY");
  char executable[4096];
  Dl_info info;
  if (wish && *wish) {
    snprintf(path, size, "%s", wish);
    return;
  }
  if (dladdr(SIM_NAME, &info) && info.dli_fname && beside(info.dli_fname, path, size)) return;
  ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
  if (length > 0) {
    executable[length] = 0;
    if (beside(executable, path, size)) return;
  }
  snprintf(path, size, "%s", SIM_NAME);
}
