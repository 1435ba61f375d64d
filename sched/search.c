/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole dynamic scheduler: candidates from every algorithm, the best one on the timeline, then
 * local search by flipping one or two promotable operators.  Works on the merged chain.
 *
 * Contention.  A transfer that overlaps CPU operators takes w / kx and costs the chain (1 - km) of
 * that; averages weighted by tc stand for km and kx, and since part of a transfer overlaps GPU
 * work, where it is free, the DP runs with all, half and none of these prices.
 */
#include "sched/arena.h"
#include "sched/dynamic.h"
#include "sched/timeline.h"

#include <math.h>
#include <string.h>

struct search {
    const struct sched_search *how;
    struct sched_merged m;
    const struct sched_chain *ch; /* the merged one */
    int fluid;
    struct sched_run run;
    uint8_t *best, *trial;   /* [ch->n] */
    double best_ns, last_ns; /* of the best plan, of the candidate looked at last */
    uint32_t evals;
    uint32_t *free_op, n_free; /* operators with a choice */
    void *work;                /* scratch of whatever runs */
};

static double evaluate(struct search *s, const uint8_t *rb)
{
    s->evals++;
    if (s->fluid)
        return sched_fluid(s->ch, rb, &s->run, s->work);
    return (double)sched_latency(s->ch, rb, &s->run, s->work);
}

/* The plan in `trial` becomes the best one if it is. */
static void consider(struct search *s)
{
    double ns;
    uint8_t *old = s->best;
    s->last_ns = s->best_ns;
    if (s->evals > 0 && memcmp(s->trial, s->best, s->ch->n) == 0)
        return;
    ns = s->last_ns = evaluate(s, s->trial);
    if (s->evals > 1 && ns >= s->best_ns)
        return;
    s->best_ns = ns;
    s->best = s->trial;
    s->trial = old;
}

static void simple_candidates(struct search *s)
{
    memcpy(s->trial, s->ch->b, s->ch->n);
    consider(s);
    memcpy(s->trial, s->ch->b, s->ch->n);
    for (uint32_t k = 0; k < s->n_free; k++)
        s->trial[s->free_op[k]] = SCHED_GPU;
    consider(s);
    (void)sched_alg2(s->ch, SCHED_ALG2_CLIPPED, s->work, s->trial);
    consider(s);
    (void)sched_alg2_repaired(s->ch, s->work, s->trial);
    consider(s);
    for (uint32_t k = 0; k < s->how->n_extra; k++) {
        sched_merge_plan(&s->m, s->how->extra[k], s->trial);
        consider(s);
    }
}

/* Mean speeds of CPU operators and transfers beside each other, weighted by time. */
static void mean_speeds(const struct sched_chain *ch, double *km, double *kx)
{
    double total = 0, m = 0, x = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        double t = ch->b[i] == SCHED_CPU ? (double)ch->op[i].tc : 0;
        total += t;
        m += t * ch->op[i].km;
        x += t * ch->op[i].kx;
    }
    *km = total > 0 ? m / total : 1;
    *kx = total > 0 ? x / total : 1;
}

/* One run of the DP at price alpha of engine time and the share lam of what contention costs. */
static void run_backlog(struct search *s, const struct sched_backlog *base, double lam)
{
    struct sched_backlog how = *base;
    how.slower_pm = (uint32_t)lround(lam * base->slower_pm);
    how.lost_pm = (uint32_t)lround(lam * base->lost_pm);
    (void)sched_backlog(s->ch, &how, s->work, s->trial);
    consider(s);
}

/* The share lam is chosen at the first price of engine time and kept for the second. */
static void backlog_candidates(struct search *s)
{
    static const double lam[] = {1.0, 0.5, 0.0};
    struct sched_backlog how = {.width = s->how->width, .price = 3, .price_scale = 10};
    double km = 1, kx = 1, best_lam = 0, best_ns = HUGE_VAL;
    if (how.width == 0)
        how.width = sched_backlog_width(s->ch);
    if (s->fluid)
        mean_speeds(s->ch, &km, &kx);
    how.slower_pm = (uint32_t)lround(1000 * (1 / kx - 1));
    how.lost_pm = (uint32_t)lround(1000 * (1 - km) / kx);
    for (int l = how.slower_pm > 0 || how.lost_pm > 0 ? 0 : 2; l < 3; l++) {
        run_backlog(s, &how, lam[l]);
        if (s->last_ns < best_ns) {
            best_ns = s->last_ns;
            best_lam = lam[l];
        }
    }
    how.price = 1;
    how.price_scale = 2;
    if (!s->how->quick)
        run_backlog(s, &how, best_lam);
}

/* Evaluates the best plan with one or two operators flipped; keeps it if it is faster. */
static int try_flip(struct search *s, uint32_t i, uint32_t j)
{
    double ns;
    s->best[i] ^= 1;
    s->best[j] ^= i != j;
    ns = evaluate(s, s->best);
    if (ns < s->best_ns) {
        s->best_ns = ns;
        return 1;
    }
    s->best[i] ^= 1;
    s->best[j] ^= i != j;
    return 0;
}

/* First improvement: each free operator alone, with the next (which moves a promotion, or adds or
 * removes a pair) and with the one after. */
static void local_search(struct search *s)
{
    uint32_t limit = s->evals + s->how->evals;
    int improved = 1;
    while (improved && s->evals < limit) {
        improved = 0;
        for (uint32_t k = 0; k < s->n_free && s->evals < limit; k++)
            for (uint32_t far = 0; far < 3 && k + far < s->n_free; far++)
                if (try_flip(s, s->free_op[k], s->free_op[k + far])) {
                    improved = 1;
                    break;
                }
    }
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t work_scratch(uint32_t n, uint32_t rounds)
{
    size_t bytes = most(sched_alg2_scratch(n), sched_alg2_repaired_scratch(n));
    bytes = most(bytes, sched_backlog_scratch(n, SCHED_MAX_WIDTH));
    return most(bytes, sched_timeline_scratch(n, rounds));
}

size_t sched_search_scratch(uint32_t n, uint32_t rounds)
{
    return sched_merge_scratch(n) + 2 * SCHED_ROOM(uint8_t, n) + SCHED_ROOM(uint32_t, n) +
           work_scratch(n, rounds);
}

void sched_search(const struct sched_chain *ch, const struct sched_search *how, void *scratch,
                  uint8_t *rb_out, struct sched_found *out)
{
    unsigned char *at = scratch;
    struct search s = {.how = how, .run = {.rounds = how->rounds, .follows = how->rounds > 1}};
    sched_merge(ch, sched_take(&at, sched_merge_scratch(ch->n)), &s.m);
    s.ch = &s.m.chain;
    s.best = SCHED_TAKE(&at, uint8_t, ch->n);
    s.trial = SCHED_TAKE(&at, uint8_t, ch->n);
    s.free_op = SCHED_TAKE(&at, uint32_t, ch->n);
    s.work = at;
    s.fluid = how->judge == SCHED_JUDGE_FLUID ||
              (how->judge == SCHED_JUDGE_AUTO && sched_contended(s.ch));
    for (uint32_t i = 0; i < s.ch->n; i++)
        if (sched_is_free(s.ch, i))
            s.free_op[s.n_free++] = i;
    simple_candidates(&s);
    if (s.n_free > 0) {
        backlog_candidates(&s);
        local_search(&s);
    }
    sched_unmerge_plan(&s.m, s.best, rb_out);
    *out = (struct sched_found){llround(s.best_ns), s.evals, s.fluid};
}
