/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_REGROUP. */
#include "grid.h"
#include "launch.cuh"
#include "shape.h"

struct regroup_args {
    const float *x;
    float *y;
    uint32_t n_rows, in, out; /* widths */
    uint32_t n_group, stride;
    uint32_t offset[ATSI_MAX_SEGMENTS], len[ATSI_MAX_SEGMENTS];
};

/* Where element i of a result row comes from. */
static __device__ uint32_t regroup_source(const struct regroup_args &a, uint32_t i)
{
    for (uint32_t s = 0; s < ATSI_MAX_SEGMENTS; s++) {
        uint32_t n = a.n_group * a.len[s];
        if (i < n)
            return i / a.len[s] * a.stride + a.offset[s] + i % a.len[s];
        i -= n;
    }
    return 0; /* not reached: i is below the sum of all lengths */
}

/* Blocks of a row along x, rows along y. */
static __global__ void regroup_kernel(struct regroup_args a)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.out;
         i += gridDim.x * blockDim.x) {
        uint32_t from = regroup_source(a, i);
        for (uint64_t t = blockIdx.y; t < a.n_rows; t += gridDim.y)
            a.y[t * a.out + i] = a.x[t * a.in + from];
    }
}

static int regroup_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_REGROUP))
        return 0;
    uint64_t groups = op->p.regroup.n_group, in = groups * op->p.regroup.stride, out = 0;
    uint32_t n = op->p.regroup.n_seg;
    if (groups == 0 || n == 0 || n > ATSI_MAX_SEGMENTS || !cuda_is_f32(op->src[0], op, in))
        return 0;
    for (uint32_t s = 0; s < n; s++) {
        uint64_t end = (uint64_t)op->p.regroup.offset[s] + op->p.regroup.len[s];
        if (op->p.regroup.len[s] == 0 || end > op->p.regroup.stride)
            return 0;
        out += op->p.regroup.len[s];
    }
    return out < CUDA_MAX_WIDTH && cuda_is_f32(op->dst[0], op, groups * out);
}

static cudaError_t regroup_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct regroup_args a = {};
    a.x = (const float *)op->src[0]->data;
    a.y = (float *)op->dst[0]->data;
    a.n_rows = op->n_rows;
    a.in = (uint32_t)op->src[0]->ne[0];
    a.out = (uint32_t)op->dst[0]->ne[0];
    a.n_group = op->p.regroup.n_group;
    a.stride = op->p.regroup.stride;
    for (uint32_t s = 0; s < op->p.regroup.n_seg; s++) {
        a.offset[s] = op->p.regroup.offset[s];
        a.len[s] = op->p.regroup.len[s];
    }
    dim3 grid(cuda_blocks(a.out, CUDA_THREADS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(regroup_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_regroup = {ATSI_OP_REGROUP, regroup_supports,
                                                   cuda_no_scratch, regroup_launch};
