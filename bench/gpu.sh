#!/usr/bin/env bash
# Everything that wants a GPU, in one run of less than eight minutes on a machine with 16 cores. Two halves, so that the machine with the GPU
# needs neither a network nor a compiler:
#
#   bench/gpu.sh pack [CMAKE...] builds into build-gpu/: the command, the simulator, gpu_bench, the GPU tests, the shared libraries that they
#                                need, and this script, so that the folder can travel alone
#   bench/gpu.sh run [PART...]   there (or build-gpu/gpu.sh run); without build-gpu/ it builds first
#
# PARTs, when none is named all of them. The first four need no quiet machine and run side by side:
#   info      what the driver and the library see; real tensors through the command
#   check     random problems against the oracle: CASES (default 2000) over everything, HOPPER_CASES (default 5000) for the Hopper kernels
#   test      the GPU tests: streams, graphs, devices, threads, sizes; the faults that users met elsewhere; every kernel of the table by itself
#   isa       each instruction wrapper on the GPU and on the simulator with the same bits
# then, one by one:
#   sanitize  compute-sanitizer's four tools on every kernel of the table, side by side
#   ampere    the Ampere kernels and PyTorch's FlashAttention-2 taking turns on the papers' grid to 64K, and their ratios; odd lengths
#   best      the plan's choice beside cuDNN and FlashAttention-2; odd lengths
#   beyond    decoding, windows, long and odd lengths, packed batches, head_dim 192/128, beside PyTorch where it runs them; ten runs of each
#             Hopper forward kernel, compared bit by bit
#   fp8       e4m3 with factors for heads and for blocks, and with fp32 accumulation, beside cuDNN's bf16, our bf16 and cuBLAS in FP8
#   backward  the backward pass, Hopper's kernels (with GLINT_DETERMINISTIC too) and Ampere's, beside cuDNN and FlashAttention-2
#   ladder    plain arithmetic, FlashAttention-1, -2 and -3 on the same problem
#   ncu       registers, shared memory, occupancy, tensor cores by kernel; pipes, stalls, L2 and conflicts of the Hopper forward kernels
# Results go to $OUT (default build-gpu/results): logs, and CSV where a part measures. Each program runs under a time limit, so nothing can hang the
# run; a part that fails does not stop the next. The exit status counts what failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -f "$here/programs.tar.xz" ]; then # in the folder that travelled
  pack=$here
else
  root=$(dirname "$here")
  pack=$root/build-gpu
fi
out=${OUT:-$pack/results}
tests=(rows lengths sizes serving backward random)
beside=(info check test isa)
alone=(sanitize ampere best beyond fp8 backward ladder ncu)

build_pack() {
  set -e
  local tree=$root/build/gpu-tree
  cmake -S "$root" -B "$tree" -DCMAKE_BUILD_TYPE=Release -DGLINT_CUDA=ON -DGLINT_BUILD_TESTS=ON "$@"
  cmake --build "$tree" -j"$(nproc)" --target glint_command glint_sim gpu_bench gpu_beyond test_gpu test_variants isa_compare "${tests[@]/#/test_engines_}"
  rm -rf "$pack"
  mkdir -p "$pack/bin" "$pack/lib"
  cp "$tree"/{glint,gpu_bench,gpu_beyond} "$tree"/tests/{test_gpu,test_variants,isa_compare,libisa_sim.so} "$pack/bin/"
  for name in "${tests[@]}"; do cp "$tree/tests/test_engines_$name" "$pack/bin/"; done
  cp "$tree/libglint_sim.so" "$pack/lib/"
  strip "$pack"/bin/* "$pack"/lib/*
  # all but the C library itself, which every machine has
  ldd "$pack"/bin/* | awk '/=> \//{print $3}' | sort -u | grep -Ev '/(libc|libm|libdl|libpthread|librt)\.so|/ld-linux' |
    while read -r library; do cp -L "$library" "$pack/lib/"; done
  # every program holds all kernels: compressed together they take the room of one
  tar -C "$pack" -c bin lib | xz -3 --lzma2=dict=128MiB >"$pack/programs.tar.xz"
  rm -r "${pack:?}/bin" "${pack:?}/lib"
  cp "$here"/{gpu.sh,torch_peers.py,torch_beyond.py,ncu_ampere.sh,ncu_forward.sh,fa2_ratios.py} "$pack/"
  cp -r "$here/peers" "$root/examples/data/minilm.safetensors" "$pack/"
  set +e
  du -sh "$pack"
}

# part NAME SECONDS COMMAND...: its output to $out/NAME.log, its last lines to the terminal
part() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  echo "== $name: status $status, $((SECONDS - start)) s"
  tail -n 4 "$out/$name.log" | cut -c1-240
  [ "$status" -eq 0 ] || echo "$name" >>"$out/failed"
}

# check NAME CASES OPTION...: random problems in as many processes as there are cores
check() {
  local name=$1 cores each seed
  cores=$(nproc)
  each=$((($2 + cores - 1) / cores))
  seed=$((RANDOM * 32768 + RANDOM))
  shift 2
  for i in $(seq "$cores"); do
    OMP_NUM_THREADS=1 part "$name-$i" 200 glint check --engine cuda --cases "$each" --seed $((seed + i)) "$@" >/dev/null &
  done
  wait
  for i in $(seq "$cores"); do cat "$out/$name-$i.log" && rm "$out/$name-$i.log"; done >"$out/$name.log"
  echo "== $name: $(awk '/^cuda: /{p += $2; u += $4; f += $8} END {print p " right, " u " refused, " f " wrong"}' "$out/$name.log")"
  grep -A 3 "FAILED" "$out/$name.log"
}

# sanitize TOOL NAMES: the kernels whose names start so, on small problems
sanitize() {
  GLINT_TEST_ENGINE=cuda OMP_NUM_THREADS=1 part "sanitize-$1" 150 compute-sanitizer --tool "$1" --show-backtrace no --error-exitcode 3 test_variants "$2" 4
}

# What racecheck follows: barriers, warp barriers, cp.async. Where a warp's first lane arrives at an mbarrier for all (FlashAttention-2's loose
# kernels, the Hopper kernels) it takes the other lanes' reads for unordered; the simulator does not.
race_names() {
  local t
  for t in bf16 fp16; do printf 'glint_forward_fa2_%s_%s,' $t d64 $t d96 $t d128_ $t d192_ $t d256_; done
  echo glint_forward_fa1,glint_forward_simple
}

run_part() {
  case $1 in
  info)
    part info 60 sh -c 'nvidia-smi; glint info --engine cuda'
    # real tensors through the command, which takes the GPU by itself
    part run 60 sh -c 'glint run --seconds 0.1 --check --dtype bf16 --csv "$0" | tee "$1" && grep -q ,cuda, "$1"' "$here/minilm.safetensors" "$out/run.csv"
    ;;
  check)
    check check "${CASES:-2000}"
    check check-hopper "${HOPPER_CASES:-5000}" --forward --kernel glint_forward_fa3
    ;;
  test)
    part test 120 test_gpu
    GLINT_TEST_ENGINE=cuda part test-variants 150 test_variants glint_ 8
    for name in "${tests[@]}"; do GLINT_TEST_ENGINE=cuda part "test-$name" 120 "test_engines_$name"; done
    ;;
  isa) part isa 60 isa_compare ;;
  sanitize)
    sanitize memcheck glint_ &
    sanitize initcheck glint_ &
    sanitize racecheck "$(race_names)" &
    sanitize synccheck glint_forward_ & # two warpgroups of the backward kernels meet at one barrier from two places: taken for divergence
    wait
    ;;
  ampere)
    for dtype in bf16 fp16; do
      part "ampere-$dtype" 100 python3 "$here/torch_peers.py" --dtype $dtype --peers torch_fa2 --seqlen 512,1024,2048,4096,8192,16384,65536 \
        --reps 11 --seconds 90 -- gpu_bench --reps 11 --kernel glint_forward_fa2
      part "ampere-$dtype-ratios" 10 python3 "$here/fa2_ratios.py" "$out/ampere-$dtype.log"
    done
    part ampere-odd 40 gpu_bench --kernel glint_forward_fa2 --seqlen 1000,1023,1024,4096,4097 --reps 9
    ;;
  best)
    part best 100 python3 "$here/torch_peers.py" --dtype "${DTYPES:-bf16}" --seconds 90 -- gpu_bench
    part best-odd 40 gpu_bench --seqlen 1000,1023,1024,4096,4097 --reps 9
    ;;
  beyond)
    part beyond 60 gpu_beyond
    part beyond-torch 60 python3 "$here/torch_beyond.py"
    part repeat 60 gpu_beyond --repeat all
    ;;
  fp8)
    part fp8 60 python3 "$here/torch_peers.py" --dtype e4m3 --peers cudnn --head-dim 128,256 --reps 11 --seconds 50 -- gpu_bench --dtype e4m3 --reps 11
    part fp8-blocks 30 gpu_bench --dtype e4m3 --head-dim 128,256 --reps 11 --scales block
    part fp8-accurate 30 gpu_bench --dtype e4m3 --head-dim 64,128 --reps 11 --accumulate
    part fp8-bf16 30 gpu_bench --head-dim 128,256 --reps 11
    ;;
  backward)
    part backward 130 python3 "$here/torch_peers.py" --backward --no-ceilings --seconds 115 -- gpu_bench --backward --check 0 \
      --kernel glint_backward_fa3,glint_backward_fa2,glint_backward_fa3+deterministic
    ;;
  ladder) part ladder 60 glint bench --ladder --csv --heads 16 --head-dim 128 --seqlen 512,1024 --seconds 0.1 ;;
  ncu)
    OUT=$out/ncu part ncu 100 "$here/ncu_ampere.sh" "$(command -v gpu_bench)"
    part ncu-forward 120 "$here/ncu_forward.sh" "$(command -v gpu_bench)"
    ;;
  *) echo "unknown part $1: ${beside[*]} ${alone[*]}" && exit 2 ;;
  esac
}

case ${1:-} in
pack) build_pack "${@:2}" ;;
run)
  shift
  [ -f "$pack/programs.tar.xz" ] || build_pack
  [ -x "$pack/bin/glint" ] || tar -C "$pack" -xJf "$pack/programs.tar.xz"
  export PATH=$pack/bin:$PATH LD_LIBRARY_PATH=$pack/lib:${LD_LIBRARY_PATH:-}
  mkdir -p "$out"
  : >"$out/failed"
  [ $# -gt 0 ] || set -- "${beside[@]}" "${alone[@]}"
  for name in "$@"; do
    if [[ " ${beside[*]} " == *" $name "* ]]; then run_part "$name" & else wait && run_part "$name"; fi
  done
  wait
  echo "failed: $(tr '\n' ' ' <"$out/failed")"
  exit "$(wc -l <"$out/failed")"
  ;;
*)
  sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'
  exit 2
  ;;
esac
