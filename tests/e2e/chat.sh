#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `atsinfer chat` with scripted input: answers, re-use of what was evaluated, commands, errors.
#   chat.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
model=$source/demo/demo-dense-q8_0.gguf
data=$source/tests/data

# talk NAME EXIT_CODE INPUT STDOUT STDERR_PATTERN ARGS...   INPUT and STDOUT as printf takes them,
# STDOUT compared exactly (- : not looked at); empty pattern: not looked at
talk() {
  name=$1 code=$2 input=$3 want=$4 pattern=$5
  shift 5
  # shellcheck disable=SC2059 # a format without arguments
  printf "$input" | "$atsinfer" chat -m "$model" --temp 0 --no-timings "$@" >out 2>err
  got=$?
  why=
  [ "$got" = "$code" ] || why="exit $got, expected $code"
  if [ "$want" != - ]; then
    # shellcheck disable=SC2059
    printf "$want" >want
    cmp -s want out || why="$why; stdout is not as expected"
  fi
  [ -z "$pattern" ] || grep -qe "$pattern" err || why="$why; stderr lacks '$pattern'"
  verdict "$name" "$why"
}

# How many tokens each turn re-used and evaluated, "R+E R+E ...", from the last talk with -v.
costs() { sed -n 's/^\[\([0-9]*\) tokens re-used, \([0-9]*\) evaluated.*/\1+\2/p' err | tr '\n' ' '; }
expect_costs() { # NAME COSTS
  why=
  [ "$(costs)" = "$2 " ] || why="re-used+evaluated: $(costs), expected $2"
  verdict "$1" "$why"
}

# ---- conversations
talk "one message" 0 'How much is 20 plus 3?\n' '20 + 3 = 23.\n' ''
talk "several turns" 0 'How much is 20 plus 3?\n5-5\nWhat does the crow say?\n' \
  '20 + 3 = 23.\n5 - 5 = 0.\nA crow says caw.\n' '' -v
expect_costs "only what is new is evaluated" "0+18 28+13 49+16"
talk "first message by option" 0 '5-5\n' '20 + 3 = 23.\n5 - 5 = 0.\n' '' -p 'How much is 20 plus 3?'
talk "once" 0 '5-5\n' '20 + 3 = 23.\n' '' --once -p 'How much is 20 plus 3?'
talk "all of the input at once" 0 '5\n-5\n' '-' '' --once
talk "empty lines" 0 '\n \n5-5\n\n' '5 - 5 = 0.\n' ''
talk "no line end" 0 '5-5' '5 - 5 = 0.\n' ''
talk "a message of several lines" 0 '5\\\n-5\n' - ''
cp out joined
talk "the same in quotes" 0 '"""\n5\n-5\n"""\n' - ''
cmp -s joined out || verdict "both spellings of a long message" "answers differ"
talk "an answer cut short" 0 'How much is 20 plus 3?\n' '20 +\n' '' -n 3
talk "a stop string" 0 'How much is 20 plus 3?\n' '20 + 3 \n' '' --stop '='
talk "quiet" 0 '5-5\n/clear\n' '5 - 5 = 0.\n' '' -q
[ -s err ] && verdict "quiet says nothing" "stderr has text"

# ---- commands
talk "regen" 0 'How much is 20 plus 3?\n/regen\n' '20 + 3 = 23.\n20 + 3 = 23.\n' '' -v
expect_costs "regen evaluates one token" "0+18 17+1"
talk "clear" 0 'How much is 20 plus 3?\n/clear\n5-5\n' '20 + 3 = 23.\n5 - 5 = 0.\n' 'new conversation' -v
expect_costs "clear keeps what is the same" "0+18 3+8"
talk "undo" 0 'How much is 20 plus 3?\n5-5\n/undo\nWhat does the crow say?\n' \
  '20 + 3 = 23.\n5 - 5 = 0.\nA crow says caw.\n' '1 turn is left' -v
expect_costs "undo goes back" "0+18 28+13 33+11"
talk "system prompt" 0 '/system\n5-5\n' - '^You are a tiny model.$' --system 'You are a tiny model.'
talk "system set" 0 '/system Be brief.\n/system\n/system ""\n/system\n' '' '^Be brief.$'
talk "help" 0 '/help\n' '' '/regen'
talk "stats" 0 '5-5\n/stats\n' '5 - 5 = 0.\n' '1 turns, 2 messages'
talk "exit" 0 '5-5\n/exit\n5-5\n' '5 - 5 = 0.\n' ''
talk "a message with a slash" 0 '//5-5\n' - ''
talk "unknown command" 2 '/hepl\n5-5\n' '' 'did you mean /help'
talk "nothing to regenerate" 2 '/regen\n' '' 'no answer yet'
talk "nothing to take back" 2 '/undo\n' '' 'nothing to take back'
talk "argument too many" 2 '/clear all\n' '' 'takes nothing'

# ---- save and load: the continuation is that of a chat that was never interrupted
second='Who are you?\nTell me a story.\n'
talk "uninterrupted" 0 "Hello!\\n5-5\\n$second" - '' --temp 0.9 -s 7 -n 60 -v
tail -n 2 out >want_tail
costs | cut -d' ' -f3- >want_costs
talk "save" 0 'Hello!\n5-5\n/save chat.ats\n/save chat.json\n' - 'saved 4 messages and' --temp 0.9 -s 7 -n 60
talk "load" 0 "/load chat.ats\\n$second" - 'loaded 4 messages' --temp 0.9 -s 7 -n 60 -v
cmp -s out want_tail || verdict "loaded chat goes on the same" "another answer"
[ "$(costs)" = "$(cat want_costs)" ] || verdict "nothing is evaluated twice after a load" "costs: $(costs)"
talk "load the text" 0 "/load chat.json\\n$second" - '0 tokens evaluated' --temp 0.9 -s 7 -n 60
cmp -s out want_tail || verdict "the text alone goes on the same" "another answer"
talk "load into another model" 1 '/load chat.ats\n' '' 'FILE.json' -m "$source/demo/demo-moe-q8_0.gguf"
talk "text into another model" 0 '/load chat.json\nHello!\n' - 'loaded 4' -m "$source/demo/demo-moe-q8_0.gguf"
talk "load nothing" 1 '/load nowhere\n' '' 'nowhere: No such file'
talk "load a folder" 1 '/load .\n' '' 'error: '
echo '{"format": "atsinfer-chat", "version": 1}' >broken.json
talk "load a broken file" 1 '/load broken.json\n' '' 'broken.json: '
head -c 2000 chat.ats >cut.ats
talk "load a cut file" 1 '/load cut.ats\n' '' 'cut.ats'
talk "save nowhere" 1 '5-5\n/save no/such/folder\n' - 'no/such/folder'
talk "save text nowhere" 1 '5-5\n/save no/such/folder.json\n' - 'folder.json: No such file'

# ---- the context is full
questions=
answers=
for _ in 1 2 3 4 5 6 7 8 9; do
  questions="$questions"'How much is 20 plus 3?\n'
  answers="$answers"'20 + 3 = 23.\n'
done
talk "oldest turns are dropped" 0 "$questions" "$answers" 'oldest turns of the conversation were dropped' -c 128
long=$(printf '%0400d' 0)
talk "a message too long" 3 "5-5\\n$long\\n" '5 - 5 = 0.\n' 'the context has 128, of which 32 are kept' -c 128
talk "an answer too long" 0 'Tell me a story.\n' - 'the answer was cut: the context of 64 tokens is full' -c 64

# ---- templates
talk "template file" 0 'How much is 20 plus 3?\n' '20 + 3 = 23.\n' '' --template "$data/chat_plain.jinja"
talk "a variable" 0 '5-5\n' - '' --template "$data/chat_think.jinja" --var think=false
# Reasoning is left out of later prompts: re-use ends where the answer began.
talk "reasoning is not an answer" 0 'How much is 20 plus 3?\n5-5\n' '\n\n' '' --template "$data/chat_think.jinja" -v
expect_costs "reasoning that is left out" "0+23 18+18"
talk "no such template" 2 '5-5\n' '' 'nowhere.jinja' --template nowhere.jinja
printf '{%% for x in %%}' >bad.jinja
talk "broken template" 1 '5-5\n' '' 'bad.jinja: line 1' --template bad.jinja
printf '{{ raise_exception("no \033[31m system") }}' >raise.jinja
talk "template refuses" 1 '5-5\n' '' 'refuses this conversation: no .*system' --template raise.jinja
LC_ALL=C grep -q "$(printf '\033')" err && verdict "control characters in messages" "an escape came through"
talk "bad variable" 2 '' '' 'NAME=JSON' --var think
talk "variable without quotes" 2 '' '' 'needs quotes' --var effort=high
talk "our own variable" 2 '' '' 'chat itself sets' --var messages=[]

# ---- usage
talk "help text" 0 '' - '' --help
grep -q 'the oldest turns after the system prompt are dropped' out || verdict "help states the rule" "not there"
talk "mistyped option" 2 '' '' 'did you mean --system?' --systme x
talk "positional argument" 2 '' '' 'unexpected argument' hello
talk "two system prompts" 2 '' '' 'exclude each other' --system a --system-file b
talk "no such system prompt" 2 '' '' 'nowhere' --system-file nowhere
talk "not UTF-8" 2 'ab\344\n' '' 'not UTF-8: byte 3' 
talk "once without a message" 2 '' '' 'standard input is empty' --once

# A reader that went away, or a full disk, ends the chat with one line.
"$atsinfer" chat -m "$model" --no-timings -p 'Tell me a story.' >/dev/full 2>err </dev/null
code=$?
why=
[ $code = 1 ] || why="exit $code, expected 1"
[ "$(grep -c 'cannot write to standard output' err)" = 1 ] || why="$why; not one message"
verdict "full disk" "$why"

# Ctrl-C ends a script, with the answer so far.
mkfifo fifo
"$atsinfer" chat -m "$model" -c 100000 --ignore-eos -p 'Tell me a story.' <fifo >out 2>err &
pid=$!
exec 3>fifo
while [ ! -s out ] && kill -0 $pid; do sleep 0.1; done
kill -INT $pid
wait $pid
code=$?
exec 3>&-
why=
[ $code = 130 ] || why="exit $code, expected 130"
verdict "interrupt" "$why"

finish
