#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command as a user types it: output, messages, exit codes.
#   command.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

dense=$source/demo/demo-dense-q4_k_m.gguf

expect "help" 0 "subcommands" "" --help
expect "version" 0 "^atsinfer [0-9]" "" --version
expect "no arguments" 2 "" "usage"
expect "unknown subcommand" 2 "" "did you mean run" rum
for sub in run chat perplexity template logits tokenize inspect bench kernels plugins topology config doctor simulate \
  profile plan; do
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
cmp -s first out || fail "same seed, other text"
expect "prompt from a file" 0 "Once" "" run -f "$source/tests/data/prompt.txt" -n 4 --temp 0
expect "no such prompt file" 2 "" "nowhere.txt" run -f nowhere.txt
expect "prompt twice" 2 "" "exclude each other" run -p a -f b
expect "prompt too long" 3 "" "context" run -c 4 -p "one two three four five six seven eight"
expect "bad bias" 2 "" "expected ID" run --logit-bias 5
expect "bias decides" 0 "" "" run -p Tom -n 3 --temp 0 --logit-bias 300+1000 --no-display-prompt

expect "greedy token" 0 "^Tom " "" run -p Tom -n 1 --temp 0
"$atsinfer" tokenize -q --ids "$(cut -c4- out)" >ids
mv out plain
expect "bias forbids" 0 "^Tom" "" run -p Tom -n 1 --temp 0 --logit-bias "$(cat ids)-inf"
cmp -s out plain && fail "bias forbids: the same token"
expect "bias outside" 2 "" "id 99999 is outside the vocabulary, 0..2047" run -p Tom --logit-bias 99999+1

# Stop strings: across tokens, several, escapes, a special token that is never printed as text.
once="Once upon a time"
expect "stop string" 0 "^Once upon a time, a little boy na\$" "" run -p "$once" -n 30 --temp 0 --stop "med Hen"
expect "stop string: a beginning is no stop" 0 "Henry lived" "" run -p "$once" -n 16 --temp 0 -r "Henrietta" -r "Henry was"
expect "stop string: held back, then released at the end" 0 "named Henry\$" "" run -p "$once" -n 6 --temp 0 -r "Henry lived"
expect "stop string: the first of several" 0 " a\$" "" run -p "$once" -n 30 --temp 0 -r "Henry" -r " little" -r " named"
expect "stop string: escapes" 0 "^Once upon a time,\$" "" run -p "$once" -n 30 --temp 0 -r '\x20a\x20little'
expect "stop string: empty" 2 "" "is empty" run -r ""
expect "end of text" 0 "great help.\$" "" run -p "$once" --temp 0 -c 400
expect "ignore-eos" 0 "great help.." "" run -p "$once" --temp 0 -c 400 -n 300 --ignore-eos
expect "stop string: a special token" 0 "^Tom\$" "" run -p Tom -n 9 --temp 0 --logit-bias 2046+1000 -r "<|im_start|>"
grep -q "^decode" err && fail "stop string: a special token: went on"
expect "timings" 0 "" "first token after" run -p "$once" -n 4
grep -q "^prompt .* tokens/s" err && grep -q "^decode .* tokens/s" err || fail "timings"
expect "no timings" 0 "" "" run -q -p "$once" -n 4 --no-timings
[ -s err ] && fail "no timings"

# The same number as llama-perplexity counts (1.6843 and 1.6908 for these two files).
text=$source/tests/data/perplexity.txt
expect "perplexity" 0 "^perplexity 1\.68[2-7][0-9] +/- 0\.139.*5 windows of 128 tokens, 315 scored" "" perplexity -m "$dense" -f "$text" -c 128
grep -q "^ *1/5 *1\.04" out || fail "perplexity per window"
expect "perplexity q8_0" 0 "^perplexity 1\.69[0-2]" "" perplexity -m "$source/demo/demo-dense-q8_0.gguf" -f "$text" -c 128
expect "perplexity in rounds" 0 "^perplexity 1\.69[0-2]" "" perplexity -m "$source/demo/demo-dense-q8_0.gguf" -f "$text" -c 128 -ub 7
expect "perplexity --chunks" 0 "2 windows of 128 tokens, 126 scored" "" perplexity -f "$text" -c 128 --chunks 2
expect "perplexity --json" 0 '"n_scored":315' "" perplexity -f "$text" -c 128 --json
expect "perplexity of a short text" 2 "" "prompt.txt: the text has 5 tokens, but two windows of 512 are needed, 1024" perplexity -f "$source/tests/data/prompt.txt"
expect "perplexity of tiny windows" 2 "" "at least 4" perplexity -f "$text" -c 3
expect "perplexity without a text" 2 "" "-f is missing" perplexity
expect "perplexity of no windows" 2 "" "at least one window" perplexity -f "$text" --chunks 0

# Names in the caches of other programs; HOME is as empty as the rest.
hub=$work/hub/models--ada--Tiny-GGUF/snapshots/0123
mkdir -p "$hub" "$work/ollama/blobs" "$work/ollama/manifests/registry.ollama.ai/library/tiny"
ln -s "$dense" "$hub/tiny-Q4_K_M.gguf"
hex=$(printf '%064d' 7)
ln -s "$dense" "$work/ollama/blobs/sha256-$hex"
printf '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:%s"}]}' "$hex" \
  >"$work/ollama/manifests/registry.ollama.ai/library/tiny/1b"
export HOME="$work" HF_HUB_CACHE="$work/hub" OLLAMA_MODELS="$work/ollama"
unset LLAMA_CACHE HUGGINGFACE_HUB_CACHE HF_HOME
expect "-hf" 0 "little boy" "" run -hf ada/Tiny-GGUF -p "$once" -n 8 --temp 0
expect "-hf with a quantization" 0 "qwen3" "" inspect hf:ada/Tiny-GGUF:q4_k_m
expect "-hf, not in the cache" 2 "" "searched: $work/hub" run -hf ada/Other-GGUF
expect "-hf, another quantization" 2 "" "files there: tiny-Q4_K_M.gguf" run -hf ada/Tiny-GGUF:Q8_0
expect "-hf, no name" 2 "" "expected USER/REPO" run -hf tiny
expect "ollama" 0 "little boy" "" run -m ollama:tiny:1b -p "$once" -n 8 --temp 0
expect "ollama without a prefix" 0 "qwen3" "" inspect tiny:1b
expect "ollama, not there" 2 "" "tags there: 1b" run -m ollama:tiny
expect "doctor with a name" 2 "problem *model *ada/Other" "" doctor -m hf:ada/Other
unset HF_HUB_CACHE OLLAMA_MODELS

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
expect "endless config" 2 "" "no file of settings" run --config /dev/zero -n 1
expect "no config" 2 "" "nowhere.ini" run --config nowhere.ini -n 1

expect "plugins" 0 "cpu_ref" "" plugins
expect "topology" 0 "." "" topology
expect "doctor" 0 "." "" doctor
expect "inspect" 0 "qwen3" "" inspect "$dense"
expect "tokenize" 0 "969" "" tokenize -m "$dense" "Once upon a time"
expect "bench" 0 "pp8" "" bench -m "$dense" -p 8 -n 4 -r 2
expect "bench json" 0 '"avg_ts"' "" bench -m "$dense" -p 0 -n 4 -r 2 -o json
expect "bench bad format" 2 "" "jsonl" bench -o xml
expect "bench, a rival" 0 "ours / theirs" "" bench -m "$dense" -p 8 -n 0 -r 2 \
  --rival 'other=echo "[{\"n_prompt\": {p}, \"n_gen\": {n}, \"avg_ts\": 100}]"'
grep -q "| other | .* | 100.00 " out || fail "bench, a rival: its row"
expect "bench, a rival on all CPUs" 0 "| cpus | .* | $(nproc).00 " "" bench -m "$dense" -p 8 -n 0 -r 1 \
  --rival 'cpus=echo "[{\"n_prompt\": {p}, \"n_gen\": {n}, \"avg_ts\": $(nproc)}]"'
expect "bench, a rival that fails" 1 "" "rival sh: exit code 3: no such model" bench -m "$dense" -p 8 -n 0 -r 1 \
  --rival 'sh -c "echo no such model >&2; exit 3" {model}'
expect "bench, a rival of other tests" 1 "" "none of them pp8" bench -m "$dense" -p 8 -n 0 -r 1 \
  --rival 'x=echo "{\"n_prompt\": 9, \"n_gen\": 0, \"avg_ts\": 1}" {model}'
expect "bench, bandwidth as sql" 2 "" "expected md, csv or json" bench --bandwidth -o sql
expect "kernels" 0 "" "" kernels --list
expect "kernels, a table" 0 "matmul .* Q4_0 .* panels .* 64x32, 1 token" "" kernels --type Q4_0 --op matmul --shape 64x32 \
  --save kernels.json
"$atsinfer" kernels --type Q4_0 --op matmul --shape 64x32 --compare kernels.json >out 2>err
grep -q "| was | change |" out || fail "kernels, compared"
sed 's/"speed": [0-9.e+]*/"speed": 1e9/' kernels.json >faster.json
expect "kernels, slower" 4 "slower" "are slower than in faster.json" kernels --type Q4_0 --op matmul --shape 64x32 \
  --compare faster.json
for bad in '{' '[]' '{"atsinfer_kernels": 2, "rows": []}' '{"atsinfer_kernels": 1, "rows": [], "cpu": 5}' \
  '{"atsinfer_kernels": 1, "cpu": "x", "threads": 1, "rows": [{}]}'; do
  echo "$bad" >bad.json
  expect "kernels, compared with $bad" 2 "" "compare bad.json: " kernels --type Q4_0 --compare bad.json
done
expect "kernels, compared with nothing" 2 "" "nowhere.json" kernels --compare nowhere.json
expect "kernels, bad shape" 2 "" "expected COLUMNSxROWS" kernels --shape 4096
expect "kernels, bad op" 2 "" "not one of those" kernels --op mattmul

# Ctrl-C in the middle of a text: what there is stays, exit code 130.
"$atsinfer" run -p "Once upon a time" -n 100000 -c 100000 --ignore-eos >out 2>err </dev/null &
pid=$!
while [ ! -s out ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
kill -INT $pid
wait $pid
[ $? = 130 ] && grep -q "Once upon" out || fail "interrupt"
# A reader that goes away is an error, not a crash.
"$atsinfer" run -n 100 2>err | head -c 1 >/dev/null
grep -qi "sanitizer\|signal" err && fail "closed pipe"

# Files that may not grow: an error, not a signal.
said=$( (ulimit -f 0; exec "$atsinfer" kernels --type Q4_0 --op matmul --shape 64x32 --save grown.json 2>&1 >/dev/null) )
[ $? = 1 ] || fail "ulimit -f: a signal"
echo "$said" | grep -q "grown.json.*File too large" || fail "ulimit -f: $said"

# What a file of settings holds moves no cursor.
printf '[cpu]\nthreads = \033[2J\302\2335\177\n' >hostile.ini
expect "escapes in a file" 2 "" 'hostile.ini:2: cpu.threads: "?\[2J?5?" is not' config --config hostile.ini

finish
