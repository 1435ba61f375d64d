#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/write-a-policy.md word for word: its commands are run, its files saved, its code put in place.
#   tutorial.sh SOURCE_DIR BUILD_DIR COMPILER [reason to skip]
# shellcheck disable=SC2094 # `block` reads the tutorial, not the file it is named after
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=install.bash
. "$(dirname "$0")/install.bash"
export ATSINFER_POLICY_TIME_LIMIT=1000000 # of tests on busy machines
# The n-th column of a policy's row.
cell() { awk -F'|' -v policy=" $2 " -v column="$3" '$2 == policy {print $column + 0}' "$1"; }
less() { awk "BEGIN {exit !($1 < $2)}"; }

eval "$(block sh 1)" | tee checked # policy new, make, make check
[ "$(grep -c ' ok ' checked)" = 11 ]
block machine.ini >machine.ini
block model.ini >model.ini
eval "$(block sh 2)" | tee before
[ "$(grep -cE '^\| (first|layer|paper|backlog) ' before)" = 4 ]

# schedule, from the comment before it to its closing brace, gives way to the tutorial's.
block c >schedule.c
awk 'FNR == NR {new = new $0 "\n"; next}
     /^\/\* Asked before every round/ {printf "%s", new; skip = 1}
     !skip {print}
     skip && /^}/ {skip = 0}' schedule.c first/first.c >changed.c
mv changed.c first/first.c
CFLAGS="-O2 -Wall -Wextra -Wpedantic -Werror" make -C first
eval "$(block sh 3)" | tee after
[ "$(grep -c ' ok ' after)" = 11 ]

# What the text says of the tables: TTFT (the first column of figures) falls to a tenth, paper's is less.
less "$(cell before paper 3) * 3" "$(cell before first 3)"
less "$(cell after first 3) * 8" "$(cell before first 3)"
less "$(cell after paper 3)" "$(cell after first 3)"
less "$(cell after backlog 6)" "$(cell after first 6)" # decode

sed -i 's/ % depth\[class\]//' first/first.c
if make -C first check >broken 2>&1; then
  echo "a broken policy passes"
  exit 1
fi
grep "^schedule *FAILED.*$(block text)" broken
