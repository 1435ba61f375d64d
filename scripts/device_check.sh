#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures an NVIDIA device where nothing is but this repository, gcc, g++ and nvcc: builds
# what it needs (scripts/lean_build.sh), compares kernels and hybrid runs with the CPU, measures the
# device's ceilings and the kernels' shares of them, then decode and prefill of generated models under
# memory budgets and policies.  Results are written as they come; what does not fit the time is left out.
#   scripts/device_check.sh [--out FOLDER] [--minutes N] [--models "SHAPE ..."] [--rival LLAMA_BENCH]
#                           [--build FOLDER] [--dry-run]
#   --out      results.jsonl and log.txt go there (default $OUT, or device_check)
#   --minutes  in all (default 8)
#   --models   shapes of tests/device/make_model.c (default "dense-8b moe-30b-a3b")
#   --rival    llama.cpp's llama-bench, run on the same models with as many layers on the device
#   --build    use this build, made by CMake or scripts/lean_build.sh, and build nothing
#   --dry-run  no device: the emulated one (tests/cuda_host) and tiny models, to try this script
# Exit code: 0, 1 when something that ran was wrong or failed, 2 usage.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-device_check} minutes=8 models="dense-8b moe-30b-a3b" rival='' build='' backend=cuda dry=0
prompt=128 gen=16 arch='' budgets=50%m,0,25%m,100%m,75%m extra=() verify=6
parity_budgets=50%m,100%m policies=layer,expert,stream,paper,backlog
usage() { sed -n '/^#   scripts/,/^# Exit/s/^# //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=1 ;;
    --out | --minutes | --models | --rival | --build)
      [ $# -ge 2 ] || usage
      case $1 in --out) out=$2 ;; --minutes) minutes=$2 ;; --models) models=$2 ;; --rival) rival=$2 ;; --build) build=$2 ;; esac
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[[ $minutes =~ ^[0-9]+$ ]] || usage
if [ "$dry" = 1 ]; then
  # It takes its time, and measuring costs there minutes.
  backend=cuda_host models=tiny-dense prompt=8 gen=2 budgets=50%m,0 verify=2 extra=(--set policy.costs=typical)
  parity_budgets=50%m policies=layer,backlog
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
results=$out/results.jsonl log=$out/log.txt
: >"$results"
: >"$log"
work=$(mktemp -d "${TMPDIR:-/tmp}/device_check.XXXXXX")
memory=$work # where models lie
shm_kib=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ -w /dev/shm ] && [ "${shm_kib:-0}" -gt $((20 << 20)) ] && [ "$dry" = 0 ]; then
  memory=$(mktemp -d /dev/shm/device_check.XXXXXX)
fi
trap 'rm -rf "$work" "$memory"' EXIT
trap 'exit 1' INT TERM
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
failed=0

left() { echo $((minutes * 60 - SECONDS)); }
result() { echo "$1" >>"$results"; }
# shellcheck disable=SC1003 # a set of characters
quote() { printf '%s' "$1" | tr -d '\000-\037"\\'; }

# step NAME SECONDS COMMAND...: stopped after SECONDS or when the time is over; what it prints goes to
# $work/out, its messages to the log.  False when it failed or was not begun.
step() {
  local name=$1 limit=$2 rc=0 start=$SECONDS rest
  shift 2
  rest=$(left)
  : >"$work/out"
  if [ "$rest" -lt 5 ]; then
    result "{\"step\": \"$name\", \"left_out\": \"no time\"}"
    return 1
  fi
  [ "$limit" -lt "$rest" ] || limit=$rest
  echo "== $name: $*" >>"$log"
  timeout --kill-after=5 "$limit" "$@" >"$work/out" 2>"$work/messages" || rc=$?
  tail -c 20000 "$work/messages" >>"$log"
  result "{\"step\": \"$name\", \"seconds\": $((SECONDS - start)), \"exit\": $rc}"
  printf '%-34s %4s s%s\n' "$name" $((SECONDS - start)) "$([ "$rc" = 0 ] || echo "  exit code $rc")"
  [ "$rc" = 0 ] && return 0
  tail -n 3 "$work/messages" | sed 's/^/    /'
  # A step that outlasts its time has told what it could; any other failure is one.
  [ "$rc" = 124 ] || [ "$rc" = 137 ] || failed=1
  return 1
}

facts() {
  local gpu='' cpu
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
  result "{\"cpu\": \"$(quote "$cpu")\", \"cpus\": $(nproc), \"kernel\": \"$(quote "$(uname -r)")\", \"memory_kib\": \
$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo), \"backend\": \"$backend\"}"
  if command -v nvidia-smi >/dev/null; then
    gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit,compute_cap,pcie.link.gen.current,pcie.link.width.current \
      --format=csv,noheader 2>>"$log" | head -1 || true)
    result "{\"gpu\": \"$(quote "$gpu")\"}"
  fi
  echo "$cpu; $(nproc) CPUs; ${gpu:-no nvidia-smi here}"
  arch=$(printf '%s' "$gpu" | awk -F', ' '{ print $7 }' | tr -cd '0-9')
}

find_build() {
  local kind=--cuda
  [ "$dry" = 0 ] || kind=--cuda-host
  if [ -z "$build" ]; then
    build=$work/build
    step "build" "$(left)" env ARCH="${ARCH:-${arch:-90}}" "$root/scripts/lean_build.sh" $kind "$build" || { cat "$work/messages" >&2; exit 1; }
  fi
  build=$(cd "$build" && pwd)
  export ATSINFER_PLUGIN_PATH=$build/lib/atsinfer
  [ "$dry" = 0 ] || [ -e "$build/lib/atsinfer/atsinfer-cuda_host.so" ] || ATSINFER_PLUGIN_PATH+=:$build/tests/cuda_host
  atsinfer=$build/bin/atsinfer
}

ceilings() {
  if [ -x "$build/bin/ceilings" ] && [ "$dry" = 0 ] && step "ceilings" 60 "$build/bin/ceilings"; then
    cat "$work/out" >>"$results"
    sed -n 's/.*"ceiling": "\(.*\)", "unit": "\(.*\)", "value": \(.*\)}/    \3 \2  \1/p' "$work/out"
  fi
}

ceiling() { awk -F'"' -v name="$1" '$4 == name { sub(/.*: /, ""); sub(/}/, ""); print; exit }' "$results"; }

checks() {
  local op only=() tools=()
  [ "$dry" = 0 ] || only=(--type Q4_K --op matmul)
  step "kernels against the reference" 90 "$atsinfer" kernels --check --backend "$backend" "${only[@]}" || true
  [ "$dry" = 0 ] || return 0
  if ! command -v compute-sanitizer >/dev/null; then
    result '{"step": "compute-sanitizer", "left_out": "not here"}'
    return 0
  fi
  for tool in memcheck racecheck; do
    tools=(compute-sanitizer --tool "$tool" --error-exitcode 9)
    for op in "matmul --type Q4_K" "matmul_id --type Q6_K" attn topk; do
      # shellcheck disable=SC2086 # words
      step "$tool, $op" 25 "${tools[@]}" "$atsinfer" kernels --check --backend "$backend" --op $op || true
    done
  done
}

sweep() { # NAME SECONDS MODEL OPTIONS...
  local name=$1 limit=$2 model=$3
  shift 3
  step "$name" $((limit + 20)) "$atsinfer" bench -m "$model" -o jsonl --limit "$limit" --set "backend.accel=$backend" "${extra[@]}" "$@" || true
  cat "$work/out" >>"$results"
}

table() { # the rows of the last sweep
  sed -n 's/.*"vram": "\([^"]*\)", "policy": "\([^"]*\)".*"prefill_ts": \([^,]*\), "decode_ts": \([^,]*\),.*"verify_n": \([^,]*\), "verify_same": \([^,]*\), "verify_worst": \([^}]*\)}/\1 \2 \3 \4 \6 \5 \7/p' \
    "$work/out" | awk '{ printf "    %-6s %-9s pp %9.2f t/s   tg %8.2f t/s", $1, $2, $3, $4
      if ($6 > 0) printf "   best token same %d of %d, logits differ %.1e", $5, $6, $7
      print "" }'
}

parity() {
  for shape in tiny-dense tiny-moe; do
    "$build/bin/make_model" "$shape" "$work/$shape.gguf" >>"$log"
    sweep "hybrid runs against the CPU, $shape" 40 "$work/$shape.gguf" -p 8 -n 2 -r 1 --vram $parity_budgets \
      --policy layer,expert,stream,paper,backlog --verify $verify
    table
  done
}

kernels() { # shares of the ceilings, where they are known
  local type read_gbps mma shape=4096x4096
  [ "$dry" = 0 ] || shape=32x16
  read_gbps=$(ceiling "device read") mma=$(ceiling "mma.sync half, f32 sums")
  for type in Q4_K Q6_K Q8_0 F16; do
    [ "$dry" = 0 ] || [ $type = Q8_0 ] || continue
    step "speed of $type" 40 "$atsinfer" kernels --bench --backend "$backend" --type $type --shape $shape -o csv || continue
    awk -F'"' -v read_gbps="${read_gbps:-0}" -v mma="${mma:-0}" 'NR > 1 {
      split($1, name, ","); split($3, figure, ",")
      limit = figure[4] == "GB/s" ? read_gbps : mma * 1000
      printf "{\"kernel\": \"%s\", \"backend\": \"%s\", \"type\": \"%s\", \"layout\": \"%s\", \"shape\": \"%s\", \"speed\": %s, \"unit\": \"%s\", \"spread\": %s",
        name[2], name[1], name[3], name[4], $2, figure[3], figure[4], figure[7]
      if (limit > 0) printf ", \"share\": %.3f", figure[3] / limit
      print "}" }' "$work/out" | tee -a "$results" | sed 's/^/    /'
  done
}

rivals() { # SHAPE MODEL LAYERS
  local n
  [ -n "$rival" ] || return 0
  for n in $(($3 / 2)) 99 0; do
    step "llama-bench, $1, $n layers there" 60 "$rival" -m "$2" -p $prompt -n $gen -r 1 -ngl $n -o jsonl || continue
    sed 's/^{/{"rival": "llama-bench", /' "$work/out" >>"$results"
    sed -n 's/.*"n_prompt": \([0-9]*\),.*"n_gen": \([0-9]*\),.*"avg_ts": \([0-9.]*\).*/    pp\1 tg\2: \3 t\/s/p' "$work/out"
  done
}

measure() {
  local shape file share layers
  # shellcheck disable=SC2086 # a list
  set -- $models
  while [ $# -gt 0 ]; do
    shape=$1 file=$memory/$1.gguf share=$(($(left) / $#))
    shift
    step "generate $shape" 60 "$build/bin/make_model" "$shape" "$file" || continue
    sed 's/^/    /' "$work/out"
    layers=$(sed -n 's/.*: \([0-9]*\) layers.*/\1/p' "$work/out")
    [ -z "$rival" ] || share=$((share * 2 / 3))
    sweep "$shape under budgets and policies" "$share" "$file" -p $prompt -n $gen -r 1 --vram $budgets --policy $policies
    table
    rivals "$shape" "$file" "$layers"
    rm -f "$file"
  done
}

facts
find_build
ceilings
checks
parity
kernels
measure
echo "$((SECONDS)) s in all; $results"
exit $failed
