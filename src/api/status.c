/* Texts of status values, and how an error gets its text. */
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

size_t glint_dtype_size(glint_dtype dtype) {
  switch (dtype) {
  case GLINT_FLOAT8_E4M3:
  case GLINT_FLOAT8_E5M2: return 1;
  case GLINT_BFLOAT16:
  case GLINT_FLOAT16: return 2;
  case GLINT_FLOAT32:
  case GLINT_INT32: return 4;
  case GLINT_FLOAT64: return 8;
  case GLINT_DTYPE_NONE: break;
  }
  return 0;
}
