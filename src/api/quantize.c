/* The public calls of quantization. */
#include "check.h"
#include "context.h"
#include "last_error.h"

/* No sequence, or no row in any of the tensors: factors may still have to be written, by the engine. */
static int is_nothing(const glint_quantize_work *w) { return w->lengths.batch == 0; }

static glint_status check_and_size(const glint_context *context, const glint_quantization *quantization, glint_quantize_work *work,
                                   size_t *bytes, glint_error *error) {
  *bytes = 0;
  if (!context) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "context is NULL: expected one from glint_open");
  GLINT_TRY(glint_check_quantization(quantization, context->engine->host, work, error->text, sizeof error->text));
  return is_nothing(work) ? GLINT_OK : context->engine->quantize_workspace(context->state, work, bytes, error);
}

static glint_status quantize(const glint_context *context, const glint_quantization *quantization, glint_error *error) {
  glint_quantize_work work;
  size_t bytes;
  void *workspace;
  GLINT_TRY(check_and_size(context, quantization, &work, &bytes, error));
  GLINT_TRY(glint_check_quantize_aliasing(&work, error));
  if (is_nothing(&work)) return GLINT_OK;
  const glint_given_workspace given = {work.workspace, work.workspace_bytes, work.stream};
  GLINT_TRY(glint_find_workspace(context, bytes, &given, &workspace, error));
  return context->engine->quantize(context->state, &work, workspace, error);
}

glint_status glint_quantize(glint_context *context, const glint_quantization *quantization) {
  glint_error error = {""};
  glint_status status = quantize(context, quantization, &error);
  if (status) glint_set_last_error(context ? context->id : 0, error.text);
  return status;
}

glint_status glint_quantize_workspace(glint_context *context, const glint_quantization *quantization, size_t *bytes) {
  glint_error error = {""};
  glint_quantize_work work;
  glint_status status = bytes ? check_and_size(context, quantization, &work, bytes, &error)
                              : glint_fail(&error, GLINT_ERROR_INVALID_ARGUMENT, "bytes is NULL: expected a pointer");
  if (status) glint_set_last_error(context ? context->id : 0, error.text);
  return status;
}
