/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many tokens with weights in blocks: what shared memory holds, and how it is filled.
 *
 * A stage is 128 columns of blocks of 32, or one super-block.  Panels come as they are, by
 * asynchronous copies, several stages ahead; their codes become signed bytes only in the registers
 * of the warps that multiply.  Rows of blocks are unpacked on the way into the stage.  Scales of
 * either are floats in tables that serve one stage.
 */
#ifndef ATSI_CUDA_GEMM_STAGE_CUH
#define ATSI_CUDA_GEMM_STAGE_CUH

#include "gemm.cuh"

/* Sizes of everything, in bytes and elements, and what lies where. */
template <uint32_t TYPE, int LAYOUT>
struct block_stage {
    typedef unit_shape<TYPE> S;
    static constexpr bool PANELS = LAYOUT == CUDA_PANELS, LARGE = S::ELEMS == 256;
    static constexpr uint32_t ELEMS = LARGE ? 256 : 128, UNITS = ELEMS / UNIT_ELEMS,
                              BLOCKS = ELEMS / S::ELEMS, SUBS = ELEMS / S::SUB;
    /* Rows of bytes start in different banks. */
    static constexpr uint32_t STRIDE = ELEMS + 16;
    static constexpr uint32_t BLOCK = S::BYTES * ATSI_PANEL_ROWS, PANEL = BLOCKS * BLOCK;
    static constexpr uint32_t W =
        PANELS ? GEMM_WIDE_ROWS / ATSI_PANEL_ROWS * PANEL : GEMM_WIDE_ROWS * STRIDE;
    /* Tables of one value per token are kept as gemm_token_slot() says. */
    static constexpr uint32_t PER_64 = 80 * sizeof(float);
    static constexpr uint32_t SUMS_PER_64 = S::OFFSET ? UNITS * PER_64 : S::MINS ? 64 * 32 : 0;
    static constexpr uint32_t STAGE_PER_64 = 64 * STRIDE + BLOCKS * PER_64 + SUMS_PER_64;
    static constexpr uint32_t SCALES = SUBS * GEMM_WIDE_ROWS * sizeof(float);
    static constexpr uint32_t OFFSETS = S::OFFSET ? SCALES : S::MINS ? GEMM_WIDE_ROWS * 4 : 0;
    static constexpr uint32_t MINS = S::MINS ? GEMM_WIDE_ROWS * 16 : 0;
    static constexpr uint32_t FIXED_PER_64 = 64 * (2 * 4 + (S::MINS ? 2 * 16 : 0));
    static constexpr uint32_t FIXED = SCALES + OFFSETS + MINS;
};

static __device__ __forceinline__ uint32_t gemm_token_slot(uint32_t j)
{
    return j / 64 * 80 + j % 8 / 2 * 20 + j % 64 / 8 * 2 + j % 2;
}

template <uint32_t TYPE, int LAYOUT>
struct block_memory {
    typedef block_stage<TYPE, LAYOUT> B;
    uint8_t *base;
    uint32_t tokens;

    __device__ __forceinline__ uint32_t groups() const
    {
        return tokens / 64;
    }
    /* One stage's. */
    __device__ __forceinline__ uint8_t *w(uint32_t slot) const
    {
        return base + B::FIXED + groups() * B::FIXED_PER_64 +
               slot * (B::W + groups() * B::STAGE_PER_64);
    }
    __device__ __forceinline__ uint8_t *x(uint32_t slot) const
    {
        return w(slot) + B::W;
    }
    /* [BLOCKS][80 to 64 tokens] */
    __device__ __forceinline__ float *dx(uint32_t slot) const
    {
        return (float *)(void *)(x(slot) + tokens * B::STRIDE);
    }
    /* OFFSET: pairs of 16-bit sums, as dx.  MINS: 16 of them for each token. */
    __device__ __forceinline__ uint8_t *sums(uint32_t slot) const
    {
        return x(slot) + tokens * B::STRIDE + groups() * B::BLOCKS * B::PER_64;
    }
    /* For the stage at work. */
    __device__ __forceinline__ float *scales() const /* [SUBS][rows] */
    {
        return (float *)(void *)base;
    }
    __device__ __forceinline__ float *offsets() const /* [UNITS][rows], or [rows] */
    {
        return (float *)(void *)(base + B::SCALES);
    }
    __device__ __forceinline__ int8_t *mins() const /* [rows][16] */
    {
        return (int8_t *)(base + B::SCALES + B::OFFSETS);
    }
    /* Sums of 16 quants are 128 * high + low, both signed bytes: [tokens][16] each. */
    __device__ __forceinline__ int8_t *low() const
    {
        return (int8_t *)(base + B::FIXED);
    }
    __device__ __forceinline__ int8_t *high() const
    {
        return low() + tokens * 16;
    }
    /* Rows of y, and of x. */
    __device__ __forceinline__ uint32_t *token() const
    {
        return (uint32_t *)(void *)(base + B::FIXED + (B::S::MINS ? tokens * 32 : 0));
    }
    __device__ __forceinline__ uint32_t *x_row() const
    {
        return token() + tokens;
    }
};

/* A block of a panel in a stage, as load.cuh reads it. */
template <int N>
struct staged_rows {
    panel_place at;
    uint32_t r;

    template <class PUT>
    __device__ __forceinline__ void chunk(uint32_t c, PUT put) const
    {
        load_chunk<N, false>(at.body + gemm_chunk_at(c, r / 4) + r % 4 * 4, put);
    }
    template <class PUT>
    __device__ __forceinline__ void heads(uint32_t i, PUT put) const
    {
        load_heads<N, false>(at.head + 2 * ATSI_PANEL_ROWS * i + 2 * r, put);
    }
    template <class PUT>
    __device__ __forceinline__ void bytes(PUT put) const
    {
        load_bytes<N, false>(at.head + r, put);
    }
};

/* Row r of the tile, block `block` of the stage. */
template <int N, uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ staged_rows<N>
staged_at(const block_memory<TYPE, LAYOUT> &m, uint32_t slot, uint32_t r, uint32_t block)
{
    typedef block_stage<TYPE, LAYOUT> B;
    const uint8_t *at = m.w(slot) + r / ATSI_PANEL_ROWS * B::PANEL + block * B::BLOCK;
    return {{at, at + B::S::HEAD * ATSI_PANEL_ROWS}, r % ATSI_PANEL_ROWS};
}

/* Where in the whole row a stage begins, and how much of it is there. */
struct stage_span {
    uint32_t unit0, n_units;
};

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ stage_span span_of(const cuda_product &p, uint32_t stage)
{
    constexpr uint32_t units = block_stage<TYPE, LAYOUT>::UNITS;
    uint32_t unit0 = stage * units, left = p.k / UNIT_ELEMS - unit0;
    return {unit0, left < units ? left : units};
}

/* ---------------------------------------------------------------- copies under way */

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void copy_panels(const block_memory<TYPE, LAYOUT> &m,
                                                   const cuda_product &p, const gemm_tile &tile,
                                                   uint32_t slot, stage_span at)
{
    typedef block_stage<TYPE, LAYOUT> B;
    typedef typename B::S S;
    constexpr uint32_t pieces = B::BLOCK / 16, all = GEMM_WIDE_ROWS / 16 * B::BLOCKS * pieces;
    uint8_t *to = m.w(slot);
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        uint32_t panel = i / (B::BLOCKS * pieces), block = i / pieces % B::BLOCKS;
        uint32_t piece = i % pieces, c = (piece - S::HEAD) / 4, quad = (piece - S::HEAD) % 4;
        if (block * S::UNITS >= at.n_units)
            continue;
        panel_place from =
            panel_at<S>(gemm_panel(p, tile, panel), p.k / S::ELEMS, at.unit0 / S::UNITS + block);
        uint8_t *block_to = to + panel * B::PANEL + block * B::BLOCK;
        if (piece < S::HEAD)
            async_copy_16(block_to + 16 * piece, from.head + 16 * piece, true);
        else
            async_copy_16(block_to + 16 * S::HEAD + gemm_chunk_at(c, quad),
                          from.body + 16 * (piece - S::HEAD), true);
    }
}

/* Quants of the tokens with their scales and sums. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void copy_tokens(const block_memory<TYPE, LAYOUT> &m,
                                                   const cuda_product &p, uint32_t slot,
                                                   stage_span at)
{
    typedef block_stage<TYPE, LAYOUT> B;
    typedef typename B::S S;
    const struct cuda_act &a = p.act;
    const uint32_t *row = m.x_row();
    gemm_copy_rows(m.x(slot), B::STRIDE, (const uint8_t *)a.q, p.k, row, m.tokens,
                   (uint64_t)at.unit0 * UNIT_ELEMS, B::ELEMS, at.n_units * UNIT_ELEMS);
    for (uint32_t i = threadIdx.x; i < B::BLOCKS * m.tokens; i += blockDim.x) {
        uint32_t j = i / B::BLOCKS, b = i % B::BLOCKS;
        uint32_t to = b * m.groups() * 80 + gemm_token_slot(j);
        uint64_t from = row[j] * (uint64_t)(a.k / S::ELEMS) + at.unit0 / S::UNITS + b;
        if (b * S::UNITS >= at.n_units)
            continue;
        async_copy_4(m.dx(slot) + to, a.d + from);
        if constexpr (S::OFFSET)
            async_copy_4(m.sums(slot) + 4 * to, a.s + 2 * from);
    }
    if constexpr (S::MINS)
        gemm_copy_rows(m.sums(slot), 32, (const uint8_t *)a.s, p.k / 8, row, m.tokens,
                       (uint64_t)at.unit0 * 4, 32, 32);
}

/* ---------------------------------------------------------------- the tables of a stage */

/* Unit i of row r: what the type has of scales. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void put_scales(const block_memory<TYPE, LAYOUT> &m, uint32_t r,
                                                  uint32_t i, const unit &o)
{
    typedef unit_shape<TYPE> S;
    if constexpr (S::ELEMS == 32) {
        m.scales()[i * GEMM_WIDE_ROWS + r] = o.d;
        if constexpr (S::OFFSET)
            m.offsets()[i * GEMM_WIDE_ROWS + r] = o.m;
    } else {
#pragma unroll
        for (uint32_t run = 0; run < 2; run++) {
            uint32_t e = unit_run<TYPE, LAYOUT>(i, run);
            if (e % S::SUB == 0)
                m.scales()[e / S::SUB * GEMM_WIDE_ROWS + r] = o.d * (float)o.sc[run];
            if constexpr (S::MINS)
                m.mins()[r * 16 + e / 16] = (int8_t)o.mn[run];
        }
        if constexpr (S::MINS)
            if (i == 0)
                m.offsets()[r] = o.m;
    }
}

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void panel_scales(const block_memory<TYPE, LAYOUT> &m,
                                                    uint32_t slot, stage_span at)
{
    typedef unit_shape<TYPE> S;
    for (uint32_t e = threadIdx.x; e < GEMM_WIDE_ROWS * at.n_units; e += blockDim.x) {
        uint32_t r = e % GEMM_WIDE_ROWS, i = e / GEMM_WIDE_ROWS;
        packed w[1];
        unit o;
        load_panel_scales<TYPE>(w, staged_at<1>(m, slot, r, i / S::UNITS), i % S::UNITS);
        unpack_scales<TYPE, CUDA_PANELS>(o, w[0], i % S::UNITS);
        put_scales<TYPE, LAYOUT>(m, r, i, o);
    }
}

/* Rows of blocks to bytes and scales, a unit of four rows at a time. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void unpack_rows(const block_memory<TYPE, LAYOUT> &m,
                                                   const cuda_product &p, const gemm_tile &tile,
                                                   uint32_t slot, stage_span at)
{
    typedef block_stage<TYPE, LAYOUT> B;
    typedef typename B::S S;
    for (uint32_t e = threadIdx.x; e < GEMM_WIDE_ROWS / 4 * B::UNITS; e += blockDim.x) {
        uint32_t i = e % B::UNITS, quad = e / B::UNITS;
        uint32_t block = (at.unit0 + i) / S::UNITS, u = i % S::UNITS;
        if (i >= at.n_units)
            continue;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t r = 4 * quad + j,
                     row = tile.row0 + r < p.n_rows ? tile.row0 + r : p.n_rows - 1;
            uint8_t *to = m.w(slot) + gemm_row_slot(r) * B::STRIDE;
            packed w;
            unit o;
            load_row<TYPE>(w, tile.w + row * p.row_bytes + (uint64_t)block * S::BYTES, u);
            unpack<TYPE, CUDA_ROWS>(o, w, u);
#pragma unroll
            for (uint32_t run = 0; run < 2; run++) {
                uint32_t at_elem =
                    S::ELEMS == 32 ? UNIT_ELEMS * i + 16 * run : unit_run<TYPE, CUDA_ROWS>(u, run);
                *(uint4 *)(void *)(to + at_elem) = make_uint4(
                    centred<S::ZERO>(o.q[4 * run]), centred<S::ZERO>(o.q[4 * run + 1]),
                    centred<S::ZERO>(o.q[4 * run + 2]), centred<S::ZERO>(o.q[4 * run + 3]));
            }
            put_scales<TYPE, LAYOUT>(m, r, i, o);
        }
    }
}

/* Low and high part of eight sums of 16 quants. */
static __device__ __forceinline__ void split_sums(const int16_t *sums, int8_t *low, int8_t *high)
{
    uint32_t l[2] = {0, 0}, h[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int32_t v = sums[i];
        l[i / 4] |= ((uint32_t)v & 127u) << (8 * (i % 4));
        h[i / 4] |= ((uint32_t)(v >> 7) & 255u) << (8 * (i % 4));
    }
    *(uint2 *)(void *)low = make_uint2(l[0], l[1]);
    *(uint2 *)(void *)high = make_uint2(h[0], h[1]);
}

/* Tables of the stage in `slot`, which has come. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void make_tables(const block_memory<TYPE, LAYOUT> &m,
                                                   uint32_t slot, stage_span at)
{
    if constexpr (LAYOUT == CUDA_PANELS)
        panel_scales<TYPE, LAYOUT>(m, slot, at);
    if constexpr (unit_shape<TYPE>::MINS)
        for (uint32_t e = threadIdx.x; e < 2 * m.tokens; e += blockDim.x)
            split_sums((const int16_t *)(const void *)m.sums(slot) + 8 * e, m.low() + 8 * e,
                       m.high() + 8 * e);
}

#endif
