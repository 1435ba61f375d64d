#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ptxas says of every CUDA kernel: registers per thread, bytes spilled, shared memory, as the
# table of docs/kernels.md.  Needs nvcc; no device.
#   scripts/ptxas_table.sh [--arch N] [--all] [--check REGEX] [--write FILE] [SOURCE.cu ...]
#   --arch   compute capability, 75 or 90 (default 90)
#   --all    a line for each instance of a template, not one for all of them
#   --check  exit code 4 when a kernel whose name matches spills registers
#   --write  puts the table between the lines "<!-- ptxas -->" and "<!-- /ptxas -->" of FILE
set -euo pipefail
cd "$(dirname "$0")/.."
arch=90 check='' write='' all=0
usage() { sed -n 's/^#   scripts/usage: scripts/p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --arch | --check | --write)
      [ $# -ge 2 ] || usage
      case $1 in --arch) arch=$2 ;; --check) check=$2 ;; *) write=$2 ;; esac
      shift 2
      ;;
    --all) all=1; shift ;;
    -*) usage ;;
    *) break ;;
  esac
done
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "ptxas_table.sh: no nvcc here: the CUDA Toolkit has it" >&2; exit 2; }
if [ $# -eq 0 ]; then
  set -- plugins/cuda/*.cu
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines "file name registers stores loads shared", names as the compiler mangled them.
for source in "$@"; do
  "$nvcc" -arch="sm_$arch" -cubin -O3 -std=c++17 -I include -Xptxas -v -o "$work/out.cubin" \
    "$source" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
  awk -v file="$(basename "$source")" '
    / Compiling entry function / { split($0, part, "\x27"); name = part[2]; stores = loads = shared = 0 }
    / bytes spill stores, / {
      for (i = 2; i <= NF; i++) {
        if ($(i) == "spill" && $(i + 1) ~ /^stores/) stores = $(i - 2)
        if ($(i) == "spill" && $(i + 1) ~ /^loads/) loads = $(i - 2)
      }
    }
    / Used [0-9]+ registers/ {
      for (i = 1; i < NF; i++) {
        if ($(i) == "Used") registers = $(i + 1)
        if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $(i)
      }
      if (name != "") print file, name, registers, stores, loads, shared
      name = ""
    }' "$work/log"
done >"$work/raw"

# Names in words, without the parameter list.
while read -r file name rest; do
  words=$(c++filt "$name" | sed -e 's/^void //' -e 's/(anonymous namespace):://g' -e 's/_INTERNAL_[0-9a-z_]*:://g' \
    -e 's/([^<>()]*)$//' -e 's/(\(bool\|int\|unsigned int\|unsigned\))//g')
  printf '%s\t%s\t%s\n' "$file" "$words" "${rest// /$'\t'}"
done <"$work/raw" | sort >"$work/table"

{
  echo "| file | kernel (sm_$arch) | instances | registers | spill stores, loads (bytes) | shared (bytes) |"
  echo "| --- | --- | ---: | ---: | ---: | ---: |"
  awk -F'\t' -v all="$all" '
    function span(low, high) { return low == high ? low : low "-" high }
    {
      base = $2
      if (!all) sub(/<.*/, "", base)
      key = all ? NR : $1 " " base
      if (!(key in n)) {
        order[++rows] = key
        file[key] = $1
        name[key] = base
        least[key] = $3 + 0
        low[key] = $6 + 0
      }
      n[key]++
      if ($3 + 0 < least[key]) least[key] = $3 + 0
      if ($3 + 0 > most[key]) most[key] = $3 + 0
      if ($4 + 0 > stores[key]) stores[key] = $4 + 0
      if ($5 + 0 > loads[key]) loads[key] = $5 + 0
      if ($6 + 0 < low[key]) low[key] = $6 + 0
      if ($6 + 0 > high[key]) high[key] = $6 + 0
    }
    END {
      for (i = 1; i <= rows; i++) {
        k = order[i]
        printf "| %s | `%s` | %d | %s | %d, %d | %s |\n", file[k], name[k], n[k],
          span(least[k] + 0, most[k] + 0), stores[k], loads[k], span(low[k] + 0, high[k] + 0)
      }
    }' "$work/table"
} >"$work/markdown"

if [ -n "$write" ]; then
  grep -q '^<!-- ptxas -->$' "$write" && grep -q '^<!-- /ptxas -->$' "$write" ||
    { echo "ptxas_table.sh: $write has no lines <!-- ptxas --> and <!-- /ptxas -->" >&2; exit 2; }
  awk -v table="$work/markdown" '
    $0 == "<!-- /ptxas -->" { inside = 0 }
    !inside { print }
    $0 == "<!-- ptxas -->" { inside = 1; while ((getline line < table) > 0) print line }' "$write" >"$work/new"
  cat "$work/new" >"$write"
else
  cat "$work/markdown"
fi

if [ -n "$check" ]; then
  if awk -F'\t' -v want="$check" '$2 ~ want && ($4 > 0 || $5 > 0) { print; bad = 1 } END { exit !bad }' \
    "$work/table" >"$work/spilling"; then
    echo "ptxas_table.sh: these kernels spill registers:" >&2
    cat "$work/spilling" >&2
    exit 4
  fi
fi
