/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_ROPE_TABLE.  Angles in double, as the CPU backends compute them: a position times a
 * frequency may be large, and f32 would lose the phase.  There are few of them, once a round.
 */
#include "grid.h"
#include "launch.cuh"
#include "shape.h"

#define TABLE_THREADS 64 /* pairs of a head: 32 or 64 */

struct table_args {
    const int32_t *position;
    const float *freq;
    float *y;
    uint32_t n_rows, half;
    float magnitude;
};

/* Frequencies along x, rows along y. */
static __global__ void rope_table_kernel(struct table_args a)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.half;
         i += gridDim.x * blockDim.x)
        for (uint64_t t = blockIdx.y; t < a.n_rows; t += gridDim.y) {
            double angle = (double)a.position[t] * (double)a.freq[i];
            float *y = a.y + t * 2 * a.half + i;
            y[0] = (float)cos(angle) * a.magnitude;
            y[a.half] = (float)sin(angle) * a.magnitude;
        }
}

static int rope_table_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_ROPE_TABLE))
        return 0;
    uint64_t half = cuda_width(op->weight[0]);
    return half > 0 && cuda_is_vector(op->weight[0], half) && cuda_is_i32(op->src[0], op, 1) &&
           cuda_is_f32(op->dst[0], op, 2 * half);
}

static cudaError_t rope_table_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct table_args a = {};
    a.position = (const int32_t *)op->src[0]->data;
    a.freq = (const float *)op->weight[0]->data;
    a.y = (float *)op->dst[0]->data;
    a.n_rows = op->n_rows;
    a.half = (uint32_t)op->weight[0]->ne[0];
    a.magnitude = op->p.rope.magnitude;
    dim3 grid(cuda_blocks(a.half, TABLE_THREADS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(rope_table_kernel, grid, dim3(TABLE_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_rope_table = {ATSI_OP_ROPE_TABLE, rope_table_supports,
                                                      cuda_no_scratch, rope_table_launch};
