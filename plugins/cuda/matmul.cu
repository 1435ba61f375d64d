/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_MATMUL and ATSI_OP_MATMUL_ID: which kernels serve which products.
 *
 *   up to GEMV_TOKENS tokens   gemv: a token's result is the same however many there are
 *   more                       gemm, on tensor cores but for F32
 *   exact activations          gemv_exact, floats as ever
 *   panels that start anywhere gemv, token by token
 *
 * Experts: up to GEMV_TOKENS rows walk their slots, each with the matrix its id names; more are
 * sorted by expert first.
 */
#include "grid.h"
#include "product.cuh"
#include "weight_shape.h"

/* Elements of a block that activations are rounded by; 0: they stay f32. */
static uint32_t block_of(const struct atsi_op *op)
{
    switch (atsi_type_info(op->weight[0]->type)->act) {
    case ATSI_ACT_Q8_32:
        return (op->flags & ATSI_OP_EXACT) != 0 ? 0 : 32;
    case ATSI_ACT_Q8_256:
        return (op->flags & ATSI_OP_EXACT) != 0 ? 0 : 256;
    default:
        return 0;
    }
}

static bool is_experts(const struct atsi_op *op)
{
    return op->kind == ATSI_OP_MATMUL_ID;
}

static uint64_t tokens_of(const struct atsi_op *op)
{
    return is_experts(op) ? (uint64_t)op->n_rows * op->p.moe.n_used : op->n_rows;
}

/* Rows of activations: one per row of the operation, or one per slot. */
static uint64_t x_rows_of(const struct atsi_op *op)
{
    return op->src[0]->ne[0] != op->weight[0]->ne[0] ? tokens_of(op) : op->n_rows;
}

/* Whether weights are read once per tile of tokens. */
static bool is_tiled(const struct atsi_op *op)
{
    bool exact_blocks = block_of(op) == 0 && !cuda_is_float_type(op->weight[0]->type);
    return op->n_rows > GEMV_TOKENS && !exact_blocks && !cuda_is_loose(op->weight[0]);
}

/* Whether halves meet halves, on tensor cores. */
static bool is_half_tiled(const struct cuda_device *dev, const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    uint64_t matrix = w->ne[2] > 1 ? w->ne[1] * w->row_bytes : 0;
    bool half = w->type == ATSI_TYPE_F16 || (w->type == ATSI_TYPE_BF16 && dev->sm >= 80);
    return half && is_tiled(op) && w->ne[0] % 8 == 0 && ((uintptr_t)w->data | matrix) % 16 == 0;
}

static uint64_t token_tiles(const struct atsi_op *op)
{
    return is_experts(op) ? cuda_route_tiles(tokens_of(op), op->weight[0]->ne[2])
                          : cuda_div_up(op->n_rows, GEMM_TOKENS);
}

/* Numbers of tokens and of blocks fit what kernels count them with. */
static bool fits(const struct atsi_op *op)
{
    uint64_t row_tiles = cuda_div_up(op->weight[0]->ne[1], 64);
    return tokens_of(op) <= INT32_MAX && token_tiles(op) <= INT32_MAX / row_tiles;
}

uint32_t cuda_product_rounds(const struct atsi_op *op, uint32_t *rows, uint32_t *k)
{
    *rows = (uint32_t)x_rows_of(op);
    *k = (uint32_t)op->weight[0]->ne[0];
    return block_of(op);
}

/* ---------------------------------------------------------------- launching */

static size_t act_bytes(const struct cuda_device *dev, const struct atsi_op *op)
{
    uint32_t block = block_of(op);
    if (is_half_tiled(dev, op))
        return cuda_halves_bytes(dev, x_rows_of(op), (uint32_t)op->weight[0]->ne[0]);
    return block != 0 ? cuda_act_bytes(x_rows_of(op), (uint32_t)op->weight[0]->ne[0], block) : 0;
}

static size_t product_scratch(const struct cuda_device *dev, const struct atsi_op *op)
{
    size_t bytes = act_bytes(dev, op);
    if (is_experts(op) && is_tiled(op))
        bytes += cuda_route_bytes((uint32_t)tokens_of(op), (uint32_t)op->weight[0]->ne[2]);
    return bytes;
}

/* The whole product, all rows in one layout. */
static cuda_product product_of(const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    cuda_product p = {};
    p.w = (const uint8_t *)w->data;
    p.row_bytes = w->row_bytes;
    p.matrix_bytes = w->ne[1] * w->row_bytes;
    p.n_rows = (uint32_t)w->ne[1];
    p.k = (uint32_t)w->ne[0];
    p.n_tok = (uint32_t)tokens_of(op);
    p.x = (const float *)op->src[0]->data;
    p.x_div = (uint32_t)(tokens_of(op) / x_rows_of(op));
    p.y = (float *)op->dst[0]->data;
    p.y_stride = w->ne[1];
    p.bias = op->weight[1] != NULL ? (const float *)op->weight[1]->data : NULL;
    p.bias_stride = (uint32_t)w->ne[1];
    if (is_experts(op)) {
        p.ids = (const int32_t *)op->src[1]->data;
        p.n_expert = (uint32_t)w->ne[2];
    }
    return p;
}

static cudaError_t multiply(const struct cuda_launch *l, const struct atsi_op *op, int layout,
                            const cuda_product &p, const struct cuda_halves &halves)
{
    uint32_t type = op->weight[0]->type, block = block_of(op);
    if (is_half_tiled(l->dev, op))
        return cuda_gemm_half(l, type, layout, p, halves);
    if (cuda_is_float_type(type))
        return is_tiled(op) ? cuda_gemm_float(l->stream, type, layout, p)
                            : cuda_gemv_float(l->stream, type, layout, p);
    if (block == 0)
        return cuda_gemv_exact(l->stream, type, layout, p);
    if (block == 32)
        return is_tiled(op) ? cuda_gemm_32(l->stream, l->dev, type, layout, p)
                            : cuda_gemv_32(l->stream, type, layout, p);
    return is_tiled(op) ? cuda_gemm_k(l->stream, l->dev, type, layout, p)
                        : cuda_gemv_k(l->stream, type, layout, p);
}

/* Panels first, then the rows that fill none. */
static cudaError_t multiply_parts(const struct cuda_launch *l, const struct atsi_op *op,
                                  const cuda_product &p, const struct cuda_halves &halves)
{
    uint32_t packed_rows = p.n_rows / ATSI_PANEL_ROWS * ATSI_PANEL_ROWS;
    cuda_product part = p;
    if (op->weight[0]->layout == ATSI_LAYOUT_ROWS)
        return multiply(l, op, CUDA_ROWS, p, halves);
    if (packed_rows != 0) {
        part.n_rows = packed_rows;
        int layout = cuda_is_loose(op->weight[0]) ? CUDA_LOOSE_PANELS : CUDA_PANELS;
        cudaError_t e = multiply(l, op, layout, part, halves);
        if (e != cudaSuccess || packed_rows == p.n_rows)
            return e;
    }
    part.n_rows = p.n_rows - packed_rows;
    part.w = p.w + packed_rows * p.row_bytes;
    part.y = p.y + packed_rows;
    part.bias = p.bias != NULL ? p.bias + packed_rows : NULL;
    return multiply(l, op, CUDA_ROWS, part, halves);
}

static cudaError_t product_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    cuda_product p = product_of(op);
    struct cuda_halves halves = {};
    cudaError_t e = cudaSuccess;
    if (l->scratch_bytes < product_scratch(l->dev, op) || !cuda_is_aligned(op->weight[0]))
        return cudaErrorInvalidValue;
    if (block_of(op) != 0)
        e = cuda_act_round(l, p.x, (uint32_t)x_rows_of(op), p.k, block_of(op), &p.act);
    else if (is_half_tiled(l->dev, op))
        e = cuda_halves_make(l, op->weight[0]->type, p.x, (uint32_t)x_rows_of(op), p.k, &halves);
    if (e == cudaSuccess && is_experts(op) && is_tiled(op)) {
        struct cuda_routing r;
        e = cuda_route(l->stream, p.ids, p.n_tok, p.n_expert,
                       (uint8_t *)l->scratch + act_bytes(l->dev, op), &r);
        p.tiles = r.tiles;
        p.slots = r.slots;
        p.n_tiles = r.n_tiles;
        p.max_tiles = r.max_tiles;
    }
    return e == cudaSuccess ? multiply_parts(l, op, p, halves) : e;
}

/* ---------------------------------------------------------------- what is supported */

static int matmul_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_MATMUL) || !cuda_is_weight(op->weight[0], false))
        return 0;
    const struct atsi_tensor *w = op->weight[0];
    return cuda_is_f32(op->src[0], op, w->ne[0]) && cuda_is_f32(op->dst[0], op, w->ne[1]) &&
           (op->weight[1] == NULL || cuda_is_vector(op->weight[1], w->ne[1])) && fits(op);
}

static int matmul_id_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_MATMUL_ID) || !cuda_is_weight(op->weight[0], true))
        return 0;
    const struct atsi_tensor *w = op->weight[0];
    uint64_t used = op->p.moe.n_used;
    return used > 0 &&
           (cuda_is_f32(op->src[0], op, w->ne[0]) ||
            cuda_is_f32(op->src[0], op, used * w->ne[0])) &&
           cuda_is_i32(op->src[1], op, used) && cuda_is_f32(op->dst[0], op, used * w->ne[1]) &&
           (op->weight[1] == NULL || cuda_is_vector(op->weight[1], w->ne[1] * w->ne[2])) &&
           fits(op);
}

extern "C" const struct cuda_op cuda_op_matmul = {ATSI_OP_MATMUL, matmul_supports, product_scratch,
                                                  product_launch};
extern "C" const struct cuda_op cuda_op_matmul_id = {ATSI_OP_MATMUL_ID, matmul_id_supports,
                                                     product_scratch, product_launch};
