/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_GATE. */
#include "grid.h"
#include "math.cuh"
#include "shape.h"

struct gate_args {
    const float *x, *gate;
    float *y;
    uint64_t n_runs;              /* of all rows */
    uint32_t run, per_row;        /* elements of a run, runs of a row */
    uint32_t width, stride, step; /* of a row of `gate`, from run to run, from element to element */
};

/* Blocks of a run along x, runs along y. */
static __global__ void gate_kernel(struct gate_args a)
{
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint64_t r = blockIdx.y; r < a.n_runs; r += gridDim.y) {
        const float *gate = a.gate + r / a.per_row * a.width + r % a.per_row * (uint64_t)a.stride;
        for (uint32_t i = first; i < a.run; i += gridDim.x * blockDim.x)
            a.y[r * a.run + i] = a.x[r * a.run + i] / (1.0f + expf(-gate[(uint64_t)i * a.step]));
    }
}

static int gate_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_GATE))
        return 0;
    uint64_t width = cuda_width(op->src[0]), in = cuda_width(op->src[1]), run = op->p.gate.run;
    return run > 0 && width % run == 0 && op->p.gate.scalar <= 1 &&
           cuda_is_f32(op->src[0], op, width) && cuda_is_f32(op->src[1], op, in) &&
           cuda_is_f32(op->dst[0], op, width) &&
           cuda_runs_fit(width / run, op->p.gate.stride, op->p.gate.offset,
                         op->p.gate.scalar != 0 ? 1 : run, in);
}

static cudaError_t gate_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct gate_args a = {};
    a.x = (const float *)op->src[0]->data;
    a.gate = (const float *)op->src[1]->data + op->p.gate.offset;
    a.y = (float *)op->dst[0]->data;
    a.run = op->p.gate.run;
    a.per_row = (uint32_t)op->src[0]->ne[0] / a.run;
    a.n_runs = (uint64_t)op->n_rows * a.per_row;
    a.width = (uint32_t)op->src[1]->ne[0];
    a.stride = op->p.gate.stride;
    a.step = op->p.gate.scalar != 0 ? 0 : 1;
    dim3 grid(cuda_blocks(a.run, CUDA_THREADS), cuda_blocks_y(a.n_runs));
    return ATSI_LAUNCH(gate_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_gate = {ATSI_OP_GATE, gate_supports, cuda_no_scratch,
                                                gate_launch};
