# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the installed tree with their arguments: installs into a scratch folder, moves
# it, enters the folder and sets source, compiler, prefix, PATH, PKG_CONFIG_PATH and homes.
source=$1 build=$2 compiler=$3
if [ -n "${4:-}" ]; then
  echo "skipped: $4"
  exit 77
fi
command -v pkg-config make >/dev/null || { echo "skipped: no pkg-config or make"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cmake --install "$build" --prefix "$dir/first" >installed
mv first moved
prefix=$dir/moved
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name atsinfer-plugin.pc)")
unset "${!ATSINFER_@}" LD_LIBRARY_PATH
export PKG_CONFIG_PATH PATH=$prefix/bin:$PATH CC=$compiler
export HOME=$dir XDG_CONFIG_HOME=$dir/config XDG_DATA_HOME=$dir/data XDG_CACHE_HOME=$dir/cache
# Blocks of a fence (```KIND) of the tutorial; the n-th alone, or all.
block() {
  awk -v kind="$1" -v which="${2:-0}" '
    $0 == "```" kind || $0 == "```ini " kind {n++; on = which == 0 || n == which; next}
    /^```/ {on = 0}
    on' "$source/docs/write-a-policy.md"
}
