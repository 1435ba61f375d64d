/* SPDX-License-Identifier: Apache-2.0
 *
 * The skeleton of products with few tokens: every weight is read once, as far as possible in
 * 16-byte loads, and meets up to GEMV_TOKENS tokens.
 *
 * A block of 2 to 8 warps computes 16 rows.  The columns of a row, in pairs of units, are dealt to
 * n_slots = 16, 32 or 64 slots; a lane holds one slot of four rows, so that its activations serve
 * four times, and reads a pair's words before it multiplies: what a multiprocessor has under way
 * decides how fast memory is read (docs/cuda.md).
 *
 *   rows    warp w: rows 4 (w % 4) .. + 3, slot = lane + 32 (w / 4): neighbouring lanes read
 *           neighbouring blocks
 *   panels  warp w: rows 4 (lane % 4) .. + 3, slot = lane / 4 + 8 w: four lanes read whole chunks
 *
 * Slots are added as a binary tree over their bits, which is the same one in both cases.  So the
 * result for a token depends on the weight's row and its own activations alone.
 */
#ifndef ATSI_CUDA_GEMV_CUH
#define ATSI_CUDA_GEMV_CUH

#include "grid.h"
#include "math.cuh"
#include "product.cuh"

#define GEMV_ROWS 16u
#define GEMV_MAX_WARPS 8u
/* One token leaves it to the compiler to save registers, since loads in flight count; several may
 * have all the registers that they need, so that nothing is spilled. */
#define GEMV_MIN_BLOCKS(nt) ((nt) == 1 ? 0 : 1)

/* Where a lane works. */
struct gemv_place {
    uint32_t slot, n_slots, row; /* row: first of four, from the block's first */
    uint32_t expert;
    const uint8_t *w; /* the matrix */
};

/* Slots of a row of units, which are 32 or 8 columns: depends on nothing but the row's length. */
static __host__ __device__ __forceinline__ uint32_t gemv_slots(uint32_t k, uint32_t unit)
{
    if (unit == UNIT_ELEMS && k < 2048)
        return 16;
    return k >= 4096 ? 64 : 32;
}

template <int LAYOUT>
static __device__ __forceinline__ gemv_place gemv_here(const cuda_product &p, uint32_t expert,
                                                       uint32_t n_slots)
{
    uint32_t lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    gemv_place at;
    at.n_slots = n_slots;
    if (LAYOUT == CUDA_ROWS) {
        at.slot = lane + CUDA_WARP * (warp / 4);
        at.row = 4 * (warp % 4);
        if (at.slot >= n_slots)
            at.slot = p.k; /* none */
    } else {
        at.slot = lane / 4 + 8 * warp;
        at.row = 4 * (lane % 4);
    }
    at.expert = expert;
    at.w = p.w + expert * p.matrix_bytes;
    return at;
}

/* Four rows of unit u of the whole row.  Rows past the end read the last one instead. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void gemv_load(packed (&w)[4], const cuda_product &p,
                                                 const gemv_place &at, uint32_t block, uint32_t u)
{
    typedef unit_shape<TYPE> S;
    if constexpr (LAYOUT == CUDA_ROWS) {
        uint32_t row = blockIdx.x * GEMV_ROWS + at.row;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t r = row + i < p.n_rows ? row + i : p.n_rows - 1;
            load_row<TYPE>(w[i], at.w + r * p.row_bytes + (uint64_t)block * S::BYTES, u);
        }
    } else {
        const uint8_t *panel = at.w + (uint64_t)blockIdx.x * ATSI_PANEL_ROWS * p.row_bytes;
        load_panel<TYPE, 4, LAYOUT == CUDA_LOOSE_PANELS>(
            w, panel_at<S>(panel, p.k / S::ELEMS, block), at.row, u);
    }
}

/* Units i and i + 1, an even one and the next; the second only if it is there.  Units of one
 * super-block share scales, and panels may hold both in the same words. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void gemv_load_pair(packed (&w)[2][4], const cuda_product &p,
                                                      const gemv_place &at, uint32_t i, bool second)
{
    typedef unit_shape<TYPE> S;
    constexpr bool same_words = TYPE == ATSI_TYPE_Q3_K || TYPE == ATSI_TYPE_Q6_K;
    gemv_load<TYPE, LAYOUT>(w[0], p, at, i / S::UNITS, i % S::UNITS);
    if constexpr (LAYOUT == CUDA_ROWS || S::ELEMS == 32) {
        if (second)
            gemv_load<TYPE, LAYOUT>(w[1], p, at, (i + 1) / S::UNITS, (i + 1) % S::UNITS);
    } else {
        const uint8_t *panel = at.w + (uint64_t)blockIdx.x * ATSI_PANEL_ROWS * p.row_bytes;
        const panel_rows<4, LAYOUT == CUDA_LOOSE_PANELS> from = {
            panel_at<S>(panel, p.k / S::ELEMS, i / S::UNITS), at.row};
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            w[1][r] = w[0][r];
        if constexpr (!same_words)
            load_panel_codes<TYPE, 4>(w[1], from, (i + 1) % S::UNITS, 0);
    }
}

/* The expert of this block's token; false: none, and its results are set to zero. */
static __device__ __forceinline__ bool gemv_expert(const cuda_product &p, uint32_t token,
                                                   uint32_t *expert)
{
    int32_t id = p.ids != NULL ? p.ids[token] : 0;
    uint32_t row = blockIdx.x * GEMV_ROWS + threadIdx.x;
    *expert = (uint32_t)id;
    if (p.ids == NULL || (id >= 0 && (uint32_t)id < p.n_expert))
        return true;
    if (threadIdx.x < GEMV_ROWS && row < p.n_rows)
        p.y[token * p.y_stride + row] = 0;
    return false;
}

/* part[0] + part[step] + .. of n parts, as a tree; n is a power of two up to MAX. */
template <uint32_t MAX>
static __device__ __forceinline__ float sum_of_parts(const float *part, uint32_t n, uint32_t step)
{
    float s = part[0];
    if (n >= 2)
        s += part[step];
    if constexpr (MAX >= 4) {
        if (n >= 4)
            s += part[2 * step] + part[3 * step];
    }
    if constexpr (MAX >= 8) {
        if (n >= 8)
            s += (part[4 * step] + part[5 * step]) + (part[6 * step] + part[7 * step]);
    }
    return s;
}

/* Adds the slots and stores NT tokens from `token` on.  All threads of the block call it. */
template <int LAYOUT, int NT>
static __device__ __forceinline__ void gemv_finish(const cuda_product &p, const gemv_place &at,
                                                   uint32_t token, const float (&acc)[4][NT])
{
    constexpr uint32_t first = LAYOUT == CUDA_ROWS ? 1 : 4, part_size = GEMV_ROWS * NT;
    constexpr uint32_t max_groups = LAYOUT == CUDA_ROWS ? GEMV_MAX_WARPS / 4 : GEMV_MAX_WARPS;
    __shared__ float parts[max_groups * part_size];
    uint32_t lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    uint32_t group = LAYOUT == CUDA_ROWS ? warp / 4 : warp;
    uint32_t n_groups =
        (at.n_slots + (LAYOUT == CUDA_ROWS ? 31 : 7)) / (LAYOUT == CUDA_ROWS ? 32 : 8);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
#pragma unroll
        for (uint32_t t = 0; t < NT; t++) {
            float v = acc[i][t];
#pragma unroll
            for (uint32_t step = first; step < CUDA_WARP; step *= 2)
                v += __shfl_xor_sync(CUDA_ALL_LANES, v, step);
            if (lane < first)
                parts[group * part_size + t * GEMV_ROWS + at.row + i] = v;
        }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < part_size; e += blockDim.x) {
        uint32_t row = blockIdx.x * GEMV_ROWS + e % GEMV_ROWS, to = token + e / GEMV_ROWS;
        float v = sum_of_parts<max_groups>(parts + e, n_groups, part_size);
        if (row >= p.n_rows || to >= p.n_tok)
            continue;
        if (p.bias != NULL)
            v += p.bias[(uint64_t)at.expert * p.bias_stride + row];
        p.y[to * p.y_stride + row] = v;
    }
}

/* Row of activations of token t; tokens past the end read the last one's. */
static __device__ __forceinline__ uint64_t gemv_x_row(const cuda_product &p, uint32_t t)
{
    return (t < p.n_tok ? t : p.n_tok - 1) / p.x_div;
}

/* ---------------------------------------------------------------- rounded activations */

/* What a unit meets: 32 quants, their scale, and the sums of its two runs. */
struct gemv_act {
    int32_t q[8], s[2];
    float d;
};

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void gemv_load_act(gemv_act &x, const struct cuda_act &act,
                                                     uint64_t row, uint32_t block, uint32_t u)
{
    typedef unit_shape<TYPE> S;
    const int8_t *q = act.q + row * act.k;
    const int16_t *s = act.s + row * (act.k / 16);
#pragma unroll
    for (uint32_t run = 0; run < 2; run++) {
        uint32_t e = block * S::ELEMS + unit_run<TYPE, LAYOUT>(u, run);
        int4 v = *(const int4 *)(const void *)(q + e);
        x.q[4 * run] = v.x;
        x.q[4 * run + 1] = v.y;
        x.q[4 * run + 2] = v.z;
        x.q[4 * run + 3] = v.w;
        if constexpr (S::ZERO != 0 || S::MINS || S::OFFSET)
            x.s[run] = s[e / 16];
    }
    x.d = act.d[row * (act.k / S::ELEMS) + block];
}

/* acc + (d * dx) * isum - (m * dx) * imin, integer sums exact. */
template <uint32_t TYPE>
static __device__ __forceinline__ float gemv_add(float acc, const unit &w, const gemv_act &x)
{
    typedef unit_shape<TYPE> S;
    int32_t dot[2] = {0, 0}, isum;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        dot[0] = __dp4a(w.q[c], x.q[c], dot[0]);
        dot[1] = __dp4a(w.q[4 + c], x.q[4 + c], dot[1]);
    }
    if constexpr (S::ZERO != 0) {
        dot[0] -= S::ZERO * x.s[0];
        dot[1] -= S::ZERO * x.s[1];
    }
    isum = S::SCALED ? w.sc[0] * dot[0] + w.sc[1] * dot[1] : dot[0] + dot[1];
    acc = fmaf(w.d * x.d, (float)isum, acc);
    if constexpr (S::MINS)
        acc = fmaf(-w.m * x.d, (float)(w.mn[0] * x.s[0] + w.mn[1] * x.s[1]), acc);
    if constexpr (S::OFFSET)
        acc = fmaf(w.m * x.d, (float)(x.s[0] + x.s[1]), acc);
    return acc;
}

/* Unit i of four rows for NT tokens. */
template <uint32_t TYPE, int LAYOUT, int NT>
static __device__ __forceinline__ void gemv_add_unit(float (&acc)[4][NT], const cuda_product &p,
                                                     const packed (&w)[4], uint32_t i,
                                                     uint32_t token)
{
    typedef unit_shape<TYPE> S;
    unit row[4];
#pragma unroll
    for (int r = 0; r < 4; r++)
        unpack<TYPE, LAYOUT>(row[r], w[r], i % S::UNITS);
#pragma unroll
    for (int t = 0; t < NT; t++) {
        gemv_act x;
        gemv_load_act<TYPE, LAYOUT>(x, p.act, gemv_x_row(p, token + t), i / S::UNITS, i % S::UNITS);
#pragma unroll
        for (int r = 0; r < 4; r++)
            acc[r][t] = gemv_add<TYPE>(acc[r][t], row[r], x);
    }
}

template <uint32_t TYPE, int LAYOUT, int NT>
static __global__ void __launch_bounds__(32 * GEMV_MAX_WARPS, GEMV_MIN_BLOCKS(NT))
    gemv_kernel(const cuda_product p)
{
    typedef unit_shape<TYPE> S;
    uint32_t token = p.first_tok + blockIdx.y * NT, expert;
    float acc[4][NT] = {};
    if (!gemv_expert(p, token, &expert))
        return;
    gemv_place at = gemv_here<LAYOUT>(p, expert, gemv_slots(p.k, UNIT_ELEMS));
    for (uint32_t pair = at.slot; 2 * pair < p.k / UNIT_ELEMS; pair += at.n_slots) {
        bool second = S::ELEMS != 32 || 2 * pair + 1 < p.k / UNIT_ELEMS;
        if constexpr (NT == 8 ||
                      (NT == 4 && LAYOUT == CUDA_ROWS)) { /* no registers to read ahead */
#pragma unroll 1
            for (uint32_t i = 2 * pair; i < 2 * pair + 1 + second; i++) {
                packed w[4];
                gemv_load<TYPE, LAYOUT>(w, p, at, i / S::UNITS, i % S::UNITS);
                gemv_add_unit<TYPE, LAYOUT, NT>(acc, p, w, i, token);
            }
        } else {
            packed w[2][4];
            gemv_load_pair<TYPE, LAYOUT>(w, p, at, 2 * pair, second);
            gemv_add_unit<TYPE, LAYOUT, NT>(acc, p, w[0], 2 * pair, token);
            if (second)
                gemv_add_unit<TYPE, LAYOUT, NT>(acc, p, w[1], 2 * pair + 1, token);
        }
    }
    gemv_finish<LAYOUT, NT>(p, at, token, acc);
}

/* ---------------------------------------------------------------- launching */

/* Launches kernel(p), NT tokens per block, however many tokens there are; `slots` of four rows. */
template <class KERNEL>
static cudaError_t gemv_launch(cudaStream_t s, KERNEL kernel, uint32_t nt, uint32_t slots,
                               int layout, const cuda_product &p)
{
    unsigned threads = 4 * (layout == CUDA_ROWS && slots < 32 ? 32 : slots);
    cuda_product part = p;
    for (; part.first_tok < p.n_tok; part.first_tok += 65535 * nt) {
        dim3 grid((unsigned)cuda_div_up(p.n_rows, GEMV_ROWS),
                  cuda_blocks_y(cuda_div_up(p.n_tok - part.first_tok, nt)));
        cudaError_t e = ATSI_LAUNCH(kernel, grid, dim3(threads), 0, s, part);
        if (e != cudaSuccess)
            return e;
        if (p.n_tok - part.first_tok <= 65535 * nt)
            break; /* first_tok must not wrap around */
    }
    return cudaSuccess;
}

template <uint32_t TYPE, int LAYOUT>
static cudaError_t gemv_of(cudaStream_t s, const cuda_product &p)
{
    if (p.n_tok == 1 || p.ids != NULL)
        return gemv_launch(s, gemv_kernel<TYPE, LAYOUT, 1>, 1, gemv_slots(p.k, UNIT_ELEMS), LAYOUT,
                           p);
    if (p.n_tok == 2)
        return gemv_launch(s, gemv_kernel<TYPE, LAYOUT, 2>, 2, gemv_slots(p.k, UNIT_ELEMS), LAYOUT,
                           p);
    if (p.n_tok <= 4)
        return gemv_launch(s, gemv_kernel<TYPE, LAYOUT, 4>, 4, gemv_slots(p.k, UNIT_ELEMS), LAYOUT,
                           p);
    return gemv_launch(s, gemv_kernel<TYPE, LAYOUT, 8>, 8, gemv_slots(p.k, UNIT_ELEMS), LAYOUT, p);
}

template <uint32_t TYPE>
static cudaError_t gemv_of_type(cudaStream_t s, int layout, const cuda_product &p)
{
    if (layout == CUDA_LOOSE_PANELS)
        return gemv_launch(s, gemv_kernel<TYPE, CUDA_LOOSE_PANELS, 1>, 1,
                           gemv_slots(p.k, UNIT_ELEMS), CUDA_LOOSE_PANELS, p);
    return layout == CUDA_PANELS ? gemv_of<TYPE, CUDA_PANELS>(s, p)
                                 : gemv_of<TYPE, CUDA_ROWS>(s, p);
}

#endif
