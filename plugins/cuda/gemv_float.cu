/* SPDX-License-Identifier: Apache-2.0
 * Products of few tokens with weights that are floats: f32 products and sums.  Units are 8 columns.
 */
#include "floats.cuh"
#include "gemv.cuh"

template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void float_rows(float (&w)[4][8], const cuda_product &p,
                                                  const gemv_place &at, uint32_t c)
{
    if constexpr (LAYOUT == CUDA_ROWS) {
        uint32_t row = blockIdx.x * GEMV_ROWS + at.row;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t r = row + i < p.n_rows ? row + i : p.n_rows - 1;
            float_row_8<TYPE>(w[i], at.w + r * p.row_bytes, c, p.k, p.wide);
        }
    } else {
        float_panel_8<TYPE, LAYOUT == CUDA_LOOSE_PANELS>(
            w, at.w + (uint64_t)blockIdx.x * ATSI_PANEL_ROWS * p.row_bytes, at.row, c, p.k);
    }
}

/* Columns c .. c + 7 of four rows for NT tokens. */
template <int NT>
static __device__ __forceinline__ void float_add(float (&acc)[4][NT], const cuda_product &p,
                                                 const float (&w)[4][8], uint32_t c, uint32_t token)
{
#pragma unroll
    for (int t = 0; t < NT; t++) {
        float x[8];
        float_row_8<ATSI_TYPE_F32>(x, (const uint8_t *)(p.x + gemv_x_row(p, token + t) * p.k), c,
                                   p.k, p.wide);
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                acc[r][t] = fmaf(w[r][i], x[i], acc[r][t]);
    }
}

template <uint32_t TYPE, int LAYOUT, int NT>
static __global__ void __launch_bounds__(32 * GEMV_MAX_WARPS, GEMV_MIN_BLOCKS(NT))
    float_kernel(const cuda_product p)
{
    uint32_t token = p.first_tok + blockIdx.y * NT, expert;
    float acc[4][NT] = {};
    if (!gemv_expert(p, token, &expert))
        return;
    gemv_place at = gemv_here<LAYOUT>(p, expert, gemv_slots(p.k, 8));
    uint64_t step = 8 * (uint64_t)at.n_slots;
    for (uint64_t c = 8 * (uint64_t)at.slot; c < p.k; c += 2 * step) {
        bool second = c + step < p.k;
        float w[2][4][8];
        float_rows<TYPE, LAYOUT>(w[0], p, at, (uint32_t)c);
        if (second)
            float_rows<TYPE, LAYOUT>(w[1], p, at, (uint32_t)(c + step));
        float_add<NT>(acc, p, w[0], (uint32_t)c, token);
        if (second)
            float_add<NT>(acc, p, w[1], (uint32_t)(c + step), token);
    }
    gemv_finish<LAYOUT, NT>(p, at, token, acc);
}

template <uint32_t TYPE, int LAYOUT>
static cudaError_t float_of(cudaStream_t s, const cuda_product &p)
{
    if (p.n_tok == 1 || p.ids != NULL)
        return gemv_launch(s, float_kernel<TYPE, LAYOUT, 1>, 1, gemv_slots(p.k, 8), LAYOUT, p);
    if (p.n_tok == 2)
        return gemv_launch(s, float_kernel<TYPE, LAYOUT, 2>, 2, gemv_slots(p.k, 8), LAYOUT, p);
    if (p.n_tok <= 4)
        return gemv_launch(s, float_kernel<TYPE, LAYOUT, 4>, 4, gemv_slots(p.k, 8), LAYOUT, p);
    return gemv_launch(s, float_kernel<TYPE, LAYOUT, 8>, 8, gemv_slots(p.k, 8), LAYOUT, p);
}

template <uint32_t TYPE>
static cudaError_t float_of_type(cudaStream_t s, int layout, const cuda_product &p)
{
    if (layout == CUDA_LOOSE_PANELS)
        return gemv_launch(s, float_kernel<TYPE, CUDA_LOOSE_PANELS, 1>, 1, gemv_slots(p.k, 8),
                           CUDA_LOOSE_PANELS, p);
    return layout == CUDA_PANELS ? float_of<TYPE, CUDA_PANELS>(s, p)
                                 : float_of<TYPE, CUDA_ROWS>(s, p);
}

cudaError_t cuda_gemv_float(cudaStream_t s, uint32_t type, int layout, const cuda_product &given)
{
    cuda_product p = given;
    p.wide = cuda_floats_wide(p);
    switch (type) {
    case ATSI_TYPE_F32:
        return float_of_type<ATSI_TYPE_F32>(s, layout, p);
    case ATSI_TYPE_F16:
        return float_of_type<ATSI_TYPE_F16>(s, layout, p);
    case ATSI_TYPE_BF16:
        return float_of_type<ATSI_TYPE_BF16>(s, layout, p);
    default:
        return cudaErrorNotSupported;
    }
}
