#!/usr/bin/env bash
# The command as a user meets it: exit statuses, messages, outputs of one verb read back by another.
# usage: test_command.sh PATH-OF-GLINT SOURCE-DIRECTORY
set -euo pipefail
glint=$1
data=$2/examples/data/minilm.safetensors
fixtures=$2/tests/data/npy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect NAME STATUS TEXT COMMAND...: the command ends with STATUS and prints TEXT (an extended regular expression) on either stream
expect() {
  local name=$1 status=$2 text=$3 got=0
  shift 3
  "$@" >"$work/out" 2>&1 </dev/null || got=$?
  if [ "$got" -ne "$status" ] || ! grep -Eq -- "$text" "$work/out"; then
    echo "FAILED $name: status $got, expected $status and /$text/; printed:"
    cat "$work/out"
    failures=$((failures + 1))
  fi
}

# ---- use ----
expect "no verb" 2 "Usage: glint VERB" "$glint"
expect "unknown verb" 2 "no verb 'fly'" "$glint" fly
expect "help" 0 "attention on tensors in files" "$glint" --help
expect "version" 0 "^glint [0-9]+\.[0-9]+\.[0-9]+$" "$glint" --version
for verb in $("$glint" --help | awk '/^  [a-z]/ { print $1 }'); do
  expect "$verb --help" 0 "Usage:" "$glint" "$verb" --help
  expect "$verb with an unknown option" 2 "unrecognized option" "$glint" "$verb" --no-such-option
done
expect "run without input" 2 "give FILE.safetensors, or all of" "$glint" run
expect "run with half of the input" 2 "or all of" "$glint" run --q x.npy
expect "a window that is none" 2 "not LEFT,RIGHT" "$glint" run "$data" --window 3
expect "an engine that is none" 2 "none of auto" "$glint" run "$data" --engine tpu
expect "float64 elsewhere" 2 "needs --engine oracle" "$glint" run "$data" --dtype f64

# ---- failures ----
expect "no such file" 1 "/nowhere: No such file" "$glint" run /nowhere
expect "not safetensors" 1 "safetensors: a header of" "$glint" run "$fixtures/f4_little_C_v2.npy"
expect "not npy" 1 "does not start as" "$glint" run --q "$data" --k "$data" --v "$data"
expect "wrong rank" 1 "scalar|axes" "$glint" run --q "$fixtures/scalar.npy" --k "$fixtures/scalar.npy" --v "$fixtures/scalar.npy"
expect "wrong type" 1 "type c8 is not supported" "$glint" run --q "$fixtures/complex.npy" --k "$fixtures/complex.npy" --v "$fixtures/complex.npy"
expect "wrong window" 2 "not an integer from -1" "$glint" run "$data" --window=-2,0
expect "no such problem" 1 "no problem is named 'x'" "$glint" run "$data" --name x
expect "many problems into one npy" 1 "there are 18 problems" "$glint" run "$data" -o "$work/o.npy"
expect "unwritable" 1 "No such file or directory" "$glint" run "$data" -o /nonexistent/o.safetensors

# ---- results ----
expect "real tensors" 0 "18 problems, .*all within tolerance" "$glint" run --seconds 0 --check --dtype f32 "$data"
expect "real tensors in bfloat16" 0 "18 problems, .*all within tolerance" "$glint" run --seconds 0 --check --dtype bf16 --causal "$data"
cp "$data" "$work/wrong.safetensors"
printf '\000\000\200\077' | dd of="$work/wrong.safetensors" bs=1 seek=$(($(wc -c <"$data") - 4)) conv=notrunc status=none
expect "one wrong output in the file is noticed" 1 "^short.layer5 .*WRONG" "$glint" run --seconds 0 --check --dtype f32 "$work/wrong.safetensors"
expect "json" 0 '"failures":\s*0' "$glint" run --seconds 0 --check --json "$data"
expect "csv" 0 '^problem,shape,dtype,engine,kernel,ms,' "$glint" run --seconds 0 --csv --name short.layer0 "$data"
expect "outputs" 0 "short.layer5" "$glint" run --seconds 0 "$data" -o "$work/out.safetensors"
expect "rank 3 is one sequence" 0 "1 x 2 x 3 x 4" "$glint" run --seconds 0 --check --q "$fixtures/f4_big_F_v2.npy" --k "$fixtures/f4_little_C_v2.npy" \
  --v "$fixtures/f8_little_C_v3.npy" -o "$work/o.npy" --lse "$work/lse.npy"
expect "bfloat16 bits" 0 " bf16 " "$glint" run --seconds 0 --dtype bf16 --q "$fixtures/bf16_bits.npy" --k "$fixtures/bf16_bits.npy" --v "$fixtures/bf16_bits.npy"
expect "the written o is an array again" 0 "1 x 2 x 3 x 4" "$glint" run --seconds 0 --q "$work/o.npy" --k "$work/o.npy" --v "$work/o.npy"
expect "float64 from the oracle" 0 "oracle" "$glint" run --seconds 0 --engine oracle --dtype f64 --name short.layer0 "$data" -o "$work/o64.npy"
grep -aq "'descr': '<f8'" "$work/o64.npy" || { echo "FAILED: o64.npy is not float64"; failures=$((failures + 1)); }
expect "plan" 0 "flops" "$glint" plan --heads 8/2 --causal
expect "plan as json" 0 '"kernel":' "$glint" plan --json
expect "plan refuses" 1 "heads" "$glint" plan --heads 5/2
expect "info" 0 "engine: " "$glint" info
expect "info as json" 0 '"facts":' "$glint" info --json
expect "picture" 0 "p.svg" "$glint" picture "$data" --name tired.layer3 --head 1 -o "$work/p.svg"
expect "picture of no head" 1 "there are 12 heads" "$glint" picture "$data" --head 12 -o "$work/p.svg"
for part in "<svg " ">animal<" ">\[CLS\]<" "</svg>"; do
  grep -q "$part" "$work/p.svg" || { echo "FAILED: the picture lacks $part"; failures=$((failures + 1)); }
done

if "$glint" plan --engine sim >"$work/sim" 2>&1; then # where the simulator is built
  # 96 rows and keys of 64 columns in bfloat16: 12288 bytes a tensor. FlashAttention-1 takes q once for each of its two blocks of keys, and each
  # row's o (256 bytes), maximum and sum (4 each) leave once and come back once, maximum and sum to four lanes; FlashAttention-2 has one tile of
  # rows, so all comes once.
  # the study's model of the FP8 kernel's arithmetic against the kernel itself
  "$glint" bench --accuracy --csv --engine sim --seqlen 140 --heads 1 --head-dim 64 --lengths 128 | awk -F, '
    $6 == "as the kernel" { model[$1 $4 $5] = $7 }
    $6 == "sim" { n++; gap = $7 / model[$1 $4 $5] - 1; if (gap * gap > 0.03 * 0.03) bad = 1 }
    END { exit bad || n != 14 }' || { echo "FAILED: the accuracy study's model is not the kernel"; failures=$((failures + 1)); }
  ladder=("$glint" bench --ladder --head-dim 64 --seqlen 96 --batch 1 --heads 1)
  expect "FlashAttention-1 on the ladder" 0 "^FlashAttention-1,.*,1,0.024576,0.024576,0.052992,0.012672,0.114816," "${ladder[@]}" --csv
  expect "FlashAttention-2 on the ladder" 0 "^FlashAttention-2,.*,1,0.012288,0.024576,0,0.012672,0.049536,0.049536," "${ladder[@]}" --csv
  expect "the ladder as a table" 0 "^FlashAttention-3 +glint_forward_fa3_bf16_d64[a-z_]* +64 +0 +96 " "${ladder[@]}"
  expect "the ladder as json" 0 '"rung":\s*"plain arithmetic"' "${ladder[@]}" --json
  expect "a rung that refuses says why" 0 "^FlashAttention-1 .*head_dim is 256" "$glint" bench --ladder --head-dim 256 --seqlen 20 --batch 1 --heads 1
  expect "a pipeline" 0 "two softmaxes at once" "$glint" trace --engine sim --batch 1 --heads 1 --seqlen 300 --causal --begin 0 --save "$work/stamps" -o "$work/t.svg"
  expect "the same from its stamps" 0 "drawn" "$glint" trace --load "$work/stamps" --begin 0 -o "$work/again.svg"
  cmp -s "$work/t.svg" "$work/again.svg" || { echo "FAILED: the saved stamps draw another picture"; failures=$((failures + 1)); }
  for part in "consumer 1 computes" "P V in flight: " "</svg>"; do
    grep -q "$part" "$work/t.svg" || { echo "FAILED: the pipeline lacks $part"; failures=$((failures + 1)); }
  done
fi
# ---- FP8 ----
expect "FP8 of a kind that is none" 2 "none of tensor, head, blockN" "$glint" run "$data" --dtype e4m3 --scales rows
expect "blocks of 20 rows" 2 "multiple of 16 rows" "$glint" run "$data" --dtype e4m3 --scales block20
expect "rotation without FP8" 2 "need --dtype e4m3" "$glint" run "$data" --rotate
for way in "" "--rotate --smooth --scales block16" "--scales head"; do
  # shellcheck disable=SC2086
  "$glint" run --seconds 0 --check --csv --dtype e4m3 $way "$data" | awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    $column["verdict"] != "ok" || !($column["bf16_rmse"] > 1e-3 && $column["bf16_rmse"] < 0.03) { bad = 1 }
    END { exit bad || NR != 19 }' || { echo "FAILED: FP8 $way is wrong, or too far from bfloat16, or too near"; failures=$((failures + 1)); }
done
expect "lse is the unsmoothed one" 0 "1 x 15" "$glint" run --seconds 0 --dtype e4m3 --smooth --name tired.layer0 "$data" --lse "$work/lse8.npy"
expect "lse in float32" 0 "1 x 15" "$glint" run --seconds 0 --dtype f32 --name tired.layer0 "$data" --lse "$work/lse32.npy"
# the last 720 bytes are the 180 numbers
paste <(tail -c 720 "$work/lse8.npy" | od -An -v -t f4 -w4) <(tail -c 720 "$work/lse32.npy" | od -An -v -t f4 -w4) |
  awk '{ sum += ($1 - $2) ^ 2 } END { exit !(sum < 0.02 * NR) || NR != 180 }' || { echo "FAILED: smoothing left lse shifted"; failures=$((failures + 1)); }
accuracy=("$glint" bench --accuracy --seqlen 160 --heads 1 --head-dim 64 --lengths "256,512")
expect "accuracy" 0 "^outliers .*blocks \\+ hadamard" "${accuracy[@]}" --file "$data" --plot "$work/accuracy.svg"
grep -q "</svg>" "$work/accuracy.svg" || { echo "FAILED: the accuracy study has no picture"; failures=$((failures + 1)); }
"${accuracy[@]}" --csv | awk -F, '$1 == "outliers" && $6 == "as the kernel" { rmse[$5] = $7 } $1 == "normal" && $5 == "bfloat16" { half = $7 }
  END { exit !(rmse["hadamard"] > 0 && rmse["hadamard"] < rmse["plain"] && half > 0 && half < 0.002) }' || { echo "FAILED: rotation does not help against outliers"; failures=$((failures + 1)); }
expect "a pass by hand" 0 "glint_forward .* within 1e-6: yes" "$glint" explain forward
expect "no pass" 2 "expected forward or backward" "$glint" explain sideways
expect "only backward problems" 0 "^cpu: 20 passed, 0 refused" "$glint" check --engine cpu --backward --cases 20 --max-work 65536
expect "neither forward nor backward" 2 "exclude each other" "$glint" check --forward --backward
expect "no stamps" 1 "not [0-9]+ bytes of stamps" "$glint" trace --load /nonexistent

echo "$failures failures"
[ "$failures" -eq 0 ]
