# SPDX-License-Identifier: Apache-2.0
# The sources of the plugin, for this folder and for the build on an emulated device
# (tests/cuda_host).
set(CUDA_PLUGIN_DIR ${CMAKE_CURRENT_LIST_DIR})
set(CUDA_PLUGIN_SOURCES_C
  device.c entry.c error.c event.c graph.c memory.c ops.c overlap.c pinned.c queue.c ranges.c run.c
  staging.c timing.c transfer.c vmm.c)
set(CUDA_PLUGIN_SOURCES_CU
  add.cu attn.cu conv.cu copy.cu delta_net.cu embed.cu gate.cu gemm_32.cu gemm_float.cu
  gemm_half.cu gemm_k.cu gemv_32.cu gemv_exact.cu gemv_float.cu gemv_k.cu halves.cu matmul.cu
  moe_sum.cu regroup.cu rms_norm.cu rope.cu rope_table.cu round.cu route.cu swiglu.cu topk.cu)
list(TRANSFORM CUDA_PLUGIN_SOURCES_C PREPEND ${CUDA_PLUGIN_DIR}/)
list(TRANSFORM CUDA_PLUGIN_SOURCES_CU PREPEND ${CUDA_PLUGIN_DIR}/)
