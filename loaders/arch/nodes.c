/* SPDX-License-Identifier: Apache-2.0
 *
 * One function per kind of node: widths follow from inputs and weights and must agree.
 */
#include "loaders/arch/nodes.h"

int32_t arch_input(struct arch_builder *b, const char *name)
{
    return b->rc == ATSI_OK ? arch_value_add(b, name, ATSI_TYPE_I32, 1) : -1;
}

/* The common shape: one output, up to two inputs, one weight. */
static int32_t simple(struct arch_builder *b, uint32_t kind, const char *name, uint64_t out_width,
                      int32_t x, int32_t y, int32_t w, struct atsi_graph_node **node_out)
{
    int32_t dst = arch_value_add(b, name, ATSI_TYPE_F32, out_width);
    struct atsi_graph_node *n = arch_node_add(b, kind, dst);
    if (n == NULL)
        return -1;
    n->src[0] = x;
    n->src[1] = y;
    n->weight[0] = w;
    if (node_out != NULL)
        *node_out = n;
    return dst;
}

int32_t arch_embed(struct arch_builder *b, const char *name, int32_t ids, int32_t table)
{
    if (!arch_ready(b, ids, table))
        return -1;
    return simple(b, ATSI_OP_EMBED, name, arch_ne(b, table, 0), ids, -1, table, NULL);
}

int32_t arch_rms_norm_strided(struct arch_builder *b, const char *name, int32_t x, int32_t w,
                              uint32_t stride)
{
    struct atsi_graph_node *n = NULL;
    uint64_t run, step;
    int32_t out;
    if (!arch_ready(b, x, w))
        return -1;
    arch_need_f32(b, w);
    run = arch_ne(b, w, 0);
    step = stride != 0 ? stride : run;
    if (step < run || arch_width(b, x) % step != 0)
        arch_fail(b, ATSI_EFORMAT, "%s: norm of %llu of every %llu over a row of %llu", name,
                  (unsigned long long)run, (unsigned long long)step,
                  (unsigned long long)arch_width(b, x));
    if (b->rc != ATSI_OK)
        return -1;
    out = simple(b, ATSI_OP_RMS_NORM, name, arch_width(b, x) / step * run, x, -1, w, &n);
    if (n != NULL) {
        n->p.norm.eps = b->hp.norm_eps;
        n->p.norm.stride = stride;
    }
    return out;
}

int32_t arch_rms_norm(struct arch_builder *b, const char *name, int32_t x, int32_t w)
{
    return arch_rms_norm_strided(b, name, x, w, 0);
}

int32_t arch_matmul(struct arch_builder *b, const char *name, int32_t x, int32_t w, int32_t bias)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    arch_need_f32(b, bias);
    if (!arch_ready(b, x, w) || !arch_fits(b, name, x, arch_ne(b, w, 0)))
        return -1;
    out = simple(b, ATSI_OP_MATMUL, name, arch_ne(b, w, 1), x, -1, w, &n);
    if (n != NULL)
        n->weight[1] = bias;
    return out;
}

int32_t arch_rope_table(struct arch_builder *b, const char *name, int32_t pos, int32_t freqs,
                        float magnitude)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, pos, freqs))
        return -1;
    out = simple(b, ATSI_OP_ROPE_TABLE, name, 2 * arch_ne(b, freqs, 0), pos, -1, freqs, &n);
    if (n != NULL) {
        n->p.rope.n_rot = b->hp.n_rot;
        n->p.rope.magnitude = magnitude;
    }
    return out;
}

int32_t arch_rope(struct arch_builder *b, const char *name, int32_t x, int32_t table,
                  uint32_t n_head, uint32_t head_dim, uint32_t mode)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, x, table) || !arch_fits(b, name, x, (uint64_t)n_head * head_dim))
        return -1;
    out = simple(b, ATSI_OP_ROPE, name, arch_width(b, x), x, table, -1, &n);
    if (n != NULL) {
        n->p.rope.n_head = n_head;
        n->p.rope.head_dim = head_dim;
        n->p.rope.n_rot = b->hp.n_rot;
        n->p.rope.mode = mode;
    }
    return out;
}

int32_t arch_attn(struct arch_builder *b, const char *name, int32_t q, int32_t k, int32_t v,
                  int32_t pos, int32_t sinks)
{
    const struct arch_hparams *hp = &b->hp;
    uint32_t h, hkv;
    struct atsi_graph_node *n = NULL;
    int32_t out, kv;
    if (!arch_ready(b, q, k) || !arch_ready(b, v, pos))
        return -1;
    h = hp->n_head[b->layer];
    hkv = hp->n_head_kv[b->layer];
    if (!arch_fits(b, name, q, (uint64_t)h * hp->head_dim_k) ||
        !arch_fits(b, name, k, (uint64_t)hkv * hp->head_dim_k) ||
        !arch_fits(b, name, v, (uint64_t)hkv * hp->head_dim_v))
        return -1;
    arch_need_f32(b, sinks);
    kv = arch_kv_add(b, hkv, hp->window[b->layer]);
    out = simple(b, ATSI_OP_ATTN, name, (uint64_t)h * hp->head_dim_v, q, k, sinks, &n);
    if (n == NULL)
        return -1;
    n->src[2] = v;
    n->src[3] = pos;
    n->kv = kv;
    n->role = ATSI_ROLE_ATTN;
    n->p.attn.n_head = h;
    n->p.attn.n_head_kv = hkv;
    n->p.attn.head_dim_k = hp->head_dim_k;
    n->p.attn.head_dim_v = hp->head_dim_v;
    n->p.attn.scale = hp->attn_scale;
    n->p.attn.window = hp->window[b->layer];
    return out;
}

int32_t arch_glu(struct arch_builder *b, const char *name, int32_t gate, int32_t up,
                 const struct arch_glu *glu)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, gate, up) || !arch_fits(b, name, gate, arch_width(b, up)))
        return -1;
    out = simple(b, ATSI_OP_SWIGLU, name, arch_width(b, up), gate, up, -1, &n);
    if (n != NULL) {
        n->p.glu.kind = glu->kind;
        n->p.glu.n_group = 1;
        n->p.glu.alpha = glu->alpha;
        n->p.glu.limit = glu->limit;
    }
    return out;
}

int32_t arch_glu_halves(struct arch_builder *b, const char *name, int32_t x, uint32_t n_group,
                        const struct arch_glu *glu)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, x, 0))
        return -1;
    if (arch_width(b, x) % (2 * (uint64_t)n_group) != 0)
        arch_fail(b, ATSI_EFORMAT, "%s: %u pairs of halves in a row of %llu", name, n_group,
                  (unsigned long long)arch_width(b, x));
    if (b->rc != ATSI_OK)
        return -1;
    out = simple(b, ATSI_OP_SWIGLU, name, arch_width(b, x) / 2, x, -1, -1, &n);
    if (n != NULL) {
        n->p.glu.kind = glu->kind;
        n->p.glu.n_group = n_group;
        n->p.glu.alpha = glu->alpha;
        n->p.glu.limit = glu->limit;
    }
    return out;
}

int32_t arch_gate(struct arch_builder *b, const char *name, int32_t x, int32_t gate, uint32_t run,
                  uint32_t stride, uint32_t offset, bool scalar)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, x, gate) ||
        !arch_fits(b, name, gate, arch_width(b, x) / run * (uint64_t)stride))
        return -1;
    out = simple(b, ATSI_OP_GATE, name, arch_width(b, x), x, gate, -1, &n);
    if (n != NULL) {
        n->p.gate.run = run;
        n->p.gate.stride = stride;
        n->p.gate.offset = offset;
        n->p.gate.scalar = scalar ? 1 : 0;
    }
    return out;
}

int32_t arch_regroup(struct arch_builder *b, const char *name, int32_t x,
                     const struct arch_regroup *r)
{
    struct atsi_graph_node *n = NULL;
    uint64_t out_width = 0;
    int32_t out;
    if (!arch_ready(b, x, 0) || !arch_fits(b, name, x, (uint64_t)r->n_group * r->stride))
        return -1;
    for (uint32_t s = 0; s < r->n_seg; s++)
        out_width += (uint64_t)r->n_group * r->len[s];
    out = simple(b, ATSI_OP_REGROUP, name, out_width, x, -1, -1, &n);
    if (n == NULL)
        return -1;
    n->p.regroup.n_group = r->n_group;
    n->p.regroup.stride = r->stride;
    n->p.regroup.n_seg = r->n_seg;
    for (uint32_t s = 0; s < r->n_seg; s++) {
        n->p.regroup.offset[s] = r->offset[s];
        n->p.regroup.len[s] = r->len[s];
    }
    return out;
}

int32_t arch_conv(struct arch_builder *b, const char *name, int32_t x, int32_t w)
{
    struct atsi_graph_node *n = NULL;
    int32_t out, state;
    if (!arch_ready(b, x, w) || !arch_fits(b, name, x, arch_ne(b, w, 1)))
        return -1;
    arch_need_f32(b, w);
    state = arch_state_add(b, "conv_state",
                           (struct arch_shape){{arch_width(b, x), arch_ne(b, w, 0) - 1}});
    out = simple(b, ATSI_OP_CONV, name, arch_width(b, x), x, -1, w, &n);
    if (n != NULL)
        n->state = state;
    return out;
}

int32_t arch_delta_net(struct arch_builder *b, const char *name, int32_t u, int32_t beta,
                       int32_t alpha, const struct arch_delta *d)
{
    struct atsi_graph_node *n = NULL;
    int32_t out, state;
    if (!arch_ready(b, u, beta) || !arch_ready(b, alpha, d->a) || !arch_ready(b, d->dt, 0))
        return -1;
    if (!arch_fits(b, name, u,
                   2 * (uint64_t)d->n_head_k * d->dim_k + (uint64_t)d->n_head_v * d->dim_v))
        return -1;
    arch_need_f32(b, d->a);
    arch_need_f32(b, d->dt);
    state =
        arch_state_add(b, "delta_state", (struct arch_shape){{d->dim_v, d->dim_k, d->n_head_v}});
    out = simple(b, ATSI_OP_DELTA_NET, name, (uint64_t)d->n_head_v * d->dim_v, u, beta, d->a, &n);
    if (n == NULL)
        return -1;
    n->src[2] = alpha;
    n->weight[1] = d->dt;
    n->state = state;
    n->role = ATSI_ROLE_RECURRENT;
    n->p.delta.n_head_k = d->n_head_k;
    n->p.delta.n_head_v = d->n_head_v;
    n->p.delta.dim_k = d->dim_k;
    n->p.delta.dim_v = d->dim_v;
    n->p.delta.tiled = d->tiled ? 1 : 0;
    n->p.delta.run = d->run;
    n->p.delta.stride = d->stride;
    n->p.delta.beta_offset = d->beta_offset;
    n->p.delta.alpha_offset = d->alpha_offset;
    n->p.delta.eps = b->hp.norm_eps;
    return out;
}

int32_t arch_add(struct arch_builder *b, const char *name, int32_t x, int32_t y)
{
    if (!arch_ready(b, x, y) || !arch_fits(b, name, x, arch_width(b, y)))
        return -1;
    return simple(b, ATSI_OP_ADD, name, arch_width(b, x), x, y, -1, NULL);
}

int32_t arch_topk(struct arch_builder *b, int32_t logits, uint32_t k, uint32_t gating,
                  int32_t *weights_out)
{
    int32_t ids, weights;
    struct atsi_graph_node *n;
    *weights_out = -1;
    if (!arch_ready(b, logits, 0))
        return -1;
    ids = arch_value_add(b, "ffn_moe_topk", ATSI_TYPE_I32, k);
    weights = arch_value_add(b, "ffn_moe_weights_norm", ATSI_TYPE_F32, k);
    n = arch_node_add(b, ATSI_OP_TOPK, ids);
    if (n == NULL || weights < 0)
        return -1;
    n->src[0] = logits;
    n->dst[1] = weights;
    n->p.moe.n_used = k;
    n->p.moe.gating = gating;
    *weights_out = weights;
    return ids;
}

int32_t arch_matmul_id(struct arch_builder *b, const char *name, int32_t x, int32_t ids, int32_t w,
                       int32_t bias)
{
    struct atsi_graph_node *n = NULL;
    uint64_t k;
    int32_t out;
    arch_need_f32(b, bias);
    if (!arch_ready(b, x, ids) || !arch_ready(b, w, 0))
        return -1;
    k = arch_width(b, ids);
    if (arch_width(b, x) != arch_ne(b, w, 0) && !arch_fits(b, name, x, k * arch_ne(b, w, 0)))
        return -1;
    out = simple(b, ATSI_OP_MATMUL_ID, name, k * arch_ne(b, w, 1), x, ids, w, &n);
    if (n != NULL) {
        n->weight[1] = bias;
        n->p.moe.n_used = (uint32_t)k;
    }
    return out;
}

int32_t arch_moe_sum(struct arch_builder *b, const char *name, int32_t y, int32_t weights)
{
    struct atsi_graph_node *n = NULL;
    int32_t out;
    if (!arch_ready(b, y, weights))
        return -1;
    out = simple(b, ATSI_OP_MOE_SUM, name, arch_width(b, y) / arch_width(b, weights), y, weights,
                 -1, &n);
    if (n != NULL)
        n->p.moe.n_used = (uint32_t)arch_width(b, weights);
    return out;
}
