#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each CUDA runtime call of a hybrid run of a few tokens fails once (of the calls of one run a sample,
# ATSI_FAULT_STEP=1 takes all; ATSI_FAULT_FIRST and ATSI_FAULT_LAST bound it): the answer is that of the CPU alone,
# or there is one clean error; never a hang, a crash, or anything left behind.
#   hybrid_faults.sh ATSINFER CUDA_HOST_PLUGIN MODEL
set -uo pipefail
atsinfer=$1 plugin=$2 model=$3
step=${ATSI_FAULT_STEP:-37} first=${ATSI_FAULT_FIRST:-1} last=${ATSI_FAULT_LAST:-1000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work
unset CUDA_HOST_FAIL

run() { # settings of the accelerator in "$@"
  timeout 120 "$atsinfer" logits -m "$model" --ids 1,2,3,4,5,6,7 -n 4 --top 1 -ctk f32 -ctv f32 --set backend.cpu=cpu_ref \
    --set load.pack=off --set policy.costs=typical "$@" >"$work/out" 2>"$work/err"
}
tokens() { sed 's/.*"greedy_ids":\[\([0-9,]*\)\].*/\1/' "$work/out"; }

run --set backend.accel=none || { cat "$work/err"; exit 1; }
want=$(tokens)
cases=0 failed=0 fell_back=0 errors=0
hybrid=(--plugin "$plugin" --set backend.accel=cuda_host --set memory.vram=40%m --set policy.name=policy_static
  --set plugin.policy_static.mode=stream)
one() { # FAIL
  CUDA_HOST_FAIL=$1 run "${hybrid[@]}"
  local rc=$?
  cases=$((cases + 1))
  grep -q 'computed on the CPU\|computed again on the CPU' "$work/err" && fell_back=$((fell_back + 1))
  if [ $rc -eq 0 ] && [ "$(tokens)" = "$want" ]; then return; fi
  errors=$((errors + 1))
  if [ $rc -eq 1 ] && [ "$(grep -c '^atsinfer: error:' "$work/err")" -ge 1 ] && ! grep -q 'cuda_host report' "$work/err"; then return; fi
  failed=$((failed + 1))
  echo "FAIL at $1: exit status $rc, tokens $(tokens) instead of $want"
  tail -5 "$work/err"
}
run "${hybrid[@]}" || { echo "FAIL without any fault"; cat "$work/err"; exit 1; }
[ "$(tokens)" = "$want" ] || { echo "FAIL without any fault: $(tokens) instead of $want"; exit 1; }
# Further faults than there are calls do not happen: the last one is found by doubling.
most=64
while [ $most -lt 65536 ]; do
  CUDA_HOST_FAIL=$most:cudaErrorUnknown run "${hybrid[@]}"
  grep -q 'cudaErrorUnknown' "$work/err" || break
  most=$((most * 2))
done
n=$first
while [ $n -lt $most ] && [ $n -le $last ]; do
  case $((n % 3)) in
    0) one "$n:cudaErrorMemoryAllocation" ;;
    1) one "$n:cudaErrorUnknown" ;;
    2) one "$n:cudaErrorIllegalAddress" ;;
  esac
  n=$((n + step))
done
for n in 1 7 40 200; do # of operations on the device
  one "$n:cudaErrorIllegalAddress:async"
done
echo "$cases faults of up to $most calls: $((cases - failed)) as they should, $fell_back went on without the accelerator, $errors ended with an error"
[ $failed -eq 0 ] && [ $fell_back -gt 0 ]
