#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/lean_build.sh: the command needs libc alone, measures a generated model, and knows the
# machine without hwloc.
#   lean_build.sh SOURCES FOLDER
set -euo pipefail
sources=$1 out=$2
fail() { echo "lean_build: $*" >&2; exit 1; }
mkdir -p "$out"
OPT=-O1 JOBS=2 "$sources/scripts/lean_build.sh" "$out"
cd "$out"
needed=$(readelf -d bin/atsinfer lib/atsinfer/*.so | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u)
for library in $needed; do
  case $library in libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | ld-linux*) ;; *) fail "needs $library" ;; esac
done
export ATSINFER_PLUGIN_PATH=$out/lib/atsinfer XDG_CACHE_HOME=$out/cache XDG_CONFIG_HOME=$out/config
printf '[cpu]\nspin = 50\n' >settings.ini # through the stand-in for inih
bin/make_model tiny-moe moe.gguf >/dev/null
bin/atsinfer bench --config settings.ini -m moe.gguf -p 8 -n 4 -r 1 -o csv >rows.csv
[ "$(grep -c qwen3moe rows.csv)" = 2 ] || fail "rows: $(cat rows.csv)"
if bin/atsinfer bench -m moe.gguf --set cpu.topology=pack:1 -p 8 2>words; then fail "a described topology was taken"; fi
grep -q "no hwloc" words || fail "no word of hwloc: $(cat words)"
bin/atsinfer kernels --check --backend cpu_ref >/dev/null || fail "kernels: exit code $?"
