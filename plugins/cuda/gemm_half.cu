/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many tokens with F16 and BF16 weights, on tensor cores (gemm.cuh has the tiles): 64
 * columns to a stage, sums in f32.  Activations come as one or two terms of halves; every weight
 * read serves both.  A warp multiplies 64 rows x 64 tokens, since reading shared memory, not
 * multiplying, is what smaller ones wait for.
 */
#include "gemm.cuh"
#include "halves.h"
#include "mma.cuh"

#define HALF_WARP_ROWS 64u
#define HALF_ELEMS 64u
#define HALF_STRIDE (HALF_ELEMS * 2 + 16) /* rows start in different banks */
#define HALF_PANEL (HALF_ELEMS / 2 * ATSI_PANEL_CHUNK)

template <int LAYOUT>
struct half_memory {
    static constexpr uint32_t W = LAYOUT == CUDA_PANELS
                                      ? GEMM_WIDE_ROWS / ATSI_PANEL_ROWS * HALF_PANEL
                                      : GEMM_WIDE_ROWS * HALF_STRIDE;
    uint8_t *base;
    uint32_t tokens, terms;

    static __host__ __device__ constexpr uint32_t fixed(uint32_t n) /* for n tokens */
    {
        return n * 3 * sizeof(uint32_t);
    }
    static __host__ __device__ constexpr uint32_t stage(uint32_t n, uint32_t n_terms)
    {
        return W + n_terms * n * HALF_STRIDE;
    }
    __device__ __forceinline__ uint32_t *token() const
    {
        return (uint32_t *)(void *)base;
    }
    __device__ __forceinline__ uint32_t *x_row() const
    {
        return token() + tokens;
    }
    __device__ __forceinline__ float *factor() const
    {
        return (float *)(void *)(x_row() + tokens);
    }
    __device__ __forceinline__ uint8_t *w(uint32_t slot) const
    {
        return base + fixed(tokens) + slot * stage(tokens, terms);
    }
    __device__ __forceinline__ uint8_t *x(uint32_t slot, uint32_t term) const
    {
        return w(slot) + W + term * tokens * HALF_STRIDE;
    }
};

/* Columns c .. c + 63 of the tile's rows; what is past the end becomes 0. */
template <int LAYOUT>
static __device__ __forceinline__ void copy_weight(uint8_t *to, const cuda_product &p,
                                                   const gemm_tile &tile, uint32_t c)
{
    constexpr uint32_t pieces = GEMM_WIDE_ROWS * HALF_ELEMS * 2 / 16;
    for (uint32_t i = threadIdx.x; i < pieces; i += blockDim.x) {
        if constexpr (LAYOUT == CUDA_PANELS) {
            uint32_t panel = i / (HALF_PANEL / 16), piece = i % (HALF_PANEL / 16);
            const uint8_t *from = gemm_panel(p, tile, panel);
            bool there = c + piece / 4 * 2 < p.k;
            async_copy_16(to + panel * HALF_PANEL + gemm_chunk_at(piece / 4, piece % 4),
                          there ? from + (uint64_t)(c / 2) * ATSI_PANEL_CHUNK + 16 * piece : from,
                          there);
        } else {
            uint32_t r = i / (HALF_ELEMS / 8), e = i % (HALF_ELEMS / 8) * 8;
            uint32_t row = tile.row0 + r < p.n_rows ? tile.row0 + r : p.n_rows - 1;
            const uint8_t *from = tile.w + row * p.row_bytes;
            bool there = c + e < p.k;
            async_copy_16(to + gemm_row_slot(r) * HALF_STRIDE + 2 * e,
                          there ? from + 2 * (uint64_t)(c + e) : from, there);
        }
    }
}

template <int LAYOUT>
static __device__ __forceinline__ void
begin_stage(const half_memory<LAYOUT> &m, const cuda_product &p, const struct cuda_halves &x,
            const gemm_tile &tile, uint32_t slot, uint32_t stage)
{
    uint32_t c = stage * HALF_ELEMS;
    if (c < p.k) {
        uint32_t left = p.k - c;
        copy_weight<LAYOUT>(m.w(slot), p, tile, c);
        for (uint32_t term = 0; term < m.terms; term++)
            gemm_copy_rows(m.x(slot, term), HALF_STRIDE,
                           (const uint8_t *)(term == 0 ? x.term[0] : x.term[1]), 2 * (uint64_t)p.k,
                           m.x_row(), m.tokens, 2 * (uint64_t)c, 2 * HALF_ELEMS,
                           2 * (left < HALF_ELEMS ? left : HALF_ELEMS));
    }
    async_commit();
}

/* 16 columns of 32 rows: both fragments. */
template <int LAYOUT>
static __device__ __forceinline__ void load_weight(uint32_t (&a)[2][4], const uint8_t *w,
                                                   const gemm_lane &at, uint32_t row, uint32_t s)
{
    if constexpr (LAYOUT == CUDA_PANELS) {
        const uint8_t *panel = w + row / ATSI_PANEL_ROWS * HALF_PANEL;
        uint32_t quad = row % ATSI_PANEL_ROWS / 4, v[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            load_by_vectors<4, 4, uint4>(v[i], panel + gemm_chunk_at(8 * s + 4 * i + at.t, quad));
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            a[i / 4][i % 4] = v[i % 4 / 2][i / 4 * 2 + i % 2];
    } else {
        const int8_t *first = (const int8_t *)w + (row - 4 * at.g) * HALF_STRIDE + 32 * s;
        mma_load_a(a[0], first, HALF_STRIDE);
        mma_load_a(a[1], first + 16 * HALF_STRIDE, HALF_STRIDE);
    }
}

template <bool BF16>
static __device__ __forceinline__ void multiply_16(gemm_sums (&sums)[2], uint32_t n,
                                                   const uint32_t (&a)[2][2][4],
                                                   const uint32_t (&b)[2][2])
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t q = 0; q < 2; q++)
#pragma unroll
            for (uint32_t m = 0; m < 2; m++) {
                float(&c)[4][2] = sums[q][n + h];
                mma_half<BF16>(c[2 * m][0], c[2 * m][1], c[2 * m + 1][0], c[2 * m + 1][1], a[q][m],
                               b[h]);
            }
}

template <bool BF16, int LAYOUT>
static __device__ __forceinline__ void multiply_stage(gemm_sums (&sums)[2],
                                                      const half_memory<LAYOUT> &m, uint32_t slot,
                                                      const gemm_lane &at)
{
#pragma unroll
    for (uint32_t s = 0; s < HALF_ELEMS / 16; s++) {
        uint32_t a[2][2][4];
        load_weight<LAYOUT>(a[0], m.w(slot), at, at.row, s);
        load_weight<LAYOUT>(a[1], m.w(slot), at, at.row + 32, s);
#pragma unroll 1
        for (uint32_t term = 0; term < m.terms; term++) {
            const int8_t *x = (const int8_t *)m.x(slot, term) + at.token * HALF_STRIDE + 32 * s;
#pragma unroll
            for (uint32_t n = 0; n < GEMM_WARP_TOKENS / 8; n += 2) {
                uint32_t b[2][2];
                mma_load_b(b, x + 8 * n * HALF_STRIDE, HALF_STRIDE);
                multiply_16<BF16>(sums, n, a, b);
            }
        }
    }
}

/* `ring` stages are kept. */
template <bool BF16, int LAYOUT>
static __global__ void __launch_bounds__(GEMM_THREADS(HALF_WARP_ROWS, GEMM_WIDE_TOKENS))
    gemm_half_kernel(const cuda_product p, const struct cuda_halves x, uint32_t ring)
{
    ATSI_DYNAMIC_SHARED(uint8_t, base);
    const half_memory<LAYOUT> m = {base, gemm_tokens_here(HALF_WARP_ROWS),
                                   x.term[1] != NULL ? 2u : 1u};
    gemm_lane at = gemm_lane_here(HALF_WARP_ROWS);
    uint32_t n_stages = (p.k + HALF_ELEMS - 1) / HALF_ELEMS;
    gemm_sums sums[2] = {};
    gemm_tile tile;
    if (!gemm_here(p, tile, GEMM_WIDE_ROWS, m.tokens))
        return;
    gemm_list_tokens(p, tile, m.token(), m.tokens);
    for (uint32_t j = threadIdx.x; j < m.tokens; j += blockDim.x) {
        uint32_t row = m.token()[j] / p.x_div;
        m.x_row()[j] = row;
        m.factor()[j] = BF16 ? 1.0f : x.factor[row];
    }
    __syncthreads();
    for (uint32_t i = 0; i + 1 < ring; i++)
        begin_stage<LAYOUT>(m, p, x, tile, i, i);
#pragma unroll 1
    for (uint32_t i = 0; i < n_stages; i++) {
        if (ring == 1) {
            __syncthreads();
            begin_stage<LAYOUT>(m, p, x, tile, 0, i);
        }
        gemm_wait(ring);
        __syncthreads(); /* the stage is there, and that of the turn before is free */
        if (ring > 1)
            begin_stage<LAYOUT>(m, p, x, tile, (i + ring - 1) % ring, i + ring - 1);
        multiply_stage<BF16, LAYOUT>(sums, m, i % ring, at);
    }
#pragma unroll
    for (uint32_t q = 0; q < 2; q++) {
        gemm_store_sums(p, tile, m.token(), at, sums[q], m.factor());
        at.row += 32;
    }
}

template <bool BF16, int LAYOUT>
static cudaError_t gemm_half_in(const struct cuda_launch *l, const cuda_product &p,
                                const struct cuda_halves &x)
{
    typedef half_memory<LAYOUT> M;
    uint32_t terms = x.term[1] != NULL ? 2 : 1;
    const gemm_needs needs = {
        {M::fixed(64), M::fixed(128)}, {M::stage(64, terms), M::stage(128, terms)}, {3, 2}, 4};
    gemm_plan plan = gemm_plan_of(p, l->dev, needs);
    cudaError_t e = gemm_allow(gemm_half_kernel<BF16, LAYOUT>, plan);
    if (e != cudaSuccess)
        return e;
    return ATSI_LAUNCH((gemm_half_kernel<BF16, LAYOUT>),
                       dim3((unsigned)gemm_blocks(p, GEMM_WIDE_ROWS, plan.tokens)),
                       dim3(GEMM_THREADS(HALF_WARP_ROWS, plan.tokens)), plan.shared, l->stream, p,
                       x, plan.stages);
}

template <bool BF16>
static cudaError_t gemm_half_of(const struct cuda_launch *l, int layout, const cuda_product &p,
                                const struct cuda_halves &x)
{
    return layout == CUDA_PANELS ? gemm_half_in<BF16, CUDA_PANELS>(l, p, x)
                                 : gemm_half_in<BF16, CUDA_ROWS>(l, p, x);
}

cudaError_t cuda_gemm_half(const struct cuda_launch *l, uint32_t type, int layout,
                           const cuda_product &p, const struct cuda_halves &x)
{
    return type == ATSI_TYPE_BF16 ? gemm_half_of<true>(l, layout, p, x)
                                  : gemm_half_of<false>(l, layout, p, x);
}
