/* SPDX-License-Identifier: Apache-2.0
 *
 * A policy that answers anything legal: random places within the budget, a random choice of what is
 * promoted, random slots, orders and starts.  Equal questions get equal answers; `plan_seed` and
 * the context make them different. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>

static const struct atsi_host *settings;

void twin_random_open(const struct atsi_host *host)
{
    settings = host;
}

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return n > 0 ? (uint32_t)(*seed >> 33) % n : 0;
}

static size_t scratch_bytes(uint32_t n)
{
    (void)n;
    return 0;
}

static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    uint64_t seed = twin_number(settings, "plan_seed"), left = in->budget_bytes[1];
    uint32_t share = draw(&seed, 101);           /* per cent that want to live there */
    for (uint32_t i = 0; i < in->n_items; i++) { /* those that must come first */
        const struct atsi_item *it = in->items[i];
        out->device[i] = it->pinned == 1;
        if (it->pinned != 1)
            continue;
        if (it->resident_bytes > left)
            return atsi_fail(err, ATSI_ENOFIT, "rules ask for more than there is");
        left -= it->resident_bytes;
    }
    for (uint32_t i = 0; i < in->n_items; i++) {
        const struct atsi_item *it = in->items[i];
        if (it->pinned < 0 && it->resident_bytes <= left && draw(&seed, 100) < share) {
            out->device[i] = 1;
            left -= it->resident_bytes;
        }
    }
    return ATSI_OK;
}

static const struct atsi_item_cost *costs(const struct atsi_round *in)
{
    return (in->phase == ATSI_PHASE_DECODE ? in->problem->decode : in->problem->prefill) +
           in->problem->n_items;
}

static int32_t waits_for(const struct atsi_round *in, const struct atsi_schedule *s, uint32_t i)
{
    int32_t router = in->phase == ATSI_PHASE_DECODE ? in->problem->items[i]->router : -1;
    return s->after[i] > router ? s->after[i] : router;
}

/* Nothing waits for an item that needs what is queued behind it. */
static bool flows(const struct atsi_round *in, const struct atsi_schedule *s)
{
    uint32_t first_use = UINT32_MAX;
    uint32_t next[64];
    for (int k = 0; k < 64; k++)
        next[k] = UINT32_MAX;
    for (uint32_t k = s->n_transfers; k-- > 0;) {
        uint32_t i = s->order[k];
        if (i < first_use)
            first_use = i;
        if (waits_for(in, s, i) >= (int32_t)first_use)
            return false;
        if (next[s->slot[i]] != UINT32_MAX && next[s->slot[i]] <= i)
            return false;
        next[s->slot[i]] = first_use;
    }
    return true;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Random exchanges and starts, each taken back when the order would block. */
static void shuffle(const struct atsi_round *in, struct atsi_schedule *s, uint64_t *seed)
{
    for (uint32_t k = 0; k + 1 < s->n_transfers; k++) {
        uint32_t other = k + 1 + draw(seed, 3), i = s->order[k];
        if (other < s->n_transfers && draw(seed, 2) == 0) {
            swap(&s->order[k], &s->order[other]);
            if (!flows(in, s))
                swap(&s->order[k], &s->order[other]);
        }
        if (i > 0 && draw(seed, 3) == 0) {
            s->after[i] = (int32_t)draw(seed, i);
            if (!flows(in, s))
                s->after[i] = -1;
        }
    }
}

static int schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    uint64_t seed = twin_number(settings, "plan_seed") * 1000003U + in->n_ctx * 131U +
                    in->n_tokens * 7U + in->phase;
    uint32_t share = draw(&seed, 101), depth = in->problem->slot_depth[in->phase];
    (void)err;
    out->n_transfers = 0;
    for (uint32_t i = 0; i < in->problem->n_items; i++) {
        out->device[i] = in->placed[i];
        out->after[i] = out->slot[i] = -1;
        if (in->placed[i] != 0 || depth == 0 || costs(in)[i].transfer_ns == 0 ||
            in->problem->items[i]->can_promote == 0 || draw(&seed, 100) >= share)
            continue;
        out->device[i] = 1;
        out->slot[i] = (int32_t)draw(&seed, depth < 64 ? depth : 64);
        out->order[out->n_transfers++] = i;
    }
    shuffle(in, out, &seed);
    return ATSI_OK;
}

const struct atsi_policy_ops twin_random_ops = {.struct_size = sizeof twin_random_ops,
                                                .scratch_bytes = scratch_bytes,
                                                .place = place,
                                                .schedule = schedule};
