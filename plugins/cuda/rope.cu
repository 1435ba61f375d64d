/* SPDX-License-Identifier: Apache-2.0
 * ATSI_OP_ROPE: of one operation, or of two that turn by the same table (queries and keys); and
 * storing keys and values for the attention that follows. */
#include "attn_store.cuh"
#include "grid.h"
#include "shape.h"

#define ROPE_WARPS 8u

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
    /* Rounded one by one, whichever kernel this is part of. */
    y[ia] = __fmul_rn(u, c) - __fmul_rn(v, s);
    y[ib] = __fmul_rn(u, s) + __fmul_rn(v, c);
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

/* A head of one of the operations, by one warp. */
static __device__ void rope_head(const struct rope_args &a, uint32_t i, uint32_t head, uint32_t t,
                                 uint32_t lane)
{
    uint32_t n_head = i != 0 ? a.n_head[1] : a.n_head[0];
    uint64_t at = ((uint64_t)t * n_head + head) * a.head_dim;
    const float *x = (i != 0 ? a.x[1] : a.x[0]) + at, *table = a.table + (uint64_t)t * a.n_rot;
    float *y = (i != 0 ? a.y[1] : a.y[0]) + at;
    for (uint32_t u = lane; u < a.head_dim - a.n_rot / 2; u += CUDA_WARP)
        rope_unit(a, table, x, y, u);
}

/* A warp per head: of the rotations, where those of operation `keys` are stored as soon as they are
 * turned, then of the values.  Heads along x, rows along y. */
static __global__ void __launch_bounds__(ROPE_WARPS *CUDA_WARP)
    rope_store_kernel(struct rope_args a, struct store_args s, uint32_t keys)
{
    uint32_t lane = threadIdx.x % CUDA_WARP, turned = a.n_head[0] + a.n_head[1];
    for (uint32_t h = blockIdx.x * ROPE_WARPS + threadIdx.x / CUDA_WARP; h < turned + s.n_head_kv;
         h += gridDim.x * ROPE_WARPS)
        for (uint32_t t = blockIdx.y; t < a.n_rows; t += gridDim.y) {
            uint32_t i = h >= a.n_head[0] ? 1 : 0, head = h - (i != 0 ? a.n_head[0] : 0);
            if (h >= turned) {
                store_head(s, false, h - turned, t, lane);
                continue;
            }
            rope_head(a, i, head, t, lane);
            __syncwarp(); /* other lanes have turned what this one stores */
            if (i == keys)
                store_head(s, true, head, t, lane);
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

static cudaError_t launch_store(const struct cuda_launch *l, const struct rope_args &a)
{
    struct store_args s = store_args_of(l->store);
    uint64_t heads = (uint64_t)a.n_head[0] + a.n_head[1] + s.n_head_kv;
    dim3 grid(cuda_blocks(heads, ROPE_WARPS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(rope_store_kernel, grid, dim3(ROPE_WARPS * CUDA_WARP), 0, l->stream, a, s,
                       a.y[1] == s.k ? 1u : 0u);
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
    if (l->store != NULL)
        return launch_store(l, a);
    uint64_t units = ((uint64_t)a.n_head[0] + a.n_head[1]) * (a.head_dim - a.n_rot / 2);
    dim3 grid(cuda_blocks(units, CUDA_THREADS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(rope_kernel, grid, dim3(CUDA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_rope = {ATSI_OP_ROPE, rope_supports, cuda_no_scratch,
                                                rope_launch};
