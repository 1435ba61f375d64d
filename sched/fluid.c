/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline with contention: at any time there is at most one activity of the chain (an
 * operator, an activation copy, waiting) and at most one weight transfer.  A CPU operator and a
 * transfer slow each other to km and kx, an activation copy and a transfer to am and ax; GPU
 * kernels and transfers do not meet.  Time jumps from one completion or start to the next.  O(n)
 * steps per round.
 */
#include "sched/arena.h"
#include "sched/timeline.h"

#include <math.h>
#include <string.h>

struct fluid {
    const struct sched_chain *ch;
    const uint8_t *rb;
    const struct sched_run *run;
    double t, start;   /* now; start of this round */
    uint32_t round, i; /* where the chain is: operators before i are done */
    /* The copy engine: the transfer under way, or the next one that will be. */
    uint32_t x, x_at, x_round; /* operator (n: none is left), place in `order`, its round */
    int active;
    double x_left, x_start;
    double x_ready;    /* earliest start of the next one, INFINITY while unknown */
    double *done;      /* [n] ends in this round */
    double *used;      /* the rings' entries */
    uint32_t *arrived; /* [n] rounds in which the weight has come */
    uint32_t n_started[SCHED_MAX_CLASSES], n_used[SCHED_MAX_CLASSES]; /* transfers; uses ended */
    struct sched_rings rings;
};

/* Next operator to be transferred after place f->x_at - 1. */
static void next_transfer(struct fluid *f)
{
    uint32_t n = f->ch->n;
    for (; f->x_round < f->run->rounds + f->run->follows; f->x_round++, f->x_at = 0) {
        if (f->run->order != NULL && f->x_at < f->run->n_order) {
            f->x = f->run->order[f->x_at++];
            return;
        }
        while (f->run->order == NULL && f->x_at < n)
            if (sched_promoted(f->ch, f->rb, f->x_at++)) {
                f->x = f->x_at - 1;
                return;
            }
    }
    f->x = n;
}

/* End of operator `of` in the next transfer's round, INFINITY while it has not ended. */
static double end_of(const struct fluid *f, int32_t of)
{
    return f->x_round == f->round && (uint32_t)of < f->i ? f->done[of] : INFINITY;
}

/* When the next transfer may start; the engine itself is free. */
static double ready(const struct fluid *f)
{
    const struct sched_op *op;
    uint32_t q, k;
    double e = 0;
    if (f->x == f->ch->n)
        return INFINITY;
    op = &f->ch->op[f->x];
    q = op->role;
    if (f->n_started[q] >= f->ch->depth[q]) {
        k = f->n_started[q] - f->ch->depth[q];
        if (f->n_used[q] <= k)
            return INFINITY;
        e = f->used[f->rings.base[q] + k % f->rings.size[q]];
    }
    if (op->rel >= 0)
        e = fmax(e, end_of(f, op->rel) + (double)f->ch->rlat);
    if (f->run->after != NULL && f->run->after[f->x] >= 0)
        e = fmax(e, end_of(f, f->run->after[f->x]));
    return e;
}

static void begin_transfer(struct fluid *f)
{
    const struct sched_op *op = &f->ch->op[f->x];
    f->active = 1;
    f->x_left = (double)op->w;
    f->x_start = f->t;
    f->n_started[op->role]++;
}

static void end_transfer(struct fluid *f)
{
    f->active = 0;
    f->arrived[f->x] = f->x_round + 1;
    if (f->run->xfer_span != NULL && f->x_round + 1 == f->run->rounds)
        f->run->xfer_span[f->x] = (struct sched_span){llround(f->x_start), llround(f->t)};
    next_transfer(f);
    f->x_ready = ready(f);
}

/* Lets time pass until the chain has done `work` at speed sm beside a transfer at speed sx. */
static void pass_on(struct fluid *f, double work, double sm, double sx)
{
    for (;;) {
        double chain, moved;
        if (!f->active) {
            if (f->x_ready > f->t + work) {
                f->t += work;
                return;
            }
            if (f->x_ready > f->t) {
                work -= f->x_ready - f->t;
                f->t = f->x_ready;
            }
            begin_transfer(f);
        }
        chain = work / sm;
        moved = chain * sx;
        if (moved < f->x_left) {
            f->t += chain;
            f->x_left -= moved;
            return;
        }
        chain = f->x_left / sx;
        f->t += chain;
        work = fmax(0, work - chain * sm);
        end_transfer(f);
    }
}

/* The same; most often nothing of the engine's begins or ends meanwhile. */
static inline void pass(struct fluid *f, double work, double sm, double sx)
{
    double chain = f->active ? work / sm : work, moved = chain * sx;
    if (f->active ? moved >= f->x_left : f->x_ready <= f->t + work) {
        pass_on(f, work, sm, sx);
        return;
    }
    f->t += chain;
    if (f->active)
        f->x_left -= moved;
}

/* Waits for the weight of operator i.  0 when it can never come. */
static int wait_weight(struct fluid *f, uint32_t i)
{
    while (f->arrived[i] <= f->round) {
        if (!f->active) {
            if (f->x_ready == (double)INFINITY)
                return 0;
            f->t = fmax(f->t, f->x_ready);
            begin_transfer(f);
        }
        f->t += f->x_left;
        end_transfer(f);
    }
    return 1;
}

static void end_operator(struct fluid *f, uint32_t i, double from)
{
    f->done[i] = f->t;
    f->i = i + 1;
    if (sched_promoted(f->ch, f->rb, i)) {
        uint32_t q = f->ch->op[i].role;
        f->used[f->rings.base[q] + f->n_used[q]++ % f->rings.size[q]] = f->t;
    }
    if (!f->active && f->x_ready == (double)INFINITY) /* this may be what it waited for */
        f->x_ready = ready(f);
    if (f->run->op_span != NULL)
        f->run->op_span[i] = (struct sched_span){llround(from), llround(f->t)};
}

static int one_round(struct fluid *f)
{
    const struct sched_chain *ch = f->ch;
    int loc = SCHED_CPU;
    f->i = 0;
    if (!f->active)
        f->x_ready = ready(f);
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *op = &ch->op[i];
        double from;
        if (f->rb[i] != loc)
            pass(f, (double)(loc == SCHED_CPU ? op->cg : op->gc), ch->am, ch->ax);
        loc = f->rb[i];
        if (sched_promoted(ch, f->rb, i)) {
            pass(f, (double)op->evt, 1, 1);
            if (!wait_weight(f, i))
                return 0;
        }
        from = f->t;
        if (loc == SCHED_CPU)
            pass(f, (double)op->tc, op->km, op->kx);
        else
            pass(f, (double)op->tg, 1, 1);
        end_operator(f, i, from);
    }
    if (loc == SCHED_GPU)
        pass(f, (double)ch->out, ch->am, ch->ax);
    return 1;
}

/* Spans were noted on the axis of all rounds; the caller's starts with the last one. */
static void shift_spans(const struct fluid *f)
{
    int64_t by = llround(f->start);
    for (uint32_t i = 0; i < f->ch->n; i++) {
        struct sched_span *s[2] = {f->run->op_span, f->run->xfer_span};
        for (int k = 0; k < 2; k++)
            if (s[k] != NULL && (k == 0 || sched_promoted(f->ch, f->rb, i))) {
                s[k][i].start -= by;
                s[k][i].end -= by;
            }
    }
}

double sched_fluid(const struct sched_chain *ch, const uint8_t *rb, const struct sched_run *run,
                   void *scratch)
{
    static const struct sched_run plain = {.rounds = 1};
    unsigned char *at = scratch;
    struct fluid f = {.ch = ch, .rb = rb, .run = run != NULL ? run : &plain};
    double from = 0;
    f.done = SCHED_TAKE(&at, double, ch->n);
    f.arrived = SCHED_TAKE(&at, uint32_t, ch->n);
    f.used = (double *)(void *)at;
    memset(f.arrived, 0, ch->n * sizeof f.arrived[0]);
    (void)sched_rings_init(&f.rings, ch, f.run->rounds);
    next_transfer(&f);
    for (f.round = 0; f.round < f.run->rounds; f.round++) {
        from = f.t;
        if (f.round > 0) {
            f.i = 0; /* nothing of this round is done yet */
            pass(&f, (double)ch->gap, 1, 1);
        }
        f.start = f.t;
        if (!one_round(&f))
            return -1;
    }
    if (f.run->op_span != NULL || f.run->xfer_span != NULL)
        shift_spans(&f);
    return f.t - from;
}
