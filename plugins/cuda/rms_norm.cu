/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_RMS_NORM.  A run is one warp's when it is short (heads), else one block's.
 *
 * Squares are summed in f32, in an order that the length alone decides; a sum that overflowed or is
 * so small that squares underflowed is computed again in double, as the CPU backends always do.
 *
 * Whole rows that products read next are rounded for them on the way.
 */
#include "grid.h"
#include "round.cuh"
#include "shape.h"

#define SHORT_RUN 1024u /* elements */
#define SHORT_WARPS 4u  /* runs of a block */
#define LONG_WARPS 16u  /* of a block, one run */

struct norm_args {
    const float *x, *weight;
    float *y;
    uint64_t n_runs;        /* of all rows */
    uint32_t n, per_row;    /* elements of a run, runs of a row */
    uint32_t width, stride; /* of a row of x, from run to run in it */
    float eps;
};

/* Sum over `WARPS` warps, the same in each thread. */
template <uint32_t WARPS, typename T>
static __device__ inline T team_sum(T x, T *part)
{
    x = cuda_warp_sum(x);
    if (WARPS == 1)
        return x;
    if (threadIdx.x % CUDA_WARP == 0)
        part[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    x = part[0];
    for (uint32_t w = 1; w < WARPS; w++)
        x += part[w];
    __syncthreads(); /* `part` is free again */
    return x;
}

/* What a run's elements are multiplied by; `first` is this thread's place among `step`. */
template <uint32_t WARPS>
static __device__ float norm_scale(const float *x, uint32_t n, float eps, uint32_t first)
{
    __shared__ float part[WARPS];
    __shared__ double part_exact[WARPS];
    const uint32_t step = WARPS * CUDA_WARP;
    float sum = 0;
    for (uint32_t i = first; i < n; i += step)
        sum = fmaf(x[i], x[i], sum);
    sum = team_sum<WARPS>(sum, part);
    if (cuda_squares_fit(sum))
        return 1.0f / sqrtf(sum / (float)n + eps);
    double exact = 0;
    for (uint32_t i = first; i < n; i += step)
        exact += (double)x[i] * (double)x[i];
    exact = team_sum<WARPS>(exact, part_exact);
    return (float)(1.0 / sqrt(exact / (double)n + (double)eps));
}

template <uint32_t WARPS, uint32_t RUNS>
static __global__ void rms_norm_kernel(struct norm_args a)
{
    uint32_t first = threadIdx.x % (WARPS * CUDA_WARP);
    uint64_t step = (uint64_t)gridDim.x * RUNS;
    for (uint64_t r = (uint64_t)blockIdx.x * RUNS + threadIdx.x / (WARPS * CUDA_WARP); r < a.n_runs;
         r += step) {
        const float *x = a.x + r / a.per_row * a.width + r % a.per_row * (uint64_t)a.stride;
        float scale = norm_scale<WARPS>(x, a.n, a.eps, first);
        for (uint32_t i = first; i < a.n; i += WARPS * CUDA_WARP)
            a.y[r * a.n + i] = x[i] * scale * a.weight[i];
    }
}

/* A block per row of a.n elements. */
template <uint32_t BLOCK>
static __global__ void __launch_bounds__(LONG_WARPS *CUDA_WARP)
    rms_round_kernel(struct norm_args a, const cuda_rounding to)
{
    for (uint64_t r = blockIdx.x; r < a.n_runs; r += gridDim.x) {
        const float *x = a.x + r * a.n;
        float scale = norm_scale<LONG_WARPS>(x, a.n, a.eps, threadIdx.x), v[8];
        for (uint32_t span = threadIdx.x / CUDA_WARP * ROUND_SPAN; span < a.n;
             span += LONG_WARPS * ROUND_SPAN) {
            uint32_t i = span + threadIdx.x % CUDA_WARP * 8;
            bool inside = i < a.n; /* then all eight are */
#pragma unroll
            for (int e = 0; e < 8; e++) {
                v[e] = inside ? x[i + e] * scale * a.weight[i + e] : 0.0f;
                if (inside)
                    a.y[r * a.n + i + e] = v[e];
            }
            round_store<BLOCK>(v, to, r * a.n + i, inside);
        }
    }
}

/* Whether the results will be wanted rounded, and whole rows are normalized by one block each. */
static bool rounds_too(const struct cuda_launch *l, const struct norm_args *a)
{
    return l->wanted.block != 0 && l->wanted.src == a->y && a->n == l->wanted.k &&
           a->n_runs == l->wanted.n_rows && a->per_row == 1 && a->width == a->n && a->n > SHORT_RUN;
}

static cudaError_t launch_rounding(const struct cuda_launch *l, const struct norm_args *a)
{
    struct cuda_rounding to =
        cuda_rounding_of(l, l->wanted.n_rows, (uint32_t)l->wanted.k, l->wanted.block);
    dim3 grid(cuda_blocks(a->n_runs, 1)), block(LONG_WARPS * CUDA_WARP);
    cudaError_t e = l->wanted.block == 32
                        ? ATSI_LAUNCH((rms_round_kernel<32>), grid, block, 0, l->stream, *a, to)
                        : ATSI_LAUNCH((rms_round_kernel<256>), grid, block, 0, l->stream, *a, to);
    *l->rounded = {};
    if (e == cudaSuccess)
        *l->rounded = l->wanted;
    return e;
}

static int rms_norm_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_RMS_NORM))
        return 0;
    uint64_t n = cuda_width(op->weight[0]), in = cuda_width(op->src[0]);
    uint64_t out = cuda_width(op->dst[0]), stride = op->p.norm.stride;
    if (n == 0 || out % n != 0 || !cuda_is_vector(op->weight[0], n) ||
        !cuda_is_f32(op->src[0], op, in) || !cuda_is_f32(op->dst[0], op, out))
        return 0;
    return stride == 0 ? in == out : stride >= n && cuda_runs_fit(out / n, stride, 0, n, in);
}

static cudaError_t rms_norm_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct norm_args a = {};
    a.x = (const float *)op->src[0]->data;
    a.weight = (const float *)op->weight[0]->data;
    a.y = (float *)op->dst[0]->data;
    a.n = (uint32_t)op->weight[0]->ne[0];
    a.per_row = (uint32_t)op->dst[0]->ne[0] / a.n;
    a.n_runs = (uint64_t)op->n_rows * a.per_row;
    a.width = (uint32_t)op->src[0]->ne[0];
    a.stride = op->p.norm.stride != 0 ? op->p.norm.stride : a.n;
    a.eps = op->p.norm.eps;
    if (rounds_too(l, &a))
        return launch_rounding(l, &a);
    if (a.n <= SHORT_RUN)
        return ATSI_LAUNCH((rms_norm_kernel<1, SHORT_WARPS>),
                           dim3(cuda_blocks(a.n_runs, SHORT_WARPS)), dim3(SHORT_WARPS * CUDA_WARP),
                           0, l->stream, a);
    return ATSI_LAUNCH((rms_norm_kernel<LONG_WARPS, 1>), dim3(cuda_blocks(a.n_runs, 1)),
                       dim3(LONG_WARPS * CUDA_WARP), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_rms_norm = {ATSI_OP_RMS_NORM, rms_norm_supports,
                                                    cuda_no_scratch, rms_norm_launch};
