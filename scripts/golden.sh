#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the command with golden data of the reference implementation, on every CPU backend.
#   scripts/golden.sh DIR      DIR holds golden/, models/, vocab/ and tools/
# Prints one table; the exit status is 0 only when everything agrees.
set -euo pipefail
cd "$(dirname "$0")/.."
data=$(cd "${1:?usage: scripts/golden.sh DIR}" && pwd)
archs='^(llama|qwen2|qwen3|qwen3-tied|qwen3moe)-tiny|^stories260K'

scripts/packages.sh gcc libc6-dev cmake ninja-build pkg-config libhwloc-dev libinih-dev libcmocka-dev \
  libpcre2-dev libjansson-dev libutf8proc-dev python3 python3-numpy
cmake --preset release -DATSINFER_TESTS=OFF >/dev/null
cmake --build build
atsinfer=$PWD/build/bin/atsinfer
models=$PWD/build/golden-models
mkdir -p "$models"
sh "$data/tools/make_models.sh" "$models" /usr/bin/python3 >/dev/null
cp -n "$data"/models/*.gguf "$models"/

failed=0
for backend in cpu_ref cpu_avx2 cpu_avx512; do
  if ! "$atsinfer" plugins "$backend" >/dev/null 2>&1; then
    echo "== $backend: not usable on this CPU, skipped"
    continue
  fi
  echo "== $backend"
  /usr/bin/python3 "$data/tools/check_logits.py" "$atsinfer" "$data/golden" "$models" --only "$archs" \
    --args "--backend $backend" || failed=1
  echo "== $backend, exact activations"
  /usr/bin/python3 "$data/tools/check_logits.py" "$atsinfer" "$data/golden" "$models" --only "$archs" \
    --yardstick float_math --args "--backend $backend --set cpu.activations=f32" || failed=1
done
echo "== tokenizers"
/usr/bin/python3 "$data/tools/check_tokenizer.py" "$atsinfer" "$data/golden" "$data" || failed=1
exit "$failed"
