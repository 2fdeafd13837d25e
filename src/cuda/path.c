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

/* path: SIM_NAME in the file's folder, in the one above (tests), or where an installed bin/ finds its lib/. 0 when there is none. */
static int near_file(const char *file, char *path, size_t size) {
  static const char *const names[] = {SIM_NAME, "../" SIM_NAME, "../" GLINT_LIBDIR "/" SIM_NAME};
  const char *slash = strrchr(file, '/');
  if (!slash) return 0;
  const size_t folder = (size_t)(slash - file) + 1;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (folder + strlen(names[i]) >= size) continue;
    memcpy(path, file, folder);
    strcpy(path + folder, names[i]);
    if (access(path, R_OK) == 0) return 1;
  }
  return 0;
}

void glint_sim_path(char *path, size_t size) {
  const char *wish = getenv("GLINT_SIM_LIBRARY");
  char executable[4096];
  Dl_info info;
  if (wish && *wish) {
    snprintf(path, size, "%s", wish);
    return;
  }
  if (dladdr(SIM_NAME, &info) && info.dli_fname && near_file(info.dli_fname, path, size)) return;
  ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
  if (length > 0) {
    executable[length] = 0;
    if (near_file(executable, path, size)) return;
  }
  snprintf(path, size, "%s", SIM_NAME);
}
