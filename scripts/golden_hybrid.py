#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hybrid runs with runs on the CPU alone, under every policy and several budgets.

  golden_hybrid.py ATSINFER GOLDEN MODELS --accel NAME [--plugin FILE] [--full] [--only TEXT] [--prompt NAME]

Each F32 model answers the golden prompts with an accelerator beside the CPU: greedy tokens must be
equal to those of the CPU alone, and every logit of every prompt position within 0.001.  The usual
run takes the prompt `len7`, 8 tokens, and one chunk length per case in turn; --full takes all
prompts, 32 tokens and all chunk lengths.  Costs are typical ones, so that the plans are the same
everywhere.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import subprocess
import sys

POLICIES = {
    "layer": ["policy.name=policy_static", "plugin.policy_static.mode=layer"],
    "expert": ["policy.name=policy_static", "plugin.policy_static.mode=expert"],
    "stream": ["policy.name=policy_static", "plugin.policy_static.mode=stream"],
    "density": ["policy.name=policy_static", "plugin.policy_static.mode=density"],
    "paper": ["policy.name=policy_dp", "plugin.policy_dp.algorithm=paper"],
    "backlog": ["policy.name=policy_dp", "plugin.policy_dp.algorithm=backlog"],
}
BUDGETS = [0, 10, 30, 60, 100]  # percent of the weights
CHUNKS = [7, 1, 64]
TOLERANCE = 0.001


def run(args, model, prompt, n, settings):
    cmd = [args.atsinfer, "logits", "-q", "-m", model, "--ids", ",".join(map(str, prompt["ids"])),
           "-n", str(n), "--top", "1000000", "-ctk", "f32", "-ctv", "f32"]
    if args.plugin:
        cmd += ["--plugin", args.plugin]
    for s in settings:
        cmd += ["--set", s]
    done = subprocess.run(cmd, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"
    return json.loads(done.stdout), None


def difference(a, b):
    """Largest difference of a logit; None when the shapes differ."""
    worst = 0.0
    if len(a["top"]) != len(b["top"]):
        return None
    for rows in zip(a["top"], b["top"]):
        left, right = (dict(map(tuple, r)) for r in rows)
        if left.keys() != right.keys():
            return None
        worst = max(worst, max(abs(left[k] - right[k]) for k in left))
    for x, y in zip(a["greedy_logits"], b["greedy_logits"]):
        worst = max(worst, abs(x - y))
    return worst


def cases(full):
    turn = 0
    for policy in POLICIES:
        for budget in BUDGETS:
            for chunk in CHUNKS if full else [CHUNKS[turn % len(CHUNKS)]]:
                yield policy, budget, chunk
            turn += 1


def check(args, model, prompt, n, alone, case):
    policy, budget, chunk = case
    settings = POLICIES[policy] + [f"backend.accel={args.accel}", f"memory.vram={budget}%m",
                                   f"prefill.chunk={chunk}", "policy.costs=typical"] + args.set
    got, error = run(args, model, prompt, n, settings)
    if error:
        return case, error, 0.0
    worst = difference(alone, got)
    if got["greedy_ids"] != alone["greedy_ids"]:
        return case, f"tokens {got['greedy_ids']}, the CPU alone {alone['greedy_ids']}", worst or 0.0
    if worst is None or not worst <= TOLERANCE:
        return case, f"logits differ by {worst}", worst or 0.0
    return case, None, worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("atsinfer")
    p.add_argument("golden")
    p.add_argument("models")
    p.add_argument("--accel", required=True)
    p.add_argument("--plugin")
    p.add_argument("--set", action="append", default=[], help="further settings of the hybrid runs")
    p.add_argument("--full", action="store_true")
    p.add_argument("--only", default="F32", help="models whose name has this")
    p.add_argument("--prompt", help="this prompt alone")
    p.add_argument("-j", type=int, default=os.cpu_count() or 1)
    args = p.parse_args()
    n = 32 if args.full else 8
    failed = total = 0
    for path in sorted(glob.glob(os.path.join(args.golden, "*.json"))):
        name = os.path.basename(path)[: -len(".json")]
        if args.only not in name or not os.path.exists(os.path.join(args.models, name + ".gguf")):
            continue
        model = os.path.join(args.models, name + ".gguf")
        with open(path, encoding="utf-8") as f:
            prompts = json.load(f)["prompts"]
        worst, bad = 0.0, []
        for prompt in prompts:
            if prompt["name"] != (args.prompt or (prompt["name"] if args.full else "len7")):
                continue
            alone, error = run(args, model, prompt, n, ["backend.accel=none"])
            if error:
                bad.append((prompt["name"], "cpu", error))
                continue
            with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
                for case, error, diff in pool.map(
                        lambda c: check(args, model, prompt, n, alone, c), cases(args.full)):
                    total += 1
                    worst = max(worst, diff)
                    if error:
                        bad.append((prompt["name"], "%s %d%%m, chunks of %d" % case, error))
        print(f"{'ok  ' if not bad else 'FAIL'} {name:28} largest difference {worst:.6f}", flush=True)
        for prompt, case, error in bad[:5]:
            print(f"     {prompt}, {case}: {error}")
        failed += len(bad)
    print(f"{total - failed} of {total} hybrid runs equal those of the CPU alone")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
