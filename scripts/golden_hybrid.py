#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hybrid runs with runs on the CPU alone, under every policy and several budgets.

  golden_hybrid.py SWEEP GOLDEN MODELS --accel NAME [--plugin FILE] [--full] [--only TEXT] [--prompt NAME]
                   [--policy NAME]

Each F32 model answers the golden prompts with an accelerator beside the CPU: greedy tokens must be
equal to those of the CPU alone, and every logit of every position within 0.001.  The usual run takes
the prompt `len7`, 8 tokens, and one chunk length per case in turn; --full takes all prompts, 32
tokens and all chunk lengths.  Costs are typical ones, so that the plans are the same everywhere.
SWEEP is tests/hybrid/golden_sweep of a build: one process answers all cases of a model.
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


def cases(full):
    turn = 0
    for policy in POLICIES:
        for budget in BUDGETS:
            for chunk in CHUNKS if full else [CHUNKS[turn % len(CHUNKS)]]:
                yield policy, budget, chunk
            turn += 1


def lines(prompts, sweep_cases):
    """What golden_sweep is told."""
    for prompt in prompts:
        yield f"prompt {prompt['name']} {','.join(map(str, prompt['ids']))}\n"
    for policy, budget, chunk in sweep_cases:
        yield f"case {chunk} memory.vram={budget}%m {' '.join(POLICIES[policy])}\n"


def sweep(args, name, prompts):
    """Cases of one model: how many there were, the largest difference, [(case, what is wrong)]."""
    wanted = [c for c in cases(args.full) if args.policy in (None, c[0])]
    cmd = [args.sweep, os.path.join(args.models, name + ".gguf"), "32" if args.full else "8",
           f"backend.accel={args.accel}", "policy.costs=typical",
           "policy.time_limit=10000000"] + args.set  # machines that run tests are busy
    if args.plugin:
        cmd += ["--plugin", args.plugin]
    done = subprocess.run(cmd, input="".join(lines(prompts, wanted)), capture_output=True, text=True, check=False)
    answers = done.stdout.splitlines()
    worst, bad = 0.0, []
    for case, answer in zip(wanted, answers):
        verdict, difference, *what = answer.split(" ", 2)
        worst = max(worst, float(difference))
        if verdict != "ok":
            bad.append(("%s %d%%m, chunks of %d" % case, what[0]))
    if done.returncode != 0 or len(answers) != len(wanted):
        bad.append((f"after {len(answers)} of {len(wanted)} cases",
                    f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"))
    elif "cuda_host: " in done.stderr: # the simulated device found something
        bad.append(("some case", done.stderr.strip()[-300:]))
    return len(answers), worst, bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sweep")
    p.add_argument("golden")
    p.add_argument("models")
    p.add_argument("--accel", required=True)
    p.add_argument("--plugin")
    p.add_argument("--set", action="append", default=[], help="further settings of the hybrid runs")
    p.add_argument("--full", action="store_true")
    p.add_argument("--only", default="F32", help="models whose name has this")
    p.add_argument("--prompt", help="this prompt alone")
    p.add_argument("--policy", choices=POLICIES, help="this policy alone")
    p.add_argument("-j", type=int, default=os.cpu_count() or 1)
    args = p.parse_args()
    jobs = []
    for path in sorted(glob.glob(os.path.join(args.golden, "*.json"))):
        name = os.path.basename(path)[: -len(".json")]
        if args.only not in name or not os.path.exists(os.path.join(args.models, name + ".gguf")):
            continue
        with open(path, encoding="utf-8") as f:
            prompts = json.load(f)["prompts"]
        prompts = [q for q in prompts if q["name"] == (args.prompt or (q["name"] if args.full else "len7"))]
        if prompts:
            jobs.append((name, prompts))
    failed = total = 0
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for (name, prompts), (n, worst, bad) in zip(jobs, pool.map(lambda j: sweep(args, *j), jobs)):
            total += n
            failed += len(bad)
            print(f"{'ok  ' if not bad else 'FAIL'} {name:28} {n} cases of {len(prompts)} prompts, "
                  f"largest difference {worst:.6f}", flush=True)
            for case, what in bad[:5]:
                print(f"     {case}: {what}")
    print(f"{total - failed} of {total} hybrid runs equal those of the CPU alone")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
