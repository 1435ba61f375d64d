/* SPDX-License-Identifier: Apache-2.0
 * The expert cache that keeps what was used last. */
#include "sched/experts.h"
#include "sched/experts_pick.h"

static double last_use(const void *ctx, const struct atsi_expert_cache *in, int32_t expert)
{
    (void)ctx;
    return (double)in->last[expert];
}

void sched_experts_lru(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out)
{
    sched_experts_pick(in, last_use, NULL, NULL, out);
}
