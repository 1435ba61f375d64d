/* SPDX-License-Identifier: Apache-2.0
 *
 * A policy's answer, checked, and what the planner makes of it: a flat list of steps and of weight
 * transfers that the executor walks.
 */
#ifndef ATSI_CORE_ROUND_PLAN_H
#define ATSI_CORE_ROUND_PLAN_H

#include "core/round/problem.h"

/* Answers as policies write them, in storage of the core's. */
struct atsi_answer {
    struct atsi_placement place;
    struct atsi_schedule schedule;
    int32_t *placed; /* = place.device */
};

int atsi_answer_open(uint32_t n_items, struct atsi_answer **out, struct atsi_err *err);
void atsi_answer_close(struct atsi_answer *a); /* NULL is allowed */

/* ---- check.c: is an answer legal?  The message names the item and the numbers. */
/* Devices in range, the user's rules kept, within the budgets. */
int atsi_check_placement(const struct atsi_question *q, const struct atsi_placement *p,
                         struct atsi_err *err);
/* Items run where they live, or were promoted by a transfer that is possible in this phase; every
 * promoted item is transferred exactly once, into a slot that exists, in an order that never
 * blocks; starts lie before uses. */
int atsi_check_schedule(const struct atsi_question *q, uint32_t phase, const int32_t *placed,
                        const struct atsi_schedule *s, struct atsi_err *err);

/* ---- plan.c */
enum atsi_step_kind {
    ATSI_STEP_COPY = 0, /* activations to `device` */
    ATSI_STEP_RUN       /* items [first, first + n) on `device` */
};

struct atsi_step {
    uint8_t kind, device;
    int32_t transfer; /* RUN: index of the transfer that brings the weight of its first item; -1 */
    uint32_t first, n;
    uint64_t bytes; /* COPY */
    /* With a flow: COPY: pieces, RUN: units, at atsi_plan.list[list] on. */
    uint32_t list, n_list;
};

struct atsi_move {
    uint32_t item, slot;
    int32_t router, after; /* items; -1: none */
};

struct atsi_plan {
    uint32_t n_steps, n_moves, room_steps, room_moves;
    uint32_t phase; /* enum atsi_phase */
    uint64_t built; /* how often; what was derived from the plan is good for that often */
    struct atsi_step *steps;
    struct atsi_move *moves; /* in order of transfer */
    uint32_t n_slots;        /* temporary slots in this phase */
    uint8_t last_device;
    uint8_t *cut;       /* [n] scratch: a split ends behind this item */
    int32_t *move_of;   /* [n] index of an item's transfer, -1: none */
    uint8_t *have;      /* [n_edges] scratch: devices (bits) a value was copied to */
    uint32_t *value_of; /* [n_edges] first edge that carries the same value */
    uint32_t *edge_at;  /* [n + 1] scratch: edges by consumer */
    uint32_t *edge_of;  /* [n_edges] */
    /* With a flow (flow.h); else NULL. */
    uint32_t *list;               /* [room_list] units of steps, and, from the end, pieces */
    uint32_t n_list, room_list;   /* units */
    uint32_t pieces_at;           /* first piece */
    uint32_t result_at, n_result; /* in list: pieces of the result to copy to the host */
    uint8_t *valid;               /* [n_pieces] scratch */
    uint32_t *need;               /* scratch: of one item */
    uint32_t *made_at;            /* [n_pieces] scratch: the unit, in list, that computed it last */
    uint32_t *list_end;           /* [n] scratch: of list, behind an item's units */
};

/* Room for any plan of the question, so that building allocates nothing. */
int atsi_plan_open(const struct atsi_question *q, struct atsi_plan **out, struct atsi_err *err);
void atsi_plan_close(struct atsi_plan *p); /* NULL is allowed */
/* Steps and moves of a checked answer.  in_bytes: [n] activations that reach each item in this
 * phase; tokens scales the edges' bytes per token. */
void atsi_plan_build(struct atsi_plan *p, const struct atsi_question *q,
                     const struct atsi_schedule *s, uint32_t phase, const double *in_bytes,
                     uint32_t tokens);

/* ---- plan_early.c, for the planner */
struct atsi_flow;
struct atsi_flow_need;
/* What was needed was added at the end of the list. */
void atsi_plan_ran(struct atsi_plan *p, const struct atsi_flow *f,
                   const struct atsi_flow_need *need);
/* Where the copy that an item needs on `device` goes: a step, which may be behind the last one. */
uint32_t atsi_plan_early(struct atsi_plan *p, const struct atsi_question *q, uint32_t item,
                         uint32_t device, const struct atsi_flow_need *need);
/* What an item of the host needs can be copied in front of the last step, which the item then
 * joins; open: that step may grow.  False: also on other devices. */
bool atsi_plan_joins(const struct atsi_plan *p, uint32_t device, bool open);
/* The step is one of experts with a cache: it stays as it is. */
bool atsi_plan_is_cached(const struct atsi_question *q, const struct atsi_plan *p, uint32_t step);

#endif
