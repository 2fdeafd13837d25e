#!/usr/bin/env bash
# The CPU benchmarks of this machine, each beside its own ceilings in the same run, into bench/results/cpu-DATE-CPU-*.csv: about 90 seconds, and as much again where PyTorch is installed.
# usage: bench/cpu.sh [PATH-OF-GLINT] [--quick]
set -euo pipefail
cd "$(dirname "$0")/.."
glint=${1:-build/glint}
quick=${2:-}

cpu=$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo 2>/dev/null || uname -m)
cores=$(nproc)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [ -n "$(git status --porcelain --untracked-files=no 2>/dev/null || true)" ]; then commit="$commit with changes"; fi
slug=$(echo "$cpu" | tr -c 'A-Za-z0-9\n' '-' | tr -s '-' | tr '[:upper:]' '[:lower:]' | sed 's/-$//')
prefix=bench/results/cpu-$(date +%F)-$slug-${cores}c
mkdir -p bench/results

# measure NAME OPTION...
measure() {
  local file=$prefix-$1.csv
  shift
  {
    echo "# $(date -u +%FT%TZ), glint $commit, $cpu, $cores cores: glint bench $*"
    "$glint" bench --csv "$@"
  } >"$file.part"
  mv "$file.part" "$file"
  echo "$file"
}

measure peak --peak
if [ "$quick" = --quick ]; then
  measure prefill --seconds 0.2 --seqlen 512,2048
  measure decode --seconds 0.2 --decode --seqlen 4096,16384 --batch 1
  exit 0
fi
measure decode --decode --seconds 0.4
measure scaling --scaling --seconds 0.3
# one thread by instruction set: one head is enough for it
for isa in avx2 avx512 avx512_bf16 amx_bf16; do
  if cut -d, -f2 "$prefix-peak.csv" | grep -qx "$isa"; then
    case $isa in
    avx2 | avx512) measure "one-thread-$isa" --isa "$isa" --threads 1 --heads 1 --dtype f32 --seqlen 2048,8192 ;;
    *) measure "one-thread-$isa" --isa "$isa" --threads 1 --heads 1 --dtype bf16 --seqlen 2048,8192 ;;
    esac
  fi
done
if python3 -c 'import torch' 2>/dev/null; then
  python3 bench/torch_cpu.py --library "$(dirname "$glint")/libglint.so" --seconds 0.5 --output "$prefix-torch.csv"
  python3 bench/torch_cpu.py --library "$(dirname "$glint")/libglint.so" --seconds 0.5 --backward --output "$prefix-torch-backward.csv"
fi
