/* SPDX-License-Identifier: Apache-2.0
 *
 * What the lanes of a warp do together: each leaves its value, and the last to come works out the
 * results of all of them.
 *
 * Built without ThreadSanitizer's instrumentation, as block.c is.
 */
#include <string.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/sanitize.h"

static int same_op(const struct ch_worker *w, uint32_t warp, const struct ch_thread *t)
{
    for (unsigned left = t->mask; left; left &= left - 1) {
        const struct ch_thread *o = &w->threads[warp * CH_WARP + (uint32_t)__builtin_ctz(left)];
        if (o->op != t->op || o->mask != t->mask)
            return 0;
    }
    return 1;
}

/* The lane that lane `lane` reads in a shuffle, as PTX shfl defines it. */
static unsigned source_lane(const struct ch_thread *t, unsigned lane)
{
    unsigned width = (unsigned)t->width, first = lane & ~(width - 1), last = first + width - 1;
    unsigned by = (unsigned)t->arg & 31u, from = lane;
    switch (t->op) {
    case CH_SHFL:
        return first | (by & (width - 1));
    case CH_SHFL_XOR:
        from = lane ^ by;
        return from <= last ? from : lane;
    case CH_SHFL_UP:
        return lane >= first + by ? lane - by : lane;
    default:
        from = lane + by;
        return from <= last ? from : lane;
    }
}

static uint64_t shuffled(const struct ch_thread *warp, unsigned lane)
{
    const struct ch_thread *t = &warp[lane];
    unsigned from = source_lane(t, lane);
    if (!(t->mask >> from & 1u)) {
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT,
                "%s reads lane %u, which is not in mask 0x%08x (%s:%d)", t->site.what, from,
                t->mask, t->site.file, t->site.line);
    }
    return warp[from].value;
}

static uint64_t reduced(const struct ch_thread *warp, const struct ch_thread *t)
{
    uint32_t r = (uint32_t)warp[__builtin_ctz(t->mask)].value;
    for (unsigned left = t->mask & (t->mask - 1); left; left &= left - 1) {
        uint32_t v = (uint32_t)warp[__builtin_ctz(left)].value;
        switch (t->op) {
        case CH_REDUCE_ADD:
            r += v;
            break;
        case CH_REDUCE_MIN:
            r = (int32_t)v < (int32_t)r ? v : r;
            break;
        case CH_REDUCE_MAX:
            r = (int32_t)v > (int32_t)r ? v : r;
            break;
        case CH_REDUCE_MIN_U:
            r = v < r ? v : r;
            break;
        case CH_REDUCE_MAX_U:
            r = v > r ? v : r;
            break;
        case CH_REDUCE_OR:
            r |= v;
            break;
        case CH_REDUCE_AND:
            r &= v;
            break;
        default:
            r ^= v;
        }
    }
    return r;
}

static uint64_t ballot(const struct ch_thread *warp, const struct ch_thread *t)
{
    unsigned votes = 0;
    for (unsigned left = t->mask; left; left &= left - 1)
        if (warp[__builtin_ctz(left)].value)
            votes |= left & (0u - left);
    return votes;
}

static uint64_t matching(const struct ch_thread *warp, const struct ch_thread *t)
{
    unsigned same = 0;
    for (unsigned left = t->mask; left; left &= left - 1)
        if (warp[__builtin_ctz(left)].value == t->value)
            same |= left & (0u - left);
    return t->op == CH_MATCH_ANY || same == t->mask ? same : 0;
}

/* All lanes of t's mask are here: results for each, and they may go on. */
static void complete(struct ch_worker *w, uint32_t warp, struct ch_thread *t)
{
    struct ch_thread *lanes = &w->threads[warp * CH_WARP];
    uint64_t all = 0;
    if (t->op == CH_BALLOT)
        all = ballot(lanes, t);
    else if (t->op >= CH_REDUCE_ADD)
        all = reduced(lanes, t);
    for (unsigned left = t->mask; left; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        if (t->op >= CH_SHFL && t->op <= CH_SHFL_DOWN)
            lanes[lane].result = shuffled(lanes, lane);
        else if (t->op == CH_MATCH_ANY || t->op == CH_MATCH_ALL)
            lanes[lane].result = matching(lanes, &lanes[lane]);
        else
            lanes[lane].result = all;
    }
    w->warps[warp].in_op &= ~t->mask;
}

uint64_t ch_warp(enum ch_warp_op op, struct ch_site site, unsigned mask, uint64_t value, int arg,
                 int width)
{
    struct ch_worker *w = ch_self.worker;
    uint32_t warp = w->current / CH_WARP;
    struct ch_warp_state *s = &w->warps[warp];
    struct ch_thread *t = &w->threads[w->current];
    unsigned bit = 1u << w->current % CH_WARP;
    if (op != CH_ACTIVEMASK && !(mask & bit))
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT,
                "%s under mask 0x%08x, which lacks the lane itself (%s:%d)", site.what, mask,
                site.file, site.line);
    if (width < 1 || width > CH_WARP || (width & (width - 1)))
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT, "%s of width %d (%s:%d)", site.what,
                width, site.file, site.line);
    t->op = op;
    t->mask = mask;
    t->value = value;
    t->arg = arg;
    t->width = width;
    t->site = site;
    s->in_op |= bit;
    if (w->races)
        ch_tsan_release(&s->sync);
    if (op != CH_ACTIVEMASK && (s->in_op & mask) == mask && same_op(w, warp, t)) {
        complete(w, warp, t);
        ch_make_ready(w, warp, mask & ~bit);
    } else {
        ch_wait_turn(w);
    }
    if (w->races)
        ch_tsan_acquire(&s->sync);
    return t->result;
}

/* Together are those that ask at the same place when none of the warp can run. */
int ch_answer_activemask(struct ch_worker *w)
{
    int any = 0;
    for (uint32_t i = 0; i < w->n_warps; i++) {
        struct ch_thread *lanes = &w->threads[i * CH_WARP];
        for (unsigned left = w->warps[i].in_op; left;) {
            unsigned lane = (unsigned)__builtin_ctz(left), group = 0;
            left &= left - 1;
            if (lanes[lane].op != CH_ACTIVEMASK)
                continue;
            for (unsigned o = w->warps[i].in_op; o; o &= o - 1) {
                const struct ch_thread *t = &lanes[__builtin_ctz(o)];
                if (t->op == CH_ACTIVEMASK && t->site.line == lanes[lane].site.line &&
                    !strcmp(t->site.file, lanes[lane].site.file))
                    group |= o & (0u - o);
            }
            for (unsigned o = group; o; o &= o - 1)
                lanes[__builtin_ctz(o)].result = group;
            w->warps[i].in_op &= ~group;
            ch_make_ready(w, i, group);
            left &= ~group;
            any = 1;
        }
    }
    return any;
}
