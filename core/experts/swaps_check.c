/* SPDX-License-Identifier: Apache-2.0
 * Is a policy's answer about an expert cache legal?  Nothing is repaired. */
#include "core/experts/books.h"

static int check_one(const struct atsi_expert_cache *in, const struct atsi_expert_swaps *out,
                     uint32_t k, struct atsi_err *err)
{
    int32_t e = out->admit[k], s = out->evict[k];
    if (e < 0 || (uint32_t)e >= in->n_experts)
        return atsi_fail(err, ATSI_EINVAL, "layer %u, swap %u: expert %d, there are %u", in->layer,
                         k, e, in->n_experts);
    if (in->slot_of[e] >= 0)
        return atsi_fail(err, ATSI_EINVAL, "layer %u, swap %u: expert %d has slot %d already",
                         in->layer, k, e, in->slot_of[e]);
    if (s < 0 || (uint32_t)s >= in->n_slots)
        return atsi_fail(err, ATSI_EINVAL, "layer %u, swap %u: slot %d, there are %u", in->layer, k,
                         s, in->n_slots);
    if (in->locked[s] != 0)
        return atsi_fail(err, ATSI_EINVAL,
                         "layer %u, swap %u: slot %d is locked, expert %d is on its way there",
                         in->layer, k, s, in->expert_of[s]);
    for (uint32_t j = 0; j < k; j++)
        if (out->admit[j] == e || out->evict[j] == s)
            return atsi_fail(err, ATSI_EINVAL, "layer %u, swaps %u and %u: %s %d twice", in->layer,
                             j, k, out->admit[j] == e ? "expert" : "slot",
                             out->admit[j] == e ? e : s);
    return ATSI_OK;
}

int atsi_swaps_check(const struct atsi_expert_cache *in, const struct atsi_expert_swaps *out,
                     struct atsi_err *err)
{
    int rc = ATSI_OK;
    if (out->n > in->max_swaps)
        return atsi_fail(err, ATSI_EINVAL, "layer %u: %u swaps, at most %u are allowed", in->layer,
                         out->n, in->max_swaps);
    for (uint32_t k = 0; k < out->n && rc == ATSI_OK; k++)
        rc = check_one(in, out, k, err);
    return rc;
}
