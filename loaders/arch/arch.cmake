# SPDX-License-Identifier: Apache-2.0
# One file per architecture, and what they share.
set(ATSI_ARCH_SOURCES
  arch/arch.c arch/builder.c arch/hparams.c arch/rope.c arch/decoder.c arch/llama.c arch/qwen2.c
  arch/qwen3.c)
