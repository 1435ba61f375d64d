#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `atsinfer simulate` as a user types it: tables, traces, names of shipped files, messages.
#   simulate.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
needs_python3

# predict NAME EXIT_CODE STDOUT_PATTERN STDERR_PATTERN ARGS... of simulate; an error is one line
predict() {
  name=$1 code=$2 out=$3 err=$4
  shift 4
  attempt "$code" "$out" "$err" simulate "$@"
  [ "$code" = 0 ] || [ "$(grep -c . err)" = 1 ] || why="$why; not one line on stderr"
  verdict "$name" "$why"
}

cat >box.ini <<'END'
[platform]
name = box
vram_mib = 600
reserve_mib = 200
temp_mib = 60
cpu_gbs = 20
cpu_gbs_sustained = 15
dram_gbs = 27
cpu_gflops_q4 = 200
cpu_gflops_fp16 = 100
cpu_gflops_mxfp4 = 150
gpu_gbs = 200
gpu_tflops_q4 = 10
gpu_tflops_fp16 = 10
gpu_tflops_mxfp4 = 10
pcie_gbs = 10
ck_gbs = 6
cg_us = 8
gc_us = 16
evt_us = 4
gap_us = 100
chunk = 64
ctx_max = 1024
END
cat >dense.ini <<'END'
[model]
name = small-dense
format = q4
layers = 6
hidden = 4096
heads = 32
kv_heads = 8
head_dim = 128
ffn = 11008
vocab = 32000
attn_bpw = 4.5
ffn_bpw = 4.5
head_bpw = 6.5625
END
cat >moe.ini <<'END'
[model]
name = small-moe
format = q4
layers = 6
hidden = 2048
heads = 16
kv_heads = 4
head_dim = 128
experts = 32
topk = 4
expert_ffn = 768
vocab = 32000
attn_bpw = 4.5
ffn_bpw = 4.5
head_bpw = 6.5625
END
all=layer,expert,stream,density,alg1,paper,paper-literal,repaired,backlog,backlog-co

# ---- tables
predict "dense" 0 "^| backlog-co |" "" --machine box.ini --shape dense.ini --policy "$all" --prefill 128
check "a row per policy" [ "$(grep -c '^| [a-z]' out)" = 11 ]
check "says simulated" grep -q "^Simulated, not measured: small-dense on box" out
cp out first
predict "dense again" 0 "" "" --machine box.ini --shape dense.ini --policy "$all" --prefill 128
check "the same bytes twice" cmp first out
predict "experts" 0 "small-moe on box" "" --machine box.ini --shape moe.ini --policy "$all"
predict "standard policies" 0 "^| layer/sync |" "" --machine box.ini --shape moe.ini
# Of csv, the policy's and the planner's wall-clock time differ from run to run: columns 17 and 18.
for i in 1 2; do
  predict "csv $i" 0 "^policy,simulated,ttft_ms" "" --machine box.ini --shape dense.ini \
    --policy paper,backlog -o csv
  cut -d, -f1-16,19 out >"csv$i"
done
check "the same csv twice" cmp csv1 csv2
check "csv is rectangular" [ "$(awk -F, '{print NF}' out | sort -u)" = 19 ]
predict "json" 0 "" "" --machine box.ini --shape dense.ini --policy alg1/static,backlog -o json
cat >look.py <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["simulated"] is True and d["machine"] == "box" and d["model"] == "small-dense", d
static, backlog = d["policies"]
assert [static["policy"], backlog["policy"]] == ["alg1/static", "backlog"]
assert static["decode"]["promoted"] == 0 and backlog["decode"]["promoted"] > 0
assert backlog["decode"]["ms"] < static["decode"]["ms"], "streaming must pay on this machine"
assert backlog["decode"]["ms"] >= backlog["bound_ms"] > 0, "below the lower bound"
assert backlog["resident_bytes"] <= backlog["budget_bytes"] < 400 << 20
END
check "json holds what it should" python3 look.py out

# ---- conditions
decode() { awk -F, 'NR == 2 {print int(1000 * $6)}' out; }
ask() { # NAME ARGS...: decode time in microseconds
  name=$1
  shift
  predict "$name" 0 "^paper,yes" "" --machine box.ini --shape dense.ini --policy paper -o csv "$@"
  decode
}
plain=$(ask "plain" --rounds 3)
check "warm CPU is slower" [ "$(ask "warm" --rounds 3 --sustained)" -gt "$plain" ]
check "no contention is faster" [ "$(ask "alone" --rounds 3 --no-contention)" -lt "$plain" ]
check "less memory is slower" [ "$(ask "vram" --rounds 3 --vram 250MiB)" -gt "$plain" ]
check "a busy CPU is slower" [ "$(ask "load" --rounds 3 --load 2.5,1,1)" -gt "$plain" ]
printf '# quiet, then busy\n0 1 1 1\n1 3 1 1\n' >script
check "a load script" [ "$(ask "script" --rounds 3 --set plugin.sim.load=script)" -gt "$plain" ]
frozen=$(ask "frozen" --rounds 12 --load 4,1,1 --frozen)
check "planning anew pays" [ "$(ask "aware" --rounds 12 --load 4,1,1)" -lt "$frozen" ]

# ---- a real graph
predict "demo model" 0 "demo-dense.*, [1-9][0-9]* items" "" --machine box.ini --policy layer,backlog \
  -m "$source/demo/demo-dense-q4_k_m.gguf" --vram 1MiB
check "a row for a model file" grep -q "^| backlog |" out

# ---- shipped files by name
predict "shipped names" 0 "Qwen3-14B-INT4 on laptop-rtx3060" "" --machine laptop-rtx3060 \
  --shape qwen3-14b-int4 --policy layer
for file in "$source"/profiles/models/*.ini; do
  predict "shipped $file" 0 "^| layer |" "" --machine desktop-rtx4090 \
    --shape "$(basename "$file" .ini)" --policy layer
done
mkdir -p inst/bin inst/share/atsinfer/profiles/machines
cp "$atsinfer" inst/bin/
ln -s "$(dirname "$atsinfer")/../lib" inst/lib
sed 's/^name = box/name = installed-box/' box.ini >inst/share/atsinfer/profiles/machines/mine.ini
built=$atsinfer atsinfer=$work/inst/bin/atsinfer
predict "installed" 0 "on installed-box" "" --machine mine --shape dense.ini --policy layer
atsinfer=$built

# ---- the page with the paper's figures
"$source/scripts/paper.py" "$atsinfer" qwen3-14b >figure 2>&1
for row in "prefill, shared" "decode, alone" "decode, shared" "decode, warm"; do
  line=$(grep "^| $row |" "$source/docs/paper.md")
  check "docs/paper.md has what is simulated now: $row" grep -qxF "$line" figure
done

# ---- steady rounds: what is on its way for the next one slows the end of this one down, in
# predictions as in what is executed; the last round of all is shorter
glm="--machine laptop-rtx3060 --shape glm-z1-9b-fp16 --policy paper -o json"
"$atsinfer" simulate $glm >steady.json 2>/dev/null
"$atsinfer" simulate $glm --last >last.json 2>/dev/null
check "a steady round and the last one" python3 -c '
import json
steady, last = (json.load(open(f))["policies"][0]["decode"] for f in ("steady.json", "last.json"))
assert abs(steady["ms"] / steady["predicted_ms"] - 1) < 1e-3, steady
assert last["ms"] < 0.997 * steady["ms"], (last, steady)'

# ---- traces
predict "trace" 0 "^| paper" "" --machine box.ini --shape dense.ini --policy paper,backlog/static \
  --trace trace.json
cat >look.py <<'END'
import json
d = json.load(open("trace.json"))
assert d["otherData"]["simulated"] is True
e = d["traceEvents"]
lanes = {"CPU": 1, "compute stream": 2, "transfer stream": 3, "PCIe": 4}
named = {(x["pid"], x["args"]["name"]): x["tid"] for x in e if x["name"] == "thread_name"}
names = {x["pid"]: x["args"]["name"] for x in e if x["name"] == "process_name"}
assert names == {1: "paper", 2: "backlog/static"}, names
for name, tid in lanes.items():
    assert named[1, name] == tid
slices = [x for x in e if x["ph"] == "X"]
ns = lambda us: round(us * 1000)
for pid in names:
    rounds = [x["name"] for x in slices if x["pid"] == pid and x["tid"] == 0]
    assert rounds == ["prefill", "decode"], rounds
    for tid in lanes.values():  # nothing overlaps in a lane
        lane = sorted((ns(x["ts"]), ns(x["ts"] + x["dur"])) for x in slices
                      if x["pid"] == pid and x["tid"] == tid)
        assert lane or tid >= 3
        assert all(a[1] <= b[0] for a, b in zip(lane, lane[1:])), (pid, tid)
items = {(x["pid"], x["args"]["item"]) for x in slices if x["tid"] == 1}
assert items and all(x["args"]["bytes"] > 0 for x in slices if x["tid"] == 3)
moves = [x for x in slices if x["tid"] == 3]
begin = {x["id"]: x for x in e if x["ph"] == "s" and x["cat"] == "weight"}
end = {x["id"]: x for x in e if x["ph"] == "f" and x["cat"] == "weight"}
assert len(moves) > 0 and len(begin) == len(end) == len(moves)
for i, b in begin.items():  # from a transfer to a slice of that weight, which starts no earlier
    f = end[i]
    user = [x for x in slices if x["pid"] == f["pid"] and x["tid"] == 2 and ns(x["ts"]) == ns(f["ts"])]
    sent = [x for x in moves if x["pid"] == b["pid"] and x["ts"] <= b["ts"] <= x["ts"] + x["dur"]]
    assert f["ts"] >= b["ts"] and len(sent) == 1
    assert sent[0]["name"] in [x["name"] for x in user], (sent, user)
copies = [x for x in slices if x["name"].startswith("to ")]
sent = {x["id"]: x for x in e if x["ph"] == "s" and x["cat"] == "activation"}
used = {x["id"]: x for x in e if x["ph"] == "f" and x["cat"] == "activation"}
assert sent.keys() == used.keys() and len(sent) == len(copies) > 0
assert all(ns(used[i]["ts"]) >= ns(sent[i]["ts"]) for i in sent)
slots = [x["args"]["slots"] for x in e if x["name"] == "slots in use"]
link = [x["args"]["bytes"] for x in e if x["name"] == "bytes on the link"]
assert max(link) > 0 and min(link) == 0 and link[-1] == 0, link
assert max(slots) > 0 and min(slots) == 0 and slots[-1] == 0, slots
END
check "the trace is one" python3 look.py
predict "trace nowhere" 1 "" "trace: /nonexistent/t.json: No such file" --machine box.ini \
  --shape dense.ini --policy layer --trace /nonexistent/t.json

# ---- what is wrong
ok="--machine box.ini --shape dense.ini --policy layer"
predict "no machine" 2 "" "machine is needed" --shape dense.ini
predict "no model" 2 "" "m MODEL or --shape SHAPE is needed" --machine box.ini
predict "two models" 2 "" "both name a model" $ok -m x.gguf
predict "unknown machine" 2 "" 'did you mean "laptop-rtx3060"' --machine laptop-rtx3600 --shape dense.ini
predict "missing file" 2 "" "there are: desktop" --machine ./none.ini --shape dense.ini
predict "unknown shape" 2 "" 'did you mean "qwen3-14b-int4"' --machine box.ini --shape qwen3-14b
predict "unknown policy" 1 "" 'no policy "nosuch"' --machine box.ini --shape dense.ini --policy nosuch
predict "unknown mode" 2 "" 'is not one of paper' --machine box.ini --shape dense.ini \
  --policy policy_dp:nosuch
predict "unknown way" 2 "" 'expected /static or /sync' --machine box.ini --shape dense.ini --policy paper/fast
predict "no policies" 2 "" "names none" --machine box.ini --shape dense.ini --policy ,
predict "bad format" 2 "" "expected md, csv or json" $ok -o xml
predict "bad load" 2 "" "expected three factors" $ok --load 2,1
predict "bad vram" 2 "" "expected a size" $ok --vram much
predict "stray word" 2 "" "unexpected argument" $ok stray
sed 's/^cpu_gbs = /cpu_gsb = /' box.ini >bad.ini
predict "mistyped key" 2 "" 'bad.ini:6: unknown key "cpu_gsb"; did you mean "cpu_gbs"' \
  --machine bad.ini --shape dense.ini
sed 's/^pcie_gbs = 10/pcie_gbs = fast/' box.ini >bad.ini
predict "no number" 2 "" 'bad.ini:16: pcie_gbs = "fast": expected a number' --machine bad.ini --shape dense.ini
grep -v dram_gbs box.ini >bad.ini
predict "missing key" 2 "" 'bad.ini: section \[platform\] lacks dram_gbs' --machine bad.ini --shape dense.ini
sed 's/^reserve_mib = 200/reserve_mib = 580/' box.ini >bad.ini
predict "too little memory" 2 "" 'are more than vram_mib 600' --machine bad.ini --shape dense.ini
sed 's/^hidden = /hiden = /' dense.ini >bad.ini
predict "bad shape" 2 "" 'bad.ini:5: unknown key "hiden"; did you mean "hidden"' --machine box.ini --shape bad.ini
grep -v '^ffn =' dense.ini >bad.ini
predict "shape without ffn" 2 "" "bad.ini: " --machine box.ini --shape bad.ini
printf '0 1 1 1\n5 1 x 1\n' >script
predict "bad load script" 1 "" 'script:2: expected "t_ns cpu gpu pcie"' $ok --set plugin.sim.load=script
predict "no load script" 1 "" 'nowhere: No such file' $ok --set plugin.sim.load=nowhere

# Whoever wants it to end need not wait for a policy's last round: 130, or 143 when it had not begun.
"$atsinfer" simulate --machine desktop-rtx4090 --shape qwen3-14b-int4 --policy backlog-co --rounds 100000 \
  >out 2>err </dev/null &
pid=$!
sleep 1
kill -TERM $pid
(sleep 60; kill -KILL $pid) >/dev/null 2>&1 &
guard=$!
wait $pid
got=$?
kill $guard 2>/dev/null
check "ends when asked to" [ $got = 130 -o $got = 143 ]

finish
