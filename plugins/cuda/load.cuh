/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading packed units from either layout.
 *
 * ATSI_LAYOUT_ROWS: blocks as in the file, 2-aligned at least (MXFP4: 1).  Types whose blocks are
 * multiples of 4, 8 or 16 bytes are read in words that wide when their address allows it, which is
 * the same for all blocks of a matrix.
 *
 * ATSI_LAYOUT_PANELS: N = 4 neighbouring rows at a time, 16 bytes per load, so that four lanes read
 * a whole chunk of 64 bytes; or N = 1.  Panels start at multiples of 16 bytes, unless LOOSE: then
 * they are read byte by byte.
 */
#ifndef ATSI_CUDA_LOAD_CUH
#define ATSI_CUDA_LOAD_CUH

#include "async.cuh"
#include "unit.cuh"

/* ---------------------------------------------------------------- rows */

static __device__ __forceinline__ uint32_t load_half(const uint8_t *p)
{
    return *(const uint16_t *)(const void *)p;
}

/* N words of any address, and of even ones. */
template <int N>
static __device__ __forceinline__ void load_by_bytes(uint32_t *w, const uint8_t *p)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        w[i] = p[4 * i] | p[4 * i + 1] << 8 | p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24;
}

template <int N>
static __device__ __forceinline__ void load_by_halves(uint32_t *w, const uint8_t *p)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        w[i] = load_half(p + 4 * i) | load_half(p + 4 * i + 2) << 16;
}

/* N words in vectors V of COUNT words. */
template <int N, int COUNT, class V>
static __device__ __forceinline__ void load_by_vectors(uint32_t *w, const uint8_t *p)
{
    static_assert(N % COUNT == 0 && sizeof(V) == 4 * COUNT, "whole vectors");
#pragma unroll
    for (int i = 0; i < N / COUNT; i++) {
        V v = ((const V *)(const void *)p)[i];
        memcpy(w + COUNT * i, &v, sizeof v);
    }
}

/* N little-endian words at p, which in a well aligned matrix is a multiple of ALIGN. */
template <int N, int ALIGN>
static __device__ __forceinline__ void load_words(uint32_t *w, const uint8_t *p)
{
    if constexpr (ALIGN == 1)
        load_by_bytes<N>(w, p);
    else if (ALIGN == 2 || ((uintptr_t)p & (ALIGN - 1)) != 0)
        load_by_halves<N>(w, p);
    else if constexpr (ALIGN == 4)
        load_by_vectors<N, 1, uint32_t>(w, p);
    else if constexpr (ALIGN == 8)
        load_by_vectors<N, 2, uint2>(w, p);
    else if constexpr (ALIGN == 16)
        load_by_vectors<N, 4, uint4>(w, p);
}

/* Unit u of the block at b. */
template <uint32_t TYPE>
static __device__ __forceinline__ void load_row(packed &w, const uint8_t *b, uint32_t u)
{
    if constexpr (TYPE == ATSI_TYPE_Q4_0 || TYPE == ATSI_TYPE_IQ4_NL) {
        w.d = load_half(b);
        load_words<4, 2>(w.q, b + 2);
    } else if constexpr (TYPE == ATSI_TYPE_Q4_1) {
        w.d = load_half(b);
        w.m = load_half(b + 2);
        load_words<4, 4>(w.q, b + 4);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_0) {
        w.d = load_half(b);
        load_words<1, 2>(w.h, b + 2);
        load_words<4, 2>(w.q, b + 6);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_1) {
        w.d = load_half(b);
        w.m = load_half(b + 2);
        load_words<1, 4>(w.h, b + 4);
        load_words<4, 8>(w.q, b + 8);
    } else if constexpr (TYPE == ATSI_TYPE_Q8_0) {
        w.d = load_half(b);
        load_words<8, 2>(w.q, b + 2);
    } else if constexpr (TYPE == ATSI_TYPE_MXFP4) {
        w.d = b[0];
        load_words<4, 1>(w.q, b + 1);
    } else if constexpr (TYPE == ATSI_TYPE_Q2_K) {
        load_words<1, 4>(w.s, b + 4 * (u >> 1));
        load_words<4, 4>(w.q, b + 16 + 32 * (u >> 2) + 16 * (u & 1));
        w.d = load_half(b + 80);
        w.m = load_half(b + 82);
    } else if constexpr (TYPE == ATSI_TYPE_Q3_K) {
        load_words<4, 2>(w.h, b + 16 * (u & 1));
        load_words<4, 2>(w.q, b + 32 + 32 * (u >> 2) + 16 * (u & 1));
        load_words<3, 2>(w.s, b + 96);
        w.d = load_half(b + 108);
    } else if constexpr (TYPE == ATSI_TYPE_Q4_K) {
        w.d = load_half(b);
        w.m = load_half(b + 2);
        load_words<3, 4>(w.s, b + 4);
        load_words<4, 16>(w.q, b + 16 + 16 * u);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_K) {
        w.d = load_half(b);
        w.m = load_half(b + 2);
        load_words<3, 4>(w.s, b + 4);
        load_words<4, 16>(w.h, b + 16 + 16 * (u & 1));
        load_words<4, 16>(w.q, b + 48 + 16 * u);
    } else if constexpr (TYPE == ATSI_TYPE_Q6_K) {
        load_words<4, 2>(w.q, b + 64 * (u >> 2) + 16 * (u & 3));
        load_words<4, 2>(w.h, b + 128 + 32 * (u >> 2) + 16 * (u & 1));
        w.s[0] = b[192 + 8 * (u >> 2) + (u & 3)];
        w.s[1] = b[196 + 8 * (u >> 2) + (u & 3)];
        w.d = load_half(b + 208);
    } else {
        static_assert(TYPE == ATSI_TYPE_IQ4_XS, "a type with blocks");
        w.d = load_half(b);
        w.m = load_half(b + 2);
        load_words<1, 4>(w.s, b + 4);
        load_words<4, 8>(w.q, b + 8 + 16 * u);
    }
}

/* ---------------------------------------------------------------- panels */

/* The chunk at p, from the first of N rows on: word i goes to put(i, word). */
template <int N, bool LOOSE, class PUT>
static __device__ __forceinline__ void load_chunk(const uint8_t *p, PUT put)
{
    uint32_t w[N];
    if constexpr (LOOSE)
        load_by_bytes<N>(w, p);
    else if constexpr (N == 4)
        load_by_vectors<4, 4, uint4>(w, p);
    else
        load_by_vectors<N, 1, uint32_t>(w, p);
#pragma unroll
    for (int i = 0; i < N; i++)
        put(i, w[i]);
}

/* Likewise 16-bit fields of a record's head. */
template <int N, bool LOOSE, class PUT>
static __device__ __forceinline__ void load_heads(const uint8_t *p, PUT put)
{
    uint32_t w[2];
    if constexpr (LOOSE || N != 4) {
#pragma unroll
        for (int i = 0; i < N; i++)
            put(i, (uint32_t)(p[2 * i] | p[2 * i + 1] << 8));
    } else {
        load_by_vectors<2, 2, uint2>(w, p);
#pragma unroll
        for (int i = 0; i < 4; i++)
            put(i, w[i / 2] >> (16 * (i % 2)) & 0xffffu);
    }
}

/* And e8m0 bytes. */
template <int N, bool LOOSE, class PUT>
static __device__ __forceinline__ void load_bytes(const uint8_t *p, PUT put)
{
    uint32_t w = LOOSE || N != 4 ? 0 : *(const uint32_t *)(const void *)p;
#pragma unroll
    for (int i = 0; i < N; i++)
        put(i, LOOSE || N != 4 ? p[i] : w >> (8 * i) & 0xffu);
}

struct panel_place {
    const uint8_t *head, *body; /* row 0 of the first field, of the first chunk */
};

/* Where block `block` of n_blocks lies (panel.h). */
template <class SHAPE>
static __device__ __forceinline__ panel_place panel_at(const uint8_t *panel, uint32_t n_blocks,
                                                       uint32_t block)
{
    uint32_t i = block % SHAPE::GROUP, first = block - i;
    uint32_t left = n_blocks - first, n = left < SHAPE::GROUP ? left : SHAPE::GROUP;
    const uint8_t *record = panel + (uint64_t)first * (SHAPE::BYTES * ATSI_PANEL_ROWS);
    return {record + i * (SHAPE::HEAD * ATSI_PANEL_ROWS),
            record + n * (SHAPE::HEAD * ATSI_PANEL_ROWS) + i * (SHAPE::CHUNKS * ATSI_PANEL_CHUNK)};
}

/* Chunks and heads of N rows from r on, of one block. */
template <int N, bool LOOSE>
struct panel_rows {
    panel_place at;
    uint32_t r;

    template <class PUT>
    __device__ __forceinline__ void chunk(uint32_t c, PUT put) const
    {
        const uint8_t *p = at.body + ATSI_PANEL_CHUNK * c + 4 * r;
        if constexpr (N == 4 && !LOOSE) {
            uint4 v = stream_load_16(p);
            put(0, v.x);
            put(1, v.y);
            put(2, v.z);
            put(3, v.w);
        } else {
            load_chunk<N, LOOSE>(p, put);
        }
    }
    /* 16-bit field i of the head. */
    template <class PUT>
    __device__ __forceinline__ void heads(uint32_t i, PUT put) const
    {
        load_heads<N, LOOSE>(at.head + 2 * ATSI_PANEL_ROWS * i + 2 * r, put);
    }
    template <class PUT>
    __device__ __forceinline__ void bytes(PUT put) const
    {
        load_bytes<N, LOOSE>(at.head + r, put);
    }
};

template <int COUNT, int N, class FROM>
static __device__ __forceinline__ void load_codes(packed (&w)[N], const FROM &from, uint32_t chunk)
{
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        from.chunk(chunk + c, [&](int i, uint32_t x) { w[i].q[c] = x; });
}

template <int COUNT, int N, class FROM>
static __device__ __forceinline__ void load_sub_scales(packed (&w)[N], const FROM &from,
                                                       uint32_t chunk)
{
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        from.chunk(chunk + c, [&](int i, uint32_t x) { w[i].s[c] = x; });
}

/* Scales of unit u of a block, of N rows. */
template <uint32_t TYPE, int N, class FROM>
static __device__ __forceinline__ void load_panel_scales(packed (&w)[N], const FROM &from,
                                                         uint32_t u)
{
    if constexpr (TYPE == ATSI_TYPE_MXFP4)
        from.bytes([&](int i, uint32_t x) { w[i].d = x; });
    else
        from.heads(0, [&](int i, uint32_t x) { w[i].d = x; });
    if constexpr (unit_shape<TYPE>::HEAD == 4)
        from.heads(1, [&](int i, uint32_t x) { w[i].m = x; });
    if constexpr (TYPE == ATSI_TYPE_Q3_K || TYPE == ATSI_TYPE_Q4_K || TYPE == ATSI_TYPE_Q5_K)
        load_sub_scales<3>(w, from, 0);
    else if constexpr (TYPE == ATSI_TYPE_Q2_K || TYPE == ATSI_TYPE_Q6_K)
        load_sub_scales<1>(w, from, u >> 1);
    else if constexpr (TYPE == ATSI_TYPE_IQ4_XS)
        load_sub_scales<1>(w, from, 0);
}

/* Codes of unit u: words t .. t + C - 1 of the four of each run, C = 4 or 1. */
template <uint32_t TYPE, int C, int N, class FROM>
static __device__ __forceinline__ void load_panel_codes(packed (&w)[N], const FROM &from,
                                                        uint32_t u, uint32_t t)
{
    if constexpr (TYPE == ATSI_TYPE_Q5_0 || TYPE == ATSI_TYPE_Q5_1) {
        from.chunk(0, [&](int i, uint32_t x) { w[i].h[0] = x; });
        load_codes<C>(w, from, 1 + t);
    } else if constexpr (TYPE == ATSI_TYPE_Q8_0) {
        load_codes<C>(w, from, t);
#pragma unroll
        for (int c = 0; c < C; c++)
            from.chunk(4 + t + c, [&](int i, uint32_t x) { w[i].q[C + c] = x; });
    } else if constexpr (unit_shape<TYPE>::ELEMS == 32) {
        load_codes<C>(w, from, t);
    } else if constexpr (TYPE == ATSI_TYPE_Q2_K) {
        load_codes<C>(w, from, 4 + 8 * (u >> 2) + 4 * (u & 1) + t);
    } else if constexpr (TYPE == ATSI_TYPE_Q3_K) {
        load_codes<3 * C>(w, from, 3 + 12 * (u >> 2) + 3 * t);
    } else if constexpr (TYPE == ATSI_TYPE_Q4_K) {
        load_codes<C>(w, from, 3 + 4 * u + t);
    } else if constexpr (TYPE == ATSI_TYPE_Q5_K) {
        uint32_t group = 3 + 10 * (u >> 1);
        from.chunk(group + (u & 1), [&](int i, uint32_t x) { w[i].h[0] = x; });
        load_codes<C>(w, from, group + 2 + 4 * (u & 1) + t);
    } else if constexpr (TYPE == ATSI_TYPE_Q6_K) {
        load_codes<3 * C>(w, from, 4 + 12 * (u >> 1) + 3 * t);
    } else {
        static_assert(TYPE == ATSI_TYPE_IQ4_XS, "a type with blocks");
        load_codes<C>(w, from, 1 + 4 * u + t);
    }
}

/* Unit u of a block, rows r .. r + N - 1 of the panel.  head, body: of row 0. */
template <uint32_t TYPE, int N, bool LOOSE>
static __device__ __forceinline__ void load_panel(packed (&w)[N], panel_place at, uint32_t r,
                                                  uint32_t u)
{
    const panel_rows<N, LOOSE> from = {at, r};
    load_panel_scales<TYPE>(w, from, u);
    load_panel_codes<TYPE, 4>(w, from, u, 0);
}

#endif
