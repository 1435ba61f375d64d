/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CPU backend accepts: kinds, types and shapes that agree with each other.  Everything a
 * kernel relies on is checked here, so that kernels need no checks.
 */
#include "backend.h"

static bool is_activation(const struct atsi_tensor *t, const struct atsi_op *op, uint64_t width,
                          uint32_t type)
{
    return t != NULL && t->type == type && t->layout == ATSI_LAYOUT_ROWS && t->ne[0] == width &&
           width > 0 && t->ne[1] >= op->n_rows && t->row_bytes == width * 4;
}

static bool is_f32(const struct atsi_tensor *t, const struct atsi_op *op, uint64_t width)
{
    return is_activation(t, op, width, ATSI_TYPE_F32);
}

static bool is_ids(const struct atsi_tensor *t, const struct atsi_op *op, uint64_t width)
{
    return is_activation(t, op, width, ATSI_TYPE_I32);
}

static uint64_t width(const struct atsi_tensor *t)
{
    return t != NULL ? t->ne[0] : 0;
}

static bool is_vector(const struct atsi_tensor *t, uint64_t n)
{
    uint64_t elems = 1;
    if (t == NULL || t->type != ATSI_TYPE_F32)
        return false;
    for (uint32_t d = 0; d < t->n_dims && d < 4; d++)
        elems *= t->ne[d];
    return elems == n;
}

/* A matrix or stack of matrices with whole blocks that the table has a kernel for. */
static bool is_weight(const struct cpu_kernels *k, const struct atsi_tensor *t, bool stack)
{
    if (t == NULL || atsi_type_info(t->type) == NULL || t->type == ATSI_TYPE_I32 ||
        t->layout != ATSI_LAYOUT_ROWS || t->n_dims < 1 || t->n_dims > (stack ? 3U : 2U))
        return false;
    return t->ne[0] > 0 && t->ne[0] < UINT32_MAX / 2 && t->ne[1] > 0 && t->ne[1] < UINT32_MAX / 2 &&
           t->row_bytes == atsi_row_bytes(t->type, t->ne[0]) && t->row_bytes != 0 &&
           k->gemm[t->type] != NULL && k->dequant[t->type] != NULL;
}

static bool good_embed(const struct cpu_kernels *k, const struct atsi_op *op)
{
    return is_weight(k, op->weight[0], false) && is_ids(op->src[0], op, 1) &&
           is_f32(op->dst[0], op, op->weight[0]->ne[0]);
}

static bool good_norm(const struct atsi_op *op)
{
    uint64_t n = width(op->weight[0]), w = width(op->src[0]);
    return n > 0 && w % n == 0 && is_vector(op->weight[0], n) && is_f32(op->src[0], op, w) &&
           is_f32(op->dst[0], op, w);
}

static bool good_matmul(const struct cpu_kernels *k, const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    return is_weight(k, w, false) && is_f32(op->src[0], op, w->ne[0]) &&
           is_f32(op->dst[0], op, w->ne[1]) &&
           (op->weight[1] == NULL || is_vector(op->weight[1], w->ne[1]));
}

static bool good_rope_table(const struct atsi_op *op)
{
    uint64_t half = width(op->weight[0]);
    return half > 0 && is_vector(op->weight[0], half) && is_ids(op->src[0], op, 1) &&
           is_f32(op->dst[0], op, 2 * half);
}

static bool good_rope(const struct atsi_op *op)
{
    uint64_t w = (uint64_t)op->p.rope.n_head * op->p.rope.head_dim;
    uint32_t n_rot = op->p.rope.n_rot;
    return n_rot > 0 && n_rot % 2 == 0 && n_rot <= op->p.rope.head_dim &&
           op->p.rope.mode <= ATSI_ROPE_HALVES && is_f32(op->src[0], op, w) &&
           is_f32(op->src[1], op, n_rot) && is_f32(op->dst[0], op, w);
}

static bool is_cache_type(uint32_t type)
{
    return type == ATSI_TYPE_F32 || type == ATSI_TYPE_F16;
}

static bool good_attn(const struct atsi_op *op)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t h = op->p.attn.n_head, hkv = op->p.attn.n_head_kv;
    if (kv == NULL || hkv == 0 || h == 0 || h % hkv != 0 || hkv != kv->n_head_kv)
        return false;
    return is_cache_type(kv->type_k) && is_cache_type(kv->type_v) && kv->head_dim_k > 0 &&
           kv->head_dim_v > 0 && op->p.attn.n_kv <= kv->n_ctx && op->p.attn.n_kv > 0 &&
           is_f32(op->src[0], op, (uint64_t)h * kv->head_dim_k) &&
           is_f32(op->src[1], op, (uint64_t)hkv * kv->head_dim_k) &&
           is_f32(op->src[2], op, (uint64_t)hkv * kv->head_dim_v) && is_ids(op->src[3], op, 1) &&
           is_f32(op->dst[0], op, (uint64_t)h * kv->head_dim_v);
}

static bool good_element_wise(const struct atsi_op *op)
{
    uint64_t w = width(op->src[0]);
    return is_f32(op->src[0], op, w) && is_f32(op->src[1], op, w) && is_f32(op->dst[0], op, w);
}

static bool good_topk(const struct atsi_op *op)
{
    uint64_t k = op->p.moe.n_used, n = width(op->src[0]);
    return k > 0 && k <= n && is_f32(op->src[0], op, n) && is_ids(op->dst[0], op, k) &&
           is_f32(op->dst[1], op, k);
}

static bool good_experts(const struct cpu_kernels *k, const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    uint64_t used = op->p.moe.n_used;
    if (used == 0 || !is_weight(k, w, true) || w->ne[2] == 0 || w->ne[2] > INT32_MAX)
        return false;
    return (is_f32(op->src[0], op, w->ne[0]) || is_f32(op->src[0], op, used * w->ne[0])) &&
           is_ids(op->src[1], op, used) && is_f32(op->dst[0], op, used * w->ne[1]) &&
           (op->weight[1] == NULL || is_vector(op->weight[1], w->ne[1] * w->ne[2]));
}

static bool good_moe_sum(const struct atsi_op *op)
{
    uint64_t used = op->p.moe.n_used, d = width(op->dst[0]);
    return used > 0 && is_f32(op->src[0], op, used * d) && is_f32(op->src[1], op, used) &&
           is_f32(op->dst[0], op, d);
}

int cpu_supports(const struct cpu_kernels *k, const struct atsi_op *op)
{
    if (op == NULL || op->struct_size < sizeof *op || op->n_rows == 0 ||
        (op->flags & ~ATSI_OP_EXACT) != 0)
        return 0;
    switch (op->kind) {
    case ATSI_OP_EMBED:
        return good_embed(k, op);
    case ATSI_OP_RMS_NORM:
        return good_norm(op);
    case ATSI_OP_MATMUL:
        return good_matmul(k, op);
    case ATSI_OP_ROPE_TABLE:
        return good_rope_table(op);
    case ATSI_OP_ROPE:
        return good_rope(op);
    case ATSI_OP_ATTN:
        return good_attn(op);
    case ATSI_OP_SWIGLU:
    case ATSI_OP_ADD:
        return good_element_wise(op);
    case ATSI_OP_TOPK:
        return good_topk(op);
    case ATSI_OP_MATMUL_ID:
        return good_experts(k, op);
    case ATSI_OP_MOE_SUM:
        return good_moe_sum(op);
    default:
        return 0;
    }
}
