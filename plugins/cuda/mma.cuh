/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores: products of a 16 x 32 tile of signed bytes with an 8 x 32 one, sums in int, and of
 * 16 x 16 with 8 x 16 halves (f16 or bf16), sums in float.
 *
 *     c[m][n] += sum over k of a[m][k] * b[n][k]
 *
 * Fragments are those of PTX mma.m16n8k32 (PTX ISA, "Matrix Fragments"): with g = lane / 4 and
 * t = lane % 4,
 *     a[0] row g,     bytes 4 t ..      a[2] row g,     bytes 16 + 4 t ..
 *     a[1] row g + 8, bytes 4 t ..      a[3] row g + 8, bytes 16 + 4 t ..
 *     b[0] token g,   bytes 4 t ..      b[1] token g,   bytes 16 + 4 t ..
 *     c[0], c[1] row g, tokens 2 t, 2 t + 1;   c[2], c[3] row g + 8
 * so that a[0], a[1], b[0] are the fragments of mma.m16n8k16 for the first 16 bytes, and each half
 * of that is an mma.m8n8k16, the only one that sm_75 has.
 *
 * Halves have the same fragments, in pairs: a word holds elements 2 t and 2 t + 1 of the first or
 * second eight.  sm_75 has an mma.m16n8k8 of f16, and none of bf16.
 *
 * Without tensor cores, on the host, lanes hand one another their fragments.
 */
#ifndef ATSI_CUDA_MMA_CUH
#define ATSI_CUDA_MMA_CUH

#include "launch.cuh"

#define MMA_LANES 0xffffffffu

#ifdef __CUDA_ARCH__

static __device__ __forceinline__ unsigned mma_shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* 16 rows of 32 bytes, `stride` bytes apart, all 16-byte aligned. */
static __device__ __forceinline__ void mma_load_a(uint32_t (&a)[4], const int8_t *tile,
                                                  uint32_t stride)
{
    uint32_t lane = threadIdx.x % 32;
    unsigned at = mma_shared_address(tile + lane % 16 * stride + lane / 16 * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(at)
                 : "memory");
}

/* Two neighbouring groups of 8 tokens. */
static __device__ __forceinline__ void mma_load_b(uint32_t (&b)[2][2], const int8_t *tile,
                                                  uint32_t stride)
{
    uint32_t lane = threadIdx.x % 32;
    unsigned at =
        mma_shared_address(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(at)
                 : "memory");
}

/* As mma_load_b(), of a tile that has its 16-byte rows along the tokens: 16 rows of k, 8 halves of
 * tokens to a group. */
static __device__ __forceinline__ void mma_load_b_across(uint32_t (&b)[2][2], const uint8_t *tile,
                                                         uint32_t stride)
{
    uint32_t lane = threadIdx.x % 32;
    unsigned at = mma_shared_address(tile + lane % 16 * stride + lane / 16 * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mma_8x16(int &c0, int &c1, uint32_t a, uint32_t b)
{
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(c0), "+r"(c1)
        : "r"(a), "r"(b));
}

static __device__ __forceinline__ void mma_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
#else
    mma_8x16(c[0], c[1], a0, b);
    mma_8x16(c[2], c[3], a1, b);
#endif
}

static __device__ __forceinline__ void mma_k32(int (&c)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    mma_k16(c, a[0], a[1], b[0]);
    mma_k16(c, a[2], a[3], b[1]);
#endif
}

template <bool BF16>
static __device__ __forceinline__ void mma_half(float &c0, float &c1, float &c2, float &c3,
                                                const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    if constexpr (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 2; i++)
        if constexpr (!BF16)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, "
                "{%6}, "
                "{%0, %1, %2, %3};"
                : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

#else

static __device__ __forceinline__ void mma_load_a(uint32_t (&a)[4], const int8_t *tile,
                                                  uint32_t stride)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&a[i], tile + (lane / 4 + i % 2 * 8) * stride + i / 2 * 16 + lane % 4 * 4, 4);
}

static __device__ __forceinline__ void mma_load_b(uint32_t (&b)[2][2], const int8_t *tile,
                                                  uint32_t stride)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&b[i / 2][i % 2], tile + (lane / 4 + i / 2 * 8) * stride + i % 2 * 16 + lane % 4 * 4,
               4);
}

static __device__ __forceinline__ void mma_load_b_across(uint32_t (&b)[2][2], const uint8_t *tile,
                                                         uint32_t stride)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++) {
        uint16_t v[2];
        for (uint32_t e = 0; e < 2; e++)
            memcpy(&v[e],
                   tile + (i % 2 * 8 + lane % 4 * 2 + e) * stride + i / 2 * 16 + lane / 4 * 2, 2);
        b[i / 2][i % 2] = v[0] | (uint32_t)v[1] << 16;
    }
}

static __device__ __forceinline__ uint64_t mma_pair(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* Row g comes from lanes 4 g + i, i = 0..3, token n from lanes 4 n + i. */
static __device__ __forceinline__ void mma_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    const int lane = (int)(threadIdx.x % 32);
    for (int i = 0; i < 4; i++) {
        uint64_t a = __shfl_sync(MMA_LANES, mma_pair(a0, a1), lane / 4 * 4 + i);
        for (int n = 0; n < 2; n++) {
            int tokens = (int)__shfl_sync(MMA_LANES, b, 4 * (lane % 4 * 2 + n) + i);
            c[n] = __dp4a((int)(uint32_t)a, tokens, c[n]);
            c[2 + n] = __dp4a((int)(uint32_t)(a >> 32), tokens, c[2 + n]);
        }
    }
}

static __device__ __forceinline__ void mma_k32(int (&c)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
{
    mma_k16(c, a[0], a[1], b[0]);
    mma_k16(c, a[2], a[3], b[1]);
}

template <bool BF16>
static __device__ __forceinline__ float mma_element(uint32_t word, int i)
{
    unsigned short bits = (unsigned short)(word >> (16 * i));
    return BF16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* Four elements of two fragments' words. */
template <bool BF16>
static __device__ __forceinline__ float mma_sum(float c, uint64_t a, uint64_t b)
{
    for (int i = 0; i < 4; i++)
        c = fmaf(mma_element<BF16>((uint32_t)(a >> (i / 2 * 32)), i % 2),
                 mma_element<BF16>((uint32_t)(b >> (i / 2 * 32)), i % 2), c);
    return c;
}

template <bool BF16>
static __device__ __forceinline__ void mma_half(float &c0, float &c1, float &c2, float &c3,
                                                const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const int lane = (int)(threadIdx.x % 32);
    for (int i = 0; i < 4; i++) {
        uint64_t upper = __shfl_sync(MMA_LANES, mma_pair(a[0], a[2]), lane / 4 * 4 + i);
        uint64_t lower = __shfl_sync(MMA_LANES, mma_pair(a[1], a[3]), lane / 4 * 4 + i);
        uint64_t even = __shfl_sync(MMA_LANES, mma_pair(b[0], b[1]), lane % 4 * 8 + i);
        uint64_t odd = __shfl_sync(MMA_LANES, mma_pair(b[0], b[1]), lane % 4 * 8 + 4 + i);
        c0 = mma_sum<BF16>(c0, upper, even);
        c1 = mma_sum<BF16>(c1, upper, odd);
        c2 = mma_sum<BF16>(c2, lower, even);
        c3 = mma_sum<BF16>(c3, lower, odd);
    }
}

#endif
#endif
