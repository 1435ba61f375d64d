#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold before a change lands: formatter, linters, warnings as errors with gcc and
# clang, all tests plain and under sanitizers.  Installs what is missing.
#   scripts/check.sh          the usual run
#   scripts/check.sh --full   long runs too: linters on every file with all checks, fuzzing
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
case "${1:-}" in
  --full) full=1 ;;
  "") ;;
  *) echo "usage: scripts/check.sh [--full]" >&2; exit 2 ;;
esac

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

step "packages"
scripts/packages.sh gcc g++ libc6-dev clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 cppcheck \
  binutils cmake ninja-build pkg-config libhwloc-dev libinih-dev libcmocka-dev libpcre2-dev \
  libjansson-dev libutf8proc-dev libedit-dev libxxhash-dev python3
PATH=$PATH:/usr/local/cuda/bin
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || echo "nvcc is not here: nothing of CUDA is compiled for a device"

sources=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' 2>/dev/null ||
  find core text sched loaders plugins cli include tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')

step "format (clang-format-14)"
# shellcheck disable=SC2086 # a list of files without blanks
clang-format-14 --dry-run --Werror $sources

step "build with gcc, warnings are errors"
cmake --preset gcc-werror >/dev/null
cmake --build build-gcc

step "build with clang, warnings are errors"
cmake --preset clang-werror >/dev/null
cmake --build build-clang

step "lint (cppcheck)"
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
  --suppressions-list=.cppcheck -I . -I include -D_GNU_SOURCE -j "$(nproc)" core text sched loaders cli \
  plugins/cpu_common plugins/cpu_ref plugins/cuda plugins/sim plugins/policy_static plugins/policy_dp

step "lint (clang-tidy-14)"
tidy=$(grep -E '^(core|text|sched|loaders|cli|plugins/(cpu_common|cuda|sim|policy_static|policy_dp))/.*\.c$' <<<"$sources")
if [ "$full" = 1 ]; then
  tidy=$(grep -E '^(core|text|sched|loaders|cli|plugins)/.*\.c$' <<<"$sources")
fi
if ! grep -q 'plugins/cuda/run\.c' build-clang/compile_commands.json; then
  tidy=$(grep -v '^plugins/cuda/' <<<"$tidy") # its headers are not here
fi
if ! xargs -P "$(nproc)" -n 4 clang-tidy-14 --quiet -p build-clang <<<"$tidy" >build-clang/tidy.log 2>&1; then
  grep -E -A3 '(error|warning):' build-clang/tidy.log >&2 || tail -20 build-clang/tidy.log >&2
  exit 1
fi

step "build and test under AddressSanitizer and UndefinedBehaviorSanitizer"
cmake --preset asan >/dev/null
cmake --build build-asan
[ "$full" = 1 ] && long=() || long=(-LE long) # tests that take minutes when instrumented
ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 \
  ctest --test-dir build-asan -j "$(nproc)" --output-on-failure "${long[@]}"

step "build and test the pool and hybrid rounds under ThreadSanitizer"
cmake --preset tsan >/dev/null
cmake --build build-tsan --target test_pool test_hybrid_fuzz test_hybrid_change
ATSI_FUZZ_ROUNDS=100 ctest --test-dir build-tsan -R '^test_(pool|hybrid_fuzz|hybrid_change)$' --output-on-failure

if [ "$full" = 1 ]; then
  step "hybrid rounds and the CUDA plugin under ThreadSanitizer"
  tests="test_hybrid_agree test_hybrid_experts test_hybrid_faults test_hybrid_parity test_hybrid_past \
test_hybrid_together"
  targets=$tests
  if ninja -C build-tsan -t query cuda_host >/dev/null 2>&1; then
    cuda="test_cuda_memory test_cuda_queue test_cuda_graph test_cuda_copy test_cuda_faults test_cuda_split"
    tests="$tests $cuda test_hybrid_fuzz_cuda_host"
    targets="$targets $cuda cuda_host"
  fi
  # shellcheck disable=SC2086 # a list of targets
  cmake --build build-tsan --target $targets
  ATSI_FUZZ_ROUNDS=200 ctest --test-dir build-tsan -R "^(${tests// /|})\$" --output-on-failure
fi

if [ "$full" = 1 ]; then
  step "random plans, 2000 rounds, and each call of a hybrid run failing once"
  export ATSI_FUZZ_ROUNDS=2000
  build-gcc/bin/test_hybrid_fuzz
  cuda_host=$PWD/build-gcc/tests/cuda_host/atsinfer-cuda_host.so
  if [ -e "$cuda_host" ]; then
    ATSI_TEST_ACCEL=cuda_host ATSI_TEST_PLUGIN=$cuda_host build-gcc/bin/test_hybrid_fuzz
    ATSI_FAULT_STEP=1 tests/e2e/hybrid_faults.sh "$PWD/build-gcc/bin/atsinfer" "$cuda_host" \
      "$PWD/tests/fuzz/corpus/gguf/model_qwen35moe"
  fi
  unset ATSI_FUZZ_ROUNDS
fi

if [ "$full" = 1 ] && [ -n "$nvcc" ]; then
  step "build the CUDA plugin for every device of this nvcc"
  cmake --preset gcc-werror -B build-cuda -DATSINFER_CUDA=ON -DATSINFER_CUDA_ARCHS=all >/dev/null
  cmake --build build-cuda --target cuda
  for arch in 75 90; do
    scripts/ptxas_table.sh --arch "$arch" --check gemv >/dev/null
  done
fi

if [ "$full" = 1 ]; then
  step "fuzz files, session files, templates and tokenizers (10 minutes)"
  cmake --preset clang-werror -B build-fuzz -DATSINFER_FUZZ=ON -DATSINFER_SANITIZE=address,undefined >/dev/null
  cmake --build build-fuzz --target fuzz_gguf fuzz_session fuzz_jinja fuzz_tokenizer
  for target in gguf session jinja tokenizer; do
    mkdir -p "build-fuzz/$target"
    "build-fuzz/bin/fuzz_$target" -max_total_time=150 -max_len=16384 -rss_limit_mb=2048 "build-fuzz/$target" \
      "tests/fuzz/corpus/$target"
  done
fi

step "test"
ctest --test-dir build-gcc -j "$(nproc)" --output-on-failure
