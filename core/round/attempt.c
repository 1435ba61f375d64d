/* SPDX-License-Identifier: Apache-2.0
 * Asking a policy for a schedule. */
#include "core/round/attempt.h"

#include <time.h>

uint64_t atsi_wall_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

void atsi_schedule_stay(const int32_t *placed, struct atsi_schedule *out)
{
    out->n_transfers = 0;
    out->predicted_ns = 0;
    out->keep = 0;
    for (uint32_t i = 0; i < out->n_items; i++) {
        out->device[i] = placed[i];
        out->after[i] = out->slot[i] = -1;
    }
}

void atsi_attempt_schedule(const struct atsi_question *q, const struct atsi_policy_use *use,
                           const struct atsi_round *in, struct atsi_schedule *out,
                           struct atsi_attempt *result)
{
    uint64_t start;
    *result = (struct atsi_attempt){.made = true, .why = ATSI_ERR_INIT};
    atsi_schedule_stay(in->placed, out);
    start = atsi_wall_ns();
    result->rc = use->ops->schedule(in, out, &result->why);
    result->took_ns = atsi_wall_ns() - start;
    if (result->rc != ATSI_OK)
        return;
    if (out->keep != 0 && in->in_force == NULL)
        result->legal = atsi_fail(&result->why, ATSI_EINVAL, "keeps a plan, but none is in force");
    else if (out->keep == 0)
        result->legal = atsi_check_schedule(q, in->phase, in->placed, out, &result->why);
}
