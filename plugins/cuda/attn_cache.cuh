/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a KV cache: rounded to its type exactly as the CPU backends do it, and read back as f32.
 */
#ifndef ATSI_CUDA_ATTN_CACHE_CUH
#define ATSI_CUDA_ATTN_CACHE_CUH

#include <float.h>

#include "math.cuh"
#include "op.h"

/* 127 / m, or 0 when there is nothing to round: m is 0, or so small that the quotient overflows. */
static __device__ inline float cuda_inverse_of(float m)
{
    float inverse = 127.0f / m;
    return inverse <= FLT_MAX ? inverse : 0.0f;
}

/* NaN, which comes of infinity times 0, becomes 0. */
static __device__ inline int8_t cuda_round_i8(float x)
{
    return x == x ? (int8_t)(int)rintf(x) : (int8_t)0;
}

/* 32 elements, a lane each, to block `b` of a row. */
static __device__ inline void cuda_store_q8_0(float x, unsigned char *row, uint32_t b,
                                              uint32_t lane)
{
    struct atsi_block_q8_0 *block = (struct atsi_block_q8_0 *)(void *)row + b;
    float amax = cuda_warp_max(fabsf(x));
    block->qs[lane] = cuda_round_i8(x * cuda_inverse_of(amax));
    if (lane == 0)
        block->d = __half_as_ushort(__float2half_rn(amax / 127.0f));
}

/* Element i of a row that is not rounded in blocks. */
static __device__ inline void cuda_store_element(uint32_t type, float x, unsigned char *row,
                                                 uint32_t i)
{
    if (type == ATSI_TYPE_F16)
        ((uint16_t *)(void *)row)[i] = __half_as_ushort(__float2half_rn(x));
    else
        ((float *)(void *)row)[i] = x;
}

static __device__ inline float cuda_from_f16(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* Four elements from i on, a multiple of 4, of a row of `dim`; 0 behind its end.  `whole`: rows are
 * aligned to four elements. */
static __device__ inline float4 cuda_read_f32(const unsigned char *row, uint32_t i, uint32_t dim,
                                              bool whole)
{
    const float *x = (const float *)(const void *)row + i;
    if (whole)
        return *(const float4 *)(const void *)x;
    return make_float4(x[0], i + 1 < dim ? x[1] : 0.0f, i + 2 < dim ? x[2] : 0.0f,
                       i + 3 < dim ? x[3] : 0.0f);
}

static __device__ inline float4 cuda_read_f16(const unsigned char *row, uint32_t i, uint32_t dim,
                                              bool whole)
{
    const uint16_t *x = (const uint16_t *)(const void *)row + i;
    if (whole) {
        uint2 u = *(const uint2 *)(const void *)x;
        return make_float4(cuda_from_f16(u.x & 0xffffu), cuda_from_f16(u.x >> 16),
                           cuda_from_f16(u.y & 0xffffu), cuda_from_f16(u.y >> 16));
    }
    return make_float4(cuda_from_f16(x[0]), i + 1 < dim ? cuda_from_f16(x[1]) : 0.0f,
                       i + 2 < dim ? cuda_from_f16(x[2]) : 0.0f,
                       i + 3 < dim ? cuda_from_f16(x[3]) : 0.0f);
}

static __device__ inline float4 cuda_read_q8_0(const unsigned char *row, uint32_t i)
{
    const struct atsi_block_q8_0 *block =
        (const struct atsi_block_q8_0 *)(const void *)row + i / 32;
    const uint16_t *q = (const uint16_t *)(const void *)(block->qs + i % 32); /* blocks are even */
    float d = cuda_from_f16(block->d);
    uint32_t a = q[0], b = q[1];
    return make_float4(d * (float)(int8_t)(a & 0xffu), d * (float)(int8_t)(a >> 8),
                       d * (float)(int8_t)(b & 0xffu), d * (float)(int8_t)(b >> 8));
}

/* Four elements of a row of any type. */
static __device__ inline float4 cuda_cache_read(uint32_t type, const unsigned char *row, uint32_t i,
                                                uint32_t dim)
{
    if (i >= dim)
        return make_float4(0, 0, 0, 0);
    if (type == ATSI_TYPE_F16)
        return cuda_read_f16(row, i, dim, dim % 4 == 0);
    if (type == ATSI_TYPE_Q8_0)
        return cuda_read_q8_0(row, i);
    return cuda_read_f32(row, i, dim, dim % 4 == 0);
}

#endif
