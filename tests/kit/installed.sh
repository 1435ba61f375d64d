#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed tree, as somebody meets it who has nothing else: moved after its installation, found by
# pkg-config and CMake; examples/policy_greedy built, tested and simulated; an application linked.
#   installed.sh SOURCE_DIR BUILD_DIR COMPILER [reason to skip]
# shellcheck disable=SC2094 # `block` reads the tutorial, not the file it is named after
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=install.bash
. "$(dirname "$0")/install.bash"
abi=$(pkg-config --variable=abi atsinfer-plugin)
grep -q "^#define ATSI_ABI_MINOR ${abi#*.}u" "$prefix/include/atsinfer/plugin.h"
[ -e "$(pkg-config --variable=plugindir atsinfer-plugin)/atsinfer-policy_dp.so" ]
[ "$(pkg-config --modversion atsinfer)" = "$(pkg-config --modversion atsinfer-plugin)" ]

# The example: one command builds it; by file, by plugins.path, by name once installed.
cp -r "$source/examples/policy_greedy" greedy
make -C greedy CC="$compiler" CFLAGS="-O2 -Wall -Wextra -Wpedantic -Werror"
[ "$(nm -D --defined-only greedy/atsinfer-policy_greedy.so | awk '{print $NF}')" = atsi_plugin_entry ]
atsinfer policy test greedy/atsinfer-policy_greedy.so --limit 1000000 | tee tested
[ "$(grep -c ' ok ' tested)" = 11 ]
block machine.ini >machine.ini
block model.ini >model.ini
simulate() { atsinfer simulate --machine machine.ini --shape model.ini -o csv "$@" | tee table; }
simulate --plugin greedy/atsinfer-policy_greedy.so --policy policy_greedy,backlog
grep -q policy_greedy table && grep -q backlog table
simulate --set plugins.path="$PWD/greedy" --policy policy_greedy:gain
grep -q policy_greedy:gain table
make -C greedy install CC="$compiler"
atsinfer policy test policy_greedy:gain --quick --limit 1000000
make -C greedy clean
[ ! -e greedy/atsinfer-policy_greedy.so ]

# `policy new` writes the same under another name, and nothing over what is there.
atsinfer policy new my_own here
sed s/my_own/policy_greedy/g here/my_own.c | cmp - "$source/examples/policy_greedy/policy_greedy.c"
for word in "my_own here" Bad ../x 9x policy_dp "a b c" ""; do
  code=0
  # shellcheck disable=SC2086 # several arguments
  atsinfer policy new $word 2>said || code=$?
  [ $code = 2 ] && [ "$(wc -l <said)" = 1 ]
done
grep -c . here/README.md >/dev/null
[ ! -e Bad ] && [ ! -e 9x ] && [ ! -e policy_dp ] && [ ! -e a ]

# Applications and plugins by CMake and pkg-config.
mkdir app
cat >app/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(app C)
find_package(atsinfer 0.1 REQUIRED)
add_executable(app app.c)
target_link_libraries(app atsinfer::atsinfer)
atsinfer_add_plugin(policy_greedy ../greedy/policy_greedy.c)
message(STATUS "plugins in ${atsinfer_PLUGIN_DIR}, interface ${atsinfer_ABI_MAJOR}.${atsinfer_ABI_MINOR}")
END
cat >app/app.c <<'END'
#include <atsinfer/atsinfer.h>
int main(void)
{
    return puts(atsi_version()) < 0;
}
END
cmake -S app -B app/build -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" | grep "interface $abi"
cmake --build app/build
[ "$(app/build/app)" = "$(pkg-config --modversion atsinfer)" ]
atsinfer policy test app/build/atsinfer-policy_greedy.so --quick --limit 1000000
# shellcheck disable=SC2046 # several flags
"$compiler" app/app.c $(pkg-config --cflags --libs atsinfer) -o app/by_hand
LD_LIBRARY_PATH=$(pkg-config --variable=libdir atsinfer) app/by_hand
