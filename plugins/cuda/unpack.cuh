/* SPDX-License-Identifier: Apache-2.0
 *
 * From packed words to units: masks and shifts on four elements at a time.
 */
#ifndef ATSI_CUDA_UNPACK_CUH
#define ATSI_CUDA_UNPACK_CUH

#include "unit.cuh"

/* The values of IQ4_NL and MXFP4 (quant.h), four to a word. */
struct value_table {
    uint32_t w[4];
};

static __device__ __forceinline__ value_table iq4_table()
{
    return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
}

static __device__ __forceinline__ value_table mxfp4_table()
{
    return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
}

/* Four nibbles (bits 0..15 of x) to bytes of the table.  A byte_perm looks up eight bytes by three
 * bits; the fourth chooses between the results of two. */
static __device__ __forceinline__ uint32_t look_up_4(const value_table &t, uint32_t x)
{
    uint32_t low = x & 0x7777u, choose = (x >> 1 & 0x4444u) | 0x3210u;
    return __byte_perm(__byte_perm(t.w[0], t.w[1], low), __byte_perm(t.w[2], t.w[3], low), choose);
}

/* The low nibbles of four bytes, and the high ones. */
static __device__ __forceinline__ void look_up(const value_table &t, uint32_t x, int32_t &low,
                                               int32_t &high)
{
    uint32_t a = look_up_4(t, x), b = look_up_4(t, x >> 16);
    low = (int32_t)__byte_perm(a, b, 0x6420);
    high = (int32_t)__byte_perm(a, b, 0x7531);
}

static __device__ __forceinline__ int32_t bytes_of(uint32_t x, uint32_t mask)
{
    return (int32_t)(x & mask);
}

static __device__ __forceinline__ float float_of_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* 2^(e - 128) (atsi_e8m0_half) */
static __device__ __forceinline__ float float_of_e8m0(uint32_t e)
{
    return __uint_as_float(e >= 2 ? (e - 1) << 23 : 0x00200000u << e);
}

/* Bits 0..3 of x, one to a byte. */
static __device__ __forceinline__ uint32_t spread_4(uint32_t x)
{
    return (x & 15u) * 0x00204081u & 0x01010101u;
}

/* What follows unpacks C words of each run, from word t on: 4 from 0 on, or 1.  They go to q[c] and
 * q[4 + c], c < C. */

/* Low nibbles to the first run, high ones to the second. */
template <int C>
static __device__ __forceinline__ void split_nibbles(unit &o, const packed &w)
{
#pragma unroll
    for (int c = 0; c < C; c++) {
        o.q[c] = bytes_of(w.q[c], 0x0f0f0f0fu);
        o.q[4 + c] = bytes_of(w.q[c] >> 4, 0x0f0f0f0fu);
    }
}

template <int C>
static __device__ __forceinline__ void split_values(unit &o, const packed &w, const value_table &t)
{
#pragma unroll
    for (int c = 0; c < C; c++)
        look_up(t, w.q[c], o.q[c], o.q[4 + c]);
}

/* A word of fifth bits as panels hold it: bits c and 4 + c of every byte belong to codes c. */
template <int C>
static __device__ __forceinline__ void add_fifth_bits(unit &o, uint32_t h, uint32_t t)
{
#pragma unroll
    for (int c = 0; c < C; c++) {
        o.q[c] |= bytes_of(h >> (t + c), 0x01010101u) << 4;
        o.q[4 + c] |= bytes_of(h >> (4 + t + c), 0x01010101u) << 4;
    }
}

template <int LAYOUT, int C>
static __device__ __forceinline__ void unpack_q5(unit &o, const packed &w, uint32_t t)
{
    split_nibbles<C>(o, w);
    if constexpr (LAYOUT != CUDA_ROWS) {
        add_fifth_bits<C>(o, w.h[0], t);
    } else {
#pragma unroll
        for (int c = 0; c < 8; c++)
            o.q[c] |= (int32_t)(spread_4(w.h[0] >> (4 * c)) << 4);
    }
}

/* Two six-bit scales and mins of Q4_K and Q5_K: sub-blocks 2 g and 2 g + 1, g = 0..3. */
static __device__ __forceinline__ void unpack_scales_k4(unit &o, const packed &w, uint32_t g)
{
    uint32_t shift = 16 * (g & 1), a = w.s[0] >> shift, b = w.s[1] >> shift, c = w.s[2] >> shift;
    uint32_t sc = a & 0x3f3fu, mn = b & 0x3f3fu;
    if (g >= 2) {
        sc = (c & 0x0f0fu) | (a >> 2 & 0x3030u);
        mn = (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u);
    }
    o.sc[0] = (int32_t)(sc & 0xffu);
    o.sc[1] = (int32_t)(sc >> 8);
    o.mn[0] = (int32_t)(mn & 0xffu);
    o.mn[1] = (int32_t)(mn >> 8);
}

template <int LAYOUT, int C>
static __device__ __forceinline__ void unpack_q5_k(unit &o, const packed &w, uint32_t u, uint32_t t)
{
    split_nibbles<C>(o, w);
    if constexpr (LAYOUT != CUDA_ROWS) {
        add_fifth_bits<C>(o, w.h[0], t);
    } else {
        uint32_t low = 2 * (u >> 1);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            o.q[c] |= bytes_of(w.h[c] >> low, 0x01010101u) << 4;
            o.q[4 + c] |= bytes_of(w.h[c] >> (low + 1), 0x01010101u) << 4;
        }
    }
}

template <int C>
static __device__ __forceinline__ void unpack_q2_k(unit &o, const packed &w, uint32_t u)
{
    uint32_t shift = 4 * (u >> 1 & 1);
#pragma unroll
    for (int c = 0; c < C; c++) {
        o.q[c] = bytes_of(w.q[c] >> shift, 0x03030303u);
        o.q[4 + c] = bytes_of(w.q[c] >> (shift + 2), 0x03030303u);
    }
}

static __device__ __forceinline__ void unpack_scales_q2_k(unit &o, const packed &w, uint32_t u)
{
    uint32_t s = w.s[0] >> (8 * (u & 1));
    o.sc[0] = (int32_t)(s & 15u);
    o.sc[1] = (int32_t)(s >> 16 & 15u);
    o.mn[0] = (int32_t)(s >> 4 & 15u);
    o.mn[1] = (int32_t)(s >> 20 & 15u);
}

/* Six-bit scale of sub-block g, offset 32: low nibbles in bytes 0..7, g < 8 low and g >= 8 high;
 * top bits in bytes 8..11. */
static __device__ __forceinline__ int32_t scale_q3_k(const packed &w, uint32_t g)
{
    uint32_t byte = 8 * (g & 3);
    uint32_t low = ((g & 4) != 0 ? w.s[1] : w.s[0]) >> (byte + 4 * (g >> 3)) & 15u;
    return (int32_t)(low | (w.s[2] >> (byte + 2 * (g >> 2)) & 3u) << 4) - 32;
}

template <int LAYOUT, int C>
static __device__ __forceinline__ void unpack_q3_k(unit &o, const packed &w, uint32_t u)
{
    if constexpr (LAYOUT != CUDA_ROWS) {
        uint32_t pair = u & 3;
#pragma unroll
        for (int t = 0; t < C; t++) {
            uint32_t z0 = w.q[3 * t], z1 = w.q[3 * t + 1], z2 = w.q[3 * t + 2];
            uint32_t own = pair == 0 ? z0 : pair == 1 ? z1 : z2;
            uint32_t v6 = (z0 >> 5 & 0x06060606u) | (z1 >> 6 & 0x01010101u);
            uint32_t v7 = (z2 >> 5 & 0x06060606u) | (z1 >> 7 & 0x01010101u);
            o.q[t] = (int32_t)(pair == 3 ? v6 : own & 0x07070707u);
            o.q[4 + t] = (int32_t)(pair == 3 ? v7 : own >> 3 & 0x07070707u);
        }
    } else {
        uint32_t low = 4 * (u >> 1 & 1), bit = 2 * (u >> 1);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            o.q[c] = bytes_of(w.q[c] >> low, 0x03030303u) | bytes_of(w.h[c] >> bit, 0x01010101u)
                                                                << 2;
            o.q[4 + c] = bytes_of(w.q[c] >> (low + 2), 0x03030303u) |
                         bytes_of(w.h[c] >> (bit + 1), 0x01010101u) << 2;
        }
    }
}

template <int LAYOUT>
static __device__ __forceinline__ void unpack_scales_q3_k(unit &o, const packed &w, uint32_t u)
{
    o.sc[0] = scale_q3_k(w, unit_run<ATSI_TYPE_Q3_K, LAYOUT>(u, 0) / 16);
    o.sc[1] = scale_q3_k(w, unit_run<ATSI_TYPE_Q3_K, LAYOUT>(u, 1) / 16);
}

static __device__ __forceinline__ int32_t signed_byte(uint32_t x)
{
    return (int32_t)(int8_t)(x & 0xffu);
}

template <int LAYOUT, int C>
static __device__ __forceinline__ void unpack_q6_k(unit &o, const packed &w, uint32_t u)
{
    if constexpr (LAYOUT != CUDA_ROWS) {
        bool second = (u & 1) != 0;
#pragma unroll
        for (int t = 0; t < C; t++) {
            uint32_t z0 = w.q[3 * t], z1 = w.q[3 * t + 1], z2 = w.q[3 * t + 2];
            uint32_t v3 =
                (z0 >> 2 & 0x30303030u) | (z1 >> 4 & 0x0c0c0c0cu) | (z2 >> 6 & 0x03030303u);
            o.q[t] = bytes_of(second ? z2 : z0, 0x3f3f3f3fu);
            o.q[4 + t] = (int32_t)(second ? v3 : z1 & 0x3f3f3f3fu);
        }
    } else {
        uint32_t shift = 2 * (u >> 1 & 1);
        split_nibbles<C>(o, w);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            o.q[c] |= bytes_of(w.h[c] >> shift, 0x03030303u) << 4;
            o.q[4 + c] |= bytes_of(w.h[c] >> (shift + 4), 0x03030303u) << 4;
        }
    }
}

template <int LAYOUT>
static __device__ __forceinline__ void unpack_scales_q6_k(unit &o, const packed &w, uint32_t u)
{
    uint32_t s = LAYOUT != CUDA_ROWS ? w.s[0] >> (16 * (u & 1)) : w.s[0] | w.s[1] << 8;
    o.sc[0] = signed_byte(s);
    o.sc[1] = signed_byte(s >> 8);
}

/* Words t .. t + C - 1 of the runs of unit u < UNITS of its block. */
template <uint32_t TYPE, int LAYOUT, int C>
static __device__ __forceinline__ void unpack_codes(unit &o, const packed &w, uint32_t u,
                                                    uint32_t t)
{
    static_assert(LAYOUT != CUDA_ROWS || C == 4, "rows are unpacked whole");
    if constexpr (TYPE == ATSI_TYPE_Q4_0 || TYPE == ATSI_TYPE_Q4_1 || TYPE == ATSI_TYPE_Q4_K) {
        split_nibbles<C>(o, w);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_0 || TYPE == ATSI_TYPE_Q5_1) {
        unpack_q5<LAYOUT, C>(o, w, t);
    } else if constexpr (TYPE == ATSI_TYPE_Q8_0) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            o.q[c] = (int32_t)(LAYOUT != CUDA_ROWS ? w.q[c] ^ 0x80808080u : w.q[c]);
            o.q[4 + c] = (int32_t)(LAYOUT != CUDA_ROWS ? w.q[C + c] ^ 0x80808080u : w.q[C + c]);
        }
    } else if constexpr (TYPE == ATSI_TYPE_IQ4_NL || TYPE == ATSI_TYPE_IQ4_XS) {
        split_values<C>(o, w, iq4_table());
    } else if constexpr (TYPE == ATSI_TYPE_MXFP4) {
        split_values<C>(o, w, mxfp4_table());
    } else if constexpr (TYPE == ATSI_TYPE_Q2_K) {
        unpack_q2_k<C>(o, w, u);
    } else if constexpr (TYPE == ATSI_TYPE_Q3_K) {
        unpack_q3_k<LAYOUT, C>(o, w, u);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_K) {
        unpack_q5_k<LAYOUT, C>(o, w, u, t);
    } else {
        static_assert(TYPE == ATSI_TYPE_Q6_K, "a type with blocks");
        unpack_q6_k<LAYOUT, C>(o, w, u);
    }
}

/* Its scales and mins. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void unpack_scales(unit &o, const packed &w, uint32_t u)
{
    if constexpr (TYPE == ATSI_TYPE_Q2_K)
        unpack_scales_q2_k(o, w, u);
    else if constexpr (TYPE == ATSI_TYPE_Q3_K)
        unpack_scales_q3_k<LAYOUT>(o, w, u);
    else if constexpr (TYPE == ATSI_TYPE_Q4_K || TYPE == ATSI_TYPE_Q5_K)
        unpack_scales_k4(o, w, u >> 1);
    else if constexpr (TYPE == ATSI_TYPE_Q6_K)
        unpack_scales_q6_k<LAYOUT>(o, w, u);
    else if constexpr (TYPE == ATSI_TYPE_IQ4_XS)
        o.sc[0] = o.sc[1] = (int32_t)((w.s[0] >> (4 * u) & 15u) | (w.m >> (2 * u) & 3u) << 4) - 32;
    o.d = TYPE == ATSI_TYPE_MXFP4 ? float_of_e8m0(w.d) : float_of_half(w.d);
    if constexpr (unit_shape<TYPE>::MINS || unit_shape<TYPE>::OFFSET)
        o.m = float_of_half(w.m);
}

/* Unit u < UNITS of its block. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void unpack(unit &o, const packed &w, uint32_t u)
{
    unpack_codes<TYPE, LAYOUT, 4>(o, w, u, 0);
    unpack_scales<TYPE, LAYOUT>(o, w, u);
}

/* q - ZERO of four elements, from codes below 128: no borrow passes from byte to byte when the top
 * bits are set. */
template <int ZERO>
static __device__ __forceinline__ uint32_t centred(int32_t q)
{
    if constexpr (ZERO == 0)
        return (uint32_t)q;
    else
        return (((uint32_t)q | 0x80808080u) - ZERO * 0x01010101u) ^ 0x80808080u;
}

/* What the elements of a run are made of: (q - ZERO) * scale - less. */
struct run_scale {
    float scale, less;
};

template <uint32_t TYPE>
static __device__ __forceinline__ run_scale run_scale_of(const unit &w, int run)
{
    typedef unit_shape<TYPE> S;
    run_scale o = {w.d, 0};
    if constexpr (S::SCALED)
        o.scale = __fmul_rn(w.d, (float)w.sc[run]);
    if constexpr (S::MINS)
        o.less = __fmul_rn(w.m, (float)w.mn[run]);
    if constexpr (S::OFFSET)
        o.less = -w.m;
    return o;
}

/* Element i of a run, rounded as dequantization on the CPU rounds it: no fused multiply-add. */
template <uint32_t TYPE>
static __device__ __forceinline__ float run_value(const unit &w, const run_scale &s, int run, int i)
{
    int32_t q = (int8_t)((uint32_t)w.q[4 * run + i / 4] >> (8 * (i % 4)));
    return __fsub_rn(__fmul_rn(s.scale, (float)(q - unit_shape<TYPE>::ZERO)), s.less);
}

#endif
