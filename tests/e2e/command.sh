#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command as a user types it: output, messages, exit codes.
#   command.sh ATSINFER SOURCE_DIR
set -u
atsinfer=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME="$work/config" XDG_CACHE_HOME="$work/cache" XDG_DATA_HOME="$work/data"
cd "$work" || exit 1
passed=0
failed=0

# expect NAME EXIT_CODE STDOUT_PATTERN STDERR_PATTERN ARGS...   (empty pattern: not looked at)
expect() {
  name=$1 code=$2 out=$3 err=$4
  shift 4
  "$atsinfer" "$@" >out 2>err </dev/null
  got=$?
  why=
  [ "$got" = "$code" ] || why="exit $got, expected $code"
  [ -z "$out" ] || grep -qe "$out" out || why="$why; stdout lacks '$out'"
  [ -z "$err" ] || grep -qe "$err" err || why="$why; stderr lacks '$err'"
  if [ -z "$why" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED $name: $why"
    head -c 600 out err
  fi
}

dense=$source/demo/demo-dense-q4_k_m.gguf

expect "help" 0 "subcommands" "" --help
expect "version" 0 "^atsinfer [0-9]" "" --version
expect "no arguments" 2 "" "usage"
expect "unknown subcommand" 2 "" "did you mean run" rum
for sub in run logits tokenize inspect bench kernels plugins topology config doctor; do
  expect "$sub --help" 0 "usage: atsinfer $sub" "" $sub --help
  expect "$sub unknown option" 2 "" "unknown option --no-such-thing" $sub --no-such-thing
done
expect "mistyped option" 2 "" "did you mean --temp" run --tmep 1
expect "missing value" 2 "" "needs a value" run -n
expect "bad number" 2 "" "not a number" run -n many
expect "out of range" 2 "" "outside" run --top-p 2
expect "foreign flag" 2 "" "memory.vram" run -ngl 99

expect "demo story" 0 "Once upon a time" "demo model" run -n 20 --temp 0
expect "greedy text" 0 "little boy named Henry" "" run -m "$dense" -p "Once upon a time" -n 16 --temp 0
expect "same seed" 0 "" "" run -p "Tom" -n 40 -s 7
cp out first
expect "same seed again" 0 "" "" run -p "Tom" -n 40 -s 7
cmp -s first out || { failed=$((failed + 1)); echo "FAILED: same seed, other text"; }
expect "prompt from a file" 0 "Once" "" run -f "$source/tests/data/prompt.txt" -n 4 --temp 0
expect "no such prompt file" 2 "" "nowhere.txt" run -f nowhere.txt
expect "prompt twice" 2 "" "exclude each other" run -p a -f b
expect "prompt too long" 3 "" "context" run -c 4 -p "one two three four five six seven eight"
expect "bad bias" 2 "" "expected ID" run --logit-bias 5
expect "bias decides" 0 "" "" run -p Tom -n 3 --temp 0 --logit-bias 300+1000 --no-display-prompt

expect "no such model" 1 "" "nowhere.gguf" run -m nowhere.gguf
expect "a folder as model" 1 "" "not a regular file" run -m "$work"
: >empty.gguf
expect "empty model" 1 "" "empty.gguf" run -m empty.gguf
echo "this is text" >text.gguf
expect "text as model" 1 "" "text.gguf" run -m text.gguf
head -c 100000 "$dense" >cut.gguf
expect "cut model" 1 "" "cut.gguf" run -m cut.gguf
expect "context that cannot fit" 3 "" "would fit" run -c 2000000000 -n 1

expect "logits" 0 '"final_logits"' "" logits -m "$dense" --ids 1,2,3 -n 2 --full
expect "logits without ids" 2 "" "ids is missing" logits -m "$dense"
expect "bad ids" 2 "" "no list of token ids" logits -m "$dense" --ids 1,x
expect "id outside" 1 "" "outside the vocabulary" logits -m "$dense" --ids 99999

expect "set" 0 "" "" run -n 1 --set cpu.threads=1
expect "set unknown key" 2 "" "cpu.threads" run -n 1 --set cpu.thread=1
expect "set bad value" 2 "" "cpu.threads" run -n 1 --set cpu.threads=lots
expect "unknown backend" 2 "" "cpu_ref" run -n 1 --backend cpu_quantum
expect "backend named" 0 "" "" run -n 1 --backend cpu_ref
printf '[cpu]\nthreads = 1\n' >good.ini
expect "config file" 0 "good.ini:2" "" config --config good.ini --show-origin
printf '[cpu]\nthreads = 1\nthreds = 2\n' >bad.ini
expect "bad config" 2 "" "bad.ini:3" run --config bad.ini -n 1
expect "no config" 2 "" "nowhere.ini" run --config nowhere.ini -n 1

expect "plugins" 0 "cpu_ref" "" plugins
expect "topology" 0 "." "" topology
expect "doctor" 0 "." "" doctor
expect "inspect" 0 "qwen3" "" inspect "$dense"
expect "tokenize" 0 "969" "" tokenize -m "$dense" "Once upon a time"
expect "bench" 0 "pp8" "" bench -m "$dense" -p 8 -n 4 -r 2
expect "bench json" 0 '"avg_ts"' "" bench -m "$dense" -p 0 -n 4 -r 2 -o json
expect "bench bad format" 2 "" "jsonl" bench -o xml
expect "kernels" 0 "" "" kernels --list

# Ctrl-C in the middle of a text: what there is stays, exit code 130.
"$atsinfer" run -p "Once upon a time" -n 100000 -c 100000 --ignore-eos >out 2>err </dev/null &
pid=$!
sleep 1
kill -INT $pid
wait $pid
[ $? = 130 ] && grep -q "Once upon" out || { failed=$((failed + 1)); echo "FAILED: interrupt"; }
# A reader that goes away is an error, not a crash.
"$atsinfer" run -n 100 2>err | head -c 1 >/dev/null
grep -qi "sanitizer\|signal" err && { failed=$((failed + 1)); echo "FAILED: closed pipe"; }

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
