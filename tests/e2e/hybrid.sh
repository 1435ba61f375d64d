#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Seeing what an accelerator does, as a user types it: summary, trace, ablation.
#   hybrid.sh ATSINFER SOURCE_DIR ACCELERATOR_PLUGIN
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
needs_python3
plugin=$3
export ATSINFER_POLICY_COSTS=typical ATSINFER_POLICY_TIME_LIMIT=10000000 ATSINFER_CPU_THREADS=2

dense=$source/demo/demo-dense-q4_k_m.gguf
accel="--plugin $plugin --set backend.accel=twin --set memory.vram=40%m --set memory.temp=20%m"
streamed="$accel --set policy.name=policy_static --set plugin.policy_static.mode=stream"

# ---- the summary
expect "summary" 0 "" "^PCIe    weights [0-9.]* [KM]iB, activations" run $streamed -m "$dense" -p Tom -n 12 --temp 0
cp out with
check "summary: lanes" grep -qE "^decode  +12 rounds  CPU [0-9]+ %, compute stream [0-9]+ %, transfer stream [0-9]+ % of the time, exposed transfer" err
check "summary: plans" grep -qE "^plans   [0-9]+ made, [0-9]+ kept, 0 refused; costs modelled" err
expect "no accelerator, no summary" 0 "" "decode" run --set backend.accel=none -m "$dense" -p Tom -n 12 --temp 0
check "no accelerator: no lanes" sh -c '! grep -q PCIe err'
check "the same text" cmp out with
expect "prediction" 0 "" "predicted [0-9.]* ms a round, measured [0-9.]* ms" run $accel -m "$dense" -p Tom -n 12
expect "simulated in the same words" 0 "" "^PCIe    weights" simulate --machine desktop-rtx4090 -m "$dense" \
  --policy backlog --prefill 64 --decode 4 --summary
check "simulated: lanes" grep -qE "^decode  +1 rounds  CPU [0-9]+ %, compute stream" err

# ---- logits that a sampler does not look at stay on the accelerator, a prompt's too
whole="--plugin $plugin --set backend.accel=twin --set memory.vram=100%m --set policy.name=policy_static"
tale="Tom had a red ball. He went to the park with Anna and they saw a big dog."
for how in "--temp 0" "--temp 0.8 --top-k 5 --seed 3" "--temp 0.8 --top-k 0 --top-p 0.9 --seed 3"; do
  for pick in on off; do
    expect "run, $how, exec.pick=$pick" 0 "" "results" run $whole --set exec.pick=$pick --set prefill.chunk=16 -m "$dense" \
      -p "$tale" -n 8 $how
    cp out "run.$pick"
    expect "chat, $how, exec.pick=$pick" 0 "" "results" chat $whole --set exec.pick=$pick --set prefill.chunk=16 -m "$dense" \
      --template "$source/tests/data/chat_plain.jinja" --once -p "$tale" -n 8 $how
    cp out "chat.$pick"
  done
  check "run, $how: the same text" cmp run.on run.off
  check "chat, $how: the same text" cmp chat.on chat.off
done
for command in run "chat --template $source/tests/data/chat_plain.jinja --once"; do
  expect "$command: a prompt's largest logit" 0 "" "results 8 B$" $command $whole -m "$dense" -p "$tale" -n 1 --temp 0
  expect "$command: of two rounds" 0 "" "results 16 B$" $command $whole --set prefill.chunk=16 -m "$dense" -p "$tale" -n 1 \
    --temp 0
  expect "$command: five of them" 0 "" "results 40 B$" $command $whole -m "$dense" -p "$tale" -n 1 --temp 1 --top-k 5
done

# ---- the trace
cat >look.py <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["otherData"]["simulated"] is False and d["otherData"]["older_rounds_left_out"] == 0
e = d["traceEvents"]
lanes = {x["args"]["name"] for x in e if x["name"] == "thread_name"}
assert lanes == {"rounds", "CPU", "compute stream", "transfer stream", "PCIe"}, lanes
titles = [x["args"]["name"] for x in e if x["name"] == "process_name"]
assert titles == sys.argv[2].split(","), titles
slices = [x for x in e if x["ph"] == "X"]
assert len([x for x in slices if x["tid"] == 0]) == d["otherData"]["rounds"] > 0
assert all(x["ts"] >= 0 and x["dur"] >= 0 for x in slices)
ns = lambda us: round(us * 1000)
for pid in {x["pid"] for x in slices}:
    for tid in range(5):
        lane = sorted((ns(x["ts"]), ns(x["ts"] + x["dur"])) for x in slices if (x["pid"], x["tid"]) == (pid, tid))
        assert lane, (pid, tid)
        assert all(a[1] <= b[0] for a, b in zip(lane, lane[1:])), (pid, tid)
for kind in "weight", "activation":
    s = {x["id"] for x in e if x["ph"] == "s" and x["cat"] == kind}
    f = {x["id"] for x in e if x["ph"] == "f" and x["cat"] == kind}
    assert s and s == f, kind
counters = {x["name"] for x in e if x["ph"] == "C"}
assert counters == {"slots in use", "bytes on the link", "VRAM resident"}, counters
assert all(v >= 0 for x in e if x["ph"] == "C" for v in x["args"].values())
END
expect "trace of run" 0 "" "" run $streamed -m "$dense" -p "Tom and" -n 6 --trace run.json
check "trace of run: one drawing" python3 look.py run.json run
expect "trace of logits" 0 "greedy_ids" "" logits $streamed -m "$dense" --ids 1,2,3,4 -n 3 --trace logits.json
check "trace of logits: one drawing" python3 look.py logits.json logits
expect "trace of bench" 0 "pcie_weight_bytes" "" bench $streamed -m "$dense" -p 16 -n 4 -r 1 -o csv --trace bench.json
check "trace of bench: a process per test" python3 look.py bench.json "pp16 @ d0,tg4 @ d0"
seq -s ' ' 1 400 >numbers
expect "trace of perplexity" 0 "perplexity" "" perplexity $streamed -m "$dense" -f numbers -c 64 --chunks 1 --trace p.json
check "trace of perplexity: one drawing" python3 look.py p.json perplexity
expect "trace of chat" 0 "" "" chat $streamed -m "$source/demo/demo-dense-q4_k_m.gguf" --template \
  "$source/tests/data/chat_plain.jinja" --once -p Tom -n 4 --trace chat.json
expect "trace without an accelerator" 0 "" "there is nothing to draw" run --set backend.accel=none -m "$dense" -p Tom -n 2 \
  --trace none.json
check "trace without an accelerator: still JSON" python3 -c 'import json; assert json.load(open("none.json"))["traceEvents"] is not None'
expect "trace nowhere" 1 "" "trace: /nonexistent/t.json: No such file" run $streamed -m "$dense" -p Tom -n 2 \
  --trace /nonexistent/t.json

# ---- bench rows
cat >rows.py <<'END'
import json
rows = json.load(open("out"))
assert [r["accel"] for r in rows] == ["twin"] * 2, rows
for r in rows:
    assert 0 < r["cpu_share"] <= 1.01 and r["stream_share"] > 0 and r["exposed_share"] >= 0
    assert r["pcie_weight_bytes"] > 0 and r["pcie_activation_bytes"] > 0
    assert r["plans_made"] > 0 and r["plans_refused"] == 0
END
expect "bench rows" 0 "" "^PCIe" bench $streamed -m "$dense" -p 16 -n 4 -r 2 -o json
check "bench rows: what the accelerator did" python3 rows.py

# ---- the ablation
cat >steps.py <<'END'
import csv, json, sys
if sys.argv[1] == "json":
    d = json.load(open("out"))
    rows = d["steps"]
    assert d["accel"] == "twin" and d["n_prompt"] == 16 and d["n_gen"] == 4 and d["samples"] == 2
elif sys.argv[1] == "csv":
    rows = list(csv.DictReader(open("out")))
else:
    lines = [l for l in open("out") if l.startswith("| ")][2:]
    cells = [[c.strip() for c in l.split("|")] for l in lines]
    rows = [dict(step=c[1], prefill_ts=c[3], prefill_ratio=c[4], decode_ts=c[5], decode_ratio=c[6]) for c in cells]
assert [r["step"] for r in rows] == ["base", "+TP", "+TP+AC", "+TP+AC+DT", "+ours"], rows
assert float(rows[0]["prefill_ratio"]) == 1 and float(rows[0]["decode_ratio"]) == 1
assert all(float(r["prefill_ts"]) > 0 and float(r["decode_ts"]) > 0 for r in rows)
if sys.argv[1] != "md":
    assert all(int(r["pcie_weight_bytes"]) == 0 for r in rows[:3]), rows
    assert all(0 < int(r["n_resident"]) < int(r["n_items"]) for r in rows), rows
END
for format in md csv json; do
  expect "ablation, $format" 0 "" "" bench --ablation $accel -m "$dense" -p 16 -n 4 -r 2 -o $format
  check "ablation, $format: five steps" python3 steps.py $format
done
expect "ablation without an accelerator" 3 "" "compares ways to use an accelerator" bench --ablation \
  --set backend.accel=none -m "$dense" -p 16 -n 4 -r 1
check "ablation without an accelerator: one line" test "$(grep -c . err)" = 1
expect "ablation of lists" 2 "" "give one -p and one -n" bench --ablation $accel -m "$dense" -p 16,32 -n 4
expect "ablation as sql" 2 "" "expected md, csv or json" bench --ablation $accel -m "$dense" -o sql

# ---- costs measured at first use
expect "measured costs" 0 "" "costs measured here" run $accel --set policy.costs=measured --set prefill.chunk=16 -m "$dense" -p Tom -n 4
check "measured costs are kept" sh -c 'ls cache/atsinfer/profiles/*.costs'
expect "bad policy.costs" 2 "" "policy.costs" run $accel --set policy.costs=maybe -m "$dense" -p Tom -n 4

finish
