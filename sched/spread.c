/* SPDX-License-Identifier: Apache-2.0
 * See spread.h. */
#include "sched/spread.h"
#include "sched/arena.h"
#include "sched/sort.h"

#include <math.h>
#include <string.h>

/* Whether a and b differ in nothing a placement sees. */
static int same(const struct sched_op *a, const struct sched_op *b)
{
    return a->s == b->s && a->tc == b->tc && a->tg == b->tg && a->w == b->w &&
           a->promo == b->promo && a->is_exp == b->is_exp && a->pinned == b->pinned &&
           a->role == b->role;
}

/* Whether every operator of layer a is the same as that at its place in layer b, an earlier one. */
static int same_make(const struct sched_spread *sp, uint32_t a, uint32_t b)
{
    uint32_t len = sp->start[a + 1] - sp->start[a];
    if (sp->start[b + 1] - sp->start[b] != len)
        return 0;
    return memcmp(sp->kin + sp->start[a], sp->kin + sp->start[b], len * sizeof sp->kin[0]) == 0;
}

static void find_kin(struct sched_spread *sp, const struct sched_op *d, const struct sched_op *p)
{
    for (uint32_t l = 0; l < sp->n_layers; l++)
        for (uint32_t i = sp->start[l]; i < sp->start[l + 1]; i++) {
            uint32_t at = i - sp->start[l];
            sp->kin[i] = i;
            for (uint32_t m = 0; m < l && d[i].layer >= 0 && sp->kin[i] == i; m++) {
                uint32_t k = sp->start[m] + at;
                if (k < sp->start[m + 1] && sp->kin[k] == k && d[k].layer >= 0 &&
                    same(&d[k], &d[i]) && same(&p[k], &p[i]))
                    sp->kin[i] = k;
            }
        }
}

size_t sched_spread_scratch(uint32_t n)
{
    return 5 * SCHED_ROOM(uint32_t, (size_t)n + 1) + SCHED_ROOM(double, n) +
           SCHED_ROOM(uint8_t, n) + SCHED_ROOM(int64_t, n);
}

void sched_spread_init(const struct sched_chain *decode, const struct sched_chain *prefill,
                       void *scratch, struct sched_spread *out)
{
    unsigned char *at = scratch;
    size_t room = (size_t)decode->n + 1;
    int64_t *s;
    *out = (struct sched_spread){.n = decode->n};
    out->kin = SCHED_TAKE(&at, uint32_t, room);
    out->start = SCHED_TAKE(&at, uint32_t, room);
    out->make = SCHED_TAKE(&at, uint32_t, room);
    out->from = SCHED_TAKE(&at, uint32_t, room);
    out->to = SCHED_TAKE(&at, uint32_t, room);
    out->key = SCHED_TAKE(&at, double, out->n);
    out->old = SCHED_TAKE(&at, uint8_t, out->n);
    s = SCHED_TAKE(&at, int64_t, out->n);
    out->s = s;
    for (uint32_t i = 0; i < out->n; i++) {
        s[i] = decode->op[i].s;
        if (i == 0 || decode->op[i].layer != decode->op[i - 1].layer)
            out->start[out->n_layers++] = i;
    }
    out->start[out->n_layers] = out->n;
    find_kin(out, decode->op, prefill->op);
    for (uint32_t l = 0; l < out->n_layers; l++) {
        out->make[l] = 0;
        while (out->make[l] < l && !same_make(out, l, out->make[l]))
            out->make[l]++;
    }
}

/* Fractional parts of multiples of the golden ratio fill an interval evenly, at every length. */
static double golden(uint32_t k)
{
    double x = (double)k * 0.6180339887498949;
    return x - floor(x);
}

static double resident_bytes(const struct sched_spread *sp, uint32_t layer, const uint8_t *b)
{
    double sum = 0;
    for (uint32_t i = sp->start[layer]; i < sp->start[layer + 1]; i++)
        sum += b[i] ? (double)sp->s[i] : 0;
    return sum;
}

/* Deals the layers of one make out anew: by falling resident bytes to places in golden order. */
static void deal_layers(const struct sched_spread *sp, uint32_t make, uint8_t *b)
{
    uint32_t n = 0;
    for (uint32_t l = make; l < sp->n_layers; l++)
        if (sp->make[l] == make) {
            sp->from[n] = sp->to[n] = l;
            sp->key[l] = golden(n++);
        }
    sched_sort_falling(sp->to, sp->key, n);
    for (uint32_t k = 0; k < n; k++)
        sp->key[sp->from[k]] = resident_bytes(sp, sp->from[k], sp->old);
    sched_sort_falling(sp->from, sp->key, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t a = sp->start[sp->from[k]];
        memcpy(b + sp->start[sp->to[k]], sp->old + a, sp->start[sp->from[k] + 1] - a);
    }
}

/* Among the operators of one kind as many are on the GPU as before, evenly spaced: one is taken
 * whenever the sum passes a multiple of their number. */
static void space_kind(const struct sched_spread *sp, uint32_t first, uint32_t eighths, uint8_t *b)
{
    uint64_t all = 0, on = 0, sum;
    for (uint32_t i = first; i < sp->n; i++)
        if (sp->kin[i] == first) {
            all++;
            on += b[i];
        }
    sum = all * eighths / 8;
    for (uint32_t i = first; i < sp->n; i++)
        if (sp->kin[i] == first) {
            sum += on;
            b[i] = sum >= all;
            sum -= sum >= all ? all : 0;
        }
}

void sched_spread_apply(const struct sched_spread *sp, enum sched_spread_how how, uint8_t *b)
{
    uint32_t kinds = 0;
    if (how == SCHED_SPREAD_LAYERS) {
        memcpy(sp->old, b, sp->n);
        for (uint32_t l = 0; l < sp->n_layers; l++)
            if (sp->make[l] == l)
                deal_layers(sp, l, b);
        return;
    }
    for (uint32_t i = 0; i < sp->n; i++)
        if (sp->kin[i] == i)
            space_kind(sp, i, how == SCHED_SPREAD_IN_STEP ? 4 : kinds++ * 5 % 8, b);
}
