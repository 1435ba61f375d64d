/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_ROPE: of one operation, or of two that turn by the same table (queries and keys). */
#include "grid.h"
#include "launch.cuh"
#include "shape.h"

struct rope_args {
    const float *x[2], *table;
    float *y[2];
    uint32_t n_head[2]; /* the second: 0 */
    uint32_t n_rows, head_dim, n_rot, mode;
};

/* One pair of a head, or one element behind the pairs.  y may be x: each element is read and
 * written by one thread. */
static __device__ void rope_unit(const struct rope_args &a, const float *table, const float *x,
                                 float *y, uint32_t i)
{
    uint32_t half = a.n_rot / 2;
    if (i >= half) {
        y[half + i] = x[half + i];
        return;
    }
    uint32_t ia = a.mode == ATSI_ROPE_PAIRS ? 2 * i : i;
    uint32_t ib = a.mode == ATSI_ROPE_PAIRS ? 2 * i + 1 : i + half;
    float u = x[ia], v = x[ib], c = table[i], s = table[half + i];
    y[ia] = u * c - v * s;
    y[ib] = u * s + v * c;
}

/* Units of all heads of a row along x, rows along y. */
static __global__ void rope_kernel(struct rope_args a)
{
    uint32_t units = a.head_dim - a.n_rot / 2;
    for (uint32_t u = blockIdx.x * blockDim.x + threadIdx.x;
         u < (a.n_head[0] + a.n_head[1]) * units; u += gridDim.x * blockDim.x) {
        uint32_t head = u / units, i = head >= a.n_head[0] ? 1 : 0;
        uint32_t n_head = i != 0 ? a.n_head[1] : a.n_head[0];
        const float *x = i != 0 ? a.x[1] : a.x[0];
        float *y = i != 0 ? a.y[1] : a.y[0];
        head -= i != 0 ? a.n_head[0] : 0;
        for (uint64_t t = blockIdx.y; t < a.n_rows; t += gridDim.y) {
            uint64_t at = (t * n_head + head) * a.head_dim;
            rope_unit(a, a.table + t * a.n_rot, x + at, y + at, u % units);
        }
    }
}

static int rope_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_ROPE))
        return 0;
    uint64_t width = (uint64_t)op->p.rope.n_head * op->p.rope.head_dim;
    uint32_t n_rot = op->p.rope.n_rot;
    return n_rot > 0 && n_rot % 2 == 0 && n_rot <= op->p.rope.head_dim &&
           op->p.rope.mode <= ATSI_ROPE_HALVES && cuda_is_f32(op->src[0], op, width) &&
           cuda_is_f32(op->src[1], op, n_rot) && cuda_is_f32(op->dst[0], op, width);
}

static cudaError_t rope_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    const struct atsi_op *ops[2] = {op, l->with};
    struct rope_args a = {};
    a.table = (const float *)op->src[1]->data;
    a.n_rows = op->n_rows;
    a.head_dim = op->p.rope.head_dim;
    a.n_rot = op->p.rope.n_rot;
    a.mode = op->p.rope.mode;
    for (int i = 0; i < 2 && ops[i] != NULL; i++) {
        a.x[i] = (const float *)ops[i]->src[0]->data;
        a.y[i] = (float *)ops[i]->dst[0]->data;
        a.n_head[i] = ops[i]->p.rope.n_head;
    }
    uint64_t units = ((uint64_t)a.n_head[0] + a.n_head[1]) * (a.head_dim - a.n_rot / 2);
    dim3 grid(cuda_blocks(units, CUDA_THREADS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(rope_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_rope = {ATSI_OP_ROPE, rope_supports, cuda_no_scratch,
                                                rope_launch};
