/* SPDX-License-Identifier: Apache-2.0
 * The expert cache that keeps what was used most often, ever. */
#include "sched/experts.h"
#include "sched/experts_pick.h"

static double uses(const void *ctx, const struct atsi_expert_cache *in, int32_t expert)
{
    (void)ctx;
    return (double)in->count[expert];
}

static int is_more(const void *ctx, const struct atsi_expert_cache *in, int32_t expert,
                   double worth, double least)
{
    (void)ctx;
    (void)in;
    (void)expert;
    return worth > least;
}

void sched_experts_lfu(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out)
{
    sched_experts_pick(in, uses, is_more, NULL, out);
}
