#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/kernels.md from rows of `atsinfer bench --rival -o jsonl`, each with a label and
an instruction set added by rival_table.sh:  rival_table.py FILE"""
import json
import sys


def main():
    rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8") if line.strip()]
    if not rows:
        sys.exit("rival_table.py: no rows")
    names, cells = [], {}
    for row in rows:
        own = row["ratio"] == 1 and row["backends"].startswith("cpu_")
        name = "atsinfer" if own else row["backends"]
        if name not in names:
            names.append(name)
        test = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
        cells.setdefault((row["label"], row["isa"], test), {})[name] = row
    print(f"{rows[0]['cpu_info']}, {rows[0]['n_threads']} threads, tokens/s, medians of "
          f"{len(rows[0]['samples_ns'])} samples in turns.\n")
    print("| model | ISA | test | " + " | ".join(names) +
          " | of limit | over the fastest other |")
    print("| --- | --- | --- |" + " ---: |" * (len(names) + 2))
    for (label, isa, test), by_name in cells.items():
        speeds = [f"{by_name[n]['median_ts']:.1f}" if n in by_name else "" for n in names]
        mine = by_name["atsinfer"]
        others = [v["median_ts"] for n, v in by_name.items() if n != "atsinfer"]
        ratio = f"{mine['median_ts'] / max(others):.2f}" if others else ""
        share = mine["limit_share"]
        print(f"| {label} | {isa} | {test} | " + " | ".join(speeds) +
              f" | {100 * share:.0f} % | {ratio} |")


if __name__ == "__main__":
    main()
