#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the inner loops of kernels in their object files.

    count_loops.py --compiler "GNU 12.2.0" --objdump objdump TABLE OBJECT...
    count_loops.py ... --list            prints the table's lines with the numbers found
    count_loops.py ... --prove           succeeds when loops twice as long would be noticed

A kernel may grow without any result or test noticing, and clocks are not to be trusted on shared
machines; instructions are.  TABLE has one line per loop:

    object function marker count instructions weights

The loop is the shortest run of instructions that ends in a jump back to its start and holds the
marker instruction (a prefix of its name) `count` times.  More than 10 % over `instructions` is a failure.  The numbers hold
for one compiler, named in the table's first line: with another the test is skipped (77).
"""
import argparse
import os
import re
import subprocess
import sys

ALLOWED = 1.10


def read_table(path):
    compiler, rows = None, []
    with open(path, encoding="ascii") as f:
        for line in f:
            line = line.split("#")[0].strip()
            if line.startswith("compiler:"):
                compiler = line.split(":", 1)[1].strip()
            elif line:
                obj, function, marker, count, instructions, weights = line.split()
                rows.append((obj, function, marker, int(count), int(instructions), int(weights)))
    return compiler, rows


def read_functions(objdump, path):
    """{name: [(address, mnemonic, operands)]}"""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    functions, current = {}, None
    for line in text.splitlines():
        start = re.match(r"[0-9a-f]+ <(.+)>:", line)
        code = re.match(r"\s*([0-9a-f]+):\t(?:\{vex\} )?(\S+)\s*(.*)", line)
        if start:
            current = functions.setdefault(start.group(1), [])
        elif code and current is not None:
            current.append((int(code.group(1), 16), code.group(2), code.group(3)))
    return functions


def loop_length(code, marker, count):
    """Instructions of the shortest loop with that many markers, or None."""
    index = {address: i for i, (address, _, _) in enumerate(code)}
    markers = [0]
    for _, name, _ in code:
        markers.append(markers[-1] + name.startswith(marker))
    best = None
    for end, (_, name, operands) in enumerate(code):
        target = re.match(r"([0-9a-f]+)", operands) if name.startswith("j") else None
        start = index.get(int(target.group(1), 16)) if target else None
        if start is None or start > end or markers[end + 1] - markers[start] != count:
            continue
        best = end - start + 1 if best is None else min(best, end - start + 1)
    return best


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--compiler", required=True)
    p.add_argument("--objdump", default="objdump")
    p.add_argument("--list", action="store_true")
    p.add_argument("--prove", action="store_true")
    p.add_argument("table")
    p.add_argument("objects", nargs="+")
    a = p.parse_args()
    compiler, rows = read_table(a.table)
    if not a.compiler.startswith(compiler):
        print(f"skipped: the numbers are those of {compiler}, this is {a.compiler}")
        return 77
    functions = {}
    for path in a.objects:
        name = re.sub(r"\.c\.o$|\.o$", "", os.path.basename(path))
        functions[name] = read_functions(a.objdump, path)
    bad = 0
    for obj, function, marker, count, known, weights in rows:
        if obj not in functions:
            print(f"{obj}: no such object among the arguments")
            bad += 1
            continue
        found = loop_length(functions[obj].get(function, []), marker, count)
        if a.list:
            print(f"{obj:14} {function:18} {marker:14} {count:4} {found or 0:5} {weights:6}")
        elif found is None:
            print(f"{obj} {function}: no loop with {count} times {marker}")
            bad += 1
        else:
            word = "GROWN" if found > ALLOWED * known / (2 if a.prove else 1) else "ok"
            bad += word != "ok"
            print(f"{obj:14} {function:18} {found:4} instructions, {known:4} known, "
                  f"{found / weights:.3f} per weight  {word}")
    if a.prove:
        return 0 if bad == len(rows) else 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
