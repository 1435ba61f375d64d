/* SPDX-License-Identifier: Apache-2.0
 *
 * What a loader hands to the core: tensors, and the op graph of one forward pass.
 *
 * The graph is a template: values have a width but no number of rows, and no memory.  The core
 * gives each value memory and turns each node into a struct atsi_op per round.  Nodes are in an
 * order in which they can be executed.  Arrays of pointers, since the structs may grow.
 */
#ifndef ATSINFER_GRAPH_H
#define ATSINFER_GRAPH_H

#include "atsinfer/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One activation: [rows, width].  Written by exactly one node (or given by the core). */
struct atsi_graph_value {
    uint32_t struct_size;
    uint32_t type; /* ATSI_TYPE_F32 or ATSI_TYPE_I32 */
    uint64_t width;
    const char *name; /* "attn_norm-3": step and layer; unique */
};

/* A node works on the output rows only (those whose logits are wanted) instead of on all rows of
 * the round.  All nodes after the first such node carry it too. */
#define ATSI_NODE_OUTPUT_ROWS 1u

/* What the item does, for placement rules and reports. */
enum atsi_role {
    ATSI_ROLE_OTHER = 0,
    ATSI_ROLE_EMBED,
    ATSI_ROLE_ATTN_PROJ, /* q, k, v and output projections */
    ATSI_ROLE_ATTN,      /* the attention itself, with its KV cache */
    ATSI_ROLE_FFN,
    ATSI_ROLE_ROUTER,
    ATSI_ROLE_EXPERT,
    ATSI_ROLE_HEAD,
    ATSI_ROLE_RECURRENT,    /* convolution and delta rule, with their states */
    ATSI_ROLE_SHARED_EXPERT /* the expert every token uses */
};

struct atsi_graph_node {
    uint32_t struct_size;
    uint32_t kind;          /* enum atsi_op_kind */
    uint32_t flags;         /* ATSI_NODE_* */
    uint32_t item;          /* items are numbered 0..n_items-1 in execution order; small weightless
                             * operations belong to the item they precede, TOPK to its router's */
    uint32_t role;          /* enum atsi_role */
    int32_t layer;          /* -1: none */
    int32_t src[4];         /* value indices, -1: none */
    int32_t weight[2];      /* tensor indices of the model, -1: none */
    int32_t dst[2];         /* value indices, -1: none */
    int32_t kv;             /* index into atsi_graph.kv, -1: none */
    union atsi_op_params p; /* attn.n_kv is filled by the core per round */
    int32_t state;          /* index into atsi_graph.states, -1: none */
};

/* One KV cache the graph needs; the core chooses types, size and memory. */
struct atsi_graph_kv {
    uint32_t struct_size;
    uint32_t n_head_kv, head_dim_k, head_dim_v;
    int32_t layer;
    uint32_t window; /* positions that stay visible, the newest included; 0: all */
};

/* One recurrent state: f32, of constant size, overwritten by each round; it cannot be cut back like
 * a KV cache, only restored from a copy. */
struct atsi_graph_state {
    uint32_t struct_size;
    int32_t layer;
    uint64_t ne[3]; /* contiguous dimension first */
    const char *name;
};

struct atsi_graph {
    uint32_t struct_size;
    uint32_t n_values, n_nodes, n_kv, n_items;
    const struct atsi_graph_value *const *values;
    const struct atsi_graph_node *const *nodes;
    const struct atsi_graph_kv *const *kv;
    int32_t in_ids, in_pos; /* values given by the core: i32 [T, 1] */
    int32_t out_logits;     /* value: f32 [output rows, n_vocab] */
    uint32_t n_vocab;
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_ctx_train;
    uint64_t n_params; /* elements of all weights */
    uint32_t n_states;
    const struct atsi_graph_state *const *states;
};

#ifdef __cplusplus
}
#endif
#endif
