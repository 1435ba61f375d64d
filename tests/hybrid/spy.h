/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands between an executor and its devices and writes down what reaches them, one line a call and
 * one text per lane and round: splits with their items, copies, weights with their slots, and what
 * each of them waits for.  Events go by the work that signals them, so that two executions of a
 * plan on different devices read the same, or do not agree.
 *
 * Not written down: waits for what was over when the round began, and what only devices that
 * compute need (the chosen experts' ids on their way to the host, the host keeping off values that
 * are still being copied, the end of a round).
 */
#ifndef HYBRID_SPY_H
#define HYBRID_SPY_H

#include "core/hybrid/region.h"
#include "core/round/exec.h"

enum spy_lane { SPY_HOST = 0, SPY_STREAM, SPY_ENGINE, SPY_LANES };

/* One round: its plan as a schedule, and what happened. */
struct spy_round {
    uint32_t phase, n_transfers;
    int32_t *device, *after, *slot; /* [n_items] */
    uint32_t *order;                /* [n_transfers] */
    char *lane[SPY_LANES];
};

struct spy;

struct spy_params {
    uint32_t n_items;
    /* Where slots are, so that what is sent there and read there can be checked; NULL: no bytes
     * move. */
    const struct atsi_region *region;
    const uint64_t *slot_bytes; /* [phase] */
};

/* d: its tables are replaced until the devices are closed; objects opened before stay theirs. */
struct spy *spy_open(const struct spy_params *p, struct atsi_exec_devices *d);
void spy_close(struct spy *s); /* its rounds too */
/* One watches at a time: that one, or, until then, the one that was opened last. */
void spy_use(struct spy *s);
/* A source that tells the spy what it is asked for.  [borrowed from s] */
const struct atsi_exec_source *spy_source(struct spy *s, uint32_t phase,
                                          const struct atsi_exec_source *of);
/* Rounds that have begun. */
uint32_t spy_n_rounds(const struct spy *s);
const struct spy_round *spy_round(const struct spy *s, uint32_t k);

#endif
