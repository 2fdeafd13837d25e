/* Streams of the stand-in driver. Work is done at once, so a stream is an identity and what a capture keeps. */
#include "driver_state.h"

#include <stdlib.h>

static struct CUstream_st null_stream = {.id = 1};
static _Atomic unsigned long long last_id = 1;
static _Atomic int captures;
static _Thread_local int capture_mode; /* 0: CU_STREAM_CAPTURE_MODE_GLOBAL, the driver's default */

CUstream sim_stream(CUstream stream) { return stream ? stream : &null_stream; }

int sim_capture_forbids(void) { return captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED; }

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  SIM_ENTER();
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  if (!*stream) return CUDA_ERROR_OUT_OF_MEMORY;
  (*stream)->id = ++last_id;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_ENTER();
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  free(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  SIM_ENTER_UNSAFE();
  return sim_stream(stream)->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* A capture does not survive the question. */
CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  SIM_ENTER();
  if (sim_stream(stream)->capturing) {
    stream->capturing->invalid = 1;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *id = sim_stream(stream)->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id, void **graph, const void **nodes, size_t *count) {
  SIM_ENTER();
  if (graph || nodes || count) return CUDA_ERROR_INVALID_VALUE; /* nothing here can be asked */
  const CUgraph capturing = sim_stream(stream)->capturing;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (capturing && id) *id = capturing->capture;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  SIM_ENTER();
  const int old = capture_mode;
  capture_mode = *mode;
  *mode = old;
  return CUDA_SUCCESS;
}

/* ---- graphs: an executable one is a copy of the graph ---- */

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  SIM_ENTER();
  if (!stream || stream->capturing || mode != CU_STREAM_CAPTURE_MODE_GLOBAL) return CUDA_ERROR_INVALID_VALUE;
  stream->capturing = aligned_alloc(_Alignof(sim_kept_launch), sizeof *stream->capturing);
  if (!stream->capturing) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->capturing->count = 0;
  stream->capturing->invalid = 0;
  stream->capturing->capture = ++last_id;
  captures++;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  SIM_ENTER();
  if (!stream || !stream->capturing) return CUDA_ERROR_INVALID_VALUE;
  CUgraph captured = stream->capturing;
  stream->capturing = NULL;
  captures--;
  if (captured->invalid) {
    free(captured);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = captured;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
  SIM_ENTER();
  CUgraph copy = flags ? NULL : aligned_alloc(_Alignof(sim_kept_launch), sizeof *copy);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  *copy = *graph;
  *executable = (CUgraphExec)copy;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  SIM_ENTER();
  const struct CUgraph_st *graph = (CUgraph)executable;
  CUresult result = sim_stream(stream)->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
  for (int i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
    const sim_kept_launch *l = &graph->launches[i];
    result = sim_run(l->device, l->kernel, l->grid, l->threads, l->shared_bytes, l->params);
  }
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  SIM_ENTER();
  free(executable);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  SIM_ENTER();
  free(graph);
  return CUDA_SUCCESS;
}
