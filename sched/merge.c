/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining runs of operators that live on the GPU.  Such a run has no choice in it, and neither
 * transfers nor the CPU notice where one of its kernels ends and the next begins, with one
 * exception: an operator that releases transfers (a router) must end its run, so that its end stays
 * known.
 */
#include "sched/arena.h"
#include "sched/chain.h"

#include <string.h>

size_t sched_merge_scratch(uint32_t n)
{
    return SCHED_ROOM(struct sched_op, n) + 2 * SCHED_ROOM(uint8_t, n) + SCHED_ROOM(uint32_t, n) +
           SCHED_ROOM(int32_t, n);
}

/* Appends operator i, or adds it to the run at the end. */
static uint32_t put(const struct sched_chain *ch, uint32_t i, int join, uint32_t n,
                    struct sched_op *op, const int32_t *now_at)
{
    if (join) {
        op[n - 1].tg += ch->op[i].tg;
        return n;
    }
    op[n] = ch->op[i];
    if (op[n].rel >= 0)
        op[n].rel = now_at[op[n].rel];
    return n + 1;
}

void sched_merge(const struct sched_chain *ch, void *scratch, struct sched_merged *out)
{
    unsigned char *at = scratch;
    struct sched_op *op = SCHED_TAKE(&at, struct sched_op, ch->n);
    uint8_t *b = SCHED_TAKE(&at, uint8_t, ch->n), *releases = SCHED_TAKE(&at, uint8_t, ch->n);
    uint32_t *first = SCHED_TAKE(&at, uint32_t, ch->n), n = 0;
    int32_t *now_at = SCHED_TAKE(&at, int32_t, ch->n);
    memset(releases, 0, ch->n);
    for (uint32_t i = 0; i < ch->n; i++)
        if (ch->op[i].rel >= 0)
            releases[ch->op[i].rel] = 1;
    for (uint32_t i = 0; i < ch->n; i++) {
        int join = i > 0 && ch->b[i] == SCHED_GPU && ch->b[i - 1] == SCHED_GPU && !releases[i - 1];
        n = put(ch, i, join, n, op, now_at);
        if (!join) {
            b[n - 1] = ch->b[i];
            first[n - 1] = i;
        }
        now_at[i] = (int32_t)n - 1;
    }
    out->chain = *ch;
    out->chain.n = n;
    out->chain.op = op;
    out->chain.b = b;
    out->first = first;
    out->n_full = ch->n;
}

void sched_merge_plan(const struct sched_merged *m, const uint8_t *full, uint8_t *merged_out)
{
    for (uint32_t k = 0; k < m->chain.n; k++)
        merged_out[k] = full[m->first[k]];
}

void sched_unmerge_plan(const struct sched_merged *m, const uint8_t *merged, uint8_t *full_out)
{
    for (uint32_t k = 0; k < m->chain.n; k++) {
        uint32_t end = k + 1 < m->chain.n ? m->first[k + 1] : m->n_full;
        memset(full_out + m->first[k], merged[k], end - m->first[k]);
    }
}
