/* SPDX-License-Identifier: Apache-2.0
 *
 * A policy that is legal, and promotes what it can, unless a definition spoils it in one way.
 */
#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum fault {
    GOOD,
    OVER_BUDGET, /* places everything on the accelerator */
    IGNORES_RULES,
    WRONG_DEVICE, /* runs an item on a device there is not */
    ORDER,        /* moves weights last first through one slot */
    KEEPS,        /* keeps a plan whether there is one or not */
    FAILS,
    RANDOM,   /* another answer to the same question */
    STATEFUL, /* remembers the last question in a static variable */
    UNSAFE,   /* works in static memory */
    SLOW,
    CRASHES,
    ENDLESS,
    EXITS,
    OVERRUNS,        /* writes one element too many */
    WRITES_INPUT,    /* changes a cost */
    SCRATCH_OVERRUN, /* takes less scratch than it uses */
    /* About caches of experts; what else is asked is answered well. */
    SWAPS_RANGE,    /* admits an expert there is not */
    SWAPS_TWICE,    /* the same expert into two slots */
    SWAPS_MANY,     /* more than may come in */
    SWAPS_LOCKED,   /* into slots whose expert is still on its way */
    SWAPS_STATEFUL, /* remembers the question before */
    SWAPS_OVERRUN,
    SWAPS_CRASH, /* where there are no slots */
    SWAPS_FAIL
};
static const enum fault fault = FIXTURE_FAULT;

static uint32_t counter, last_n;
static volatile uint32_t shared;
static volatile uintptr_t nowhere = 64; /* an address nothing lies at */

static void pause_ns(long ns)
{
    const struct timespec t = {.tv_nsec = ns};
    (void)nanosleep(&t, NULL);
}

static size_t scratch_bytes(uint32_t n_items)
{
    return n_items;
}

static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    uint64_t left = in->budget_bytes[1];
    (void)err;
    while (fault == ENDLESS)
        shared++;
    for (uint32_t i = 0; i < in->n_items; i++) {
        const struct atsi_item *it = in->items[i];
        out->device[i] = it->pinned > 0 ? 1 : 0;
        left -= out->device[i] == 1 ? it->resident_bytes : 0;
    }
    for (uint32_t i = 0; i < in->n_items; i++) {
        const struct atsi_item *it = in->items[i];
        if ((it->pinned < 0 || fault == IGNORES_RULES) && out->device[i] == 0 &&
            (it->resident_bytes <= left || fault == OVER_BUDGET)) {
            out->device[i] = 1;
            left -= it->resident_bytes;
        }
    }
    if (fault == SCRATCH_OVERRUN)
        memset(in->scratch, 0, in->n_items + 1);
    return ATSI_OK;
}

/* Every second weight of what may move, in order of use; slots in turn. */
static void promote(const struct atsi_round *in, struct atsi_schedule *out, uint32_t first)
{
    const struct atsi_problem *p = in->problem;
    const struct atsi_item_cost *cost = in->phase == ATSI_PHASE_DECODE ? p->decode : p->prefill;
    uint32_t depth = p->slot_depth[in->phase * p->n_slot_classes];
    for (uint32_t i = first; i < p->n_items && depth > 0; i += 2) {
        if (in->placed[i] != 0 || cost[p->n_items + i].transfer_ns == 0)
            continue;
        out->device[i] = 1;
        out->slot[i] = (int32_t)(out->n_transfers % depth);
        out->order[out->n_transfers++] = i;
    }
}

static void reverse(struct atsi_schedule *out)
{
    for (uint32_t k = 0; k < out->n_transfers / 2; k++) {
        uint32_t i = out->order[k], other = out->n_transfers - 1 - k;
        out->order[k] = out->order[other];
        out->order[other] = i;
    }
    for (uint32_t k = 0; k < out->n_transfers; k++)
        out->slot[out->order[k]] = 0;
}

/* What is written into a static variable and read again a little later. */
static uint32_t through_static(uint32_t n)
{
    shared = n;
    pause_ns(100000);
    return shared;
}

static void misbehave(const struct atsi_round *in, struct atsi_schedule *out)
{
    switch (fault) {
    case WRONG_DEVICE:
        out->device[out->n_items - 1] = 7;
        break;
    case ORDER:
        reverse(out);
        break;
    case KEEPS:
        out->keep = 1;
        break;
    case RANDOM:
        out->predicted_ns = ++counter;
        break;
    case STATEFUL:
        out->predicted_ns = last_n;
        last_n = in->problem->n_items;
        break;
    case UNSAFE:
        out->predicted_ns = through_static(in->problem->n_items + in->phase);
        break;
    case SLOW:
        pause_ns(1500000);
        break;
    case CRASHES:
        if (in->phase == ATSI_PHASE_DECODE)
            *(volatile int *)nowhere = 1;
        break;
    case EXITS:
        exit(3);
    case OVERRUNS:
        out->after[out->n_items] = -1;
        break;
    case WRITES_INPUT:
        ((struct atsi_item_cost *)(uintptr_t)in->problem->decode)->run_ns++;
        break;
    default:
        break;
    }
}

static int schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    if (fault == FAILS)
        return atsi_fail(err, ATSI_ENOTSUP, "no idea about %u items", out->n_items);
    out->keep = 0;
    out->n_transfers = 0;
    for (uint32_t i = 0; i < out->n_items; i++) {
        out->device[i] = in->placed[i];
        out->after[i] = out->slot[i] = -1;
    }
    promote(in, out, in->phase);
    misbehave(in, out);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- caches of experts */
/* Misses into the first slots that are not locked. */
static void admit_misses(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out)
{
    uint32_t slot = 0;
    for (uint32_t k = 0; k < in->n_used && out->n < in->max_swaps; k++) {
        if (in->slot_of[in->used[k]] >= 0)
            continue;
        while (slot < in->n_slots && in->locked[slot] != 0 && fault != SWAPS_LOCKED)
            slot++;
        if (slot == in->n_slots)
            break;
        out->admit[out->n] = in->used[k];
        out->evict[out->n++] = (int32_t)slot++;
    }
}

static void spoil_swaps(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out)
{
    switch (fault) {
    case SWAPS_RANGE:
        if (out->n > 0)
            out->admit[0] = (int32_t)in->n_experts;
        break;
    case SWAPS_TWICE:
        if (out->n > 1)
            out->admit[1] = out->admit[0];
        break;
    case SWAPS_MANY:
        out->n = in->max_swaps + 1;
        break;
    case SWAPS_STATEFUL:
        out->n = last_n == in->n_experts ? out->n : 0;
        last_n = in->n_experts;
        break;
    case SWAPS_OVERRUN:
        out->evict[in->max_swaps] = 0;
        break;
    case SWAPS_CRASH:
        if (in->n_slots == 0)
            *(volatile int *)nowhere = 1;
        break;
    default:
        break;
    }
}

static int swap_experts(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                        struct atsi_err *err)
{
    if (fault == SWAPS_FAIL)
        return atsi_fail(err, ATSI_ENOTSUP, "no idea about %u slots", in->n_slots);
    out->n = 0;
    admit_misses(in, out);
    spoil_swaps(in, out);
    return ATSI_OK;
}

static const struct atsi_policy_ops ops = {.struct_size = sizeof ops,
                                           .scratch_bytes = scratch_bytes,
                                           .place = place,
                                           .schedule = schedule,
                                           .swap_experts = swap_experts};
static const struct atsi_component policy = {sizeof policy, ATSI_KIND_POLICY, FIXTURE_NAME, &ops};
static const struct atsi_component *const components[] = {&policy, NULL};
static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = FIXTURE_NAME,
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .components = components};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
    return &plugin;
}
