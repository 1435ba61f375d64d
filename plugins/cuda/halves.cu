/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations as halves (halves.h).  Rows for f16 are scaled by a power of two so that their
 * largest element is between 2^14 and 2^15: nothing overflows, and what becomes too small to keep
 * is so beside that one.  bf16 has the range of f32.
 */
#include "halves.h"

#include "grid.h"
#include "rounded.h"
#include "split_half.cuh"

#define HALVES_THREADS 256u
#define HALVES_WARPS (HALVES_THREADS / CUDA_WARP)

struct halves_args {
    const float *x;
    uint16_t *term[2];
    float *factor;
    uint32_t rows, k;
};

/* The largest magnitude of a row; NaN is passed over. */
static __device__ float row_max(const float *x, uint32_t k)
{
    __shared__ float part[HALVES_WARPS];
    float most = 0;
    for (uint32_t i = threadIdx.x; i < k; i += HALVES_THREADS)
        most = fmaxf(most, fabsf(x[i]));
    most = cuda_warp_max(most);
    if (threadIdx.x % CUDA_WARP == 0)
        part[threadIdx.x / CUDA_WARP] = most;
    __syncthreads();
    for (uint32_t i = 0; i < HALVES_WARPS; i++)
        most = fmaxf(most, part[i]);
    __syncthreads(); /* `part` is free again */
    return most;
}

/* A block per row.  k is a multiple of 8: two elements to a thread. */
template <bool BF16>
static __global__ void __launch_bounds__(HALVES_THREADS) halves_kernel(const struct halves_args a)
{
    for (uint32_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = a.x + (uint64_t)row * a.k;
        cuda_scaling s = {1.0f, 1.0f};
        if (!BF16)
            s = cuda_scaling_of(row_max(x, a.k));
        if (!BF16 && threadIdx.x == 0)
            a.factor[row] = s.factor;
        for (uint32_t i = 2 * threadIdx.x; i < a.k; i += 2 * HALVES_THREADS) {
            uint64_t at = (uint64_t)row * a.k + i;
            uint16_t first[2], second[2];
            cuda_split_half<BF16>(x[i] * s.scale, &first[0], &second[0]);
            cuda_split_half<BF16>(x[i + 1] * s.scale, &first[1], &second[1]);
            *(uint32_t *)(void *)(a.term[0] + at) = first[0] | (uint32_t)first[1] << 16;
            if (a.term[1] != NULL)
                *(uint32_t *)(void *)(a.term[1] + at) = second[0] | (uint32_t)second[1] << 16;
        }
    }
}

static uint64_t up_256(uint64_t n)
{
    return (n + 255) / 256 * 256;
}

size_t cuda_halves_bytes(const struct cuda_device *dev, uint64_t rows, uint32_t k)
{
    uint32_t terms = dev->fast_half ? 1 : 2;
    return (size_t)(terms * up_256(rows * k * sizeof(uint16_t)) + up_256(rows * sizeof(float)));
}

cudaError_t cuda_halves_make(const struct cuda_launch *l, uint32_t type, const float *x,
                             uint32_t rows, uint32_t k, struct cuda_halves *out)
{
    bool bf16 = type == ATSI_TYPE_BF16;
    struct cuda_rounded *have = l->rounded;
    uint32_t kind = bf16 ? CUDA_ROUNDED_BF16 : CUDA_ROUNDED_F16;
    uint64_t bytes = up_256((uint64_t)rows * k * sizeof(uint16_t));
    uint8_t *at = (uint8_t *)l->scratch + up_256(rows * sizeof(float));
    struct halves_args a = {x, {}, (float *)l->scratch, rows, k};
    a.term[0] = (uint16_t *)(void *)at;
    a.term[1] = l->dev->fast_half ? NULL : (uint16_t *)(void *)(at + bytes);
    *out = {{a.term[0], a.term[1]}, bf16 ? NULL : a.factor};
    if (have->src == x && have->block == kind && have->n_rows == rows && have->k == k)
        return cudaSuccess;
    have->src = NULL;
    dim3 grid(cuda_blocks(rows, 1));
    cudaError_t e =
        bf16 ? ATSI_LAUNCH((halves_kernel<true>), grid, dim3(HALVES_THREADS), 0, l->stream, a)
             : ATSI_LAUNCH((halves_kernel<false>), grid, dim3(HALVES_THREADS), 0, l->stream, a);
    if (e == cudaSuccess)
        *have = {x, kind, rows, k};
    return e;
}
