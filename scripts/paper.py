#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated side of docs/paper.md: one table per argument, from `atsinfer simulate`.

usage: paper.py ATSINFER prefill|decode|ablation|load|pcie|qwen3-14b
"""
import json
import subprocess
import sys
import tempfile

LAPTOP = ["glm-z1-9b-fp16", "qwen3-14b-int4", "qwen3-30b-a3b-int4", "gpt-oss-20b-mxfp4"]
DESKTOP = ["llama-3.1-70b-int4", "qwen3-next-80b-a3b-int4", "qwen3.5-122b-a10b-int4", "gpt-oss-120b-mxfp4"]
PLACES = [("laptop-rtx3060", s) for s in LAPTOP] + [("desktop-rtx4090", s) for s in DESKTOP]
CONDITIONS = [("alone", ["--no-contention"]), ("shared", []), ("warm", ["--sustained"])]


def simulate(machine, shape, policies, *more):
    """{policy: its row of the JSON answer}"""
    cmd = [sys.argv[1], "simulate", "--machine", machine, "--shape", shape,
           "--policy", ",".join(policies), "-o", "json", *more]
    rows = json.loads(subprocess.run(cmd, check=True, stdout=subprocess.PIPE).stdout)["policies"]
    return {r["policy"]: r for r in rows}


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def speed(phase):
    """ms of a round for the baseline and three schedulers, and how much faster they are."""
    cols = ["layer/sync", "paper", "backlog", "backlog-co"]
    for name, flags in CONDITIONS:
        rows, ratio = [], {m: [] for m, _ in PLACES}
        for machine, shape in PLACES:
            ms = {p: r[phase]["ms"] for p, r in simulate(machine, shape, cols, *flags).items()}
            base = ms["layer/sync"]
            ratio[machine].append([base / ms[p] for p in cols[1:]])
            rows.append([shape] + ["%.1f" % ms[p] for p in cols] + ["%.2f" % r for r in ratio[machine][-1]])
        print("\n%s %s" % (phase, name))
        table(["shape"] + cols + ["x " + p for p in cols[1:]], rows)
        for machine, all_of in ratio.items():
            print("%s: " % machine + ", ".join(
                "%s %.2f to %.2f" % (p, min(r[k] for r in all_of), max(r[k] for r in all_of))
                for k, p in enumerate(cols[1:])))


def ablation():
    """ms of a round, one part of the system after the other."""
    cols = ["layer/sync", "alg1/sync", "alg1/static", "paper", "backlog-co"]
    for name, flags in CONDITIONS[1:]:
        for phase in "prefill", "decode":
            rows = []
            for machine, shape in PLACES:
                got = simulate(machine, shape, cols, *flags)
                rows.append([shape] + ["%.1f" % got[p][phase]["ms"] for p in cols])
            print("\n%s %s, ms" % (phase, name))
            table(["shape"] + cols, rows)


def load():
    """The plan of the idle machine under load, against plans made anew from what is measured."""
    cols = ["paper", "repaired", "backlog"]
    for factors in "2.5,1,1", "1.6,1,1", "1,2.5,2.5", "1,1.6,1.6":
        rows = []
        for machine, shape in PLACES:
            at = ["--sustained", "--rounds", "40"]
            idle = simulate(machine, shape, cols, *at)
            stay = simulate(machine, shape, cols, *at, "--load", factors, "--frozen")
            anew = simulate(machine, shape, cols, *at, "--load", factors)
            row = [shape]
            for p in cols:
                i, s, a = (x[p]["decode"]["ms"] for x in (idle, stay, anew))
                row += ["%.1f" % i, "%.1f" % s, "%.1f" % a, "%.0f" % (100 * (s - a) / (s - i)) if s > i else "-"]
            rows.append(row)
        print("\nload %s" % factors)
        table(["shape"] + [p + " " + w for p in cols for w in ("idle", "stays", "anew", "cut %")], rows)


def pcie():
    """Mean rate of weight transfers in a round, GB/s, from the spans of a trace."""
    cols = ["paper", "backlog"]
    rows = []
    for machine, shape in PLACES:
        row = [shape]
        for _, flags in CONDITIONS[:2]:
            with tempfile.NamedTemporaryFile(suffix=".json") as f:
                simulate(machine, shape, cols, "--trace", f.name, *flags)
                with open(f.name) as trace:  # the file was replaced by the finished one
                    slices = [e for e in json.load(trace)["traceEvents"] if e["ph"] == "X"]
            for pid in 1, 2:
                for phase in "prefill", "decode":
                    row.append("%.1f" % rate(slices, pid, phase))
        rows.append(row)
    table(["shape"] + ["%s, %s, %s" % (p, c, f) for c, _ in CONDITIONS[:2] for p in cols
                       for f in ("prefill", "decode")], rows)


def rate(slices, pid, phase):
    """Bytes moved while a round ran (a transfer that began before counts with its share) per ns."""
    whole = next(e for e in slices if e["pid"] == pid and e["tid"] == 0 and e["name"] == phase)
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    moved = 0.0
    for e in slices:
        if e["pid"] == pid and e["tid"] == 3 and e["dur"] > 0:
            inside = min(end, e["ts"] + e["dur"]) - max(begin, e["ts"])
            moved += e["args"]["bytes"] * max(0.0, inside) / e["dur"]
    return moved / (1e3 * whole["dur"])


def qwen():
    """Tokens per second of Qwen3-14B on the laptop."""
    cols = ["layer/sync", "alg1/sync", "alg1/static", "paper", "repaired", "backlog", "backlog-co"]
    rows = []
    for name, flags in CONDITIONS:
        got = simulate("laptop-rtx3060", "qwen3-14b-int4", cols, *flags)
        for phase in "prefill", "decode":
            rows.append(["%s, %s" % (phase, name)] +
                        ["%.1f" % got[p][phase]["tokens_per_second"] for p in cols])
    table(["tok/s"] + cols, rows)


def main():
    what = {"prefill": lambda: speed("prefill"), "decode": lambda: speed("decode"), "ablation": ablation,
            "load": load, "pcie": pcie, "qwen3-14b": qwen}
    if len(sys.argv) != 3 or sys.argv[2] not in what:
        sys.exit("usage: paper.py ATSINFER " + "|".join(what))
    what[sys.argv[2]]()


if __name__ == "__main__":
    main()
