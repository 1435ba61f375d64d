# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share; each sources it before anything else, with its own arguments:
#   NAME.sh ATSINFER SOURCE_DIR ...
# They run in an empty folder ($work), away from the user's files, and end with `finish`.
set -u
atsinfer=$1
# shellcheck disable=SC2034 # for the scripts
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME="$work/config" XDG_CACHE_HOME="$work/cache" XDG_DATA_HOME="$work/data" \
  XDG_STATE_HOME="$work/state"
cd "$work" || exit 1
passed=0
failed=0

# To CTest a skipped test (SKIP_RETURN_CODE).
needs_python3() {
  command -v python3 >/dev/null || { echo "skipped: python3 is not here to read JSON"; exit 77; }
}

# fail NAME [FILE...]: counts a failure and shows how the files begin
fail() {
  failed=$((failed + 1))
  echo "FAILED $1"
  shift
  [ $# = 0 ] || head -c 900 "$@"
}

# verdict NAME WHY: on the last command, which left the files out and err; it passed if WHY is empty
verdict() {
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    fail "$1: ${2#; }" out err
  fi
}

# attempt EXIT_CODE STDOUT_PATTERN STDERR_PATTERN ARGS...   (empty pattern: not looked at)
# leaves the files out and err, and in $why what is not as expected
attempt() {
  code=$1 out=$2 err=$3
  shift 3
  "$atsinfer" "$@" >out 2>err </dev/null
  got=$?
  why=
  [ "$got" = "$code" ] || why="exit $got, expected $code"
  [ -z "$out" ] || grep -qe "$out" out || why="$why; stdout lacks '$out'"
  [ -z "$err" ] || grep -qe "$err" err || why="$why; stderr lacks '$err'"
}

# expect NAME EXIT_CODE STDOUT_PATTERN STDERR_PATTERN ARGS...
expect() {
  name=$1
  shift
  attempt "$@"
  verdict "$name" "$why"
}

# check NAME COMMAND...
check() {
  name=$1
  shift
  if "$@" >check_out 2>&1; then
    passed=$((passed + 1))
  else
    fail "$name" check_out
  fi
}

# Says how many passed; the status of the script.
finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
