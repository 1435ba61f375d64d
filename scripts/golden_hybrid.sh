#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hybrid runs on the simulated CUDA device (tests/cuda_host) against the CPU alone and golden data.
#   scripts/golden_hybrid.sh DIR BUILD [--full]   DIR as for golden.sh, which has made the models;
#                                                 BUILD: a build with tests
set -euo pipefail
cd "$(dirname "$0")/.."
data=$(cd "${1:?usage: scripts/golden_hybrid.sh DIR BUILD [--full]}" && pwd)
build=$(cd "${2:?usage: scripts/golden_hybrid.sh DIR BUILD [--full]}" && pwd)
full=${3:-}
models=$PWD/build/golden-models
plugin=$build/tests/cuda_host/atsinfer-cuda_host.so
if [ ! -e "$plugin" ]; then
  echo "the headers of the CUDA Toolkit are not here: no hybrid runs"
  exit 0
fi
failed=0
echo "== hybrid runs against the CPU alone"
# shellcheck disable=SC2086 # nothing, or one word
/usr/bin/python3 scripts/golden_hybrid.py "$build/tests/hybrid/golden_sweep" "$data/golden" "$models" --accel cuda_host \
  --plugin "$plugin" $full || failed=1
echo "== hybrid runs of quantized files against the reference"
for only in qwen3moe-tiny-Q4_K_M gpt-oss-tiny-MXFP4 qwen3-tiny-Q8_0 ${full:+tiny}; do
  /usr/bin/python3 "$data/tools/check_logits.py" "$build/bin/atsinfer" "$data/golden" "$models" --only "$only" \
    --args "--plugin $plugin --set backend.accel=cuda_host --set memory.vram=30%m --set policy.costs=typical
      --set plugin.policy_dp.algorithm=backlog" || failed=1
done
exit "$failed"
