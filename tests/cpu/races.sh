#!/bin/sh
# races.sh SOURCE_FOLDER BUILD_FOLDER: the CPU engine's OpenMP threads under ThreadSanitizer. GCC's OpenMP runtime is not instrumented, so that
# its barriers look like races; clang's tells the sanitizer of them through Archer (Atzeni et al., "ARCHER", IPDPS 2016). Skipped (77) where
# clang, its runtime or Archer is missing (Debian: clang-14 libomp-14-dev).
set -eu
clang=$(command -v clang || command -v clang-14) || { echo "no clang: skipped"; exit 77; }
echo 'int main(void) { return 0; }' >"$2/races_probe.c"
"$clang" -fopenmp -fsanitize=thread "$2/races_probe.c" -o "$2/races_probe" 2>/dev/null || { echo "no OpenMP or ThreadSanitizer: skipped"; exit 77; }
runtime=$(ldd "$2/races_probe" | awk '/libomp/ { print $3 }')
archer=$(dirname "$(readlink -f "$runtime")")/libarcher.so
[ -f "$archer" ] || { echo "no libarcher.so: skipped"; exit 77; }
"$clang" -std=gnu11 -O1 -g -w -fopenmp -fsanitize=thread -I"$1/include" "$1/src/glint_all.c" "$1/tests/cpu/races.c" -lm -o "$2/races"
export OMP_TOOL_LIBRARIES="$archer" TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66"
status=0
"$2/races" planted >"$2/races.log" 2>&1 || status=$?
[ "$status" -eq 66 ] || { echo "the planted race was not reported"; exit 1; }
"$2/races"
