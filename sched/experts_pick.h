/* SPDX-License-Identifier: Apache-2.0
 * What the ways of choosing share: walking through a round's misses, and looking for a slot. */
#ifndef ATSI_SCHED_EXPERTS_PICK_H
#define ATSI_SCHED_EXPERTS_PICK_H

#include "atsinfer/policy.h"

/* Larger: worth more to keep. */
typedef double sched_worth_fn(const void *ctx, const struct atsi_expert_cache *in, int32_t expert);
/* Whether `expert` is to come in for what is worth `least` (an empty slot: worth < 0). */
typedef int sched_admit_fn(const void *ctx, const struct atsi_expert_cache *in, int32_t expert,
                           double worth, double least);

/* Takes a round's misses in order of worth, most first (ties: the router's order), each into an
 * empty slot or the slot of least worth (ties: the first), as long as `admit` (NULL: always) says
 * yes. What this round used stays. */
void sched_experts_pick(const struct atsi_expert_cache *in, sched_worth_fn *worth,
                        sched_admit_fn *admit, const void *ctx, struct atsi_expert_swaps *out);

#endif
