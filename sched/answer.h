/* SPDX-License-Identifier: Apache-2.0
 *
 * From sides back to what a policy answers: devices, transfers in order of use with their slots,
 * predictions; and whether the plan in force is an answer of one's own that still stands.
 */
#ifndef ATSI_SCHED_ANSWER_H
#define ATSI_SCHED_ANSWER_H

#include "atsinfer/policy.h"
#include "sched/chain.h"

/* ATSI_ENOFIT with both numbers when what is left on the CPU exceeds its budget. */
int sched_write_placement(const struct atsi_problem *p, const uint8_t *b,
                          struct atsi_placement *out, struct atsi_err *err);

/* A plan of the chain (b set) as a schedule: transfers in order of use, slots in turn per class;
 * serial: each transfer waits for the operator before its own. */
void sched_write_schedule(const struct sched_chain *ch, const uint8_t *rb, int serial,
                          struct atsi_schedule *out);

/* Duration of the last of `rounds` rounds, with contention where there is any; of several as if
 * more followed.  after: as in struct sched_run, or NULL. */
size_t sched_judge_scratch(uint32_t n, uint32_t rounds);
int64_t sched_judge(const struct sched_chain *ch, const uint8_t *rb, uint32_t rounds,
                    const int32_t *after, void *scratch);
/* Rounds a prediction is made of: decode repeats, so its last round is a steady state. */
uint32_t sched_predict_rounds(uint32_t phase);
/* predicted_ns of a written schedule and, where asked for, when each operator runs. */
void sched_predict(const struct sched_chain *ch, const uint8_t *rb, uint32_t phase, void *scratch,
                   struct atsi_schedule *out);
size_t sched_predict_scratch(uint32_t n);

/* Remembers for what an answer was given.  Zeroed before the first. */
struct sched_stamp {
    uint64_t answered_ns; /* by the engine's clock; a plan is in force since then, or is not ours */
    uint64_t placed_hash;
    uint32_t n_tokens, valid;
};
void sched_stamp_set(struct sched_stamp *st, const struct atsi_round *in);
/* The plan in force is that answer, for as many tokens and the same placement. */
int sched_stamp_holds(const struct sched_stamp *st, const struct atsi_round *in);

#endif
