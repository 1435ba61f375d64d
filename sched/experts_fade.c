/* SPDX-License-Identifier: Apache-2.0
 * The expert cache by frequency that fades: an expert comes in when the hits to be expected of it,
 * beyond those of what it displaces, save more time than its copy takes. */
#include "sched/experts.h"
#include "sched/experts_pick.h"

static double score(const void *ctx, const struct atsi_expert_cache *in, int32_t expert)
{
    (void)ctx;
    return (double)in->score[expert];
}

/* An empty slot displaces nothing and the copy runs beside the round: any use is reason enough. */
static int pays(const void *ctx, const struct atsi_expert_cache *in, int32_t expert, double worth,
                double least)
{
    (void)ctx;
    (void)expert;
    return least < 0 ||
           (worth > least && (worth - least) * (double)in->hit_ns > (double)in->admit_ns);
}

void sched_experts_fade(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out)
{
    sched_experts_pick(in, score, pays, NULL, out);
}
