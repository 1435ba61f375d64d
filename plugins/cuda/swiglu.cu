/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_SWIGLU: gate and up lie in two tensors, or one behind the other in each run of one.
 * Results that products read next are rounded for them on the way. */
#include "grid.h"
#include "round.cuh"
#include "shape.h"

struct glu_args {
    const float *gate, *up;
    float *y;
    uint64_t n_runs;    /* of all rows */
    uint32_t run, step; /* elements of a run, and from run to run of the source */
    float alpha, limit;
};

/* Comparisons that let NaN through, unlike fminf. */
static __device__ inline float at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

template <bool CLAMPED>
static __device__ inline float glu(float gate, float up, float alpha, float limit)
{
    if (!CLAMPED)
        return cuda_silu(gate) * up;
    float g = at_most(gate, limit), u = at_most(up, limit);
    u = u < -limit ? -limit : u;
    return g / (1.0f + expf(-alpha * g)) * (u + 1.0f);
}

/* Blocks of a run along x, runs along y.  y may be the gate. */
template <bool CLAMPED>
static __global__ void swiglu_kernel(struct glu_args a)
{
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t r = blockIdx.y; r < a.n_runs; r += gridDim.y)
        for (uint32_t i = first; i < a.run; i += gridDim.x * blockDim.x)
            a.y[r * a.run + i] =
                glu<CLAMPED>(a.gate[r * a.step + i], a.up[r * a.step + i], a.alpha, a.limit);
}

/* 256 results to a warp; runs are multiples of 8. */
template <bool CLAMPED, uint32_t BLOCK>
static __global__ void __launch_bounds__(CUDA_THREADS)
    swiglu_round_kernel(struct glu_args a, const cuda_rounding to)
{
    uint64_t warp = ((uint64_t)blockIdx.x * CUDA_THREADS + threadIdx.x) / CUDA_WARP;
    uint64_t step = (uint64_t)gridDim.x * CUDA_THREADS / CUDA_WARP * ROUND_SPAN;
    uint64_t n = a.n_runs * a.run;
    for (uint64_t span = warp * ROUND_SPAN; span < n; span += step) {
        uint64_t at = span + threadIdx.x % CUDA_WARP * 8;
        bool inside = at < n; /* then all eight are, and in one run */
        uint64_t from = inside ? at / a.run * a.step + at % a.run : 0;
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = inside ? glu<CLAMPED>(a.gate[from + e], a.up[from + e], a.alpha, a.limit) : 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (inside)
                a.y[at + e] = v[e];
        round_store<BLOCK>(v, to, at, inside);
    }
}

template <bool CLAMPED>
static cudaError_t launch_rounding(const struct cuda_launch *l, const struct glu_args &a)
{
    struct cuda_rounding to =
        cuda_rounding_of(l, l->wanted.n_rows, (uint32_t)l->wanted.k, l->wanted.block);
    uint64_t spans = cuda_div_up(a.n_runs * a.run, ROUND_SPAN);
    dim3 grid(cuda_blocks(spans, CUDA_THREADS / CUDA_WARP)), block(CUDA_THREADS);
    cudaError_t e =
        l->wanted.block == 32
            ? ATSI_LAUNCH((swiglu_round_kernel<CLAMPED, 32>), grid, block, 0, l->stream, a, to)
            : ATSI_LAUNCH((swiglu_round_kernel<CLAMPED, 256>), grid, block, 0, l->stream, a, to);
    *l->rounded = {};
    if (e == cudaSuccess)
        *l->rounded = l->wanted;
    return e;
}

static int swiglu_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_SWIGLU))
        return 0;
    uint64_t width = cuda_width(op->dst[0]), groups = op->p.glu.n_group;
    bool clamped = op->p.glu.kind == ATSI_GLU_CLAMPED;
    if ((!clamped && op->p.glu.kind != ATSI_GLU_SILU) ||
        (clamped && !(isfinite(op->p.glu.alpha) && op->p.glu.limit >= 0)) ||
        !cuda_is_f32(op->dst[0], op, width))
        return 0;
    if (op->src[1] == NULL)
        return groups > 0 && width % groups == 0 && cuda_is_f32(op->src[0], op, 2 * width);
    return cuda_is_f32(op->src[0], op, width) && cuda_is_f32(op->src[1], op, width);
}

static struct glu_args swiglu_args(const struct atsi_op *op)
{
    bool halves = op->src[1] == NULL;
    uint64_t groups = halves ? op->p.glu.n_group : 1;
    struct glu_args a = {};
    a.run = (uint32_t)(op->dst[0]->ne[0] / groups);
    a.step = halves ? 2 * a.run : a.run;
    a.n_runs = op->n_rows * groups;
    a.gate = (const float *)op->src[0]->data;
    a.up = halves ? a.gate + a.run : (const float *)op->src[1]->data;
    a.y = (float *)op->dst[0]->data;
    a.alpha = op->p.glu.alpha;
    a.limit = op->p.glu.limit;
    return a;
}

static cudaError_t swiglu_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct glu_args a = swiglu_args(op);
    dim3 grid(cuda_blocks(a.run, CUDA_THREADS), cuda_blocks_y(a.n_runs));
    bool clamped = op->p.glu.kind == ATSI_GLU_CLAMPED;
    if (l->wanted.block != 0 && l->wanted.src == a.y && a.run % 8 == 0 &&
        l->wanted.n_rows * l->wanted.k == a.n_runs * a.run)
        return clamped ? launch_rounding<true>(l, a) : launch_rounding<false>(l, a);
    if (clamped)
        return ATSI_LAUNCH((swiglu_kernel<true>), grid, dim3(CUDA_THREADS), 0, l->stream, a);
    return ATSI_LAUNCH((swiglu_kernel<false>), grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_swiglu = {ATSI_OP_SWIGLU, swiglu_supports, cuda_no_scratch,
                                                  swiglu_launch};
