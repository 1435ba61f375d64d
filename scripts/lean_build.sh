#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what measures a device (`atsinfer bench`, `atsinfer kernels`, their plugins and tools) with
# compilers alone: no CMake, no libraries but libc, no network.  hwloc is replaced by core/topo_sysfs.c,
# inih and xxHash by scripts/lean/*.h; text, chat and JSON are left out.  Products are built with CMake.
#   scripts/lean_build.sh [--cuda | --cuda-host] FOLDER
#   --cuda       the plugin for NVIDIA devices and tests/device/ceilings too; needs nvcc
#   --cuda-host  the same sources on the emulated device (tests/cuda_host); needs the headers of the Toolkit
# Environment: CC, CXX, NVCC, CUDA_PATH, ARCH (compute capability, "90"), JOBS, OPT ("-O3")
# FOLDER gets bin/atsinfer, bin/make_model, lib/atsinfer/*.so and build.log.
set -euo pipefail
cd "$(dirname "$0")/.."
device=
usage() { sed -n 's/^#   scripts/usage: scripts/p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) device=cuda ;;
    --cuda-host) device=cuda_host ;;
    -*) usage ;;
    *) break ;;
  esac
  shift
done
[ $# -eq 1 ] || usage
mkdir -p "$1"
out=$(cd "$1" && pwd)
cc=${CC:-gcc} cxx=${CXX:-g++} jobs=${JOBS:-$(nproc)} opt=${OPT:--O3}
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc")}
cuda=${CUDA_PATH:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
[ -e "$cuda/include/cuda_runtime_api.h" ] || cuda=/usr/local/cuda
objects=$out/objects list=$out/build.list log=$out/build.log
rm -rf "$objects" "$list" "$log"
mkdir -p "$objects" "$out/bin" "$out/lib/atsinfer"
version=$(sed -n 's/^project(atsinfer VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

flags="-std=c17 -D_GNU_SOURCE -DATSINFER_LEAN -DATSINFER_NO_HWLOC -DGGUF_VERSION=\"$version\" -I. -Iinclude -Iscripts/lean"
flags="$flags -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno"
avx512="-fno-tree-vectorize -fno-tree-slp-vectorize -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mbmi2 -mavx2"
case $(uname -m) in x86_64) x86=1 ;; *) x86=0 ;; esac

# One line per file: the object, a tab, the command.
object() { echo "$objects/$1/${2//\//_}.o"; }
add() { # GROUP FLAGS FILE...
  local group=$1 more=$2 file
  shift 2
  mkdir -p "$objects/$group"
  for file in "$@"; do
    printf '%s\t%s\n' "$(object "$group" "$file")" "$cc $flags $more -c $file" >>"$list"
  done
}
without() { # REGEX FILE...: the files that do not match
  local regex=$1 file
  shift
  for file in "$@"; do [[ $file =~ $regex ]] || echo "$file"; done
}

# shellcheck disable=SC2046 # file names of the repository hold no blanks
add core "$opt" $(without '^core/topo\.c$' core/*.c core/*/*.c) sched/*.c
add panel "$opt" panel/*.c
# Of the command, what uses no library; the linker takes from the archive what is needed.
# shellcheck disable=SC2046
add cli "$opt" $(grep -LE 'cli/json\.h|jansson\.h|\<json_(t|load|object|array|string)|histedit\.h|"text/|cli/(chat|policy)' cli/*.c) scripts/lean/left_out.c
add tools "$opt" tests/device/make_model.c
add gguf "$opt" loaders/gguf/*.c loaders/arch/*.c
for policy in policy_dp policy_static; do add "$policy" "$opt" "plugins/$policy"/*.c; done
add sched "$opt" sched/*.c
# shellcheck disable=SC2046
add common "-O2 -Iplugins/cpu_common" $(without '/attn_walk\.c' plugins/cpu_common/*.c)
add common "-O2 -ftree-vectorize -Iplugins/cpu_common" plugins/cpu_common/attn_walk.c
add cpu_ref "-O2 -Iplugins/cpu_common" plugins/cpu_ref/entry.c
if [ "$x86" = 1 ]; then
  # shellcheck disable=SC2046
  add cpu_avx2 "-O3 -mavx2 -mfma -mf16c -mbmi2 -fno-schedule-insns2 -Iplugins/cpu_common" \
    $(without '/entry\.c|_vnni\.c' plugins/cpu_avx2/*.c)
  add cpu_avx2 "-O3 -mavx2 -mfma -mf16c -mbmi2 -mavxvnni -fno-schedule-insns2 -Iplugins/cpu_common" plugins/cpu_avx2/*_vnni.c
  # shellcheck disable=SC2046
  add cpu_avx512 "-O3 $avx512 -Iplugins/cpu_common" $(without '/entry\.c|_vnni\.c' plugins/cpu_avx512/*.c)
  add cpu_avx512 "-O3 $avx512 -mavx512vnni -Iplugins/cpu_common" plugins/cpu_avx512/*_vnni.c
  for plugin in cpu_avx2 cpu_avx512; do add "$plugin" "$opt -Iplugins/cpu_common" "plugins/$plugin/entry.c"; done
fi
case $device in
  cuda)
    [ -x "$nvcc" ] || { echo "lean_build.sh: no nvcc: put it into PATH, or name it in NVCC" >&2; exit 1; }
    add cuda "-O2 -isystem $cuda/include" plugins/cuda/*.c
    for file in plugins/cuda/*.cu; do
      printf '%s\t%s\n' "$(object cuda "$file")" "$nvcc -arch=sm_${ARCH:-90} -O3 -std=c++17 -I include -Xcompiler=-fPIC,\
-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics -c $file" >>"$list"
    done
    printf '%s\t%s\n' "$out/bin/ceilings" "$nvcc -arch=sm_${ARCH:-90} -O3 -std=c++17 tests/device/ceilings.cu" >>"$list"
    ;;
  cuda_host)
    more="-DATSINFER_CUDA_HOST -isystem $cuda/include"
    add cuda_host "-O2 $more -DCUDA_PLUGIN_NAME=\"cuda_host\"" plugins/cuda/*.c
    # shellcheck disable=SC2046
    add cuda_host "-O2 $more -fcf-protection=none -fvisibility=default" \
      $(without '/(test_.*|trial|victim)\.c$' tests/cuda_host/*.c)
    for file in plugins/cuda/*.cu; do
      printf '%s\t%s\n' "$(object cuda_host "$file")" "$cxx -x c++ -std=c++17 -D_GNU_SOURCE ${OPT:--O2} $more -I. -Iinclude \
-fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics \
-fno-gnu-unique -Wno-unknown-pragmas -c $file" >>"$list"
    done
    ;;
esac

# Kernels for the device take longest: they go first.
one() {
  local object=${1%%$'\t'*} command=${1#*$'\t'}
  # shellcheck disable=SC2086 # a command line
  if ! $command -o "$object" >"$object.log" 2>&1; then
    echo "failed: $command" >>"$object.log"
    mv "$object.log" "$object.failed"
    return 1
  fi
}
export -f one
# shellcheck disable=SC2016 # for the inner shell
if ! { grep '\.cu$' "$list" || true; grep -v '\.cu$' "$list"; } |
  tr '\n' '\0' | xargs -0 -P "$jobs" -n 1 bash -c 'one "$1"' one; then
  find "$out" -name '*.failed' -exec cat {} + >"$log"
  head -40 "$log" >&2
  exit 1
fi

rm -f "$out/bin/ceilings.log"
plugin() { # NAME LINKER GROUPS LIBRARIES...
  local name=$1 ld=$2 groups=$3 group files=()
  shift 3
  for group in $groups; do files+=("$objects/$group"/*.o); done
  # shellcheck disable=SC2086 # may be "ccache gcc"
  $ld -shared -o "$out/lib/atsinfer/atsinfer-$name.so" "${files[@]}" "$@" -lpthread -lm
}
plugin gguf "$cc" gguf
for policy in policy_dp policy_static; do plugin "$policy" "$cc" "$policy sched"; done
plugin cpu_ref "$cc" "cpu_ref common panel"
if [ "$x86" = 1 ]; then
  for name in cpu_avx2 cpu_avx512; do plugin "$name" "$cc" "$name common panel"; done
fi
case $device in
  cuda) plugin cuda "$cc" cuda -L"$cuda/lib64" -L"$cuda/targets/x86_64-linux/lib" -lcudart_static -ldl -lrt \
    -Wl,--version-script=plugins/cuda/exports.map ;;
  cuda_host) plugin cuda_host "$cxx" cuda_host -ldl -Wl,--version-script=tests/cuda_host/exports.map ;;
esac
main=$objects/cli/cli_atsinfer.c.o
rm -f "$out/cli.a"
ar rc "$out/cli.a" "$objects"/cli/*.o
# shellcheck disable=SC2086
$cc -rdynamic -o "$out/bin/atsinfer" "$main" "$out/cli.a" "$objects"/core/*.o "$objects"/panel/*.o -ldl -lpthread -lm
# shellcheck disable=SC2086
$cc -o "$out/bin/make_model" "$objects"/tools/*.o -lpthread -lm
