/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test costs at least: the bytes a generated token reads, and the multiply-adds of a prompt,
 * against what this machine reads and multiplies at most.
 */
#include "cli/bench.h"

void bench_limits_measure(const struct atsi_runtime *rt, struct read_yardstick *yard,
                          struct bench_limits *out)
{
    out->read_gbps = read_yardstick_open(rt, yard);
    out->int8_gmacs = limit_gmacs(rt, LIMIT_INT8);
    out->fma_gmacs = limit_gmacs(rt, LIMIT_FMA);
}

double bench_weight_bytes(const struct atsi_tensor *t)
{
    return (double)t->row_bytes * (double)t->ne[1] * (double)(t->n_dims > 2 ? t->ne[2] : 1);
}

double bench_bytes_per_token(const struct atsi_model *m, const struct atsi_graph *g,
                             const struct atsi_session *s, uint32_t depth)
{
    const struct atsi_loaded_info *info = atsi_model_info(m);
    struct atsi_session_info si = {.struct_size = sizeof si};
    double bytes = 0;
    atsi_session_info(s, &si);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct atsi_graph_node *n = g->nodes[i];
        const struct atsi_tensor *w;
        if (n->weight[0] < 0)
            continue;
        w = info->tensors[n->weight[0]];
        if (n->kind == ATSI_OP_MATMUL)
            bytes += bench_weight_bytes(w);
        else if (n->kind == ATSI_OP_MATMUL_ID)
            bytes += bench_weight_bytes(w) * (double)n->p.moe.n_used / (double)w->ne[2];
        else if (n->kind == ATSI_OP_EMBED)
            bytes += (double)w->row_bytes;
    }
    return bytes + (double)si.kv_bytes / (double)si.n_ctx * (double)depth;
}

/* Of one product with a weight, for a prompt of n tokens whose last one alone gets logits. */
static double node_macs(const struct atsi_graph_node *node, const struct atsi_tensor *w, uint32_t n)
{
    double each = (double)w->ne[0] * (double)w->ne[1];
    if (node->kind == ATSI_OP_MATMUL_ID)
        each *= (double)node->p.moe.n_used;
    return (node->flags & ATSI_NODE_OUTPUT_ROWS) != 0 ? each : each * n;
}

double bench_prompt_limit_ns(const struct atsi_model *m, const struct atsi_graph *g,
                             const struct bench_limits *l, uint32_t n)
{
    const struct atsi_loaded_info *info = atsi_model_info(m);
    double macs[2] = {0, 0};
    if (l->int8_gmacs <= 0 || l->fma_gmacs <= 0)
        return 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct atsi_graph_node *node = g->nodes[i];
        const struct atsi_tensor *w;
        if (node->weight[0] < 0 ||
            (node->kind != ATSI_OP_MATMUL && node->kind != ATSI_OP_MATMUL_ID))
            continue;
        w = info->tensors[node->weight[0]];
        macs[limit_math_of(w->type)] += node_macs(node, w, n);
    }
    return macs[LIMIT_INT8] / l->int8_gmacs + macs[LIMIT_FMA] / l->fma_gmacs;
}
