#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our speed beside that of other programs, test by test: every number the median of samples taken in
# turns with `atsinfer bench --rival`.  Needs their llama-bench programs, built elsewhere.
#   rival_table.sh [options] NAME=MODEL.gguf ...
#     --atsinfer PROGRAM        default: build/bin/atsinfer
#     --avx512 NAME=COMMAND     another program's build for AVX-512 (may be repeated)
#     --avx2 NAME=COMMAND       another program's build for AVX2 alone (may be repeated)
#     --run PREFIX              run each measurement through PREFIX (a lock, numactl)
#     -p N, -n N, -r N, -t N    prompt (512; 0: none), generated tokens (64; 0: none), samples (5), threads
#     --json FILE               also append the rows, one JSON object a line
# One call of atsinfer per model, instruction set and test; each needs some tens of seconds.
set -euo pipefail
atsinfer=build/bin/atsinfer run="" p=512 n=64 r=5 t="" json=""
avx512=() avx2=() models=()
while [ $# -gt 0 ]; do
  case $1 in
    --atsinfer) atsinfer=$2; shift ;;
    --avx512) avx512+=(--rival "$2"); shift ;;
    --avx2) avx2+=(--rival "$2"); shift ;;
    --run) run=$2; shift ;;
    -p) p=$2; shift ;;
    -n) n=$2; shift ;;
    -r) r=$2; shift ;;
    -t) t=$2; shift ;;
    --json) json=$2; shift ;;
    *=*) models+=("$1") ;;
    *) sed -n '3,15p' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ ${#models[@]} -gt 0 ] || { sed -n '3,15p' "$0" >&2; exit 2; }
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

# one LABEL MODEL ISA BACKEND MASK TEST.. -- RIVALS..
measure() {
  local label=$1 model=$2 isa=$3 mask=$4
  shift 4
  # shellcheck disable=SC2086 # the prefix is words
  $run "$atsinfer" bench -q -m "$model" ${t:+-t $t} -r "$r" --set backend.accel=none \
    --set backend.cpu="cpu_$isa" ${mask:+--set cpu.caps_mask=$mask} "$@" -o jsonl |
    sed "s/^{/{\"label\": \"$label\", \"isa\": \"$isa\", /" >>"$rows"
}
for entry in "${models[@]}"; do
  label=${entry%%=*} model=${entry#*=}
  for test in "-p $p -n 0" "-p 0 -n $n"; do
    [ "$test" = "-p 0 -n 0" ] && continue
    # shellcheck disable=SC2086
    [ ${#avx2[@]} -gt 0 ] && measure "$label" "$model" avx2 "-avx512,-avx_vnni" $test "${avx2[@]}"
    # shellcheck disable=SC2086
    [ ${#avx512[@]} -gt 0 ] && measure "$label" "$model" avx512 "" $test "${avx512[@]}"
  done
done
[ -z "$json" ] || cat "$rows" >>"$json"
python3 "$(dirname "$0")/rival_table.py" "$rows"
