#!/usr/bin/env bash
# Builds the fuzz targets with clang, libFuzzer, ASan and UBSan, and runs each for the given time; new inputs stay in the build folder.
# usage: tests/fuzz/run.sh [SECONDS-EACH] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(npy safetensors check layout)
build="build-fuzz"
cmake -S . -B "$build" -DCMAKE_C_COMPILER="${CC:-clang}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGLINT_FUZZ=ON -DGLINT_CUDA=OFF -DGLINT_BUILD_SIM=OFF \
  -DGLINT_SANITIZE=address,undefined,fuzzer-no-link >/dev/null
for target in "${targets[@]}"; do
  cmake --build "$build" --parallel "$(nproc)" --target "fuzz_$target" >/dev/null
  mkdir -p "$build/found/$target"
  echo "fuzz_$target for $seconds s"
  (cd "$build" && nice "tests/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    "found/$target" "../tests/fuzz/corpus/$target")
done
