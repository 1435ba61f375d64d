/* SPDX-License-Identifier: Apache-2.0
 *
 * Where weights live: the paper's Algorithm 1, the placements by layers and by experts it is
 * compared with, and the placement that serves prefill and decode at once.
 *
 * b_out: [n] sides.  scratch: 64-byte aligned, of the size told.
 */
#ifndef ATSI_SCHED_PLACE_H
#define ATSI_SCHED_PLACE_H

#include "sched/chain.h"

/* Budgets are counted in units; each weight is rounded up to whole ones. */
#define SCHED_UNIT (INT64_C(1) << 20)
#define SCHED_MAX_UNITS (INT64_C(1) << 20)

struct sched_alg1 {
    int64_t unit;     /* bytes */
    const int64_t *r; /* [n] gain of living on the GPU; NULL: tc - tg */
    const int64_t *c; /* [n] price of a change of sides before each; NULL: c of the operators */
    /* Two readings of the branch for models with experts: 0, fixed tensors stay in the chain and
     * switches are charged at true boundaries; 1, the subsequence of free tensors is solved alone.
     */
    int subsequence;
};

/* Scratch in bytes; SIZE_MAX when the budget has more than SCHED_MAX_UNITS units. */
size_t sched_alg1_scratch(const struct sched_chain *ch, int64_t unit);
/* Maximises the gains on the GPU less the price of switches within ch->budget, by dynamic
 * programming over n * budget cells.  Only s, tc, tg, c, is_exp and pinned of the operators are
 * read. ATSI_ENOFIT when the pinned operators alone exceed the budget; ATSI_EINVAL for too small a
 * unit. */
int sched_alg1(const struct sched_chain *ch, const struct sched_alg1 *how, void *scratch,
               uint8_t *b_out, int64_t *value_out, struct atsi_err *err);
/* Value of a placement under the same objective. */
int64_t sched_alg1_value(const struct sched_chain *ch, const struct sched_alg1 *how,
                         const uint8_t *b);

/* Placements in coarse grains. */
enum sched_grain {
    SCHED_BY_LAYER,  /* the last layers as a whole while they fit, operators without a layer last */
    SCHED_BY_EXPERT, /* everything but experts, and the experts of the last layers while they fit;
                        without experts, or when the rest does not fit: by layer */
    SCHED_BY_DENSITY /* operators by time gained per byte, each that fits */
};
/* What the user pinned is honoured, and paid from the budget first, unless `ignore_pins`. */
size_t sched_grain_scratch(uint32_t n);
int sched_place_grain(const struct sched_chain *ch, enum sched_grain grain, int ignore_pins,
                      void *scratch, uint8_t *b_out, struct atsi_err *err);

/* No whole-tensor plan on the placement ch->b has a shorter round in steady state, `gap` included,
 * on either timeline: the chain needs the time of what runs, the engine that of what moves.  Slots,
 * routers, switches and contention are left out.  Rounded down. */
size_t sched_bound_scratch(uint32_t n);
int64_t sched_bound(const struct sched_chain *ch, void *scratch);

/* Placement for both phases. */
struct sched_coplace {
    /* The same operators in both phases: s, pins and the budget are read from `decode`. */
    const struct sched_chain *decode, *prefill; /* b is not used */
    uint32_t n_tokens, n_chunks;                /* decode rounds and prefill chunks of a request */
    uint32_t decode_rounds;                     /* decode is judged by the last of so many: 2 */
    int64_t unit;                               /* of Algorithm 1 */
    const uint8_t *attn; /* [n] or NULL: operators tried both on the GPU and left to the solver */
};
struct sched_coplaced {
    double request_ns;             /* n_tokens decode rounds and n_chunks chunks */
    int64_t decode_ns, prefill_ns; /* one of each */
    uint32_t tried;                /* different placements */
};
size_t sched_coplace_scratch(const struct sched_coplace *how);
/* Statuses as of sched_alg1(). */
int sched_coplace(const struct sched_coplace *how, void *scratch, uint8_t *b_out,
                  struct sched_coplaced *out, struct atsi_err *err);

#endif
