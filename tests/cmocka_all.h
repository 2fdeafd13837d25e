/* cmocka with what it needs before it. */
#ifndef GLINT_CMOCKA_ALL_H
#define GLINT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
