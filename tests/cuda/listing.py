#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the hot CUDA kernels: the instructions that their speed rests on, no register
spilled, and few enough registers for the blocks that are to share a multiprocessor.

  listing.py --nvcc NVCC --source DIR [--arch 90]

DIR is the repository.  Exit status 77 (skipped) where NVCC is not there.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

WIDE = r"ld\.global\.nc\.L1::no_allocate\.v4\.u32"
ASYNC = r"cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 16"
LDMATRIX = r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16"
LDMATRIX_TRANS = r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16"
MMA_INT = r"mma\.sync\.aligned\.m16n8k(32|16)\.row\.col\.s32\.s8\.s8\.s32"
MMA_HALF = r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.b?f16\.b?f16\.f32"
STORE = r"st\.global\.v4"

# file: (kernels, the instructions that each must have, the most registers)
# Template arguments as in the mangled name: type, layout (1: panels), tokens.
CHECKS = {
    "gemv_k.cu": [(r"gemv_kernelILj\d+ELi1ELi1E", [WIDE, r"dp4a"], 128),
                  (r"gemv_kernelILj\d+ELi1ELi[248]E", [WIDE, r"dp4a"], 255)],
    "gemv_float.cu": [(r"float_kernelILj\d+ELi1ELi1E", [WIDE], 128)],
    "gemm_k.cu": [(r"gemm_block_kernelILj\d+ELi1E", [ASYNC, LDMATRIX, MMA_INT, STORE], 255),
                  (r"gemm_block_kernelILj\d+ELi0E", [LDMATRIX, MMA_INT, STORE], 255)],
    "gemm_half.cu": [(r"gemm_half_kernel", [ASYNC, LDMATRIX, MMA_HALF, STORE], 255)],
    "attn.cu": [(r"attn_wide_kernel", [ASYNC, LDMATRIX, LDMATRIX_TRANS, MMA_HALF], 255)],
    "topk.cu": [(r"wide_part_kernel", [r"match\.any\.sync", r"atom\.shared\.add"], 64),
                (r"topk_merge_kernel", [r"match\.any\.sync", r"atom\.shared\.add"], 64)],
    "rope.cu": [(r"rope_store_kernel", [r"bar\.warp\.sync"], 64)],
    "copy.cu": [(r"copy_kernel", [r"ld\.[a-z.]*v4", r"st\.[a-z.]*v4"], 64)],
}


def compile_ptx(args, source, out):
    done = subprocess.run(
        [args.nvcc, f"-arch=compute_{args.arch}", "-ptx", "-O3", "-std=c++17", "-I", os.path.join(args.source, "include"),
         "-o", out, os.path.join(args.source, "plugins/cuda", source)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"listing.py: nvcc {source}:\n{done.stderr[-2000:]}")


def kernels_of(ptx):
    """Name: text of the function."""
    with open(ptx, encoding="ascii", errors="replace") as f:
        text = f.read()
    parts = re.split(r"\.entry (\w+)\(", text)
    return dict(zip(parts[1::2], parts[2::2]))


def resources_of(args, ptx):
    """Name: (registers, bytes spilled), as ptxas says."""
    ptxas = os.path.join(os.path.dirname(os.path.realpath(args.nvcc)), "ptxas")
    done = subprocess.run([ptxas, f"-arch=sm_{args.arch}", "-v", "-o", os.devnull, ptx], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"listing.py: ptxas:\n{done.stderr[-2000:]}")
    found, name, spilled = {}, None, 0
    for line in (done.stderr + done.stdout).splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name, spilled = m[1], 0
        if m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(m[1]) + int(m[2])
        if (m := re.search(r"Used (\d+) registers", line)) and name:
            found[name] = (int(m[1]), spilled)
    return found


def check_file(args, source, checks, folder):
    ptx = os.path.join(folder, source + ".ptx")
    compile_ptx(args, source, ptx)
    kernels, resources = kernels_of(ptx), resources_of(args, ptx)
    wrong = [f"{source}: {name}: {spilled} bytes spilled"
             for name, (_, spilled) in resources.items() if spilled > 0]
    for pattern, wanted, most in checks:
        names = [n for n in kernels if re.search(pattern, n)]
        if not names:
            wrong.append(f"{source}: no kernel is called {pattern}")
        for name in names:
            wrong += [f"{source}: {name}: no {w}" for w in wanted if not re.search(w, kernels[name])]
            if resources[name][0] > most:
                wrong.append(f"{source}: {name}: {resources[name][0]} registers, {most} at most")
    print(f"{source}: {len(kernels)} kernels, up to {max(r for r, _ in resources.values())} registers", flush=True)
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nvcc", required=True)
    p.add_argument("--source", required=True)
    p.add_argument("--arch", default="90")
    args = p.parse_args()
    if not os.path.exists(args.nvcc):
        print("no nvcc here: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        wrong = [w for source, checks in CHECKS.items() for w in check_file(args, source, checks, folder)]
    for w in wrong:
        print(w)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
