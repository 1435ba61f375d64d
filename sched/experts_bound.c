/* SPDX-License-Identifier: Apache-2.0
 *
 * The clairvoyant expert cache.  Worth is how soon an expert is used again, so that what is used
 * last goes first; unlike a real cache it also lets go of what this round used.
 */
#include "sched/experts.h"

/* A slot that is empty, or whose expert is used last; -1: none. */
static int32_t latest(const struct atsi_expert_cache *in, const uint64_t *next,
                      const struct atsi_expert_swaps *out)
{
    int32_t best = -1;
    uint64_t when = 0;
    for (uint32_t s = 0; s < in->n_slots; s++) {
        int32_t e = in->expert_of[s];
        int taken = in->locked[s] != 0;
        for (uint32_t k = 0; k < out->n && !taken; k++)
            taken = out->evict[k] == (int32_t)s;
        if (taken)
            continue;
        if (e < 0)
            return (int32_t)s;
        if (best >= 0 && next[e] <= when)
            continue;
        best = (int32_t)s;
        when = next[e];
    }
    return best;
}

/* The miss that is used soonest, among those after (when, k) in that order; -1: none. */
static int32_t soonest(const struct atsi_expert_cache *in, const uint64_t *next, uint64_t turned,
                       uint32_t *at)
{
    int32_t best = -1;
    for (uint32_t k = 0; k < in->n_used && k < 64; k++) {
        int32_t e = in->used[k];
        if ((turned >> k & 1U) != 0 || in->slot_of[e] >= 0 || next[e] == UINT64_MAX)
            continue;
        if (best >= 0 && next[e] >= next[best])
            continue;
        best = e;
        *at = k;
    }
    return best;
}

void sched_experts_clairvoyant(const struct atsi_expert_cache *in, const uint64_t *next,
                               struct atsi_expert_swaps *out)
{
    uint64_t turned = 0;
    out->n = 0;
    while (out->n < in->max_swaps) {
        uint32_t at = 0;
        int32_t e = soonest(in, next, turned, &at), slot;
        if (e < 0)
            return;
        slot = latest(in, next, out);
        if (slot < 0)
            return;
        if (in->expert_of[slot] >= 0 && next[in->expert_of[slot]] <= next[e])
            return; /* the others are used later still */
        turned |= UINT64_C(1) << at;
        out->admit[out->n] = e;
        out->evict[out->n++] = slot;
    }
}
