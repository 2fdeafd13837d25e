/* The .npy format of NumPy, versions 1 to 3 (numpy.lib.format describes it): float16, float32, float64, int32 and int64 of either byte
 * order, C or Fortran order, up to four axes. */
#ifndef GLINT_IO_NPY_H
#define GLINT_IO_NPY_H

#include "array.h"

/* Makes an array of bytes, in row-major and native order. Takes bytes over (memory for free), also on failure. int64 becomes int32 where every value fits. uint16 (u2) and
 * raw two-byte elements (V2, which ml_dtypes writes) are bfloat16 bits when two_bytes_are_bf16 and refused otherwise. Anything else that
 * is wrong is GLINT_ERROR_INVALID_ARGUMENT with what and where. */
glint_status io_npy_parse(io_bytes bytes, int two_bytes_are_bf16, io_array *array, glint_error *error);
glint_status io_npy_read(const char *path, int two_bytes_are_bf16, io_array *array, glint_error *error);

/* Version 1, little endian; bfloat16 is written as uint16, FP8 as uint8. */
glint_status io_npy_write(const char *path, const io_array *array, glint_error *error);

#endif
