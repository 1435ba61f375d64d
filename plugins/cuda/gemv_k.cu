/* SPDX-License-Identifier: Apache-2.0
 * Products of few tokens with weights in super-blocks of 256. */
#include "gemv.cuh"

cudaError_t cuda_gemv_k(cudaStream_t s, uint32_t type, int layout, const cuda_product &p)
{
#define ONE(type)                                                                                  \
    case type:                                                                                     \
        return gemv_of_type<type>(s, layout, p)
    switch (type) {
        CUDA_EACH_BLOCK_K(ONE);
    default:
        return cudaErrorNotSupported;
    }
#undef ONE
}
