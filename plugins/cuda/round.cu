/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of activations to 8 bits.
 */
#include "grid.h"
#include "round.cuh"

#define ROUND_WARPS 4u

/* `n` elements of all rows. */
template <uint32_t BLOCK>
static __global__ void __launch_bounds__(CUDA_WARP *ROUND_WARPS)
    round_kernel(const float *x, const cuda_rounding to, uint64_t n)
{
    uint64_t warp = (uint64_t)blockIdx.x * ROUND_WARPS + threadIdx.x / CUDA_WARP;
    uint64_t step = (uint64_t)gridDim.x * ROUND_WARPS * ROUND_SPAN;
    for (uint64_t span = warp * ROUND_SPAN; span < n; span += step) {
        uint64_t at = span + 8 * (threadIdx.x % CUDA_WARP);
        bool inside = at < n; /* then all eight are */
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = inside ? x[at + i] : 0.0f;
        round_store<BLOCK>(v, to, at, inside);
    }
}

static uint64_t up_256(uint64_t n)
{
    return (n + 255) / 256 * 256;
}

size_t cuda_act_bytes(uint64_t rows, uint32_t k, uint32_t block)
{
    return (size_t)(up_256(rows * k) + up_256(rows * (k / block) * sizeof(float)) +
                    up_256(rows * (k / 16) * sizeof(int16_t)));
}

cuda_rounding cuda_rounding_of(const struct cuda_launch *l, uint64_t rows, uint32_t k,
                               uint32_t block)
{
    uint8_t *at = (uint8_t *)l->scratch;
    uint8_t *d = at + up_256(rows * k), *s = d + up_256(rows * (k / block) * sizeof(float));
    return {(int8_t *)at, (float *)(void *)d, (int16_t *)(void *)s};
}

cudaError_t cuda_act_round(const struct cuda_launch *l, const float *x, uint32_t rows, uint32_t k,
                           uint32_t block, struct cuda_act *out)
{
    struct cuda_rounding to = cuda_rounding_of(l, rows, k, block);
    uint64_t n = (uint64_t)rows * k;
    dim3 grid(cuda_blocks(cuda_div_up(n, ROUND_SPAN), ROUND_WARPS));
    struct cuda_rounded *have = l->rounded;
    cudaError_t e;
    *out = {to.q, to.d, to.s, k, block};
    if (have->src == x && have->block == block && have->n_rows == rows && have->k == k)
        return cudaSuccess;
    have->src = NULL;
    if (block == 32)
        e = ATSI_LAUNCH((round_kernel<32>), grid, dim3(CUDA_WARP * ROUND_WARPS), 0, l->stream, x,
                        to, n);
    else
        e = ATSI_LAUNCH((round_kernel<256>), grid, dim3(CUDA_WARP * ROUND_WARPS), 0, l->stream, x,
                        to, n);
    if (e == cudaSuccess)
        *have = {x, block, rows, k};
    return e;
}
