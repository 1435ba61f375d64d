/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_ADD. */
#include "grid.h"
#include "launch.cuh"
#include "shape.h"

/* y may be a. */
static __global__ void add_kernel(const float *a, const float *b, float *y, uint64_t n)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = a[i] + b[i];
}

static int add_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    uint64_t width = 0;
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_ADD))
        return 0;
    width = cuda_width(op->dst[0]);
    return cuda_is_f32(op->src[0], op, width) && cuda_is_f32(op->src[1], op, width) &&
           cuda_is_f32(op->dst[0], op, width);
}

static cudaError_t add_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    uint64_t n = op->n_rows * op->dst[0]->ne[0];
    return ATSI_LAUNCH(add_kernel, dim3(cuda_blocks(n, CUDA_THREADS)), dim3(CUDA_THREADS), 0,
                       l->stream, (const float *)op->src[0]->data, (const float *)op->src[1]->data,
                       (float *)op->dst[0]->data, n);
}

extern "C" const struct cuda_op cuda_op_add = {ATSI_OP_ADD, add_supports, cuda_no_scratch,
                                               add_launch};
