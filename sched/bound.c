/* SPDX-License-Identifier: Apache-2.0
 *
 * A lower bound on the period of a placement.  Promoting operator i takes tc - tg off the chain and
 * puts w on the engine; a period is no shorter than either.  Promoting by falling gain per transfer
 * time, the last one in part, until both are equal is the optimum of that relaxation.
 */
#include "sched/arena.h"
#include "sched/place.h"
#include "sched/sort.h"

__extension__ typedef __int128 wide;

static int64_t whole_chain(const struct sched_chain *ch)
{
    int64_t t = ch->gap;
    for (uint32_t i = 0; i < ch->n; i++)
        t += ch->b[i] == SCHED_CPU ? ch->op[i].tc : ch->op[i].tg;
    /* A result on the host needs no copy, so it is certain only where the last one lives on the
     * GPU. */
    return t + (ch->n > 0 && ch->b[ch->n - 1] == SCHED_GPU ? ch->out : 0);
}

size_t sched_bound_scratch(uint32_t n)
{
    return SCHED_ROOM(double, n) + SCHED_ROOM(uint32_t, n);
}

int64_t sched_bound(const struct sched_chain *ch, void *scratch)
{
    unsigned char *at = scratch;
    double *key = SCHED_TAKE(&at, double, ch->n);
    uint32_t *id = SCHED_TAKE(&at, uint32_t, ch->n), n = 0;
    int64_t chain = whole_chain(ch), engine = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *op = &ch->op[i];
        if (sched_is_free(ch, i) && op->tc > op->tg) {
            key[i] = (double)(op->tc - op->tg) / (double)(op->w > 0 ? op->w : 1);
            id[n++] = i;
        }
    }
    sched_sort_falling(id, key, n);
    for (uint32_t k = 0; k < n; k++) {
        int64_t gain = ch->op[id[k]].tc - ch->op[id[k]].tg, w = ch->op[id[k]].w;
        if (engine + w > chain - gain) {
            /* The share x of this one that makes both equal: chain - x gain = engine + x w. */
            wide num = (wide)gain * (chain - engine), den = (wide)w + gain;
            return chain - (int64_t)((num + den - 1) / den);
        }
        chain -= gain;
        engine += w;
    }
    return chain;
}
