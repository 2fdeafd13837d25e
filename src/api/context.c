/* The public calls: check, plan, run. */
#include "context.h"
#include "check.h"
#include "engines.h"
#include "last_error.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A longer struct of a future caller reads as long as its unknown tail is zero. */
static glint_status read_options(const glint_options *given, glint_options *options, glint_error *error) {
  memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
  if (!given) return GLINT_OK;
  if (given->struct_size < sizeof *options || given->struct_size > 65536)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.struct_size is %zu: expected sizeof(glint_options) = %zu",
                      given->struct_size, sizeof *options);
  for (size_t i = sizeof *options; i < given->struct_size; i++)
    if (((const unsigned char *)given)[i])
      return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT,
                        "options.struct_size is %zu: byte %zu, unknown to this version, is set, expected 0", given->struct_size, i);
  memcpy(options, given, sizeof *options);
  return GLINT_OK;
}

static glint_status check_options(const glint_options *o, glint_error *error) {
  if ((unsigned)o->engine > GLINT_ENGINE_ORACLE)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.engine is %d: expected 0 to %d", (int)o->engine, GLINT_ENGINE_ORACLE);
  if ((unsigned)o->isa > GLINT_ISA_NEON)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.isa is %d: expected 0 to %d", (int)o->isa, GLINT_ISA_NEON);
  if (o->threads < 0)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.threads is %" PRId32 ": expected 0 or more", o->threads);
  if (o->device < 0) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.device is %" PRId32 ": expected 0 or more", o->device);
  if (o->arch < 0) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "options.arch is %" PRId32 ": expected 0 or more", o->arch);
  return GLINT_OK;
}

static glint_status open_context(const glint_options *given, glint_context **context, glint_error *error) {
  static _Atomic uint64_t last_id;
  glint_options options;
  if (!context) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "context is NULL: expected a pointer");
  *context = NULL;
  GLINT_TRY(read_options(given, &options, error));
  GLINT_TRY(check_options(&options, error));
  glint_context *new_context = calloc(1, sizeof *new_context);
  if (!new_context) return glint_fail(error, GLINT_ERROR_OUT_OF_MEMORY, "out of memory: %zu bytes", sizeof *new_context);
  glint_status status = glint_open_engine(&options, &new_context->engine, &new_context->state, error);
  if (status) {
    free(new_context);
    return status;
  }
  new_context->id = atomic_fetch_add(&last_id, 1) + 1;
  *context = new_context;
  return GLINT_OK;
}

glint_status glint_open(const glint_options *options, glint_context **context) {
  glint_error error = {""};
  glint_status status = open_context(options, context, &error);
  if (status) glint_set_last_error(0, error.text);
  return status;
}

void glint_close(glint_context *context) {
  if (!context) return;
  context->engine->close(context->state);
  glint_drop_last_error(context->id);
  free(context);
}

/* Nothing to write: engines need not see it. (Gradients that sum over an empty batch are still to be cleared.) */
static int is_empty_work(const glint_work *w) {
  if (w->pass == GLINT_PASS_FORWARD) return w->batch == 0 || (w->total_q == 0 && w->seqlen_new == 0);
  if (w->dsinks.data || w->dbias.data) return 0;
  return w->batch == 0 || (w->total_q == 0 && w->total_k == 0);
}

static glint_status check_float64(const glint_context *context, const glint_work *w, glint_error *error) {
  const struct {
    const char *name;
    const glint_view *view;
  } outputs[] = {{"o", &w->o},
                 {"lse", &w->lse},
                 {"gradients.dq", &w->dq},
                 {"gradients.dk", &w->dk},
                 {"gradients.dv", &w->dv},
                 {"gradients.dsinks", &w->dsinks},
                 {"gradients.dbias", &w->dbias}};
  if (context->engine->engine == GLINT_ENGINE_ORACLE) return GLINT_OK;
  for (size_t n = 0; n < sizeof outputs / sizeof *outputs; n++)
    if (outputs[n].view->dtype == GLINT_FLOAT64)
      return glint_fail(error, GLINT_ERROR_UNSUPPORTED, "%s.dtype is %d (float64): only the oracle engine writes it", outputs[n].name,
                        GLINT_FLOAT64);
  return GLINT_OK;
}

static glint_status make_plan(const glint_context *context, glint_pass pass, const glint_problem *problem, const glint_gradients *gradients,
                              glint_work *work, glint_plan_info *plan, glint_error *error) {
  GLINT_TRY(glint_check(problem, gradients, pass, context->engine->host, work, error->text, sizeof error->text));
  GLINT_TRY(check_float64(context, work, error));
  memset(plan, 0, sizeof *plan);
  plan->struct_size = sizeof *plan;
  plan->engine = context->engine->engine;
  if (!is_empty_work(work)) return context->engine->plan(context->state, work, plan, error);
  strcpy(plan->kernel, "none");
  strcpy(plan->reason, "nothing to compute: the problem is empty");
  return GLINT_OK;
}

glint_status glint_find_workspace(const glint_context *context, size_t bytes, const glint_given_workspace *given, void **workspace,
                                  glint_error *error) {
  *workspace = NULL;
  if (!bytes) return GLINT_OK;
  if (!given->memory) return context->engine->reserve(context->state, bytes, given->stream, workspace, error);
  if ((uintptr_t)given->memory % 256)
    return glint_fail(error, GLINT_ERROR_WORKSPACE, "workspace is %p: expected a multiple of 256", given->memory);
  if (given->bytes < bytes)
    return glint_fail(error, GLINT_ERROR_WORKSPACE, "workspace_bytes is %zu: expected at least %zu", given->bytes, bytes);
  *workspace = given->memory;
  return GLINT_OK;
}

static glint_status run(const glint_context *context, glint_pass pass, const glint_problem *problem, const glint_gradients *gradients,
                        glint_error *error) {
  glint_work work;
  glint_plan_info plan;
  void *workspace;
  GLINT_TRY(make_plan(context, pass, problem, gradients, &work, &plan, error));
  GLINT_TRY(glint_check_aliasing(&work, error));
  if (is_empty_work(&work)) return GLINT_OK;
  const glint_given_workspace given = {work.workspace, work.workspace_bytes, work.stream};
  GLINT_TRY(glint_find_workspace(context, plan.workspace_bytes, &given, &workspace, error));
  return context->engine->run(context->state, &work, &plan, workspace, error);
}

static glint_status call(const glint_context *context, glint_pass pass, const glint_problem *problem, const glint_gradients *gradients) {
  glint_error error = {""};
  glint_status status;
  if (!context)
    status = glint_fail(&error, GLINT_ERROR_INVALID_ARGUMENT, "context is NULL: expected one from glint_open");
  else if (pass == GLINT_PASS_BACKWARD && !gradients)
    status = glint_fail(&error, GLINT_ERROR_INVALID_ARGUMENT, "gradients is NULL: expected a pointer");
  else
    status = run(context, pass, problem, gradients, &error);
  if (status) glint_set_last_error(context ? context->id : 0, error.text);
  return status;
}

glint_status glint_forward(glint_context *context, const glint_problem *problem) {
  return call(context, GLINT_PASS_FORWARD, problem, NULL);
}

glint_status glint_backward(glint_context *context, const glint_problem *problem, const glint_gradients *gradients) {
  return call(context, GLINT_PASS_BACKWARD, problem, gradients);
}

static glint_status plan_checked(const glint_context *context, glint_pass pass, const glint_problem *problem,
                                 const glint_gradients *gradients, glint_plan_info *plan, glint_error *error) {
  glint_work work;
  glint_plan_info full;
  if (!context) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "context is NULL: expected one from glint_open");
  if (!plan) return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "plan is NULL: expected a pointer");
  size_t size = plan->struct_size;
  if (size < sizeof full || size > 65536)
    return glint_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "plan.struct_size is %zu: expected sizeof(glint_plan_info) = %zu", size,
                      sizeof full);
  GLINT_TRY(make_plan(context, pass, problem, gradients, &work, &full, error));
  memset(plan, 0, size); /* fields of a newer caller that this version does not know read as zero */
  memcpy(plan, &full, sizeof full);
  plan->struct_size = size;
  return GLINT_OK;
}

glint_status glint_plan(glint_context *context, glint_pass pass, const glint_problem *problem, const glint_gradients *gradients,
                        glint_plan_info *plan) {
  glint_error error = {""};
  glint_status status = plan_checked(context, pass, problem, gradients, plan, &error);
  if (status) glint_set_last_error(context ? context->id : 0, error.text);
  return status;
}

glint_engine glint_context_engine(const glint_context *context) { return context ? context->engine->engine : GLINT_ENGINE_AUTO; }

size_t glint_describe(glint_context *context, char *text, size_t size) {
  size_t length = 0;
  if (text && size) text[0] = 0;
  for (int n = 0; glint_engine_at(n); n++) {
    const glint_engine_vtable *engine = glint_engine_at(n);
    size_t room = text && length < size ? size - length : 0;
    length += engine->describe(context && context->engine == engine ? context->state : NULL, room ? text + length : NULL, room);
  }
  return length;
}

const char *glint_last_error(const glint_context *context) { return glint_get_last_error(context ? context->id : 0); }

int glint_version(void) { return GLINT_VERSION_MAJOR * 10000 + GLINT_VERSION_MINOR * 100 + GLINT_VERSION_PATCH; }
