#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each plugin exports atsi_plugin_entry and nothing else, and needs no library of ours; the library
# exports names of its own alone.
#   exports.sh PLUGIN_DIR LIBRARY [reason to skip]
set -uo pipefail
if [ -n "${3:-}" ]; then
  echo "skipped: $3"
  exit 77
fi
failed=0 n=0
for plugin in "$1"/atsinfer-*.so; do
  symbols=$(nm -D --defined-only "$plugin" | awk '{print $NF}')
  if [ "$symbols" != atsi_plugin_entry ]; then
    printf '%s exports:\n%s\n' "$plugin" "$symbols"
    failed=1
  fi
  if readelf -d "$plugin" | grep 'NEEDED.*atsinfer'; then
    echo "$plugin needs a library of ours"
    failed=1
  fi
  n=$((n + 1))
done
if nm -D --defined-only "$2" | awk '{print $NF}' | grep -v '^atsi_'; then
  echo "$2 exports names that are not atsi_"
  failed=1
fi
echo "$n plugins"
[ "$failed" = 0 ] && [ "$n" -gt 0 ]
