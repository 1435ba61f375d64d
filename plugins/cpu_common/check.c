/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CPU backend accepts: kinds, types and shapes that agree with each other.  Everything a
 * kernel relies on is checked here, so that kernels need no checks.
 */
#include "backend.h"

#include <math.h>

/* No row and no matrix is larger: products of two such numbers fit 64 bits. */
#define MAX_WIDTH (UINT32_MAX / 2)
/* Of one worker, far beyond any memory. */
#define MAX_SCORES (UINT64_C(1) << 56)

static bool is_activation(const struct atsi_tensor *t, const struct atsi_op *op, uint64_t width,
                          uint32_t type)
{
    return t != NULL && t->type == type && t->layout == ATSI_LAYOUT_ROWS && t->ne[0] == width &&
           width > 0 && width < MAX_WIDTH && t->ne[1] >= op->n_rows && t->row_bytes == width * 4;
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
    if (t == NULL || t->type != ATSI_TYPE_F32 || t->layout != ATSI_LAYOUT_ROWS)
        return false;
    for (uint32_t d = 0; d < t->n_dims && d < 4; d++)
        elems *= t->ne[d];
    return elems == n;
}

/* A dense f32 matrix {ne0, ne1}. */
static bool is_matrix(const struct atsi_tensor *t, uint64_t ne0, uint64_t ne1)
{
    return t != NULL && t->type == ATSI_TYPE_F32 && t->layout == ATSI_LAYOUT_ROWS &&
           t->n_dims <= 4 && t->ne[0] == ne0 && t->ne[1] == ne1 && t->row_bytes == ne0 * 4;
}

static bool is_known_layout(const struct cpu_kernels *k, const struct atsi_tensor *t)
{
    return t->layout == ATSI_LAYOUT_ROWS ||
           (t->layout == ATSI_LAYOUT_PANELS && k->gemm_panel[t->type] != NULL);
}

/* A matrix or stack of matrices with whole blocks that the table has a kernel for. */
static bool is_weight(const struct cpu_kernels *k, const struct atsi_tensor *t, bool stack)
{
    if (t == NULL || atsi_type_info(t->type) == NULL || t->type == ATSI_TYPE_I32 ||
        !is_known_layout(k, t) || t->n_dims < 1 || t->n_dims > (stack ? 3U : 2U))
        return false;
    return t->ne[0] > 0 && t->ne[0] < MAX_WIDTH && t->ne[1] > 0 && t->ne[1] < MAX_WIDTH &&
           t->row_bytes == atsi_row_bytes(t->type, t->ne[0]) && t->row_bytes != 0 &&
           k->gemm[t->type] != NULL && k->dequant[t->type] != NULL;
}

static bool good_embed(const struct cpu_kernels *k, const struct atsi_op *op)
{
    return is_weight(k, op->weight[0], false) && is_ids(op->src[0], op, 1) &&
           is_f32(op->dst[0], op, op->weight[0]->ne[0]);
}

/* The last of `runs` runs of n elements, `stride` from start to start, ends within `width`. */
static bool runs_fit(uint64_t runs, uint64_t stride, uint64_t offset, uint64_t n, uint64_t width)
{
    return runs > 0 && runs < MAX_WIDTH && (runs - 1) * stride + offset + n <= width;
}

static bool good_norm(const struct atsi_op *op)
{
    uint64_t n = width(op->weight[0]), in = width(op->src[0]), out = width(op->dst[0]);
    uint64_t stride = op->p.norm.stride;
    if (n == 0 || out % n != 0 || !is_vector(op->weight[0], n) || !is_f32(op->src[0], op, in) ||
        !is_f32(op->dst[0], op, out))
        return false;
    return stride == 0 ? in == out : stride >= n && runs_fit(out / n, stride, 0, n, in);
}

/* Or columns of a wider activation. */
static bool is_product(const struct atsi_tensor *t, const struct atsi_op *op, uint64_t width)
{
    struct atsi_tensor narrow;
    if (t == NULL || t->row_bytes % 4 != 0 || t->row_bytes / 4 >= MAX_WIDTH)
        return false;
    narrow = *t;
    narrow.row_bytes = width * 4;
    return t->row_bytes >= narrow.row_bytes && is_f32(&narrow, op, width);
}

static bool good_matmul(const struct cpu_kernels *k, const struct atsi_op *op)
{
    const struct atsi_tensor *w = op->weight[0];
    return is_weight(k, w, false) && is_f32(op->src[0], op, w->ne[0]) &&
           is_product(op->dst[0], op, w->ne[1]) &&
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

static bool is_cache(uint32_t type, uint32_t dim)
{
    return (type == ATSI_TYPE_F32 || type == ATSI_TYPE_F16 || type == ATSI_TYPE_Q8_0) && dim > 0 &&
           dim < MAX_WIDTH && atsi_row_bytes(type, dim) != 0;
}

/* Everything a row sees has a cell of its own, also once all rows of the call are stored. */
static bool has_cells(const struct atsi_op *op)
{
    uint64_t n = op->p.attn.n_kv, w = op->p.attn.window;
    if (w != 0 && w + op->n_rows - 1 < n)
        n = w + op->n_rows - 1;
    return op->p.attn.n_kv > 0 && op->p.attn.n_kv <= INT32_MAX && op->kv->n_ctx >= n;
}

static bool good_attn(const struct atsi_op *op)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t h = op->p.attn.n_head, hkv = op->p.attn.n_head_kv;
    if (kv == NULL || hkv == 0 || h == 0 || h % hkv != 0 || hkv != kv->n_head_kv ||
        op->p.attn.head_dim_k != kv->head_dim_k || op->p.attn.head_dim_v != kv->head_dim_v)
        return false;
    return is_cache(kv->type_k, kv->head_dim_k) && is_cache(kv->type_v, kv->head_dim_v) &&
           has_cells(op) && (uint64_t)(h / hkv) * op->p.attn.n_kv < MAX_SCORES &&
           is_f32(op->src[0], op, (uint64_t)h * kv->head_dim_k) &&
           is_f32(op->src[1], op, (uint64_t)hkv * kv->head_dim_k) &&
           is_f32(op->src[2], op, (uint64_t)hkv * kv->head_dim_v) && is_ids(op->src[3], op, 1) &&
           (op->weight[0] == NULL || is_vector(op->weight[0], h)) &&
           is_f32(op->dst[0], op, (uint64_t)h * kv->head_dim_v);
}

static bool good_add(const struct atsi_op *op)
{
    uint64_t w = width(op->src[0]);
    return is_f32(op->src[0], op, w) && is_f32(op->src[1], op, w) && is_f32(op->dst[0], op, w);
}

static bool good_swiglu(const struct atsi_op *op)
{
    uint64_t w = width(op->dst[0]), groups = op->p.glu.n_group;
    bool clamped = op->p.glu.kind == ATSI_GLU_CLAMPED;
    if ((!clamped && op->p.glu.kind != ATSI_GLU_SILU) ||
        (clamped && !(isfinite(op->p.glu.alpha) && op->p.glu.limit >= 0)) ||
        !is_f32(op->dst[0], op, w))
        return false;
    if (op->src[1] == NULL)
        return groups > 0 && w % groups == 0 && is_f32(op->src[0], op, 2 * w);
    return is_f32(op->src[0], op, w) && is_f32(op->src[1], op, w);
}

static bool good_gate(const struct atsi_op *op)
{
    uint64_t w = width(op->src[0]), run = op->p.gate.run, in = width(op->src[1]);
    return run > 0 && w % run == 0 && op->p.gate.scalar <= 1 && is_f32(op->src[0], op, w) &&
           is_f32(op->src[1], op, in) && is_f32(op->dst[0], op, w) &&
           runs_fit(w / run, op->p.gate.stride, op->p.gate.offset, op->p.gate.scalar != 0 ? 1 : run,
                    in);
}

static bool good_regroup(const struct atsi_op *op)
{
    uint64_t groups = op->p.regroup.n_group, in = groups * op->p.regroup.stride, out = 0;
    uint32_t n = op->p.regroup.n_seg;
    if (groups == 0 || n == 0 || n > ATSI_MAX_SEGMENTS || !is_f32(op->src[0], op, in))
        return false;
    for (uint32_t s = 0; s < n; s++) {
        uint64_t end = (uint64_t)op->p.regroup.offset[s] + op->p.regroup.len[s];
        if (op->p.regroup.len[s] == 0 || end > op->p.regroup.stride)
            return false;
        out += op->p.regroup.len[s];
    }
    return out < MAX_WIDTH && is_f32(op->dst[0], op, groups * out);
}

static bool good_conv(const struct atsi_op *op)
{
    uint64_t c = width(op->src[0]), taps = width(op->weight[0]);
    return taps >= 2 && taps < MAX_WIDTH && is_f32(op->src[0], op, c) &&
           is_matrix(op->weight[0], taps, c) && is_matrix(op->state, c, taps - 1) &&
           op->state->ne[2] == 1 && is_f32(op->dst[0], op, c);
}

#define MAX_DELTA_DIM 1024U

/* The rates of all heads lie within a row: `at` is where those of head 0 are. */
static bool has_rates(const struct atsi_op *op, const struct atsi_tensor *t, uint32_t at)
{
    uint32_t heads = op->p.delta.n_head_v, run = op->p.delta.run;
    uint64_t in = width(t);
    /* The last run may hold fewer heads than those before it, and runs may overlap. */
    return run > 0 && is_f32(t, op, in) &&
           runs_fit((heads - 1) / run + 1, op->p.delta.stride, at, (heads - 1) % run + 1, in) &&
           (heads <= run || runs_fit((heads - 1) / run, op->p.delta.stride, at, run, in));
}

static bool good_delta(const struct atsi_op *op)
{
    uint64_t hk = op->p.delta.n_head_k, hv = op->p.delta.n_head_v;
    uint64_t dk = op->p.delta.dim_k, dv = op->p.delta.dim_v;
    if (hk == 0 || hv == 0 || hv % hk != 0 || dk == 0 || dk > MAX_DELTA_DIM || dv == 0 ||
        dv > MAX_DELTA_DIM || op->p.delta.tiled > 1 ||
        !(op->p.delta.eps > 0 && isfinite(op->p.delta.eps)))
        return false;
    return is_f32(op->src[0], op, 2 * hk * dk + hv * dv) &&
           has_rates(op, op->src[1], op->p.delta.beta_offset) &&
           has_rates(op, op->src[2], op->p.delta.alpha_offset) && is_vector(op->weight[0], hv) &&
           is_vector(op->weight[1], hv) && is_matrix(op->state, dv, dk) && op->state->ne[2] == hv &&
           op->state->ne[3] == 1 && is_f32(op->dst[0], op, hv * dv);
}

static bool good_topk(const struct atsi_op *op)
{
    uint64_t k = op->p.moe.n_used, n = width(op->src[0]);
    return k > 0 && k <= n && op->p.moe.gating <= ATSI_GATING_NONE && is_f32(op->src[0], op, n) &&
           is_ids(op->dst[0], op, k) && is_f32(op->dst[1], op, k);
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
        return good_swiglu(op);
    case ATSI_OP_ADD:
        return good_add(op);
    case ATSI_OP_TOPK:
        return good_topk(op);
    case ATSI_OP_MATMUL_ID:
        return good_experts(k, op);
    case ATSI_OP_MOE_SUM:
        return good_moe_sum(op);
    case ATSI_OP_GATE:
        return good_gate(op);
    case ATSI_OP_REGROUP:
        return good_regroup(op);
    case ATSI_OP_CONV:
        return good_conv(op);
    case ATSI_OP_DELTA_NET:
        return good_delta(op);
    default:
        return 0;
    }
}
