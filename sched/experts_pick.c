/* SPDX-License-Identifier: Apache-2.0
 * Matching a round's misses with slots. */
#include "sched/experts_pick.h"

static int was_chosen(const int32_t *list, uint32_t n, int32_t x)
{
    for (uint32_t k = 0; k < n; k++)
        if (list[k] == x)
            return 1;
    return 0;
}

/* The miss of most worth that has not had its turn; -1: none.  turned: bits by place in used. */
static int32_t next_miss(const struct atsi_expert_cache *in, sched_worth_fn *worth, const void *ctx,
                         uint64_t *turned, double *worth_out)
{
    int32_t best = -1;
    uint32_t at = 0;
    for (uint32_t k = 0; k < in->n_used && k < 64; k++) {
        double w;
        if ((*turned >> k & 1U) != 0 || in->slot_of[in->used[k]] >= 0)
            continue;
        w = worth(ctx, in, in->used[k]);
        if (best >= 0 && w <= *worth_out)
            continue;
        best = in->used[k];
        at = k;
        *worth_out = w;
    }
    if (best >= 0)
        *turned |= UINT64_C(1) << at;
    return best;
}

/* An empty slot (*least < 0), or the one of least worth; -1: none may be touched. */
static int32_t weakest(const struct atsi_expert_cache *in, sched_worth_fn *worth, const void *ctx,
                       const struct atsi_expert_swaps *out, double *least)
{
    int32_t best = -1;
    *least = -1;
    for (uint32_t s = 0; s < in->n_slots; s++) {
        double w;
        if (in->locked[s] != 0 || was_chosen(out->evict, out->n, (int32_t)s))
            continue;
        if (in->expert_of[s] < 0) {
            *least = -1;
            return (int32_t)s;
        }
        if (was_chosen(in->used, in->n_used, in->expert_of[s]))
            continue;
        w = worth(ctx, in, in->expert_of[s]);
        if (best >= 0 && w >= *least)
            continue;
        best = (int32_t)s;
        *least = w;
    }
    return best;
}

void sched_experts_pick(const struct atsi_expert_cache *in, sched_worth_fn *worth,
                        sched_admit_fn *admit, const void *ctx, struct atsi_expert_swaps *out)
{
    uint64_t turned = 0;
    out->n = 0;
    while (out->n < in->max_swaps) {
        double mine = 0, least = -1;
        int32_t expert = next_miss(in, worth, ctx, &turned, &mine), slot;
        if (expert < 0)
            return;
        slot = weakest(in, worth, ctx, out, &least);
        if (slot < 0 || (admit != NULL && !admit(ctx, in, expert, mine, least)))
            return; /* those that follow are worth no more */
        out->admit[out->n] = expert;
        out->evict[out->n++] = slot;
    }
}
