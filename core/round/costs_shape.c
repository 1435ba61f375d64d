/* SPDX-License-Identifier: Apache-2.0
 *
 * What the time of an operation depends on, from its node.  The numbers of a shape, by kind:
 *
 *   matmul      in, out, bias, 1: only on rows whose logits are wanted
 *   matmul_id   in, out, experts, used, 1: an input per used expert, bias
 *   embed       width
 *   rms_norm    width of a run, runs, stride
 *   rope_table  rotated elements      rope   width, head, rotated elements, mode
 *   attn        heads, KV heads, key width, value width, window, type of keys, of values, sinks
 *   swiglu      width, groups, kind, 1: gate and up in one value
 *   add         width                 moe_sum   width, used
 *   topk        experts, used, gating
 *   gate        width, run, stride, 1: one number per run
 *   regroup     width before, after   conv      taps, channels
 *   delta_net   key heads, value heads, key width, value width, 1: tiled
 */
#include "core/round/costs.h"

#include <string.h>

static const char *const names[ATSI_OP_COUNT] = {
    [ATSI_OP_EMBED] = "embed",        [ATSI_OP_RMS_NORM] = "rms_norm",
    [ATSI_OP_MATMUL] = "matmul",      [ATSI_OP_ROPE_TABLE] = "rope_table",
    [ATSI_OP_ROPE] = "rope",          [ATSI_OP_ATTN] = "attn",
    [ATSI_OP_SWIGLU] = "swiglu",      [ATSI_OP_ADD] = "add",
    [ATSI_OP_TOPK] = "topk",          [ATSI_OP_MATMUL_ID] = "matmul_id",
    [ATSI_OP_MOE_SUM] = "moe_sum",    [ATSI_OP_GATE] = "gate",
    [ATSI_OP_REGROUP] = "regroup",    [ATSI_OP_CONV] = "conv",
    [ATSI_OP_DELTA_NET] = "delta_net"};

const char *atsi_cost_kind_name(uint32_t kind)
{
    return kind < ATSI_OP_COUNT ? names[kind] : NULL;
}

uint32_t atsi_cost_kind(const char *name, size_t len)
{
    for (uint32_t k = 0; k < ATSI_OP_COUNT; k++)
        if (names[k] != NULL && strlen(names[k]) == len && memcmp(names[k], name, len) == 0)
            return k;
    return 0;
}

static uint64_t dim(const struct atsi_tensor *t, uint32_t d)
{
    return t != NULL && d < t->n_dims ? t->ne[d] : 1;
}

static uint64_t width(const struct atsi_graph *g, int32_t value)
{
    return value >= 0 ? g->values[value]->width : 0;
}

static void attention(const struct atsi_graph *g, const struct atsi_graph_node *n, uint32_t type_k,
                      uint32_t type_v, uint64_t *d)
{
    const struct atsi_graph_kv *kv = g->kv[n->kv];
    d[0] = n->p.attn.n_head;
    d[1] = kv->n_head_kv;
    d[2] = kv->head_dim_k;
    d[3] = kv->head_dim_v;
    d[4] = kv->window;
    d[5] = type_k;
    d[6] = type_v;
    d[7] = n->weight[0] >= 0;
}

static void product(const struct atsi_graph *g, const struct atsi_graph_node *n,
                    const struct atsi_tensor *w, uint64_t *d)
{
    d[0] = dim(w, 0);
    d[1] = dim(w, 1);
    if (n->kind == ATSI_OP_MATMUL) {
        d[2] = n->weight[1] >= 0;
        d[3] = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
        return;
    }
    d[2] = dim(w, 2);
    d[3] = n->p.moe.n_used;
    d[4] = width(g, n->src[0]) != d[0];
    d[5] = n->weight[1] >= 0;
}

static void small(const struct atsi_graph *g, const struct atsi_graph_node *n,
                  const struct atsi_tensor *w, uint64_t *d)
{
    d[0] = width(g, n->dst[0]);
    switch (n->kind) {
    case ATSI_OP_RMS_NORM:
        d[1] = dim(w, 0) > 0 ? d[0] / dim(w, 0) : 0;
        d[0] = dim(w, 0);
        d[2] = n->p.norm.stride;
        break;
    case ATSI_OP_ROPE:
        d[1] = n->p.rope.head_dim;
        d[2] = n->p.rope.n_rot;
        d[3] = n->p.rope.mode;
        break;
    case ATSI_OP_SWIGLU:
        d[1] = n->src[1] >= 0 ? 1 : n->p.glu.n_group;
        d[2] = n->p.glu.kind;
        d[3] = n->src[1] < 0;
        break;
    case ATSI_OP_TOPK:
        d[0] = width(g, n->src[0]);
        d[1] = n->p.moe.n_used;
        d[2] = n->p.moe.gating;
        break;
    case ATSI_OP_MOE_SUM:
        d[1] = n->p.moe.n_used;
        break;
    case ATSI_OP_GATE:
        d[1] = n->p.gate.run;
        d[2] = n->p.gate.stride;
        d[3] = n->p.gate.scalar;
        break;
    case ATSI_OP_REGROUP:
        d[1] = d[0];
        d[0] = width(g, n->src[0]);
        break;
    case ATSI_OP_CONV:
        d[0] = dim(w, 0);
        d[1] = dim(w, 1);
        break;
    default:
        break;
    }
}

void atsi_cost_shape_of(const struct atsi_graph *g, const struct atsi_tensor *const *tensors,
                        uint32_t node, uint32_t layout, uint32_t type_k, uint32_t type_v,
                        struct atsi_cost_shape *out)
{
    const struct atsi_graph_node *n = g->nodes[node];
    const struct atsi_tensor *w = n->weight[0] >= 0 ? tensors[n->weight[0]] : NULL;
    bool typed = w != NULL && (n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID ||
                               n->kind == ATSI_OP_EMBED);
    *out = (struct atsi_cost_shape){.kind = n->kind,
                                    .type = typed ? w->type : ATSI_TYPE_COUNT,
                                    .layout = typed ? layout : ATSI_LAYOUT_ROWS};
    if (n->kind == ATSI_OP_ATTN) {
        attention(g, n, type_k, type_v, out->dims);
    } else if (n->kind == ATSI_OP_DELTA_NET) {
        out->dims[0] = n->p.delta.n_head_k;
        out->dims[1] = n->p.delta.n_head_v;
        out->dims[2] = n->p.delta.dim_k;
        out->dims[3] = n->p.delta.dim_v;
        out->dims[4] = n->p.delta.tiled;
    } else if (n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID) {
        product(g, n, w, out->dims);
    } else {
        small(g, n, w, out->dims);
    }
}
