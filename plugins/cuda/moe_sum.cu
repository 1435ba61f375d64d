/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_MOE_SUM. */
#include "grid.h"
#include "launch.cuh"
#include "shape.h"

struct sum_args {
    const float *x, *weights; /* [n_rows][n_used][width], [n_rows][n_used] */
    float *y;
    uint32_t n_rows, n_used, width;
};

/* Blocks of a row along x, rows along y; the experts are added in order. */
static __global__ void moe_sum_kernel(struct sum_args a)
{
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t t = blockIdx.y; t < a.n_rows; t += gridDim.y)
        for (uint32_t i = first; i < a.width; i += gridDim.x * blockDim.x) {
            const float *x = a.x + t * a.n_used * a.width + i, *w = a.weights + t * a.n_used;
            float sum = 0;
            for (uint32_t j = 0; j < a.n_used; j++)
                sum = fmaf(w[j], x[(uint64_t)j * a.width], sum);
            a.y[t * a.width + i] = sum;
        }
}

static int moe_sum_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_MOE_SUM))
        return 0;
    uint64_t used = op->p.moe.n_used, width = cuda_width(op->dst[0]);
    return used > 0 && cuda_is_f32(op->dst[0], op, width) &&
           cuda_is_f32(op->src[0], op, used * width) && cuda_is_f32(op->src[1], op, used);
}

static cudaError_t moe_sum_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct sum_args a = {};
    a.x = (const float *)op->src[0]->data;
    a.weights = (const float *)op->src[1]->data;
    a.y = (float *)op->dst[0]->data;
    a.n_rows = op->n_rows;
    a.n_used = op->p.moe.n_used;
    a.width = (uint32_t)op->dst[0]->ne[0];
    dim3 grid(cuda_blocks(a.width, CUDA_THREADS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(moe_sum_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_moe_sum = {ATSI_OP_MOE_SUM, moe_sum_supports,
                                                   cuda_no_scratch, moe_sum_launch};
