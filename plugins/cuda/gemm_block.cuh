/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many tokens with weights in blocks, on int8 tensor cores (gemm.cuh has the tiles,
 * gemm_stage.cuh the memory).
 *
 * Integer sums over 32 columns (16, where scales change so often) are exact; they become floats,
 * are scaled and added in order of the columns.  Results differ from those of few tokens, and of
 * other devices, by the rounding of these f32 additions alone; they are the same from both layouts.
 */
#ifndef ATSI_CUDA_GEMM_BLOCK_CUH
#define ATSI_CUDA_GEMM_BLOCK_CUH

#include "gemm_stage.cuh"
#include "mma.cuh"

#define BLOCK_WARP_ROWS 32u
/* Left to itself, the compiler saves registers for a second block and spills some on sm_75. */
#define BLOCK_MIN(type, layout) ((layout) == CUDA_ROWS && unit_shape<type>::ELEMS == 32 ? 1 : 0)

/* 1.5 * 2^23: a sum below 2^22 added to its bits is the float that much larger, so that no slow
 * conversion is needed.  What is too much leaves in the first scaling: with a scale of up to 21
 * bits its product with this is exact, and the fused multiply-add rounds the true product once. */
#define FLOAT_BASE 0x4b400000
#define FLOAT_OF_BASE 12582912.0f

/* Codes of two units of four rows: word t of both runs of each. */
struct panel_codes {
    uint32_t q[2][2][4]; /* unit, run, row */
};

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void read_codes(panel_codes &f,
                                                  const block_memory<TYPE, LAYOUT> &m,
                                                  uint32_t slot, const gemm_lane &at, uint32_t pair)
{
    typedef unit_shape<TYPE> S;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t u = (2 * pair + i) % S::UNITS;
        packed w[4];
        load_panel_codes<TYPE, 1>(w, staged_at<4>(m, slot, at.row, (2 * pair + i) / S::UNITS), u,
                                  at.t);
#pragma unroll
        for (uint32_t r = 0; r < 4; r++) {
            unit o;
            unpack_codes<TYPE, CUDA_PANELS, 1>(o, w[r], u, at.t);
            f.q[i][0][r] = centred<S::ZERO>(o.q[0]);
            f.q[i][1][r] = centred<S::ZERO>(o.q[4]);
        }
    }
}

/* Fragments of 32 neighbouring columns, half `s` of a pair of units: where low and high nibbles are
 * 32 columns apart these are the same runs of both units. */
template <uint32_t TYPE>
static __device__ __forceinline__ void codes_of_half(uint32_t (&a)[2][4], const panel_codes &f,
                                                     uint32_t s)
{
    constexpr bool apart =
        TYPE == ATSI_TYPE_Q2_K || TYPE == ATSI_TYPE_Q4_K || TYPE == ATSI_TYPE_Q5_K;
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[m][i] = apart ? f.q[i / 2][s][2 * m + i % 2] : f.q[s][i / 2][2 * m + i % 2];
}

/* Four scales of rows, and what removes FLOAT_BASE. */
struct row_scales {
    float d[4], less[4];
};

static __device__ __forceinline__ row_scales read_scales(const float *table, uint32_t row)
{
    float4 v = *(const float4 *)(const void *)(table + row);
    row_scales s = {{v.x, v.y, v.z, v.w}, {}};
#pragma unroll
    for (int r = 0; r < 4; r++)
        s.less[r] = -FLOAT_OF_BASE * s.d[r];
    return s;
}

/* Scales of blocks of 32 tokens' quants are halves, those of a weight may be any power of two: the
 * tokens' comes first. */
static __device__ __forceinline__ void add_32(float (&sum)[4][2], const int (&isum)[4], uint32_t m,
                                              const row_scales &w, const float *dx,
                                              const float *less)
{
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        uint32_t r = 2 * m + c / 2;
        float v = fmaf(__int_as_float(isum[c]), dx[c % 2], less[c % 2]);
        sum[r][c % 2] = fmaf(v, w.d[r], sum[r][c % 2]);
    }
}

/* In super-blocks scales of the tokens are floats, those of the rows halves times small integers.
 */
static __device__ __forceinline__ void add_k(float (&sum)[4][2], const int (&isum)[4], uint32_t m,
                                             const row_scales &w, const float *dx)
{
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        uint32_t r = 2 * m + c / 2;
        float v = fmaf(__int_as_float(isum[c]), w.d[r], w.less[r]);
        sum[r][c % 2] = fmaf(v, dx[c % 2], sum[r][c % 2]);
    }
}

/* 32 columns of two groups of 8 tokens; `dx`: two of each.  Unit i of the stage. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void
multiply_16(gemm_sums &sums, uint32_t n, const uint32_t (&a)[2][4], const uint32_t (&b)[2][2],
            const row_scales (&w)[2], const float (&dx)[4])
{
    typedef unit_shape<TYPE> S;
    const float less[4] = {-FLOAT_OF_BASE * dx[0], -FLOAT_OF_BASE * dx[1], -FLOAT_OF_BASE * dx[2],
                           -FLOAT_OF_BASE * dx[3]};
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t m = 0; m < 2; m++) {
            int isum[4] = {FLOAT_BASE, FLOAT_BASE, FLOAT_BASE, FLOAT_BASE};
            if constexpr (S::SUB == 32) {
                mma_k32(isum, a[m], b[h]);
                if constexpr (S::ELEMS == 32)
                    add_32(sums[n + h], isum, m, w[0], dx + 2 * h, less + 2 * h);
                else
                    add_k(sums[n + h], isum, m, w[0], dx + 2 * h);
            } else {
                int more[4] = {FLOAT_BASE, FLOAT_BASE, FLOAT_BASE, FLOAT_BASE};
                mma_k16(isum, a[m][0], a[m][1], b[h][0]);
                mma_k16(more, a[m][2], a[m][3], b[h][1]);
                add_k(sums[n + h], isum, m, w[0], dx + 2 * h);
                add_k(sums[n + h], more, m, w[1], dx + 2 * h);
            }
        }
}

/* Q4_1, Q5_1: m times the sum of 32 quants. */
static __device__ __forceinline__ void add_offsets(float (&sum)[4][2], const float *m,
                                                   const uint32_t *pair, const float *dx)
{
    float4 v = *(const float4 *)(const void *)m;
    const float rows[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (uint32_t c = 0; c < 2; c++) {
        float s = (float)((int32_t)(int16_t)(pair[c] & 0xffffu) + ((int32_t)pair[c] >> 16));
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            sum[r][c] = fmaf(rows[r], s * dx[c], sum[r][c]);
    }
}

/* Unit i, whose codes are `a`, for all of the warp's tokens. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void
multiply_unit(gemm_sums &sums, const block_memory<TYPE, LAYOUT> &m, uint32_t slot,
              const gemm_lane &at, uint32_t i, const uint32_t (&a)[2][4])
{
    typedef block_stage<TYPE, LAYOUT> B;
    typedef typename B::S S;
    constexpr uint32_t per = UNIT_ELEMS / S::SUB;
    row_scales w[2];
#pragma unroll
    for (uint32_t s = 0; s < per; s++)
        w[s] = read_scales(m.scales() + (per * i + s) * GEMM_WIDE_ROWS, at.row);
    uint32_t place = i / S::UNITS * m.groups() * 80 + at.token / 64 * 80 + at.t * 20;
    const int8_t *x = (const int8_t *)m.x(slot) + at.token * B::STRIDE + UNIT_ELEMS * i;
#pragma unroll
    for (uint32_t n = 0; n < GEMM_WARP_TOKENS / 8; n += 2) {
        float4 v = *(const float4 *)(const void *)(m.dx(slot) + place + 2 * n);
        const float dx[4] = {v.x, v.y, v.z, v.w};
        uint32_t b[2][2];
        mma_load_b(b, x + 8 * n * B::STRIDE, B::STRIDE);
        multiply_16<TYPE, LAYOUT>(sums, n, a, b, w, dx);
        if constexpr (S::OFFSET) {
            uint4 s = *(const uint4 *)(const void *)(m.sums(slot) + 4 * (place + 2 * n));
            const uint32_t pair[4] = {s.x, s.y, s.z, s.w};
            const float *offsets = m.offsets() + i * GEMM_WIDE_ROWS + at.row;
            add_offsets(sums[n], offsets, pair, dx);
            add_offsets(sums[n + 1], offsets, pair + 2, dx + 2);
        }
    }
}

/* A word of four bytes of a table of 16 bytes to a row. */
static __device__ __forceinline__ uint32_t word_at(const int8_t *table, uint32_t row, uint32_t t)
{
    return *(const uint32_t *)(const void *)(table + 16 * row + 4 * t);
}

/* Mins times sums of 16 quants: a product of its own, 16 columns to a super-block. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void subtract_mins(gemm_sums &sums,
                                                     const block_memory<TYPE, LAYOUT> &m,
                                                     uint32_t slot, const gemm_lane &at)
{
    uint32_t place = at.token / 64 * 80 + at.t * 20;
    uint32_t a[4];
    float less[4];
#pragma unroll
    for (uint32_t r = 0; r < 4; r++) {
        a[r] = word_at(m.mins(), at.row + r, at.t);
        less[r] = -m.offsets()[at.row + r];
    }
#pragma unroll
    for (uint32_t n = 0; n < GEMM_WARP_TOKENS / 8; n++) {
        float2 dx = *(const float2 *)(const void *)(m.dx(slot) + place + 2 * n);
        uint32_t token = at.token + 8 * n + at.g;
        uint32_t low = word_at(m.low(), token, at.t), high = word_at(m.high(), token, at.t);
#pragma unroll
        for (uint32_t f = 0; f < 2; f++) {
            int l[4] = {0, 0, 0, 0}, h[4] = {0, 0, 0, 0};
            mma_k16(l, a[2 * f], a[2 * f + 1], low);
            mma_k16(h, a[2 * f], a[2 * f + 1], high);
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                uint32_t r = 2 * f + c / 2;
                float v = (float)(l[c] + 128 * h[c]) * less[r];
                sums[n][r][c % 2] = fmaf(v, c % 2 == 0 ? dx.x : dx.y, sums[n][r][c % 2]);
            }
        }
    }
}

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void
multiply_stage(gemm_sums &sums, const block_memory<TYPE, LAYOUT> &m, uint32_t slot,
               const gemm_lane &at, uint32_t n_units)
{
    typedef block_stage<TYPE, LAYOUT> B;
#pragma unroll 1
    for (uint32_t pair = 0; 2 * pair < n_units; pair++) {
        panel_codes f;
        if constexpr (B::PANELS)
            read_codes<TYPE, LAYOUT>(f, m, slot, at, pair);
#pragma unroll
        for (uint32_t s = 0; s < 2; s++) {
            uint32_t i = 2 * pair + s, a[2][4];
            if (!B::LARGE && i >= n_units)
                break;
            if constexpr (B::PANELS) {
                codes_of_half<TYPE>(a, f, s);
            } else {
                const int8_t *w = (const int8_t *)m.w(slot) + UNIT_ELEMS * i;
                mma_load_a(a[0], w + (at.row - 4 * at.g) * B::STRIDE, B::STRIDE);
                mma_load_a(a[1], w + (at.row - 4 * at.g + 16) * B::STRIDE, B::STRIDE);
            }
            multiply_unit<TYPE, LAYOUT>(sums, m, slot, at, i, a);
        }
    }
    if constexpr (B::S::MINS)
        subtract_mins<TYPE, LAYOUT>(sums, m, slot, at);
}

/* ---------------------------------------------------------------- the kernel */

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void begin_stage(const block_memory<TYPE, LAYOUT> &m,
                                                   const cuda_product &p, const gemm_tile &tile,
                                                   uint32_t slot, uint32_t stage, uint32_t n_stages)
{
    if (stage < n_stages) {
        stage_span at = span_of<TYPE, LAYOUT>(p, stage);
        if constexpr (LAYOUT == CUDA_PANELS)
            copy_panels<TYPE, LAYOUT>(m, p, tile, slot, at);
        else
            unpack_rows<TYPE, LAYOUT>(m, p, tile, slot, at);
        copy_tokens<TYPE, LAYOUT>(m, p, slot, at);
    }
    async_commit();
}

/* `ring` stages are kept; rows, which are unpacked by hand, have one. */
template <uint32_t TYPE, int LAYOUT>
static __global__ void __launch_bounds__(GEMM_THREADS(BLOCK_WARP_ROWS, GEMM_WIDE_TOKENS),
                                         BLOCK_MIN(TYPE, LAYOUT))
    gemm_block_kernel(const cuda_product p, uint32_t ring)
{
    typedef block_stage<TYPE, LAYOUT> B;
    ATSI_DYNAMIC_SHARED(uint8_t, base);
    const block_memory<TYPE, LAYOUT> m = {base, gemm_tokens_here(BLOCK_WARP_ROWS)};
    const gemm_lane at = gemm_lane_here(BLOCK_WARP_ROWS);
    uint32_t n_stages = (p.k + B::ELEMS - 1) / B::ELEMS;
    gemm_sums sums = {};
    gemm_tile tile;
    if (!gemm_here(p, tile, GEMM_WIDE_ROWS, m.tokens))
        return;
    gemm_list_tokens(p, tile, m.token(), m.tokens);
    for (uint32_t j = threadIdx.x; j < m.tokens; j += blockDim.x)
        m.x_row()[j] = m.token()[j] / p.x_div;
    __syncthreads();
    for (uint32_t i = 0; i + 1 < ring; i++)
        begin_stage<TYPE, LAYOUT>(m, p, tile, i, i, n_stages);
#pragma unroll 1
    for (uint32_t i = 0; i < n_stages; i++) {
        uint32_t ahead = i + ring - 1, slot = i % ring;
        if (ring == 1)
            begin_stage<TYPE, LAYOUT>(m, p, tile, 0, i, n_stages);
        gemm_wait(ring);
        __syncthreads(); /* the stage is there, and that of the turn before is free */
        if (ring > 1)
            begin_stage<TYPE, LAYOUT>(m, p, tile, ahead % ring, ahead, n_stages);
        make_tables<TYPE, LAYOUT>(m, slot, span_of<TYPE, LAYOUT>(p, i));
        __syncthreads();
        multiply_stage<TYPE, LAYOUT>(sums, m, slot, at, span_of<TYPE, LAYOUT>(p, i).n_units);
        if (ring == 1)
            __syncthreads(); /* it is free again */
    }
    gemm_store_sums(p, tile, m.token(), at, sums, NULL);
}

template <uint32_t TYPE, int LAYOUT>
static cudaError_t gemm_block_in(cudaStream_t s, const struct cuda_device *dev,
                                 const cuda_product &p)
{
    typedef block_stage<TYPE, LAYOUT> B;
    const gemm_needs needs = {{B::FIXED + B::FIXED_PER_64, B::FIXED + 2 * B::FIXED_PER_64},
                              {B::W + B::STAGE_PER_64, B::W + 2 * B::STAGE_PER_64},
                              {2, 1},
                              B::PANELS ? 3u : 1u};
    gemm_plan plan = gemm_plan_of(p, dev, needs);
    if (plan.shared > dev->shared_bytes) /* rows of Q2_K on sm_75: 2 KiB short */
        return B::LARGE ? cuda_gemv_k(s, TYPE, LAYOUT, p) : cuda_gemv_32(s, TYPE, LAYOUT, p);
    cudaError_t e = gemm_allow(gemm_block_kernel<TYPE, LAYOUT>, plan);
    if (e != cudaSuccess)
        return e;
    return ATSI_LAUNCH((gemm_block_kernel<TYPE, LAYOUT>),
                       dim3((unsigned)gemm_blocks(p, GEMM_WIDE_ROWS, plan.tokens)),
                       dim3(GEMM_THREADS(BLOCK_WARP_ROWS, plan.tokens)), plan.shared, s, p,
                       plan.stages);
}

template <uint32_t TYPE>
static cudaError_t gemm_block_of_type(cudaStream_t s, const struct cuda_device *dev, int layout,
                                      const cuda_product &p)
{
    return layout == CUDA_PANELS ? gemm_block_in<TYPE, CUDA_PANELS>(s, dev, p)
                                 : gemm_block_in<TYPE, CUDA_ROWS>(s, dev, p);
}

#endif
