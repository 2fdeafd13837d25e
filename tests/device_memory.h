/* Memory of the first GPU, as the testkit wants it. */
#ifndef GLINT_TESTS_DEVICE_MEMORY_H
#define GLINT_TESTS_DEVICE_MEMORY_H

#include "testkit.h"

const testkit_memory *device_memory(void); /* NULL: no GPU here */
void device_memory_close(void);            /* after the last use */

#endif
