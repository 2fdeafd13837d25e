#!/usr/bin/env bash
# Shows that the tests notice: breaks a copy of the sources in one place at a time, builds it, runs the suite, and reports which tests fail.
# A mutation that survives ends the script with status 1; so does one whose text is no longer in the sources.
# usage: tests/mutation.sh [REPORT.md [PATTERN]]     only mutations whose name matches; about a minute for each
set -euo pipefail
export OMP_WAIT_POLICY=passive
source=$(cd "$(dirname "$0")/.." && pwd)
report=${1:-/dev/stdout}
pattern=${2:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
survivors=0
rows=()

cp -r "$source"/{CMakeLists.txt,include,src,testkit,tests,tools,examples,README.md} "$work/"
for folder in kernels sim bench cmake; do
  if [ -d "$source/$folder" ]; then cp -r "$source/$folder" "$work/"; fi
done
cmake -S "$work" -B "$work/build" -DGLINT_CUDA=OFF -DGLINT_BUILD_SIM=OFF -DGLINT_WERROR=OFF >/dev/null
cmake --build "$work/build" --parallel "$(nproc)" >/dev/null
# the failing tests of one group, by name
failing() {
  ctest --test-dir "$work/build" --timeout 600 "$@" >"$work/log" 2>&1 || true
  awk '/^[[:space:]]+[0-9]+ - / { print $3 }' "$work/log" | sort -u
}
# quick tests first, then the longer ones until one group notices
groups=('-L quick' '-LE quick -R rows|lengths|serving' '-LE quick -E rows|lengths|serving')
already=$(for group in "${groups[@]}"; do
  # shellcheck disable=SC2086
  failing $group
done)
[ -z "$already" ] || echo "mutation: these fail without any mutation and are left out:" "$(echo "$already" | paste -sd " ")" >&2

noticed_by() {
  local group found
  for group in "${groups[@]}"; do
    # shellcheck disable=SC2086
    found=$(comm -23 <(failing $group) <(echo "$already" | sort -u))
    if [ -n "$found" ]; then
      echo "$found" | paste -sd ' '
      return
    fi
  done
}

# mutate WHAT FILE BEFORE AFTER: replaces the first BEFORE in FILE by AFTER
mutate() {
  local what=$1 file=$2 failed
  if ! echo "$what" | grep -q "$pattern"; then return; fi
  cp "$work/$file" "$work/original"
  if ! BEFORE=$3 AFTER=$4 perl -0pi -e 'BEGIN { $n = 0 } $n += s/\Q$ENV{BEFORE}\E/$ENV{AFTER}/; END { exit 1 unless $n }' "$work/$file"; then
    echo "mutation: $file has no '$3'" >&2
    exit 1
  fi
  if ! cmake --build "$work/build" --parallel "$(nproc)" >"$work/log" 2>&1; then
    tail -20 "$work/log" >&2
    echo "mutation: $what does not compile" >&2
    exit 1
  fi
  failed=$(noticed_by)
  rows+=("| $what | \`$file\` | ${failed:-**none: it survives**} |")
  echo "mutation: $what: ${failed:-SURVIVES}" >&2
  [ -n "$failed" ] || survivors=$((survivors + 1))
  cp "$work/original" "$work/$file"
}

mutate 'causal and window aligned to the top left' src/api/work.c 'i + s->len_k - s->used_q' 'i'
mutate 'left window bound one further in' src/api/work.c '*first = position - w->window_left' '*first = position - w->window_left + 1'
mutate 'right window bound one further in' src/api/work.c 'position + w->window_right + 1' 'position + w->window_right'
mutate 'output not rescaled in the online softmax' src/cpu/panel.c 'step->o, rescale ? alpha : NULL' 'step->o, rescale ? NULL : NULL'
mutate 'sum not rescaled in the online softmax, few rows' src/cpu/rows_template.h 'l[r] * alpha[r] + total' 'l[r] + total'
mutate 'splits over keys merged without weights' src/cpu/output.c 'sum[c] += weight * from[c]' 'sum[c] += from[c]'
mutate 'sink left out of the sum' src/cpu/output.c 'sum * factor + exp2(sink - top)' 'sum * factor'
mutate 'query heads of a group taken in the wrong order' src/cpu/forward.h '% run->plan->group;' '% run->plan->group * 0;'
mutate 'masked NaN in v multiplied by zero' src/cpu/panel.c 'visit.masked && !block->finite' 'visit.masked && block->finite < 0'
mutate 'rows of unused queries not cleared' src/cpu/output.c 'i = s->used_q; i < s->len_q' 'i = s->len_q; i < s->len_q'
mutate 'scale a thousandth too large' src/cpu/input.c ': (double)w->scale;' ': (double)w->scale * 1.001;'
mutate 'probabilities of float32 inputs rounded to 8 bits' src/cpu/panel_template.h '      V(store)(at, p);' \
  '      V(store)(at, V(sub)(V(add)(p, V(mul)(p, V(set1)(65536.0f))), V(mul)(p, V(set1)(65536.0f))));'
mutate 'exponential wrong by one in 40,000' src/cpu/exp2_template.h '0x1.62e4bap-1f' '0x1.62e8bap-1f'
mutate 'second head of an item reads the keys of the first' src/cpu/few.c 'at = visit->head * w->head_dim' 'at = 0 * w->head_dim'
mutate 'rotated queries all at the first position' src/cpu/input.c 'each_row ? cached + i : cached' 'each_row ? cached : cached'
mutate 'delta left out of dS' src/cpu/backward_template.h 'V(sub)(d, V(load)(delta + n))' 'V(sub)(d, zero)'
mutate 'gradient of lse left out of delta' src/cpu/backward_item.c 'delta -= (double)((const float *)' 'delta -= 0 * (double)((const float *)'
mutate 'decreasing cu_seqlens accepted' src/api/check_lengths.c 'value[b] < value[b - 1]' 'value[b] < -value[b - 1]'
mutate 'window below -1 accepted' src/api/check_scores.c 'p->window_left < -1' 'p->window_left < -2'
mutate 'Fortran order of .npy ignored' tools/io/npy.c 'h->fortran ? row_major_of(h, i) : i' 'h->fortran ? i : i'
mutate 'overlapping safetensors accepted' tools/io/safetensors.c 'sorted[i]->begin != at' 'sorted[i]->begin > at'

{
  echo "| mutation | in | tests that fail |"
  echo "|---|---|---|"
  printf '%s\n' "${rows[@]}"
} >"$report"
[ "$survivors" -eq 0 ]
