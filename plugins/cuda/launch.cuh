/* SPDX-License-Identifier: Apache-2.0
 *
 * How a kernel is launched, and how it gets its dynamic shared memory: the one place of this plugin
 * (with mma.cuh and async.cuh) that knows whether the source is compiled by nvcc or, for tests on
 * machines without a GPU, as host C++ (tests/cuda_host).
 *
 * ATSI_LAUNCH(kernel, grid, block, shared_bytes, stream, args...) queues a launch and is a
 * cudaError_t.  A template kernel goes in parentheses: ATSI_LAUNCH((k<4, true>), ...).  Arguments
 * are converted to the kernel's parameter types.
 *
 * ATSI_DYNAMIC_SHARED(type, name); declares `type *name`, the dynamic shared memory of the block,
 * aligned to 16 bytes.
 */
#ifndef ATSI_CUDA_LAUNCH_CUH
#define ATSI_CUDA_LAUNCH_CUH

#ifdef ATSINFER_CUDA_HOST
#include "tests/cuda_host/language.cuh"

#define ATSI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    ch_launch_typed(#kernel, (kernel), (grid), (block), (shared_bytes), (stream), __VA_ARGS__)
#define ATSI_DYNAMIC_SHARED(type, name) type *name = ch_dynamic_shared<type>()

#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* clang-format off */ /* it would take <<< apart */
#define ATSI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    ((kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
/* clang-format on */
/* One declaration serves every element type: nvcc wants `extern __shared__` arrays of one name to
 * agree. */
#define ATSI_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char atsi_dynamic_shared[];                           \
    type *name = reinterpret_cast<type *>(atsi_dynamic_shared)

/* Four products of unsigned bytes of `u` with signed bytes of `s`, added to `c`. */
static __device__ __forceinline__ int atsi_dp4a_us(unsigned u, int s, int c)
{
    int d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(u), "r"(s), "r"(c));
    return d;
}
#endif
#endif
