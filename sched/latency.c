/* SPDX-License-Identifier: Apache-2.0
 *
 * The contention-free timeline: a recursion over the operators with the chain's time T, the time E
 * at which the copy engine is free, and the ends of use of the temporary slots.  Exact in integers,
 * O(n) per round.  docs/scheduling.md, "Timeline".
 */
#include "sched/arena.h"
#include "sched/timeline.h"

#include <inttypes.h>
#include <string.h>

size_t sched_timeline_scratch(uint32_t n, uint32_t rounds)
{
    return SCHED_ROOM(int64_t, n) + SCHED_ROOM(int64_t, (size_t)n * rounds) +
           SCHED_ROOM(uint32_t, n);
}

uint32_t sched_rings_init(struct sched_rings *r, const struct sched_chain *ch, uint32_t rounds)
{
    uint32_t n = ch->n_classes, at = 0;
    memset(r->size, 0, n * sizeof r->size[0]);
    memset(r->head, 0, n * sizeof r->head[0]);
    if (n == 1)
        r->size[0] = ch->n;
    else
        for (uint32_t i = 0; i < ch->n; i++)
            r->size[ch->op[i].role]++;
    for (uint32_t q = 0; q < n; q++) {
        uint32_t most = r->size[q] * rounds;
        r->base[q] = at;
        r->size[q] = ch->depth[q] < most ? ch->depth[q] : most;
        at += r->size[q];
    }
    return at;
}

static int check_order(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                       uint8_t *seen, struct atsi_err *err)
{
    uint32_t n_promoted = 0;
    for (uint32_t i = 0; i < ch->n; i++)
        n_promoted += (uint32_t)sched_promoted(ch, rb, i);
    if (run->n_order != n_promoted)
        return atsi_fail(err, ATSI_EINVAL, "the order names %u transfers, the plan has %u",
                         run->n_order, n_promoted);
    memset(seen, 0, ch->n);
    for (uint32_t k = 0; k < run->n_order; k++) {
        uint32_t i = run->order[k];
        if (i >= ch->n || seen[i] || !sched_promoted(ch, rb, i))
            return atsi_fail(err, ATSI_EINVAL,
                             "order[%u] is %u, which is not a promoted operator or came before", k,
                             i);
        seen[i] = 1;
    }
    return ATSI_OK;
}

int sched_run_check(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                    void *scratch, struct atsi_err *err)
{
    if (run->rounds < 1 || run->rounds > SCHED_MAX_ROUNDS)
        return atsi_fail(err, ATSI_EINVAL, "%u rounds, outside 1..%u", run->rounds,
                         SCHED_MAX_ROUNDS);
    for (uint32_t i = 0; run->after != NULL && i < ch->n; i++)
        if (run->after[i] < -1 || (run->after[i] >= 0 && (uint32_t)run->after[i] >= i))
            return atsi_fail(err, ATSI_EINVAL,
                             "operator %u: its transfer is to wait for operator %d, which is not "
                             "an earlier one",
                             i, run->after[i]);
    return run->order == NULL ? ATSI_OK : check_order(ch, rb, run, scratch, err);
}

struct walk {
    const struct sched_chain *ch;
    const struct sched_run *run;
    int64_t T, E;
    int64_t *done; /* [n] ends in this round */
    int64_t *used; /* the rings' entries */
    struct sched_rings rings;
    int64_t start; /* of this round */
};

static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Runs promoted operator i: its transfer, the wait for it, its kernel. */
static inline void promoted(struct walk *k, const struct sched_op *op, uint32_t i)
{
    uint32_t q = op->role, head = k->rings.head[q];
    int64_t *slot = &k->used[k->rings.base[q] + head];
    int64_t st = max64(k->E, *slot);
    if (op->rel >= 0)
        st = max64(st, k->done[op->rel] + k->ch->rlat);
    if (k->run->after != NULL && k->run->after[i] >= 0)
        st = max64(st, k->done[k->run->after[i]]);
    k->E = st + op->w;
    k->T = max64(k->T + op->evt, k->E) + op->tg;
    *slot = k->T;
    k->rings.head[q] = head + 1 < k->rings.size[q] ? head + 1 : 0;
    if (k->run->xfer_span != NULL)
        k->run->xfer_span[i] = (struct sched_span){st - k->start, k->E - k->start};
}

static void one_round(struct walk *k, const uint8_t *rb)
{
    const struct sched_chain *ch = k->ch;
    int loc = SCHED_CPU;
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *op = &ch->op[i];
        int64_t took = rb[i] == SCHED_CPU ? op->tc : op->tg;
        if (rb[i] != loc)
            k->T += loc == SCHED_CPU ? op->cg : op->gc;
        loc = rb[i];
        if (sched_promoted(ch, rb, i))
            promoted(k, op, i);
        else
            k->T += took;
        k->done[i] = k->T;
        if (k->run->op_span != NULL)
            k->run->op_span[i] = (struct sched_span){k->T - took - k->start, k->T - k->start};
    }
    if (loc == SCHED_GPU)
        k->T += ch->out;
}

int64_t sched_latency(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                      void *scratch)
{
    static const struct sched_run plain = {.rounds = 1};
    unsigned char *at = scratch;
    struct walk k = {.ch = ch, .run = run != NULL ? run : &plain};
    int64_t from = 0;
    k.done = SCHED_TAKE(&at, int64_t, ch->n);
    k.used = (int64_t *)(void *)at;
    memset(k.used, 0, sched_rings_init(&k.rings, ch, k.run->rounds) * sizeof k.used[0]);
    for (uint32_t r = 0; r < k.run->rounds; r++) {
        from = k.T;
        if (r > 0)
            k.T += ch->gap;
        k.start = k.T;
        one_round(&k, rb);
    }
    return k.T - from;
}
