#!/bin/sh
# one_file.sh COMPILER SOURCE_FOLDER BUILD_FOLDER: compiles src/glint_all.c with a small program, warnings as errors, and runs it.
set -eu
"$1" -std=c11 -O2 -fopenmp -Wall -Wextra -Wpedantic -Werror -I"$2/include" "$2/src/glint_all.c" "$2/examples/minimal.c" -lm -o "$3/one_file"
test "$("$3/one_file")" = "1.378 2.000"
