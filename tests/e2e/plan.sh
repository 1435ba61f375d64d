#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `atsinfer plan` as a user types it, over small shape files and a machine profile of our own.
#   plan.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
data=$source/tests/data/sched
export HOME="$work"

# has PATTERN...: stdout of the last command has each of them
has() {
  for pattern; do
    grep -qe "$pattern" out || fail "$name: stdout lacks '$pattern'"
  done
}

machine="--machine $data/plan-machine.ini"
dense="plan $machine --shape $data/plan-dense.ini"
experts="plan $machine --shape $data/plan-experts.ini"

expect "plan --help" 0 "usage: atsinfer plan" "" plan --help
expect "no machine" 2 "" "--machine is needed" plan --shape "$data/plan-dense.ini"
expect "no model" 2 "" "-m MODEL or --shape SHAPE" plan $machine
expect "no such machine" 2 "" "nowhere.ini" plan --machine nowhere.ini --shape "$data/plan-dense.ini"
expect "no such policy" 2 "" "is no policy" $dense --policy /static
expect "another policy's name" 1 "" "there is no policy \"clever\"" $dense --policy clever
expect "blocking policies" 2 "" "are for .atsinfer simulate" $dense --policy layer/sync
expect "bad size" 2 "" "expected a size such as 6GiB" $dense --vram lots
expect "bad pin" 2 "" "expected PATTERN=cpu or PATTERN=gpu" $dense --pin q=here

expect "dense" 0 "nothing is measured" "" $dense
has "^layers\{0,1\} 0" "GPU memory: budget 576.0 MiB" "temporary slots *64.0 MiB" "^TTFT [0-9.]* s: a prompt of 2048" \
  "^TPOT [0-9.]* ms" "host, promoted in both phases: streamed instead" "resident: faster on the GPU" \
  "limited by the link" "budget binds" "^1024 MiB more GPU memory: TPOT -" "no plan on this placement is below"
cp out first
expect "the same again" 0 "" "" $dense
cmp -s out first || fail "the same question, another plan"
expect "all of it fits" 0 "does not bind" "" $dense --vram 4GiB
has "^layers 0-11 (12 alike)" "limited by memory reads of the GPU"
expect "nothing but the host" 0 "^layers 0-11 (12 alike)" "" $dense --policy expert --pin "*=cpu"
has "pinned by a rule" "limited by memory reads of the CPU" "resident weights *0.0 MiB"
expect "a static policy" 0 "policy layer" "" $dense --policy layer --vram 300MiB
grep -q "promoted in decode" out && fail "layer streams in decode"
expect "experts" 0 "gate_exps" "" $experts --vram 200MiB

expect "explain" 0 "L3.down_exps: item .*, experts, layer 3, 32 experts, 18.000 MiB" "" $experts --vram 200MiB --explain "L3.down_*"
has "known after L3.router" "fits a slot of" "us gained per MiB" "pinned to the GPU: TPOT .* instead of"
expect "explain attention" 0 "never streamed" "" $experts --vram 200MiB --explain L3.attn
expect "explain what is too large" 0 "do not fit a slot" "" $dense --explain "*head"
expect "explain nothing" 2 "" "no item has such a name; the first is L0.q" $dense --explain "*nose*"

expect "save" 0 "" "" $dense --save a.plan --svg a.svg --json
has '"simulated": true' '"ttft_ms"' '"vram_binds": true' '"more_vram"' '"reason": "streamed instead"'
mv out a.json
expect "use" 0 "" "" $dense --use a.plan --save b.plan --json
cmp -s a.plan b.plan || fail "a used plan is saved with other bytes"
sed 's/"saved_plan": true/"saved_plan": false/' out | cmp -s - a.json || fail "a used plan, other figures"
expect "use says so" 0 "(a saved plan)" "" $dense --use a.plan
expect "another model's plan" 2 "" "made for another model: Tiny dense" $experts --use a.plan
expect "another budget's plan" 2 "" "made for another VRAM budget" $dense --use a.plan --vram 300MiB
expect "another policy's plan" 2 "" "made for another policy" $dense --use a.plan --policy layer
head -c 400 a.plan >cut.plan
expect "a cut plan" 2 "" "cut.plan" $dense --use cut.plan
expect "an endless plan" 2 "" "/dev/zero" $dense --use /dev/zero
expect "save nowhere" 1 "" "no/such/a.plan" $dense --save no/such/a.plan
[ -e no ] && fail "save nowhere left something"

# One cell and one hover title per item, names escaped, nothing that runs.
cells=$(grep -c '^<rect.*<title>L' a.svg)
[ "$cells" = 97 ] || fail "picture: $cells cells, expected 97"
grep -q "Tiny dense &amp; &lt;sharp&gt;" a.svg || fail "picture: text is not escaped"
grep -q "<script" a.svg && fail "picture: script"
for word in "resident on the GPU" "promoted in prefill" "promoted in both phases" "layer 11"; do
  grep -q "$word" a.svg || fail "picture: $word"
done
# Colours follow how often a weight is streamed: more of the same request, another red.
grep -q "promoted in both phases: [0-9]* of [0-9]* rounds" a.svg || fail "picture: how often"
colour() { grep 'L.*promoted in prefill: ' "$1" | sed -n '1s/.*fill="\(#[0-9a-f]*\)"><title>.*/\1/p'; }
expect "a short answer" 0 "" "" $dense --use a.plan --decode 2 --svg b.svg --json
expect "a long answer" 0 "" "" $dense --use a.plan --decode 400 --svg c.svg --json
[ -n "$(colour b.svg)" ] && [ -n "$(colour c.svg)" ] || fail "picture: nothing is promoted in prefill alone"
[ "$(colour b.svg)" != "$(colour c.svg)" ] || fail "picture: one colour whatever is streamed how often"
if command -v python3 >/dev/null; then
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' a.svg || fail "picture: no XML"
fi
expect "picture nowhere" 1 "" "cannot write the picture" $dense --svg no/such/a.svg

expect "too many pins" 3 "GPU together *290.0 *200.0" "must hold 290.0 MiB" $dense --vram 200MiB --pin "*.attn=gpu" --pin "*.gate=gpu"
has "any one of these would fit" "--vram 290MiB, 90 MiB more" "-c 256: smaller caches (now for 4096" "fewer pins"
expect "no room for slots" 3 "--vram 2MiB" "must hold 2.0 MiB" $dense --vram 1MiB
grep -q "fewer pins" out && fail "no room for slots: advises fewer pins, there are none"
expect "no one change" 3 "no change of one budget" "" $dense --vram 200MiB --pin "*.gate=gpu" --pin "*head=gpu" --pin "*=cpu" --ram 100MiB
expect "too little RAM" 3 "GPU and host together" "180.5 MiB too few" $dense --ram 100MiB
has "--ram 343MiB, 243 MiB more" "--vram 821MiB, 245 MiB more" "GPU and host together *918.5 *676.0"
expect "a little too little RAM" 3 "GPU and host together *918.5 *876.0" "no policy found a placement" $dense --ram 300MiB
expect "enough RAM" 0 "limit 343.0 MiB" "" $dense --ram 343MiB
expect "no fit as JSON" 3 '"fits": false' "" $dense --ram 100MiB --json
expect "caches on the accelerator" 0 "KV caches and states *96.0 MiB" "" $dense --set kv.device=accel
# Rules of the configuration: by number, the first that matches holds.
expect "rules" 0 "pinned by a rule" "" $dense --explain "L3.down" --set "policy.rule.2=down = accel" --set "policy.rule.1=^L3\\.down$ = cpu"
has "host"
expect "rule to the accelerator" 0 "resident: pinned by a rule" "" $dense --explain "L4.down" --set "policy.rule.2=down = accel" --set "policy.rule.1=^L3\\.down$ = cpu"
expect "rule without a device" 2 "" "policy.rule.1 = down: expected REGEX = DEVICE" $dense --set "policy.rule.1=down"
expect "rule for no device" 2 "" 'device "gpu7": expected cpu or accel' $dense --set "policy.rule.1=down = gpu7"
expect "rule that is no expression" 2 "" "policy.rule.1: \"(down\": " $dense --set "policy.rule.1=(down = cpu"
expect "rule without a number" 2 "" "policy.rule.N" $dense --set "policy.rule.first=down = cpu"

expect "a saved plan of what does not fit" 3 "" "does not fit" $dense --ram 100MiB --save none.plan
[ -e none.plan ] && fail "a plan that does not fit was saved"

finish
