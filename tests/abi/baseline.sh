#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A plugin's entry and probe run before anybody knows what the CPU can do: their objects may hold no
# instruction on ymm, zmm or mask registers.
#   baseline.sh none|some OBJECT...    "some": such instructions must be found
set -uo pipefail
want=$1
shift
found=0 n=0
for object in "$@"; do
  lines=$(objdump -d --no-show-raw-insn "$object") || exit 1
  grep -q '^ *[0-9a-f]*:' <<<"$lines" && n=$((n + 1))
  hits=$(grep -E '%(ymm|zmm|k[0-7])' <<<"$lines")
  if [ -n "$hits" ]; then
    found=$((found + 1))
    [ "$want" = none ] && printf '%s:\n%s\n' "$object" "$(head -5 <<<"$hits")"
  fi
done
echo "$n objects with code, wide registers in $found"
[ "$n" -gt 0 ] || exit 1
if [ "$want" = none ]; then [ "$found" = 0 ]; else [ "$found" -gt 0 ]; fi
