/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many tokens with weights that are floats, without tensor cores: F32, and halves that
 * gemm_half.cu does not take.  f32 products and sums in order of the columns.  Each of 256 threads
 * computes 4 x 4 elements of a 64 x 64 tile, GEMM_DEPTH columns at a time.
 */
#include "floats.cuh"
#include "gemm.cuh"

#define GEMM_DEPTH 16u
#define GEMM_PAD 4u /* rows of the tiles in shared memory stay 16-byte aligned */

struct float_stage {
    float w[GEMM_DEPTH][GEMM_ROWS + GEMM_PAD], x[GEMM_DEPTH][GEMM_TOKENS + GEMM_PAD];
};

/* Eight columns of a row, one thread each: 64 rows x 2 runs. */
template <uint32_t TYPE>
static __device__ __forceinline__ void fill_row(float (*to)[GEMM_ROWS + GEMM_PAD], uint32_t i,
                                                const uint8_t *row, uint32_t c, uint32_t k,
                                                bool wide)
{
    float v[8] = {};
    if (c < k)
        float_row_8<TYPE>(v, row, c, k, wide);
#pragma unroll
    for (int j = 0; j < 8; j++)
        to[j][i] = v[j];
}

/* Threads 0..127 read the weight. */
template <uint32_t TYPE, int LAYOUT>
static __device__ __forceinline__ void fill_weight(float_stage &s, const cuda_product &p,
                                                   const gemm_tile &at, uint32_t c)
{
    if constexpr (LAYOUT == CUDA_ROWS) {
        uint32_t i = threadIdx.x / 2, run = threadIdx.x % 2 * 8;
        uint64_t r = at.row0 + i < p.n_rows ? at.row0 + i : p.n_rows - 1;
        fill_row<TYPE>(s.w + run, i, at.w + r * p.row_bytes, c + run, p.k, p.wide);
    } else {
        uint32_t quad = threadIdx.x % (GEMM_ROWS / 4), pair = threadIdx.x / (GEMM_ROWS / 4) * 2;
        uint32_t row = at.row0 + quad / 4 * ATSI_PANEL_ROWS;
        uint64_t panel = (row < p.n_rows ? row : p.n_rows - 1) / ATSI_PANEL_ROWS;
        const uint8_t *from = at.w + panel * ATSI_PANEL_ROWS * p.row_bytes;
        float v[2][4] = {};
        if constexpr (TYPE == ATSI_TYPE_F32) {
            if (c + pair < p.k)
                float_panel_1<TYPE, false>(v[0], from, 4 * (quad % 4), c + pair);
            if (c + pair + 1 < p.k)
                float_panel_1<TYPE, false>(v[1], from, 4 * (quad % 4), c + pair + 1);
        } else if (c + pair < p.k) {
            float_panel_2<TYPE, false>(v, from, 4 * (quad % 4), c + pair, p.k);
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            s.w[pair + i / 4][4 * quad + i % 4] = v[i / 4][i % 4];
    }
}

/* Threads 128..255 read the activations. */
static __device__ __forceinline__ void fill_tokens(float_stage &s, const cuda_product &p,
                                                   const uint32_t (&token)[GEMM_TOKENS], uint32_t c)
{
    uint32_t i = (threadIdx.x - 128) / 2, run = threadIdx.x % 2 * 8;
    const float *x = p.x + (uint64_t)(token[i] / p.x_div) * p.k;
    fill_row<ATSI_TYPE_F32>(s.x + run, i, (const uint8_t *)x, c + run, p.k, p.wide);
}

static __device__ __forceinline__ void multiply(float (&acc)[4][4], const float_stage &s,
                                                uint32_t row, uint32_t token)
{
#pragma unroll
    for (uint32_t c = 0; c < GEMM_DEPTH; c++) {
        float4 w = *(const float4 *)&s.w[c][row], x = *(const float4 *)&s.x[c][token];
        float ws[4] = {w.x, w.y, w.z, w.w}, xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 16; i++)
            acc[i / 4][i % 4] = fmaf(ws[i / 4], xs[i % 4], acc[i / 4][i % 4]);
    }
}

template <uint32_t TYPE, int LAYOUT>
static __global__ void __launch_bounds__(256) gemm_float_kernel(const cuda_product p)
{
    __shared__ __align__(16) float_stage s;
    __shared__ uint32_t token[GEMM_TOKENS];
    uint32_t row = threadIdx.x % 16 * 4, col = threadIdx.x / 16 * 4;
    float acc[4][4] = {};
    gemm_tile at;
    if (!gemm_here(p, at, GEMM_ROWS, GEMM_TOKENS))
        return;
    gemm_list_tokens(p, at, token, GEMM_TOKENS);
    for (uint32_t c = 0; c < p.k; c += GEMM_DEPTH) {
        if (threadIdx.x < 128)
            fill_weight<TYPE, LAYOUT>(s, p, at, c);
        else
            fill_tokens(s, p, token, c);
        __syncthreads();
        multiply(acc, s, row, col);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        gemm_store(p, at, token, col + i % 4, at.row0 + row + i / 4, acc[i / 4][i % 4]);
}

static dim3 gemm_float_grid(const cuda_product &p)
{
    return dim3((unsigned)gemm_blocks(p, GEMM_ROWS, GEMM_TOKENS));
}

template <uint32_t TYPE>
static cudaError_t gemm_float_of_type(cudaStream_t s, int layout, const cuda_product &p)
{
    if (layout == CUDA_PANELS)
        return ATSI_LAUNCH((gemm_float_kernel<TYPE, CUDA_PANELS>), gemm_float_grid(p), dim3(256), 0,
                           s, p);
    return ATSI_LAUNCH((gemm_float_kernel<TYPE, CUDA_ROWS>), gemm_float_grid(p), dim3(256), 0, s,
                       p);
}

cudaError_t cuda_gemm_float(cudaStream_t s, uint32_t type, int layout, const cuda_product &given)
{
    cuda_product p = given;
    p.wide = cuda_floats_wide(p);
    switch (type) {
    case ATSI_TYPE_F32:
        return gemm_float_of_type<ATSI_TYPE_F32>(s, layout, p);
    case ATSI_TYPE_F16:
        return gemm_float_of_type<ATSI_TYPE_F16>(s, layout, p);
    case ATSI_TYPE_BF16:
        return gemm_float_of_type<ATSI_TYPE_BF16>(s, layout, p);
    default:
        return cudaErrorNotSupported;
    }
}
