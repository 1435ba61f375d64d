/* SPDX-License-Identifier: Apache-2.0
 *
 * The question every policy gets: items, their costs in both phases, budgets and slots, as plain
 * arrays (struct atsi_problem), with the storage behind it.
 */
#ifndef ATSI_CORE_ROUND_PROBLEM_H
#define ATSI_CORE_ROUND_PROBLEM_H

#include "core/round/items.h"
#include "core/round/machine.h"

enum { ATSI_DEVICE_HOST = 0, ATSI_DEVICE_ACCEL = 1, ATSI_N_DEVICES = 2 };

struct atsi_costs;

struct atsi_question {
    struct atsi_problem p;          /* what policies see; points into the rest */
    struct atsi_items *items;       /* [borrowed] */
    struct atsi_item_cost *cost[2]; /* [phase]: [n_devices * n], as measured or modelled: speed 1 */
    struct atsi_item_cost *now[2];  /* [phase]: the same times the slowdowns in force */
    double *touched[2];             /* [phase]: [n] bytes an item reads in a round */
    double link[2];                 /* [phase]: bytes per ns of the largest transfer */
    /* Measured: GB/s that CPU and transfers get together (0: contention is the model's), and which
     * share of its speed each then lost. */
    double together, run_lost, copy_lost;
    const struct atsi_costs *costs; /* the table it was made from, or NULL  [borrowed] */
    uint64_t budget[ATSI_N_DEVICES];
    uint32_t slot_depth[2]; /* one class */
    uint64_t slot_bytes[2];
    void *scratch;
    size_t scratch_bytes;
    uint32_t
        *expert_slots; /* [n] of a placement with expert caches (caches.h); NULL: there are none */
};

struct atsi_question_params {
    struct atsi_conditions phase[2]; /* enum atsi_phase */
    uint64_t vram_bytes;             /* what weights, caches and slots may use together */
    uint64_t temp_bytes;             /* of that: temporary slots; 0: nothing is promoted */
    uint32_t max_slots;
    uint32_t mix_prompt, mix_generated;
    uint64_t n_vocab;
    uint64_t result_bytes; /* of the logits that come to the host; 0: all of a row */
};

/* What a round's result copies where the accelerator computes it. */
uint64_t atsi_question_result_bytes(const struct atsi_question_params *p);

/* Costs from a roofline.  [owned by caller: atsi_question_free]; items stay the caller's. */
int atsi_question_model(struct atsi_items *it, const struct atsi_machine *m,
                        const struct atsi_question_params *p, struct atsi_question **out,
                        struct atsi_err *err);
void atsi_question_free(struct atsi_question *q); /* NULL is allowed */

/* For makers of questions: one without costs, and, once cost[] is filled but for contention, all
 * the rest.  NULL: out of memory. */
struct atsi_question_fixed {
    uint64_t split_ns, routing_ns, result_ns, gap_ns;
};
struct atsi_question *atsi_question_new(struct atsi_items *it);
void atsi_question_finish(struct atsi_question *q, const struct atsi_question_params *p,
                          const struct atsi_question_fixed *fixed);

/* Cost classes, by what slows down together. */
enum atsi_cost_class {
    ATSI_CLASS_CPU = 0, /* items on the host */
    ATSI_CLASS_GPU,     /* items on the accelerator */
    ATSI_CLASS_ACT,     /* activation copies */
    ATSI_CLASS_XFER,    /* weight transfers */
    ATSI_N_CLASSES
};

/* Scales q->now by slowdowns in per mille of the profile's times, and the contention with them: a
 * slower reader leaves the other one more of the DRAM. */
void atsi_question_slow(struct atsi_question *q, const uint32_t slowdown[ATSI_N_CLASSES]);
/* No plan of whole weights on this placement is faster in steady state. */
int atsi_question_bound(struct atsi_question *q, uint32_t phase, const int32_t *placed,
                        int64_t *ns_out, struct atsi_err *err);
/* Scratch for a policy; grown when needed.  ATSI_ENOMEM. */
int atsi_question_scratch(struct atsi_question *q, size_t bytes, struct atsi_err *err);

#endif
