#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the values inside a forward pass with golden traces and names the first that differs.

usage: golden_trace.py ATSINFER GOLDEN_DIR MODEL_DIR [--only REGEX] [--args "..."]

For each GOLDEN_DIR/trace/MODEL-PROMPT.jsonl the prompt of that name in GOLDEN_DIR/MODEL.json is run with
`atsinfer logits --trace-ops`.  Values are matched by name and size; where the reference has several of one
name, the last one counts.  A value agrees when its norm, its sum and the beginning of its last row do.
"""
import argparse, json, math, os, re, shlex, subprocess, sys


def prompt_ids(golden, model, name):
    with open(os.path.join(golden, model + ".json")) as f:
        return next(p["ids"] for p in json.load(f)["prompts"] if p["name"] == name)


def run(args, model, ids):
    cmd = [args.atsinfer, "logits", "-m", os.path.join(args.models, model + ".gguf"), "--trace-ops", "-ctk", "f32", "-ctv", "f32",
           "--ids", ",".join(map(str, ids))] + shlex.split(args.args)
    done = subprocess.run(cmd, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{model}: exit {done.returncode}: {done.stderr[-300:]}")
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


def agrees(want, got):
    tol = 2e-5 * want["l2"] + 1e-4
    if abs(want["l2"] - got["l2"]) > tol or abs(want["sum"] - got["sum"]) > tol * math.sqrt(math.prod(want["ne"])):
        return False
    if want["ne"][0] != got["ne"][0]:  # the reference's rows are heads here
        return True
    return all(abs(a - b) <= tol for a, b in zip(want["last_row_first8"], got["last_row_first8"]))


def compare(args, model, prompt):
    with open(os.path.join(args.golden, "trace", f"{model}-{prompt}.jsonl")) as f:
        want = {w["name"]: w for w in map(json.loads, f)}
    n = 0
    for got in run(args, model, prompt_ids(args.golden, model, prompt)):
        w = want.get(got["name"])
        if w is None or math.prod(w["ne"]) != math.prod(got["ne"]):
            continue
        n += 1
        if not agrees(w, got):
            return n, f"first difference at {got['name']}: norm {got['l2']:.6g}, reference {w['l2']:.6g}"
    return n, None if n > 0 else "no value has a name of the reference's"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("atsinfer"); ap.add_argument("golden"); ap.add_argument("models")
    ap.add_argument("--only", default="."); ap.add_argument("--args", default="")
    args = ap.parse_args()
    total = bad = 0
    for name in sorted(os.listdir(os.path.join(args.golden, "trace"))):
        model, prompt = re.fullmatch(r"(.*)-(len\d+)\.jsonl", name).groups()
        if not re.search(args.only, model):
            continue
        n, wrong = compare(args, model, prompt)
        total += 1
        bad += wrong is not None
        print(f"{model:34s} {n} values  {wrong or 'ok'}")
    print(f"{total - bad} of {total} traces agree")
    sys.exit(0 if total and not bad else 1)


if __name__ == "__main__":
    main()
