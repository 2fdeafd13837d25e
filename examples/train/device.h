/* Memory that an engine reads and writes: the host's own, or a GPU's through the CUDA driver, which is opened when the program runs, so that
 * neither building nor running on a CPU needs CUDA. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H
#include <stddef.h>

typedef struct device device;

/* gpu 0: host memory. Otherwise the first GPU; its context stays current on this thread, and glint uses the one that is. NULL on failure, with
 * a text in error. */
device *device_open(int gpu, char *error, size_t size);
void device_close(device *d);

void *device_allocate(device *d, size_t bytes); /* NULL on failure */
void device_release(device *d, void *memory);
/* 1 or 0. download waits for the work of the null stream first. */
int device_upload(device *d, void *to, const void *from, size_t bytes);
int device_download(device *d, void *to, const void *from, size_t bytes);
#endif
