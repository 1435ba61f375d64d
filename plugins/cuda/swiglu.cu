/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_SWIGLU: gate and up lie in two tensors, or one behind the other in each run of one. */
#include "grid.h"
#include "math.cuh"
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
    if (op->p.glu.kind == ATSI_GLU_CLAMPED)
        return ATSI_LAUNCH((swiglu_kernel<true>), grid, dim3(CUDA_THREADS), 0, l->stream, a);
    return ATSI_LAUNCH((swiglu_kernel<false>), grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_swiglu = {ATSI_OP_SWIGLU, swiglu_supports, cuda_no_scratch,
                                                  swiglu_launch};
