/* SPDX-License-Identifier: Apache-2.0
 *
 * Floats as the sum of two halves, f16 or bf16.  Rows for f16 are scaled by a power of two so that
 * their largest element is between 2^14 and 2^15.
 */
#ifndef ATSI_CUDA_SPLIT_HALF_CUH
#define ATSI_CUDA_SPLIT_HALF_CUH

#include "math.cuh"

struct cuda_scaling {
    float scale, factor; /* their product is 1 */
};

static __device__ __forceinline__ cuda_scaling cuda_scaling_of(float most)
{
    uint32_t e = __float_as_uint(most) >> 23; /* of the exponent, biased by 127 */
    if (e == 255)
        return {1.0f, 1.0f};
    e = e > 15 ? e : 15;
    return {__uint_as_float((268 - e) << 23), __uint_as_float((e - 14) << 23)};
}

static __device__ __forceinline__ bool cuda_is_finite(float x)
{
    return fabsf(x) <= 3.402823466e38f;
}

template <bool BF16>
static __device__ __forceinline__ uint16_t cuda_half_of(float x)
{
    return BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                : __half_as_ushort(__float2half_rn(x));
}

template <bool BF16>
static __device__ __forceinline__ float cuda_float_of_half(uint16_t bits)
{
    return BF16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* Both terms of x.  Rounded up to infinity, bf16 is cut off instead. */
template <bool BF16>
static __device__ __forceinline__ void cuda_split_half(float x, uint16_t *first, uint16_t *second)
{
    *first = cuda_half_of<BF16>(x);
    if (BF16 && cuda_is_finite(x) && !cuda_is_finite(cuda_float_of_half<BF16>(*first)))
        *first = (uint16_t)(__float_as_uint(x) >> 16);
    float kept = cuda_float_of_half<BF16>(*first);
    *second = cuda_half_of<BF16>(cuda_is_finite(kept) ? x - kept : 0.0f);
}

#endif
