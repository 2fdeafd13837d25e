#!/usr/bin/env bash
# Everything that wants a GPU, in one run. Two halves, so that the machine with the GPU needs neither a network nor a compiler:
#
#   bench/gpu.sh pack            builds into build-gpu/: the command, gpu_bench, the GPU tests, the shared libraries that they need, and
#                                this script, so that the folder can travel alone
#   bench/gpu.sh run [PART...]   there (or build-gpu/gpu.sh run); without build-gpu/ it builds first
#
# PARTs, in this order when none is named: info check test bench sanitize
#   info      what the driver and the library see
#   check     random problems against the oracle (CASES, default 2000)
#   test      the GPU tests: streams, graphs, devices, threads, sizes; then the faults that users met elsewhere, on the cuda engine
#   bench     glint and PyTorch taking turns on the papers' grid; the Ampere kernels, then the plan's choice
#   sanitize  compute-sanitizer's four tools on small problems
# Results go to $OUT (default build-gpu/results): one log a part and bench CSVs. Each program runs under a time limit, so nothing can hang the
# run; a part that fails does not stop the next. The exit status counts failed parts.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -f "$here/programs.tar.xz" ]; then # in the folder that travelled
  pack=$here
else
  root=$(dirname "$here")
  pack=$root/build-gpu
fi
out=${OUT:-$pack/results}
cases=${CASES:-2000}

build_pack() {
  set -e
  local tree=$root/build/gpu-tree
  cmake -S "$root" -B "$tree" -DCMAKE_BUILD_TYPE=Release -DGLINT_CUDA=ON -DGLINT_BUILD_SIM=OFF -DGLINT_BUILD_TESTS="${1:-ON}"
  cmake --build "$tree" -j"$(nproc)"
  rm -rf "$pack"
  mkdir -p "$pack/bin" "$pack/lib"
  local program
  for program in "$tree/glint" "$tree/gpu_bench" "$tree/tests/test_gpu" "$tree"/tests/test_engines_*; do
    if [ -f "$program" ] && [ -x "$program" ]; then
      cp "$program" "$pack/bin/"
      strip "$pack/bin/$(basename "$program")"
    fi
  done
  # all but the C library itself, which every machine has
  ldd "$pack"/bin/* | awk '/=> \//{print $3}' | sort -u | grep -Ev '/(libc|libm|libdl|libpthread|librt)\.so|/ld-linux' |
    while read -r library; do cp -L "$library" "$pack/lib/"; done
  # every program holds all kernels: compressed together they take the room of one
  tar -C "$pack" -c bin lib | xz -6e --lzma2=dict=128MiB >"$pack/programs.tar.xz"
  rm -r "${pack:?}/bin" "${pack:?}/lib"
  cp "$here/gpu.sh" "$here/torch_peers.py" "$pack/"
  set +e
  du -sh "$pack"
}

failed=0
# part NAME SECONDS COMMAND...: its output to the terminal and to $out/NAME.log
part() {
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$out/$name.log"
  local status=${PIPESTATUS[0]}
  echo "== $name: status $status, $((SECONDS - start)) s"
  [ "$status" -eq 0 ] || failed=$((failed + 1))
}

run_part() {
  case $1 in
  info) part info 60 sh -c 'nvidia-smi; glint info --engine cuda' ;;
  check) part check 400 glint check --engine cuda --cases "$cases" ;;
  test)
    part test 300 test_gpu
    for name in rows lengths sizes serving backward random; do
      part "test-$name" 200 env GLINT_TEST_ENGINE=cuda "test_engines_$name"
    done
    ;;
  bench)
    part bench-ampere 420 python3 "$here/torch_peers.py" --dtype "${DTYPES:-bf16,fp16}" --peers torch_fa2 --seconds 360 -- gpu_bench --kernel glint_forward_fa2
    part bench-best 420 python3 "$here/torch_peers.py" --dtype "${DTYPES:-bf16}" --seconds 360 -- gpu_bench
    part bench-backward 300 python3 "$here/torch_peers.py" --backward --peers cudnn --no-ceilings --seconds 240 -- gpu_bench --backward
    part bench-odd 120 gpu_bench --seqlen 1000,1023,1024,4096,4097 --head-dim 64,128
    ;;
  sanitize)
    for tool in memcheck racecheck synccheck initcheck; do
      part "sanitize-$tool" 240 compute-sanitizer --tool "$tool" --error-exitcode 1 glint check --engine cuda --cases 12
    done
    ;;
  *) echo "unknown part $1: info check test bench sanitize" && exit 2 ;;
  esac
}

case ${1:-} in
pack) build_pack ;;
run)
  shift
  [ -f "$pack/programs.tar.xz" ] || build_pack OFF
  [ -x "$pack/bin/glint" ] || tar -C "$pack" -xJf "$pack/programs.tar.xz"
  export PATH=$pack/bin:$PATH LD_LIBRARY_PATH=$pack/lib:${LD_LIBRARY_PATH:-}
  mkdir -p "$out"
  [ $# -gt 0 ] || set -- info check test bench sanitize
  for name in "$@"; do run_part "$name"; done
  exit "$failed"
  ;;
*)
  sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'
  exit 2
  ;;
esac
