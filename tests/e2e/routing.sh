#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Routing traces as a user meets them: recorded from the demo model, made, decoded on a modelled
# machine, replayed; messages about wrong ones.
#   routing.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
needs_python3
model=$source/demo/demo-moe-q8_0.gguf

# ---------------------------------------------------------------- recording
expect "a run is recorded" 0 "" "" run -m "$model" -p "Once upon a time" -n 12 --temp 0 \
  --routing-trace run.txt --set backend.cpu=cpu_ref
check "tokens of the run" sh -c '[ "$(grep -c ^d run.txt)" = 11 ] && [ "$(grep -c ^p run.txt)" = 1 ]'
check "layers of the model" grep -qx "layer 3 8 2" run.txt
head -c 1500 "$source/README.md" >text
expect "perplexity is recorded" 0 "" "" perplexity -m "$model" -f text -c 64 --chunks 2 \
  --routing-trace text.txt --set backend.cpu=cpu_ref
check "the tokens that are scored" sh -c '[ "$(grep -c ^p text.txt)" = 64 ]'
expect "a model without experts" 1 "" "no router chose experts" run \
  -m "$source/demo/demo-dense-q8_0.gguf" -p Hi -n 1 --routing-trace none.txt --set backend.cpu=cpu_ref
check "nothing is left of it" sh -c '! [ -e none.txt ]'

# ---------------------------------------------------------------- replays
expect "hits of the recorded trace" 0 "^| 4 | [3-9]" "" simulate --routing text.txt --cache-slots 0,4,8
check "all hits with all experts" grep -q "^| 8 | 100.0 (0.00) |" out
check "no hits without slots" grep -q "^| 0 | 0.0 (0.00) |" out
expect "slots that are no number" 2 "" "cache-slots: x" simulate --routing text.txt --cache-slots x

# ---------------------------------------------------------------- a modelled machine
skew=layers=48,experts=128,used=8,tokens=60,zipf=1.2,drift=1,seed=7
expect "a made trace on a machine" 0 '"simulated": true' "" simulate --machine laptop-rtx3060 \
  --shape qwen3-30b-a3b-int4 --routing-skew "$skew" --routing-out made.txt --vram 4GiB,6GiB -o json
cat >judge.py <<'END'
import json, sys
rows = json.load(open("out"))["rows"]
assert len(rows) == 10, len(rows)
for size in (rows[:5], rows[5:]):
    of = {r["cache"]: r for r in size}
    assert of["none"]["slots"] == 0 and of["policy"]["slots"] > 0
    assert all(r["refused"] == 0 and r["tokens"] == 60 for r in size)
    best = of["clairvoyant"]
    for way in ("policy", "lru", "lfu"):
        assert 0 < of[way]["hits"] <= best["hits"], way
        assert of[way]["hits"] + of[way]["misses"] == 60 * 48 * 8
        assert of[way]["tpot_ms"] >= best["tpot_ms"]
    assert of["policy"]["tpot_ms"] < of["none"]["tpot_ms"]
assert rows[6]["hits"] > rows[1]["hits"]
END
check "more hits with more memory, none above the bound" python3 judge.py
expect "the written trace gives the same" 0 '"simulated": true' "" simulate --machine laptop-rtx3060 \
  --shape qwen3-30b-a3b-int4 --routing made.txt --vram 4GiB,6GiB -o json
check "the same again" python3 judge.py
expect "a table" 0 "against none %" "" simulate --machine laptop-rtx3060 --shape qwen3-30b-a3b-int4 \
  --routing made.txt --vram 4GiB
expect "lines for programs" 0 "^backlog-co,yes," "" simulate --machine laptop-rtx3060 \
  --shape qwen3-30b-a3b-int4 --routing made.txt --vram 4GiB -o csv

# ---------------------------------------------------------------- wrong ones
printf 'atsinfer routing 1\nlayer 0 8 2\nd 3 3\nend\n' >bad.txt
expect "a bad line" 1 "" "bad.txt:3: layer 0: expert 3 is there twice" simulate \
  --machine laptop-rtx3060 --shape qwen3-30b-a3b-int4 --routing bad.txt
expect "another model's trace" 1 "" "the trace has 4 layers with experts, the model has 48" simulate --machine laptop-rtx3060 \
  --shape qwen3-30b-a3b-int4 --routing text.txt --vram 6GiB
expect "an unknown key" 2 "" 'unknown "zip"' simulate --routing-skew zip=1 --cache-slots 4
expect "not enough to make a trace" 2 "" "a routing trace of 0 layers" simulate \
  --routing-skew zipf=1 --cache-slots 4
expect "a file that is not there" 1 "" "No such file" simulate --routing nowhere.txt --cache-slots 4

finish
