/* SPDX-License-Identifier: Apache-2.0
 *
 * Block types with exact activations (ATSI_OP_EXACT), for tests and comparisons: weights become
 * floats as dequantization makes them, and products are f32.  One token per block, however many.
 */
#include "gemv.cuh"

/* One run of 16 elements. */
template <uint32_t TYPE>
static __device__ __forceinline__ float exact_run(float acc, const unit &w, int run, const float *x)
{
    run_scale s = run_scale_of<TYPE>(w, run);
#pragma unroll
    for (int i = 0; i < 16; i++)
        acc = fmaf(run_value<TYPE>(w, s, run, i), x[i], acc);
    return acc;
}

template <uint32_t TYPE, int LAYOUT>
static __global__ void __launch_bounds__(32 * GEMV_MAX_WARPS) exact_kernel(const cuda_product p)
{
    typedef unit_shape<TYPE> S;
    uint32_t token = p.first_tok + blockIdx.y, expert;
    float acc[4][1] = {};
    if (!gemv_expert(p, token, &expert))
        return;
    gemv_place at = gemv_here<LAYOUT>(p, expert, gemv_slots(p.k, UNIT_ELEMS));
    const float *x = p.x + gemv_x_row(p, token) * p.k;
    for (uint32_t i = at.slot; i < p.k / UNIT_ELEMS; i += at.n_slots) {
        uint32_t block = i / S::UNITS, u = i % S::UNITS;
        packed w[4];
        gemv_load<TYPE, LAYOUT>(w, p, at, block, u);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            unit row;
            unpack<TYPE, LAYOUT>(row, w[r], u);
#pragma unroll
            for (int run = 0; run < 2; run++)
                acc[r][0] = exact_run<TYPE>(acc[r][0], row, run,
                                            x + (uint64_t)block * S::ELEMS +
                                                unit_run<TYPE, LAYOUT>(u, run));
        }
    }
    gemv_finish<LAYOUT, 1>(p, at, token, acc);
}

template <uint32_t TYPE>
static cudaError_t exact_of_type(cudaStream_t s, int layout, const cuda_product &p)
{
    if (layout == CUDA_LOOSE_PANELS)
        return gemv_launch(s, exact_kernel<TYPE, CUDA_LOOSE_PANELS>, 1, gemv_slots(p.k, UNIT_ELEMS),
                           CUDA_LOOSE_PANELS, p);
    return layout == CUDA_PANELS ? gemv_launch(s, exact_kernel<TYPE, CUDA_PANELS>, 1,
                                               gemv_slots(p.k, UNIT_ELEMS), CUDA_PANELS, p)
                                 : gemv_launch(s, exact_kernel<TYPE, CUDA_ROWS>, 1,
                                               gemv_slots(p.k, UNIT_ELEMS), CUDA_ROWS, p);
}

cudaError_t cuda_gemv_exact(cudaStream_t s, uint32_t type, int layout, const cuda_product &p)
{
#define ONE(type)                                                                                  \
    case type:                                                                                     \
        return exact_of_type<type>(s, layout, p)
    switch (type) {
        CUDA_EACH_BLOCK_TYPE(ONE);
    default:
        return cudaErrorNotSupported;
    }
#undef ONE
}
