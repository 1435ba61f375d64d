/* SPDX-License-Identifier: Apache-2.0
 * Products of many tokens with weights in blocks of 32. */
#include "gemm_block.cuh"

cudaError_t cuda_gemm_32(cudaStream_t s, const struct cuda_device *dev, uint32_t type, int layout,
                         const cuda_product &p)
{
#define ONE(type)                                                                                  \
    case type:                                                                                     \
        return gemm_block_of_type<type>(s, dev, layout, p)
    switch (type) {
        CUDA_EACH_BLOCK_32(ONE);
    default:
        return cudaErrorNotSupported;
    }
#undef ONE
}
