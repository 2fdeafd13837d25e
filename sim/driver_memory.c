/* Device memory of the stand-in driver: host memory that the model knows by bounds and name. */
#include "driver_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256
#define POISON    0xFF /* NaN in every float type: fresh memory holds nothing */

typedef struct allocation {
  struct allocation *next;
  unsigned char *base;
  size_t bytes;
  int device;
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;
static _Thread_local glint_sim_range ranges[SIM_RANGES];
static _Thread_local char names[SIM_RANGES][64];
static _Thread_local int range_count;

/* The allocation around an address; lock is held. */
static allocation *find(const void *pointer) {
  const unsigned char *p = pointer;
  for (allocation *a = allocations; a; a = a->next)
    if (p >= a->base && p < a->base + a->bytes) return a;
  return NULL;
}

static CUresult with_model(int device, void *base, size_t bytes) {
  static _Atomic int number;
  char name[32];
  snprintf(name, sizeof name, "memory %d", ++number);
  pthread_mutex_lock(&sim_gpus[device].lock);
  int result = bytes ? sim_memory_register(sim_gpus[device].model, name, base, bytes) : sim_memory_unregister(sim_gpus[device].model, base);
  pthread_mutex_unlock(&sim_gpus[device].lock);
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
  SIM_ENTER_UNSAFE();
  const int device = sim_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  allocation *a = malloc(sizeof *a);
  unsigned char *base = bytes > SIZE_MAX - ALIGNMENT ? NULL : aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (!a || !base || with_model(device, base, bytes) != CUDA_SUCCESS) {
    free(a);
    free(base);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(base, POISON, bytes);
  pthread_mutex_lock(&lock);
  *a = (allocation){allocations, base, bytes, device};
  allocations = a;
  pthread_mutex_unlock(&lock);
  *pointer = (CUdeviceptr)(uintptr_t)base;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SIM_ENTER_UNSAFE();
  void *base = (void *)(uintptr_t)pointer;
  pthread_mutex_lock(&lock);
  allocation **link = &allocations, *found = NULL;
  while (*link && (*link)->base != base) link = &(*link)->next;
  if (*link) {
    found = *link;
    *link = found->next;
  }
  pthread_mutex_unlock(&lock);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = with_model(found->device, base, 0);
  free(base);
  free(found);
  return result;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
  SIM_ENTER();
  pthread_mutex_lock(&lock);
  const allocation *a = find((const void *)(uintptr_t)pointer);
  const int device = a ? a->device : -1;
  pthread_mutex_unlock(&lock);
  if (device < 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    memcpy(value, &device, sizeof device);
    return CUDA_SUCCESS;
  }
  if (attribute != CU_POINTER_ATTRIBUTE_CONTEXT) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext context = sim_context(device);
  memcpy(value, &context, sizeof context);
  return CUDA_SUCCESS;
}

/* Whether a range lies in one allocation. */
static int is_inside(const void *pointer, size_t bytes) {
  pthread_mutex_lock(&lock);
  const allocation *a = find(pointer);
  int inside = a && bytes <= a->bytes - (size_t)((const unsigned char *)pointer - a->base);
  pthread_mutex_unlock(&lock);
  return inside;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  SIM_ENTER_UNSAFE();
  if (!is_inside((void *)(uintptr_t)to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  SIM_ENTER_UNSAFE();
  if (!is_inside((void *)(uintptr_t)from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  SIM_ENTER();
  if (sim_stream(stream)->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* only launches are kept */
  if (!is_inside((void *)(uintptr_t)to, count * sizeof value)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)to)[i] = value;
  return CUDA_SUCCESS;
}

/* ---- host memory of one launch ---- */

static int by_base(const void *a, const void *b) {
  const unsigned char *x = ((const glint_sim_range *)a)->base, *y = ((const glint_sim_range *)b)->base;
  return x < y ? -1 : x > y;
}

/* A model's ranges must not overlap, but tensors may: q, k and v in one array, or one tensor given twice. */
static int merge(glint_sim_range *r, int count) {
  int kept = 0;
  qsort(r, (size_t)count, sizeof *r, by_base);
  for (int i = 0; i < count; i++) {
    const unsigned char *end = kept ? (const unsigned char *)r[kept - 1].base + r[kept - 1].bytes : NULL;
    if (kept && (const unsigned char *)r[i].base < end) {
      const size_t reach = (size_t)((const unsigned char *)r[i].base - (const unsigned char *)r[kept - 1].base) + r[i].bytes;
      if (reach > r[kept - 1].bytes) r[kept - 1].bytes = reach;
      snprintf(names[kept - 1] + strlen(names[kept - 1]), sizeof names[0] - strlen(names[kept - 1]), "+%s", r[i].name);
    } else {
      snprintf(names[kept], sizeof names[0], "%s", r[i].name);
      r[kept++] = r[i];
    }
  }
  return kept;
}

void sim_launch_ranges(const glint_sim_range *given, int count) {
  range_count = 0;
  for (int i = 0; i < count && range_count < SIM_RANGES; i++)
    if (given[i].base && given[i].bytes && !is_inside(given[i].base, given[i].bytes)) ranges[range_count++] = given[i];
  range_count = merge(ranges, range_count);
}

CUresult sim_ranges_register(int device) {
  for (int i = 0; i < range_count; i++)
    if (sim_memory_register(sim_gpus[device].model, names[i], (void *)(uintptr_t)ranges[i].base, ranges[i].bytes) != 0) {
      range_count = i;
      sim_ranges_unregister(device);
      sim_set_text("a tensor's host memory crosses the end of memory that the simulator's driver allocated");
      return CUDA_ERROR_INVALID_VALUE;
    }
  return CUDA_SUCCESS;
}

void sim_ranges_unregister(int device) {
  for (int i = 0; i < range_count; i++) sim_memory_unregister(sim_gpus[device].model, (void *)(uintptr_t)ranges[i].base);
  range_count = 0;
}
