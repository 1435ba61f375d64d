/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing among equals.  Models repeat their layers, so a placement by total gain is indifferent
 * among many equal operators and takes them in a row.  Streaming is not indifferent: it needs time
 * between transfers.  These functions spread a placement over the depth of the model and keep what
 * it sums to.
 */
#ifndef ATSI_SCHED_SPREAD_H
#define ATSI_SCHED_SPREAD_H

#include "sched/chain.h"

enum sched_spread_how {
    SCHED_SPREAD_LAYERS,    /* exchanges whole layers of the same make */
    SCHED_SPREAD_IN_STEP,   /* each kind of operator by itself, all beginning alike */
    SCHED_SPREAD_STAGGERED, /* the same, each kind beginning elsewhere */
    SCHED_SPREADS
};

struct sched_spread {
    uint32_t n, n_layers;
    uint32_t *kin;       /* [n] first operator that is the same at the same place of its layer */
    uint32_t *start;     /* [n_layers + 1] first operators of runs of one layer */
    uint32_t *make;      /* [n_layers] first layer of the same make */
    const int64_t *s;    /* [n] bytes */
    uint32_t *from, *to; /* [n_layers] */
    double *key;         /* [n_layers] */
    uint8_t *old;        /* [n] */
};

size_t sched_spread_scratch(uint32_t n);
/* The same operators in two phases; out borrows the scratch. */
void sched_spread_init(const struct sched_chain *decode, const struct sched_chain *prefill,
                       void *scratch, struct sched_spread *out);
void sched_spread_apply(const struct sched_spread *sp, enum sched_spread_how how, uint8_t *b);

#endif
