#!/usr/bin/env bash
# What each kernel for GPUs from Ampere on makes of the machine, by Nsight Compute: registers, shared memory, occupancy, how busy the tensor
# cores and the exponential unit are, bank conflicts; beside the speed of a plain run, as a share of a matrix product's in the same run.
#
#   bench/ncu_ampere.sh [GPU_BENCH [DTYPE [SEQLEN]]]      default: build/gpu_bench bf16 4096
#
# Needs ncu, and PyTorch for the matrix product. Writes $OUT/ncu-ampere.csv ($OUT defaults to build/ncu): a row a kernel and mask.
set -uo pipefail
bench=${1:-build/gpu_bench}
dtype=${2:-bf16}
seqlen=${3:-4096}
out=${OUT:-build/ncu}
mkdir -p "$out"
# the lines of kernels/variants.txt that are made for a head_dim
kernels_of() {
  local name=glint_forward_fa2_${dtype}_d$1 fa1=glint_forward_fa1_${dtype}_d$1
  case $1 in
  64) echo "$name,${name}_full,$fa1" ;;
  96) echo "$name" ;;
  128) echo "$name,${name}_k32,${name}_full,$fa1" ;;
  192) echo "$name,${name}_q64_k32" ;;
  256) echo "$name,${name}_k32,${name}_q64_k32,${name}_full" ;;
  esac
}
dims=(64 96 128 192 256)
run() { "${prefix[@]}" "$bench" --kernel "$(kernels_of "$1")" --head-dim "$1" --dtype "$dtype" --seqlen "$seqlen" --check 0 "${@:2}"; }

python3 - "$dtype" >"$out/gemm.txt" 2>&1 <<'PY'
import sys, torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[sys.argv[1]]) for _ in "ab")
times = []
for _ in range(20):
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(400000)
    before.record()
    a @ b
    after.record()
    torch.cuda.synchronize()
    times.append(before.elapsed_time(after))
print(2 * 8192**3 / sorted(times)[len(times) // 2] * 1e-9)
PY
prefix=()
for dim in "${dims[@]}"; do run "$dim" --reps 5 --warmup 1 >"$out/plain-$dim.csv"; done

metrics=launch__registers_per_thread,launch__shared_mem_per_block,launch__occupancy_limit_registers,launch__occupancy_limit_shared_mem
metrics+=,launch__grid_size,launch__block_size,launch__waves_per_multiprocessor,gpu__time_duration.sum
metrics+=,sm__maximum_warps_per_active_cycle_pct,sm__warps_active.avg.pct_of_peak_sustained_active
metrics+=,sm__inst_executed_pipe_tensor.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
metrics+=,sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active,sm__issue_active.avg.pct_of_peak_sustained_active
metrics+=,l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,lts__t_bytes.sum,dram__bytes.sum
prefix=(ncu --clock-control none --kernel-name "regex:glint_forward" --csv --page raw --print-units base --metrics "$metrics")
for dim in "${dims[@]}"; do run "$dim" --reps 1 --warmup 0 >"$out/ncu-$dim.txt" 2>&1; done
python3 - "$out" "${dims[@]}" <<'PY'
import csv, sys
out, dims = sys.argv[1], sys.argv[2:]
try:
    peak = float(open(f"{out}/gemm.txt").read())
except ValueError:
    sys.exit(f"no matrix product: {open(f'{out}/gemm.txt').read()[-300:]}")
plain = []  # rows of the plain run
launches = {}  # of a kernel: in each cell it is launched once to warm up and once more
for dim in dims:
    plain += [r for r in csv.DictReader(open(f"{out}/plain-{dim}.csv")) if r["dir"] == "fwd"]
    lines = open(f"{out}/ncu-{dim}.txt").read().splitlines()
    start = next((i for i, l in enumerate(lines) if l.startswith('"ID"')), None)
    if start is None:
        sys.exit("ncu gave no counters: " + "\n".join(lines[-5:]))
    for r in csv.DictReader(lines[start:]):
        if (r["ID"] or "").isdigit():
            launches.setdefault(r["Kernel Name"].split("(")[0], []).append(r)
def number(r, metric):
    try:
        return float(r[metric].replace(",", ""))
    except (KeyError, ValueError):
        return float("nan")
columns = [("registers", "launch__registers_per_thread", "%.0f"), ("shared_bytes", "launch__shared_mem_per_block", "%.0f"),
           ("threads", "launch__block_size", "%.0f"), ("blocks_per_sm_by_registers", "launch__occupancy_limit_registers", "%.0f"),
           ("blocks_per_sm_by_shared", "launch__occupancy_limit_shared_mem", "%.0f"),
           ("occupancy_possible_pct", "sm__maximum_warps_per_active_cycle_pct", "%.1f"),
           ("occupancy_achieved_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "%.1f"),
           ("tensor_busy_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%.1f"),
           ("xu_pct", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "%.1f"),
           ("issue_pct", "sm__issue_active.avg.pct_of_peak_sustained_active", "%.1f"),
           ("bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "%.0f"),
           ("l2_bytes", "lts__t_bytes.sum", "%.0f"), ("dram_bytes", "dram__bytes.sum", "%.0f")]
seen = {}
with open(f"{out}/ncu-ampere.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["kernel", "head_dim", "causal", "seqlen", "tflops", "share_of_gemm"] + [c[0] for c in columns])
    for r in plain:
        name = r["impl"]
        at = seen[name] = seen.get(name, -1) + 1
        mine = launches.get(name, [])
        counters = mine[2 * at + 1] if 2 * at + 1 < len(mine) else {}
        w.writerow([name, r["hdim"], r["causal"], r["seqlen"], r["tflops"], "%.3f" % (float(r["tflops"]) / peak)] +
                   [form % number(counters, metric) for _, metric, form in columns])
print(f"matrix product 8192^3: {peak:.0f} TFLOP/s")
print(open(f"{out}/ncu-ampere.csv").read())
PY
