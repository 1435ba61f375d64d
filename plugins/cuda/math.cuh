/* SPDX-License-Identifier: Apache-2.0
 *
 * Device functions that several operations share: sums and maxima over a warp, and the curves of
 * activations.
 *
 * Sums have a fixed order (butterflies over all 32 lanes), so that results do not depend on
 * anything but their inputs.  expf and the like are the full-precision ones.
 */
#ifndef ATSI_CUDA_MATH_CUH
#define ATSI_CUDA_MATH_CUH

#include <math.h>

#include "launch.cuh"

#define CUDA_WARP 32u
#define CUDA_ALL_LANES 0xffffffffu

static __device__ inline float cuda_warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(CUDA_ALL_LANES, x, step);
    return x;
}

static __device__ inline double cuda_warp_sum(double x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(CUDA_ALL_LANES, x, step);
    return x;
}

/* NaN is passed over, as fmaxf does. */
static __device__ inline float cuda_warp_max(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(CUDA_ALL_LANES, x, step));
    return x;
}

/* x / (1 + e^-x) */
static __device__ inline float cuda_silu(float x)
{
    return x / (1.0f + expf(-x));
}

/* Sums of squares outside of this lost too much of what they are made of, or overflowed: they are
 * computed again in double. */
static __device__ inline bool cuda_squares_fit(float sum)
{
    return sum >= 1e-30f && sum <= 1e38f;
}

#endif
