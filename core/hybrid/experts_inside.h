/* SPDX-License-Identifier: Apache-2.0
 * What the two halves of expert caches share: memory and books (experts.c), the steps of a round
 * (experts_run.c). */
#ifndef ATSI_CORE_HYBRID_EXPERTS_INSIDE_H
#define ATSI_CORE_HYBRID_EXPERTS_INSIDE_H

#include "core/hybrid/experts.h"
#include "core/hybrid/source_inside.h"
#include "core/round/attempt.h"

#define ATSI_STACKS 4u      /* in a group, at most: gate, up, down */
#define ATSI_GROUP_NODES 8u /* with their activations */

/* One operation of a group on one device, for some of the chosen experts. */
struct atsi_part {
    struct atsi_op op;
    struct atsi_tensor src[2], weight[2], dst;
};

struct atsi_stack {
    uint32_t item, node;
    uint64_t matrix, bias;       /* bytes of an expert's; bias 0: none */
    unsigned char *at, *bias_at; /* on the accelerator, [n_slots] each */
    uint32_t layout;             /* of what is there */
};

struct atsi_expert_group {
    const struct atsi_cache_group *g;
    struct atsi_stack stack[ATSI_STACKS];
    uint32_t first_node, n_nodes;
    int32_t x, ids, y; /* values: input, choice, result of the last product */
    uint64_t width;    /* of a row of y */
    struct atsi_part host[ATSI_GROUP_NODES], accel[ATSI_GROUP_NODES];
    const struct atsi_op *queued[ATSI_GROUP_NODES];
    struct atsi_tensor miss_ids, hit_slots;                     /* [n_used] */
    int32_t *misses;                                            /* storage of miss_ids */
    int32_t *slots;                                             /* pinned; copied to hit_slots */
    uint32_t hit_at[ATSI_BOOKS_USED], miss_at[ATSI_BOOKS_USED]; /* places in the choice */
    int32_t used[ATSI_BOOKS_USED];
    uint32_t n_hits, n_misses;
    bool filled;        /* slots hold what the books say */
    bool looked;        /* in this round */
    float *rows, *back; /* [n_used * width] results of the misses; pinned: of the hits */
    struct atsi_range in[2], out;
    struct atsi_event *there, *done, **arrival; /* [n_slots] */
    struct atsi_move_ranges *move;              /* [n_slots] */
};

struct atsi_experts {
    struct atsi_experts_params p;
    struct atsi_policy_use policy; /* of p */
    struct atsi_cache_group *groups;
    struct atsi_expert_group *all; /* [n] */
    uint32_t n;
    int32_t *group_at; /* [n_items] group that begins there, -1 */
    struct atsi_books *books;
    struct atsi_buf *buf, *ids_buf, *pinned; /* slots; ids there; ids and results here */
    size_t row_bytes;                        /* of all groups' results */
    uint64_t bytes;                          /* of buf */
    bool no_memory, said;
    float idle[16]; /* what an operation without work works on */
    struct atsi_tensor idle_tensor;
    struct atsi_op idle_op;
};

/* experts.c: ranges of an expert's matrices and biases to a slot. */
int atsi_experts_ranges(struct atsi_experts *x, struct atsi_expert_group *g, int32_t expert,
                        uint32_t slot, uint32_t *n_out, struct atsi_err *err);
/* experts_run.c */
int atsi_experts_send(struct atsi_experts *x, uint32_t group, const struct atsi_expert_swaps *s,
                      struct atsi_err *err);

#endif
