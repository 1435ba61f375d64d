#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The objects of cpu_amx hold tile instructions, and every configuration of tiles is released.
#   instructions.sh OBJDUMP OBJECT...
set -uo pipefail
objdump=$1
shift
lines=$("$objdump" -d --no-show-raw-insn "$@") || exit 1
count() { grep -cE "^ *[0-9a-f]+:.*\b$1\b" <<<"$lines"; }
for name in ldtilecfg tilerelease tilezero tileloadd tilestored tdpbssd; do
  n=$(count $name)
  echo "$name: $n"
  [ "$n" -gt 0 ] || { echo "no $name in $*"; exit 1; }
done
[ "$(count ldtilecfg)" = "$(count tilerelease)" ] || { echo "as many must be released as are configured"; exit 1; }
