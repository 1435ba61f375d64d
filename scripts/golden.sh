#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the command with golden data of the reference implementation, on every CPU backend.
#   scripts/golden.sh DIR [--full]   DIR holds golden/, models/, vocab/, tools/ and scheduling/
#                                    --full: short chunks on every file, not on the F32 ones alone
# Prints one table; the exit status is 0 only when everything agrees.
set -euo pipefail
cd "$(dirname "$0")/.."
data=$(cd "${1:?usage: scripts/golden.sh DIR [--full]}" && pwd)
short_chunks=F32
[ "${2:-}" != --full ] || short_chunks=.

scripts/packages.sh gcc libc6-dev cmake ninja-build pkg-config libhwloc-dev libinih-dev libcmocka-dev \
  libpcre2-dev libjansson-dev libutf8proc-dev libedit-dev libxxhash-dev python3 python3-numpy
cmake --preset release -DATSINFER_TESTS=OFF -DATSINFER_CUDA=OFF >/dev/null
cmake --build build
atsinfer=$PWD/build/bin/atsinfer
models=$PWD/build/golden-models
mkdir -p "$models"
sh "$data/tools/make_models.sh" "$models" /usr/bin/python3 >/dev/null
cp -n "$data"/models/*.gguf "$models"/

logits() { /usr/bin/python3 "$data/tools/check_logits.py" "$atsinfer" "$data/golden" "$models" "$@"; }

failed=0
for backend in cpu_ref cpu_avx2 cpu_avx512; do
  if ! "$atsinfer" plugins "$backend" >/dev/null 2>&1; then
    echo "== $backend: not usable on this CPU, skipped"
    continue
  fi
  echo "== $backend"
  logits --args "--backend $backend" || failed=1
  for chunk in 7 1; do
    echo "== $backend, chunks of $chunk"
    logits --only "$short_chunks" --args "--backend $backend -ub $chunk" || failed=1
  done
  echo "== $backend, exact activations"
  logits --yardstick float_math --args "--backend $backend --set cpu.activations=f32" || failed=1
  echo "== $backend, values inside the first forward pass"
  /usr/bin/python3 scripts/golden_trace.py "$atsinfer" "$data/golden" "$models" --args "--backend $backend" || failed=1
done
echo "== tokenizers"
/usr/bin/python3 "$data/tools/check_tokenizer.py" "$atsinfer" "$data/golden" "$data" || failed=1
echo "== chat templates"
/usr/bin/python3 "$data/tools/check_chat.py" "$atsinfer" "$data/golden/chat" || failed=1
echo "== scheduling: vectors"
/usr/bin/python3 "$data/tools/check_vectors.py" "$atsinfer" "$data/scheduling/vectors" || failed=1
echo "== scheduling: tables of simulated latencies"
/usr/bin/python3 scripts/golden_tables.py "$atsinfer" "$data/scheduling" || failed=1
exit "$failed"
