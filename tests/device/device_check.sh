#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/device_check.sh on the emulated device: every step succeeds, its results are JSON lines, and
# a run without time says what it left out.
#   device_check.sh SOURCES BUILD FOLDER
set -euo pipefail
sources=$1 build=$2 out=$3/device_check
fail() { echo "device_check: $*" >&2; exit 1; }
rm -rf "$out"
"$sources/scripts/device_check.sh" --dry-run --build "$build" --out "$out" >"$3/device_check.out" 2>&1 || {
  cat "$3/device_check.out" "$out/log.txt" >&2
  fail "exit code $?"
}
results=$out/results.jsonl
grep -qv '^{.*}$' "$results" && fail "a line is no object: $(grep -v '^{.*}$' "$results" | head -1)"
for shape in tiny-dense tiny-moe; do
  for policy in layer expert stream paper backlog; do
    row=$(grep "$shape.gguf.*\"accel\": \"cuda_host\", \"vram\": \"50%m\", \"policy\": \"$policy\".*\"verify_n\": 3" "$results") ||
      fail "no row compared with the CPU: $shape $policy"
    case $row in *'"fallbacks": 0,'*) ;; *) fail "the device was given up: $row" ;; esac
  done
done
grep -q '"kernel": "matmul", "backend": "cuda_host".*"layout": "panels".*"unit": "GB/s"' "$results" || fail "no kernel is timed"
grep -q '"accel": "", "vram": "0"' "$results" || fail "no row of the CPU alone"

"$sources/scripts/device_check.sh" --dry-run --build "$build" --out "$out" --minutes 0 >/dev/null 2>&1 ||
  fail "without time: exit code $?"
grep -q '"left_out": "no time"' "$results" || fail "what was left out is not said"
for wrong in "--minutes x" "--frob" "--out"; do
  rc=0
  # shellcheck disable=SC2086 # words
  "$sources/scripts/device_check.sh" $wrong >/dev/null 2>&1 || rc=$?
  [ "$rc" = 2 ] || fail "$wrong: exit code $rc"
done

# What bench refuses of a table of budgets and policies, in one line.
make=$build/bin/make_model atsinfer=$build/bin/atsinfer model=$3/device_check.gguf
"$make" tiny-dense "$model" >/dev/null
refused() { # WORDS OPTIONS...
  local words=$1 rc=0
  shift
  "$atsinfer" bench -m "$model" -p 4 -n 2 -r 1 "$@" >/dev/null 2>refused.words || rc=$?
  [ "$rc" = 2 ] || fail "bench $*: exit code $rc"
  grep -q "error: .*$words" refused.words || fail "bench $*: $(cat refused.words)"
}
cd "$3"
refused "no such policy" --vram 50%m --policy frob
refused "memory.vram\|50%x" --vram 50%x --policy layer
refused "expected md, csv, json or jsonl" --vram 50%m -o sql
refused "give one -p" --vram 50%m -p 4,8
[ "$("$atsinfer" bench -m "$model" -p 4 -n 2 -r 1 --vram 0 --policy layer,backlog -o csv 2>/dev/null | wc -l)" = 2 ] ||
  fail "the CPU alone is measured more than once"
