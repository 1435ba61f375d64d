#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `atsinfer simulate` with published tables of simulated latencies.

usage: golden_tables.py ATSINFER SCHEDULING_DIR [--tolerance PERCENT] [--better]

SCHEDULING_DIR holds scheduling.md (tables in section 7), models/ and profiles/.  A cell agrees within the
tolerance (1 %); a cell of a search (`new`, `new+co`) or of re-scheduling (`aware`) also where ours is faster,
since the table is no optimum: those are counted on their own, --better lists them.  `aware` is measured round by
round here: policies see the load only through the recorder.
"""
import argparse, csv, io, os, re, subprocess, sys

PLATFORM = {"GLM-Z1-9B-FP16": "laptop-rtx3060", "Qwen3-14B-INT4": "laptop-rtx3060", "Qwen3-30B-A3B-INT4": "laptop-rtx3060",
            "GPT-OSS-20B-MXFP4": "laptop-rtx3060", "Llama3.1-70B-INT4": "desktop-rtx4090",
            "Qwen3-Next-80B-A3B-INT4": "desktop-rtx4090", "Qwen3.5-122B-A10B-INT4": "desktop-rtx4090",
            "GPT-OSS-120B-MXFP4": "desktop-rtx4090"}
SEARCHED = ("new", "new+co", "aware")
POLICIES = {"layer": "layer/sync", "expert": "expert/sync", "stream": "stream", "+TP": "alg1/sync", "+TP+AC": "alg1/static",
            "DT": "paper", "DT rep": "repaired", "new": "backlog", "new+co": "backlog-co"}
LOADS = {"CPU x2.5": "2.5,1,1", "CPU x1.6": "1.6,1,1", "GPU and PCIe x2.5": "1,2.5,2.5", "GPU and PCIe x1.6": "1,1.6,1.6"}


def tables(path):
    """(title, columns, {model: {column: value}}) of each table in section 7."""
    text = open(path).read()
    text = text[text.index("## 7. "):text.index("## 8. ")]
    for part in re.split(r"\n#{3,4} ", text)[1:]:
        rows = [[c.strip() for c in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
        if len(rows) > 2:
            yield part.splitlines()[0], rows[0][1:], {r[0]: dict(zip(rows[0][1:], r[1:])) for r in rows[2:]}


def shapes(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        out[re.search(r"^name\s*=\s*(\S+)", open(path).read(), re.M).group(1)] = path
    return out


class Tool:
    def __init__(self, exe, folder):
        self.exe, self.folder, self.shapes, self.memo = exe, folder, shapes(os.path.join(folder, "models")), {}

    def run(self, model, policies, *args):
        key = (model, policies, args)
        if key not in self.memo:
            cmd = [self.exe, "simulate", "-q", "--machine", os.path.join(self.folder, "profiles", PLATFORM[model] + ".ini"),
                   "--shape", self.shapes[model], "--policy", policies, "--at", "2112", "--last", "-o", "csv", *args]
            done = subprocess.run(cmd, capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise SystemExit(f"{model}: exit {done.returncode}: {done.stderr[-300:]}")
            self.memo[key] = {r["policy"]: r for r in csv.DictReader(io.StringIO(done.stdout))}
        return self.memo[key]


def policy_cells(tool, title, model):
    args = (["--sustained"] if "sustained" in title else []) + (["--no-contention"] if "without contention" in title else [])
    got = tool.run(model, ",".join(list(POLICIES.values()) + ["paper-literal"]), *args)
    phase = title.split()[0].rstrip(",")
    cell = {"decode": lambda r: float(r["decode_ms"]), "prefill": lambda r: float(r["prefill_ms"]),
            "request": lambda r: float(r["request_ms"]) / 1000}[phase]
    out = {c: cell(got[p]) for c, p in POLICIES.items()}
    if phase == "prefill":
        out["DT"] = cell(got["paper-literal"])
    if phase == "request":
        out["ATS"] = out.pop("DT")
    if phase == "decode" and "without" in title:
        out["LB"] = float(got["backlog"]["bound_ms"])
    return out


def load_cells(tool, title, model):
    load = LOADS[re.search(r"load (.*?),", title).group(1)]
    out = {}
    for key, policy in (("DT", "paper"), ("rep", "repaired"), ("new", "backlog")):
        for name, args in (("idle", []), ("static", ["--load", load, "--frozen"]), ("aware", ["--load", load, "--rounds", "12"])):
            out[f"{key} {name}"] = float(tool.run(model, policy, "--sustained", *args)[policy]["decode_ms"])
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("atsinfer"); ap.add_argument("folder"); ap.add_argument("--tolerance", type=float, default=1.0)
    ap.add_argument("--better", action="store_true")
    a = ap.parse_args()
    tool, total, bad, better = Tool(a.atsinfer, a.folder), 0, 0, 0
    for title, columns, rows in tables(os.path.join(a.folder, "scheduling.md")):
        if not re.match(r"(decode|prefill|request|load)", title):
            continue
        n = wrong = 0
        notes = []
        for model, want in rows.items():
            got = (load_cells if title.startswith("load") else policy_cells)(tool, title, model)
            for column, value in got.items():
                if want.get(column, "-") == "-":
                    continue
                w = float(want[column])
                off, faster = 100 * (value - w) / w, value < w and any(s in column.split(" ") for s in SEARCHED)
                room = a.tolerance + 100 * 0.05 / w  # the table has one decimal
                n += 1
                if abs(off) <= room:
                    continue
                wrong += not faster
                better += faster
                if a.better or not faster:
                    notes.append(f"    {model} {column}: {value:.1f}, table {w:.1f} ({off:+.1f} %)")
        print(f"{title[:76]:76s} {n - wrong}/{n}")
        print("\n".join(notes), end="\n" if notes else "")
        total += n; bad += wrong
    print(f"{total - bad} of {total} cells agree within {a.tolerance:g} %, {better} of them faster by more than that")
    sys.exit(0 if total and not bad else 1)


if __name__ == "__main__":
    main()
