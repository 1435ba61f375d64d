#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every member of every public struct is pinned: a member that fills a hole moves no other, so sizes
# and offsets alone would not show it.
#   members.sh INCLUDE_DIR PINS
set -uo pipefail
# Prints "STRUCT MEMBERS": without comments, parentheses and inner braces, each member of a body ends
# with one comma or semicolon.
members() {
  sed 's/^#.*//' "$@" | tr '\n' ' ' | awk '{
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "")
    while (gsub(/\([^()]*\)/, "")) ;
    while (match($0, /struct atsi_[a-z0-9_]+ \{/)) {
      name = substr($0, RSTART + 7, RLENGTH - 9)
      $0 = substr($0, RSTART + RLENGTH)
      body = ""
      for (depth = 1; depth > 0 && length($0) > 0; $0 = substr($0, 2)) {
        c = substr($0, 1, 1)
        depth += (c == "{") - (c == "}")
        if (depth == 1) body = body c
      }
      print name, gsub(/[;,]/, "", body)
    }
  }'
}
pinned() { sed -n 's/^PIN(\([a-z0-9_]*\),.*/\1/p' "$1" | sort | uniq -c | awk '{print $2, $1}'; }
found=$(for header in "$1"/atsinfer/*.h; do members "$header"; done | sort)
echo "$(wc -l <<<"$found") structs (<: in the headers, >: pinned)"
[ -n "$found" ] && diff <(echo "$found") <(pinned "$2" | sort)
