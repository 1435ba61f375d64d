#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles each public header alone, with every warning an error.
#   headers.sh INCLUDE_DIR COMPILER [flags...]
set -uo pipefail
include=$1
shift
if ! echo 'int x;' | "$@" -fsyntax-only - 2>/dev/null; then
  echo "skipped: $* cannot compile (no front end for this language)"
  exit 77
fi
failed=0 n=0
for header in "$include"/atsinfer/*.h; do
  name=atsinfer/$(basename "$header")
  # Twice: a header without a guard would show.
  printf '#include "%s"\n#include "%s"\n' "$name" "$name" |
    "$@" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$include" - || { echo "FAILED: $name"; failed=1; }
  n=$((n + 1))
done
echo "$n headers with: $*"
[ "$failed" = 0 ] && [ "$n" -gt 0 ]
