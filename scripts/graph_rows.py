#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows for the graphs of real GGUF files beside those of shape files.

usage: graph_rows.py ATSINFER DIR

A graph has what a shape leaves out: fused tensors and the row tiles they are cut into, small weights that every
round reads, values that several items read (edges).  DIR holds scheduling/models/*.ini and tools/make_gguf.py,
which knows the tensors of an architecture; of each model a file is written that is a head and a hole.
"""
import configparser
import csv
import importlib.util
import io
import os
import struct
import subprocess
import sys
import tempfile

LAPTOP, DESKTOP = "laptop-rtx3060", "desktop-rtx4090"
MODELS = {"glm-z1-9b-fp16": ("glm4", LAPTOP), "qwen3-14b-int4": ("qwen3", LAPTOP),
          "qwen3-30b-a3b-int4": ("qwen3moe", LAPTOP), "gpt-oss-20b-mxfp4": ("gpt-oss", LAPTOP),
          "llama-3.1-70b-int4": ("llama", DESKTOP), "qwen3-next-80b-a3b-int4": ("qwen3next", DESKTOP),
          "qwen3.5-122b-a10b-int4": ("qwen35moe", DESKTOP), "gpt-oss-120b-mxfp4": ("gpt-oss", DESKTOP)}
POLICIES = ["layer/sync", "paper", "backlog", "backlog-co"]
# Names of make_gguf.py by those of shape files.
KEYS = {"vocab": "V", "hidden": "D", "layers": "L", "heads": "H", "kv_heads": "K", "head_dim": "hd", "ffn": "F",
        "experts": "E", "topk": "k", "expert_ffn": "Fe", "shared_ffn": "Fs", "full_interval": "interval",
        "lin_k_heads": "ssm_k", "lin_v_heads": "ssm_v", "lin_head_dim": "ssm_d"}
EXTRA = {"gpt-oss": {"window": 128, "orig_ctx": 4096, "yarn_factor": 32.0}, "llama": {"rope_orig_ctx": 8192},
         "qwen3next": {"conv": 4, "rot": 64}, "qwen35moe": {"conv": 4, "rot": 64}}


def load(path):
    spec = importlib.util.spec_from_file_location("make_gguf", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kind(shape, name):
    """Weight types that give the bits per weight of the shape file."""
    if shape["format"] == "fp16":
        return "f16"
    if shape["format"] == "mxfp4":
        return "mxfp4" if "_exps." in name else "q8_0"
    return "q6_k" if name.startswith(("output.", "token_embd.")) else "q4_k"


def write_head(gguf, model, path):
    """The file without its data: as long as it says, but a hole."""
    at, infos = 0, b""
    for name, ne, tn, _ in model.tensors:
        number, block, bytes_of, _ = gguf.TYPES[tn]
        size = bytes_of
        for k, d in enumerate(ne):
            size *= d // block if k == 0 else d
        infos += gguf._s(name) + struct.pack("<I%dQIQ" % len(ne), len(ne), *ne, number, at)
        at += (size + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(model.tensors), len(model.kv)))
        for key, t, v in model.kv:
            f.write(gguf._s(key) + struct.pack("<I", t) + gguf._val(t, v))
        f.write(infos)
        f.truncate((f.tell() + 31) // 32 * 32 + at)


def make(gguf, name, arch, shape_file, path):
    ini = configparser.ConfigParser()
    ini.read(shape_file)
    shape = dict(ini["model"])
    values = {k2: int(shape[k1]) for k1, k2 in KEYS.items() if k1 in shape}
    values.update(EXTRA.get(arch, {}), ctx=131072)
    values.setdefault("F", values.get("Fe", 0))
    values.setdefault("Fs", 0)
    gguf.Model.pick = lambda self, tensor, ne: kind(shape, tensor)
    write_head(gguf, gguf.Model(arch, values, 1, "f16", name), path)


def rows(exe, machine, *model):
    """{policy: row}"""
    done = subprocess.run([exe, "simulate", "-q", "--machine", machine, *model, "--policy", ",".join(POLICIES),
                           "--at", "2112", "-o", "csv"], capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s: %s" % (model, done.stderr))
    return {r["policy"]: r for r in csv.DictReader(io.StringIO(done.stdout))}


def items(exe, machine, *model):
    done = subprocess.run([exe, "simulate", "-q", "--machine", machine, *model, "--policy", "layer", "-o", "json"],
                          capture_output=True, text=True, check=True)
    return done.stdout.split(" items;")[0].split()[-1]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    exe, folder = sys.argv[1:]
    gguf = load(os.path.join(folder, "tools", "make_gguf.py"))
    print("| model | | items | " + " | ".join("%s %s" % (p, f) for f in ("decode", "prefill") for p in POLICIES) + " |")
    print("|" + "---|" * (3 + 2 * len(POLICIES)))
    with tempfile.TemporaryDirectory() as work:
        for name, (arch, machine) in MODELS.items():
            shape = os.path.join(folder, "scheduling", "models", name + ".ini")
            head = os.path.join(work, name + ".gguf")
            make(gguf, name, arch, shape, head)
            for what, model in (("shape", ("--shape", shape)), ("graph", ("-m", head))):
                got = rows(exe, machine, *model)
                print("| %s | %s | %s | " % (name, what, items(exe, machine, *model)) + " | ".join(
                    "%.1f" % float(got[p][f + "_ms"]) for f in ("decode", "prefill") for p in POLICIES) + " |", flush=True)


if __name__ == "__main__":
    main()
