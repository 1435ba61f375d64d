/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches: who comes in and who goes, how many slots each layer gets, and what no cache can
 * do better.  Pure functions on the data of a policy's question (atsinfer/policy.h).
 */
#ifndef ATSI_SCHED_EXPERTS_H
#define ATSI_SCHED_EXPERTS_H

#include "atsinfer/policy.h"

/* Each of these has the signature of atsi_policy_ops.swap_experts without its err: nothing in a
 * checked question can make them fail. */

/* Every miss comes in, best first, for what was not used longest. */
void sched_experts_lru(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out);
/* A miss comes in for what was used less often than it, over all rounds. */
void sched_experts_lfu(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out);
/* By frequency that fades.  The score of an expert that is used with probability p tends to p times
 * the mean life of a use, m = half_life / ln 2 rounds: the hits to be expected within m rounds.  So
 * a miss is worth its copy if (its score - the least score of a slot) hit_ns > admit_ns. */
void sched_experts_fade(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out);

/* The clairvoyant bound (Belady 1966, with the choice not to take an expert in): next[e] is the
 * number of the round after this one that uses e next, UINT64_MAX: never.  What was used comes in
 * for what is used last, if it is used sooner.  A cache that takes in only what it has just missed,
 * without limits, has no more hits. */
void sched_experts_clairvoyant(const struct atsi_expert_cache *in, const uint64_t *next,
                               struct atsi_expert_swaps *out);

/* ---- sharing the memory */
struct sched_cache_layer {
    uint32_t n_experts, n_used;
    uint64_t bytes;    /* of one expert: a slot */
    uint64_t hit_ns;   /* what a hit saves */
    const float *uses; /* [n_experts] most first; NULL: not known */
    uint32_t n_slots;  /* out */
};
/* Slots one by one to where the expected hits per byte are most; none beyond n_experts - 1, since a
 * whole stack needs no cache.  Returns the bytes given out.  heap: [n] scratch. */
uint64_t sched_experts_share(struct sched_cache_layer *layers, uint32_t n, uint64_t budget,
                             uint32_t *heap);
/* Expected hits of a token with so many slots, if those used most have them: 0 .. n_used. */
double sched_experts_hits(const struct sched_cache_layer *l, uint32_t n_slots);

#endif
