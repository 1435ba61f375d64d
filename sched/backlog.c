/* SPDX-License-Identifier: Apache-2.0
 *
 * The backlog DP.  A label is one way to have run the operators so far: the chain's time T, the end
 * R of the last router, and what its transfers have come to, its past: the time E at which the copy
 * engine is free and the ends of use of the temporary slots.  Transfers are FIFO and as early as
 * possible, so extending a label by one operator follows the timeline exactly.  Only a promotion
 * makes a new past; otherwise labels are passed on with another T, and stay sorted.  Per operator
 * and side, labels that are no better than another in any respect are dropped, then all but the
 * fastest and those with the least T + alpha * (next transfer's start).
 *
 * docs/scheduling.md, "Backlog DP".
 */
#include "sched/arena.h"
#include "sched/dynamic.h"

#include <string.h>

enum {
    MAX_HIST = 64, /* slots remembered per past, over all classes */
    SHORT = 8,     /* histories up to here are copied as one block */
    MAX_DEPTH = 8, /* of them per class: more make no plan better by anything to speak of */
    KEYS = 3,
    POOL = 6 /* pasts per label of a side; two are in use after a step */
};
#define MAX_PRICED (INT64_C(1) << 42) /* see SCHED_MAX_OPS */

struct past {
    int64_t E;
    int64_t key[KEYS]; /* what is compared; [0]: earliest start of the next transfer */
    int64_t *hist;     /* [stride] ends of use, oldest first within a class */
    uint32_t trace;    /* its last promotion, 0: none */
    uint32_t seen;     /* the last round of recycle() that found it in use */
};

struct label {
    int64_t T, R;
    struct past *past;
};

/* The labels of one side, sorted by (T, E). */
struct front {
    struct label *label; /* [width] */
    uint32_t n;
};

/* A label about to be.  A promotion's past is new; its history is still that of `from`, to which T
 * will be added. */
struct cand {
    int64_t T, R;
    struct past *past, *from; /* the same: nothing moved */
};

/* A candidate to be a label unless better ones come, with what it is compared by. */
struct kept {
    int64_t key[KEYS], R, score;
    const struct cand *cand;
};

struct trace {
    uint32_t before; /* the promotion before this one */
    uint32_t op;
};

struct dp {
    const struct sched_chain *ch;
    const struct sched_backlog *how;
    uint32_t n_classes, hist_len, stride; /* of the classes that free operators use */
    uint32_t role[SCHED_MAX_CLASSES];     /* [n_classes] */
    uint32_t at[SCHED_MAX_CLASSES],
        depth[SCHED_MAX_CLASSES]; /* by role: place in hist; 0: unused */
    uint8_t *releases;            /* [n] 1: transfers wait for it */
    struct front cur[2], next[2];
    struct cand *cand[2];   /* [width] extended labels of a side */
    struct cand **order[2]; /* [width + 1] they, sorted, and the end */
    struct cand end;        /* slower than all */
    struct past *fresh[2];  /* [width] pasts of candidates */
    struct kept *kept;      /* [width] */
    uint32_t n_kept;
    uint32_t worst;  /* once `width` are kept: the one with the largest score but the first */
    int64_t too_bad; /* its score */
    struct past *pool, **unused; /* [POOL * width] of labels; those of none */
    int64_t *hist;               /* of the pool: [POOL * width][stride] */
    uint32_t n_unused, round;
    struct trace *trace; /* [width * free operators + 1], from 1 */
    uint32_t n_trace;
};

static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t per_mille(int64_t w, uint32_t pm)
{
    int64_t x = w / 1000 * pm + w % 1000 * pm / 1000;
    return x < MAX_PRICED ? x : MAX_PRICED;
}

/* ---- extending labels ---- */

/* Keys of a promotion's past.  With one class: the earliest starts of the next three transfers.
 * With several those of the next one are compared class by class, in starts_earlier(). */
static inline void set_keys(const struct dp *d, const struct cand *c)
{
    uint32_t depth = d->depth[d->role[0]];
    const int64_t *hist = c->from->hist;
    int64_t *key = c->past->key;
    key[0] = c->past->E;
    key[1] = key[2] = 0;
    if (d->n_classes != 1)
        return;
    key[0] = max64(key[0], depth > 1 ? hist[1] : c->T);
    if (depth > 1)
        key[1] = max64(key[0], depth > 2 ? hist[2] : c->T);
    if (depth > 2)
        key[2] = max64(key[0], depth > 3 ? hist[3] : c->T);
}

/* Labels of side `from` after operator i, `took` more on the chain. */
static void pass_on(struct dp *d, uint32_t i, int from, int64_t took)
{
    const struct front *f = &d->cur[from];
    for (uint32_t k = 0; k < f->n; k++) {
        const struct label *l = &f->label[k];
        int64_t T = l->T + took;
        d->cand[from][k] = (struct cand){T, d->releases[i] ? T : l->R, l->past, l->past};
        d->order[from][k] = &d->cand[from][k];
    }
    d->order[from][f->n] = &d->end;
}

static inline int before(const struct cand *a, const struct cand *b)
{
    return a->T < b->T || (a->T == b->T && a->past->E < b->past->E);
}

/* Labels of side `from` after promoting operator i: its transfer, the wait, its kernel. */
static void promote(struct dp *d, uint32_t i, int from)
{
    const struct sched_op *op = &d->ch->op[i];
    const struct front *f = &d->cur[from];
    int64_t w = op->w + per_mille(op->w, d->how->slower_pm);
    int64_t rest = op->tg + per_mille(op->w, d->how->lost_pm);
    int64_t ahead = op->evt + (from == SCHED_CPU ? op->cg : 0);
    struct cand **order = d->order[from];
    for (uint32_t k = 0; k < f->n; k++) {
        const struct label *l = &f->label[k];
        struct cand *c = &d->cand[from][k];
        int64_t start = max64(l->past->E, l->past->hist[d->at[op->role]]);
        uint32_t j = k;
        if (op->rel >= 0)
            start = max64(start, l->R + d->ch->rlat);
        c->past = &d->fresh[from][k];
        c->from = l->past;
        c->past->E = start + w;
        c->T = max64(l->T + ahead, start + w) + rest;
        c->R = d->releases[i] ? c->T : l->R;
        set_keys(d, c);
        for (; j > 0 && before(c, order[j - 1]); j--) /* they come sorted, or nearly so */
            order[j] = order[j - 1];
        order[j] = c;
    }
    order[f->n] = &d->end;
}

/* ---- choosing labels ---- */

/* End of use of the oldest slot of class q after the candidate, whose last promotion, if it is one,
 * is of class `role`. */
static inline int64_t slot_end(const struct dp *d, const struct cand *c, uint32_t q, uint32_t role)
{
    uint32_t k = c->past != c->from && q == role;
    return k < d->depth[q] ? c->from->hist[d->at[q] + k] : c->T;
}

/* Negative where a candidate with keys y and router's end R is better than a kept one. */
static inline int64_t better_by(const struct kept *x, const int64_t *y, int64_t R)
{
    return (y[0] - x->key[0]) | (y[1] - x->key[1]) | (y[2] - x->key[2]) | (R - x->R);
}

/* With several classes of slots: likewise the earliest starts of each one's next transfer. */
static int starts_earlier(const struct dp *d, const struct cand *a, const struct cand *b,
                          uint32_t role)
{
    for (uint32_t k = 0; k < d->n_classes; k++) {
        uint32_t q = d->role[k];
        if (max64(a->past->E, slot_end(d, a, q, role)) < max64(b->past->E, slot_end(d, b, q, role)))
            return 1;
    }
    return 0;
}

static int dominated_of_classes(const struct dp *d, const struct cand *c, uint32_t role)
{
    for (uint32_t j = d->n_kept; j-- > 0;)
        if (better_by(&d->kept[j], c->past->key, c->R) >= 0 &&
            !starts_earlier(d, c, d->kept[j].cand, role))
            return 1;
    return 0;
}

/* Whether a kept one, all of which are at least as fast as c, is as good in every other respect. */
static inline int dominated(const struct dp *d, const struct cand *c, uint32_t role)
{
    const int64_t *key = c->past->key;
    int64_t better = -1;
    if (d->n_classes != 1)
        return dominated_of_classes(d, c, role);
    for (uint32_t j = 0; j < d->n_kept; j++) /* without branches */
        better &= better_by(&d->kept[j], key, c->R);
    return better >= 0;
}

/* The one with the largest score but the first, the last one of equals. */
static void find_worst(struct dp *d)
{
    d->worst = d->n_kept - 1;
    for (uint32_t i = d->worst; i-- > 1;)
        if (d->kept[i].score > d->kept[d->worst].score)
            d->worst = i;
    d->too_bad = d->worst > 0 ? d->kept[d->worst].score : INT64_MIN;
}

/* Takes the next candidate in order of (T, E), unless another is better.  One whose score is too
 * large is not compared: what it would dominate has a larger score still. */
static inline void consider(struct dp *d, const struct cand *c, uint32_t role)
{
    const struct sched_backlog *how = d->how;
    const int64_t *key = c->past->key;
    int64_t score = c->T * how->price_scale + key[0] * how->price;
    if ((d->n_kept == how->width && score >= d->too_bad) || dominated(d, c, role))
        return;
    if (d->n_kept == how->width) {
        d->n_kept--;
        for (uint32_t i = d->worst; i < d->n_kept; i++)
            d->kept[i] = d->kept[i + 1];
    }
    d->kept[d->n_kept++] = (struct kept){{key[0], key[1], key[2]}, c->R, score, c};
    if (d->n_kept == how->width)
        find_worst(d);
}

static inline void copy_history(const struct dp *d, const struct cand *c, uint32_t role,
                                int64_t *to)
{
    const int64_t *hist = c->from->hist;
    if (d->n_classes == 1) { /* reads one past the history: a stride is one longer */
        memcpy(to, hist + 1, SHORT * sizeof *to);
        to[d->hist_len - 1] = c->T;
        return;
    }
    memcpy(to, hist, d->hist_len * sizeof *to);
    uint32_t first = d->at[role], last = first + d->depth[role] - 1;
    for (uint32_t k = first; k < last; k++)
        to[k] = hist[k + 1];
    to[last] = c->T;
}

/* A past of its own for a promotion of operator i that is kept. */
static struct past *new_past(struct dp *d, const struct cand *c, uint32_t i)
{
    struct past *p = d->unused[--d->n_unused];
    p->E = c->past->E;
    for (int x = 0; x < KEYS; x++)
        p->key[x] = c->past->key[x];
    copy_history(d, c, d->ch->op[i].role, p->hist);
    d->trace[d->n_trace] = (struct trace){c->from->trace, i};
    p->trace = d->n_trace++;
    return p;
}

/* The labels that end operator i on `side`, from the candidates. */
static void settle(struct dp *d, uint32_t i, int side)
{
    struct cand **a = d->order[0], **b = d->order[1];
    struct front *f = &d->next[side];
    d->n_kept = 0;
    for (uint32_t k = d->cur[0].n + d->cur[1].n; k > 0; k--) {
        int second = before(*b, *a);
        consider(d, second ? *b : *a, d->ch->op[i].role);
        a += !second;
        b += second;
    }
    f->n = d->n_kept;
    for (uint32_t k = 0; k < f->n; k++) {
        const struct cand *c = d->kept[k].cand;
        f->label[k] = (struct label){c->T, c->R, c->past == c->from ? c->past : new_past(d, c, i)};
    }
}

/* Finds the pasts that no label has any more. */
static void recycle(struct dp *d)
{
    d->round++;
    for (int side = SCHED_CPU; side <= SCHED_GPU; side++)
        for (uint32_t k = 0; k < d->cur[side].n; k++)
            d->cur[side].label[k].past->seen = d->round;
    d->n_unused = 0;
    for (uint32_t k = 0; k < POOL * d->how->width; k++)
        if (d->pool[k].seen != d->round)
            d->unused[d->n_unused++] = &d->pool[k];
}

static void step(struct dp *d, uint32_t i)
{
    const struct sched_op *op = &d->ch->op[i];
    int home = d->ch->b[i], may_move = sched_is_free(d->ch, i);
    struct front *next = d->next;
    next[0].n = next[1].n = 0;
    pass_on(d, i, SCHED_CPU, home == SCHED_CPU ? op->tc : op->cg + op->tg);
    pass_on(d, i, SCHED_GPU, home == SCHED_CPU ? op->gc + op->tc : op->tg);
    settle(d, i, home);
    if (may_move) {
        if (d->n_unused < d->how->width)
            recycle(d);
        promote(d, i, SCHED_CPU);
        promote(d, i, SCHED_GPU);
        settle(d, i, SCHED_GPU);
    }
    for (int side = SCHED_CPU; side <= SCHED_GPU; side++) {
        struct front f = d->cur[side];
        d->cur[side] = next[side];
        next[side] = f;
    }
}

/* ---- setting up and reading off ---- */

static void find_classes(struct dp *d)
{
    uint32_t most = MAX_DEPTH;
    memset(d->depth, 0, sizeof d->depth);
    for (uint32_t i = 0; i < d->ch->n; i++)
        if (sched_is_free(d->ch, i) && d->depth[d->ch->op[i].role] == 0) {
            d->depth[d->ch->op[i].role] = 1;
            d->role[d->n_classes++] = d->ch->op[i].role;
        }
    while (most * d->n_classes > MAX_HIST)
        most--;
    for (uint32_t k = 0; k < d->n_classes; k++) {
        uint32_t q = d->role[k];
        d->depth[q] = d->ch->depth[q] < most ? d->ch->depth[q] : most;
        d->at[q] = d->hist_len;
        d->hist_len += d->depth[q];
    }
    d->stride = (d->hist_len > SHORT ? d->hist_len : SHORT) + 1;
}

static void find_routers(struct dp *d)
{
    memset(d->releases, 0, d->ch->n);
    for (uint32_t i = 0; i < d->ch->n; i++)
        if (d->ch->op[i].rel >= 0 && sched_is_free(d->ch, i))
            d->releases[d->ch->op[i].rel] = 1;
}

uint32_t sched_backlog_width(const struct sched_chain *ch)
{
    uint32_t n_free = 0, width;
    for (uint32_t i = 0; i < ch->n; i++)
        n_free += (uint32_t)sched_is_free(ch, i);
    width = n_free > 0 ? 2048 / n_free : SCHED_MAX_WIDTH;
    return width < 8 ? 8 : width > SCHED_MAX_WIDTH ? SCHED_MAX_WIDTH : width;
}

size_t sched_backlog_scratch(uint32_t n, uint32_t width)
{
    size_t w = width;
    return 4 * SCHED_ROOM(struct label, w) + 2 * SCHED_ROOM(struct cand, w) +
           2 * SCHED_ROOM(struct cand *, w + 1) + SCHED_ROOM(struct kept, w) +
           2 * SCHED_ROOM(struct past, w) + SCHED_ROOM(struct past, POOL * w) +
           SCHED_ROOM(struct past *, POOL * w) + SCHED_ROOM(int64_t, POOL * w * (MAX_HIST + 1)) +
           SCHED_ROOM(struct trace, w * n + 1) + SCHED_ROOM(uint8_t, n);
}

static void lay_out(struct dp *d, unsigned char *at)
{
    size_t width = d->how->width;
    for (int k = 0; k < 2; k++) {
        d->cur[k].label = SCHED_TAKE(&at, struct label, width);
        d->next[k].label = SCHED_TAKE(&at, struct label, width);
        d->cand[k] = SCHED_TAKE(&at, struct cand, width);
        d->order[k] = SCHED_TAKE(&at, struct cand *, width + 1);
        d->fresh[k] = SCHED_TAKE(&at, struct past, width);
    }
    d->kept = SCHED_TAKE(&at, struct kept, width);
    d->pool = SCHED_TAKE(&at, struct past, POOL * width);
    d->unused = SCHED_TAKE(&at, struct past *, POOL * width);
    d->hist = SCHED_TAKE(&at, int64_t, POOL * width * (MAX_HIST + 1));
    d->trace = SCHED_TAKE(&at, struct trace, width * d->ch->n + 1);
    d->releases = SCHED_TAKE(&at, uint8_t, d->ch->n);
}

static void set_up(struct dp *d, void *scratch)
{
    lay_out(d, scratch);
    find_classes(d);
    find_routers(d);
    for (uint32_t k = 0; k < POOL * d->how->width; k++)
        d->pool[k] = (struct past){.hist = d->hist + (size_t)k * d->stride};
    d->pool[0].E = -d->how->idle_ns;
    for (int x = 0; x < KEYS; x++)
        d->pool[0].key[x] = -d->how->idle_ns;
    for (uint32_t k = 0; k < d->hist_len; k++)
        d->hist[k] = -d->how->idle_ns;
    d->cur[SCHED_CPU].n = 1;
    d->cur[SCHED_CPU].label[0] = (struct label){.past = d->pool};
    d->n_trace = 1;
    recycle(d);
}

/* The fastest label, result copied to the host included. */
static int64_t finish(const struct dp *d, uint32_t *trace_out)
{
    int64_t best = INT64_MAX;
    for (int side = SCHED_CPU; side <= SCHED_GPU; side++)
        for (uint32_t k = 0; k < d->cur[side].n; k++) {
            const struct label *l = &d->cur[side].label[k];
            int64_t t = l->T + (side == SCHED_GPU ? d->ch->out : 0);
            if (t < best) {
                best = t;
                *trace_out = l->past->trace;
            }
        }
    return best;
}

int64_t sched_backlog(const struct sched_chain *ch, const struct sched_backlog *how, void *scratch,
                      uint8_t *rb_out)
{
    struct dp d = {.ch = ch, .how = how, .end = {.T = INT64_MAX}};
    uint32_t trace = 0;
    int64_t best;
    set_up(&d, scratch);
    for (uint32_t i = 0; i < ch->n; i++)
        step(&d, i);
    best = finish(&d, &trace);
    memcpy(rb_out, ch->b, ch->n);
    for (; trace != 0; trace = d.trace[trace].before)
        rb_out[d.trace[trace].op] = SCHED_GPU;
    return best;
}
