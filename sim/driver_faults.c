/* The stand-in driver's memory of calls, and the failures that a test orders. */
#include "driver_state.h"

#include <stdio.h>
#include <string.h>

#define MOST 256 /* functions, orders */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const char *function; /* __func__ of the caller */
  int calls;
} counts[MOST];
static struct {
  char function[64];
  int result, after;
} orders[MOST];

static void count(const char *function) {
  int i = 0;
  while (i < MOST - 1 && counts[i].function && strcmp(counts[i].function, function) != 0) i++;
  counts[i].function = function;
  counts[i].calls++;
}

CUresult sim_enter(const char *function) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  count(function);
  for (int i = 0; i < MOST && result == CUDA_SUCCESS; i++)
    if (orders[i].result != CUDA_SUCCESS && strcmp(orders[i].function, function) == 0 && orders[i].after-- == 0) {
      result = orders[i].result;
      orders[i].result = CUDA_SUCCESS;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

void sim_fail(const char *function, int result, int after) {
  int slot = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++) {
    if (strcmp(orders[i].function, function) == 0) orders[i].result = CUDA_SUCCESS;
    if (orders[i].result == CUDA_SUCCESS) slot = i;
  }
  snprintf(orders[slot].function, sizeof orders[slot].function, "%s", function);
  orders[slot].result = result;
  orders[slot].after = after;
  pthread_mutex_unlock(&lock);
}

int sim_calls(const char *function) {
  int calls = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST && counts[i].function; i++)
    if (!*function || strcmp(counts[i].function, function) == 0) calls += counts[i].calls;
  pthread_mutex_unlock(&lock);
  return calls;
}

void sim_forget_calls(void) {
  pthread_mutex_lock(&lock);
  memset(counts, 0, sizeof counts);
  pthread_mutex_unlock(&lock);
}
