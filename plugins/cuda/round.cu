/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of activations to 8 bits.  Divisions, conversions and the rounding of halves to even are
 * IEEE operations on either side, so that the quants are those of the CPU to the bit.
 */
#include <float.h>

#include "grid.h"
#include "math.cuh"
#include "rounded.h"

#define ROUND_WARPS 4u
#define ROUND_SPAN 256u /* elements a warp rounds: 8 per lane */

/* 127 / |m|, or 0 when there is nothing to round: m is 0, NaN, or so small that the quotient
 * overflows. */
static __device__ __forceinline__ float inverse_of(float m)
{
    float inverse = 127.0f / fabsf(m);
    return inverse <= FLT_MAX ? inverse : 0.0f;
}

/* A block of 32 is four lanes wide. */
static __device__ __forceinline__ float scale_32(const float (&v)[8], float *d)
{
    float amax = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        amax = fmaxf(amax, fabsf(v[i]));
    amax = fmaxf(amax, __shfl_xor_sync(CUDA_ALL_LANES, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(CUDA_ALL_LANES, amax, 2));
    *d = __half2float(__float2half_rn(amax / 127.0f));
    return inverse_of(amax);
}

/* The element of largest magnitude, with its sign; the first one on a tie.  Of two lanes the lower
 * one holds the earlier elements. */
static __device__ __forceinline__ float scale_256(const float (&v)[8], uint32_t lane, float *d)
{
    float m = 0, iscale;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (fabsf(v[i]) > fabsf(m))
            m = v[i];
#pragma unroll
    for (uint32_t step = 1; step < CUDA_WARP; step *= 2) {
        float other = __shfl_xor_sync(CUDA_ALL_LANES, m, step);
        bool earlier = (lane & step) != 0;
        if (fabsf(other) > fabsf(m) || (earlier && fabsf(other) == fabsf(m)))
            m = other;
    }
    iscale = copysignf(inverse_of(m), -m);
    *d = iscale != 0 ? 1.0f / iscale : 0.0f;
    return iscale;
}

template <uint32_t BLOCK>
static __global__ void __launch_bounds__(CUDA_WARP *ROUND_WARPS)
    round_kernel(const float *x, int8_t *q, float *d, int16_t *s, uint32_t k, uint64_t n_spans)
{
    uint32_t lane = threadIdx.x % CUDA_WARP, per_row = (k + ROUND_SPAN - 1) / ROUND_SPAN;
    uint64_t span = (uint64_t)blockIdx.x * ROUND_WARPS + threadIdx.x / CUDA_WARP;
    uint64_t step = (uint64_t)gridDim.x * ROUND_WARPS;
    for (; span < n_spans; span += step) {
        uint64_t row = span / per_row;
        uint32_t at = (uint32_t)(span % per_row) * ROUND_SPAN + 8 * lane;
        bool inside = at < k; /* then all eight are */
        float v[8], scale, inverse;
        int32_t sum = 0;
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = inside ? x[row * k + at + i] : 0.0f;
        inverse = BLOCK == 32 ? scale_32(v, &scale) : scale_256(v, lane, &scale);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float r = rintf(v[i] * inverse);
            int32_t code = (int32_t)(BLOCK == 32 ? r : fminf(127.0f, r));
            sum += (int8_t)code;
            word[i / 4] |= ((uint32_t)code & 0xffu) << (8 * (i % 4));
        }
        sum += __shfl_xor_sync(CUDA_ALL_LANES, sum, 1);
        if (!inside)
            continue;
        *(uint2 *)(void *)(q + row * k + at) = make_uint2(word[0], word[1]);
        if (lane % 2 == 0)
            s[row * (k / 16) + at / 16] = (int16_t)sum;
        if (lane % (BLOCK / 8) == 0)
            d[row * (k / BLOCK) + at / BLOCK] = scale;
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

cudaError_t cuda_act_round(const struct cuda_launch *l, const float *x, uint32_t rows, uint32_t k,
                           uint32_t block, struct cuda_act *out)
{
    uint8_t *at = (uint8_t *)l->scratch;
    int8_t *q = (int8_t *)at;
    float *d = (float *)(void *)(at + up_256((uint64_t)rows * k));
    int16_t *s =
        (int16_t *)(void *)((uint8_t *)d + up_256((uint64_t)rows * (k / block) * sizeof(float)));
    uint64_t spans = (uint64_t)rows * ((k + ROUND_SPAN - 1) / ROUND_SPAN);
    dim3 grid(cuda_blocks(spans, ROUND_WARPS));
    struct cuda_rounded *have = l->rounded;
    cudaError_t e;
    *out = {q, d, s, k, block};
    if (have->src == x && have->block == block && have->n_rows == rows && have->k == k)
        return cudaSuccess;
    have->src = NULL;
    if (block == 32)
        e = ATSI_LAUNCH((round_kernel<32>), grid, dim3(CUDA_WARP * ROUND_WARPS), 0, l->stream, x, q,
                        d, s, k, spans);
    else
        e = ATSI_LAUNCH((round_kernel<256>), grid, dim3(CUDA_WARP * ROUND_WARPS), 0, l->stream, x,
                        q, d, s, k, spans);
    if (e == cudaSuccess)
        *have = {x, block, rows, k};
    return e;
}
