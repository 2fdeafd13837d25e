#!/usr/bin/env bash
# Bank conflicts on the GPU against the counts of `glint layout banks` (expected.csv, which a test keeps equal to the tool and the simulator).
#
#   bench/banks/run.sh [ARCH]        ARCH: default sm_90a. Needs nvcc and ncu; takes well under a minute.
#
# Writes $OUT/banks.csv ($OUT defaults to build/banks): pattern, wavefronts of one instruction by the tool, by ncu, bank conflicts by ncu,
# and the clocks that an instruction took in a plain run. Ends with the number of patterns in which tool and GPU disagree.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-build/banks}
arch=${1:-sm_90a}
mkdir -p "$out"
nvcc -O3 -gencode=arch=compute_"${arch#sm_}",code="$arch" -o "$out/banks" "$here/banks.cu" || exit 1
"$out/banks" >"$out/clocks.csv" || exit 1

metrics=
# a metric that this ncu does not know would stop it, so only known ones are asked for
known=$(ncu --query-metrics 2>/dev/null)
for name in l1tex__data_pipe_lsu_wavefronts_mem_shared l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld \
  l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st l1tex__data_bank_conflicts_pipe_lsu_mem_shared \
  l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st \
  smsp__inst_executed_op_ldsm smsp__inst_executed_op_shared_ld smsp__inst_executed_op_shared_st; do
  if [ -z "$known" ] || grep -q "^$name " <<<"$known"; then metrics+=${metrics:+,}$name.sum; else echo "ncu has no metric $name"; fi
done
ncu --clock-control none --csv --page raw --metrics "$metrics" "$out/banks" >"$out/ncu.txt" 2>&1
if ! grep -q '^"ID"' "$out/ncu.txt"; then
  echo "ncu gave no counters; its words:"
  tail -5 "$out/ncu.txt"
  echo "clocks only:"
fi
python3 - "$here/expected.csv" "$out/clocks.csv" "$out/ncu.txt" "$out/banks.csv" <<'PY'
import csv, sys
expected, clocks, ncu, target = sys.argv[1:]
repeats = 64
rows = {r["pattern"]: r for r in csv.DictReader(open(expected))}
for r in csv.DictReader(open(clocks)):
    rows[r["pattern"]]["clocks"] = r["clocks"]
lines = open(ncu).read().splitlines()
start = next((i for i, l in enumerate(lines) if l.startswith('"ID"')), None)
counters = {}
if start is not None:
    for r in csv.DictReader(lines[start:]):
        if r.get("Kernel Name", "").split("(")[0] in rows:
            counters[r["Kernel Name"].split("(")[0]] = r  # the second launch replaces the first
def number(r, metric):
    text = r.get(metric + ".sum", "")
    return float(text.replace(",", "")) / repeats if text else None
names = "pattern,access,wavefronts_tool,wavefronts_ncu,conflicts_tool,conflicts_ncu,clocks".split(",")
disagree = 0
with open(target, "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(names)
    for name, e in rows.items():
        c = counters.get(name, {})
        side = "_op_st" if e["access"].startswith("st") else "_op_ld"
        waves = number(c, "l1tex__data_pipe_lsu_wavefronts_mem_shared" + side)
        if not waves:
            waves = number(c, "l1tex__data_pipe_lsu_wavefronts_mem_shared")
        conflicts = number(c, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared" + side)
        if waves is not None and round(waves) != int(e["wavefronts"]):
            disagree += 1
        show = lambda x: "" if x is None else f"{x:g}"
        w.writerow([name, e["access"], e["wavefronts"], show(waves), e["conflicts"], show(conflicts), e.get("clocks", "")])
print(open(target).read())
print(f"{disagree} of {len(counters)} measured patterns disagree" if counters else "nothing measured by ncu")
PY
