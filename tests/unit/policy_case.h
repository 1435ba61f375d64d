/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies under test: plugins loaded with settings of the test's, and questions made of chains.
 */
#ifndef ATSI_TEST_POLICY_CASE_H
#define ATSI_TEST_POLICY_CASE_H

#include <stdbool.h>

#include "atsinfer/policy.h"
#include "core/round/plan.h"
#include "sched/chain.h"

/* Loads a policy plugin and hands it settings "key=value", NULL-terminated; what was loaded before
 * with others takes these.  The settings must outlive its use. */
const struct atsi_policy_ops *policy_load(const char *plugin, const char *const *settings);

/* A question with everything a policy and the core's checks read. */
struct policy_case {
    struct atsi_question *q;
    struct atsi_answer *answer;
    struct atsi_round round;
    uint32_t slowdown[ATSI_N_CLASSES];
    int32_t *in_force; /* [n] */
    void *state;
    size_t state_bytes;
};

/* The same operators in decode and in prefill.  Operators that are pinned to the GPU in `decode`
 * become attention if pins_are_attention, rules otherwise. */
void policy_case_open(struct policy_case *c, const struct sched_chain *decode,
                      const struct sched_chain *prefill, bool pins_are_attention);
void policy_case_close(struct policy_case *c);

/* Asks with scratch of the exact size, filled with junk; legal answers only.  Returns the status.
 */
int policy_case_place(struct policy_case *c, const struct atsi_policy_ops *ops,
                      struct atsi_err *err);
int policy_case_schedule(struct policy_case *c, const struct atsi_policy_ops *ops, uint32_t phase,
                         struct atsi_err *err);
/* Takes the last schedule as the one in force from now on. */
void policy_case_adopt(struct policy_case *c);
/* Placement by hand. */
void policy_case_put(struct policy_case *c, const uint8_t *b);
/* Sides of the answer. */
void policy_case_sides(const struct policy_case *c, const int32_t *device, uint8_t *side);
uint64_t policy_case_used(const struct policy_case *c);

#endif
