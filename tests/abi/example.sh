#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The plugin printed in docs/abi.md compiles with the command printed there, and is listed.
#   example.sh SOURCE_DIR COMPILER PATH/atsinfer
set -euo pipefail
doc=$1/docs/abi.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
block() { awk -v kind="$1" '$0 == "```" kind {on = 1; next} /^```/ {on = 0} on' "$doc"; }
block c >"$dir/policy_host.c"
command=$(block sh | grep '^cc ')
include=$1/include
cc() { "$compiler" -Wall -Wextra -Wpedantic -Werror -I "$include" "$@"; }
compiler=$2
cd "$dir"
eval "$command"
[ "$(nm -D --defined-only atsinfer-policy_host.so | awk '{print $NF}')" = atsi_plugin_entry ]
export HOME=$dir XDG_CONFIG_HOME=$dir XDG_DATA_HOME=$dir/data
mkdir -p data/atsinfer/plugins
mv atsinfer-policy_host.so data/atsinfer/plugins/
"$3" plugins policy_host | tee listed
grep -q '^policy_host  *version' listed
grep -q 'plugin.policy_host.device = 0' listed
