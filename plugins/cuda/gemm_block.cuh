/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many tokens with weights in blocks, on tensor cores: 128 threads compute a tile of 64
 * rows x 64 tokens, 256 columns at a time.  Weights are unpacked to signed bytes in shared memory
 * once per tile; each of the four warps multiplies 32 rows x 32 tokens.
 *
 * Integer sums are exact and scaled as the reference scales them: per block of 32, or per
 * super-block after integer scales.  So results differ from those of few tokens by the order of f32
 * additions alone: here it is that of the blocks, there the slots of gemv.cuh.
 */
#ifndef ATSI_CUDA_GEMM_BLOCK_CUH
#define ATSI_CUDA_GEMM_BLOCK_CUH

#include "gemm.cuh"
#include "mma.cuh"

#define STAGE_ELEMS 256u
#define STAGE_UNITS (STAGE_ELEMS / UNIT_ELEMS)
#define STAGE_STRIDE (STAGE_ELEMS + 16u) /* rows of a tile start in different banks */
#define BLOCK_THREADS 128u

struct stage_codes {
    int8_t w[GEMM_ROWS][STAGE_STRIDE], x[GEMM_TOKENS][STAGE_STRIDE];
};

/* What scales blocks of 32: floats per unit. */
struct stage_scales_32 {
    float d[STAGE_UNITS][GEMM_ROWS], dx[STAGE_UNITS][GEMM_TOKENS];
};
struct stage_offsets_32 {
    float m[STAGE_UNITS][GEMM_ROWS], sum[STAGE_UNITS][GEMM_TOKENS]; /* sum: times dx */
};

/* What scales a super-block. */
template <uint32_t TYPE>
struct stage_scales_k {
    int32_t sc[STAGE_ELEMS / unit_shape<TYPE>::SUB][GEMM_ROWS];
    float d[GEMM_ROWS], dx[GEMM_TOKENS];
};
/* Mins as an operand of its own: sums of 16 are 128 * high + low, both signed bytes. */
struct stage_mins_k {
    float m[GEMM_ROWS];
    int8_t mn[GEMM_ROWS][16], low[GEMM_TOKENS][16], high[GEMM_TOKENS][16];
};

struct stage_nothing {
};

template <bool C, class A, class B>
struct choose {
    typedef A type;
};
template <class A, class B>
struct choose<false, A, B> {
    typedef B type;
};

template <uint32_t TYPE>
struct stage {
    typedef unit_shape<TYPE> S;
    stage_codes codes;
    typename choose<S::ELEMS == 32, stage_scales_32, stage_scales_k<TYPE>>::type scales;
    typename choose<S::OFFSET, stage_offsets_32,
                    typename choose<S::MINS, stage_mins_k, stage_nothing>::type>::type mins;
};

/* ---------------------------------------------------------------- filling */

/* Four rows of unit i of the stage, unpacked. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void store_unit(stage<TYPE> &s, uint32_t row, uint32_t i,
                                                  const unit &w)
{
    typedef unit_shape<TYPE> S;
    uint32_t u = i % S::UNITS;
#pragma unroll
    for (uint32_t run = 0; run < 2; run++) {
        uint32_t e = S::ELEMS == 32 ? UNIT_ELEMS * i + 16 * run : unit_run<TYPE, LAYOUT>(u, run);
        *(uint4 *)(void *)&s.codes.w[row][e] =
            make_uint4(centred<S::ZERO>(w.q[4 * run]), centred<S::ZERO>(w.q[4 * run + 1]),
                       centred<S::ZERO>(w.q[4 * run + 2]), centred<S::ZERO>(w.q[4 * run + 3]));
        if constexpr (S::ELEMS == 256)
            if (e % unit_shape<TYPE>::SUB == 0)
                s.scales.sc[e / unit_shape<TYPE>::SUB][row] = w.sc[run];
        if constexpr (S::MINS)
            s.mins.mn[row][e / 16] = (int8_t)w.mn[run];
    }
    if constexpr (S::ELEMS == 32) {
        s.scales.d[i][row] = w.d;
        if constexpr (S::OFFSET)
            s.mins.m[i][row] = w.m;
    } else if (u == 0) {
        s.scales.d[row] = w.d;
        if constexpr (S::MINS)
            s.mins.m[row] = w.m;
    }
}

/* Each thread reads one unit of four rows. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void fill_weight(stage<TYPE> &s, const cuda_product &p,
                                                   const gemm_tile &at, uint32_t unit0,
                                                   uint32_t n_units)
{
    typedef unit_shape<TYPE> S;
    constexpr uint32_t quads = GEMM_ROWS / 4;
    static_assert(quads * STAGE_UNITS == BLOCK_THREADS, "one unit of four rows per thread");
    uint32_t i = LAYOUT == CUDA_ROWS ? threadIdx.x % STAGE_UNITS : threadIdx.x / quads;
    uint32_t quad = LAYOUT == CUDA_ROWS ? threadIdx.x / STAGE_UNITS : threadIdx.x % quads;
    uint32_t row = at.row0 + 4 * quad, block = (unit0 + i) / S::UNITS, u = i % S::UNITS;
    packed w[4];
    if (i >= n_units)
        return;
    if constexpr (LAYOUT == CUDA_ROWS) {
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint64_t r = row + j < p.n_rows ? row + j : p.n_rows - 1;
            load_row<TYPE>(w[j], at.w + r * p.row_bytes + (uint64_t)block * S::BYTES, u);
        }
    } else {
        uint64_t panel = (row < p.n_rows ? row : p.n_rows - 1) / ATSI_PANEL_ROWS;
        const uint8_t *from = at.w + panel * ATSI_PANEL_ROWS * p.row_bytes;
        load_panel<TYPE, 4, false>(w, panel_at<S>(from, p.k / S::ELEMS, block), 4 * (quad % 4), u);
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        unit o;
        unpack<TYPE, LAYOUT>(o, w[j], u);
        store_unit<TYPE, LAYOUT>(s, 4 * quad + j, i, o);
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

template <uint32_t TYPE>
static __device__ __forceinline__ void fill_act_scales(stage<TYPE> &s, const cuda_product &p,
                                                       const uint32_t (&token)[GEMM_TOKENS],
                                                       uint32_t unit0, uint32_t n_units)
{
    typedef unit_shape<TYPE> S;
    const struct cuda_act &a = p.act;
    if constexpr (S::ELEMS == 32) {
        for (uint32_t i = threadIdx.x; i < GEMM_TOKENS * n_units; i += BLOCK_THREADS) {
            uint32_t j = i / n_units, u = i % n_units;
            uint64_t at = (uint64_t)(token[j] / p.x_div) * (a.k / 32) + unit0 + u;
            s.scales.dx[u][j] = a.d[at];
            if constexpr (S::OFFSET)
                s.mins.sum[u][j] = a.d[at] * (float)(a.s[2 * at] + a.s[2 * at + 1]);
        }
    } else {
        uint32_t j = threadIdx.x / 2, half = threadIdx.x % 2;
        uint64_t at = (uint64_t)(token[j] / p.x_div) * (a.k / 256) + unit0 / STAGE_UNITS;
        if (half == 0)
            s.scales.dx[j] = a.d[at];
        if constexpr (S::MINS)
            split_sums(a.s + 16 * at + 8 * half, &s.mins.low[j][8 * half],
                       &s.mins.high[j][8 * half]);
    }
}

template <uint32_t TYPE>
static __device__ __forceinline__ void fill_tokens(stage<TYPE> &s, const cuda_product &p,
                                                   const uint32_t (&token)[GEMM_TOKENS],
                                                   uint32_t unit0, uint32_t n_units)
{
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < GEMM_TOKENS * STAGE_ELEMS / 16; i += BLOCK_THREADS) {
        uint32_t j = i / (STAGE_ELEMS / 16), part = i % (STAGE_ELEMS / 16);
        const int8_t *x = p.act.q + (uint64_t)(token[j] / p.x_div) * p.k;
        if (part < 2 * n_units)
            *(int4 *)(void *)&s.codes.x[j][16 * part] =
                *(const int4 *)(const void *)(x + (uint64_t)unit0 * UNIT_ELEMS + 16 * part);
    }
    fill_act_scales<TYPE>(s, p, token, unit0, n_units);
}

/* ---------------------------------------------------------------- multiplying */

#define WARP_ROWS 32u
#define WARP_TOKENS 32u

/* A warp's part of the tile, as fragments of mma.cuh: [16 rows][8 tokens]. */
struct warp_at {
    uint32_t row, token; /* the warp's first ones */
    uint32_t g, t;
};

typedef float warp_floats[2][4][4];

struct warp_codes {
    uint32_t w[2][4], x[4][2];
};

template <uint32_t TYPE>
static __device__ __forceinline__ void load_codes_of(warp_codes &f, const stage<TYPE> &s,
                                                     const warp_at &at, uint32_t u)
{
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
        mma_load_a(f.w[m], &s.codes.w[at.row + 16 * m][UNIT_ELEMS * u], STAGE_STRIDE);
#pragma unroll
    for (uint32_t n = 0; n < 4; n += 2) {
        uint32_t x[2][2];
        mma_load_b(x, &s.codes.x[at.token + 8 * n][UNIT_ELEMS * u], STAGE_STRIDE);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            f.x[n + i / 2][i % 2] = x[i / 2][i % 2];
    }
}

/* Row and token of element c of fragment (m, n). */
static __device__ __forceinline__ uint32_t row_of(const warp_at &at, uint32_t m, uint32_t c)
{
    return at.row + 16 * m + at.g + c / 2 * 8;
}

static __device__ __forceinline__ uint32_t token_of(const warp_at &at, uint32_t n, uint32_t c)
{
    return at.token + 8 * n + 2 * at.t + c % 2;
}

/* 1.5 * 2^23: sums below 2^22 added to its bits are the float that much larger.  So the
 * conversion, slow on its own, is one subtraction. */
#define FLOAT_BASE 0x4b400000
#define FLOAT_OF_BASE 12582912.0f

template <uint32_t TYPE>
static __device__ __forceinline__ void multiply_32(warp_floats &acc, const stage<TYPE> &s,
                                                   const warp_at &at, uint32_t n_units)
{
    for (uint32_t u = 0; u < n_units; u++) {
        warp_codes f;
        load_codes_of<TYPE>(f, s, at, u);
#pragma unroll
        for (uint32_t m = 0; m < 2; m++)
#pragma unroll
            for (uint32_t n = 0; n < 4; n++) {
                int sum[4] = {FLOAT_BASE, FLOAT_BASE, FLOAT_BASE, FLOAT_BASE};
                mma_k32(sum, f.w[m], f.x[n]);
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) {
                    uint32_t row = row_of(at, m, c), token = token_of(at, n, c);
                    float isum = __int_as_float(sum[c]) - FLOAT_OF_BASE, *to = &acc[m][n][c];
                    *to = fmaf(s.scales.d[u][row] * s.scales.dx[u][token], isum, *to);
                    if constexpr (unit_shape<TYPE>::OFFSET)
                        *to = fmaf(s.mins.m[u][row], s.mins.sum[u][token], *to);
                }
            }
    }
}

template <uint32_t TYPE>
static __device__ __forceinline__ void add_scaled(int (&to)[4], const int (&sum)[4],
                                                  const stage<TYPE> &s, const warp_at &at,
                                                  uint32_t m, uint32_t scale)
{
#pragma unroll
    for (uint32_t c = 0; c < 4; c++)
        to[c] += s.scales.sc[scale][row_of(at, m, c)] * sum[c];
}

template <uint32_t TYPE>
static __device__ __forceinline__ void multiply_unit_k(int (&isum)[2][4][4], const stage<TYPE> &s,
                                                       const warp_at &at, uint32_t u)
{
    warp_codes f;
    load_codes_of<TYPE>(f, s, at, u);
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t n = 0; n < 4; n++) {
            int sum[4] = {0, 0, 0, 0};
            if constexpr (unit_shape<TYPE>::SUB == 32) {
                mma_k32(sum, f.w[m], f.x[n]);
                add_scaled<TYPE>(isum[m][n], sum, s, at, m, u);
            } else {
                int more[4] = {0, 0, 0, 0};
                mma_k16(sum, f.w[m][0], f.w[m][1], f.x[n][0]);
                add_scaled<TYPE>(isum[m][n], sum, s, at, m, 2 * u);
                mma_k16(more, f.w[m][2], f.w[m][3], f.x[n][1]);
                add_scaled<TYPE>(isum[m][n], more, s, at, m, 2 * u + 1);
            }
        }
}

/* A word of four bytes of a table of 16 bytes to a row. */
static __device__ __forceinline__ uint32_t word_at(const int8_t (*table)[16], uint32_t row,
                                                   uint32_t t)
{
    return *(const uint32_t *)(const void *)&table[row][4 * t];
}

template <uint32_t TYPE>
static __device__ __forceinline__ void subtract_mins(warp_floats &acc, const stage<TYPE> &s,
                                                     const warp_at &at)
{
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t n = 0; n < 4; n++) {
            int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
            uint32_t a0 = word_at(s.mins.mn, row_of(at, m, 0), at.t);
            uint32_t a1 = word_at(s.mins.mn, row_of(at, m, 2), at.t);
            mma_k16(low, a0, a1, word_at(s.mins.low, at.token + 8 * n + at.g, at.t));
            mma_k16(high, a0, a1, word_at(s.mins.high, at.token + 8 * n + at.g, at.t));
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                float d = s.mins.m[row_of(at, m, c)] * s.scales.dx[token_of(at, n, c)];
                acc[m][n][c] = fmaf(-d, (float)(low[c] + 128 * high[c]), acc[m][n][c]);
            }
        }
}

template <uint32_t TYPE>
static __device__ __forceinline__ void multiply_k(warp_floats &acc, const stage<TYPE> &s,
                                                  const warp_at &at)
{
    int isum[2][4][4] = {};
#pragma unroll 1
    for (uint32_t u = 0; u < STAGE_UNITS; u++)
        multiply_unit_k<TYPE>(isum, s, at, u);
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t m = i / 16, n = i / 4 % 4, c = i % 4;
        float d = s.scales.d[row_of(at, m, c)] * s.scales.dx[token_of(at, n, c)];
        acc[m][n][c] = fmaf(d, (float)isum[m][n][c], acc[m][n][c]);
    }
    if constexpr (unit_shape<TYPE>::MINS)
        subtract_mins<TYPE>(acc, s, at);
}

/* ---------------------------------------------------------------- the kernel */

template <uint32_t TYPE, int LAYOUT>
static __global__ void __launch_bounds__(BLOCK_THREADS) gemm_block_kernel(const cuda_product p)
{
    __shared__ __align__(16) stage<TYPE> s;
    __shared__ uint32_t token[GEMM_TOKENS];
    uint32_t warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
    warp_at at = {warp % 2 * WARP_ROWS, warp / 2 * WARP_TOKENS, lane / 4, lane % 4};
    warp_floats acc = {};
    gemm_tile tile;
    if (!gemm_here(p, tile))
        return;
    gemm_list_tokens(p, tile, token);
    for (uint32_t unit0 = 0; unit0 < p.k / UNIT_ELEMS; unit0 += STAGE_UNITS) {
        uint32_t left = p.k / UNIT_ELEMS - unit0, n_units = left < STAGE_UNITS ? left : STAGE_UNITS;
        fill_weight<TYPE, LAYOUT>(s, p, tile, unit0, n_units);
        fill_tokens<TYPE>(s, p, token, unit0, n_units);
        __syncthreads();
        if constexpr (unit_shape<TYPE>::ELEMS == 32)
            multiply_32<TYPE>(acc, s, at, n_units);
        else
            multiply_k<TYPE>(acc, s, at);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t m = i / 16, n = i / 4 % 4, c = i % 4;
        gemm_store(p, tile, token, token_of(at, n, c), tile.row0 + row_of(at, m, c), acc[m][n][c]);
    }
}

template <uint32_t TYPE>
static cudaError_t gemm_block_of_type(cudaStream_t s, int layout, const cuda_product &p)
{
    if (layout == CUDA_PANELS)
        return ATSI_LAUNCH((gemm_block_kernel<TYPE, CUDA_PANELS>), gemm_grid(p),
                           dim3(BLOCK_THREADS), 0, s, p);
    return ATSI_LAUNCH((gemm_block_kernel<TYPE, CUDA_ROWS>), gemm_grid(p), dim3(BLOCK_THREADS), 0,
                       s, p);
}

#endif
