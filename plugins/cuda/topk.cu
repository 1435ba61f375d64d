/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_TOPK: one warp per row; for rows as long as a vocabulary many blocks (topk_wide.cuh), or,
 * where there are many such rows, one block, each warp of which looks for the next key of its part
 * whenever its last one was taken.
 *
 * Logits and their ids make keys that are all different: larger logit first, then lower id, NaN
 * last.  The next of the selected is the largest key below the one before, so nothing is kept but
 * that key, and any input gives ids in range.
 */
#include "shape.h"
#include "topk_wide.cuh"

#define TOPK_WARPS 4u   /* rows of a block */
#define TOPK_LONG 8192u /* logits from which a row is a block's */
#define TOPK_PARTS 32u  /* warps of such a block */

struct topk_args {
    const float *logits;
    int32_t *ids;
    float *weights;
    uint32_t n_rows, n, n_used, gating;
};

/* The largest key of logits [from, to) below `limit`. */
static __device__ uint64_t next_key(const float *logits, uint32_t from, uint32_t to, uint64_t limit,
                                    uint32_t lane)
{
    uint64_t best = 0; /* below all: the low half of a key is never 0, ids being below 2^31 */
    for (uint32_t i = from + lane; i < to; i += CUDA_WARP) {
        uint64_t key = logit_key(logits[i], i);
        if (key < limit && key > best)
            best = key;
    }
    return warp_max_key(best);
}

/* Lane j % 32 owns place j of ids and weights, so that what it reads it wrote itself. */
static __device__ void select_ids(const struct topk_args &a, uint64_t row, uint32_t lane)
{
    uint64_t key = ~(uint64_t)0;
    for (uint32_t j = 0; j < a.n_used; j++) {
        key = next_key(a.logits + row * a.n, 0, a.n, key, lane);
        if (lane == j % CUDA_WARP)
            a.ids[row * a.n_used + j] = (int32_t)key_id(key);
    }
}

static __device__ float selected_exp(const struct topk_args &a, uint64_t row, uint32_t j, float top)
{
    return expf(a.logits[row * a.n + (uint32_t)a.ids[row * a.n_used + j]] - top);
}

/* The logits as they are. */
static __device__ void copy_selected(const struct topk_args &a, uint64_t row, uint32_t lane)
{
    for (uint32_t j = lane; j < a.n_used; j += CUDA_WARP)
        a.weights[row * a.n_used + j] = a.logits[row * a.n + (uint32_t)a.ids[row * a.n_used + j]];
}

/* Softmax over all, then the selected are divided by their sum, or by 2^-14 when that is less; or
 * softmax over the selected. */
static __device__ void weigh(const struct topk_args &a, uint64_t row, float top, uint32_t lane)
{
    bool of_all = a.gating == ATSI_GATING_SOFTMAX;
    float *w = a.weights + row * a.n_used, sum = 0, selected = 0;
    if (a.gating == ATSI_GATING_NONE) {
        copy_selected(a, row, lane);
        return;
    }
    for (uint32_t i = lane; of_all && i < a.n; i += CUDA_WARP)
        sum += expf(a.logits[row * a.n + i] - top);
    for (uint32_t j = lane; !of_all && j < a.n_used; j += CUDA_WARP)
        sum += selected_exp(a, row, j, top);
    sum = cuda_warp_sum(sum);
    for (uint32_t j = lane; j < a.n_used; j += CUDA_WARP) {
        w[j] = selected_exp(a, row, j, top) / sum;
        selected += w[j];
    }
    if (!of_all)
        return;
    selected = cuda_warp_sum(selected);
    /* Not fmaxf: NaN stays. */
    selected = selected < 6.103515625e-5f ? 6.103515625e-5f : selected;
    for (uint32_t j = lane; j < a.n_used; j += CUDA_WARP)
        w[j] /= selected;
}

static __global__ void topk_kernel(struct topk_args a)
{
    uint32_t lane = threadIdx.x % CUDA_WARP;
    uint64_t step = (uint64_t)gridDim.x * TOPK_WARPS;
    for (uint64_t row = (uint64_t)blockIdx.x * TOPK_WARPS + threadIdx.x / CUDA_WARP; row < a.n_rows;
         row += step) {
        uint64_t best = next_key(a.logits + row * a.n, 0, a.n, ~(uint64_t)0, lane);
        select_ids(a, row, lane);
        weigh(a, row, a.logits[row * a.n + key_id(best)], lane);
    }
}

/* A block per row. */
static __global__ void __launch_bounds__(TOPK_PARTS *CUDA_WARP) topk_long_kernel(struct topk_args a)
{
    __shared__ uint64_t part[TOPK_PARTS];
    uint32_t lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    uint32_t size = (a.n + TOPK_PARTS - 1) / TOPK_PARTS, from = warp * size;
    uint32_t to = from + size < a.n ? from + size : a.n;
    for (uint64_t row = blockIdx.x; row < a.n_rows; row += gridDim.x) {
        const float *logits = a.logits + row * a.n;
        uint64_t mine = next_key(logits, from, to, ~(uint64_t)0, lane), first = 0;
        for (uint32_t j = 0; j < a.n_used; j++) {
            if (lane == 0)
                part[warp] = mine;
            __syncthreads();
            uint64_t best = warp_max_key(part[lane]);
            __syncthreads(); /* `part` is free again */
            first = j == 0 ? best : first;
            if (warp == 0 && lane == j % CUDA_WARP)
                a.ids[row * a.n_used + j] = (int32_t)key_id(best);
            if (mine == best)
                mine = next_key(logits, from, to, best, lane);
        }
        if (warp == 0)
            weigh(a, row, logits[key_id(first)], lane);
    }
}

/* Behind the launch that finds each part's largest; weights by the first warp. */
static __global__ void __launch_bounds__(WIDE_MERGE)
    topk_merge_kernel(struct topk_args a, struct wide_args w)
{
    __shared__ struct wide_shared s;
    __shared__ uint64_t sorted[WIDE_MOST];
    uint64_t row = blockIdx.x;
    wide_merge(w, row, sorted, &s);
    for (uint32_t j = threadIdx.x; j < a.n_used; j += WIDE_MERGE)
        a.ids[row * a.n_used + j] = (int32_t)key_id(sorted[j]);
    __syncthreads();
    if (threadIdx.x < CUDA_WARP)
        weigh(a, row, a.logits[row * a.n + key_id(sorted[0])], threadIdx.x);
}

static bool is_wide(const struct atsi_op *op)
{
    return op->src[0]->ne[0] >= TOPK_LONG && op->n_rows <= WIDE_ROWS &&
           op->p.moe.n_used <= WIDE_MOST;
}

static uint32_t wide_parts(const struct atsi_op *op)
{
    return (uint32_t)cuda_div_up(op->src[0]->ne[0], WIDE_PART);
}

static size_t topk_scratch(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    return is_wide(op) ? (size_t)op->n_rows * wide_parts(op) * op->p.moe.n_used * sizeof(uint64_t)
                       : 0;
}

static cudaError_t launch_wide(const struct cuda_launch *l, const struct atsi_op *op,
                               const struct topk_args &a)
{
    struct wide_args w = {a.logits, (uint64_t *)l->scratch, a.n, a.n_used, wide_parts(op)};
    cudaError_t e =
        ATSI_LAUNCH(wide_part_kernel, dim3(w.parts, a.n_rows), dim3(WIDE_THREADS), 0, l->stream, w);
    if (e != cudaSuccess)
        return e;
    return ATSI_LAUNCH(topk_merge_kernel, dim3(a.n_rows), dim3(WIDE_MERGE), 0, l->stream, a, w);
}

static int topk_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_TOPK))
        return 0;
    uint64_t used = op->p.moe.n_used, n = cuda_width(op->src[0]);
    return used > 0 && used <= n && op->p.moe.gating <= ATSI_GATING_NONE &&
           cuda_is_f32(op->src[0], op, n) && cuda_is_i32(op->dst[0], op, used) &&
           cuda_is_f32(op->dst[1], op, used);
}

static cudaError_t topk_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct topk_args a = {};
    a.logits = (const float *)op->src[0]->data;
    a.ids = (int32_t *)op->dst[0]->data;
    a.weights = (float *)op->dst[1]->data;
    a.n_rows = op->n_rows;
    a.n = (uint32_t)op->src[0]->ne[0];
    a.n_used = op->p.moe.n_used;
    a.gating = op->p.moe.gating;
    if (is_wide(op))
        return launch_wide(l, op, a);
    if (a.n >= TOPK_LONG)
        return ATSI_LAUNCH(topk_long_kernel, dim3(cuda_blocks(a.n_rows, 1)),
                           dim3(TOPK_PARTS * CUDA_WARP), 0, l->stream, a);
    return ATSI_LAUNCH(topk_kernel, dim3(cuda_blocks(a.n_rows, TOPK_WARPS)),
                       dim3(TOPK_WARPS * CUDA_WARP), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_topk = {ATSI_OP_TOPK, topk_supports, topk_scratch,
                                                topk_launch};
