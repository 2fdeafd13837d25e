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
  free(stream->launches);
  free(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  SIM_ENTER_UNSAFE();
  return sim_stream(stream)->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  SIM_ENTER();
  *id = sim_stream(stream)->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  SIM_ENTER();
  *status = sim_stream(stream)->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  SIM_ENTER();
  const int old = capture_mode;
  capture_mode = *mode;
  *mode = old;
  return CUDA_SUCCESS;
}

void sim_capture_begin(void *stream) {
  CUstream s = sim_stream(stream);
  if (!s->launches) s->launches = aligned_alloc(_Alignof(sim_kept_launch), SIM_KEPT * sizeof *s->launches);
  s->kept = 0;
  s->capturing = 1;
  captures++;
}

int sim_capture_end(void *stream) {
  CUstream s = sim_stream(stream);
  s->capturing = 0;
  captures--;
  return s->kept;
}

int sim_replay(void *stream) {
  CUstream s = sim_stream(stream);
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < s->kept && result == CUDA_SUCCESS; i++) {
    const sim_kept_launch *l = &s->launches[i];
    result = sim_run(l->device, l->kernel, l->grid, l->threads, l->shared_bytes, l->params);
  }
  return result;
}
