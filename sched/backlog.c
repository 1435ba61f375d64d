/* SPDX-License-Identifier: Apache-2.0
 *
 * The backlog DP.  A label is one way to have run the operators so far: the chain's time T, the
 * time E at which the copy engine is free, the ends of use of the temporary slots, the end R of the
 * last router.  Transfers are FIFO and as early as possible, so extending a label by one operator
 * follows the timeline exactly.  Per operator and side, labels that are no better than another in
 * any respect are dropped, then all but the fastest and those with the least T + alpha * (next
 * transfer's start).
 *
 * docs/scheduling.md, "Backlog DP".
 */
#include "sched/arena.h"
#include "sched/dynamic.h"

#include <string.h>

enum {
    MAX_HIST = 64, /* slots remembered per label, over all classes */
    SHORT = 8,     /* histories up to here are copied as one block */
    MAX_DEPTH = 8, /* of them per class: more make no plan better by anything to speak of */
    KEYS = 4
};
#define MAX_PRICED (INT64_C(1) << 42) /* see SCHED_MAX_OPS */

struct label {
    int64_t T, E, R;
    int64_t key[KEYS]; /* what is compared besides T; [0]: earliest start of the next transfer */
    uint32_t trace;    /* its last decision */
};

/* The labels of one side, sorted by (T, E), with their slot histories beside them. */
struct front {
    struct label *label; /* [width] */
    int64_t *hist;       /* [width][stride], oldest first within a class */
    uint32_t n;
};

/* A label about to be: its history is `hist`, to which a promotion adds T. */
struct cand {
    int64_t T, E, R;
    int64_t key[KEYS];
    const int64_t *hist;
    uint32_t trace;
    uint32_t promoted;
};

struct trace {
    uint32_t before; /* the decision before this one */
    uint32_t side;
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
    struct cand *cand;            /* [2 * width] */
    struct cand **order, **spare; /* [2 * width] */
    int64_t *score;               /* [2 * width] */
    struct trace *trace;          /* [2 * width * free operators] */
    uint32_t n_trace, n_cand;
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

/* End of use of the k-th oldest slot of class q after the candidate, a promotion of class `role` or
 * none. */
static inline int64_t slot_end(const struct dp *d, const struct cand *c, uint32_t q, uint32_t role,
                               uint32_t k)
{
    if (c->promoted && q == role)
        k++;
    return k < d->depth[q] ? c->hist[d->at[q] + k] : c->T;
}

/* Keys of a promotion.  With one class: the earliest starts of the next three transfers.  With
 * several those of the next one are compared class by class, in dominates(). */
static inline void set_keys(const struct dp *d, struct cand *c)
{
    uint32_t depth = d->depth[d->role[0]];
    c->key[0] = c->E;
    c->key[1] = c->key[2] = 0;
    if (d->n_classes != 1)
        return;
    c->key[0] = max64(c->E, depth > 1 ? c->hist[1] : c->T);
    if (depth > 1)
        c->key[1] = max64(c->key[0], depth > 2 ? c->hist[2] : c->T);
    if (depth > 2)
        c->key[2] = max64(c->key[0], depth > 3 ? c->hist[3] : c->T);
}

/* Candidate after label k of front f: nothing moved, `took` more on the chain. */
static inline struct cand *pass_on(struct dp *d, const struct front *f, uint32_t k, int64_t took)
{
    const struct label *l = &f->label[k];
    struct cand *c = &d->cand[d->n_cand];
    c->hist = f->hist + (size_t)k * d->stride;
    c->trace = l->trace;
    c->promoted = 0;
    c->T = l->T + took;
    c->E = l->E;
    c->R = l->R;
    for (int x = 0; x < KEYS; x++)
        c->key[x] = l->key[x];
    d->order[d->n_cand++] = c;
    return c;
}

/* Makes a candidate a promotion of operator i: its transfer, the wait, its kernel. */
static inline void promote(const struct dp *d, const struct sched_op *op, int64_t w, int64_t rest,
                           struct cand *c)
{
    int64_t st = max64(c->E, c->hist[d->at[op->role]]);
    if (op->rel >= 0)
        st = max64(st, c->R + d->ch->rlat);
    c->E = st + w;
    c->T = max64(c->T + op->evt, c->E) + rest;
    c->promoted = 1;
    set_keys(d, c);
}

/* Candidates for running operator i on `side` after the labels of side `from`. */
static void extend(struct dp *d, uint32_t i, int from, int side)
{
    const struct sched_op *op = &d->ch->op[i];
    const struct front *f = &d->cur[from];
    int moved = side == SCHED_GPU && d->ch->b[i] == SCHED_CPU;
    int64_t took = from == side ? 0 : side == SCHED_GPU ? op->cg : op->gc, w = 0, rest = 0;
    if (moved) {
        w = op->w + per_mille(op->w, d->how->slower_pm);
        rest = op->tg + per_mille(op->w, d->how->lost_pm);
    } else {
        took += side == SCHED_GPU ? op->tg : op->tc;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        struct cand *c = pass_on(d, f, k, took);
        if (moved)
            promote(d, op, w, rest, c);
        if (d->releases[i])
            c->R = c->key[3] = c->T;
    }
}

/* ---- choosing labels ---- */

static inline int before(const struct cand *a, const struct cand *b)
{
    return a->T < b->T || (a->T == b->T && a->E < b->E);
}

/* Insertion sort: lists come sorted, or nearly so. */
static void sort_list(struct cand **list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct cand *x = list[i];
        uint32_t j = i;
        for (; j > 0 && before(x, list[j - 1]); j--)
            list[j] = list[j - 1];
        list[j] = x;
    }
}

/* Sorts order[0..n), which is two lists, the second from `half` on. */
static void sort_halves(struct dp *d, uint32_t half)
{
    struct cand **a = d->order, **b = d->order + half, **end = d->order + d->n_cand,
                **out = d->spare;
    sort_list(a, half);
    sort_list(b, d->n_cand - half);
    while (a < d->order + half && b < end)
        *out++ = before(*b, *a) ? *b++ : *a++;
    while (a < d->order + half)
        *out++ = *a++;
    while (b < end)
        *out++ = *b++;
    out = d->order;
    d->order = d->spare;
    d->spare = out;
}

/* Whether a label that is at least as fast as b is as good in every other respect. */
static inline int dominates(const struct dp *d, const struct cand *a, const struct cand *b,
                            uint32_t role)
{
    if ((a->key[0] > b->key[0]) | (a->key[1] > b->key[1]) | (a->key[2] > b->key[2]) |
        (a->key[3] > b->key[3]))
        return 0;
    for (uint32_t k = 0; d->n_classes > 1 && k < d->n_classes; k++) {
        uint32_t q = d->role[k];
        if (max64(a->E, slot_end(d, a, q, role, 0)) > max64(b->E, slot_end(d, b, q, role, 0)))
            return 0;
    }
    return 1;
}

/* Leaves the undominated ones in order[0..return). */
static uint32_t drop_dominated(struct dp *d, uint32_t role)
{
    int64_t least = INT64_MAX;
    uint32_t m = 0;
    for (uint32_t i = 0; i < d->n_cand; i++) {
        struct cand *c = d->order[i];
        int dominated = 0;
        if (c->key[0] >= least) /* else nothing before it can */
            for (uint32_t j = m; j-- > 0 && !dominated;)
                dominated = dominates(d, d->order[j], c, role);
        if (dominated)
            continue;
        least = c->key[0] < least ? c->key[0] : least;
        d->order[m++] = c;
    }
    return m;
}

/* Drops those with the largest scores until `width` are left; never the fastest. */
static uint32_t keep_best(struct dp *d, uint32_t m)
{
    const struct sched_backlog *how = d->how;
    for (uint32_t i = 0; m > how->width && i < m; i++)
        d->score[i] = d->order[i]->T * how->price_scale + d->order[i]->key[0] * how->price;
    while (m > how->width) {
        uint32_t worst = m - 1;
        for (uint32_t i = m - 1; i-- > 1;)
            if (d->score[i] > d->score[worst])
                worst = i;
        m--;
        for (uint32_t i = worst; i < m; i++) {
            d->order[i] = d->order[i + 1];
            d->score[i] = d->score[i + 1];
        }
    }
    return m;
}

static inline void copy_history(const struct dp *d, const struct cand *c, uint32_t role,
                                int64_t *to)
{
    if (d->n_classes == 1) { /* reads one past the history when shifting: there is room */
        memcpy(to, c->hist + c->promoted, SHORT * sizeof *to);
        if (c->promoted)
            to[d->hist_len - 1] = c->T;
        return;
    }
    memcpy(to, c->hist, d->hist_len * sizeof *to);
    if (c->promoted) {
        uint32_t first = d->at[role], last = first + d->depth[role] - 1;
        for (uint32_t k = first; k < last; k++)
            to[k] = c->hist[k + 1];
        to[last] = c->T;
    }
}

/* The labels that end operator i on `side`. */
static void settle(struct dp *d, uint32_t i, int side, uint32_t half)
{
    struct front *f = &d->next[side];
    uint32_t role = d->ch->op[i].role;
    int decided = sched_is_free(d->ch, i);
    sort_halves(d, half);
    f->n = keep_best(d, drop_dominated(d, role));
    for (uint32_t k = 0; k < f->n; k++) {
        const struct cand *c = d->order[k];
        struct label *l = &f->label[k];
        l->T = c->T;
        l->E = c->E;
        l->R = c->R;
        for (int x = 0; x < KEYS; x++)
            l->key[x] = c->key[x];
        l->trace = c->trace;
        copy_history(d, c, role, f->hist + (size_t)k * d->stride);
        if (decided) {
            d->trace[d->n_trace] = (struct trace){c->trace, (uint32_t)side};
            l->trace = d->n_trace++;
        }
    }
}

static void step(struct dp *d, uint32_t i)
{
    for (int side = SCHED_CPU; side <= SCHED_GPU; side++) {
        uint32_t half;
        d->n_cand = 0;
        d->next[side].n = 0;
        if (side == d->ch->b[i] || sched_is_free(d->ch, i)) {
            extend(d, i, SCHED_CPU, side);
            half = d->n_cand;
            extend(d, i, SCHED_GPU, side);
            settle(d, i, side, half);
        }
    }
    for (int side = SCHED_CPU; side <= SCHED_GPU; side++) {
        struct front f = d->cur[side];
        d->cur[side] = d->next[side];
        d->next[side] = f;
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
    d->stride = d->hist_len > SHORT ? d->hist_len : SHORT;
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
    size_t two = 2 * (size_t)width;
    return 4 * (SCHED_ROOM(struct label, width) +
                SCHED_ROOM(int64_t, (size_t)width * MAX_HIST + 1)) +
           SCHED_ROOM(struct cand, two) + 2 * SCHED_ROOM(struct cand *, two) +
           SCHED_ROOM(int64_t, two) + SCHED_ROOM(struct trace, two * n) + SCHED_ROOM(uint8_t, n);
}

static void set_up(struct dp *d, void *scratch)
{
    unsigned char *at = scratch;
    size_t width = d->how->width;
    struct front *all[4] = {&d->cur[0], &d->cur[1], &d->next[0], &d->next[1]};
    find_classes(d);
    for (int k = 0; k < 4; k++) {
        all[k]->label = SCHED_TAKE(&at, struct label, width);
        all[k]->hist = SCHED_TAKE(&at, int64_t, width * MAX_HIST + 1);
    }
    d->cand = SCHED_TAKE(&at, struct cand, 2 * width);
    d->order = SCHED_TAKE(&at, struct cand *, 2 * width);
    d->spare = SCHED_TAKE(&at, struct cand *, 2 * width);
    d->score = SCHED_TAKE(&at, int64_t, 2 * width);
    d->trace = SCHED_TAKE(&at, struct trace, 2 * width * d->ch->n);
    d->releases = SCHED_TAKE(&at, uint8_t, d->ch->n);
    find_routers(d);
    d->cur[SCHED_CPU].n = 1;
    d->cur[SCHED_CPU].label[0] = (struct label){.E = -d->how->idle_ns};
    for (int x = 0; x < KEYS - 1; x++)
        d->cur[SCHED_CPU].label[0].key[x] = -d->how->idle_ns;
    for (uint32_t k = 0; k < d->hist_len; k++)
        d->cur[SCHED_CPU].hist[k] = -d->how->idle_ns;
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
                *trace_out = l->trace;
            }
        }
    return best;
}

int64_t sched_backlog(const struct sched_chain *ch, const struct sched_backlog *how, void *scratch,
                      uint8_t *rb_out)
{
    struct dp d = {.ch = ch, .how = how};
    uint32_t trace = 0;
    int64_t best;
    set_up(&d, scratch);
    for (uint32_t i = 0; i < ch->n; i++)
        step(&d, i);
    best = finish(&d, &trace);
    for (uint32_t i = ch->n; i-- > 0;) {
        rb_out[i] = ch->b[i];
        if (sched_is_free(ch, i)) {
            rb_out[i] = (uint8_t)d.trace[trace].side;
            trace = d.trace[trace].before;
        }
    }
    return best;
}
