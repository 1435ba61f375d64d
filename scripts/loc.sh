#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lines of code per layer.
set -eu
cd "$(dirname "$0")/.."
for d in include core sched loaders/gguf loaders/arch text plugins/cpu_common plugins/cpu_ref plugins/cpu_avx2 \
  plugins/cpu_avx512 plugins/cpu_amx plugins/sim plugins/policy_static plugins/policy_dp cli tests; do
  printf '%-20s %6d lines in %3d files\n' "$d" \
    "$(find "$d" -name '*.[ch]' -exec cat {} + | wc -l)" "$(find "$d" -name '*.[ch]' | wc -l)"
done
