#include "engine.h"

#include <stdarg.h>
#include <stdio.h>

const char *glint_status_text(glint_status status) {
  switch (status) {
  case GLINT_OK: return "success";
  case GLINT_ERROR_INVALID_ARGUMENT: return "invalid argument";
  case GLINT_ERROR_UNSUPPORTED: return "not supported by this engine or machine";
  case GLINT_ERROR_OUT_OF_MEMORY: return "out of memory";
  case GLINT_ERROR_WORKSPACE: return "workspace too small";
  case GLINT_ERROR_DEVICE: return "device or driver failure";
  case GLINT_ERROR_NOT_FOUND: return "not found on this machine";
  case GLINT_ERROR_INTERNAL: return "internal error";
  }
  return "unknown status";
}

glint_status glint_fail(glint_error *error, glint_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  return status;
}
