/* SPDX-License-Identifier: Apache-2.0
 *
 * One round as the schedulers see it: n operators in a fixed order, each depending on the one
 * before it, two sides to run on, one copy engine that brings weights from the host.
 * docs/scheduling.md describes the model; everything in sched/ is a pure function of these structs:
 * no clock, no I/O, no allocation (scratch is lent by the caller), no state, safe from any thread.
 *
 * Times are nanoseconds, sizes bytes.  Functions other than the checks assume a checked chain.
 */
#ifndef ATSI_SCHED_CHAIN_H
#define ATSI_SCHED_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include "atsinfer/status.h"

enum sched_side { SCHED_CPU = 0, SCHED_GPU = 1 };

/* Limits under which no sum overflows an int64_t: 2^14 operators, a few times of 2^40 ns (18
 * minutes) or prices of 2^42 ns each, 16 rounds. */
#define SCHED_MAX_OPS 16384u
#define SCHED_MAX_CLASSES 64u
#define SCHED_MAX_ROUNDS 16u
#define SCHED_MAX_NS (INT64_C(1) << 40)
#define SCHED_MAX_BYTES (INT64_C(1) << 48)
#define SCHED_MIN_SPEED (1.0 / 1024)

struct sched_op {
    int64_t s;      /* resident bytes of its weight: all experts; KV or state of attention */
    int64_t tc, tg; /* running on the CPU, on the GPU */
    int64_t c;      /* one symmetric price of a switch of sides before it; [0]'s is not used */
    int64_t w;      /* moving its weight to the GPU */
    int64_t cg, gc; /* activations CPU -> GPU and GPU -> CPU just before it, launch included */
    int64_t evt;    /* cut before an operator whose weight arrives during the round */
    double km, kx;  /* speeds of it on the CPU and of a transfer while both go on, (0, 1] */
    int32_t rel;    /* its transfer may start only after this earlier operator, -1: at once */
    int32_t layer;  /* for layer-wise placements; -1: none */
    uint16_t role;  /* class of temporary slot, < n_classes */
    uint8_t promo;  /* 1: its weight may be streamed for a round */
    uint8_t is_exp; /* 1: weights of experts */
    int8_t pinned;  /* placement asked for by the user: a side, or -1 */
    uint8_t pad[3];
};

struct sched_chain {
    uint32_t n, n_classes;
    const struct sched_op *op; /* [n] */
    const uint8_t *b;          /* [n] sides where weights live; NULL only for placement */
    const uint32_t *depth;     /* [n_classes] temporary slots, at least 1 each */
    int64_t rlat;              /* from the end of op[rel] until its transfers may start */
    int64_t out;               /* result to the host when the last operator ran on the GPU */
    int64_t gap;               /* host time between two rounds */
    int64_t budget;            /* bytes a placement may put on the GPU */
    double am, ax;             /* speeds of an activation copy and a transfer at a time */
};

/* ATSI_OK, or ATSI_EINVAL with the operator and the number that break a rule above. */
int sched_chain_check(const struct sched_chain *ch, struct atsi_err *err);

/* A plan is a side per operator.  Legal: what lives on the GPU runs there, and what lives on the
 * CPU runs on the GPU only if it may be streamed ("promoted"). */
int sched_plan_check(const struct sched_chain *ch, const uint8_t *rb, struct atsi_err *err);

static inline int sched_is_free(const struct sched_chain *ch, uint32_t i)
{
    return ch->b[i] == SCHED_CPU && ch->op[i].promo;
}

static inline int sched_promoted(const struct sched_chain *ch, const uint8_t *rb, uint32_t i)
{
    return ch->b[i] == SCHED_CPU && rb[i] == SCHED_GPU;
}

/* Whether any speed is below 1, that is, whether the two timelines differ. */
int sched_contended(const struct sched_chain *ch);

/* The same problem with runs of operators that live on the GPU joined to one: what the searches
 * work on.  Latencies of corresponding plans agree (exactly without contention, to rounding with
 * it). */
struct sched_merged {
    struct sched_chain chain;
    const uint32_t *first; /* [chain.n] first original operator of each; the last of a run is the
                              one before the next first */
    uint32_t n_full;
};
size_t sched_merge_scratch(uint32_t n);
void sched_merge(const struct sched_chain *ch, void *scratch, struct sched_merged *out);
/* rb of the full chain to the merged one, and back. */
void sched_merge_plan(const struct sched_merged *m, const uint8_t *full, uint8_t *merged_out);
void sched_unmerge_plan(const struct sched_merged *m, const uint8_t *merged, uint8_t *full_out);

#endif
