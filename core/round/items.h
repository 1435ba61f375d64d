/* SPDX-License-Identifier: Apache-2.0
 *
 * The items of a model: what the scheduler works on, in order of execution, from an op graph or
 * from a shape file.
 */
#ifndef ATSI_CORE_ROUND_ITEMS_H
#define ATSI_CORE_ROUND_ITEMS_H

#include "atsinfer/graph.h"
#include "atsinfer/policy.h"
#include "core/round/work.h"

/* Where an item lies in the graph; of shape files n_nodes is 0.  A row tile computes rows
 * [first_row, end_row) of the weight of its first node; only the last tile has the item's other
 * nodes. */
struct atsi_item_place {
    uint32_t first_node, n_nodes;
    uint64_t first_row, end_row; /* 0, 0: all */
    int32_t weight;              /* tensor index, -1: none */
    uint32_t main_node;          /* the node that item and tile are about */
    uint32_t tile, n_tiles;
};

struct atsi_flow; /* flow.h */

struct atsi_items {
    uint32_t n, n_edges;
    struct atsi_item *items;        /* [n]; role, layer, router, n_experts, names, class */
    const struct atsi_item **ptrs;  /* [n], as policies want them */
    struct atsi_work *work;         /* [n] */
    struct atsi_item_place *places; /* [n] */
    struct atsi_edge *edges;        /* [n_edges], bytes per token */
    char *names;                    /* storage of items[].name */
    char model[96];
    uint64_t n_params;
    bool chain;             /* edges are those of a chain: each item feeds the next one only */
    struct atsi_flow *flow; /* which values cross where, exactly; NULL: plans go by edges */
};

/* tile_bytes: weights larger than this are cut into tiles of whole rows (a multiple of 16), none
 * larger; 0: never.  type_k, type_v: of the KV cache. */
struct atsi_items_params {
    uint64_t tile_bytes;
    uint32_t type_k, type_v;
    bool flow; /* for plans that are really computed */
};

/* tensors: of the model (atsi_loaded_info.tensors); data pointers are not read.
 * [owned by caller: atsi_items_free] */
int atsi_items_from_graph(const struct atsi_graph *g, const struct atsi_tensor *const *tensors,
                          const struct atsi_items_params *p, struct atsi_items **out,
                          struct atsi_err *err);

/* A shape file: ini with one section [model], keys as in docs/scheduling.md.  ATSI_ECONF: unknown
 * or missing key, with file and line. */
int atsi_items_from_shape(const char *path, struct atsi_items **out, struct atsi_err *err);

void atsi_items_free(struct atsi_items *it); /* NULL is allowed */

/* For the makers: room for n items; NULL when memory is out. */
struct atsi_items *atsi_items_new(uint32_t n_items, uint32_t n_edges, size_t name_bytes);

#endif
