/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_CONV.  A thread computes one channel of a stretch of rows.  Stretches are at least as
 * long as the state, so that the first one alone reads it, and moves it on in the end.
 */
#include "grid.h"
#include "math.cuh"
#include "shape.h"

#define CONV_ROWS 16u /* of a stretch, at least */

struct conv_args {
    const float *x, *weight; /* [n_rows][n_ch], [n_ch][n_tap] */
    float *y, *state;        /* state: [n_tap - 1][n_ch] */
    uint32_t n_rows, n_ch, n_tap, stretch;
};

/* Input number i of a channel, counted from the oldest row of the state. */
static __device__ inline float conv_input(const struct conv_args &a, uint64_t i, uint32_t ch)
{
    uint32_t kept = a.n_tap - 1;
    return i < kept ? a.state[i * a.n_ch + ch] : a.x[(i - kept) * a.n_ch + ch];
}

static __device__ float conv_sum(const struct conv_args &a, uint64_t t, uint32_t ch)
{
    const float *w = a.weight + (uint64_t)ch * a.n_tap;
    float sum = 0;
    for (uint32_t m = 0; m < a.n_tap; m++)
        sum = fmaf(w[m], conv_input(a, t + m, ch), sum);
    return sum;
}

/* Row i of the new state is input n_rows + i, which lies behind it. */
static __device__ void conv_move(const struct conv_args &a, uint32_t ch)
{
    for (uint32_t i = 0; i + 1 < a.n_tap; i++)
        a.state[(uint64_t)i * a.n_ch + ch] = conv_input(a, (uint64_t)a.n_rows + i, ch);
}

/* Channels along x, stretches of rows along y. */
static __global__ void conv_kernel(struct conv_args a)
{
    uint32_t ch = blockIdx.x * blockDim.x + threadIdx.x;
    if (ch >= a.n_ch)
        return;
    uint64_t step = (uint64_t)gridDim.y * a.stretch;
    for (uint64_t from = (uint64_t)blockIdx.y * a.stretch; from < a.n_rows; from += step)
        for (uint64_t t = from; t < a.n_rows && t < from + a.stretch; t++)
            a.y[t * a.n_ch + ch] = cuda_silu(conv_sum(a, t, ch));
    if (blockIdx.y == 0)
        conv_move(a, ch);
}

static int conv_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_CONV))
        return 0;
    uint64_t n_ch = cuda_width(op->src[0]), taps = cuda_width(op->weight[0]);
    return taps >= 2 && taps < CUDA_MAX_WIDTH && cuda_is_f32(op->src[0], op, n_ch) &&
           cuda_is_matrix(op->weight[0], taps, n_ch, 1) &&
           cuda_is_matrix(op->state, n_ch, taps - 1, 1) && cuda_is_f32(op->dst[0], op, n_ch);
}

static cudaError_t conv_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct conv_args a = {};
    a.x = (const float *)op->src[0]->data;
    a.weight = (const float *)op->weight[0]->data;
    a.y = (float *)op->dst[0]->data;
    a.state = (float *)op->state->data;
    a.n_rows = op->n_rows;
    a.n_ch = (uint32_t)op->src[0]->ne[0];
    a.n_tap = (uint32_t)op->weight[0]->ne[0];
    a.stretch = a.n_tap > CONV_ROWS ? a.n_tap - 1 : CONV_ROWS;
    dim3 grid(cuda_blocks(a.n_ch, CUDA_THREADS), cuda_blocks_y(cuda_div_up(a.n_rows, a.stretch)));
    return ATSI_LAUNCH(conv_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_conv = {ATSI_OP_CONV, conv_supports, cuda_no_scratch,
                                                conv_launch};
