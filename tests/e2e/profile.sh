#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `atsinfer profile` with tiny sizes: what it writes is complete and can be read again.  How fast this
# machine is matters to no line of this file.
#   profile.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
needs_python3

tiny="--size 128KiB --seconds 0"
model="$source/demo/demo-dense-q4_k_m.gguf"

# ---- complete: simulate reads it
expect "ini" 0 "" "one token" profile $tiny -m "$model" --gpu-from laptop-rtx3060 \
  --name "my box" -o mine.ini
check "nothing on stdout" [ ! -s out ]
check "readable by others as the umask says" [ "$(stat -c %a mine.ini)" = "$(printf '%o' $((0666 & ~$(umask))))" ]
for key in cpu_gbs cpu_gbs_sustained dram_gbs cpu_gflops_q4 cpu_gflops_fp16 cpu_gflops_mxfp4 cpu_op_us; do
  check "one $key" [ "$(grep -c "^$key = [0-9.e+-]*\$" mine.ini)" = 1 ]
done
check "the name" grep -qx "name = my box" mine.ini
check "weight types" grep -q "Q4_K [0-9]* %" mine.ini
check "the accelerator is the other profile's" grep -qx "gpu_gbs = 270" mine.ini
check "its CPU is not" [ "$(grep -c "^cpu_gbs = 41" mine.ini)" = 0 ]
expect "simulate reads it" 0 "on my box" "" simulate --machine mine.ini --shape qwen3-14b-int4 --policy layer
expect "again from itself" 0 "^gpu_gbs = 270" "" profile $tiny -q -m "$model" --gpu-from ./mine.ini
check "quiet" [ ! -s err ]

# ---- without an accelerator
expect "half" 0 "^# gpu_gbs =$" "" profile $tiny -m "$model"
cp out half.ini
check "says how to complete it" grep -q "gpu-from MACHINE" half.ini
expect "simulate names what lacks" 2 "" "half.ini: section .platform. lacks vram_mib" simulate \
  --machine half.ini --shape qwen3-14b-int4 --policy layer
sed -e 's/^# \([a-z_0-9]*\) =$/\1 = 1/' -e 's/^reserve_mib = 1/reserve_mib = 0/' -e 's/^vram_mib = 1/vram_mib = 900/' \
  half.ini >full.ini
expect "filled in" 0 "^| layer |" "" simulate --machine full.ini --shape qwen3-14b-int4 --policy layer

# ---- JSON
expect "json" 0 "" "" profile $tiny -m "$model" --gpu-from desktop-rtx4090 --json
cat >look.py <<'END'
import json, math
d = json.load(open("out"))
assert d["threads"] >= 1 and d["backend"].startswith("cpu_") and d["model"].endswith(".gguf")
assert abs(sum(t["share"] for t in d["types"]) - 1) < 0.1 and len(d["types"]) >= 2
figures = [t[k] for t in d["types"] for k in ("gbs", "gflops")]
figures += [v for k, v in d["measured"].items() if k != "dram_gbs"]
assert len(d["measured"]) == 7
for f in figures:
    assert 0 < f["low"] <= f["value"] <= f["high"] and math.isfinite(f["high"]) and f["samples"] >= 1, f
dram = d["measured"]["dram_gbs"]
assert all(v > 0 for v in dram.values()) and len(dram) == 6
assert dram["value"] >= dram["cpu_alone"] and dram["value"] >= dram["copy_alone"]
one = d["measured"]["cpu_gbs"]["value"]
assert min(t["gbs"]["value"] for t in d["types"]) * 0.999 <= one
assert one <= max(t["gbs"]["value"] for t in d["types"]) * 1.001
assert d["not_measured"]["gpu_gbs"] == 860 and "cpu_gbs" not in d["not_measured"]
END
check "json holds what it should" python3 look.py

# ---- the model's costs
with="--set backend.accel=none --size 128KiB"
rm -rf cache
expect "costs" 0 "^| CPU | matmul | Q4_K | 256 " "measured in .* (first use)" profile $with -m "$model" -o md
check "progress" grep -q "measuring costs 0 %" err
# Of two backends about as fast a busy machine chooses now one, now the other, and a table is of one.
backend="--backend $(sed -n 's/^\* backend: \([a-z0-9_]*\) .*/\1/p' out)"
with="$with $backend"
check "kept" [ "$(find cache/atsinfer/profiles -name '*.costs' | wc -l)" = 1 ]
table=$(find cache/atsinfer/profiles -name '*.costs')
expect "up to date" 0 "^| CPU | attn " "up to date" profile $with -m "$model" -o md
check "not measured again" [ "$(grep -c 'measuring' err)" = 0 ]
expect "again" 0 "" "(asked for)" profile $with -m "$model" -o md --force
expect "shown" 0 '"measured": false' "" profile $with -q -m "$model" --show -o json
check "quietly" [ ! -s err ]
cat >look.py <<'END'
import json
d = json.load(open("out"))
assert d["path"].endswith(".costs") and d["why"] == "" and d["chunk"] == 512
assert d["measured_with"]["accel"] == "none" and "cpu_" in d["measured_with"]["backend"]
assert d["memory_gbs"]["cpu_alone"] > 0 and d["copies"] == [] and d["launch_ns"]["accel"] == 0
kinds = {o["op"] for o in d["operations"]}
assert {"matmul", "attn", "embed", "rms_norm", "swiglu"} <= kinds, kinds
for o in d["operations"]:
    assert o["device"] == "cpu" and len(o["dims"]) == 8 and len(o["times"]) >= 1
    for t in o["times"]:
        assert 0 < t["low_ns"] <= t["ns"] <= t["high_ns"] and t["samples"] >= 1, (o, t)
    # on a busy machine so little may take so long that more is left to extrapolation
    if max(t["ns"] for t in o["times"]) * 16 < 80e6:
        assert {t["tokens"] for t in o["times"]} >= {1, 16}, o
END
check "json of costs" python3 look.py
sed -i 's/^key cpu .*/key cpu Another CPU/' "$table"
expect "out of date, shown" 0 "Out of date: cpu was \"Another CPU\"" "" profile $with -m "$model" --show
expect "out of date" 0 "" "cpu was \"Another CPU\", now" profile $with -m "$model" -o md
cp "$table" mine.costs

# With an accelerator that is a hundred times faster: when are weights streamed?
cat >with_accel.py <<'END'
import sys
accel, out = [], []
for line in open("mine.costs"):
    words = line.split()
    if words[0] == "op":
        product = words[1:3] == ["host", "matmul"]
        if product:
            accel.append(line.replace(" host ", " accel "))
    elif words[0] == "time" and product:
        accel.append("time %s %s 1 1 1 0 3\n" % (words[1], words[2]))
    if words[0] == "end":
        out += ["copy pinned 1000 10 10 10 3\n", "copy pinned 1000000 10000 10000 10000 3\n"] + accel
    out.append(line)
open(sys.argv[1], "w").writelines(out)
END
check "a table with an accelerator" python3 with_accel.py "$table"
expect "when weights are streamed" 0 "^| matmul | Q4_K.* | [0-9]* | [0-9]* |\$" "" profile $with -m "$model" --show -o md
expect "that as JSON" 0 '"tokens_alone": [0-9]' "" profile $with -m "$model" --show -o json
cp mine.costs "$table"
expect "not without one" 0 "" "" profile $with -m "$model" --show -o md
check "no table of it" [ "$(grep -c 'Streaming a weight' out)" = 0 ]
expect "simulate by a table" 0 "measured, [0-9]* items.*budget 0 MiB" "" simulate --machine mine.costs -m "$model" \
  --prefill 64 --decode 8 --policy layer,backlog
expect "on this machine" 0 "^| layer |" "" simulate $backend --set backend.accel=none --machine here -m "$model" --prefill 64 --decode 8 --policy layer
expect "plan here" 0 "Planned with measured costs" "" plan $backend --set backend.accel=none --machine here -m "$model" --prefill 64 --decode 8
expect "plan by a table" 0 "Planned with measured costs" "" plan --machine mine.costs -m "$model" --prefill 64 --decode 8
expect "tables are of a model" 2 "" "belong to a model file" simulate --machine mine.costs --shape qwen3-14b-int4
expect "and of that one" 1 "" "the measured costs lack" simulate --machine mine.costs \
  -m "$source/demo/demo-moe-q4_k_m.gguf" --policy layer
head -c 300 mine.costs >cut.costs
expect "cut off" 1 "" "cut.costs:[0-9]*: a line is too long, cut off\|cut.costs: cut off" simulate --machine cut.costs \
  -m "$model" --policy layer
expect "nothing kept" 1 "" "nothing is measured yet" profile $with -m "$source/demo/demo-moe-q8_0.gguf" --show
expect "both" 2 "" "give one" profile -m "$model" --force --show
rm -rf cache
expect "with the machine's" 0 "^cpu_gbs = " "first use" profile $tiny --set backend.accel=none -m "$model"
check "kept too" [ "$(find cache/atsinfer/profiles -name '*.costs' | wc -l)" = 1 ]

# ---- what is wrong
expect "machine without an end" 2 "" "/dev/zero:1: the line is too long" profile --gpu-from /dev/zero
expect "unknown machine" 2 "" "did you mean \"laptop-rtx3060\"" profile --gpu-from laptop-rtx360
grep -v '^pcie_gbs' mine.ini >bad.ini
expect "machine that lacks a key" 2 "" "bad.ini: section .platform. lacks pcie_gbs" profile --gpu-from ./bad.ini
sed 's/^gpu_gbs = .*/gpu_gbs = fast/' mine.ini >bad.ini
expect "machine without a number" 2 "" 'bad.ini:[0-9]*: gpu_gbs = "fast": expected a number' profile \
  --gpu-from ./bad.ini
sed 's/^gpu_gbs/gpu_gsb/' mine.ini >bad.ini
expect "machine with a strange key" 2 "" 'bad.ini:[0-9]*: unknown key "gpu_gsb"' profile --gpu-from ./bad.ini
expect "no size" 2 "" "size lots: expected a size" profile --size lots
expect "too much" 3 "" "too much for the [0-9]* MiB free" profile --size 1000000GiB
expect "no model" 1 "" "nowhere.gguf" profile $tiny -m nowhere.gguf
expect "no folder" 1 "" "/nonexistent/x.ini: No such file" profile $tiny -q -o /nonexistent/x.ini
expect "bad name" 2 "" "one line" profile --name ""
expect "stray word" 2 "" "unexpected argument" profile stray
check "nothing is left behind" [ -z "$(find . -name '*.ini.*')" ]

finish
