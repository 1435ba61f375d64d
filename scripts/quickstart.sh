#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 or Ubuntu 24.04 to text from a model: installs what is missing, builds, and
# lets the demo model that lies in the repository tell a story.
#   scripts/quickstart.sh [options of `atsinfer run`]
set -eu
cd "$(dirname "$0")/.."

scripts/packages.sh gcc libc6-dev cmake ninja-build pkg-config libhwloc-dev libinih-dev libpcre2-dev \
  libjansson-dev libutf8proc-dev libedit-dev libxxhash-dev

cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DATSINFER_TESTS=OFF >build.log 2>&1 ||
  { cat build.log >&2; exit 1; }
cmake --build build >>build.log 2>&1 || { tail -40 build.log >&2; exit 1; }
rm -f build.log
echo "atsinfer: built build/bin/atsinfer; here is the demo model:"
echo
if [ $# -gt 0 ]; then
  exec build/bin/atsinfer run "$@"
fi
exec build/bin/atsinfer run -p "Once upon a time" -n 200 -s 1 --temp 0.5
