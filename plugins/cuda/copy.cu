/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel.  The blocks of a launch share the bytes of all its ranges; a block copies 16
 * bytes per thread and step, with several steps under way, because what bounds a copy over the link
 * is how many reads are outstanding (a microsecond each), not how many threads there are.
 */
#include "copy.h"
#include "launch.cuh"

#define COPY_THREADS 256u
#define COPY_STEPS 4u /* 16-byte loads of a thread before its first store */

/* Elements `first`, `first` + step, ... of n. */
template <typename T>
static __device__ void copy_elements(const T *src, T *dst, uint64_t n, uint64_t first,
                                     uint64_t step)
{
    uint64_t i = first;
    for (; i + (COPY_STEPS - 1) * step < n; i += COPY_STEPS * step) {
        T piece[COPY_STEPS];
#pragma unroll
        for (uint32_t s = 0; s < COPY_STEPS; s++)
            piece[s] = src[i + s * step];
#pragma unroll
        for (uint32_t s = 0; s < COPY_STEPS; s++)
            dst[i + s * step] = piece[s];
    }
    for (; i < n; i += step)
        dst[i] = src[i];
}

/* The range in units of T, and what is left in front of and behind them in bytes. */
template <typename T>
static __device__ void copy_range(const unsigned char *src, unsigned char *dst, uint64_t bytes,
                                  uint64_t first, uint64_t step)
{
    uint64_t head = (uint64_t)(-(intptr_t)src) & (sizeof(T) - 1);
    if (head > bytes)
        head = bytes;
    uint64_t n = (bytes - head) / sizeof(T), done = head + n * sizeof(T);
    copy_elements(src, dst, head, first, step);
    copy_elements((const T *)(src + head), (T *)(dst + head), n, first, step);
    copy_elements(src + done, dst + done, bytes - done, first, step);
}

static __global__ void copy_kernel(const cuda_copy_batch batch)
{
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint32_t i = 0; i < batch.n; i++) {
        const unsigned char *src = (const unsigned char *)batch.src[i];
        unsigned char *dst = (unsigned char *)batch.dst[i];
        uint64_t apart = (uint64_t)((intptr_t)src ^ (intptr_t)dst);
        if (apart % 16 == 0)
            copy_range<uint4>(src, dst, batch.bytes[i], first, step);
        else if (apart % 4 == 0)
            copy_range<uint32_t>(src, dst, batch.bytes[i], first, step);
        else
            copy_range<unsigned char>(src, dst, batch.bytes[i], first, step);
    }
}

extern "C" cudaError_t cuda_copy_launch(cudaStream_t stream, const struct cuda_copy_batch *batch,
                                        uint32_t blocks)
{
    uint64_t bytes = 0, most;
    for (uint32_t i = 0; i < batch->n; i++)
        bytes += batch->bytes[i];
    most = bytes / (16 * COPY_THREADS) + 1;
    return ATSI_LAUNCH(copy_kernel, dim3(most < blocks ? (unsigned)most : blocks),
                       dim3(COPY_THREADS), 0, stream, *batch);
}
