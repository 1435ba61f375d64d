/* SPDX-License-Identifier: Apache-2.0
 * Is a policy's answer legal?  Nothing is repaired: an illegal answer is refused with its reason.
 */
#include "core/round/plan.h"

#include <stdlib.h>
#include <string.h>

/* Slots of caches on the accelerator: of stacks that live on the host, where there are caches; all
 * stacks that a router chooses from have as many.  *bytes: what they take. */
static int check_cache(const struct atsi_question *q, const struct atsi_placement *p, uint32_t i,
                       uint64_t *bytes, struct atsi_err *err)
{
    const struct atsi_item *item = &q->items->items[i];
    uint32_t n = p->expert_slots[i];
    bool stack = item->n_experts > 0 && item->router >= 0;
    *bytes = 0;
    if (q->p.expert_cache == 0 || !stack)
        return ATSI_OK; /* nobody looks at the number */
    if (p->device[i] != ATSI_DEVICE_HOST)
        n = 0;
    if (n >= item->n_experts)
        return atsi_fail(err, ATSI_EINVAL,
                         "item %u (%s): %u expert slots, it has %u experts: a whole stack lives on "
                         "the accelerator",
                         i, item->name, n, item->n_experts);
    for (uint32_t k = i; k-- > 0 && q->items->items[k].router == item->router;) {
        uint32_t other = p->device[k] == ATSI_DEVICE_HOST ? p->expert_slots[k] : 0;
        if (other != n)
            return atsi_fail(err, ATSI_EINVAL,
                             "items %u (%s) and %u (%s): %u and %u expert slots for one router", k,
                             q->items->items[k].name, i, item->name, other, n);
    }
    *bytes = n * (item->resident_bytes / item->n_experts);
    return ATSI_OK;
}

int atsi_check_placement(const struct atsi_question *q, const struct atsi_placement *p,
                         struct atsi_err *err)
{
    uint64_t used[ATSI_N_DEVICES] = {0}, cache = 0;
    for (uint32_t i = 0; i < q->items->n; i++) {
        const struct atsi_item *item = &q->items->items[i];
        int32_t d = p->device[i];
        if (d < 0 || d >= ATSI_N_DEVICES)
            return atsi_fail(err, ATSI_EINVAL, "item %u (%s): device %d, there are %d", i,
                             item->name, d, ATSI_N_DEVICES);
        if (item->pinned >= 0 && d != item->pinned)
            return atsi_fail(err, ATSI_EINVAL,
                             "item %u (%s): placed on device %d, a rule asks for %d", i, item->name,
                             d, item->pinned);
        used[d] += item->resident_bytes;
        if (check_cache(q, p, i, &cache, err) != ATSI_OK)
            return ATSI_EINVAL;
        used[ATSI_DEVICE_ACCEL] += cache;
        for (d = 0; d < ATSI_N_DEVICES; d++)
            if (used[d] > q->budget[d])
                return atsi_fail(
                    err, ATSI_EINVAL,
                    "over budget: device %d holds %llu bytes up to item %u (%s), %llu allowed", d,
                    (unsigned long long)used[d], i, item->name, (unsigned long long)q->budget[d]);
    }
    return ATSI_OK;
}

static const struct atsi_item_cost *costs(const struct atsi_question *q, uint32_t phase,
                                          uint32_t device)
{
    return q->cost[phase] + (size_t)device * q->items->n;
}

static int check_devices(const struct atsi_question *q, uint32_t phase, const int32_t *placed,
                         const struct atsi_schedule *s, uint32_t *n_promoted, struct atsi_err *err)
{
    *n_promoted = 0;
    for (uint32_t i = 0; i < q->items->n; i++) {
        const char *name = q->items->items[i].name;
        int32_t d = s->device[i];
        if (d < 0 || d >= ATSI_N_DEVICES)
            return atsi_fail(err, ATSI_EINVAL, "item %u (%s): device %d, there are %d", i, name, d,
                             ATSI_N_DEVICES);
        if (d == placed[i])
            continue;
        if (placed[i] != ATSI_DEVICE_HOST)
            return atsi_fail(err, ATSI_EINVAL, "item %u (%s): lives on device %d but is run on %d",
                             i, name, placed[i], d);
        if (costs(q, phase, (uint32_t)d)[i].transfer_ns == 0)
            return atsi_fail(err, ATSI_EINVAL, "item %u (%s): promoted, but it cannot move in %s",
                             i, name, phase == ATSI_PHASE_DECODE ? "decode" : "prefill");
        (*n_promoted)++;
    }
    return ATSI_OK;
}

static int check_move(const struct atsi_question *q, uint32_t phase, const int32_t *placed,
                      const struct atsi_schedule *s, uint32_t i, struct atsi_err *err)
{
    const char *name = q->items->items[i].name;
    if (s->device[i] == placed[i])
        return atsi_fail(err, ATSI_EINVAL, "item %u (%s) is transferred but not promoted", i, name);
    if (s->slot[i] < 0 || (uint32_t)s->slot[i] >= q->slot_depth[phase])
        return atsi_fail(err, ATSI_EINVAL, "item %u (%s): slot %d, there are %u", i, name,
                         s->slot[i], q->slot_depth[phase]);
    if (s->after[i] < -1 || s->after[i] >= (int32_t)i)
        return atsi_fail(err, ATSI_EINVAL,
                         "item %u (%s): its transfer waits for item %d, which is not "
                         "before it",
                         i, name, s->after[i]);
    return ATSI_OK;
}

/* Walks the order: a transfer waits for the consumer of the one before it in its slot, for its
 * router and its start condition.  Each of them must come before the items that use what is queued
 * ahead. */
static int check_order(const struct atsi_question *q, uint32_t phase, const struct atsi_schedule *s,
                       uint32_t *last_in_slot, struct atsi_err *err)
{
    uint32_t first_use =
        UINT32_MAX; /* smallest item whose weight is queued at or behind this one */
    for (uint32_t k = 0; k < q->slot_depth[phase]; k++)
        last_in_slot[k] = UINT32_MAX;
    /* From the back: needed[k] = the earliest item that needs transfer k or a later one. */
    for (uint32_t k = s->n_transfers; k-- > 0;) {
        uint32_t i = s->order[k];
        int32_t router = phase == ATSI_PHASE_DECODE ? q->items->items[i].router : -1;
        int32_t wait = s->after[i] > router ? s->after[i] : router;
        if (i < first_use)
            first_use = i;
        /* Items from first_use on cannot run before transfer k is done. */
        if (wait >= (int32_t)first_use)
            return atsi_fail(err, ATSI_EINVAL,
                             "transfer order blocks: item %u (%s) is queued ahead of item %u but "
                             "waits for item %d",
                             i, q->items->items[i].name, first_use, wait);
        /* The next transfer into the same slot waits until i has used it. */
        if (last_in_slot[s->slot[i]] != UINT32_MAX && last_in_slot[s->slot[i]] <= i)
            return atsi_fail(
                err, ATSI_EINVAL,
                "transfer order blocks: slot %d is refilled for item %u before item %u "
                "has used it",
                s->slot[i], last_in_slot[s->slot[i]], i);
        last_in_slot[s->slot[i]] = first_use;
    }
    return ATSI_OK;
}

int atsi_check_schedule(const struct atsi_question *q, uint32_t phase, const int32_t *placed,
                        const struct atsi_schedule *s, struct atsi_err *err)
{
    uint32_t n_promoted, *last;
    unsigned char *seen;
    int rc = check_devices(q, phase, placed, s, &n_promoted, err);
    if (rc != ATSI_OK)
        return rc;
    if (s->n_transfers != n_promoted)
        return atsi_fail(err, ATSI_EINVAL, "%u transfers for %u promoted items", s->n_transfers,
                         n_promoted);
    seen = calloc((size_t)q->items->n + 1, 1);
    last = calloc((size_t)q->slot_depth[phase] + 1, sizeof *last);
    if (seen == NULL || last == NULL) {
        free(seen);
        free(last);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory checking a schedule");
    }
    for (uint32_t k = 0; k < s->n_transfers && rc == ATSI_OK; k++) {
        uint32_t i = s->order[k];
        if (i >= q->items->n || seen[i] != 0)
            rc = atsi_fail(err, ATSI_EINVAL, "transfer %u: item %u %s", k, i,
                           i < q->items->n ? "a second time" : "does not exist");
        else
            rc = check_move(q, phase, placed, s, i, err);
        if (rc == ATSI_OK)
            seen[i] = 1;
    }
    if (rc == ATSI_OK)
        rc = check_order(q, phase, s, last, err);
    free(seen);
    free(last);
    return rc;
}
