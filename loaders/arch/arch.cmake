# SPDX-License-Identifier: Apache-2.0
# One file per architecture, and what they share.
set(ATSI_ARCH_SOURCES
  arch/arch.c arch/builder.c arch/nodes.c arch/hparams.c arch/rope.c arch/decoder.c arch/attention.c
  arch/ffn.c arch/llama.c arch/qwen2.c arch/qwen3.c arch/glm4.c arch/gpt_oss.c arch/qwen3next.c)
