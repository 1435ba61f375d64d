/* SPDX-License-Identifier: Apache-2.0
 * What the two halves of the source share: operations and bindings (source.c), the callbacks of the
 * executor (source_run.c). */
#ifndef ATSI_CORE_HYBRID_SOURCE_INSIDE_H
#define ATSI_CORE_HYBRID_SOURCE_INSIDE_H

#include "core/hybrid/source.h"

/* Ranges of a transfer under way; two per item, since the next round's may begin during this one.
 */
struct atsi_move_ranges {
    struct atsi_range *r;
    uint32_t room;
};

struct atsi_range_block {
    struct atsi_range_block *next;
    uint32_t n, room;
    struct atsi_range r[];
};

/* A router whose choice decides what is transferred. */
struct atsi_router {
    bool is;                  /* some item waits for it */
    int32_t ids;              /* value: the chosen experts of a token */
    struct atsi_event *event; /* its ids have reached `copy` */
    int32_t *copy;            /* pinned */
    uint8_t ran;              /* in this round: 0: not yet, 1 + device */
    struct atsi_range range;  /* of the copy under way */
};

struct atsi_source {
    struct atsi_source_params p;
    const struct atsi_graph *g;
    const struct atsi_flow *flow;
    uint32_t n_units, n_items, phase;
    uint32_t *unit_item;                 /* [n_units] */
    uint8_t *can;                        /* [n_items] the accelerator computes its operations */
    bool can_light;                      /* and all light ones */
    struct atsi_op *ops[ATSI_N_DEVICES]; /* [n_units] */
    struct atsi_tensor
        *wt[ATSI_N_DEVICES]; /* [2 * n_units] weights that are no tensor of the host's */
    struct atsi_tensor *tile[ATSI_N_DEVICES]; /* [n_items] columns that a row tile writes */
    const struct atsi_op **ptrs;              /* as a plan's list */
    /* ptrs, items of operations and step_key are of this plan, built so often, and of this binding
     * and these rows (stamp); NULL: of none. */
    const struct atsi_plan *prepared;
    uint64_t prepared_built, prepared_stamp;
    uint64_t stamp;     /* grows with what keys depend on: bindings, rows */
    uint64_t *step_key; /* [2 * n_items] of the accelerator's steps, without their slot */
    uint32_t *attention, n_attention; /* units whose operations know the positions */
    uint32_t rows, out_first, out_n;  /* that operations say */
    struct atsi_tensor order;         /* ids 0, 1, 2 ... on the accelerator */
    struct atsi_buf *order_buf, *ids_buf;
    struct atsi_router *routers; /* [n_items] */
    const struct atsi_region *region;
    uint64_t bound;                  /* grows with every bind */
    struct atsi_move_ranges *moves;  /* [2 * n_items] */
    uint8_t *move_turn;              /* [n_items] */
    struct atsi_range_block *blocks; /* of this round's copies */
    const struct atsi_range *last_copy;
    uint32_t n_last_copy;
    struct atsi_exec_source source;
    struct atsi_source_counts counts;
    struct atsi_pick pick;
    struct atsi_experts *experts; /* caches (experts.h); NULL: there are none  [borrowed] */
};

/* The piece that is an item's weight. */
static inline struct atsi_piece atsi_source_piece(const struct atsi_source *src, uint32_t item)
{
    const struct atsi_item_place *p = &src->p.items->places[item];
    return (struct atsi_piece){(uint32_t)p->weight, p->first_row, p->end_row};
}

static inline bool atsi_source_by_choice(const struct atsi_source *src, uint32_t item,
                                         uint32_t phase)
{
    return phase == ATSI_PHASE_DECODE && src->p.items->items[item].n_experts > 0 &&
           src->p.items->items[item].router >= 0;
}

/* source_run.c */
void atsi_source_callbacks(struct atsi_source *src);

#endif
