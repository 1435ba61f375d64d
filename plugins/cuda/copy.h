/* SPDX-License-Identifier: Apache-2.0
 * The copy kernel: ranges of bytes moved by a few thread blocks, over the link or on the device. */
#ifndef CUDA_PLUGIN_COPY_H
#define CUDA_PLUGIN_COPY_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* So many fit the 4 KiB of a kernel's arguments with room to spare. */
#define CUDA_COPY_RANGES 64u

/* What one launch moves.  Both ends of a range are readable (and writable) by the device. */
struct cuda_copy_batch {
    const void *src[CUDA_COPY_RANGES];
    void *dst[CUDA_COPY_RANGES];
    uint64_t bytes[CUDA_COPY_RANGES];
    uint32_t n;
};

/* Queues the copy on `blocks` thread blocks. */
cudaError_t cuda_copy_launch(cudaStream_t stream, const struct cuda_copy_batch *batch,
                             uint32_t blocks);

#ifdef __cplusplus
}
#endif
#endif
