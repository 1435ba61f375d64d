/* SPDX-License-Identifier: Apache-2.0
 *
 * What a round of a plan costs.  Two readings of the same machine: without contention (exact, an
 * integer recursion) and with it (events on a time axis, doubles).  Both agree when nothing slows
 * anything down.
 *
 * Transfers go one at a time, in order of use, each as early as the engine, a temporary slot of its
 * class, its router and the plan's own `after` permit.
 */
#ifndef ATSI_SCHED_TIMELINE_H
#define ATSI_SCHED_TIMELINE_H

#include "sched/chain.h"

struct sched_span {
    int64_t start, end; /* from the start of the last round; a transfer may start before it */
};

struct sched_run {
    uint32_t rounds; /* 1..SCHED_MAX_ROUNDS; more than one: the last one's duration with `gap` */
    const int32_t
        *after; /* [n] or NULL: a transfer not before the end of this operator; -1: free */
    /* sched_fluid() only: 1: another round follows the last one, whose first transfers are on their
     * way and in the way already. */
    uint32_t follows;
    /* sched_fluid() only: [n_order] every promoted operator once, in order of transfer; NULL: order
     * of use */
    const uint32_t *order;
    uint32_t n_order;
    struct sched_span *op_span;   /* [n] or NULL, out: of the last round; switches left out */
    struct sched_span *xfer_span; /* [n] or NULL, out: of the promoted operators of that round */
};

/* Bytes of scratch for either, 64-byte aligned. */
size_t sched_timeline_scratch(uint32_t n, uint32_t rounds);

/* Refuses rounds, after and order that break the rules above. */
int sched_run_check(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                    void *scratch, struct atsi_err *err);

/* run may be NULL: one round, nothing else. */
int64_t sched_latency(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                      void *scratch);
/* Negative when an order blocks forever: a transfer waits for a slot that a later one would free.
 */
double sched_fluid(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                   void *scratch);

/* For both timelines: the ends of use of the last slots of each class, oldest first, in rings that
 * are cut from one array.  A ring has `depth` entries, or as many as there can be promotions. */
struct sched_rings {
    uint32_t base[SCHED_MAX_CLASSES], size[SCHED_MAX_CLASSES], head[SCHED_MAX_CLASSES];
};
/* Returns the number of entries in use, at most n * rounds. */
uint32_t sched_rings_init(struct sched_rings *r, const struct sched_chain *ch, uint32_t rounds);

#endif
