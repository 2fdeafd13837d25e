#!/usr/bin/env bash
# Counters of the forward kernels, read by Nsight Compute on a machine with a GPU where counters may be read.
#
#   bench/ncu_forward.sh [GPU_BENCH]     default: gpu_bench from the path
#
# HEAD_DIMS, CAUSALS, SEQLENS (defaults 64 128 256, 0 1, 512 2048 8192) say which cells. One CSV row a cell: shares of what the unit can do while
# the kernel runs (percent), L2 hits (percent of sectors), bank conflicts of shared memory (count; wgmma and TMA have none to count), device
# memory's share of its bandwidth, and the stall that waits most with the warps it holds back on average.
set -euo pipefail
bench=${1:-gpu_bench}
units=(
  sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active
  sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active
  smsp__issue_active.avg.pct_of_peak_sustained_active
  lts__t_sector_hit_rate.pct
  l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
  dram__throughput.avg.pct_of_peak_sustained_elapsed
)
stalls=()
for reason in barrier branch_resolving dispatch_stall gmma long_scoreboard math_pipe_throttle mio_throttle no_instruction not_selected \
  short_scoreboard sleeping wait; do
  stalls+=("smsp__average_warps_issue_stalled_${reason}_per_issue_active.ratio")
done
metrics=$(IFS=,; echo "${units[*]},${stalls[*]}")

# ncu's CSV, a metric a line, to one row
# shellcheck disable=SC2016 # awk's own variables
fold='
  NR == FNR { order[NR] = $0; count = NR; next }
  /^"/ {
    line = $0; sub(/^"/, "", line); sub(/"$/, "", line); n = split(line, field, /","/)
    for (i = 1; i <= n; i++) if (index(field[i], "__")) { value = field[n]; gsub(",", "", value); got[field[i]] = value }
  }
  END {
    row = cell
    for (i = 1; i <= count; i++) {
      name = order[i]
      if (name ~ /issue_stalled/) {
        reason = name; sub(/.*stalled_/, "", reason); sub(/_per_issue.*/, "", reason)
        if (got[name] + 0 > most) { most = got[name] + 0; why = reason }
      } else row = row "," got[name]
    }
    printf "%s,%s,%.2f\n", row, why, most
  }'

echo "head_dim,causal,seqlen,tensor_pct,xu_pct,issue_pct,l2_hit_pct,smem_conflicts,dram_pct,stall,warps_stalled"
for d in ${HEAD_DIMS:-64 128 256}; do
  for causal in ${CAUSALS:-0 1}; do
    for n in ${SEQLENS:-512 2048 8192}; do
      ncu --csv --kernel-name regex:glint_forward --launch-count 1 --metrics "$metrics" \
        "$bench" --head-dim "$d" --causal "$causal" --seqlen "$n" --reps 1 --warmup 0 --check 0 2>/dev/null |
        awk -v cell="$d,$causal,$n" "$fold" <(printf '%s\n' "${units[@]}" "${stalls[@]}") -
    done
  done
done
