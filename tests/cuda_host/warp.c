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

/* What a warp does together: its state, and its lanes. */
struct meeting {
    struct ch_warp_state *state;
    struct ch_thread *lanes;
    unsigned mask;
};

static int same_op(const struct meeting *m, const struct ch_thread *t)
{
    for (unsigned left = m->mask; left; left &= left - 1) {
        const struct ch_thread *o = &m->lanes[__builtin_ctz(left)];
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

static uint64_t shuffled(const struct meeting *m, unsigned lane)
{
    const struct ch_thread *t = &m->lanes[lane];
    unsigned from = source_lane(t, lane);
    if (!(t->mask >> from & 1u)) {
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT,
                "%s reads lane %u, which is not in mask 0x%08x (%s:%d)", t->site->what, from,
                t->mask, t->site->file, t->site->line);
    }
    return m->state->value[from];
}

static uint64_t reduced(const struct meeting *m, enum ch_warp_op op)
{
    const uint64_t *value = m->state->value;
    uint32_t r = (uint32_t)value[__builtin_ctz(m->mask)];
    for (unsigned left = m->mask & (m->mask - 1); left; left &= left - 1) {
        uint32_t v = (uint32_t)value[__builtin_ctz(left)];
        switch (op) {
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

static uint64_t ballot(const struct meeting *m)
{
    unsigned votes = 0;
    for (unsigned left = m->mask; left; left &= left - 1)
        if (m->state->value[__builtin_ctz(left)])
            votes |= left & (0u - left);
    return votes;
}

static uint64_t matching(const struct meeting *m, unsigned lane)
{
    const uint64_t *value = m->state->value;
    unsigned same = 0;
    for (unsigned left = m->mask; left; left &= left - 1)
        if (value[__builtin_ctz(left)] == value[lane])
            same |= left & (0u - left);
    return m->lanes[lane].op == CH_MATCH_ANY || same == m->mask ? same : 0;
}

/* Every lane of the warp asks for the same shuffle across all of it: most do. */
static int shuffle_all(const struct meeting *m, const struct ch_thread *t)
{
    unsigned by = (unsigned)t->arg & 31u;
    if (t->op != CH_SHFL_XOR || m->mask != 0xffffffffu || t->width != CH_WARP || !m->state->alike)
        return 0;
    for (unsigned lane = 0; lane < CH_WARP; lane++)
        m->state->result[lane] = m->state->value[lane ^ by];
    return 1;
}

static uint64_t result_of_lane(const struct meeting *m, unsigned lane, uint64_t of_all)
{
    enum ch_warp_op op = m->lanes[lane].op;
    if (op >= CH_SHFL && op <= CH_SHFL_DOWN)
        return shuffled(m, lane);
    return op == CH_MATCH_ANY || op == CH_MATCH_ALL ? matching(m, lane) : of_all;
}

/* All lanes of t's mask are here: results for each, and they may go on. */
static void complete(const struct meeting *m, const struct ch_thread *t)
{
    uint64_t all = 0;
    if (t->op == CH_BALLOT)
        all = ballot(m);
    else if (t->op >= CH_REDUCE_ADD)
        all = reduced(m, t->op);
    if (!shuffle_all(m, t)) {
        for (unsigned left = m->mask; left; left &= left - 1) {
            unsigned lane = (unsigned)__builtin_ctz(left);
            m->state->result[lane] = result_of_lane(m, lane, all);
        }
    }
    m->state->in_op &= ~m->mask;
}

static void check_call(const struct ch_site *site, unsigned mask, unsigned bit, int width, int any)
{
    if (!any && !(mask & bit))
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT,
                "%s under mask 0x%08x, which lacks the lane itself (%s:%d)", site->what, mask,
                site->file, site->line);
    if (width < 1 || width > CH_WARP || (width & (width - 1)))
        ch_trap(cudaErrorLaunchFailure, CUDA_HOST_DIVERGENT, "%s of width %d (%s:%d)", site->what,
                width, site->file, site->line);
}

/* What a lane asks for, but for the value: of the distance, as much as counts. */
static uint64_t wish(enum ch_warp_op op, unsigned mask, int arg, int width)
{
    return (uint64_t)mask << 32 | ((unsigned)arg & 31u) << 16 | (unsigned)width << 8 | (unsigned)op;
}

/* Lane `lane` waits with the wish. */
static void come(struct ch_warp_state *s, unsigned lane, uint64_t wish, int any)
{
    if (!s->in_op) {
        s->wish = wish;
        s->alike = !any; /* the active lanes leave one by one */
    } else if (wish != s->wish) {
        s->alike = 0;
    }
    s->in_op |= 1u << lane;
}

uint64_t ch_warp(enum ch_warp_op op, const struct ch_site *site, unsigned mask, uint64_t value,
                 int arg, int width)
{
    struct ch_worker *w = ch_self.worker;
    uint32_t warp = w->current / CH_WARP, lane = w->current % CH_WARP;
    struct ch_warp_state *s = &w->warps[warp];
    struct ch_thread *t = &w->threads[w->current];
    struct meeting m = {s, &w->threads[warp * CH_WARP], mask};
    check_call(site, mask, 1u << lane, width, op == CH_ACTIVEMASK);
    *t = (struct ch_thread){site, op, mask, arg, width};
    s->value[lane] = value;
    come(s, lane, wish(op, mask, arg, width), op == CH_ACTIVEMASK);
    if (ch_races(w))
        ch_tsan_release(&s->sync);
    if (op != CH_ACTIVEMASK && (s->in_op & mask) == mask && (s->alike || same_op(&m, t))) {
        complete(&m, t);
        ch_make_ready(w, warp, mask & ~(1u << lane));
    } else {
        ch_wait_turn(w);
    }
    if (ch_races(w))
        ch_tsan_acquire(&s->sync);
    return s->result[lane];
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
                if (t->op == CH_ACTIVEMASK && t->site->line == lanes[lane].site->line &&
                    !strcmp(t->site->file, lanes[lane].site->file))
                    group |= o & (0u - o);
            }
            for (unsigned o = group; o; o &= o - 1)
                w->warps[i].result[__builtin_ctz(o)] = group;
            w->warps[i].in_op &= ~group;
            ch_make_ready(w, i, group);
            left &= ~group;
            any = 1;
        }
    }
    return any;
}
