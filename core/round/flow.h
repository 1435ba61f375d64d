/* SPDX-License-Identifier: Apache-2.0
 *
 * The flow of values through a graph, as far as a plan that really computes needs it: which
 * operations an item runs on its device, and which values have to be copied there first.
 *
 * Small operations without a cache, a state or a large weight are light: a device that has their
 * inputs computes them itself, instead of waiting for the other one's result.  All others run once,
 * on the device of their item.
 *
 * Values are known by pieces: a value that row tiles write has one piece per tile.  Units are what
 * runs: node k of the graph, or n_nodes + i for the matrix of the row tile that is item i.
 */
#ifndef ATSI_CORE_ROUND_FLOW_H
#define ATSI_CORE_ROUND_FLOW_H

#include "core/round/items.h"

struct atsi_flow_node {
    int32_t src[4], dst[2]; /* values, -1: none */
    bool light;
};

/* Columns [first, end) of a value. */
struct atsi_flow_piece {
    uint32_t value;
    uint64_t first, end;
};

/* Nodes of one item. */
struct atsi_flow_item {
    uint32_t first, main, end; /* nodes; main: the one whose rows a tile computes part of */
    uint32_t tile, n_tiles;
};

struct atsi_flow {
    uint32_t n_nodes, n_values, n_pieces, n_items;
    struct atsi_flow_node *nodes;
    struct atsi_flow_item *items;
    int32_t *producer;  /* [n_values] node; -1: given */
    uint32_t *death;    /* [n_values] last node that reads it; n_nodes: the result */
    bool *output_rows;  /* [n_values] has the output rows only */
    uint32_t *piece_at; /* [n_values + 1] first piece */
    struct atsi_flow_piece *pieces;
    int32_t result; /* the logits */
};

/* Of checked items.  [owned by caller: atsi_flow_free]  NULL: out of memory. */
struct atsi_flow *atsi_flow_make(const struct atsi_graph *g, const struct atsi_items *it);
void atsi_flow_free(struct atsi_flow *f); /* NULL is allowed */

static inline uint32_t atsi_flow_n_units(const struct atsi_flow *f)
{
    return f->n_nodes + f->n_items;
}
/* The node of a unit, and, of a tile's matrix, its item (-1: none). */
static inline uint32_t atsi_flow_node_of(const struct atsi_flow *f, uint32_t unit)
{
    return unit < f->n_nodes ? unit : f->items[unit - f->n_nodes].main;
}
static inline int32_t atsi_flow_tile_of(const struct atsi_flow *f, uint32_t unit)
{
    return unit < f->n_nodes ? -1 : (int32_t)(unit - f->n_nodes);
}
static inline uint32_t atsi_flow_main_unit(const struct atsi_flow *f, uint32_t item)
{
    return f->items[item].n_tiles > 1 ? f->n_nodes + item : f->items[item].main;
}

/* ---- walking */
/* What an item needs: pieces to copy to its device, then units to run there, in order. */
struct atsi_flow_need {
    uint32_t *copies, n_copies; /* pieces */
    uint32_t *units, n_units;
    uint32_t n_beside; /* of the item's nodes, which begin it on the other device */
};

/* Most entries that the needs of all items of a round take together. */
uint32_t atsi_flow_max_copies(const struct atsi_flow *f);
uint32_t atsi_flow_max_units(const struct atsi_flow *f);
/* The round begins: only what is given is there, on the host.  valid: [n_pieces] bits of devices.
 */
void atsi_flow_begin(const struct atsi_flow *f, uint8_t *valid);
/* Appends what item i needs on `device`, and marks what is then valid there. */
void atsi_flow_item(const struct atsi_flow *f, uint8_t *valid, uint32_t i, uint32_t device,
                    struct atsi_flow_need *need);
/* What several items read (the norm in front of q, k and v, or of gate and up) is made by the first
 * of them.  When that one runs on another device than a later one, and than the item before, its
 * light operations can run there, where their inputs are: then neither item waits for the other.
 * Appends these nodes, which are to run behind the item before, and what must be copied there
 * before that (one value at most), and marks what is then valid there.  need->n_beside: how many of
 * the item's nodes these are, for atsi_flow_item().  False: nothing is to be done, or it cannot be.
 * device: [n_items] */
bool atsi_flow_beside(const struct atsi_flow *f, uint8_t *valid, uint32_t i, const int32_t *device,
                      struct atsi_flow_need *need);
/* Appends the pieces of the result that are not on the host yet. */
void atsi_flow_result(const struct atsi_flow *f, uint8_t *valid, struct atsi_flow_need *need);

#endif
