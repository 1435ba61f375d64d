/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding to 8 bits of 256 elements by a warp, 8 neighbours per lane: on its own (round.cu), or
 * where an operation whose results products will read has them in registers.  Divisions,
 * conversions and the rounding of halves to even are IEEE operations on either side, so that the
 * quants are those of the CPU to the bit.
 */
#ifndef ATSI_CUDA_ROUND_CUH
#define ATSI_CUDA_ROUND_CUH

#include <float.h>

#include "math.cuh"
#include "rounded.h"

#define ROUND_SPAN 256u

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

/* Rounds v, elements at .. at + 7 of all rows; all lanes call it.  Rows are whole blocks, so where
 * one ends does not matter. */
template <uint32_t BLOCK>
static __device__ __forceinline__ void round_store(const float (&v)[8], const cuda_rounding &to,
                                                   uint64_t at, bool inside)
{
    uint32_t lane = threadIdx.x % CUDA_WARP, word[2] = {0, 0};
    int32_t sum = 0;
    float scale, inverse;
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
        return;
    *(uint2 *)(void *)(to.q + at) = make_uint2(word[0], word[1]);
    if (lane % 2 == 0)
        to.s[at / 16] = (int16_t)sum;
    if (lane % (BLOCK / 8) == 0)
        to.d[at / BLOCK] = scale;
}

#endif
